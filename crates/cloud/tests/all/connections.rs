//! Names that mean nothing, and connections that serve several calls. All of it on this machine: names are looked up by functions.

use cactus_cloud::{
    Base, Deadlines, ErrorKind, LookUp, Message, Protocol, Reply, Request, Result, Role, Target, Transport,
};
use cactus_testkit::http::{After, Server, chat_stream, json_answer, kept_open};
use serde_json::json;
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

fn target(base: &str) -> Target {
    Target::new("t", Protocol::OpenAiChat, Base::parse(base, true).unwrap(), "m")
}

fn question() -> Request {
    Request::new(vec![Message::text(Role::User, "hi")], 100)
}

fn ask(transport: &Transport, target: &Target) -> Result<String> {
    let mut reply = Reply::default();
    for event in transport.call(target, None, &question())? {
        reply.add(&event?).unwrap();
    }
    Ok(reply.message.joined_text())
}

fn by(look_up: LookUp) -> Transport {
    let ms = Duration::from_millis;
    Transport {
        deadlines: Deadlines {
            connect: ms(200),
            first: ms(5000),
            gap: ms(5000),
            total: ms(20_000),
        },
        look_up,
        ..Transport::default()
    }
}

fn answer(text: &str) -> Vec<u8> {
    kept_open(&chat_stream(&[json!({"content": text})], true))
}

#[test]
fn names_that_lead_nowhere_are_told_apart_and_cost_nothing() {
    let unknown = || {
        Err(io::Error::other(
            "failed to lookup address information: Name or service not known",
        ))
    };
    let (release, held) = mpsc::sync_channel::<()>(0);
    let held = std::sync::Mutex::new(held);
    let cases: Vec<(&str, LookUp, &str, ErrorKind, &str)> = vec![
        (
            "unknown",
            LookUp::new(move |_, _| unknown()),
            "https://names.test/v1",
            ErrorKind::Unreachable,
            "`names.test` cannot be looked up",
        ),
        (
            "no address",
            LookUp::new(|_, _| Ok(Vec::new())),
            "https://names.test/v1",
            ErrorKind::Unreachable,
            "`names.test` has no address",
        ),
        (
            "hangs",
            // Until the test is over.
            LookUp::new(move |_, _| {
                let _ = held.lock().unwrap().recv();
                Ok(Vec::new())
            }),
            "https://names.test/v1",
            ErrorKind::Timeout,
            "",
        ),
        (
            "has failed",
            LookUp::new(|_, _| panic!("as a look-up must not")),
            "https://names.test/v1",
            ErrorKind::Unreachable,
            "the look-up has failed",
        ),
        (
            "public address for what is not encrypted",
            LookUp::new(|_, port| Ok(vec![SocketAddr::from(([203, 0, 113, 1], port))])),
            "http://names.test/v1",
            ErrorKind::InvalidTarget,
            "",
        ),
        (
            "one public address among private ones",
            LookUp::new(|_, port| Ok([[127, 0, 0, 1], [203, 0, 113, 1]].map(|ip| (ip, port).into()).to_vec())),
            "http://names.test/v1",
            ErrorKind::InvalidTarget,
            "",
        ),
    ];
    for (what, look_up, base, kind, words) in cases {
        let begun = Instant::now();
        let mut transport = by(look_up);
        if kind != ErrorKind::Timeout {
            // A busy machine takes its time to start a thread.
            transport.deadlines.connect = Duration::from_secs(60);
        }
        let error = ask(&transport, &target(base)).unwrap_err();
        assert_eq!((error.kind(), error.may_be_billed()), (kind, false), "{what}: {error}");
        assert!(error.to_string().contains(words), "{what}: {error}");
        // The deadline for connecting, and not one of those that are far longer.
        assert!(
            kind != ErrorKind::Timeout || begun.elapsed() < Duration::from_secs(5),
            "{what}"
        );
    }
    drop(release);
}

#[test]
fn call_whose_name_hangs_can_be_cancelled() {
    let (release, held) = mpsc::sync_channel::<()>(0);
    let held = std::sync::Mutex::new(held);
    let mut patient = by(LookUp::new(move |_, _| {
        let _ = held.lock().unwrap().recv();
        Ok(Vec::new())
    }));
    patient.deadlines.connect = Duration::from_secs(60);
    let mut call = patient
        .call(&target("https://names.test/v1"), None, &question())
        .unwrap();
    let cancel = call.canceller();
    let other = thread::spawn(move || cancel.cancel());
    let error = call.next().unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Cancelled);
    other.join().unwrap();
    drop(release);
}

#[test]
fn later_calls_take_the_connection_of_earlier_ones() {
    let server = Server::new(|number, stream| {
        stream.write_all(&answer(&format!("answer {number}"))).unwrap();
        After::Keep
    });
    let transport = by(LookUp::new(|host, port| {
        assert_eq!(host, "names.test");
        Ok(vec![SocketAddr::from(([127, 0, 0, 1], port))])
    }));
    let target = target(&format!("http://names.test:{}/v1", server.port()));
    for number in 0..3 {
        // A clone has the same connections.
        assert_eq!(ask(&transport.clone(), &target).unwrap(), format!("answer {number}"));
    }
    assert_eq!((server.asked(), server.connections()), (3, 1));
    // Other deadlines hold for another connection.
    let mut other = transport.clone();
    other.deadlines.total = Duration::from_secs(10);
    assert_eq!(ask(&other, &target).unwrap(), "answer 3");
    assert_eq!(server.connections(), 2);
}

#[test]
fn error_that_was_read_to_its_end_leaves_the_connection_to_the_next_try() {
    let server = Server::new(|number, stream| {
        let error = json_answer("529 Overloaded", &json!({"error": {"message": "x"}}));
        let bytes = match number {
            0 => kept_open(&error),
            _ => answer("now"),
        };
        stream.write_all(&bytes).unwrap();
        After::Keep
    });
    let (transport, target) = (
        by(LookUp::default()),
        target(&format!("http://127.0.0.1:{}/v1", server.port())),
    );
    assert_eq!(ask(&transport, &target).unwrap_err().kind(), ErrorKind::Overloaded);
    assert_eq!(ask(&transport, &target).unwrap(), "now");
    assert_eq!((server.asked(), server.connections()), (2, 1));
}

#[test]
fn connection_that_was_closed_while_it_waited_does_no_harm() {
    // It says that the connection stays, and closes it.
    let server = Server::of(vec![answer("first"), answer("second")]);
    let (transport, target) = (
        by(LookUp::default()),
        target(&format!("http://127.0.0.1:{}/v1", server.port())),
    );
    assert_eq!(ask(&transport, &target).unwrap(), "first");
    // Until the end of the connection has come, which the server's thread is about to send.
    thread::sleep(Duration::from_millis(100));
    assert_eq!(ask(&transport, &target).unwrap(), "second");
    assert_eq!((server.asked(), server.connections()), (2, 2));
}

#[test]
fn connection_that_breaks_under_a_request_is_not_used_for_it_again() {
    // The second request is read, and nobody can know what became of it.
    let server = Server::new(|number, stream| match number {
        0 => {
            stream.write_all(&answer("first")).unwrap();
            After::Keep
        }
        1 => After::Close,
        _ => {
            stream.write_all(&answer("third")).unwrap();
            After::Keep
        }
    });
    let (transport, target) = (
        by(LookUp::default()),
        target(&format!("http://127.0.0.1:{}/v1", server.port())),
    );
    assert_eq!(ask(&transport, &target).unwrap(), "first");
    let error = ask(&transport, &target).unwrap_err();
    assert_eq!((error.kind(), error.may_be_billed()), (ErrorKind::Cut, true), "{error}");
    assert_eq!(server.asked(), 2, "sent once");
    assert_eq!(ask(&transport, &target).unwrap(), "third");
    assert_eq!((server.asked(), server.connections()), (3, 2));
}

#[test]
fn call_that_is_left_before_its_end_takes_its_connection_with_it() {
    let server = Server::new(|number, stream| {
        let whole = answer(&format!("answer {number}"));
        let bytes = if number == 0 {
            &whole[..whole.len() - 40]
        } else {
            &whole
        };
        stream.write_all(bytes).unwrap();
        After::Keep
    });
    let (transport, target) = (
        by(LookUp::default()),
        target(&format!("http://127.0.0.1:{}/v1", server.port())),
    );
    let mut call = transport.call(&target, None, &question()).unwrap();
    assert!(call.next().unwrap().is_ok());
    let cancel = call.canceller();
    drop(call);
    // Nothing is left that this could end.
    cancel.cancel();
    assert_eq!(ask(&transport, &target).unwrap(), "answer 1");
    cancel.cancel();
    assert_eq!(ask(&transport, &target).unwrap(), "answer 2");
    assert_eq!(server.connections(), 2);
}
