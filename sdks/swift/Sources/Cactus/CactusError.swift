import CCactus
import Foundation

/// What went wrong: a code and kind for a program, a message for a person.
public struct CactusError: Error, Sendable, Hashable {
    /// The name of a code, as in `handle`. Kinds never change their meaning; later versions may have more.
    public struct Kind: RawRepresentable, Sendable, Hashable, ExpressibleByStringLiteral, CustomStringConvertible {
        public let rawValue: String

        public init(rawValue: String) { self.rawValue = rawValue }
        public init(stringLiteral value: String) { rawValue = value }
        public var description: String { rawValue }

        /// A defect of the library.
        public static let `internal`: Kind = "internal"
        /// An argument is out of range, or JSON of the wrong form.
        public static let argument: Kind = "argument"
        /// The object was closed.
        public static let handle: Kind = "handle"
        /// The bundle is missing, damaged, or of a version that is not read.
        public static let bundle: Kind = "bundle"
        /// The model cannot do what is asked of it.
        public static let unsupported: Kind = "unsupported"
        /// The tokenizer or the chat template is missing or fails.
        public static let text: Kind = "text"
        /// The prompt does not fit the context.
        public static let contextFull: Kind = "context_full"
        /// The model computed something that is no number.
        public static let numeric: Kind = "numeric"
        /// Too many requests wait, or the session is answering already.
        public static let busy: Kind = "busy"
        /// It was cancelled.
        public static let cancelled: Kind = "cancelled"
        /// The model cannot be downloaded or converted.
        public static let fetch: Kind = "fetch"
        /// A file cannot be read or written, or memory cannot be had.
        public static let system: Kind = "system"
        /// This build of the library does not have it.
        public static let notInBuild: Kind = "not_in_build"
        /// There is no model of that name, or nothing at that path.
        public static let notFound: Kind = "not_found"
        /// The model is not on this machine, and the network cannot be reached or is turned off.
        public static let offline: Kind = "offline"
        /// The service wants a token, or refuses the one that it got.
        public static let unauthorized: Kind = "unauthorized"
        /// Under a policy, neither this machine nor a target has answered.
        public static let unanswered: Kind = "unanswered"
    }

    /// The number of ``kind``, as `cactus.h` has it.
    public let code: Int32
    public let kind: Kind
    /// What was expected, what was found, and where.
    public let message: String

    init(code: Int32, message: String) {
        self.code = code
        kind = Kind(rawValue: String(cString: cactus_error_kind(code)))
        self.message = message
    }

    /// The error of the call that has just failed on this thread.
    static var last: CactusError {
        var error = cactus_error()
        cactus_last_error(&error)
        return CactusError(code: error.code, message: error.message.map { String(cString: $0) } ?? "")
    }
}

/// Codes that errors of this package have. (The header has `cactus_code` as an enumeration and as a number, and Swift cannot name either.)
enum Code {
    static let argument = CACTUS_CODE_ARGUMENT.rawValue
    static let `internal` = CACTUS_CODE_INTERNAL.rawValue
    static let handle = CACTUS_CODE_HANDLE.rawValue
    static let cancelled = CACTUS_CODE_CANCELLED.rawValue
    static let text = CACTUS_CODE_TEXT.rawValue
    static let notInBuild = CACTUS_CODE_NOT_IN_BUILD.rawValue
    static let bufferTooSmall = CACTUS_CODE_BUFFER_TOO_SMALL.rawValue
}

extension CactusError: LocalizedError, CustomStringConvertible {
    public var errorDescription: String? { message }
    public var description: String { "\(kind): \(message)" }
}

/// Throws the error of this thread where `code` says that a call has failed.
func check(_ code: Int32) throws {
    if code != 0 { throw CactusError.last }
}

/// A string of the library's, which is freed.
func taken(_ text: UnsafeMutablePointer<CChar>?) -> String {
    guard let text else { return "" }
    defer { cactus_string_free(text) }
    return String(cString: text)
}

/// Gives a call the place of a string, and the string or the error of the call.
func taking(_ call: (UnsafeMutablePointer<UnsafeMutablePointer<CChar>?>) -> Int32) throws -> String {
    var text: UnsafeMutablePointer<CChar>?
    let code = call(&text)
    let result = taken(text)
    try check(code)
    return result
}

/// Lends a text as a C string, or NULL for nil. One that C would cut is refused.
func lending<R>(_ text: String?, _ body: (UnsafePointer<CChar>?) throws -> R) throws -> R {
    guard let text else { return try body(nil) }
    return try whole(text).withCString(body)
}

/// A text that C can have: it ends at a zero byte.
func whole(_ text: String) throws -> String {
    guard !text.utf8.contains(0) else { throw CactusError(code: Code.argument, message: "the text has a zero byte") }
    return text
}

/// A count that the library takes. More is a mistake, and room would be taken for it.
func counted(_ count: Int, _ name: String) throws -> Int {
    let most = 1 << 20
    guard (0...most).contains(count) else {
        throw CactusError(code: Code.argument, message: "`\(name)`: expected 0 to \(most), found \(count)")
    }
    return count
}
