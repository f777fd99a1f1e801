//! Options of `cactus transpile`.

use super::{CalibrationArgs, CaptureArgs, ComparisonArgs, ConvertBits, FusionArgs, WidthArgs, parse_bits};
use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// What a program is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub(crate) enum TaskName {
    /// Guess from the inputs and outputs
    Auto,
    /// Token ids to next-token logits, with a KV cache between calls
    CausalLmLogits,
    /// Arrays in, arrays out
    Function,
    /// The same as `function`
    EncoderHiddenStates,
    /// The same as `function`
    CtcLogits,
    /// Encoder and decoder, each a function
    Seq2seqTranscription,
    /// Encoder, decoder step and joint network, each a function
    TdtTranscription,
    /// Picture and sound encoders, each a function, and a decoder with a KV cache between calls; in families that are not known
    /// here the decoder is a function, too
    MultimodalCausalLmLogits,
}

#[derive(Debug, Args)]
pub(crate) struct TranspileArgs {
    /// Program saved by torch.export.save (.pt2). Or, if Python with PyTorch is installed: a Hugging Face folder or id, or a
    /// module as FILE.py:NAME. A state dict (.pt) has no program: name its class as FILE.py:NAME, and the file by --state-dict
    pub(crate) source: String,
    /// Folder to write the bundle to [default: weights/NAME]
    pub(crate) destination: Option<PathBuf>,
    /// The same as DESTINATION, as an option
    #[arg(long, value_name = "FOLDER", conflicts_with = "destination")]
    pub(crate) artifact_dir: Option<PathBuf>,
    /// What the program is for
    #[arg(long, default_value = "auto")]
    pub(crate) task: TaskName,
    /// Bits for each weight of matrices [default: as in the source], or an average that is spent where it matters
    #[arg(long, value_name = "1|2|3|4|5|6|8|16|32|auto:AVERAGE", value_parser = parse_bits)]
    pub(crate) bits: Option<ConvertBits>,
    #[command(flatten)]
    pub(crate) widths: WidthArgs,
    #[command(flatten)]
    pub(crate) calibration: CalibrationArgs,
    #[command(flatten)]
    pub(crate) comparison: ComparisonArgs,
    /// Replace an existing bundle, and write the new one even if its quality is below the floor
    #[arg(long)]
    pub(crate) force: bool,
    /// Name of the model [default: the name of the source]
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// Hugging Face folder with the tokenizer and chat template, which a .pt2 file does not contain
    #[arg(long, value_name = "FOLDER")]
    pub(crate) tokenizer: Option<PathBuf>,
    /// Take the weights, by name, from this folder that `cactus convert` made; if it has a program, take only its number of
    /// bits
    #[arg(long, value_name = "FOLDER")]
    pub(crate) weights_dir: Option<PathBuf>,
    /// Run the new bundle once, on the example or on made-up inputs, and save the result in it as result.json
    #[arg(long)]
    pub(crate) execute_after_transpile: bool,
    /// Save a report of the conversion, and of that run, as JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) result_json: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) fusion: FusionArgs,
    /// Print a report of the conversion as JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) capture: CaptureArgs,
}
