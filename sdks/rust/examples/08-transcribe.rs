//! What is said in a recording, and while somebody speaks.
//!
//!     cargo run -p cactus-conformance --example 08-transcribe MODEL SOUND [VAD]
#![allow(clippy::print_stdout, reason = "it is an example")]

use cactus::CancelToken;
use cactus_audio::decode::{Limits, Recording};
use cactus_speech::{Stream, StreamOptions, TranscribeOptions, Transcriber, Vad};
use std::path::Path;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("the folder of a model is missing")?;
    let file = arguments.next().ok_or("the file of a recording is missing")?;
    let mut transcriber = Transcriber::load(Path::new(&path), None)?;
    let options = TranscribeOptions {
        language: Some("en".to_owned()),
        ..TranscribeOptions::default()
    };
    let cancel = CancelToken::new();
    let rate_hz = transcriber.sample_rate_hz();
    let mut sound = Recording::open(Path::new(&file), rate_hz, Limits::default())?;
    let transcript = transcriber.transcribe_sound(&mut sound, &options, &cancel, &mut |_| {})?;
    for segment in &transcript.segments {
        println!("{:.2} {:.2} {}", segment.start_s, segment.end_s, segment.text);
    }

    let Some(vad) = arguments.next() else { return Ok(()) };
    let live = StreamOptions {
        transcribe: options,
        most_s: Some(1.0),
        ..StreamOptions::default()
    };
    let mut stream = Stream::new(&mut transcriber, Vad::load(Path::new(&vad), 1)?, live)?;
    // Here the microphone is silent.
    for _ in 0..10 {
        let tenth_of_a_second = vec![0.0; rate_hz as usize / 10];
        stream.push(&mut transcriber, &tenth_of_a_second, &cancel, &mut |event| {
            println!("{event:?}")
        })?;
    }
    stream.finish(&mut transcriber, &cancel, &mut |event| println!("{event:?}"))?;
    Ok(())
}
