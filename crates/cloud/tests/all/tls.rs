//! Servers whose encryption is at fault: nothing of a request reaches them, so nothing can have been billed. Times are short
//! deadlines beside long ones; the bound that is asserted lies far from both.

use cactus_cloud::{
    Base, Deadlines, Error, ErrorKind, Key, Message, Protocol, Reply, Request, Retry, Role, Target, Transport,
};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection};
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

const STREAM: &str = include_str!("../fixtures/chat.sse");
const OK: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";

/// Signs certificates.
struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

/// What a server shows, and the key to it.
struct Identity {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        let issuer = Issuer::new(params, key);
        Self { pem, issuer }
    }

    fn sign(&self, params: &CertificateParams) -> Identity {
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        Identity {
            chain: vec![certificate.der().clone()],
            key: PrivateKeyDer::try_from(key.serialize_der()).unwrap(),
        }
    }
}

fn params(host: &str) -> CertificateParams {
    CertificateParams::new(vec![host.to_owned()]).unwrap()
}

/// A server that shows `identity`, reads each request and hands the connection to `answer`.
struct Server {
    port: u16,
    /// What could be read of requests.
    read: Arc<Mutex<String>>,
}

fn serve(
    identity: Identity,
    answer: impl Fn(&mut rustls::Stream<'_, ServerConnection, TcpStream>) + Send + 'static,
) -> Server {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(identity.chain, identity.key)
        .unwrap();
    let config = Arc::new(config);
    let read = Arc::new(Mutex::new(String::new()));
    let seen = read.clone();
    let port = listen(move |mut socket| {
        let mut session = ServerConnection::new(config.clone()).unwrap();
        let mut stream = rustls::Stream::new(&mut session, &mut socket);
        let mut buffer = [0; 4096];
        // The body ends the request: it is the one line that ends in a brace.
        while !seen.lock().unwrap().ends_with('}') {
            let Ok(count @ 1..) = stream.read(&mut buffer) else {
                return;
            };
            seen.lock()
                .unwrap()
                .push_str(&String::from_utf8_lossy(&buffer[..count]));
        }
        answer(&mut stream);
    });
    Server { port, read }
}

fn listen(answer: impl Fn(TcpStream) + Send + 'static) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || listener.incoming().for_each(|socket| answer(socket.unwrap())));
    port
}

fn transport(authorities: Option<&str>) -> Transport {
    Transport {
        deadlines: Deadlines {
            connect: Duration::from_secs(5),
            ..Deadlines::default()
        },
        authorities: authorities.map(|pem| pem.as_bytes().to_vec()),
        ..Transport::default()
    }
}

fn call(transport: &Transport, port: u16) -> (Reply, Option<Error>) {
    watched_call(transport, port, || {})
}

/// Calls, and says of each event that it has come.
fn watched_call(transport: &Transport, port: u16, came: impl Fn()) -> (Reply, Option<Error>) {
    let base = Base::parse(&format!("https://127.0.0.1:{port}/v1"), false).unwrap();
    let target = Target::new("t", Protocol::OpenAiChat, base, "m");
    let key = Key::new("sk-secret", &target).unwrap();
    let request = Request::new(vec![Message::text(Role::User, "hi")], 100);
    let (mut reply, mut failed) = (Reply::default(), None);
    for event in transport.call(&target, Some(&key), &request).unwrap() {
        match event {
            Ok(event) => {
                reply.add(&event).unwrap();
                came();
            }
            Err(error) => failed = Some(error),
        }
    }
    (reply, failed)
}

#[test]
fn authority_that_is_given_is_trusted() {
    let authority = Authority::new();
    // A whole answer needs no goodbye behind it.
    for goodbye in [true, false] {
        let server = serve(authority.sign(&params("127.0.0.1")), move |stream| {
            stream.write_all([OK, STREAM].concat().as_bytes()).unwrap();
            if goodbye {
                stream.conn.send_close_notify();
            }
            stream.flush().unwrap();
        });
        let (reply, failed) = call(&transport(Some(&authority.pem)), server.port);
        assert!(failed.is_none(), "{failed:?}");
        assert_eq!(reply.message.joined_text(), "Grüße, Welt 😀");
        assert!(reply.usage.is_complete());
        let read = server.read.lock().unwrap();
        assert!(read.contains("authorization: Bearer sk-secret\r\n"), "{read}");
    }
}

#[test]
fn certificates_that_do_not_hold_get_nothing() {
    let authority = Authority::new();
    let own = Some(authority.pem.as_str());
    let mut expired = params("127.0.0.1");
    expired.not_before = rcgen::date_time_ymd(2019, 1, 1);
    expired.not_after = rcgen::date_time_ymd(2020, 1, 1);
    let mut early = params("127.0.0.1");
    early.not_before = rcgen::date_time_ymd(3000, 1, 1);
    early.not_after = rcgen::date_time_ymd(3001, 1, 1);
    let self_signed = || {
        let key = KeyPair::generate().unwrap();
        let certificate = params("127.0.0.1").self_signed(&key).unwrap();
        Identity {
            chain: vec![certificate.der().clone()],
            key: PrivateKeyDer::try_from(key.serialize_der()).unwrap(),
        }
    };
    let cases = [
        ("another host", authority.sign(&params("127.0.0.2")), own),
        ("a name for an address", authority.sign(&params("localhost")), own),
        ("expired", authority.sign(&expired), own),
        ("not yet valid", authority.sign(&early), own),
        ("self-signed", self_signed(), own),
        ("self-signed, to the system", self_signed(), None),
        ("unknown authority", Authority::new().sign(&params("127.0.0.1")), own),
        (
            "unknown authority, to the system",
            authority.sign(&params("127.0.0.1")),
            None,
        ),
    ];
    for (name, identity, authorities) in cases {
        let server = serve(identity, |_| {});
        let (_, failed) = call(&transport(authorities), server.port);
        let error = failed.expect(name);
        assert_eq!(error.kind(), ErrorKind::Tls, "{name}: {error}");
        assert!(!error.may_be_billed(), "{name}");
        assert_eq!(error.retry(), Retry::Never, "{name}");
        assert_eq!(*server.read.lock().unwrap(), "", "{name}");
    }
}

#[test]
fn handshake_that_does_not_end_is_given_up() {
    let silent = listen(|mut socket| while let Ok(1..) = socket.read(&mut [0; 4096]) {});
    // A record that is said to be long, and comes byte by byte.
    let slow = listen(|mut socket| {
        let _ = socket.write_all(&[22, 3, 3, 64, 0, 2]);
        while socket.write_all(&[0]).is_ok() {
            thread::sleep(Duration::from_millis(20));
        }
    });
    let nobody = listen(drop);
    let cases = [
        ("silent", silent, 300, ErrorKind::Timeout),
        ("slow", slow, 300, ErrorKind::Timeout),
        ("hangs up", nobody, 600_000, ErrorKind::Cut),
    ];
    for (name, port, connect, kind) in cases {
        let mut hasty = transport(None);
        hasty.deadlines.connect = Duration::from_millis(connect);
        hasty.deadlines.first = Duration::from_secs(600);
        hasty.deadlines.total = Duration::from_secs(600);
        let from = Instant::now();
        let (_, failed) = call(&hasty, port);
        let error = failed.expect(name);
        assert_eq!(error.kind(), kind, "{name}: {error}");
        assert!(!error.may_be_billed(), "{name}: {error:?}");
        // The other deadlines are ten times this.
        assert!(from.elapsed() < Duration::from_secs(60), "{name}");
    }
}

#[test]
fn answers_that_break_under_encryption_are_cut() {
    let authority = Authority::new();
    let half = STREAM.find("Welt").unwrap();
    let forged = [&[23, 3, 3, 0, 32][..], &[7; 32]].concat();
    // Whoever cuts the connection cannot write the goodbye that the protocol wants.
    let cases = [
        ("no goodbye", vec![], half, "Grüße, "),
        ("a forged record", forged.clone(), half, "Grüße, "),
        ("a forged record for an answer", forged, 0, ""),
    ];
    for (name, ending, half, text) in cases {
        let (send, came) = mpsc::channel();
        let server = serve(authority.sign(&params("127.0.0.1")), move |stream| {
            if half > 0 {
                let text = [OK, &STREAM[..half]].concat();
                stream.write_all(text.as_bytes()).unwrap();
                // What has come is in the caller's hands before the connection breaks.
                came.recv().unwrap();
            }
            stream.sock.write_all(&ending).unwrap();
        });
        let (reply, failed) = watched_call(&transport(Some(&authority.pem)), server.port, || {
            let _ = send.send(());
        });
        let error = failed.expect(name);
        assert_eq!(error.kind(), ErrorKind::Cut, "{name}: {error}");
        assert!(error.may_be_billed(), "{name}");
        assert_eq!(reply.message.joined_text(), text, "{name}");
    }
}
