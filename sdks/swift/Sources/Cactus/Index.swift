import CCactus
import Foundation

/// Vectors with their texts, in a file: exact search by the cosine.
///
/// ```swift
/// let index = try await Index.open("notes", dimension: 384)
/// try await index.add([.init(id: 1, text: "A cat sleeps.", vector: vector)])
/// let found = try await index.query(question, top: 3)
/// ```
///
/// What a call adds or deletes is on the disk when it returns. Several programs may hold one index.
public final class Index: Sendable {
    /// A text with its vector.
    public struct Document: Sendable, Hashable {
        public var id: Int32
        public var text: String
        /// A text that belongs to it.
        public var metadata: String?
        public var vector: [Float]

        public init(id: Int32, text: String, metadata: String? = nil, vector: [Float]) {
            self.id = id
            self.text = text
            self.metadata = metadata
            self.vector = vector
        }
    }

    public struct Hit: Sendable, Hashable {
        public let id: Int32
        /// The cosine.
        public let score: Float
    }

    /// Floats of a vector.
    public let dimension: Int
    private let owner: Owner

    private init(dimension: Int, owner: Owner) {
        self.dimension = dimension
        self.owner = owner
    }

    /// Opens the index in a folder, or makes one there.
    public static func open(_ folder: String, dimension: Int) async throws -> Index {
        try await Worker.run {
            try Library.check()
            guard dimension > 0 else { throw CactusError(code: Code.argument, message: "`dimension`: expected 1 or more, found \(dimension)") }
            let floats = try counted(dimension, "dimension")
            let handle = try lending(folder) { cactus_index_init($0, floats) }
            guard let handle else { throw CactusError.last }
            let owner = Owner(UInt(bitPattern: handle)) { cactus_index_destroy(UnsafeMutableRawPointer(bitPattern: $0)) }
            return Index(dimension: dimension, owner: owner)
        }
    }

    /// Adds documents: all of them, or none where one is refused, as one whose id is there already.
    public func add(_ documents: [Document]) async throws {
        for document in documents {
            try check(document.vector)
            _ = try whole(document.text)
            _ = try document.metadata.map(whole)
        }
        try await Worker.run { [self] in
            let strings = CStrings()
            let texts = documents.map { strings.copy($0.text) }
            let metadatas = documents.map { strings.copy($0.metadata) }
            let flat = documents.flatMap(\.vector)
            try withExtendedLifetime(strings) {
                try flat.withUnsafeBufferPointer { flat in
                    let vectors = documents.indices.map { i in flat.baseAddress.map { $0 + i * dimension } }
                    try succeed {
                        cactus_index_add(
                            owner.raw, documents.map(\.id), texts.map { UnsafePointer($0) }, metadatas.map { UnsafePointer($0) }, vectors,
                            documents.count, dimension)
                    }
                }
            }
        }
    }

    /// The documents of ids, in their order. An id that the index does not have is an error.
    public func get(_ ids: [Int32]) async throws -> [Document] {
        try await Worker.run { [self] in
            if ids.isEmpty {
                try succeed { cactus_index_get(owner.raw, ids, 0, nil, nil, nil, nil, nil, nil) }
                return []
            }
            var (text, metadata, vector) = (
                Room<CChar>(count: ids.count, each: 256), Room<CChar>(count: ids.count, each: 256),
                Room<Float>(count: ids.count, each: dimension)
            )
            try succeed {
                var code = Int32(0)
                for _ in 0..<2 {
                    code = cactus_index_get(
                        owner.raw, ids, ids.count, &text.places, &text.sizes, &metadata.places, &metadata.sizes, &vector.places, &vector.sizes)
                    guard code == Code.bufferTooSmall else { break }
                    (text, metadata, vector) = (text.larger, metadata.larger, vector.larger)
                }
                return code
            }
            return ids.indices.map { i in
                let about = String(cString: metadata.places[i]!)
                let floats = Array(UnsafeBufferPointer(start: vector.places[i], count: vector.sizes[i]))
                return Document(id: ids[i], text: String(cString: text.places[i]!), metadata: about.isEmpty ? nil : about, vector: floats)
            }
        }
    }

    /// The documents nearest to a vector, the best first.
    public func query(_ vector: [Float], top: Int = 10, threshold: Float? = nil, filter: JSON? = nil) async throws -> [Hit] {
        try await query([vector], top: top, threshold: threshold, filter: filter)[0]
    }

    /// The documents nearest to each of some vectors, the best first.
    ///
    /// `threshold` is the least cosine, and `filter` what documents have to have, as in `["metadata": "first"]`.
    public func query(_ vectors: [[Float]], top: Int = 10, threshold: Float? = nil, filter: JSON? = nil) async throws -> [[Hit]] {
        try vectors.forEach(check)
        // Room is taken for so many.
        let room = try max(counted(top, "top"), 1)
        var options: JSON.Object = ["top_k": .integer(Int64(top))]
        options["score_threshold"] = threshold.map { .number(Double($0)) }
        options["filter"] = filter
        let text = JSON.object(options).text
        return try await Worker.run { [self] in
            var (ids, scores) = (Room<Int32>(count: vectors.count, each: room), Room<Float>(count: vectors.count, each: room))
            try vectors.flatMap { $0 }.withUnsafeBufferPointer { flat in
                let places = vectors.indices.map { i in flat.baseAddress.map { $0 + i * dimension } }
                try succeed {
                    cactus_index_query(
                        owner.raw, places, vectors.count, dimension, text, &ids.places, &ids.sizes, &scores.places, &scores.sizes)
                }
            }
            return vectors.indices.map { i in
                (0..<min(ids.sizes[i], scores.sizes[i])).map { Hit(id: ids.places[i]![$0], score: scores.places[i]![$0]) }
            }
        }
    }

    /// Deletes documents; ids that the index does not have are left out.
    public func delete(_ ids: [Int32]) async throws {
        try await Worker.run { [self] in try succeed { cactus_index_delete(owner.raw, ids, ids.count) } }
    }

    /// Writes the file anew, without what was deleted.
    public func compact() async throws {
        try await Worker.run { [self] in try succeed { cactus_index_compact(owner.raw) } }
    }

    /// Closes it: waits for what is under way. May be called any number of times.
    public func close() async {
        await owner.closed()
    }

    private func check(_ vector: [Float]) throws {
        guard vector.count == dimension else {
            let what = "the vector has \(vector.count) floats, and the index was opened for \(dimension)"
            throw CactusError(code: Code.argument, message: what)
        }
    }

    /// Makes a call that ``close()`` waits for.
    private func succeed(_ call: () throws -> Int32) throws {
        try owner.use { try Cactus.check(call()) }
    }
}

/// Copies of texts, which are freed together.
private final class CStrings {
    private var all: [UnsafeMutablePointer<CChar>] = []

    func copy(_ text: String?) -> UnsafeMutablePointer<CChar>? {
        guard let text, let copied = strdup(text) else { return nil }
        all.append(copied)
        return copied
    }

    deinit { all.forEach { free($0) } }
}

/// Buffers of one kind, each with its size, of which the library says how much it needed.
private struct Room<T> {
    var places: [UnsafeMutablePointer<T>?]
    var sizes: [Int]
    private let memory: Memory

    private final class Memory {
        let all: [UnsafeMutablePointer<T>]

        init(_ sizes: [Int]) {
            all = sizes.map { .allocate(capacity: max($0, 1)) }
        }

        deinit { all.forEach { $0.deallocate() } }
    }

    init(count: Int, each: Int) {
        self.init(sizes: Array(repeating: each, count: count))
    }

    private init(sizes: [Int]) {
        memory = Memory(sizes)
        places = memory.all
        self.sizes = sizes
    }

    /// Others of the sizes that the library has asked for.
    var larger: Room { Room(sizes: sizes) }
}
