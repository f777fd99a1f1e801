//! An HTTP server on this machine that stands for somebody else's, for tests of what asks it: it says byte for byte what it is
//! told to, right or wrong, and keeps what it was asked.

use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

/// Before an answer of server-sent events that ends with its connection.
pub const EVENTS: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";

/// What happens to a connection when a request on it was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum After {
    /// It is closed.
    Close,
    /// It waits for another request.
    Keep,
}

/// A server that runs until the test process ends.
#[derive(Debug)]
pub struct Server {
    port: u16,
    heard: Arc<Heard>,
}

#[derive(Debug, Default)]
struct Heard {
    connections: AtomicUsize,
    requests: Mutex<Vec<String>>,
}

impl Server {
    /// Reads each request whole, and hands its connection and its number (from 0 on) to `answer`. Every connection has a thread
    /// of its own.
    ///
    /// # Panics
    /// Where no port can be had.
    pub fn new(answer: impl Fn(usize, &mut TcpStream) -> After + Send + Sync + 'static) -> Server {
        Server::hearing(move |number, _, stream| answer(number, stream))
    }

    /// As [`Server::new`], where `answer` is told the request, too.
    ///
    /// # Panics
    /// Where no port can be had.
    pub fn hearing(answer: impl Fn(usize, &str, &mut TcpStream) -> After + Send + Sync + 'static) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port on this machine");
        let port = listener.local_addr().expect("a listener has an address").port();
        let heard = Arc::new(Heard::default());
        let server = Server {
            port,
            heard: Arc::clone(&heard),
        };
        let answer = Arc::new(answer);
        thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                heard.connections.fetch_add(1, Ordering::SeqCst);
                let (heard, answer) = (Arc::clone(&heard), Arc::clone(&answer));
                thread::spawn(move || {
                    loop {
                        let request = read_request(&mut stream);
                        if request.is_empty() {
                            return;
                        }
                        let number = {
                            let mut requests = heard.requests.lock().expect("nothing panics while it is held");
                            requests.push(request.clone());
                            requests.len() - 1
                        };
                        if answer(number, &request, &mut stream) == After::Close {
                            return;
                        }
                    }
                });
            }
        });
        server
    }

    /// Answers requests in turn and closes their connections; the last of the answers comes again and again.
    pub fn of(answers: Vec<Vec<u8>>) -> Server {
        Server::new(move |number, stream| {
            // Who has gone away needs no answer.
            let _ = stream.write_all(&answers[number.min(answers.len() - 1)]);
            After::Close
        })
    }

    /// Answers with the files of `folder` by their paths in it, whole whatever is asked for of them.
    ///
    /// # Panics
    /// Where no port can be had.
    pub fn of_folder(folder: &Path) -> Server {
        let folder = folder.to_owned();
        Server::hearing(move |_, request, stream| {
            let path = request.split_whitespace().nth(1).unwrap_or_default();
            let (status, body) = match std::fs::read(folder.join(path.trim_start_matches('/'))) {
                Ok(body) => ("200 OK", body),
                Err(_) => ("404 Not Found", Vec::new()),
            };
            let head = format!(
                "HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
                body.len()
            );
            // Who has gone away needs no answer.
            let _ = stream.write_all(&[head.as_bytes(), &body].concat());
            After::Close
        })
    }

    /// Its port on 127.0.0.1.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The requests so far, head and body.
    #[must_use]
    pub fn requests(&self) -> Vec<String> {
        self.heard
            .requests
            .lock()
            .expect("nothing panics while it is held")
            .clone()
    }

    /// How many requests came.
    #[must_use]
    pub fn asked(&self) -> usize {
        self.requests().len()
    }

    /// How many connections were made.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.heard.connections.load(Ordering::SeqCst)
    }
}

/// Reads up to the end of the body that `content-length` announces, or of what comes.
fn read_request(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let count = stream.read(&mut buffer).unwrap_or(0);
        bytes.extend_from_slice(&buffer[..count]);
        let end = bytes.windows(4).position(|four| four == b"\r\n\r\n");
        let whole = end.is_some_and(|end| {
            let head = String::from_utf8_lossy(&bytes[..end]).to_ascii_lowercase();
            let length = head
                .split("content-length: ")
                .nth(1)
                .and_then(|rest| rest.split("\r\n").next());
            length.is_none_or(|n| bytes.len() - end - 4 >= n.parse().expect("a length is a number"))
        });
        if count == 0 || whole {
            return String::from_utf8_lossy(&bytes).into_owned();
        }
    }
}

/// An answer of JSON under a status such as `529 Overloaded`.
#[must_use]
pub fn json_answer(status: &str, body: &Value) -> Vec<u8> {
    let body = body.to_string();
    let head = "content-type: application/json\r\nconnection: close";
    format!(
        "HTTP/1.1 {status}\r\n{head}\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// A stream of chat completions with these deltas, as OpenAI has them. With `whole` it has its end, and counts 20 tokens of the
/// prompt and 9 of the answer.
#[must_use]
pub fn chat_stream(deltas: &[Value], whole: bool) -> Vec<u8> {
    let chunk = |choices: Value, usage: Value| {
        let chunk = json!({"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m",
            "choices": choices, "usage": usage});
        format!("data: {chunk}\n\n")
    };
    let mut text = EVENTS.to_owned();
    for delta in deltas {
        text += &chunk(
            json!([{"index": 0, "delta": delta, "finish_reason": null}]),
            Value::Null,
        );
    }
    if whole {
        text += &chunk(json!([{"index": 0, "delta": {}, "finish_reason": "stop"}]), Value::Null);
        let usage = json!({"prompt_tokens": 20, "completion_tokens": 9, "total_tokens": 29});
        text += &chunk(json!([]), usage);
        text += "data: [DONE]\n\n";
    }
    text.into_bytes()
}

/// An answer whose connection stays open for the next: its length says where it ends.
///
/// # Panics
/// Where it has no head.
#[must_use]
pub fn kept_open(answer: &[u8]) -> Vec<u8> {
    let end = answer
        .windows(4)
        .position(|four| four == b"\r\n\r\n")
        .expect("an answer has a head");
    let (head, body) = (String::from_utf8_lossy(&answer[..end]), &answer[end + 4..]);
    let lines = head
        .split("\r\n")
        .filter(|line| !line.starts_with("connection: ") && !line.starts_with("content-length: "));
    let head: String = lines.map(|line| format!("{line}\r\n")).collect();
    [format!("{head}content-length: {}\r\n\r\n", body.len()).as_bytes(), body].concat()
}
