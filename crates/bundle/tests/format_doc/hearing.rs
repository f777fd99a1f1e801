//! `hearing.json`.

use super::assert_fields;
use cactus_bundle::{
    Chunks, Edges, Emphasis, FrontEnd, HEARING_PATH, HEARING_VERSION, Hearing, LogMel, Logarithm, MelScale,
    Normalization, SoundMarks, Spectrum, WindowFunction,
};
use serde_json::{Value, json};

fn hearing() -> Hearing {
    Hearing {
        version: HEARING_VERSION,
        front_end: FrontEnd::LogMel(LogMel {
            sample_rate_hz: 16_000,
            window: WindowFunction::HannPeriodic,
            window_samples: 320,
            fft_samples: 512,
            hop_samples: 160,
            edges: Edges::Zeros,
            drop_last_frame: true,
            preemphasis: 0.0,
            emphasis: Emphasis::Window,
            spectrum: Spectrum::Magnitude,
            mels: 128,
            mel_scale: MelScale::Htk,
            min_hz: 0.0,
            max_hz: 8000.0,
            log: Logarithm::LnGuard { guard: 1e-3 },
            normalization: Normalization::None {},
        }),
        most_samples: 480_000,
        whole_samples: 2,
        block_frames: 48,
        row_frames: 4,
        all_rows: Some(750),
        marks: SoundMarks {
            token: "<s>".into(),
            start: "<".into(),
            end: ">".into(),
        },
    }
}

#[test]
fn fields_are_those_of_the_page() {
    let hearing = hearing();
    assert_eq!(HEARING_PATH, "hearing.json");
    assert_fields("hearing", &hearing);
    let json = serde_json::to_value(&hearing).unwrap();
    assert_eq!(serde_json::from_value::<Hearing>(json.clone()).unwrap(), hearing);
    assert_eq!(json["front_end"]["normalization"], json!({"kind": "none"}));
    // What a newer program may write is refused, at every level.
    for at in ["", "/front_end", "/front_end/log", "/front_end/normalization", "/marks"] {
        let mut json = json.clone();
        json.pointer_mut(at).unwrap()["newer"] = Value::from(1);
        assert!(serde_json::from_value::<Hearing>(json).is_err(), "{at}");
    }
}

#[test]
fn frames_and_rows_are_those_of_whole_windows() {
    let mut hearing = hearing();
    (hearing.whole_samples, hearing.all_rows) = (1, None);
    for (samples, frames, rows) in [
        (0, 0, 0),
        (160, 0, 0),
        (161, 1, 1),
        (320, 1, 1),
        (321, 2, 1),
        (8_000, 49, 13),
        (480_000, 2999, 750),
    ] {
        assert_eq!(
            (hearing.frames(samples), hearing.rows(samples)),
            (frames, rows),
            "{samples}"
        );
    }
}

/// The front end of Gemma 3n: windows within the sound, which zeros make longer, and as many rows for every sound.
#[test]
fn windows_within_a_sound_and_rows_that_are_always_as_many() {
    let mut hearing = hearing();
    let FrontEnd::LogMel(mel) = &mut hearing.front_end else {
        panic!("a spectrogram")
    };
    (mel.edges, mel.window_samples, mel.fft_samples) = (Edges::None, 512, 1024);
    (hearing.whole_samples, hearing.row_frames, hearing.all_rows) = (128, 16, Some(188));
    for (samples, frames, rows) in [
        (0, 0, 0),
        (512, 0, 0),
        (513, 1, 188),
        (640, 1, 188),
        (768, 2, 188),
        (16_000, 97, 188),
        (480_000, 2997, 188),
    ] {
        assert_eq!(
            (hearing.frames(samples), hearing.rows(samples)),
            (frames, rows),
            "{samples}"
        );
    }
}

#[test]
fn frames_may_be_samples() {
    let chunks = |context_samples| Hearing {
        front_end: FrontEnd::Chunks(Chunks {
            sample_rate_hz: 16_000,
            chunk_samples: 640,
            context_samples,
        }),
        block_frames: 1,
        row_frames: 1,
        whole_samples: 1,
        all_rows: None,
        ..hearing()
    };
    let json = serde_json::to_value(chunks(0)).unwrap();
    assert_eq!(json["front_end"]["kind"], "chunks");
    for (samples, rows) in [(0, 0), (1, 1), (640, 1), (641, 2), (480_000, 750)] {
        assert_eq!(chunks(0).rows(samples), rows, "{samples}");
    }
}
