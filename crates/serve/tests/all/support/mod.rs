//! A server with a tiny model, and a client that knows just enough HTTP.
#![allow(dead_code, reason = "not every test uses all of it")]

use cactus_engine::LoadOptions;
use cactus_engine::scheduler::SchedulerLimits;
use cactus_import::{ConvertOptions, convert};
use cactus_passes::{Bits, Policy};
use cactus_serve::models::{ModelLimits, Models, Source};
use cactus_serve::protocol::Frame;
use cactus_serve::{ServeOptions, serve};
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;
use tokio::sync::Notify;

/// Writes tools and calls as Qwen2.5 does, in few words.
const TEMPLATE: &str = "{% if tools %}{{ '<|im_start|>system\n' }}{% for tool in tools %}{{ tool.function.name }} {% endfor %}\
{{ '<tool_call>\n{\"name\": <function-name>, \"arguments\": <args-json-object>}\n</tool_call><|im_end|>\n' }}{% endif %}\
{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + (m.content or '') }}\
{% for call in m.tool_calls or [] %}{{ '<tool_call>\n' + (call.function | tojson) + '\n</tool_call>' }}{% endfor %}\
{{ '<|im_end|>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

/// A bundle of a tiny Qwen2 with random weights, made once.
pub(crate) fn bundle() -> &'static Path {
    static MADE: OnceLock<(tempfile::TempDir, PathBuf)> = OnceLock::new();
    let (_, path) = MADE.get_or_init(|| made(|_| {}));
    path
}

/// A bundle of the tiny model `bert`, which makes vectors of texts, made once.
pub(crate) fn embedder() -> &'static Path {
    static MADE: OnceLock<(tempfile::TempDir, PathBuf)> = OnceLock::new();
    let (_, path) = MADE.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden/embedding/bert");
        let path = folder.path().join("bert");
        convert(&golden, &path, &ConvertOptions::default(), &mut |_, _| {}).unwrap();
        (folder, path)
    });
    path
}

/// A bundle of its own, of a source folder that `change` has changed.
pub(crate) fn made(change: impl FnOnce(&Path)) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden/models/qwen2");
    let source = dir.path().join("source");
    std::fs::create_dir(&source).unwrap();
    for entry in std::fs::read_dir(golden).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), source.join(entry.file_name())).unwrap();
    }
    std::fs::write(source.join("chat_template.jinja"), TEMPLATE).unwrap();
    let config = source.join("config.json");
    let mut json: Value = serde_json::from_slice(&std::fs::read(&config).unwrap()).unwrap();
    json["max_position_embeddings"] = Value::from(65_536);
    std::fs::write(&config, json.to_string()).unwrap();
    change(&source);
    let path = dir.path().join("tiny");
    let options = ConvertOptions {
        policy: Policy::uniform(Bits::Eight),
        ..ConvertOptions::default()
    };
    convert(&source, &path, &options, &mut |_, _| {}).unwrap();
    (dir, path)
}

pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    stop: &'static Notify,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Server {
    pub(crate) fn new() -> Server {
        Server::with(|_, _| {})
    }

    pub(crate) fn with(change: impl FnOnce(&mut ServeOptions, &mut ModelLimits)) -> Server {
        let source = |name: &str| Source {
            name: name.to_owned(),
            aliases: vec!["another/name".to_owned()],
            ..Source::folder(bundle())
        };
        Server::of(vec![source("tiny"), source("second")], change)
    }

    pub(crate) fn of(sources: Vec<Source>, change: impl FnOnce(&mut ServeOptions, &mut ModelLimits)) -> Server {
        let mut options = ServeOptions::new(([127, 0, 0, 1], 0).into());
        let mut limits = ModelLimits {
            load: LoadOptions {
                context_tokens: 32_768,
                threads: Some(1),
                ..LoadOptions::default()
            },
            scheduler: SchedulerLimits {
                kv_tokens: Some(65_536),
                ..SchedulerLimits::default()
            },
            ..ModelLimits::default()
        };
        change(&mut options, &mut limits);
        let (sender, receiver) = std::sync::mpsc::channel();
        let stop: &'static Notify = Box::leak(Box::default());
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_multi_thread()
                .worker_threads(1)
                .enable_all()
                .build()
                .unwrap();
            let models = Models::new(sources, limits);
            let listening = |address| sender.send(address).unwrap();
            let stopped = async || stop.notified().await;
            runtime
                .block_on(serve(models, options, Vec::new(), listening, stopped))
                .unwrap();
        });
        Server {
            address: receiver.recv().unwrap(),
            stop,
            thread: Some(thread),
        }
    }

    /// Tells the server to stop.
    pub(crate) fn stop(&self) {
        self.stop.notify_one();
    }

    /// Waits until it has stopped.
    pub(crate) fn join(&mut self) {
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }

    pub(crate) fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Reply {
        let mut text = format!(
            "{method} {path} HTTP/1.1\r\nconnection: close\r\ncontent-length: {}\r\n",
            body.len()
        );
        if !headers.iter().any(|(name, _)| *name == "host") {
            text.push_str(&format!("host: {}\r\n", self.address));
        }
        for (name, value) in headers {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        let Ok(mut stream) = TcpStream::connect(self.address) else {
            return Reply {
                status: 0,
                headers: Vec::new(),
                body: String::new(),
            };
        };
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream.write_all(format!("{text}\r\n").as_bytes()).unwrap();
        // A server that answers early may close before all is sent.
        let _ = stream.write_all(body);
        Reply::read(stream)
    }

    pub(crate) fn get(&self, path: &str) -> Reply {
        self.send("GET", path, &[], b"")
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Reply {
        self.send("POST", path, &[], body.to_string().as_bytes())
    }

    /// Begins a request; the answer is read by the caller, or not at all.
    pub(crate) fn open(&self, path: &str, body: &Value) -> TcpStream {
        self.begin(TcpStream::connect(self.address).unwrap(), path, body)
    }

    /// As [`Server::open`], on a connection that is there.
    pub(crate) fn begin(&self, mut stream: TcpStream, path: &str, body: &Value) -> TcpStream {
        let body = body.to_string();
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: {}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
            self.address,
            body.len()
        );
        stream.write_all(head.as_bytes()).unwrap();
        stream
    }

    /// A connection with little room for what is not read.
    #[cfg(unix)]
    pub(crate) fn narrow(&self) -> TcpStream {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        socket.set_recv_buffer_size(2048).unwrap();
        // The other end keeps some segments, which are large on this machine's own network.
        socket.set_tcp_mss(536).unwrap();
        socket.connect(&self.address.into()).unwrap();
        socket.into()
    }

    /// A figure of `/metrics`, summed over its labels.
    pub(crate) fn metric(&self, name: &str) -> f64 {
        let reply = self.get("/metrics");
        let lines = reply
            .body
            .lines()
            .filter(|line| line.starts_with(&format!("cactus_{name}{{")));
        lines
            .map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap())
            .sum()
    }

    /// Waits until `holds`.
    pub(crate) fn wait(&self, what: &str, holds: impl Fn(&Server) -> bool) {
        for _ in 0..600 {
            if holds(self) {
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        panic!("{what}, even after half a minute");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Once for the stop, and once for not waiting.
        self.stop.notify_one();
        std::thread::sleep(Duration::from_millis(1));
        self.stop.notify_one();
    }
}

#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Reply {
    pub(crate) fn read(stream: TcpStream) -> Reply {
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        // Nothing at all from a server that has just stopped.
        let status = line.split(' ').nth(1).unwrap_or("0").parse().unwrap();
        let mut headers = Vec::new();
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).unwrap();
            let Some((name, value)) = line.trim_end().split_once(':') else {
                break;
            };
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        let mut body = Vec::new();
        if headers
            .iter()
            .any(|(name, value)| name == "transfer-encoding" && value == "chunked")
        {
            loop {
                let mut size = String::new();
                reader.read_line(&mut size).unwrap();
                let size = usize::from_str_radix(size.trim(), 16).unwrap();
                let mut piece = vec![0; size + 2];
                reader.read_exact(&mut piece).unwrap();
                if size == 0 {
                    break;
                }
                body.extend_from_slice(&piece[..size]);
            }
        } else {
            reader.read_to_end(&mut body).unwrap();
        }
        Reply {
            status,
            headers,
            body: String::from_utf8(body).unwrap(),
        }
    }

    /// What is left of a stream whose beginning was read, as it is on the wire.
    pub(crate) fn read_rest(mut stream: TcpStream) -> String {
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).unwrap();
        String::from_utf8_lossy(&rest).into_owned()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, value)| value.as_str())
    }

    /// The body of an answer that went well.
    pub(crate) fn json(&self) -> Value {
        assert_eq!(self.status, 200, "{}", self.body);
        serde_json::from_str(&self.body).unwrap()
    }

    pub(crate) fn error(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.body);
        serde_json::from_str(&self.body).unwrap()
    }

    /// The events of a stream.
    pub(crate) fn events(&self) -> Vec<Frame> {
        assert_eq!(self.status, 200, "{}", self.body);
        assert_eq!(self.header("content-type"), Some("text/event-stream; charset=utf-8"));
        assert_eq!(self.header("x-accel-buffering"), Some("no"));
        assert_eq!(self.header("cache-control"), Some("no-cache"));
        let parts = self
            .body
            .split("\n\n")
            .filter(|part| !part.is_empty() && !part.starts_with(':'));
        parts
            .map(|part| {
                let mut frame = Frame::data(&json!(null));
                for line in part.lines() {
                    match line.split_once(": ") {
                        Some(("event", name)) => frame.name = Some(name.to_owned().leak()),
                        Some(("data", data)) => frame.data = data.to_owned(),
                        _ => panic!("{line}"),
                    }
                }
                frame
            })
            .collect()
    }

    /// The lines of a stream.
    pub(crate) fn lines(&self) -> Vec<Frame> {
        assert_eq!(self.status, 200, "{}", self.body);
        assert_eq!(self.header("content-type"), Some("application/x-ndjson"));
        let line = |line: &str| Frame {
            name: None,
            data: line.to_owned(),
        };
        self.body.lines().map(line).collect()
    }
}
