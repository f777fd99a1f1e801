//! What a cloud sends back: server-sent events and the protocols inside them.

use cactus_cloud::codec::Decoder;
use cactus_cloud::{Base, Event, Message, Protocol, Reply, Request, Role, SseReader, Target};

const TARGETS: [(Protocol, &str); 6] = [
    (Protocol::OpenAiChat, "https://api.openai.com"),
    (Protocol::OpenAiChat, "https://api.deepseek.com"),
    (Protocol::OpenAiChat, "https://openrouter.ai"),
    (Protocol::OpenAiResponses, "https://api.openai.com"),
    (Protocol::Anthropic, "https://api.anthropic.com"),
    (Protocol::Gemini, "https://generativelanguage.googleapis.com"),
];

/// A stream, after a byte that picks the target. However it is cut, the events are the same; an answer that is whole adds up to
/// a message with nothing open. The same bytes are read as an answer that is no stream.
pub(crate) fn cloud_stream(data: &[u8]) -> bool {
    let Some((pick, bytes)) = data.split_first() else {
        return false;
    };
    let (protocol, base) = TARGETS[usize::from(*pick) % TARGETS.len()];
    let base = Base::parse(base, false).expect("they are addresses");
    let target = Target::new("t", protocol, base, "m");
    let request = Request::new(vec![Message::text(Role::User, "hi")], 9);
    let whole = read(&target, &request, bytes, bytes.len().max(1));
    for size in [1, 7] {
        assert_eq!(whole, read(&target, &request, bytes, size), "cut in pieces of {size}");
    }
    let mut events = Vec::new();
    let is_answer = Decoder::new(&target, &request).whole(bytes, &mut events).is_ok();
    add_up(&events, is_answer);
    add_up(&whole.0, whole.1);
    whole.1 || is_answer
}

fn read(target: &Target, request: &Request, bytes: &[u8], size: usize) -> (Vec<Event>, bool) {
    let mut reader = SseReader::new(1 << 16, 1 << 18);
    let mut decoder = Decoder::new(target, request);
    let mut events = Vec::new();
    for piece in bytes.chunks(size) {
        let mut frames = Vec::new();
        let fed = reader.feed(piece, &mut frames);
        for frame in &frames {
            if decoder.event(frame, &mut events).is_err() {
                return (events, false);
            }
        }
        if fed.is_err() {
            return (events, false);
        }
    }
    let whole = decoder.end(&mut events).is_ok();
    (events, whole)
}

fn add_up(events: &[Event], whole: bool) {
    let mut reply = Reply::default();
    for event in events {
        reply.add(event).unwrap_or_else(|e| panic!("{e}: {event:?}"));
    }
    assert_eq!(
        reply.reason.is_some(),
        whole,
        "an answer is whole if and only if it says how it ended"
    );
}

/// One stream for each target, and answers that are no streams.
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    macro_rules! fixture {
        ($pick:literal, $name:literal) => {
            [
                &[$pick][..],
                include_bytes!(concat!("../../cloud/tests/fixtures/", $name)),
            ]
            .concat()
        };
    }
    vec![
        fixture!(0, "chat.sse"),
        fixture!(1, "deepseek.sse"),
        fixture!(2, "openrouter.sse"),
        fixture!(3, "responses.sse"),
        fixture!(4, "anthropic.sse"),
        fixture!(5, "gemini.sse"),
        fixture!(0, "chat.json"),
        fixture!(3, "responses.json"),
        fixture!(4, "anthropic.json"),
        fixture!(5, "gemini.json"),
    ]
}
