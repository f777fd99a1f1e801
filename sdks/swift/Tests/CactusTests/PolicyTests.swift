import CCactus
import Foundation
import XCTest

@testable import Cactus

#if canImport(Glibc)
import Glibc
#endif

final class PolicyTests: XCTestCase {
    /// A policy that hands everything to a target, after a question.
    private func policy(_ target: Target) throws -> Policy {
        var policy = Policy(target: "http://127.0.0.1:\(target.port)/v1#m", handoff: .always, budget: "0.05")
        policy.state = try Given.folder()
        return policy
    }

    func testNothingLeavesWithoutAYes() async throws {
        let (model, target) = (try await Given.model(), try Target(says: "from afar"))
        try await model.setPolicy(try policy(target))
        let asked = Locked(0)
        let host = "127.0.0.1:\(target.port)"
        let no: @Sendable (Consent) async -> Bool = { question in
            XCTAssertEqual(question.classes, ["text"])
            XCTAssertEqual(question.host, host)
            asked.with { $0 += 1 }
            return false
        }
        for consent in [nil, no] {
            let answer = try await model.respond(to: Given.short(), consent: consent)
            XCTAssertEqual(answer.route, Source.Side.local)
            XCTAssertEqual(answer.answeredBy, "local")
        }
        XCTAssertEqual([asked.with { $0 }, target.asked], [1, 0])
        let answer = try await model.respond(to: Given.short()) { _ in true }
        XCTAssertEqual(answer.text, "from afar")
        XCTAssertEqual(answer.route, Source.Side.cloud)
        XCTAssertEqual(target.asked, 1)
        // As events, and in a session.
        let session = try await model.session()
        var sides: [Source.Side?] = []
        for try await event in session.stream(Given.short()) {
            switch event {
            case .consent(let question):
                try question.answer(true)
                XCTAssertThrowsError(try question.answer(true), "it was answered")
            case .source(let source): sides.append(source.side)
            default: break
            }
        }
        XCTAssertEqual(sides, [Source.Side.cloud])
        XCTAssertEqual(try session.messages().last?.content, "from afar")
        try await model.setPolicy(nil)
        let alone = try await model.respond(to: Given.short())
        XCTAssertNil(alone.route)
        XCTAssertEqual(target.asked, 2)
        await session.close()
        await model.close()
    }

    func testAQuestionIsOverWhenItsReaderGoesOnCancelsOrCloses() async throws {
        let (model, target) = (try await Given.model(), try Target(says: "from afar"))
        try await model.setPolicy(try policy(target))
        var late: Consent?
        var last: Event?
        for try await event in model.stream(Given.short()) {
            if case .consent(let question) = event { late = question }
            last = event
        }
        guard case .done(let answer) = last else { return XCTFail("\(String(describing: last))") }
        XCTAssertEqual(answer.route, Source.Side.local)
        XCTAssertThrowsError(try XCTUnwrap(late).answer(true), "too late")
        // A person who thinks is not waited for.
        let stream = model.stream(Given.short())
        let iterator = stream.makeAsyncIterator()
        while let event = try await iterator.next() {
            if case .consent = event { break }
        }
        stream.cancel()
        while let event = try await iterator.next() { last = event }
        XCTAssertTrue(isCancelled(last), "\(String(describing: last))")
        let open = model.stream(Given.short())
        let reader = open.makeAsyncIterator()
        while let event = try await reader.next() {
            if case .consent = event { break }
        }
        await model.close()
        while let event = try await reader.next() { last = event }
        XCTAssertTrue(isCancelled(last))
        XCTAssertEqual(target.asked, 0)
    }

    func testAQuestionThatNobodyReadsKeepsNothing() async throws {
        let (model, target) = (try await Given.model(), try Target(says: "from afar"))
        try await model.setPolicy(try policy(target))
        var running: Running? = Running.start([model.owner]) { [owner = model.owner] in
            var handle: OpaquePointer?
            try check(cactus_request_start(owner.pointer, Given.short().json.text, nil, nil, &handle))
            return UInt(bitPattern: handle)
        }
        let isGone = { [weak running] in running == nil }
        try await Task.sleep(nanoseconds: 50_000_000)
        running?.cancel()
        running = nil
        await eventually("it is gone") { isGone() }
        await model.close()
    }

    func testWhatBreaksOffIsReplaced() async throws {
        let (model, target) = (try await Given.model(), try Target(says: "Half an answer", breaksOff: true))
        let own = try await model.respond(to: Given.short()).text
        var allowing = try policy(target)
        allowing.consent = [.text]
        try await model.setPolicy(allowing)
        var last = ""
        var seen: [String] = []
        for try await snapshot in model.stream(Given.short()).snapshots {
            last = snapshot
            seen.append(snapshot)
        }
        XCTAssertEqual(last, own)
        XCTAssertEqual(seen.first, "Half an answer")
        var pieces: [String] = []
        do {
            for try await piece in model.stream(Given.short()).texts { pieces.append(piece) }
            XCTFail("what was said is void")
        } catch is Events.Replaced {}
        XCTAssertEqual(pieces, ["Half an answer"])
        await model.close()
    }

    func testAWrongPolicyChangesNothing() async throws {
        let model = try await Given.model()
        for policy in [Policy(text: "version = 1\nhandof = \"auto\"\n"), Policy(target: "nobody")] {
            await expect(.argument) { try await model.setPolicy(policy) }
        }
        let answer = try await model.respond(to: Given.short())
        XCTAssertNil(answer.route)
        await model.close()
    }
}

/// A server that says one thing, as the OpenAI API streams it.
final class Target: Sendable {
    let port: UInt16
    private let socket: Int32
    private let count = Locked(0)

    var asked: Int { count.with { $0 } }

    /// One that `breaksOff` never says that it has ended.
    init(says text: String, breaksOff: Bool = false) throws {
        #if canImport(Glibc)
        let kind = Int32(SOCK_STREAM.rawValue)
        #else
        let kind = SOCK_STREAM
        #endif
        let server = Self.made(kind)
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_addr.s_addr = inet_addr("127.0.0.1")
        var size = socklen_t(MemoryLayout<sockaddr_in>.size)
        let bound = withUnsafeMutablePointer(to: &address) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) { bind(server, $0, size) == 0 && getsockname(server, $0, &size) == 0 }
        }
        guard bound, listen(server, 16) == 0 else { throw POSIXError(.EADDRINUSE) }
        socket = server
        port = UInt16(bigEndian: address.sin_port)
        let count = count
        Thread.detachNewThread {
            while true {
                let client = accept(server, nil, nil)
                if client < 0 { return }
                Self.answer(client, text, breaksOff)
                count.with { $0 += 1 }
                close(client)
            }
        }
    }

    deinit {
        shutdown(socket, Int32(SHUT_RDWR))
        close(socket)
    }

    private static func made(_ kind: Int32) -> Int32 {
        #if canImport(Glibc)
        Glibc.socket(AF_INET, kind, 0)
        #else
        Darwin.socket(AF_INET, kind, 0)
        #endif
    }

    private static func answer(_ client: Int32, _ text: String, _ breaksOff: Bool) {
        // The whole request, which says how long it is.
        var request = Data()
        var buffer = [UInt8](repeating: 0, count: 65536)
        while true {
            let read = recv(client, &buffer, buffer.count, 0)
            if read <= 0 { break }
            request.append(contentsOf: buffer[0..<read])
            guard let head = request.range(of: Data("\r\n\r\n".utf8)) else { continue }
            let lines = String(decoding: request[..<head.lowerBound], as: UTF8.self).lowercased().components(separatedBy: "\r\n")
            let length = lines.first { $0.hasPrefix("content-length:") }.flatMap { Int($0.dropFirst(15).trimmingCharacters(in: .whitespaces)) } ?? 0
            if request.count - head.upperBound >= length { break }
        }
        func chunk(_ delta: JSON, _ end: JSON) -> String {
            let choice: JSON = ["index": 0, "delta": delta, "finish_reason": end]
            return "data: \((["id": "1", "object": "chat.completion.chunk", "choices": [choice]] as JSON).text)\n\n"
        }
        if breaksOff {
            let half = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n" + chunk(["content": .string(text)], nil)
            _ = half.withCString { send(client, $0, strlen($0), 0) }
            // It is seen by then.
            usleep(200_000)
            return
        }
        let usage: JSON = ["prompt_tokens": 20, "completion_tokens": 9, "total_tokens": 29]
        let body =
            chunk(["role": "assistant", "content": .string(text)], nil) + chunk([:], "stop")
            + "data: \((["id": "1", "object": "chat.completion.chunk", "choices": [], "usage": usage] as JSON).text)\n\ndata: [DONE]\n\n"
        let answer = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: \(body.utf8.count)\r\nConnection: close\r\n\r\n\(body)"
        _ = answer.withCString { send(client, $0, strlen($0), 0) }
    }
}
