import CCactus
import Foundation

/// An answer under way: a thread that fetches its events, and a line in which they wait for whoever reads the stream.
///
/// Only the thread knows the handle of the request and closes it, so that no other call can meet a handle that is gone.
final class Running: @unchecked Sendable {
    /// What a person says to a question about consent.
    private enum Question {
        case none, open
        /// The reader went on.
        case unanswered
        case answered(Bool)
    }

    private let changed = NSCondition()
    private var request: UInt = 0
    private var isCancelled = false
    private var isDone = false
    private var question = Question.none
    private let line = Line()
    private let read = Locked(false)

    /// How many answers are under way, which a test looks at.
    static let count = Locked(0)

    /// Begins a request, and the thread that reads it. `begin` makes the request; `owners` are not closed before the thread is done.
    static func start(_ owners: [Owner], _ begin: @escaping @Sendable () throws -> UInt) -> Running {
        let running = Running()
        count.with { $0 += 1 }
        owners.forEach { $0.begin(running) }
        Worker.thread("cactus.events") {
            running.follow(begin)
            count.with { $0 -= 1 }
            owners.forEach { $0.end(running) }
        }
        return running
    }

    /// Asks it to stop. May be called again, from any thread.
    func cancel() {
        changed.lock()
        isCancelled = true
        if request != 0 { cactus_request_cancel(OpaquePointer(bitPattern: request)) }
        changed.broadcast()
        changed.unlock()
    }

    /// Cancels it, and waits until its thread is done. Readers get the error `handle` from now on.
    func close() {
        cancel()
        line.close()
        changed.lock()
        while !isDone { changed.wait() }
        changed.unlock()
    }

    /// Answers the question that is open.
    ///
    /// - Throws: ``CactusError`` of the kind `argument` where none is.
    func consent(_ yes: Bool) throws {
        changed.lock()
        defer { changed.unlock() }
        guard case .open = question else {
            throw CactusError(code: Code.argument, message: "the answer asks for no consent now")
        }
        question = .answered(yes)
        changed.broadcast()
    }

    func noteReader() {
        read.with { $0 = true }
    }

    /// Whether anybody has ever begun to read.
    var hasReader: Bool {
        read.with { $0 }
    }

    /// The next event; nil behind the last one. A reader whose task is cancelled cancels the answer, and gets its last event.
    func next() async throws -> Event? {
        leaveUnanswered()
        return try await withTaskCancellationHandler {
            try await line.next()
        } onCancel: {
            cancel()
        }
    }

    /// Whoever was asked and reads on has not said yes.
    private func leaveUnanswered() {
        changed.lock()
        if case .open = question {
            question = .unanswered
            changed.broadcast()
        }
        changed.unlock()
    }

    private func follow(_ begin: () throws -> UInt) {
        defer {
            changed.lock()
            isDone = true
            changed.broadcast()
            changed.unlock()
        }
        do {
            let begun = try begin()
            changed.lock()
            request = begun
            if isCancelled { cactus_request_cancel(OpaquePointer(bitPattern: request)) }
            changed.unlock()
        } catch {
            line.end(error)
            return
        }
        do {
            let last = try fetch()
            free()
            line.put(last)
            line.end(nil)
        } catch {
            free()
            line.end(error)
        }
    }

    private func free() {
        changed.lock()
        let handle = OpaquePointer(bitPattern: request)
        request = 0
        changed.unlock()
        cactus_request_close(handle)
    }

    /// Passes events on, and gives the last one.
    private func fetch() throws -> Event {
        let handle = OpaquePointer(bitPattern: request)
        while true {
            var text: UnsafeMutablePointer<CChar>?
            var over = false
            let code = cactus_request_next(handle, -1, &text, &over)
            defer { cactus_string_free(text) }
            try check(code)
            guard let text else {
                if over { throw CactusError(code: Code.internal, message: "a stream ended without its last event") }
                continue
            }
            let bytes = UnsafeBufferPointer(start: UnsafeRawPointer(text).assumingMemoryBound(to: UInt8.self), count: strlen(text))
            let event = Event(json: try JSONReader.read(bytes), answer: self)
            if event.isLast { return event }
            if case .consent = event {
                try ask(event, of: handle)
            } else {
                line.put(event)
            }
        }
    }

    /// Waits for what the person says. Nobody is waited for once it is cancelled.
    private func ask(_ event: Event, of handle: OpaquePointer?) throws {
        changed.lock()
        question = .open
        changed.unlock()
        line.put(event)
        changed.lock()
        var said: Bool?
        waiting: while !isCancelled {
            switch question {
            case .answered(let yes):
                said = yes
                break waiting
            case .unanswered: break waiting
            case .none, .open: changed.wait()
            }
        }
        question = .none
        changed.unlock()
        if let said {
            // Where it has ended meanwhile, the answer comes too late.
            cactus_request_consent(handle, said)
        }
    }
}

/// Events that wait for a reader, or readers that wait for events.
private final class Line: Sendable {
    private struct State {
        var events: [Event] = []
        var taken = 0
        var readers: [CheckedContinuation<Event?, any Error>] = []
        var isOver = false
        var isClosed = false
        var failure: (any Error)?

        /// What a reader gets now: an event, the failure once, or the end. Nil where it has to wait.
        mutating func now() -> Result<Event?, any Error>? {
            if isClosed {
                return .failure(CactusError(code: Code.handle, message: "the stream was closed"))
            }
            if taken < events.count {
                let event = events[taken]
                taken += 1
                if taken == events.count {
                    events.removeAll(keepingCapacity: true)
                    taken = 0
                }
                return .success(event)
            }
            if let failure {
                self.failure = nil
                return .failure(failure)
            }
            return isOver ? .success(nil) : nil
        }
    }

    private let state = Locked(State())

    func put(_ event: Event) {
        let reader: CheckedContinuation<Event?, any Error>? = state.with {
            if $0.readers.isEmpty {
                $0.events.append(event)
                return nil
            }
            return $0.readers.removeFirst()
        }
        reader?.resume(returning: event)
    }

    /// Drops what waits. A reader that waits gets the error, too.
    func close() {
        let readers = state.with {
            let readers = $0.readers
            ($0.readers, $0.events, $0.isClosed) = ([], [], true)
            return readers
        }
        let error = CactusError(code: Code.handle, message: "the stream was closed")
        readers.forEach { $0.resume(throwing: error) }
    }

    func end(_ failure: (any Error)?) {
        let (readers, first) = state.with {
            let readers = $0.readers
            $0.readers = []
            $0.isOver = true
            $0.failure = readers.isEmpty ? failure : nil
            return (readers, failure)
        }
        for (i, reader) in readers.enumerated() {
            if i == 0, let first { reader.resume(throwing: first) } else { reader.resume(returning: nil) }
        }
    }

    func next() async throws -> Event? {
        if let now = state.with({ $0.now() }) { return try now.get() }
        return try await withCheckedThrowingContinuation { continuation in
            let now: Result<Event?, any Error>? = state.with {
                let now = $0.now()
                if now == nil { $0.readers.append(continuation) }
                return now
            }
            if let now { continuation.resume(with: now) }
        }
    }
}
