//! `hearing.json`.

use super::assert_fields;
use cactus_bundle::{
    Chunks, Edges, FrontEnd, HEARING_PATH, HEARING_VERSION, Hearing, LogMel, Logarithm, MelScale, Normalization,
    SoundMarks, Spectrum, WindowFunction,
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
            spectrum: Spectrum::Magnitude,
            mels: 128,
            mel_scale: MelScale::Htk,
            min_hz: 0.0,
            max_hz: 8000.0,
            log: Logarithm::LnGuard { guard: 1e-3 },
            normalization: Normalization::None {},
        }),
        most_samples: 480_000,
        block_frames: 48,
        row_frames: 4,
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
    let hearing = hearing();
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
        ..hearing()
    };
    let json = serde_json::to_value(chunks(0)).unwrap();
    assert_eq!(json["front_end"]["kind"], "chunks");
    for (samples, rows) in [(0, 0), (1, 1), (640, 1), (641, 2), (480_000, 750)] {
        assert_eq!(chunks(0).rows(samples), rows, "{samples}");
    }
}
