//! Realtime transcription over a WebSocket: what is said, who is refused, limits, and those who leave. The models are a tiny Whisper of
//! random weights, and a detector that hears one tone.

use crate::support::Server;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cactus_engine::CancelToken;
use cactus_import::{ConvertOptions, convert};
use cactus_serve::ServeOptions;
use cactus_serve::models::Source;
use cactus_serve::router::hybrid::policy::Policy;
use cactus_serve::router::setup::Configured;
use cactus_serve::router::{Keys, Router};
use cactus_speech::{Stream, StreamEvent, StreamOptions, TranscribeOptions, Transcriber, Vad};
use cactus_testkit::http::{After, json_answer};
use cactus_testkit::tone;
use serde_json::{Value, json};
use std::io::Write as _;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;
use tungstenite::client::IntoClientRequest as _;
use tungstenite::{Message, WebSocket};

/// Bundles that hear and that find speech.
fn bundles() -> &'static [PathBuf; 2] {
    static MADE: OnceLock<(tempfile::TempDir, [PathBuf; 2])> = OnceLock::new();
    let (_, paths) = MADE.get_or_init(|| {
        let dir = tempfile::tempdir().unwrap();
        let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden/speech/whisper");
        let detector = tone::write_detector(dir.path()).unwrap();
        let paths = [("whisper", golden), ("vad", detector)].map(|(name, source)| {
            let path = dir.path().join(name);
            convert(&source, &path, &ConvertOptions::default(), &mut |_, _| {}).unwrap();
            path
        });
        (dir, paths)
    });
    paths
}

fn serving(count: usize, change: impl FnOnce(&mut ServeOptions)) -> Server {
    let sources = bundles()[..count].iter().map(|path| Source::folder(path)).collect();
    Server::of(sources, |options, _| change(options))
}

/// A client that speaks a protocol it did not write.
struct Client(WebSocket<TcpStream>);

impl Client {
    fn refused(server: &Server, query: &str, headers: &[(&'static str, &str)]) -> Result<Client, u16> {
        Client::over(TcpStream::connect(server.address).unwrap(), server, query, headers)
    }

    fn over(stream: TcpStream, server: &Server, query: &str, headers: &[(&'static str, &str)]) -> Result<Client, u16> {
        let url = format!("ws://{}/v1/realtime{query}", server.address);
        let mut request = url.into_client_request().unwrap();
        for (name, value) in headers {
            request.headers_mut().insert(*name, value.parse().unwrap());
        }
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        match tungstenite::client(request, stream) {
            Ok((socket, _)) => Ok(Client(socket)),
            Err(tungstenite::HandshakeError::Failure(tungstenite::Error::Http(response))) => {
                Err(response.status().as_u16())
            }
            Err(other) => panic!("{other}"),
        }
    }

    /// A session that has begun, and what it is set to.
    fn open(server: &Server) -> (Client, Value) {
        let mut client = Client::refused(server, "?intent=transcription", &[]).unwrap();
        let mut created = client.next();
        assert_eq!(created["type"], "session.created", "{created}");
        (client, created["session"].take())
    }

    fn send(&mut self, event: &Value) {
        self.0.send(Message::text(event.to_string())).unwrap();
    }

    fn append(&mut self, samples: &[i16]) {
        let bytes: Vec<u8> = samples.iter().flat_map(|x| x.to_le_bytes()).collect();
        self.send(&json!({"type": "input_audio_buffer.append", "audio": STANDARD.encode(bytes)}));
    }

    fn commit(&mut self) {
        self.send(&json!({"type": "input_audio_buffer.commit"}));
    }

    /// Changes the session, which has to go well.
    fn update(&mut self, input: &Value) -> Value {
        self.send(&json!({"type": "session.update", "session": {"type": "transcription", "audio": {"input": input}}}));
        let mut updated = self.next();
        assert_eq!(updated["type"], "session.updated", "{updated}");
        updated["session"].take()
    }

    /// The next event; null where the session is over.
    fn next(&mut self) -> Value {
        loop {
            match self.0.read() {
                Ok(Message::Text(text)) => return serde_json::from_str(&text).unwrap(),
                Ok(Message::Close(_)) | Err(_) => return Value::Null,
                Ok(_) => {}
            }
        }
    }

    /// All events until one of this type.
    fn until(&mut self, kind: &str) -> Vec<Value> {
        let mut events = Vec::new();
        loop {
            let event = self.next();
            assert!(!event.is_null(), "no {kind} after {events:?}");
            events.push(event);
            if events.last().unwrap()["type"] == kind {
                return events;
            }
        }
    }

    fn error(&mut self, event: &Value) -> Value {
        self.send(event);
        let mut told = self.next();
        assert_eq!(told["type"], "error", "{event}: {told}");
        told["error"].take()
    }
}

const COMPLETED: &str = "conversation.item.input_audio_transcription.completed";
const DELTA: &str = "conversation.item.input_audio_transcription.delta";

fn samples(parts: &[(f64, f64)]) -> Vec<i16> {
    let sound = tone::sound(parts);
    sound.iter().map(|x| (x * 32768.0) as i16).collect()
}

fn floats(samples: &[i16]) -> Vec<f32> {
    samples.iter().map(|&x| f32::from(x) / 32768.0).collect()
}

fn vad(silence_ms: u32) -> Value {
    json!({"type": "server_vad", "threshold": 0.5, "prefix_padding_ms": 400, "silence_duration_ms": silence_ms})
}

#[test]
fn phrases_are_those_of_the_engine() {
    let server = serving(2, |_| {});
    let sound = samples(&[(0.5, 0.6), (0.6, 0.7), (0.6, 0.05), (0.6, 0.5)]);
    let mut transcriber = Transcriber::load(&bundles()[0], Some(1)).unwrap();
    let options = StreamOptions {
        transcribe: TranscribeOptions {
            language: Some("zh".to_owned()),
            ..TranscribeOptions::default()
        },
        silence_ms: 200,
        ..StreamOptions::default()
    };
    let mut stream = Stream::new(&mut transcriber, Vad::load(&bundles()[1], 1).unwrap(), options).unwrap();
    let (cancel, mut want) = (CancelToken::new(), Vec::new());
    stream
        .push(&mut transcriber, &floats(&sound), &cancel, &mut |e| want.push(e))
        .unwrap();
    stream.finish(&mut transcriber, &cancel, &mut |e| want.push(e)).unwrap();
    let times = |kind: fn(&StreamEvent) -> Option<f64>| -> Vec<u64> {
        want.iter()
            .filter_map(kind)
            .map(|s| (s * 1000.0).round() as u64)
            .collect()
    };
    let starts = times(|event| match event {
        StreamEvent::SpeechStart { start_s, .. } => Some(*start_s),
        _ => None,
    });
    let ends = times(|event| match event {
        StreamEvent::SpeechEnd { end_s, .. } => Some(*end_s),
        _ => None,
    });
    let mut texts = vec![String::new(); starts.len()];
    for event in &want {
        if let StreamEvent::Final { segment, .. } = event {
            texts[segment.id] = segment.text.trim_start().to_owned();
        }
    }
    assert!(texts.iter().filter(|text| !text.is_empty()).count() >= 2, "{texts:?}");

    for size in [320, 4000, sound.len()] {
        let (mut client, session) = Client::open(&server);
        assert_eq!(session["audio"]["input"]["turn_detection"]["type"], "server_vad");
        assert_eq!(session["audio"]["input"]["format"]["rate"], 24_000);
        let set = client.update(&json!({
            "format": {"type": "audio/pcm", "rate": 16_000},
            "transcription": {"model": "whisper", "language": "zh"},
            "turn_detection": vad(200),
        }));
        assert_eq!(set["audio"]["input"]["transcription"]["language"], "zh");
        // All of it is sent before anything is read.
        for piece in sound.chunks(size) {
            client.append(piece);
        }
        client.commit();
        let (mut found, mut begun, mut ended, mut before) = (Vec::new(), Vec::new(), Vec::new(), Value::Null);
        let mut deltas = String::new();
        while found.len() < texts.len() {
            let event = client.next();
            match event["type"].as_str().unwrap() {
                "input_audio_buffer.speech_started" => {
                    begun.push(event["audio_start_ms"].as_u64().unwrap());
                    deltas.clear();
                }
                "input_audio_buffer.speech_stopped" => ended.push(event["audio_end_ms"].as_u64().unwrap()),
                "input_audio_buffer.committed" => {
                    assert_eq!(event["previous_item_id"], before);
                    before = event["item_id"].clone();
                }
                DELTA => deltas.push_str(event["delta"].as_str().unwrap()),
                COMPLETED => {
                    assert_eq!(event["item_id"], before);
                    assert_eq!(event["transcript"], deltas);
                    assert!(event["usage"]["seconds"].as_f64() > Some(0.0), "{event}");
                    found.push(event["transcript"].as_str().unwrap().to_owned());
                }
                other => panic!("{other}"),
            }
        }
        assert_eq!((&found, &begun, &ended), (&texts, &starts, &ends), "pieces of {size}");
    }
    assert!(server.metric("audio_seconds_total") > 0.0);
}

#[test]
fn items_that_a_target_hears_again_are_revised_after_they_were_told() {
    let answer = Arc::new(Mutex::new(Value::Null));
    let said = Arc::clone(&answer);
    let target = cactus_testkit::http::Server::new(move |_, stream| {
        let bytes = json_answer("200 OK", &said.lock().unwrap());
        // Who has gone away needs no answer.
        let _ = stream.write_all(&bytes);
        After::Close
    });
    let policy = format!(
        "version = 1\nhandoff = \"always\"\n[consent]\naudio = \"ask\"\n[targets.ear]\nprotocol = \"openai_transcriptions\"\n\
         base_url = \"http://127.0.0.1:{}/v1\"\nmodel = \"m\"\nusd_per_minute = 0\n",
        target.port()
    );
    let configured = Configured {
        policy: Policy::from_toml(&policy).unwrap(),
        ..Configured::default()
    };
    let folder = tempfile::tempdir().unwrap();
    let router = Router::new(configured, folder.path(), &Keys::new(folder.path().join("keys"))).unwrap();
    let server = serving(2, |options| options.router = Some(Arc::new(router)));
    let completed = |client: &mut Client| {
        client.update(
            &json!({"format": {"rate": 16_000}, "transcription": {"language": "de"}, "turn_detection": vad(200)}),
        );
        client.append(&samples(&[(0.5, 0.6), (0.6, 0.0)]));
        client.until(COMPLETED).pop().unwrap()
    };
    let open = |headers: &[(&'static str, &str)]| {
        let mut client = Client::refused(&server, "?intent=transcription&model=auto", headers).unwrap();
        assert_eq!(client.next()["type"], "session.created");
        client
    };
    let alone = completed(&mut open(&[]));
    assert_eq!(target.asked(), 0, "nothing leaves without a yes");
    let text = alone["transcript"].as_str().unwrap();
    // The target hears other words, as many and as long.
    let words = text.split_whitespace().map(|word| "x".repeat(word.chars().count()));
    *answer.lock().unwrap() = json!({"text": words.collect::<Vec<_>>().join(" ")});
    let mut client = open(&[("x-cactus-consent", "audio")]);
    let told = completed(&mut client);
    assert_eq!(told["transcript"], text, "it waits for nobody");
    let revised = client.until("cactus.input_audio_transcription.revised").pop().unwrap();
    assert_eq!(revised["item_id"], told["item_id"]);
    assert!(revised["transcript"].as_str().unwrap().contains('x'), "{revised}");
    assert_eq!(revised["cactus"]["answered_by"], "ear");
    assert_eq!(revised["cactus"]["revision"], 1);
    // A phrase may be heard again in pieces. As many are asked of the same phrase, so the one without a yes had none.
    let asked = target.asked();
    let mut again = open(&[("x-cactus-consent", "audio")]);
    completed(&mut again);
    again.until("cactus.input_audio_transcription.revised");
    assert_eq!(target.asked(), 2 * asked, "nothing left without a yes");
}

#[test]
fn without_a_detector_the_client_says_where_something_ends() {
    let server = serving(1, |_| {});
    let sound = samples(&[(0.1, 2.0)]);
    let mut transcriber = Transcriber::load(&bundles()[0], Some(1)).unwrap();
    let options = TranscribeOptions {
        language: Some("de".to_owned()),
        ..TranscribeOptions::default()
    };
    let want = transcriber
        .transcribe(&floats(&sound), &options, &CancelToken::new(), &mut |_| {})
        .unwrap();
    let want: String = want.segments.iter().map(|segment| segment.text.as_str()).collect();
    let (mut client, session) = Client::open(&server);
    assert_eq!(session["audio"]["input"]["turn_detection"], Value::Null);
    let wanted = json!({"type": "session.update", "session": {"audio": {"input": {"turn_detection": vad(200)}}}});
    assert_eq!(client.error(&wanted)["param"], "session.audio.input.turn_detection");
    client.update(&json!({"format": {"rate": 16_000}, "transcription": {"language": "german"}}));
    for _ in 0..2 {
        for piece in sound.chunks(1600) {
            client.append(piece);
        }
        client.commit();
        let events = client.until(COMPLETED);
        assert_eq!(events[0]["type"], "input_audio_buffer.committed");
        let deltas = events.iter().filter(|event| event["type"] == DELTA);
        let deltas: String = deltas.map(|event| event["delta"].as_str().unwrap()).collect();
        let completed = events.last().unwrap();
        assert_eq!(completed["transcript"], want.trim_start());
        assert_eq!(completed["transcript"], deltas);
        assert_eq!(completed["languages"], json!([{"code": "de"}]));
    }
    // At OpenAI's rate it is the same sound, resampled.
    client.append(&sound);
    client.send(&json!({"type": "input_audio_buffer.clear"}));
    assert_eq!(client.next()["type"], "input_audio_buffer.cleared");
    client.update(&json!({"format": {"type": "audio/pcm", "rate": 24_000}}));
    let twice: Vec<i16> = sound.iter().flat_map(|&x| [x, x, x]).step_by(2).collect();
    client.append(&twice);
    client.commit();
    assert!(
        client.until(COMPLETED).last().unwrap()["usage"]["seconds"]
            .as_f64()
            .unwrap()
            - 2.1
            < 0.01
    );
}

#[test]
fn wrong_events_are_answered_and_the_session_goes_on() {
    let server = serving(2, |_| {});
    let (mut client, _) = Client::open(&server);
    let set =
        |input: Value| json!({"type": "session.update", "event_id": "mine", "session": {"audio": {"input": input}}});
    for (event, param) in [
        (json!([]), Value::Null),
        (json!({"type": "response.create"}), json!("type")),
        (
            json!({"type": "input_audio_buffer.append", "audio": "%"}),
            json!("audio"),
        ),
        (
            set(json!({"format": {"rate": 1}})),
            json!("session.audio.input.format.rate"),
        ),
        (set(json!({"transcription": {"model": "nobody"}})), json!("model")),
        (set(json!({"transcription": {"model": "vad"}})), json!("model")),
        (set(json!({"transcription": {"language": "xx"}})), Value::Null),
    ] {
        let error = client.error(&event);
        assert_eq!(error["param"], param, "{event}: {error}");
        assert_eq!(error.get("event_id"), event.get("event_id"));
        assert!(!error["message"].as_str().unwrap().is_empty());
    }
    let empty = client.error(&json!({"type": "input_audio_buffer.commit"}));
    assert_eq!(empty["code"], "input_audio_buffer_commit_empty");
    client.0.send(Message::binary(vec![0; 100])).unwrap();
    assert_eq!(client.next()["type"], "error");
    // It hears as if nothing had been.
    client.update(&json!({"format": {"rate": 16_000}, "turn_detection": vad(200)}));
    client.append(&samples(&[(0.5, 0.3), (0.5, 0.0)]));
    client.until(COMPLETED);
    // More than a message may have ends it.
    let _ = client.0.send(Message::text(" ".repeat((1 << 20) + 1)));
    assert_eq!(client.next(), Value::Null);
}

#[test]
fn sessions_need_a_key_a_place_and_somebody_who_sends() {
    let server = serving(2, |options| {
        options.keys = vec!["sesame".to_owned()];
        options.recordings = 1;
        options.idle_session = Duration::from_secs(1);
    });
    let key = ("authorization", "Bearer sesame");
    let refused = |query: &str, headers: &[(&'static str, &str)]| Client::refused(&server, query, headers).err();
    assert_eq!(refused("", &[]), Some(401));
    assert_eq!(refused("", &[("authorization", "Bearer melon")]), Some(401));
    assert_eq!(refused("", &[key, ("origin", "http://evil.example")]), Some(403));
    assert_eq!(refused("", &[key, ("host", "evil.example")]), Some(403));
    assert_eq!(refused("?intent=conversation", &[key]), Some(400));
    assert_eq!(refused("?model=nobody", &[key]), Some(404));
    let plain = server.send("GET", "/v1/realtime", &[key], b"");
    assert_eq!(plain.status, 400, "{}", plain.body);

    let browser = ("sec-websocket-protocol", "realtime, openai-insecure-api-key.sesame");
    let mut client = Client::refused(&server, "?model=whisper", &[browser]).unwrap();
    assert_eq!(client.next()["type"], "session.created");
    assert_eq!(refused("", &[key]), Some(429), "one place");
    let idle = client.next();
    assert_eq!(idle["error"]["code"], "session_idle", "{idle}");
    assert!(client.next().is_null());
    // Its place is free, and so is that of one who just leaves in the middle of a frame.
    let taken = || {
        (0..200).find_map(|_| {
            std::thread::sleep(Duration::from_millis(50));
            Client::refused(&server, "", &[key]).ok()
        })
    };
    let mut client = taken().unwrap();
    client.append(&samples(&[(0.2, 1.0)]));
    std::io::Write::write_all(client.0.get_mut(), &[0x81, 0xFE, 0x10]).unwrap();
    drop(client);
    taken().unwrap();
}

#[cfg(unix)]
#[test]
fn who_does_not_read_events_is_let_go() {
    let server = serving(2, |options| {
        options.recordings = 1;
        options.ping = Duration::from_millis(300);
    });
    let mut silent = Client::over(server.narrow(), &server, "", &[]).unwrap();
    assert_eq!(silent.next()["type"], "session.created");
    silent
        .0
        .get_ref()
        .set_write_timeout(Some(Duration::from_secs(1)))
        .unwrap();
    // Each is answered with the whole session, until neither end has room.
    let session = json!({"type": "transcription", "audio": {"input": {}}});
    let update = json!({"type": "session.update", "event_id": "e".repeat(8000), "session": session});
    let sent = (0..20_000).take_while(|_| silent.0.send(Message::text(update.to_string())).is_ok());
    assert!(sent.count() < 20_000, "the server should not read on");
    server.wait("the place stays taken", |server| {
        Client::refused(server, "", &[]).is_ok()
    });
}

#[test]
fn a_session_has_an_end_of_sound_and_a_server_that_stops_makes_the_last_words_final() {
    let mut server = serving(2, |options| options.audio_time = Duration::from_secs(5));
    let (mut client, _) = Client::open(&server);
    client.update(&json!({"format": {"rate": 16_000}, "turn_detection": vad(200)}));
    let (mut other, _) = Client::open(&server);
    for _ in 0..4 {
        other.append(&vec![0; 48_000]);
    }
    assert_eq!(other.until("error").pop().unwrap()["error"]["code"], "session_too_long");
    assert!(other.next().is_null());
    client.append(&samples(&[(0.5, 0.4)]));
    client.until("input_audio_buffer.speech_started");
    server.stop();
    client.until(COMPLETED);
    assert!(client.next().is_null());
    server.join();
}
