//! What stands at the other end of a request: whatever it does, it does over real connections on this machine.

use cactus_router::cloud::LookUp;
use cactus_testkit::http::{After, Server};
use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection};
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

/// What stands at the other end.
pub(crate) enum Far {
    /// Answers, in turn; the last of them again and again.
    Says(Vec<Vec<u8>>),
    /// Says the first, and then the second again and again, slowly.
    Drips(String, &'static str),
    /// Likewise, as fast as it can, up to 1 GB.
    Pours(String, &'static str),
    /// Says this, and then nothing.
    Hangs(String),
    /// Closes the connection with the request unread.
    Resets,
    /// Lets nobody in.
    Refuses,
    /// Takes no connection and says so to nobody.
    Swallows,
    /// A name instead of an address.
    Named(LookUp),
    /// Says nothing where encryption begins.
    Encrypts,
    /// Has signed its certificate itself.
    Signs,
}

/// What stands there, until the test is over.
pub(crate) struct Stands {
    pub(crate) base: String,
    pub(crate) look_up: LookUp,
    /// Requests that were read.
    pub(crate) asked: Box<dyn Fn() -> usize>,
    /// Bytes that could be sent.
    pub(crate) sent: Arc<AtomicU64>,
    _held: Vec<TcpStream>,
    _listener: Option<TcpListener>,
}

/// Sends a piece, as long as somebody takes it, up to 1 GB.
fn pour(stream: &mut TcpStream, first: &str, piece: &str, pause: Duration, sent: &AtomicU64) {
    let _ = stream.set_nodelay(true);
    let mut next = stream.write_all(first.as_bytes());
    while next.is_ok() && sent.load(Ordering::SeqCst) < 1 << 30 {
        thread::sleep(pause);
        next = stream.write_all(piece.as_bytes());
        sent.fetch_add(piece.len() as u64, Ordering::SeqCst);
    }
}

/// The address of a server on this machine.
pub(crate) fn plain(port: u16) -> String {
    format!("http://127.0.0.1:{port}/v1")
}

impl Far {
    /// Puts it there.
    pub(crate) fn stand(self) -> Stands {
        let sent = Arc::new(AtomicU64::new(0));
        let mut stands = Stands {
            base: String::new(),
            look_up: LookUp::default(),
            asked: Box::new(|| 0),
            sent: Arc::clone(&sent),
            _held: Vec::new(),
            _listener: None,
        };
        let server = match self {
            Far::Says(answers) => Server::of(answers),
            Far::Drips(first, piece) => Server::new(move |_, stream| {
                pour(stream, &first, piece, Duration::from_millis(20), &sent);
                After::Close
            }),
            Far::Pours(first, piece) => {
                let piece = piece.repeat(1000);
                Server::new(move |_, stream| {
                    pour(stream, &first, &piece, Duration::ZERO, &sent);
                    After::Close
                })
            }
            Far::Hangs(first) => Server::new(move |_, stream| {
                let _ = stream.write_all(first.as_bytes());
                // Until the other side has gone.
                let _ = stream.read(&mut [0]);
                After::Close
            }),
            other => {
                other.stand_without_http(&mut stands);
                return stands;
            }
        };
        stands.base = plain(server.port());
        stands.asked = Box::new(move || server.asked());
        stands
    }

    fn stand_without_http(self, stands: &mut Stands) {
        if let Far::Named(look_up) = self {
            (stands.base, stands.look_up) = ("https://names.test/v1".to_owned(), look_up);
            return;
        }
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        stands.base = plain(address.port());
        let encrypted = format!("https://{address}/v1");
        match self {
            Far::Swallows => {
                // Who waits to be let in fills the listener's queue, and what comes then is dropped without a word.
                let wait = Duration::from_millis(500);
                while let Ok(stream) = TcpStream::connect_timeout(&address, wait) {
                    stands._held.push(stream);
                }
                stands._listener = Some(listener);
            }
            Far::Resets => {
                let asked = Arc::new(AtomicUsize::new(0));
                let counts = Arc::clone(&asked);
                stands.asked = Box::new(move || asked.load(Ordering::SeqCst));
                thread::spawn(move || {
                    for stream in listener.incoming().flatten() {
                        let mut buffer = [0; 4096];
                        // Whoever closes a connection with something unread in it resets it.
                        while !stream
                            .peek(&mut buffer)
                            .is_ok_and(|count| buffer[..count].ends_with(b"}"))
                        {
                            thread::sleep(Duration::from_millis(1));
                        }
                        counts.fetch_add(1, Ordering::SeqCst);
                    }
                });
            }
            Far::Encrypts => {
                stands.base = encrypted;
                thread::spawn(move || {
                    for mut stream in listener.incoming().flatten() {
                        thread::spawn(move || while let Ok(1..) = stream.read(&mut [0; 4096]) {});
                    }
                });
            }
            Far::Signs => {
                stands.base = encrypted;
                let key = KeyPair::generate().unwrap();
                let own = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
                let own = own.self_signed(&key).unwrap().der().clone();
                let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
                    .with_safe_default_protocol_versions()
                    .unwrap()
                    .with_no_client_auth()
                    .with_single_cert(vec![own], PrivateKeyDer::try_from(key.serialize_der()).unwrap())
                    .unwrap();
                let config = Arc::new(config);
                let read = Arc::new(AtomicUsize::new(0));
                let counts = Arc::clone(&read);
                stands.asked = Box::new(move || read.load(Ordering::SeqCst));
                thread::spawn(move || {
                    for mut stream in listener.incoming().flatten() {
                        let mut session = ServerConnection::new(Arc::clone(&config)).unwrap();
                        let mut inside = rustls::Stream::new(&mut session, &mut stream);
                        counts.fetch_add(inside.read(&mut [0; 9]).unwrap_or(0), Ordering::SeqCst);
                    }
                });
            }
            // Dropping the listener closes its port.
            _ => {}
        }
    }
}
