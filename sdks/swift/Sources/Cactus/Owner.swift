import CCactus
import Foundation

/// A handle of the library that is closed once, and the answers that are under way with it.
///
/// Closing cancels them, closes the handle, and returns when nothing of them runs. A handle that was closed stays what it was: the library
/// answers `handle` for ever, so nobody has to look whether it is open. Where closing does not wait for calls by itself, as with an index,
/// they are made by ``use(_:)``.
final class Owner: @unchecked Sendable {
    private enum State {
        case open, closing, closed
    }

    /// The handle, a number in the clothes of a pointer.
    let number: UInt
    private let free: @Sendable (UInt) -> Void
    private let changed = NSCondition()
    private var state = State.open
    private var running: [ObjectIdentifier: Running] = [:]
    /// Calls under way that closing has to wait for.
    private var calls = 0

    /// How many handles are open, which a test looks at.
    static let count = Locked(0)

    init(_ number: UInt, free: @escaping @Sendable (UInt) -> Void) {
        self.number = number
        self.free = { number in
            free(number)
            Owner.count.with { $0 -= 1 }
        }
        Owner.count.with { $0 += 1 }
    }

    /// Whoever forgets an object has it closed, some time later.
    deinit {
        if state == .open {
            let (number, free) = (number, free)
            Worker.later { free(number) }
        }
    }

    /// As the functions of our own take it.
    var pointer: OpaquePointer? { OpaquePointer(bitPattern: number) }

    /// As the functions of the public engine take it.
    var raw: UnsafeMutableRawPointer? { UnsafeMutableRawPointer(bitPattern: number) }

    /// Notes an answer under way. One that begins while the handle is closed is cancelled.
    func begin(_ answer: Running) {
        changed.lock()
        running[ObjectIdentifier(answer)] = answer
        let isOpen = state == .open
        changed.unlock()
        if !isOpen { answer.cancel() }
    }

    func end(_ answer: Running) {
        changed.lock()
        running[ObjectIdentifier(answer)] = nil
        changed.broadcast()
        changed.unlock()
    }

    /// Makes a call that ``close()`` waits for.
    ///
    /// - Throws: ``CactusError`` of the kind `handle` where it was closed.
    func use<R>(_ call: () throws -> R) throws -> R {
        changed.lock()
        guard state == .open else {
            changed.unlock()
            throw CactusError(code: Code.handle, message: "the object was closed")
        }
        calls += 1
        changed.unlock()
        defer {
            changed.lock()
            calls -= 1
            changed.broadcast()
            changed.unlock()
        }
        return try call()
    }

    /// Closes it, or waits for whoever does. May be called any number of times.
    func close() {
        changed.lock()
        guard state == .open else {
            while state != .closed { changed.wait() }
            changed.unlock()
            return
        }
        state = .closing
        let all = Array(running.values)
        changed.unlock()
        all.forEach { $0.cancel() }
        changed.lock()
        while calls > 0 { changed.wait() }
        changed.unlock()
        free(number)
        changed.lock()
        while !running.isEmpty { changed.wait() }
        state = .closed
        changed.broadcast()
        changed.unlock()
    }
}
