import Foundation

/// The events of an answer, as they come.
///
/// ```swift
/// for try await event in session.stream("Why is the sky blue?") {
///     if case .text(let text) = event { print(text, terminator: "") }
/// }
/// ```
///
/// The answer begins with the call that gives this. Leaving the loop early cancels it, and so does cancelling the task that reads; such a
/// reader still gets the last event. Iterating throws where the request could not begin at all. A request that fails later ends with the
/// event ``Event/failed(_:)``.
public struct Events: AsyncSequence, Sendable {
    public typealias Element = Event

    private let hold: Hold

    init(_ running: Running) {
        hold = Hold(running, reads: false)
    }

    /// Asks the answer to stop: from any thread, any number of times. It ends within a token.
    public func cancel() {
        hold.running.cancel()
    }

    /// Cancels the answer, waits for it, and throws away what was not read. May be called any number of times. Whoever reads afterwards gets
    /// an error of the kind `handle`.
    ///
    /// Nobody has to call it: an answer that is read to its end, left early or forgotten is closed.
    public func close() async {
        let running = hold.running
        _ = try? await Worker.run { running.close() }
    }

    public func makeAsyncIterator() -> Iterator {
        Iterator(hold: Hold(hold.running, reads: true))
    }

    public struct Iterator: AsyncIteratorProtocol, Sendable {
        fileprivate let hold: Hold

        public func next() async throws -> Event? {
            try await hold.next()
        }
    }

    /// The text of the answer alone, piece by piece.
    ///
    /// It throws ``CactusError`` where the answer fails, and `CancellationError` where it is cancelled, also by the task that reads. Where
    /// another answers from the beginning under a policy, it throws ``Replaced``, because the pieces before do not belong to the answer: use
    /// the events there.
    public var texts: Texts { Texts(hold: hold, isWhole: false) }

    /// The text so far, after each piece. What another answers in place of the first one begins anew. It throws as ``texts`` does.
    public var snapshots: Texts { Texts(hold: hold, isWhole: true) }

    /// Texts of an answer: ``Events/texts`` or ``Events/snapshots``.
    public struct Texts: AsyncSequence, Sendable {
        public typealias Element = String

        fileprivate let hold: Hold
        fileprivate let isWhole: Bool

        public func makeAsyncIterator() -> Iterator {
            Iterator(hold: Hold(hold.running, reads: true), isWhole: isWhole)
        }

        public struct Iterator: AsyncIteratorProtocol, Sendable {
            fileprivate let hold: Hold
            fileprivate let isWhole: Bool
            private var soFar = ""

            fileprivate init(hold: Hold, isWhole: Bool) {
                self.hold = hold
                self.isWhole = isWhole
            }

            public mutating func next() async throws -> String? {
                while let event = try await hold.next() {
                    switch event {
                    case .text(let text):
                        guard isWhole else { return text }
                        soFar += text
                        return soFar
                    case .replaced:
                        guard isWhole else { throw Replaced() }
                        soFar = ""
                    case .failed(let error): throw error
                    case .cancelled: throw CancellationError()
                    default: continue
                    }
                }
                return nil
            }
        }
    }

    /// Thrown where what was said so far is void.
    public struct Replaced: Error, Sendable {
        public init() {}
    }

    /// Reads to the end, and gives the whole answer. `consent` is asked where something would leave this machine; without it nothing does.
    ///
    /// - Throws: ``CactusError`` where the answer fails; `CancellationError` where the task that calls is cancelled. An answer that was
    ///   cancelled otherwise is given as far as it came.
    public func answer(consent: (@Sendable (Consent) async -> Bool)? = nil) async throws -> Answer {
        let hold = Hold(hold.running, reads: true)
        while let event = try await hold.next() {
            switch event {
            case .consent(let question):
                guard let consent else { continue }
                let yes = await consent(question)
                // It may have been cancelled while the person thought.
                try? question.answer(yes)
            case .done(let answer): return answer
            case .cancelled(let answer):
                try Task.checkCancellation()
                return answer
            case .failed(let error): throw error
            default: continue
            }
        }
        throw CactusError(code: Code.argument, message: "the stream was read to its end already")
    }
}

/// Cancels an answer that nobody reads any more: when a reader is gone, or the sequence before there was one.
private final class Hold: Sendable {
    let running: Running
    private let reads: Bool

    init(_ running: Running, reads: Bool) {
        self.running = running
        self.reads = reads
        if reads { running.noteReader() }
    }

    deinit {
        if reads || !running.hasReader { running.cancel() }
    }

    func next() async throws -> Event? {
        try await running.next()
    }
}
