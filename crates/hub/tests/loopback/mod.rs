//! A small HTTP server on the loopback interface that behaves like the model hub, and misbehaves on request.

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
    let authorization = headers.get("authorization").cloned();
    let (content, behavior, cut) = {
        let mut state = state.lock().unwrap();
        state.seen.push(Request {
            path: path.clone(),
            range: range.clone(),
            authorization: authorization.clone(),
        });
        let is_file = path.contains("/resolve/") || path.starts_with("/storage/");
        let length = state.routes.get(&path).map_or(0, Vec::len);
        let cut = match &mut state.behavior.cut {
            Some((at, times)) if is_file && *times > 0 && length > *at => {
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
        (content, state.behavior.clone(), cut)
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
    if let (Some(target), true) = (&behavior.redirect, path.contains("/resolve/")) {
        return write!(
            stream,
            "HTTP/1.1 302 Found\r\nlocation: {target}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
        );
    }
    let content = content.unwrap_or_default();
    let from = range
        .filter(|_| !behavior.ignores_ranges)
        .and_then(|r| r.strip_prefix("bytes=")?.trim_end_matches('-').parse::<usize>().ok());
    match from {
        Some(from) if from >= content.len() => {
            return write!(
                stream,
                "HTTP/1.1 416 Range Not Satisfiable\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
            );
        }
        Some(from) => write!(
            stream,
            "HTTP/1.1 206 Partial Content\r\ncontent-range: bytes {from}-{}/{}\r\n",
            content.len() - 1,
            content.len()
        )?,
        None => write!(stream, "HTTP/1.1 200 OK\r\n")?,
    }
    let body = &content[from.unwrap_or(0)..];
    write!(stream, "content-length: {}\r\nconnection: close\r\n\r\n", body.len())?;
    stream.write_all(&body[..cut.unwrap_or(body.len()).min(body.len())])
}
