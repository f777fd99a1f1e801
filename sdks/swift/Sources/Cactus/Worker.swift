import Foundation

/// Threads of our own for what reads files, computes or waits. Swift's cooperative pool has as many threads as the machine has cores, and
/// a program stands still when they all wait; so nothing of the library that takes time is called there.
enum Worker {
    private static let queue = DispatchQueue(label: "cactus.work", qos: .userInitiated, attributes: .concurrent)

    /// Does `work` on another thread, and waits for it without holding one.
    static func run<T: Sendable>(_ work: @escaping @Sendable () throws -> T) async throws -> T {
        try await run(on: queue, work)
    }

    /// As ``run(_:)``, on a queue that does one thing after the other.
    static func run<T: Sendable>(on queue: DispatchQueue, _ work: @escaping @Sendable () throws -> T) async throws -> T {
        try await withCheckedThrowingContinuation { continuation in
            queue.async { continuation.resume(with: Result { try work() }) }
        }
    }

    /// Does `work` on another thread, for which nobody waits.
    static func later(_ work: @escaping @Sendable () -> Void) {
        queue.async(execute: work)
    }

    /// A thread for something that lasts, so that any number of them leave the queue free.
    static func thread(_ name: String, _ work: @escaping @Sendable () -> Void) {
        let thread = Thread(block: work)
        thread.name = name
        thread.qualityOfService = .userInitiated
        thread.start()
    }
}

/// A value that is changed under a lock.
final class Locked<Value>: @unchecked Sendable {
    private let lock = NSLock()
    private var value: Value

    init(_ value: Value) {
        self.value = value
    }

    func with<R>(_ body: (inout Value) throws -> R) rethrows -> R {
        lock.lock()
        defer { lock.unlock() }
        return try body(&value)
    }
}
