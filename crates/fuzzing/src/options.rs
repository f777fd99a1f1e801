//! Generation options in JSON.

use cactus_engine::GenerateOptions;
use serde_json::{Map, Value};

/// A JSON object of options, taken as a call's options and as a `generation_config.json`.
pub(crate) fn generate_options_json(data: &[u8]) -> bool {
    let Ok(given) = serde_json::from_slice::<Map<String, Value>>(data) else {
        return false;
    };
    let of_a_call = GenerateOptions::default().with_json(&given);
    let of_a_model = GenerateOptions::from_generation_config(&given);
    of_a_call.iter().chain(&of_a_model).for_each(accepted);
    of_a_call.is_ok() || of_a_model.is_ok()
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
