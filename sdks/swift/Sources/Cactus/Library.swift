import CCactus
import Foundation

/// The library itself. (It is not called `Cactus`, because a type that has the name of its module hides the module: nobody could write
/// `Cactus.Model` any more.)
public enum Library {
    /// The version of the library, as in `0.1.0`.
    public static var version: String { String(cString: cactus_version()) }

    /// The ABI of the library that is loaded.
    public static var abiVersion: UInt32 { cactus_abi_version() }

    /// Compares the ABI of the library with the one that this package was made for. Whatever loads something does so first.
    static func check() throws {
        try checked.get()
    }

    private static let checked: Result<Void, CactusError> = compared(found: abiVersion, expected: UInt32(CACTUS_ABI_VERSION))

    static func compared(found: UInt32, expected: UInt32) -> Result<Void, CactusError> {
        if found == expected { return .success(()) }
        let old =
            found < expected
            ? "the library is the old side: install one that has ABI \(expected)"
            : "the Swift package is the old side: take a version of it that has ABI \(found)"
        let what = "libcactus \(version) has ABI \(found), and this Swift package was made for ABI \(expected); \(old)"
        return .failure(CactusError(code: Code.notInBuild, message: what))
    }

    /// Whether a bundle can be used with this library, and why not. `verify` reads all of it and compares checksums.
    public static func checkBundle(_ path: String, verify: Bool = false) async throws -> BundleReport {
        try await Worker.run {
            try check()
            var text: UnsafeMutablePointer<CChar>?
            let code = try cactus_check_bundle(whole(path), verify, &text)
            guard text != nil else {
                try Cactus.check(code)
                throw CactusError(code: Code.internal, message: "there is no report")
            }
            return BundleReport(json: try JSON(parsing: taken(text)))
        }
    }

    /// Tells the library that memory is short. Every open model forgets what it keeps of earlier prompts. No answer changes.
    ///
    /// `Lifecycle` calls it when the system says so.
    public static func memoryPressure() {
        cactus_memory_pressure()
    }

    public enum LogLevel: Int32, Sendable, Comparable {
        case debug, information, warning, error
        /// Says nothing.
        case off

        public static func < (a: LogLevel, b: LogLevel) -> Bool { a.rawValue < b.rawValue }
    }

    /// Takes what the library has to say. Without a function it says nothing.
    ///
    /// The function is called on the thread whose call it is about, so it should be quick.
    public static func setLog(level: LogLevel = .warning, _ function: (@Sendable (_ level: LogLevel, _ part: String, _ message: String) -> Void)?) {
        log.with { $0 = function }
        cactus_log_set_level(level.rawValue)
        guard function != nil else {
            cactus_log_set_callback(nil, nil)
            return
        }
        cactus_log_set_callback(
            { level, part, message, _ in
                guard let function = Library.log.with({ $0 }), let part, let message else { return }
                function(LogLevel(rawValue: level) ?? .error, String(cString: part), String(cString: message))
            }, nil)
    }

    private static let log = Locked<(@Sendable (LogLevel, String, String) -> Void)?>(nil)
}

/// What is known of a bundle.
public struct BundleReport: Sendable, Hashable {
    /// All that is known, under the names of the library.
    public let json: JSON

    public var isUsable: Bool { json["usable"]?.bool ?? false }
    /// Why it cannot be used.
    public var error: CactusError? {
        guard let code = json["code"]?.int else { return nil }
        return CactusError(code: Int32(clamping: code), message: json["message"]?.string ?? "")
    }
    public var name: String? { json["name"]?.string }
    public var family: String? { json["family"]?.string }
    public var contextTokens: Int? { json["context_tokens"]?.int }
    /// Bytes of the weights, which are mapped.
    public var mappedBytes: Int64? { json["mapped_bytes"]?.int.map(Int64.init) }
}
