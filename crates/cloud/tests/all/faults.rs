//! A server that misbehaves in every way: what comes of a call, and that no byte is lost or doubled. Times are short deadlines;
//! no test asserts how fast anything is.

use cactus_cloud::{
    Base, Deadlines, Delta, ErrorKind, Event, Key, Message, Protocol, Reply, Request, Result, Retry, Role, Target,
    Transport,
};
use cactus_testkit::http::{After, EVENTS as OK, Server};
use flate2::Compression;
use flate2::write::GzEncoder;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

const STREAM: &str = include_str!("../fixtures/chat.sse");

fn serve(answer: impl Fn(&mut TcpStream) + Send + Sync + 'static) -> Server {
    Server::new(move |_, stream| {
        answer(stream);
        After::Close
    })
}

fn target(port: u16) -> Target {
    let base = Base::parse(&format!("http://127.0.0.1:{port}/v1"), true).unwrap();
    Target::new("t", Protocol::OpenAiChat, base, "m")
}

fn question() -> Request {
    Request::new(vec![Message::text(Role::User, "hi")], 100)
}

fn transport() -> Transport {
    let deadlines = Deadlines {
        connect: Duration::from_millis(1000),
        first: Duration::from_millis(600),
        gap: Duration::from_millis(600),
        total: Duration::from_millis(5000),
    };
    Transport {
        deadlines,
        ..Transport::default()
    }
}

fn call(transport: &Transport, target: &Target, request: &Request) -> (Vec<Event>, Result<()>) {
    let key = Key::new("sk-secret", target).unwrap();
    let mut events = Vec::new();
    let call = match transport.call(target, Some(&key), request) {
        Ok(call) => call,
        Err(error) => return (events, Err(error)),
    };
    for event in call {
        match event {
            Ok(event) => events.push(event),
            Err(error) => return (events, Err(error)),
        }
    }
    (events, Ok(()))
}

fn reply(events: &[Event]) -> Reply {
    let mut reply = Reply::default();
    events.iter().for_each(|e| reply.add(e).unwrap());
    reply
}

fn once(bytes: Vec<u8>) -> Server {
    Server::of(vec![bytes])
}

#[test]
fn whole_stream_arrives_byte_by_byte() {
    for size in [1, 5, usize::MAX] {
        let server = serve(move |stream| {
            stream.set_nodelay(true).unwrap();
            stream.write_all(OK.as_bytes()).unwrap();
            STREAM
                .as_bytes()
                .chunks(size)
                .for_each(|piece| stream.write_all(piece).unwrap());
        });
        let (events, end) = call(&transport(), &target(server.port()), &question());
        end.unwrap();
        let reply = reply(&events);
        assert_eq!(reply.message.joined_text(), "Grüße, Welt 😀");
        let arguments: Vec<_> = reply.calls().map(|c| c.arguments.clone()).collect();
        assert_eq!(arguments, ["{\"x\":\"ä\"}", "{}"]);
        let request = server.requests()[0].clone();
        assert!(
            request.starts_with("POST /v1/chat/completions HTTP/1.1\r\n"),
            "{request}"
        );
        assert!(request.contains("authorization: Bearer sk-secret\r\n"), "{request}");
        assert!(
            request.contains("content-length: ") && !request.contains("transfer-encoding"),
            "{request}"
        );
        assert!(
            request.ends_with('}') && request.contains("\"messages\":["),
            "{request}"
        );
    }
}

#[test]
fn stream_that_is_cut_anywhere_is_no_answer() {
    let whole: String = {
        let (events, _) = call(
            &transport(),
            &target(once([OK, STREAM].concat().into()).port()),
            &question(),
        );
        reply(&events).message.joined_text()
    };
    let end = STREAM.find("\"tool_calls\"").unwrap();
    // Within a line, within a letter, between events.
    let inside_letter = STREAM.find('ü').unwrap() + 1;
    for cut in [0, 3, 40, inside_letter, STREAM.find("\n\n").unwrap() + 2, end] {
        let bytes = [OK.as_bytes(), &STREAM.as_bytes()[..cut]].concat();
        let (events, result) = call(&transport(), &target(once(bytes).port()), &question());
        let error = result.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Cut, "{cut}: {error}");
        assert!(error.may_be_billed());
        let text = reply(&events).message.joined_text();
        assert!(whole.starts_with(&text), "{cut}: {text}");
    }
}

#[test]
fn connection_that_is_reset_is_cut() {
    let begun = format!("{OK}data: {{\"choices\":[{{\"delta\":{{\"content\":\"a\"}}}}]}}\n\n");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (send, came) = mpsc::channel();
    let server = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        // Whoever closes a connection with something unread in it resets it.
        let mut buffer = [0; 4096];
        loop {
            let count = stream.peek(&mut buffer).unwrap();
            if buffer[..count].ends_with(b"}") {
                break;
            }
            thread::sleep(Duration::from_millis(1));
        }
        stream.write_all(begun.as_bytes()).unwrap();
        came.recv().unwrap();
    });
    let mut call = transport().call(&target(port), None, &question()).unwrap();
    let text = Event::Delta(Delta::Text("a".into()));
    assert_eq!(call.next().unwrap().unwrap(), text);
    send.send(()).unwrap();
    let error = call.next().unwrap().unwrap_err();
    assert_eq!((error.kind(), error.may_be_billed()), (ErrorKind::Cut, true), "{error}");
    assert!(call.next().is_none());
    server.join().unwrap();
}

#[test]
fn small_answers_that_unpack_to_large_ones_are_refused() {
    let packed = |bytes: &[u8]| {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    };
    let large = vec![b' '; 32 << 20];
    let bomb = packed(&large);
    // Packed once more, it is smaller still; one layer is unpacked, no more.
    let cases = [
        ("application/json", bomb.clone(), ErrorKind::TooLarge),
        ("text/event-stream", bomb.clone(), ErrorKind::TooLarge),
        ("application/json", packed(&bomb), ErrorKind::Protocol),
    ];
    for (kind, body, want) in cases {
        let head = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-encoding: gzip\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        assert!(body.len() < 100_000);
        let server = once([head.as_bytes(), &body].concat());
        let (events, result) = call(&transport(), &target(server.port()), &question());
        let error = result.unwrap_err();
        assert_eq!(error.kind(), want, "{kind}: {error}");
        assert!(error.may_be_billed() && events.is_empty());
    }
}

#[test]
fn answers_that_are_none_are_told_apart() {
    let head = |status: &str, more: &str| format!("HTTP/1.1 {status}\r\nconnection: close\r\n{more}\r\n");
    let json = "content-type: application/json\r\n";
    let sse = "content-type: text/event-stream\r\n";
    let long_line = format!("{OK}data: {}", "x".repeat(2 << 20));
    let long_body = format!("{OK}{}", "data: {}\n\n".repeat(1 << 20));
    let late = format!("{OK}{}", include_str!("../fixtures/openrouter-late.sse"));
    let many_headers = format!("HTTP/1.1 200 OK\r\n{}\r\n", "x: y\r\n".repeat(20_000));
    use ErrorKind::*;
    let cases: Vec<(&str, String, ErrorKind, bool)> = vec![
        ("nothing", String::new(), Cut, true),
        ("no HTTP", "SSH-2.0-x\r\n\r\n".into(), Protocol, true),
        (
            "HTML",
            head("200 OK", "content-type: text/html\r\n") + "<html>",
            Protocol,
            true,
        ),
        ("broken JSON", head("200 OK", json) + "{\"choices\": [", Protocol, true),
        ("broken event", OK.to_owned() + "data: {\n\n", Protocol, true),
        ("endless line", long_line, TooLarge, true),
        ("too much", long_body, TooLarge, true),
        ("headers", many_headers, Protocol, true),
        (
            "gzip that is none",
            head("200 OK", &format!("{sse}content-encoding: gzip\r\n")) + "no gzip at all",
            Protocol,
            true,
        ),
        (
            "redirect",
            head("307 T", "location: http://127.0.0.1:1/\r\n"),
            Redirect,
            false,
        ),
        (
            "see other",
            head("302 T", "location: https://example.com/\r\n"),
            Redirect,
            false,
        ),
        (
            "401",
            head("401 U", json) + "{\"error\":{\"message\":\"bad key sk-secret\"}}",
            Unauthorized,
            false,
        ),
        ("402", head("402 P", ""), NoCredit, false),
        ("403", head("403 F", ""), Forbidden, false),
        ("404", head("404 N", ""), NotFound, false),
        ("408", head("408 T", ""), Timeout, true),
        ("413", head("413 T", ""), RequestTooLarge, false),
        ("429", head("429 T", "retry-after: 3\r\n"), RateLimited, false),
        ("500", head("500 S", ""), Server, true),
        ("529", head("529 O", ""), Overloaded, true),
        ("late", late, Server, true),
    ];
    for (name, bytes, kind, billed) in cases {
        let server = once(bytes.into_bytes());
        let (_, result) = call(&transport(), &target(server.port()), &question());
        let error = result.expect_err(name);
        assert_eq!(error.kind(), kind, "{name}: {error}");
        assert_eq!(error.may_be_billed(), billed, "{name}");
        assert!(!format!("{error:?}").contains("sk-secret"), "{name}: {error:?}");
        assert_eq!(server.asked(), 1, "{name} is asked once");
        if name == "429" {
            assert_eq!(error.retry(), Retry::After(Duration::from_secs(3)));
        }
    }
}

#[test]
fn keep_alives_are_no_progress() {
    let endless = |first: &'static str, piece: &'static str| {
        serve(move |stream| {
            let _ = stream.write_all(first.as_bytes());
            while stream.write_all(piece.as_bytes()).is_ok() {
                thread::sleep(Duration::from_millis(20));
            }
        })
    };
    let begun = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n";
    let (begins, goes_on) = ("the answer did not begin in time", "the answer did not go on in time");
    let count = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":20,\"completion_tokens\":0}}\n\n";
    let cases = [
        ("comments", endless(OK, ": keep-alive\n\n"), "", begins),
        (
            "empty pieces",
            endless(OK, "data: {\"choices\":[{\"delta\":{\"content\":\"\"}}]}\n\n"),
            "",
            begins,
        ),
        ("counts", endless(OK, count), "", begins),
        (
            "comments after a piece",
            endless(begun, ": keep-alive\n\n"),
            "a",
            goes_on,
        ),
        ("slow headers", endless("HTTP/1.1 200 OK\r\n", "x: y\r\n"), "", begins),
    ];
    for (name, server, text, words) in cases {
        let mut quick = transport();
        quick.deadlines.connect = Duration::from_millis(200);
        // Far from the others, so that it is not what ends a call.
        quick.deadlines.total = Duration::from_secs(600);
        let asked = Instant::now();
        let (events, result) = call(&quick, &target(server.port()), &question());
        let error = result.expect_err(name);
        assert_eq!(error.kind(), ErrorKind::Timeout, "{name}: {error}");
        assert_eq!(error.to_string(), words, "{name}");
        assert!(error.may_be_billed(), "{name}");
        let took = asked.elapsed();
        let deadline = quick.deadlines.first;
        assert!(
            took >= deadline / 2 && took < Duration::from_secs(300),
            "{name}: {took:?}"
        );
        assert_eq!(reply(&events).message.joined_text(), text, "{name}");
    }
}

#[test]
fn total_deadline_ends_an_answer_that_goes_on() {
    let server = serve(|stream| {
        let _ = stream.write_all(OK.as_bytes());
        while stream
            .write_all(b"data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n")
            .is_ok()
        {
            thread::sleep(Duration::from_millis(20));
        }
    });
    let mut short = transport();
    short.deadlines.total = Duration::from_millis(400);
    let (events, result) = call(&short, &target(server.port()), &question());
    let error = result.unwrap_err();
    assert_eq!(
        (error.kind(), error.to_string().as_str()),
        (ErrorKind::Timeout, "the answer took too long in all")
    );
    assert!(!events.is_empty());
}

#[test]
fn hosts_that_cannot_be_reached_cost_nothing() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let (_, result) = call(&transport(), &target(closed), &question());
    let error = result.unwrap_err();
    assert_eq!(
        (error.kind(), error.may_be_billed()),
        (ErrorKind::Unreachable, false),
        "{error}"
    );
    // Speaks no TLS: nothing of the request has left.
    let server = once(b"HTTP/1.1 400 Bad\r\n\r\n".to_vec());
    let base = Base::parse(&format!("https://127.0.0.1:{}/v1", server.port()), false).unwrap();
    let tls = Target::new("t", Protocol::OpenAiChat, base, "m");
    let error = call(&transport(), &tls, &question()).1.unwrap_err();
    assert!(!error.may_be_billed(), "{error:?}");
    assert!(server.requests().iter().all(|r| !r.contains("sk-secret")));
}

#[test]
fn cancel_ends_a_call_in_flight() {
    let server = serve(|stream| {
        let _ = stream.write_all(OK.as_bytes());
        let _ = stream.read(&mut [0]);
    });
    let mut patient = transport();
    patient.deadlines.first = Duration::from_secs(60);
    patient.deadlines.total = Duration::from_secs(60);
    let target = target(server.port());
    let mut call = patient.call(&target, None, &question()).unwrap();
    let cancel = call.canceller();
    let other = thread::spawn(move || {
        while server.asked() == 0 {
            thread::sleep(Duration::from_millis(1));
        }
        cancel.cancel();
    });
    assert_eq!(call.next().unwrap().unwrap_err().kind(), ErrorKind::Cancelled);
    assert!(call.next().is_none());
    other.join().unwrap();
}
