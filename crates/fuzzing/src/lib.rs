//! What the fuzzers run: one function for each parser of hostile input, its seeds, and cheap mutations of them.
//!
//! The targets in `fuzz/` hand libFuzzer's bytes to [`Target::run`]; the tests of this crate run the same functions on
//! the seeds, on `fuzz/regressions` and on deterministic mutations, so that every target is exercised by the stable
//! toolchain on every change.
//!
//! A body fails by panicking. Beyond the absence of panics each holds what an accepted input promises: what was read is
//! written back the same, ranges lie in the file, a graph that was read verifies.
//!
//! It depends on whatever has a parser, and nothing depends on it. It deliberately contains no parser itself.
#![deny(unsafe_code)]

mod audio;
mod bundle;
mod c_calls;
mod cloud;
mod constrain;
mod documents;
mod function;
mod ggml_writer;
mod gguf_writer;
mod graph;
mod import;
mod index;
pub mod mutate;
mod options;
mod pictures;
mod program;
mod pt2;
mod requests;
pub mod reshape;
mod seeds;
mod session;
mod text;

/// What the bytes of a target are, which says how to mutate them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Binary with little-endian integers.
    Binary,
    /// JSON documents, several separated by a zero byte.
    Json,
    /// Other UTF-8 text.
    Text,
}

/// A parser under test.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Name, also of the program in `fuzz/fuzz_targets`.
    pub name: &'static str,
    /// What its input is.
    pub form: Form,
    /// Parses `data` and tells whether it was accepted; panics where a promise is broken.
    pub run: fn(&[u8]) -> bool,
    /// Small valid inputs.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

/// Every target.
pub const TARGETS: &[Target] = &[
    Target {
        name: "tensor_record",
        form: Form::Binary,
        run: bundle::tensor_record,
        seeds: seeds::tensor_records,
    },
    Target {
        name: "graph_cactus",
        form: Form::Binary,
        run: graph::cactus,
        seeds: seeds::graphs_cactus,
    },
    Target {
        name: "graph_json",
        form: Form::Json,
        run: graph::json,
        seeds: seeds::graphs_json,
    },
    Target {
        name: "program",
        form: Form::Json,
        run: program::program,
        seeds: seeds::programs,
    },
    Target {
        name: "function",
        form: Form::Json,
        run: function::function,
        seeds: function::seeds,
    },
    Target {
        name: "manifest",
        form: Form::Json,
        run: bundle::manifest,
        seeds: bundle::manifest_seeds,
    },
    Target {
        name: "gguf",
        form: Form::Binary,
        run: import::gguf,
        seeds: seeds::gguf_files,
    },
    Target {
        name: "safetensors",
        form: Form::Binary,
        run: import::safetensors,
        seeds: seeds::safetensors_files,
    },
    Target {
        name: "ctranslate2",
        form: Form::Binary,
        run: import::ctranslate2,
        seeds: seeds::ctranslate2_files,
    },
    Target {
        name: "ggml",
        form: Form::Binary,
        run: import::ggml,
        seeds: seeds::ggml_files,
    },
    Target {
        name: "ort",
        form: Form::Binary,
        run: import::ort,
        seeds: seeds::ort_programs,
    },
    Target {
        name: "onnx",
        form: Form::Binary,
        run: import::onnx,
        seeds: seeds::onnx_programs,
    },
    Target {
        name: "state_dict",
        form: Form::Binary,
        run: import::state_dict,
        seeds: seeds::state_dicts,
    },
    Target {
        name: "pt2_archive",
        form: Form::Binary,
        run: pt2::pt2_archive,
        seeds: pt2::archives,
    },
    Target {
        name: "pt2_program",
        form: Form::Json,
        run: pt2::pt2_program,
        seeds: pt2::programs,
    },
    Target {
        name: "hf_config",
        form: Form::Json,
        run: import::hf_config,
        seeds: seeds::hf_configs,
    },
    Target {
        name: "tokenizer_json",
        form: Form::Json,
        run: text::tokenizer_json,
        seeds: seeds::tokenizers,
    },
    Target {
        name: "tokenizer_tables",
        form: Form::Binary,
        run: text::tokenizer_tables,
        seeds: seeds::tokenizer_tables,
    },
    Target {
        name: "chat_template",
        form: Form::Text,
        run: text::chat_template,
        seeds: seeds::chat_templates,
    },
    Target {
        name: "generate_options_json",
        form: Form::Json,
        run: options::generate_options_json,
        seeds: seeds::generate_options,
    },
    Target {
        name: "json_schema",
        form: Form::Json,
        run: constrain::json_schema,
        seeds: constrain::schemas,
    },
    Target {
        name: "grammar_text",
        form: Form::Text,
        run: constrain::grammar_text,
        seeds: constrain::grammars,
    },
    Target {
        name: "tool_output",
        form: Form::Text,
        run: constrain::tool_output,
        seeds: constrain::outputs,
    },
    Target {
        name: "saved_session",
        form: Form::Binary,
        run: session::saved_session,
        seeds: session::saved_session_seeds,
    },
    Target {
        name: "audio_form",
        form: Form::Binary,
        run: requests::audio_form,
        seeds: requests::form_seeds,
    },
    Target {
        name: "realtime_event",
        form: Form::Json,
        run: requests::realtime_event,
        seeds: requests::event_seeds,
    },
    Target {
        name: "http_request",
        form: Form::Json,
        run: requests::http_request,
        seeds: requests::seeds,
    },
    Target {
        name: "c_calls",
        form: Form::Binary,
        run: c_calls::c_calls,
        seeds: c_calls::seeds,
    },
    Target {
        name: "cloud_stream",
        form: Form::Text,
        run: cloud::cloud_stream,
        seeds: cloud::seeds,
    },
    Target {
        name: "audio_file",
        form: Form::Binary,
        run: audio::audio_file,
        seeds: audio::seeds,
    },
    Target {
        name: "audio_recipe",
        form: Form::Json,
        run: audio::audio_recipe,
        seeds: audio::recipe_seeds,
    },
    Target {
        name: "picture_file",
        form: Form::Binary,
        run: pictures::picture_file,
        seeds: pictures::seeds,
    },
    Target {
        name: "picture_record",
        form: Form::Json,
        run: pictures::picture_record,
        seeds: pictures::record_seeds,
    },
    Target {
        name: "index_file",
        form: Form::Binary,
        run: index::index_file,
        seeds: index::index_seeds,
    },
    Target {
        name: "document",
        form: Form::Text,
        run: documents::document,
        seeds: documents::document_seeds,
    },
    Target {
        name: "pdf",
        form: Form::Binary,
        run: documents::pdf,
        seeds: documents::pdf_seeds,
    },
    Target {
        name: "pdf_output",
        form: Form::Text,
        run: documents::pdf_output,
        seeds: documents::pdf_output_seeds,
    },
];

/// The target called `name`.
pub fn target(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|t| t.name == name)
}
