//! Audio files, and the recipes of front ends.

use cactus_audio::decode::{Limits, Recording};
use cactus_audio::features::{Normalization, Scope};
use cactus_audio::{Frontend, Recipe, Sound};
use std::path::{Path, PathBuf};

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// A file is heard to its end, which comes within the limit, and the same when it is read again.
pub(crate) fn audio_file(data: &[u8]) -> bool {
    let limits = Limits { max_seconds: 30.0 };
    let Ok(mut recording) = Recording::from_bytes(data.to_vec(), 16_000, limits) else {
        return false;
    };
    let mut read = || {
        let (mut samples, mut more) = (Vec::new(), recording.rewind().map(|()| true));
        while matches!(more, Ok(true)) {
            more = recording.read(&mut samples);
        }
        (samples, more.map_err(|e| e.to_string()))
    };
    let (samples, end) = read();
    assert!(samples.iter().all(|v| v.is_finite()), "finite samples");
    assert!(samples.len() <= 31 * 16_000, "the limit holds");
    assert!(read() == (samples, end.clone()), "the same samples and the same end");
    end.is_ok()
}

/// One file of each kind that is read.
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    [
        "alaw_8k.wav",
        "mulaw_8k.wav",
        "mono_16k.flac",
        "mono_44k.mp3",
        "stereo_24k.mp3",
        "vbr_48k.mp3",
        "stereo_44k.ogg",
        "mono_16k.ogg",
        "mono_16k_flac.ogg",
        "mono_speech.opus",
        "mono_hybrid.opus",
        "stereo_short.opus",
        "surround.opus",
        "mono_opus.webm",
        "mono_16k.m4a",
        "mono_alac.m4a",
        "fragmented_44k.m4a",
        "mono_44k.aac",
        "video_and_sound.mp4",
        "video_and_sound.mkv",
        "stereo_44k.m4a",
    ]
    .into_iter()
    .map(|name| std::fs::read(folder("../audio/tests/files").join(name)).expect("a test file of cactus-audio"))
    .collect()
}

/// A recipe that is accepted gives finite features, whole and in pushes.
pub(crate) fn audio_recipe(data: &[u8]) -> bool {
    let Ok(recipe) = serde_json::from_slice::<Recipe>(data) else {
        return false;
    };
    let samples = (recipe.hop_samples.saturating_mul(8)).clamp(1, 4000);
    let windowed = matches!(
        recipe.normalization,
        Normalization::Peak {
            scope: Scope::Window { .. },
            ..
        }
    );
    let Ok(frontend) = Frontend::new(recipe) else {
        return false;
    };
    // A window is filled with silence, up to minutes of it.
    if windowed {
        return true;
    }
    let sound: Vec<f32> = (0..samples as u32)
        .map(|i| (i.wrapping_mul(2_654_435_761) >> 8) as f32 / 8_388_608.0 - 1.0)
        .collect();
    let whole = frontend.extract(&sound).expect("finite samples are accepted");
    assert!(whole.data.iter().all(|v| v.is_finite()), "finite features");
    let (mut stream, mut frames) = (frontend.stream(), Vec::new());
    for push in sound.chunks(97) {
        stream.push(push, &mut frames);
    }
    let tail = stream.finish(&mut frames);
    frontend.normalize(&mut frames, &tail);
    assert_eq!(frames, whole.data[..frames.len()], "pushes do not matter");
    true
}

/// The recipes of the golden files.
pub(crate) fn recipe_seeds() -> Vec<Vec<u8>> {
    ["whisper_80_window", "whisper_80_input", "nemo_128"]
        .into_iter()
        .map(|name| {
            let file = folder("../../golden/features").join(format!("{name}.json"));
            let text = std::fs::read(file).expect("a golden file");
            let case: serde_json::Value = serde_json::from_slice(&text).expect("JSON");
            case["recipe"].to_string().into_bytes()
        })
        .collect()
}
