//! Features beside those of transformers and of the ONNX graphs of onnx-asr, and streams beside whole recordings.

use cactus_audio::features::{
    Edge, Emphasis, Filterbank, Log, MelNorm, MelScale, Normalization, Recipe, Scope, Spectrum, WindowShape,
};
use cactus_audio::{ErrorKind, Frontend};
use proptest::prelude::*;
use serde::Deserialize;

#[derive(Deserialize)]
struct Case {
    recipe: Recipe,
    frames: Vec<usize>,
    values: Vec<Vec<f32>>,
}

fn golden(file: &str) -> Vec<u8> {
    let path = format!("{}/../../golden/features/{file}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn signal() -> Vec<f32> {
    let bytes = golden("signal.s16le");
    bytes
        .as_chunks()
        .0
        .iter()
        .map(|&b| f32::from(i16::from_le_bytes(b)) / 32768.0)
        .collect()
}

fn case(name: &str) -> Case {
    serde_json::from_slice(&golden(&format!("{name}.json"))).unwrap()
}

fn noise(samples: usize) -> Vec<f32> {
    let mut state = 7u32;
    (0..samples)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            state as f32 / 2f32.powi(31) - 1.0
        })
        .collect()
}

#[test]
fn extract_of_the_golden_signal_equals_the_references() {
    for (name, frames, valid) in [
        ("whisper_80_window", 3000, 3000),
        ("whisper_128_window", 3000, 3000),
        ("whisper_80_input", 40, 40),
        ("nemo_80", 41, 40),
        ("nemo_128", 41, 40),
        ("gemma3n_128", 37, 37),
    ] {
        let case = case(name);
        let frontend = Frontend::new(case.recipe).unwrap();
        let features = frontend.extract(&signal()).unwrap();
        assert_eq!((features.frames(), features.valid_frames), (frames, valid), "{name}");
        let mut worst = 0f32;
        for (frame, values) in case.frames.iter().zip(&case.values) {
            let got = &features.data[frame * features.bins..][..features.bins];
            assert_eq!(got.len(), values.len());
            for (got, want) in got.iter().zip(values) {
                worst = worst.max((got - want).abs());
            }
        }
        assert!(worst < 1e-4, "{name}: differs by {worst}");
    }
}

#[test]
fn extract_of_the_golden_signal_has_these_bits_everywhere() {
    // A hash of the bits: the same on every CPU and operating system.
    let mut all = String::new();
    for name in ["whisper_80_window", "whisper_80_input", "nemo_128"] {
        let frontend = Frontend::new(case(name).recipe).unwrap();
        let features = frontend.extract(&signal()).unwrap();
        let hash = features.data.iter().fold(0xcbf2_9ce4_8422_2325u64, |hash, value| {
            (hash ^ u64::from(value.to_bits())).wrapping_mul(0x0100_0000_01b3)
        });
        all += &format!("{name} {hash:016x}\n");
    }
    assert_eq!(all, String::from_utf8(golden("bits.txt")).unwrap());
}

#[test]
fn recipe_written_as_json_is_read_back_the_same() {
    for name in ["whisper_80_window", "nemo_128", "gemma3n_128"] {
        let recipe = case(name).recipe;
        let text = serde_json::to_string(&recipe).unwrap();
        assert_eq!(serde_json::from_str::<Recipe>(&text).unwrap(), recipe);
    }
    let with_more = serde_json::to_string(&case("nemo_80").recipe)
        .unwrap()
        .replacen('{', "{\"dither\":1e-5,", 1);
    let error = serde_json::from_str::<Recipe>(&with_more).unwrap_err().to_string();
    assert!(error.contains("unknown field `dither`"), "{error}");
}

#[test]
fn new_of_senseless_recipes_names_the_field() {
    let good = case("nemo_80").recipe;
    type Change = fn(&mut Recipe);
    let cases: &[(&str, Change)] = &[
        ("sample_rate_hz", |r| r.sample_rate_hz = 0),
        ("fft_samples", |r| r.fft_samples = 0),
        ("fft_samples", |r| r.fft_samples = usize::MAX),
        ("factors", |r| r.fft_samples = 514),
        ("window_samples", |r| r.window_samples = 0),
        ("window_samples", |r| r.window_samples = 513),
        ("hop_samples", |r| r.hop_samples = 0),
        ("hop_samples", |r| r.hop_samples = usize::MAX),
        ("filters.bins", |r| r.filters.bins = 0),
        ("filters.bins", |r| r.filters.bins = usize::MAX),
        ("filters.low_hz", |r| r.filters.low_hz = f64::NAN),
        ("filters.low_hz", |r| r.filters.high_hz = 8001.0),
        ("preemphasis", |r| r.preemphasis = f64::INFINITY),
        ("log", |r| r.log = Log::LnGuard { guard: 0.0 }),
        ("log", |r| r.log = Log::Log10Floor { floor: f64::NAN }),
        ("log", |r| r.log = Log::LnFloor { floor: 0.0 }),
        ("right_edge", |r| r.left_edge = Edge::None),
        ("right_edge", |r| r.right_edge = Edge::None),
        ("normalization", |r| {
            (r.left_edge, r.right_edge) = (Edge::None, Edge::None)
        }),
        ("epsilon", |r| r.normalization = Normalization::PerBin { epsilon: -1.0 }),
        ("padding_frames", |r| r.padding_frames = usize::MAX),
        ("scope.window.samples", |r| {
            r.normalization = Normalization::Peak {
                range: 8.0,
                add: 4.0,
                divide: 4.0,
                scope: Scope::Window { samples: 481 },
            };
        }),
        ("normalization.peak", |r| {
            r.normalization = Normalization::Peak {
                range: 8.0,
                add: 4.0,
                divide: 0.0,
                scope: Scope::Input,
            };
        }),
    ];
    for (field, change) in cases {
        let mut recipe = good.clone();
        change(&mut recipe);
        let error = Frontend::new(recipe).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidRecipe);
        assert!(error.to_string().contains(field), "{field}: {error}");
    }
}

#[test]
fn extract_of_short_and_silent_input_is_finite() {
    for name in ["whisper_80_window", "whisper_80_input", "nemo_80"] {
        let frontend = Frontend::new(case(name).recipe).unwrap();
        for samples in [0, 1, 2, 159, 160, 199, 200, 201, 256, 320, 400, 1000] {
            for audio in [vec![0.0; samples], noise(samples), vec![1.0; samples]] {
                let features = frontend.extract(&audio).unwrap();
                assert!(features.data.iter().all(|v| v.is_finite()), "{name}, {samples} samples");
                assert_eq!(
                    features.valid_frames as u64,
                    frontend.valid_frames(samples as u64),
                    "{name}, {samples}"
                );
            }
        }
    }
}

#[test]
fn extract_of_samples_that_are_no_numbers_is_refused() {
    let frontend = Frontend::new(case("nemo_80").recipe).unwrap();
    let mut audio = noise(1000);
    audio[700] = f32::NAN;
    let error = frontend.extract(&audio).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidSamples);
    assert!(error.to_string().contains("sample 700"), "{error}");
}

#[test]
fn extract_over_windows_equals_each_window_alone() {
    let mut recipe = case("whisper_80_window").recipe;
    recipe.normalization = Normalization::Peak {
        range: 8.0,
        add: 4.0,
        divide: 4.0,
        scope: Scope::Window { samples: 1600 },
    };
    let frontend = Frontend::new(recipe).unwrap();
    let audio = noise(4000);
    let all = frontend.extract(&audio).unwrap();
    assert_eq!(all.valid_frames, 30);
    let alone: Vec<f32> = audio
        .chunks(1600)
        .flat_map(|w| frontend.extract(w).unwrap().data)
        .collect();
    assert_eq!(all.data, alone);
}

#[test]
fn channels_first_pads_with_zeros_behind_the_end() {
    let frontend = Frontend::new(case("whisper_80_input").recipe).unwrap();
    let features = frontend.extract(&signal()).unwrap();
    let cut = features.channels_first(38, 4);
    assert_eq!(cut.len(), 80 * 4);
    assert_eq!(cut[4 * 3], features.data[38 * 80 + 3]);
    assert_eq!(cut[4 * 3 + 1], features.data[39 * 80 + 3]);
    assert_eq!(cut[4 * 3 + 2..4 * 4], [0.0, 0.0]);
    assert!(features.channels_first(1000, 2).iter().all(|&v| v == 0.0));
}

fn recipes() -> impl Strategy<Value = Recipe> {
    let edge = || prop_oneof![Just(Edge::Reflect), Just(Edge::Zeros), Just(Edge::None)];
    let normalization = prop_oneof![
        Just(Normalization::None),
        Just(Normalization::Peak {
            range: 8.0,
            add: 4.0,
            divide: 4.0,
            scope: Scope::Input
        }),
        Just(Normalization::PerBin { epsilon: 1e-5 }),
    ];
    let sizes = (
        prop_oneof![Just(400usize), Just(512), Just(25), Just(30), Just(2)],
        1..=100usize,
        2..=100usize,
    );
    (sizes, edge(), edge(), normalization, any::<bool>()).prop_map(
        |((fft, window, hop), left, right, normalization, emphasis)| {
            // Windows lie within the recording on both sides or on none.
            let within = left == Edge::None;
            let right = match right {
                _ if within => Edge::None,
                Edge::None => Edge::Zeros,
                other => other,
            };
            let normalization = if within { Normalization::None } else { normalization };
            Recipe {
                sample_rate_hz: 16_000,
                preemphasis: if emphasis { 0.97 } else { 0.0 },
                emphasis: if within { Emphasis::Window } else { Emphasis::Recording },
                left_edge: left,
                right_edge: right,
                window: WindowShape::HannPeriodic,
                window_samples: (fft * window / 100).max(1),
                fft_samples: fft,
                hop_samples: (fft * hop / 100).max(1),
                spectrum: if emphasis { Spectrum::Power } else { Spectrum::Magnitude },
                filters: Filterbank {
                    bins: 8,
                    low_hz: 0.0,
                    high_hz: 8000.0,
                    scale: MelScale::Htk,
                    norm: MelNorm::None,
                },
                log: if within {
                    Log::LnFloor { floor: 0.001 }
                } else {
                    Log::LnGuard { guard: 0.001 }
                },
                normalization,
                padding_frames: 0,
            }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn stream_in_any_pushes_has_the_bits_of_the_whole(
        recipe in recipes(),
        samples in prop_oneof![0..600usize, 5000..10_000usize],
        cuts in prop::collection::vec(0..6000usize, 0..12),
    ) {
        let frontend = Frontend::new(recipe).unwrap();
        let audio = noise(samples);
        let whole = frontend.extract(&audio).unwrap();
        let mut stream = frontend.stream();
        // The second turn finds a stream that was used before.
        for _ in 0..2 {
            let (mut rest, mut frames) = (&audio[..], Vec::new());
            for &cut in &cuts {
                let (now, later) = rest.split_at(cut.min(rest.len()));
                stream.push(now, &mut frames);
                rest = later;
            }
            stream.push(rest, &mut frames);
            let tail = stream.finish(&mut frames);
            prop_assert_eq!(tail.samples, samples as u64);
            prop_assert_eq!(tail.frames as usize, whole.valid_frames);
            frontend.normalize(&mut frames, &tail);
            prop_assert_eq!(&frames, &whole.data);
        }
    }
}

#[test]
fn push_after_the_first_ones_allocates_nothing() {
    let frontend = Frontend::new(case("whisper_80_input").recipe).unwrap();
    let audio = noise(16_000);
    let (mut stream, mut frames) = (frontend.stream(), Vec::with_capacity(200 * 80));
    stream.push(&audio, &mut frames);
    let counted = allocation_counter::measure(|| {
        for push in audio.chunks(777) {
            frames.clear();
            stream.push(push, &mut frames);
        }
    });
    assert_eq!(counted.count_total, 0);
}
