import CCactus
import Foundation

/// A model that makes vectors of texts, and some of pictures.
///
/// ```swift
/// let embedder = try await Embedder.load("minilm")
/// let vectors = try await embedder.embed(["a cat", "a kitten"])
/// ```
public final class Embedder: Sendable {
    private let owner: Owner
    /// Floats of a vector, once one was made.
    private let dimension = Locked<Int?>(nil)

    private init(owner: Owner) {
        self.owner = owner
    }

    /// Loads a bundle. ``Model/prepare(_:options:onProgress:)`` makes one of what is none.
    ///
    /// `documents` may name a folder of documents, for ``query(_:count:)``.
    ///
    /// - Throws: ``CactusError``; of the kind `unsupported` where the model makes no vectors.
    public static func load(_ bundle: String, documents folder: String? = nil) async throws -> Embedder {
        let owner = try await opened(bundle, documents: folder)
        return try await Worker.run {
            // It says so where the model makes no vectors, before it sees that there is no text.
            if cactus_embed(owner.raw, nil, nil, 0, nil, true) < 0, CactusError.last.kind == .unsupported {
                let error = CactusError.last
                owner.close()
                throw error
            }
            return Embedder(owner: owner)
        }
    }

    /// The vector of a text, of the length 1 with `normalize`.
    public func embed(_ text: String, normalize: Bool = true) async throws -> [Float] {
        try await embed([text], normalize: normalize)[0]
    }

    /// The vectors of texts, in their order. Cancelling the task stops between two texts.
    public func embed(_ texts: [String], normalize: Bool = true) async throws -> [[Float]] {
        let texts = try texts.map(whole)
        let isCancelled = Locked(false)
        return try await withTaskCancellationHandler {
            try await Worker.run { [self] in
                try texts.map { text in
                    if isCancelled.with({ $0 }) { throw CancellationError() }
                    return try vector { buffer, bytes, count in cactus_embed(owner.raw, text, buffer, bytes, count, normalize) }
                }
            }
        } onCancel: {
            isCancelled.with { $0 = true }
        }
    }

    /// The vector of a picture in a PNG, JPEG or WebP file, by a model of pictures and texts.
    public func embedImage(_ path: String) async throws -> [Float] {
        let path = try whole(path)
        return try await Worker.run { [self] in
            try vector { buffer, bytes, count in cactus_image_embed(owner.raw, path, buffer, bytes, count) }
        }
    }

    /// The pieces of the documents that are nearest to a question, the best first.
    public func query(_ text: String, count: Int = 5) async throws -> [Passage] {
        try await passages(owner, text, count)
    }

    /// Closes it: waits for what is under way. May be called any number of times.
    public func close() async {
        await owner.closed()
    }

    private func vector(_ make: (UnsafeMutablePointer<Float>, Int, UnsafeMutablePointer<Int>) -> Int32) throws -> [Float] {
        var room = dimension.with { $0 } ?? 1024
        while true {
            var count = 0
            var code: Int32 = 0
            let made = [Float](unsafeUninitializedCapacity: room) { buffer, initialized in
                code = make(buffer.baseAddress!, room * MemoryLayout<Float>.size, &count)
                initialized = code > 0 ? Int(code) : 0
            }
            if code == Code.bufferTooSmall, count > room {
                room = count
                continue
            }
            guard code > 0 else { throw CactusError.last }
            dimension.with { $0 = made.count }
            return made
        }
    }
}

/// A piece of a document.
public struct Passage: Sendable, Hashable {
    /// All that is known, under the names of the library.
    public let json: JSON

    public var text: String { json["content"]?.string ?? "" }
    /// The file, from the folder on.
    public var source: String { json["source"]?.string ?? "" }
    /// The cosine, which can be held to a threshold.
    public var similarity: Double? { json["similarity"]?.double }
    /// It joins ranks, and says nothing by itself.
    public var score: Double { json["score"]?.double ?? 0 }
    public var headings: [String] { (json["headings"]?.array ?? []).compactMap(\.string) }
    /// Of a PDF.
    public var page: Int? { json["page"]?.int }
}

func passages(_ owner: Owner, _ text: String, _ count: Int) async throws -> [Passage] {
    let (text, count) = (try whole(text), try counted(count, "count"))
    return try await Worker.run {
        let json = try written { cactus_rag_query(owner.raw, text, $0, $1, count) }
        return (json["chunks"]?.array ?? []).map(Passage.init(json:))
    }
}

extension Model {
    /// The pieces of the model's documents that are nearest to a question, the best first.
    public func query(_ text: String, count: Int = 5) async throws -> [Passage] {
        try await passages(owner, text, count)
    }
}

/// What a function of the public engine writes into a buffer. Only memory that is written to is taken from the system.
func written(_ call: (UnsafeMutablePointer<CChar>, Int) -> Int32) throws -> JSON {
    var bytes = 1 << 20
    while true {
        let buffer = UnsafeMutablePointer<CChar>.allocate(capacity: bytes)
        defer { buffer.deallocate() }
        let code = call(buffer, bytes)
        if code == Code.bufferTooSmall, bytes < 1 << 30 {
            bytes <<= 3
            continue
        }
        guard code >= 0 else { throw CactusError.last }
        let text = UnsafeBufferPointer(start: UnsafeRawPointer(buffer).assumingMemoryBound(to: UInt8.self), count: strlen(buffer))
        return try JSONReader.read(text)
    }
}
