//! Generation options in JSON.

use cactus_engine::GenerateOptions;
use serde_json::{Map, Value};

/// A JSON object of options, taken as a call's options and as a `generation_config.json`.
pub(crate) fn generate_options_json(data: &[u8]) {
    let Ok(given) = serde_json::from_slice::<Map<String, Value>>(data) else {
        return;
    };
    if let Ok(options) = GenerateOptions::default().with_json(&given) {
        accepted(&options);
    }
    if let Ok(options) = GenerateOptions::from_generation_config(&given) {
        accepted(&options);
    }
}

fn accepted(options: &GenerateOptions) {
    options.validate().expect("reading validates");
    let written = options.to_json();
    let again = GenerateOptions::default().with_json(&written);
    assert_eq!(
        again.as_ref(),
        Ok(options),
        "what was written is read back: {written:?}"
    );
}
