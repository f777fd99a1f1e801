//! `speech.json`.

use super::assert_fields;
use cactus_bundle::{
    Chunks, Ctc, Decoding, Edges, Emphasis, FrontEnd, Local, LogMel, Logarithm, MelScale, Normalization, Pieces,
    Prompted, SPEECH_VERSION, Samples, Spectrum, Speech, Streaming, Timestamps, Transducer, Window, WindowFunction,
};
use serde_json::Value;

fn speech() -> Speech {
    Speech {
        version: SPEECH_VERSION,
        front_end: FrontEnd::LogMel(LogMel {
            sample_rate_hz: 16_000,
            window: WindowFunction::HannPeriodic,
            window_samples: 400,
            fft_samples: 400,
            hop_samples: 160,
            edges: Edges::Reflect,
            drop_last_frame: true,
            preemphasis: 0.0,
            emphasis: Emphasis::Window,
            spectrum: Spectrum::Magnitude,
            mels: 80,
            mel_scale: MelScale::Slaney,
            min_hz: 0.0,
            max_hz: 8000.0,
            log: Logarithm::Log10Floor { floor: 1e-10 },
            normalization: Normalization::EachBand { epsilon: 1e-5 },
        }),
        window: Some(Window {
            samples: 480_000,
            frames: 3000,
            positions: 1500,
        }),
        pieces: None,
        local: None,
        streaming: None,
        decoding: Decoding::Prompted(Prompted {
            previous: Some(1),
            no_speech: Some(2),
            no_timestamps: Some(3),
            transcribe: Some(4),
            translate: Some(5),
            timestamps: Some(Timestamps {
                first: 6,
                count: 4,
                step_ms: 20,
            }),
            tokens_per_second: Some(6.5),
            ..Prompted::default()
        }),
    }
}

fn finder() -> Speech {
    Speech {
        version: SPEECH_VERSION,
        front_end: FrontEnd::Chunks(Chunks {
            sample_rate_hz: 16_000,
            chunk_samples: 512,
            context_samples: 64,
        }),
        window: None,
        pieces: None,
        local: None,
        streaming: None,
        decoding: Decoding::Activity {},
    }
}

#[test]
fn fields_of_the_speech_record_are_those_of_the_code() {
    let speech = speech();
    assert_fields("speech", &with_all_fields(&speech));
    let (FrontEnd::LogMel(mel), Decoding::Prompted(prompted)) = (&speech.front_end, &speech.decoding) else {
        panic!("{speech:?}");
    };
    assert_fields("log_mel", mel);
    assert_fields("window", speech.window.as_ref().unwrap());
    assert_fields("prompted", prompted);
    let json = serde_json::to_value(&speech).unwrap();
    assert_eq!(
        (&json["front_end"]["kind"], &json["decoding"]["kind"]),
        (&"log_mel".into(), &"prompted".into())
    );
    assert_eq!(serde_json::from_value::<Speech>(json.clone()).unwrap(), speech);

    // What a newer program may write is refused, at every level.
    for at in [
        "",
        "/front_end",
        "/front_end/log",
        "/window",
        "/decoding",
        "/decoding/timestamps",
    ] {
        let mut changed = json.clone();
        changed.pointer_mut(at).unwrap()["unknown"] = 1.into();
        assert!(serde_json::from_value::<Speech>(changed).is_err(), "{at}");
    }
    for (at, kind) in [
        ("/front_end/kind", "waves"),
        ("/decoding/kind", "beams"),
        ("/front_end/edges", "mirror"),
    ] {
        let mut changed = json.clone();
        *changed.pointer_mut(at).unwrap() = kind.into();
        assert!(serde_json::from_value::<Speech>(changed).is_err(), "{at}");
    }
    // And what cannot be.
    assert_eq!(speech.check(10), Ok(()));
    let finder = finder();
    let FrontEnd::Chunks(chunks) = &finder.front_end else {
        panic!("{finder:?}");
    };
    assert_fields("chunks", chunks);
    let json_of_finder = serde_json::to_value(&finder).unwrap();
    assert_eq!(
        serde_json::from_value::<Speech>(json_of_finder.clone()).unwrap(),
        finder
    );
    assert_eq!(json_of_finder["decoding"], serde_json::json!({"kind": "activity"}));
    let samples = Samples {
        sample_rate_hz: 16_000,
        least_samples: 895,
        most_samples: 480_000,
        position_samples: Some(384),
    };
    assert_fields("samples", &samples);
    let taking = |samples| Speech {
        front_end: FrontEnd::Samples(samples),
        window: None,
        ..speech.clone()
    };
    assert_eq!(taking(samples).check(10), Ok(()));
    assert_fields("streaming", &STREAMING);
    let going_on = |streaming, samples| Speech {
        streaming: Some(streaming),
        ..taking(samples)
    };
    assert_eq!(going_on(STREAMING, samples).check(10), Ok(()));
    let position_samples = None;
    let placeless = Samples {
        position_samples,
        ..samples
    };
    for (streaming, samples, said) in [
        (STREAMING, placeless, "`position_samples`"),
        (
            Streaming {
                block_samples: 383,
                ..STREAMING
            },
            samples,
            "`streaming.block_samples` should be from 384",
        ),
        (
            Streaming {
                block_samples: 1537,
                ..STREAMING
            },
            samples,
            "multiple of `front_end.position_samples`, 384",
        ),
        (
            Streaming {
                late: u32::MAX,
                ..STREAMING
            },
            samples,
            "`streaming.late`",
        ),
        (
            Streaming {
                position_least: 385,
                ..STREAMING
            },
            samples,
            "`streaming.position_least`",
        ),
        (
            Streaming {
                position_least: 0,
                ..STREAMING
            },
            samples,
            "`streaming.position_least`",
        ),
    ] {
        let error = going_on(streaming, samples).check(10).unwrap_err();
        assert!(error.contains(said), "{error}");
    }
    let other = Speech {
        streaming: Some(STREAMING),
        ..speech.clone()
    };
    assert!(other.check(10).unwrap_err().contains("`streaming`"));
    let least_samples = 480_001;
    assert!(
        taking(Samples {
            least_samples,
            ..samples
        })
        .check(10)
        .is_err()
    );
    for at in ["/front_end", "/decoding"] {
        let mut changed = json_of_finder.clone();
        changed.pointer_mut(at).unwrap()["unknown"] = 1.into();
        assert!(serde_json::from_value::<Speech>(changed).is_err(), "{at}");
    }
    assert_eq!(finder.check(0), Ok(()));
    let mixed = |front_end: &Speech, decoding: &Speech| Speech {
        decoding: decoding.decoding.clone(),
        ..front_end.clone()
    };
    assert!(mixed(&finder, &speech).check(10).is_err() && mixed(&speech, &finder).check(10).is_err());
    for (field, value) in [("sample_rate_hz", 0), ("chunk_samples", 0), ("context_samples", 513)] {
        let mut changed = json_of_finder.clone();
        changed["front_end"][field] = value.into();
        let error = serde_json::from_value::<Speech>(changed).unwrap().check(0).unwrap_err();
        assert!(error.contains(field), "{error}");
    }
    for (at, value, said) in [
        ("/decoding/start", 10.0, "token 10"),
        ("/decoding/timestamps/count", 5.0, "token 10"),
        ("/front_end/mels", 0.0, "`front_end.mels`"),
        ("/front_end/hop_samples", 401.0, "`front_end.hop_samples`"),
        ("/front_end/max_hz", 0.0, "bands"),
    ] {
        let mut changed = json.clone();
        let whole = !at.ends_with("hz");
        *changed.pointer_mut(at).unwrap() = if whole {
            Value::from(value as u64)
        } else {
            Value::from(value)
        };
        let error = serde_json::from_value::<Speech>(changed)
            .unwrap()
            .check(10)
            .unwrap_err();
        assert!(error.contains(said), "{at}: {error}");
    }
}

/// A record with every field, which none has: there is a window or there are pieces.
fn with_all_fields(speech: &Speech) -> Speech {
    Speech {
        pieces: hearer(speech.decoding.clone()).pieces,
        local: Some(LOCAL),
        streaming: Some(STREAMING),
        ..speech.clone()
    }
}

const LOCAL: Local = Local {
    context: 256,
    layers: 24,
    late: 260,
    edge_frames: 8,
};

const STREAMING: Streaming = Streaming {
    block_samples: 1536,
    late: 12,
    position_least: 80,
};

/// A model that hears pieces.
fn hearer(decoding: Decoding) -> Speech {
    Speech {
        window: None,
        pieces: Some(Pieces {
            least_samples: 320,
            most_samples: 480_000,
        }),
        local: Some(LOCAL),
        decoding,
        ..speech()
    }
}

#[test]
fn fields_of_models_with_positions_are_those_of_the_code() {
    let (blank, position_samples) = (9, 1280);
    let ctc = Ctc {
        blank,
        position_samples,
    };
    let transducer = Transducer {
        blank,
        durations: vec![0, 1, 2, 3, 4],
        most_symbols: 10,
        position_samples,
    };
    assert_fields("ctc", &ctc);
    assert_fields("transducer", &transducer);
    let walker = hearer(Decoding::Transducer(transducer.clone()));
    assert_fields("pieces", walker.pieces.as_ref().unwrap());
    assert_fields("local", walker.local.as_ref().unwrap());
    let plain = hearer(Decoding::Transducer(Transducer {
        durations: Vec::new(),
        ..transducer
    }));
    for (speech, kind) in [
        (hearer(Decoding::Ctc(ctc)), "ctc"),
        (walker.clone(), "transducer"),
        (plain, "transducer"),
    ] {
        let json = serde_json::to_value(&speech).unwrap();
        assert_eq!(json["decoding"]["kind"], kind);
        assert_eq!(serde_json::from_value::<Speech>(json.clone()).unwrap(), speech);
        assert_eq!(speech.check(10), Ok(()));
        for at in ["/pieces", "/decoding"] {
            let mut changed = json.clone();
            changed.pointer_mut(at).unwrap()["unknown"] = 1.into();
            assert!(serde_json::from_value::<Speech>(changed).is_err(), "{kind}{at}");
        }
        for (at, value, said) in [
            ("/decoding/blank", 10, "token 10"),
            ("/decoding/position_samples", 0, "`decoding.position_samples`"),
            (
                "/decoding/position_samples",
                1281,
                "multiple of the front end's step, 160",
            ),
            ("/pieces/least_samples", 0, "`pieces.least_samples`"),
            ("/pieces/most_samples", 319, "`pieces.most_samples`"),
            ("/pieces/most_samples", u32::MAX, "`pieces.most_samples`"),
        ] {
            let mut changed = json.clone();
            *changed.pointer_mut(at).unwrap() = value.into();
            let error = serde_json::from_value::<Speech>(changed)
                .unwrap()
                .check(10)
                .unwrap_err();
            assert!(error.contains(said), "{kind}{at}: {error}");
        }
    }
    let json = serde_json::to_value(&walker).unwrap();
    for (field, value, said) in [
        ("durations", serde_json::json!([0, 2, 2]), "ascend"),
        ("durations", serde_json::json!([3, 1]), "ascend"),
        ("durations", serde_json::json!([0]), "ascend"),
        ("durations", serde_json::json!([0, 1025]), "ascend"),
        ("most_symbols", 0.into(), "`decoding.most_symbols`"),
        ("most_symbols", 1025.into(), "`decoding.most_symbols`"),
    ] {
        let mut changed = json.clone();
        changed["decoding"][field] = value;
        let error = serde_json::from_value::<Speech>(changed)
            .unwrap()
            .check(10)
            .unwrap_err();
        assert!(error.contains(said), "{field}: {error}");
    }
}

#[test]
fn a_spectrogram_is_of_a_window_or_of_pieces() {
    let ctc = Decoding::Ctc(Ctc {
        blank: 0,
        position_samples: 1280,
    });
    let pieces = hearer(ctc.clone()).pieces;
    let window = speech().window;
    for (front_end, window, pieces) in [
        (speech().front_end, window, pieces),
        (speech().front_end, None, None),
        (finder().front_end, window, None),
        (finder().front_end, None, pieces),
    ] {
        let mixed = Speech {
            front_end,
            window,
            pieces,
            ..hearer(ctc.clone())
        };
        let error = mixed.check(10).unwrap_err();
        assert!(error.contains("`window`") && error.contains("`pieces`"), "{error}");
    }
    let unlike = Speech {
        front_end: finder().front_end,
        pieces: None,
        local: None,
        streaming: None,
        ..hearer(ctc.clone())
    };
    assert!(unlike.check(10).unwrap_err().contains("`chunks`"));
    let whole = Speech {
        window,
        pieces: None,
        ..hearer(ctc.clone())
    };
    assert!(whole.check(10).unwrap_err().contains("`local`"));
    for (name, local) in [
        ("local.context", Local { context: 0, ..LOCAL }),
        ("local.layers", Local { layers: 0, ..LOCAL }),
        ("local.late", Local { late: 255, ..LOCAL }),
        (
            "local.edge_frames",
            Local {
                edge_frames: u32::MAX,
                ..LOCAL
            },
        ),
    ] {
        let local = Some(local);
        let wrong = Speech {
            local,
            ..hearer(ctc.clone())
        };
        assert!(wrong.check(10).unwrap_err().contains(name), "{name}");
    }
}
