//! What live text takes: `cargo run --release -p cactus-speech --example live BUNDLE VAD RECORDING… [OPTION=VALUE…]`.
//!
//! A recording is pushed chunk by chunk. Each event is printed as a line of JSON with `took_s`, the processor seconds of this thread from the
//! chunk to the event. So nothing has to be played, and a busy machine counts little. The last line of each recording has all of them,
//! `spent_s`. `benches/live.py` makes lags of this. One thread, and Linux alone.
#![allow(clippy::print_stdout, reason = "what it measures goes to stdout")]

use cactus_audio::decode::{Limits, load};
use cactus_engine::CancelToken;
use cactus_speech::{Commit, Stream, StreamEvent, StreamOptions, Transcriber, Vad, milliseconds};
use serde_json::{Value, json};
use std::error::Error;
use std::fs::File;
use std::path::Path;

/// Seconds for which this thread has had a processor.
fn processor_s() -> f64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanoseconds = stat.split(' ').next().and_then(|n| n.parse::<f64>().ok());
    nanoseconds.unwrap_or(f64::NAN) / 1e9
}

fn options(named: &[&String]) -> Result<StreamOptions, Box<dyn Error>> {
    let mut options = StreamOptions::default();
    for option in named {
        let (name, value) = option.split_once('=').ok_or("expected OPTION=VALUE")?;
        match name {
            "step_ms" => options.step_ms = value.parse()?,
            "silence_ms" => options.silence_ms = value.parse()?,
            "sentence_ms" => options.sentence_ms = value.parse()?,
            "margin_ms" => options.margin_ms = Some(value.parse()?),
            "words" => options.transcribe.words = value.parse()?,
            "language" => options.transcribe.language = Some(value.to_owned()),
            "commit" if value == "attention" => options.commit = Commit::Attention,
            "commit" if value == "agreement" => options.commit = Commit::Agreement,
            _ => return Err(format!("`{option}` is no option").into()),
        }
    }
    Ok(options)
}

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [bundle, detector, rest @ ..] = &args[..] else {
        return Err("expected a bundle, one that finds speech, and recordings".into());
    };
    let (named, recordings): (Vec<&String>, Vec<&String>) = rest.iter().partition(|arg| arg.contains('='));
    let mut transcriber = Transcriber::load(Path::new(bundle), Some(1))?;
    let detector = Vad::load(Path::new(detector), 1)?;
    for recording in recordings {
        let stream = Stream::new(&mut transcriber, detector.another()?, options(&named)?)?;
        listen(&mut transcriber, stream, detector.chunk_samples(), Path::new(recording))?;
    }
    Ok(())
}

fn listen(
    transcriber: &mut Transcriber,
    mut stream: Stream,
    chunk: usize,
    recording: &Path,
) -> Result<(), Box<dyn Error>> {
    let rate = transcriber.sample_rate_hz();
    let samples = load(File::open(recording)?, rate, Limits::default())?;
    let (cancel, begun) = (CancelToken::new(), processor_s());
    for part in samples.chunks(chunk).map(Some).chain([None]) {
        let before = processor_s();
        let mut each = |event: StreamEvent| {
            let mut told = json!(event);
            told["took_s"] = Value::from(milliseconds(processor_s() - before));
            println!("{told}");
        };
        match part {
            Some(part) => stream.push(transcriber, part, &cancel, &mut each)?,
            None => stream.finish(transcriber, &cancel, &mut each)?,
        }
    }
    let spent_s = processor_s() - begun;
    println!("{}", json!({"event": "end", "spent_s": spent_s}));
    Ok(())
}
