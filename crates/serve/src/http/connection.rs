//! Connections: listening, encryption, and stopping.

use super::patience::Patient;
use super::{App, ServeOptions};
use axum::Router;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};

/// Longest time for the headers of a request to arrive, and for a connection to be encrypted.
const HEADER_TIME: Duration = Duration::from_secs(30);
/// Longest time for the end of an answer to be read, of which nothing was read before.
const END_TIME: Duration = Duration::from_secs(10);
/// Longest time that connections get to send what is left after the last answer has ended.
const CLOSING_TIME: Duration = Duration::from_secs(2);

/// Why a server cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The address cannot be had.
    #[error("cannot listen on {address}: {source}")]
    Address {
        /// The address.
        address: SocketAddr,
        /// Why.
        source: std::io::Error,
    },
    /// Certificate or key cannot be read.
    #[error("{}: {message}", path.display())]
    Certificate {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        message: String,
    },
    /// The folder of files and vector stores cannot be used.
    #[error("cannot keep files and vector stores in {}: {message}", path.display())]
    Data {
        /// What of it.
        path: PathBuf,
        /// What is wrong.
        message: String,
    },
    /// The model of vector stores is none of this server's.
    #[error("the model of vector stores: {0}")]
    Embedder(String),
    /// This build has no encryption.
    #[error("this build cannot encrypt connections; build it with the feature `tls`")]
    NoTls,
}

/// A server that can be reached.
pub(super) struct Listener {
    tcp: TcpListener,
    address: SocketAddr,
    #[cfg(feature = "tls")]
    tls: Option<tokio_rustls::TlsAcceptor>,
}

impl Listener {
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }
}

pub(super) async fn listen(options: &ServeOptions) -> Result<Listener, Error> {
    #[cfg(not(feature = "tls"))]
    if options.tls.is_some() {
        return Err(Error::NoTls);
    }
    #[cfg(feature = "tls")]
    let tls = options.tls.as_ref().map(acceptor).transpose()?;
    let address = options.address;
    let failed = |source| Error::Address { address, source };
    let tcp = TcpListener::bind(address).await.map_err(failed)?;
    let address = tcp.local_addr().map_err(failed)?;
    Ok(Listener {
        tcp,
        address,
        #[cfg(feature = "tls")]
        tls,
    })
}

#[cfg(feature = "tls")]
fn acceptor(tls: &super::Tls) -> Result<tokio_rustls::TlsAcceptor, Error> {
    use rustls::pki_types::pem::{self, PemObject as _};
    use rustls::pki_types::{CertificateDer, PrivateKeyDer};
    let wrong = |path: &PathBuf, message: String| Error::Certificate {
        path: path.clone(),
        message,
    };
    let unread = |e: pem::Error, what: &str| match e {
        pem::Error::Io(e) => format!("cannot read it: {e}"),
        pem::Error::NoItemsFound => format!("it holds no {what} as PEM text (`-----BEGIN ...-----`)"),
        other => format!("it is no PEM text: {other}"),
    };
    let chain = CertificateDer::pem_file_iter(&tls.certificate)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .and_then(|chain| {
            if chain.is_empty() {
                Err(pem::Error::NoItemsFound)
            } else {
                Ok(chain)
            }
        })
        .map_err(|e| wrong(&tls.certificate, unread(e, "certificate")))?;
    let key = PrivateKeyDer::from_pem_file(&tls.key).map_err(|e| wrong(&tls.key, unread(e, "private key")))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key))
        .map_err(|e| match e {
            rustls::Error::InconsistentKeys(_) => wrong(
                &tls.key,
                format!("it is not the key of the certificate in {}", tls.certificate.display()),
            ),
            other => wrong(&tls.certificate, other.to_string()),
        })?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(tokio_rustls::TlsAcceptor::from(Arc::new(config)))
}

/// Accepts connections until `stop`. From then on requests for answers are refused, until the last answer has ended or its
/// time is over; what is under way after that is cancelled, and ends with an error.
pub(super) async fn accept(listener: Listener, router: Router, app: &Arc<App>, stop: impl AsyncFn()) {
    let (running, stopping) = watch::channel(());
    let free = Arc::new(Semaphore::new(app.options.connections));
    let mut stop = pin!(async {
        stop().await;
        app.draining.store(true, Ordering::Release);
        tracing::info!("stopping");
        tokio::select! {
            _ = tokio::time::timeout(app.options.drain, app.drained()) => {}
            () = stop() => {}
        }
    });
    loop {
        let accepted = async {
            // Whoever comes while all are taken waits in the system's queue.
            let permit = Arc::clone(&free).acquire_owned().await;
            (permit, listener.tcp.accept().await)
        };
        let (permit, stream) = tokio::select! {
            () = &mut stop => break,
            accepted = accepted => match accepted {
                (permit, Ok((stream, _))) => (permit, stream),
                (_, Err(_)) => {
                    // Out of file descriptors: some will come back.
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            },
        };
        let _ = stream.set_nodelay(true);
        // Whoever reads nothing for as long as an answer may take reads no end of it either.
        let stream = Patient::new(stream, app.options.timeout.saturating_add(END_TIME));
        let service = TowerToHyperService::new(router.clone());
        let stopping = stopping.clone();
        #[cfg(feature = "tls")]
        if let Some(tls) = listener.tls.clone() {
            tokio::spawn(async move {
                let _permit = permit;
                if let Ok(Ok(stream)) = tokio::time::timeout(HEADER_TIME, tls.accept(stream)).await {
                    converse(TokioIo::new(stream), service, stopping).await;
                }
            });
            continue;
        }
        tokio::spawn(async move {
            let _permit = permit;
            converse(TokioIo::new(stream), service, stopping).await;
        });
    }
    drop(listener);
    app.halt();
    drop(running);
    let all = u32::try_from(app.options.connections).unwrap_or(u32::MAX);
    // Clients read their ends, and what was sent elsewhere is recorded.
    let ended = async { tokio::join!(free.acquire_many(all), app.drained()) };
    let _ = tokio::time::timeout(CLOSING_TIME, ended).await;
}

/// Answers the requests of one connection. When `stopping` has lost its sender, the one under way is the last.
async fn converse(
    stream: impl hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static,
    service: TowerToHyperService<Router>,
    mut stopping: watch::Receiver<()>,
) {
    // An error is a client that went away.
    let mut connection = pin!(http().serve_connection(stream, service).with_upgrades());
    tokio::select! {
        _ = connection.as_mut() => {}
        _ = stopping.changed() => {
            connection.as_mut().graceful_shutdown();
            let _ = connection.await;
        }
    }
}

fn http() -> hyper::server::conn::http1::Builder {
    let mut builder = hyper::server::conn::http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEADER_TIME);
    builder
}

#[cfg(all(test, feature = "tls"))]
mod tests {
    use super::*;

    #[test]
    fn certificates_and_keys_that_cannot_be_used_are_named_with_what_is_wrong() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let certificate = file(
            "certificate",
            "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
        );
        let text = file("text", "my letters");
        let cut = file("cut", "-----BEGIN CERTIFICATE-----\nAAAA\n");
        let missing = folder.path().join("missing");
        for (certificate, key, wrong, expected) in [
            (&missing, &text, &missing, "cannot read it: "),
            (&text, &text, &text, "it holds no certificate as PEM text"),
            (&cut, &text, &cut, "it is no PEM text"),
            (&certificate, &missing, &missing, "cannot read it: "),
            (&certificate, &text, &text, "it holds no private key as PEM text"),
            (
                &certificate,
                &certificate,
                &certificate,
                "it holds no private key as PEM text",
            ),
        ] {
            let tls = super::super::Tls {
                certificate: certificate.clone(),
                key: key.clone(),
            };
            let Err(Error::Certificate { path, message }) = acceptor(&tls) else {
                panic!("{expected}");
            };
            assert_eq!(&path, wrong, "{message}");
            assert!(message.starts_with(expected), "{message}");
        }
    }
}
