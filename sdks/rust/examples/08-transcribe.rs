//! What is said in a recording, and while somebody speaks (feature `speech`).
//!
//!     cargo run -p cactus-conformance --example 08-transcribe MODEL SOUND [VAD]
#![allow(clippy::print_stdout, reason = "it is an example")]

use cactus::speech::{LiveOptions, Sound, StreamOptions, TranscribeOptions, Transcriber};
use std::path::{Path, PathBuf};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("the folder of a model is missing")?;
    let file = arguments.next().ok_or("the file of a recording is missing")?;
    let transcriber = Transcriber::load(Path::new(&path), None)?;
    let options = TranscribeOptions {
        language: Some("en".to_owned()),
        ..TranscribeOptions::default()
    };
    let transcript = transcriber.transcribe(Sound::File(Path::new(&file)), &options)?;
    for segment in &transcript.segments {
        println!("{:.2} {:.2} {}", segment.start_s, segment.end_s, segment.text);
    }

    let Some(vad) = arguments.next() else { return Ok(()) };
    let mut live = transcriber.live(&LiveOptions {
        stream: StreamOptions {
            transcribe: options,
            most_s: Some(1.0),
            ..StreamOptions::default()
        },
        vad: Some(PathBuf::from(vad)),
        ..LiveOptions::default()
    })?;
    // Here the microphone is silent.
    for _ in 0..10 {
        let tenth_of_a_second = [0; 1600];
        let heard = live.push(&tenth_of_a_second)?;
        println!("{}[{}]", heard.confirmed, heard.pending);
    }
    println!("{}", live.finish()?.confirmed);
    Ok(())
}
