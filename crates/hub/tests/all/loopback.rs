//! A small HTTP server on the loopback interface that behaves like the model hub or any other server, and misbehaves on request.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// One request that arrived.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) path: String,
    pub(crate) range: Option<String>,
    pub(crate) if_range: Option<String>,
    pub(crate) authorization: Option<String>,
}

/// How the next answers differ from good ones.
#[derive(Clone, Debug, Default)]
pub(crate) struct Behavior {
    /// Answer every request with this status, and this `x-error-code`.
    pub(crate) refuse: Option<(u16, &'static str)>,
    /// Refuse requests without this token.
    pub(crate) token: Option<String>,
    /// Close the connection after this many bytes of a longer file, this many times.
    pub(crate) cut: Option<(usize, usize)>,
    /// Send the whole file whatever range was asked for.
    pub(crate) ignores_ranges: bool,
    /// Flip one bit of every file.
    pub(crate) corrupts: bool,
    /// Redirect files to this address.
    pub(crate) redirect: Option<String>,
    /// Name the state of files under `/models/`, and go by `If-Range`.
    pub(crate) names: Option<Names>,
    /// Close it early, and claim more, for files whose path ends so alone.
    pub(crate) only: &'static str,
    /// Refuse everything so from then on.
    pub(crate) then_refuse: Option<(u16, &'static str)>,
    /// When a connection was closed early, the file has become this.
    pub(crate) becomes: Option<Vec<u8>>,
    /// Say that files under `/models/` have so many bytes more than they have.
    pub(crate) claims: usize,
}

/// By which header a server names the state of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Names {
    ETag,
    LastModified,
    /// An `ETag` that promises no equal bytes.
    Weak,
}

impl Names {
    fn of(self, content: &[u8]) -> String {
        let sum = content
            .iter()
            .fold(7u64, |sum, &b| sum.wrapping_mul(31).wrapping_add(b.into()));
        match self {
            Names::ETag => format!("\"{sum:x}\""),
            Names::Weak => format!("W/\"{sum:x}\""),
            Names::LastModified => format!("Sat, 28 Nov 2026 10:{:02}:{:02} GMT", sum / 60 % 60, sum % 60),
        }
    }

    fn header(self) -> &'static str {
        match self {
            Names::ETag | Names::Weak => "etag",
            Names::LastModified => "last-modified",
        }
    }
}

#[derive(Default)]
struct State {
    routes: HashMap<String, Vec<u8>>,
    behavior: Behavior,
    seen: Vec<Request>,
}

/// The server; it ends when dropped.
pub(crate) struct Server {
    pub(crate) address: String,
    state: Arc<Mutex<State>>,
    over: Arc<AtomicBool>,
}

impl Server {
    pub(crate) fn start() -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let state = Arc::new(Mutex::new(State::default()));
        let over = Arc::new(AtomicBool::new(false));
        let server = Server {
            address,
            state: state.clone(),
            over: over.clone(),
        };
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if over.load(Ordering::SeqCst) {
                    break;
                }
                let state = state.clone();
                // A client that goes away is no fault of the server's.
                std::thread::spawn(move || stream.and_then(|s| serve(s, &state)));
            }
        });
        server
    }

    pub(crate) fn put(&self, path: &str, content: Vec<u8>) {
        self.state.lock().unwrap().routes.insert(path.to_owned(), content);
    }

    pub(crate) fn behave(&self, behavior: Behavior) {
        self.state.lock().unwrap().behavior = behavior;
    }

    /// The requests since the last call.
    pub(crate) fn seen(&self) -> Vec<Request> {
        std::mem::take(&mut self.state.lock().unwrap().seen)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
        // Wakes the listener so that it sees the flag.
        let _ = TcpStream::connect(self.address.trim_start_matches("http://"));
    }
}

fn serve(mut stream: TcpStream, state: &Mutex<State>) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut first = String::new();
    reader.read_line(&mut first)?;
    let path = first.split_whitespace().nth(1).unwrap_or("/").to_owned();
    let mut headers = HashMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(": ") else {
            break;
        };
        headers.insert(name.to_ascii_lowercase(), value.to_owned());
    }
    let range = headers.get("range").cloned();
    let if_range = headers.get("if-range").cloned();
    let authorization = headers.get("authorization").cloned();
    let (content, behavior, cut) = {
        let mut state = state.lock().unwrap();
        state.seen.push(Request {
            path: path.clone(),
            range: range.clone(),
            if_range: if_range.clone(),
            authorization: authorization.clone(),
        });
        let is_file = path.contains("/resolve/") || path.starts_with("/storage/") || path.starts_with("/models/");
        let length = state.routes.get(&path).map_or(0, Vec::len);
        // A look at the size is never cut.
        let may_cut = is_file && path.ends_with(state.behavior.only) && range.as_deref() != Some("bytes=0-0");
        let cut = match &mut state.behavior.cut {
            Some((at, times)) if may_cut && *times > 0 && length > *at => {
                *times -= 1;
                Some(*at)
            }
            _ => None,
        };
        let mut content = state.routes.get(&path).cloned();
        if let (true, true, Some(bytes)) = (state.behavior.corrupts, is_file, &mut content) {
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
        }
        let behavior = state.behavior.clone();
        if cut.is_some() {
            if let Some(other) = state.behavior.becomes.take() {
                state.routes.insert(path.clone(), other);
            }
            state.behavior.refuse = state.behavior.then_refuse.or(state.behavior.refuse);
        }
        (content, behavior, cut)
    };
    let wanted = behavior.token.map(|t| format!("Bearer {t}"));
    let refusal = match behavior.refuse {
        Some(refusal) => Some(refusal),
        None if wanted.is_some() && authorization != wanted => Some((401, "GatedRepo")),
        None if content.is_none() => Some((404, "EntryNotFound")),
        None => None,
    };
    if let Some((status, code)) = refusal {
        return write!(
            stream,
            "HTTP/1.1 {status} No\r\nx-error-code: {code}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
        );
    }
    if let (Some(target), true) = (
        &behavior.redirect,
        path.contains("/resolve/") || path.starts_with("/models/"),
    ) {
        return write!(
            stream,
            "HTTP/1.1 302 Found\r\nlocation: {target}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
        );
    }
    let content = content.unwrap_or_default();
    let is_model = path.starts_with("/models/");
    let name = behavior.names.filter(|_| is_model);
    let named = name.map_or_else(String::new, |n| format!("{}: {}\r\n", n.header(), n.of(&content)));
    // Who knows another state gets all of this one.
    let is_other = if_range.is_some() && if_range != name.map(|n| n.of(&content));
    let range = range.filter(|_| !behavior.ignores_ranges && !is_other).and_then(|r| {
        let (from, to) = r.strip_prefix("bytes=")?.split_once('-')?;
        let last = to.parse().unwrap_or(usize::MAX).min(content.len().saturating_sub(1));
        Some((from.parse::<usize>().ok()?, last))
    });
    let claims = if is_model && path.ends_with(behavior.only) {
        behavior.claims
    } else {
        0
    };
    let (from, last) = match range {
        Some((from, _)) if from >= content.len() => {
            return write!(
                stream,
                "HTTP/1.1 416 Range Not Satisfiable\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
            );
        }
        Some((from, last)) => {
            write!(
                stream,
                "HTTP/1.1 206 Partial Content\r\n{named}content-range: bytes {from}-{last}/{}\r\n",
                content.len() + claims
            )?;
            (from, last)
        }
        None => {
            write!(stream, "HTTP/1.1 200 OK\r\n{named}")?;
            (0, content.len().saturating_sub(1))
        }
    };
    let body = if content.is_empty() {
        &content[..]
    } else {
        &content[from..=last]
    };
    let claimed = if range.is_some_and(|(_, to)| to == 0) {
        0
    } else {
        claims
    };
    write!(
        stream,
        "content-length: {}\r\nconnection: close\r\n\r\n",
        body.len() + claimed
    )?;
    stream.write_all(&body[..cut.unwrap_or(body.len()).min(body.len())])
}
