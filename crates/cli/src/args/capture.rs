//! Options of a capture by PyTorch.

use clap::Args;
use std::path::PathBuf;

/// What only the Python side reads, which gets the command line as it was typed.
#[derive(Debug, Args)]
#[command(next_help_heading = "Capturing (needs Python with PyTorch)")]
pub(crate) struct CaptureArgs {
    /// Example text for the capture
    #[arg(long)]
    prompt: Option<String>,
    /// Example image for the capture; can be repeated
    #[arg(long, value_name = "FILE")]
    image_file: Vec<PathBuf>,
    /// Example sound for the capture
    #[arg(long, value_name = "FILE.wav")]
    audio_file: Option<PathBuf>,
    /// Accepted and ignored: the KV cache grows as needed
    #[arg(long, value_name = "TOKENS")]
    max_new_tokens: Option<usize>,
    /// Weights for FILE.py:NAME, written by torch.save
    #[arg(long, value_name = "FILE.pt")]
    state_dict: Option<PathBuf>,
    /// Arguments for NAME, as a JSON object
    #[arg(long, value_name = "JSON")]
    init: Option<String>,
    /// Example input for the capture: a file, or a type and sizes; can be repeated
    #[arg(long, value_name = "x=x.npy|x=f32[1,64]")]
    example: Vec<String>,
    /// Fix all sizes to those of the example
    #[arg(long = "static")]
    fixed: bool,
    /// Do not compare the outputs with PyTorch's
    #[arg(long)]
    skip_reference_compare: bool,
    /// Split the model into several components
    #[arg(long, value_name = "auto|on|off", value_parser = ["auto", "on", "off"])]
    component_pipeline: Option<String>,
    /// Make only these components, separated by commas
    #[arg(long, value_name = "NAMES")]
    components: Option<String>,
    /// Allow running the Python code that comes with the model
    #[arg(long)]
    trust_remote_code: bool,
    /// Never use the network
    #[arg(long)]
    local_files_only: bool,
    /// Accepted and ignored: the weights are read from the source
    #[arg(long)]
    allow_unconverted_weights: bool,
}

impl CaptureArgs {
    /// The first option that is given, for a source that was captured before. Those that allow or promise something that
    /// is never needed are passed over.
    pub(crate) fn given(&self) -> Option<&'static str> {
        let options = [
            (self.prompt.is_some(), "--prompt"),
            (!self.image_file.is_empty(), "--image-file"),
            (self.audio_file.is_some(), "--audio-file"),
            (self.state_dict.is_some(), "--state-dict"),
            (self.init.is_some(), "--init"),
            (!self.example.is_empty(), "--example"),
            (self.fixed, "--static"),
            (self.component_pipeline.is_some(), "--component-pipeline"),
            (self.components.is_some(), "--components"),
            (self.trust_remote_code, "--trust-remote-code"),
        ];
        options.into_iter().find(|(given, _)| *given).map(|(_, name)| name)
    }
}
