//! Names of hosts: looked up in the time that there is, and for plain HTTP to private addresses alone.
//!
//! The system's look-up cannot be interrupted, so each has a thread of its own, which is left behind where it hangs.

use crate::target::is_private;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::NextTimeout;

/// As many as the library tries.
const MOST_ADDRESSES: usize = 16;

type Find = dyn Fn(&str, u16) -> io::Result<Vec<SocketAddr>> + Send + Sync;

/// How names of hosts are looked up: by the system, unless it is told otherwise.
#[derive(Clone)]
pub struct LookUp(Arc<Find>);

impl LookUp {
    /// By a function from a host, without brackets, and a port to addresses. It may take its time: it is not waited for longer
    /// than the deadline for connecting says.
    pub fn new(find: impl Fn(&str, u16) -> io::Result<Vec<SocketAddr>> + Send + Sync + 'static) -> Self {
        Self(Arc::new(find))
    }
}

impl Default for LookUp {
    fn default() -> Self {
        Self::new(|host, port| Ok((host, port).to_socket_addrs()?.collect()))
    }
}

impl PartialEq for LookUp {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl std::fmt::Debug for LookUp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("LookUp")
    }
}

/// Why a name has no address.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoAddress {
    #[error("the name `{0}` cannot be looked up: {1}")]
    Failed(String, io::Error),
    #[error("the name `{0}` has no address")]
    Empty(String),
}

/// Looks names up for a target.
#[derive(Debug)]
pub(crate) struct Names {
    /// A name that means any other address is refused.
    pub(crate) only_private: bool,
    pub(crate) look_up: LookUp,
}

impl Resolver for Names {
    fn resolve(&self, uri: &Uri, _: &Config, timeout: NextTimeout) -> Result<ResolvedSocketAddrs, ureq::Error> {
        let bad = || ureq::Error::BadUri(uri.to_string());
        let host = uri.host().ok_or_else(bad)?;
        let usual = match uri.scheme_str() {
            Some("https") => Some(443),
            Some("http") => Some(80),
            _ => None,
        };
        let port = uri.port_u16().or(usual).ok_or_else(bad)?;
        let name = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let (sender, receiver) = mpsc::sync_channel(1);
        let (find, asked) = (Arc::clone(&self.look_up.0), name.clone());
        // Who no longer waits needs no answer.
        let run = move || drop(sender.send(find(&asked, port)));
        let begun = thread::Builder::new().name("cactus-names".to_owned()).spawn(run);
        let found = match begun {
            Err(e) => Err(e),
            Ok(_) => match receiver.recv_timeout(*timeout.after) {
                Ok(found) => found,
                Err(RecvTimeoutError::Timeout) => return Err(ureq::Error::Timeout(timeout.reason)),
                Err(RecvTimeoutError::Disconnected) => Err(io::Error::other("the look-up has failed")),
            },
        };
        let failed = |why: NoAddress| ureq::Error::Other(Box::new(why));
        let found = match found {
            Err(e) => return Err(failed(NoAddress::Failed(name, e))),
            Ok(found) if found.is_empty() => return Err(failed(NoAddress::Empty(name))),
            Ok(found) => found,
        };
        if self.only_private && found.iter().any(|address| !is_private(address.ip())) {
            return Err(ureq::Error::RequireHttpsOnly(uri.to_string()));
        }
        let mut addresses = self.empty();
        found
            .into_iter()
            .take(MOST_ADDRESSES)
            .for_each(|address| addresses.push(address));
        Ok(addresses)
    }
}
