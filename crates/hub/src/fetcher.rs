//! Files that somebody else names by address, as clients of a server name pictures.
//!
//! They must not be able to look through this machine into its network: only public addresses are connected to, whatever name or
//! redirection leads to them, and what was looked up is what is connected to. No proxy of the environment is asked, which would look names up itself.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;
use ureq::Agent;
use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{DefaultConnector, NextTimeout};

/// The longest that a file may take.
const LONGEST: Duration = Duration::from_secs(20);
/// Most bytes of a file.
const MOST_BYTES: u64 = 12 << 20;
const MOST_REDIRECTIONS: u32 = 3;

/// Fetches files from public addresses.
#[derive(Debug)]
pub struct Fetcher {
    agent: Agent,
}

impl Default for Fetcher {
    fn default() -> Fetcher {
        Fetcher::of(is_public)
    }
}

impl Fetcher {
    /// One that connects to addresses that are `allowed`.
    fn of(allowed: fn(IpAddr) -> bool) -> Fetcher {
        let config = Config::builder()
            .proxy(None)
            .max_redirects(MOST_REDIRECTIONS)
            .timeout_global(Some(LONGEST))
            .accept_encoding("identity")
            .user_agent(concat!("cactus/", env!("CARGO_PKG_VERSION")))
            .build();
        let resolver = Allowed {
            inner: DefaultResolver::default(),
            allowed,
        };
        Fetcher {
            agent: Agent::with_parts(config, DefaultConnector::new(), resolver),
        }
    }

    /// The file at `address`, which begins with `https://` or `http://`, of at most 12 MiB, within 20 s.
    ///
    /// # Errors
    /// Why there is none, in words: no address, one that is not public, a status that is no success, a file that is too large.
    pub fn fetch(&self, address: &str) -> Result<Vec<u8>, String> {
        let uri: Uri = address.parse().map_err(|e| format!("it is no address: {e}"))?;
        if !matches!(uri.scheme_str(), Some("http" | "https")) {
            return Err("expected an address that begins with https:// or http://".to_owned());
        }
        let mut answer = self.agent.get(uri).call().map_err(|e| match e {
            ureq::Error::Other(e) => e.to_string(),
            other => format!("it cannot be fetched: {other}"),
        })?;
        let body = answer.body_mut().with_config().limit(MOST_BYTES);
        body.read_to_vec().map_err(|e| match e {
            ureq::Error::BodyExceedsLimit(_) => {
                format!("it has more than {MOST_BYTES} bytes, which are the most that are fetched")
            }
            other => format!("it cannot be fetched: {other}"),
        })
    }
}

/// Looks names up, and keeps addresses that are allowed.
#[derive(Debug)]
struct Allowed {
    inner: DefaultResolver,
    allowed: fn(IpAddr) -> bool,
}

impl Resolver for Allowed {
    fn resolve(&self, uri: &Uri, config: &Config, timeout: NextTimeout) -> Result<ResolvedSocketAddrs, ureq::Error> {
        let found = self.inner.resolve(uri, config, timeout)?;
        let mut kept = self.empty();
        for address in found.iter().filter(|address| (self.allowed)(address.ip())) {
            kept.push(*address);
        }
        if kept.is_empty() {
            let host = uri.host().unwrap_or_default();
            let what = format!("`{host}` is not a public address; files are fetched from public addresses only");
            return Err(ureq::Error::Other(what.into()));
        }
        Ok(kept)
    }
}

/// Whether an address is one of the public internet (IANA's registries of special addresses, RFC 6890).
fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => is_public_v4(v4),
        IpAddr::V6(v6) => is_public_v6(v6),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let special = match address.octets() {
        [0 | 10 | 127, ..] | [224..=255, ..] => true,
        // Shared by providers, this link, and private.
        [100, 64..128, ..] | [169, 254, ..] | [172, 16..32, ..] | [192, 168, ..] => true,
        // Of protocols, for documentation, of old relays, and for benchmarks.
        [192, 0, 0 | 2, _] | [192, 88, 99, _] | [198, 18..20, ..] | [198, 51, 100, _] | [203, 0, 113, _] => true,
        _ => false,
    };
    !special
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    if let Some(v4) = address.to_ipv4_mapped() {
        return is_public_v4(v4);
    }
    match address.segments() {
        // Tunnels and what is for protocols and documentation.
        [0x2001, 0..0x200, ..] | [0x2001, 0xdb8, ..] | [0x3fff, 0..0x1000, ..] => false,
        [0x2002, a, b, ..] => is_public_v4(Ipv4Addr::from((u32::from(a) << 16) | u32::from(b))),
        [0x64, 0xff9b, 0, 0, 0, 0, a, b] => is_public_v4(Ipv4Addr::from((u32::from(a) << 16) | u32::from(b))),
        [0x2000..0x4000, ..] => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};
    use std::net::{SocketAddr, TcpListener};

    #[test]
    fn only_addresses_of_the_internet_are_public() {
        for address in [
            "1.1.1.1",
            "93.184.215.14",
            "172.32.0.1",
            "100.128.0.1",
            "2606:4700::1111",
            "::ffff:8.8.8.8",
            "64:ff9b::808:808",
        ] {
            assert!(is_public(address.parse().unwrap()), "{address}");
        }
        for address in [
            "0.0.0.0",
            "10.1.2.3",
            "100.64.0.1",
            "127.0.0.1",
            "169.254.169.254",
            "172.31.0.1",
            "192.0.0.8",
            "192.168.1.1",
            "198.19.0.1",
            "203.0.113.9",
            "224.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "fc00::1",
            "fd12::1",
            "fe80::1",
            "fec0::1",
            "ff02::1",
            "2001:db8::1",
            "2001::1",
            "2002:7f00:1::",
            "2002:a00:1::",
            "64:ff9b::7f00:1",
            "64:ff9b::a00:1",
            "::127.0.0.1",
        ] {
            assert!(!is_public(address.parse().unwrap()), "{address}");
        }
    }

    /// Answers so many requests with what `answer` makes of their first line.
    fn server(requests: usize, answer: impl Fn(&str) -> Vec<u8> + Send + 'static) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for _ in 0..requests {
                let (mut stream, _) = listener.accept().unwrap();
                let mut request = Vec::new();
                let mut byte = [0];
                while !request.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap_or(0) == 1 {
                    request.push(byte[0]);
                }
                let first = String::from_utf8_lossy(&request)
                    .lines()
                    .next()
                    .unwrap_or_default()
                    .to_owned();
                drop(stream.write_all(&answer(&first)));
            }
        });
        address
    }

    fn body(bytes: &[u8]) -> Vec<u8> {
        let head = format!(
            "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
            bytes.len()
        );
        [head.as_bytes(), bytes].concat()
    }

    fn first_of_this_machine(address: IpAddr) -> bool {
        address == IpAddr::from([127, 0, 0, 1])
    }

    #[test]
    fn files_are_fetched_within_their_limits() {
        let address = server(3, |line| match line {
            line if line.contains("/a.png") => body(b"a picture"),
            line if line.contains("/large") => format!(
                "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
                MOST_BYTES + 1
            )
            .into_bytes()
            .into_iter()
            .chain(vec![0; MOST_BYTES as usize + 1])
            .collect(),
            _ => b"HTTP/1.1 404 Not Found\r\nconnection: close\r\ncontent-length: 0\r\n\r\n".to_vec(),
        });
        let fetcher = Fetcher::of(first_of_this_machine);
        assert_eq!(fetcher.fetch(&format!("http://{address}/a.png")).unwrap(), b"a picture");
        let large = fetcher.fetch(&format!("http://{address}/large")).unwrap_err();
        assert!(large.contains("more than"), "{large}");
        let absent = fetcher.fetch(&format!("http://{address}/b.png")).unwrap_err();
        assert!(absent.contains("404"), "{absent}");
        for no_address in ["ftp://127.0.0.1/a", "file:///etc/passwd", "a b", "//example.com"] {
            fetcher.fetch(no_address).unwrap_err();
        }
    }

    #[test]
    fn nothing_leads_to_addresses_that_are_not_allowed() {
        let fetcher = Fetcher::default();
        for address in [
            "http://127.0.0.1:1/",
            "http://localhost:1/",
            "http://[::1]:1/",
            "http://2130706433/",
            "http://0x7f.1/",
            "http://169.254.169.254/latest",
        ] {
            let refused = fetcher.fetch(address).unwrap_err();
            assert!(
                refused.contains("not a public address") || refused.contains("cannot be fetched"),
                "{address}: {refused}"
            );
        }
        // A redirection to another address of this machine.
        let address = server(1, |_| {
            b"HTTP/1.1 302 Found\r\nlocation: http://127.0.0.2:1/\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
                .to_vec()
        });
        let refused = Fetcher::of(first_of_this_machine)
            .fetch(&format!("http://{address}/"))
            .unwrap_err();
        assert!(refused.contains("`127.0.0.2` is not a public address"), "{refused}");
    }
}
