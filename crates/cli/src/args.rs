//! Commands and options, apart from what they do.

use cactus_passes::Bits;
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::num::NonZeroUsize;
use std::path::PathBuf;

/// Language models on this machine's CPU.
#[derive(Debug, Parser)]
#[command(name = "cactus", version, max_term_width = 100, propagate_version = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Answer a prompt, or chat
    Run(Box<RunArgs>),
    /// Convert a GGUF file or a Hugging Face folder into a bundle, or a file of weights into packed weights
    Convert(ConvertArgs),
    /// Make a bundle of a PyTorch model, or of a program saved by torch.export (`.pt2`)
    Transpile(Box<TranspileArgs>),
    /// Show what is inside a bundle
    Inspect(InspectArgs),
    /// Measure speed, load time and memory
    Bench(BenchArgs),
    /// Measure the matrix products of every instruction set of this CPU, and show which is picked
    Kernels(KernelsArgs),
    /// List known and downloaded models
    List(ListArgs),
    /// Fetch a model into the cache
    Download(DownloadArgs),
    /// Delete a model from the cache
    Remove(RemoveArgs),
    /// Show the tokens of a text
    Tokenize(TokenizeArgs),
    /// Compute the perplexity of a text file
    Score(ScoreArgs),
    /// Measure a bundle: perplexity, distance from another bundle, tasks
    Eval(EvalArgs),
}

/// How a bundle is found and loaded.
#[derive(Clone, Debug, Args)]
pub(crate) struct ModelArgs {
    /// Bundle folder, GGUF file, Hugging Face folder or id, or the name of a known model
    #[arg(default_value = cactus_hub::DEFAULT_MODEL)]
    pub(crate) model: String,
    /// Bits of the weights where the model must be converted first
    #[arg(long, default_value = "8", value_name = "1|2|3|4|5|6|8|16|32")]
    pub(crate) bits: Bits,
    /// Hugging Face token, for gated models [default: HF_TOKEN, or the token file of the Hugging Face tool]
    #[arg(long)]
    pub(crate) token: Option<String>,
    /// Never use the network
    #[arg(long)]
    pub(crate) offline: bool,
    /// Convert again even where a converted bundle is cached
    #[arg(long)]
    pub(crate) reconvert: bool,
}

#[derive(Debug, Args)]
pub(crate) struct KernelsArgs {
    /// Rows, inputs and outputs of the product [default: shapes of small language models]
    #[arg(value_name = "M,K,N")]
    pub(crate) shape: Option<String>,
    /// How the weights are packed, such as int8_g32 or cq3_g128 [default: 8 bits, 4 bits, half and single precision]
    #[arg(long)]
    pub(crate) packing: Option<String>,
    /// Threads
    #[arg(long, default_value = "1", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) threads: u16,
    /// Repetitions; the median is shown
    #[arg(long, default_value = "7")]
    pub(crate) reps: usize,
    /// Fail where the pick is not the fastest within noise
    #[arg(long)]
    pub(crate) assert: bool,
    /// Print as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct EngineArgs {
    /// Threads for the prompt; 1 leaves the other cores alone [default: one for each fast core]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) threads: Option<u16>,
    /// Keep the threads on the fast cores
    #[arg(long)]
    pub(crate) pin: bool,
    /// Threads for generating [default: as --threads]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) decode_threads: Option<u16>,
    /// Tokens that prompt and answer may have together; at most what the model was made for
    #[arg(long, default_value_t = 2048, value_name = "TOKENS")]
    pub(crate) context: usize,
    /// Prompt tokens computed at once
    #[arg(long, default_value_t = 128, value_name = "TOKENS")]
    pub(crate) chunk: usize,
    /// Element type of the KV cache
    #[arg(long, value_enum, default_value_t = Kv::Int8)]
    pub(crate) kv: Kv,
}

/// Bits asked for at conversion.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum ConvertBits {
    Fixed(Bits),
    Average(f64),
}

fn parse_bits(text: &str) -> Result<ConvertBits, String> {
    let Some(average) = text.strip_prefix("auto:") else {
        let fixed = text.parse().map(ConvertBits::Fixed);
        return fixed.map_err(|e| format!("{e}; or auto:AVERAGE, such as auto:3.2"));
    };
    match average.parse() {
        Ok(average) if (2.125..=16.0).contains(&average) => Ok(ConvertBits::Average(average)),
        _ => Err(format!("an average is a number from 2.125 to 16, found `{average}`")),
    }
}

fn parse_calibration_tokens(text: &str) -> Result<usize, String> {
    let least = cactus_quality::WINDOW;
    match text.parse() {
        Ok(tokens) if tokens >= least => Ok(tokens),
        _ => Err(format!(
            "a number of {least} or more is needed: text is run in windows of {least} tokens"
        )),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kv {
    Int8,
    F16,
}

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    #[command(flatten)]
    pub(crate) engine: EngineArgs,
    /// The prompt; without one, a chat begins. `-` reads it from standard input
    #[arg(long, short)]
    pub(crate) prompt: Option<String>,
    /// Token ids instead of a prompt, comma-separated
    #[arg(long, value_delimiter = ',', value_name = "IDS", conflicts_with = "prompt")]
    pub(crate) input_ids: Option<Vec<u32>>,
    /// Input of a bundle that is a function, by name or position; may be given several times
    #[arg(long, value_name = "NAME=FILE.npy")]
    pub(crate) input: Vec<String>,
    /// Component to run, of a bundle that has several [default: all, one after another]
    #[arg(long, value_name = "NAME")]
    pub(crate) component: Option<String>,
    /// Write each output of a function here, as `NAME.npy` and by position
    #[arg(long, value_name = "FOLDER")]
    pub(crate) output_dir: Option<PathBuf>,
    /// System prompt
    #[arg(long)]
    pub(crate) system: Option<String>,
    /// Continue the prompt as plain text, without the chat template
    #[arg(long)]
    pub(crate) raw: bool,
    /// Most tokens of an answer
    #[arg(long, alias = "max-tokens", value_name = "TOKENS")]
    pub(crate) max_new_tokens: Option<usize>,
    /// 0 always takes the most likely token
    #[arg(long, allow_negative_numbers = true)]
    pub(crate) temperature: Option<f32>,
    /// Keep the most likely tokens that make up this much probability
    #[arg(long)]
    pub(crate) top_p: Option<f32>,
    /// Keep this many most likely tokens
    #[arg(long)]
    pub(crate) top_k: Option<usize>,
    /// Keep tokens with at least this fraction of the best one's probability
    #[arg(long)]
    pub(crate) min_p: Option<f32>,
    /// Locally typical sampling
    #[arg(long)]
    pub(crate) typical_p: Option<f32>,
    /// Weaken tokens already seen
    #[arg(long)]
    pub(crate) repetition_penalty: Option<f32>,
    /// Weaken tokens by how often they were generated
    #[arg(long, allow_negative_numbers = true)]
    pub(crate) frequency_penalty: Option<f32>,
    /// Weaken tokens that were generated at all
    #[arg(long, allow_negative_numbers = true)]
    pub(crate) presence_penalty: Option<f32>,
    /// Seed of the random draws
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    /// Text that ends the answer; may be given several times
    #[arg(long, value_name = "TEXT")]
    pub(crate) stop: Vec<String>,
    /// Go on after the model ends its answer
    #[arg(long)]
    pub(crate) ignore_eos: bool,
    /// Guess up to this many tokens at once from prompt and answer: the same answer, sooner where it repeats the prompt
    #[arg(long, value_name = "TOKENS", num_args = 0..=1, default_missing_value = "15")]
    pub(crate) prompt_lookup: Option<usize>,
    /// A smaller model of the same vocabulary that guesses tokens: the same answer, sooner where it guesses well
    #[arg(long, value_name = "MODEL")]
    pub(crate) draft_model: Option<String>,
    /// Report the log-probabilities of each token and of this many alternatives (with --json)
    #[arg(long, value_name = "N")]
    pub(crate) logprobs: Option<usize>,
    /// When the context is full, forget the oldest tokens but the first four instead of ending the answer
    #[arg(long)]
    pub(crate) rolling: bool,
    /// Print the result as JSON, with timings
    #[arg(long)]
    pub(crate) json: bool,
    /// Save the result as JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) result_json: Option<PathBuf>,
    /// Print timings after each answer
    #[arg(long, short)]
    pub(crate) verbose: bool,
    /// Print the time of each operation
    #[arg(long)]
    pub(crate) profile: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ConvertArgs {
    /// GGUF file, Hugging Face folder or id, or the name of a known model; or a state dict (.pt) or one .safetensors file,
    /// whose weights alone are packed, for `cactus transpile --weights-dir`
    pub(crate) source: String,
    /// Folder of the new bundle
    pub(crate) destination: PathBuf,
    /// Bits of the weights, or an average that is spent where it matters
    #[arg(long, default_value = "8", value_name = "1|2|3|4|5|6|8|16|32|auto:AVERAGE", value_parser = parse_bits)]
    pub(crate) bits: ConvertBits,
    /// Bits of embedding tables [default: as --bits, but at least 4]
    #[arg(long, value_name = "1|2|3|4|5|6|8|16|32")]
    pub(crate) embedding_bits: Option<Bits>,
    /// File with bits by name of the weight: `bits`, `embeddings`, and `[[rule]]` with `pattern` and `bits`
    #[arg(long, value_name = "FILE")]
    pub(crate) policy: Option<PathBuf>,
    /// Merge this low-rank adapter of PEFT into the weights first: folder with `adapter_config.json` and
    /// `adapter_model.safetensors`
    #[arg(long, value_name = "FOLDER")]
    pub(crate) lora: Option<PathBuf>,
    /// Lose less at 1 to 6 bits: run a text (or rows of JSON) through the model first, a small one of ours where no FILE is
    /// given
    #[arg(long, value_name = "FILE", num_args = 0..=1)]
    pub(crate) calibrate: Option<Option<PathBuf>>,
    /// Most tokens to calibrate with
    #[arg(long, default_value_t = 16384, value_name = "TOKENS", value_parser = parse_calibration_tokens)]
    pub(crate) calibration_tokens: usize,
    /// Text to measure the bundle on, against its source [default: a small one of ours, below 8 bits]
    #[arg(long, value_name = "FILE")]
    pub(crate) quality_text: Option<PathBuf>,
    /// Do not measure the bundle
    #[arg(long, conflicts_with = "quality_text")]
    pub(crate) no_quality: bool,
    /// Replace a bundle that is already there, and write one that is too far from its source
    #[arg(long, visible_alias = "reconvert")]
    pub(crate) force: bool,
    /// Hugging Face token, for gated models [default: HF_TOKEN, or the token file of the Hugging Face tool]
    #[arg(long)]
    pub(crate) token: Option<String>,
    /// Never use the network
    #[arg(long)]
    pub(crate) offline: bool,
    #[command(flatten)]
    pub(crate) fusion: FusionArgs,
    /// Print what was made as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// What the passes may fuse.
#[derive(Debug, Args)]
pub(crate) struct FusionArgs {
    /// Leave norms as they are
    #[arg(long)]
    no_fuse_rms_norm: bool,
    /// Leave rotary embeddings as they are
    #[arg(long)]
    no_fuse_rope: bool,
    /// Leave attention as it is
    #[arg(long)]
    no_fuse_attention: bool,
    /// Print, for each pattern, where it fired and, where it nearly did, why not
    #[arg(long)]
    pub(crate) explain: bool,
}

impl FusionArgs {
    pub(crate) fn passes(&self) -> cactus_passes::Options {
        let switches = [
            (self.no_fuse_rms_norm, "fuse_rms_norm"),
            (self.no_fuse_rope, "fuse_rope"),
            (self.no_fuse_attention, "fuse_attention"),
        ];
        let off = switches.into_iter().filter(|(off, _)| *off);
        off.fold(cactus_passes::Options::default(), |options, (_, pass)| {
            options.without(pass)
        })
    }
}

/// What a program is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub(crate) enum TaskName {
    /// Found out from inputs and outputs
    Auto,
    /// Token ids to next-token logits, continued call by call
    CausalLmLogits,
    /// Inputs to outputs
    Function,
    /// As `function`
    EncoderHiddenStates,
    /// As `function`
    CtcLogits,
    /// Encoder and decoder, functions
    Seq2seqTranscription,
    /// Encoder, decoder step and joint network, functions
    TdtTranscription,
    /// Vision encoder, embedding and decoder, functions
    MultimodalCausalLmLogits,
}

#[derive(Debug, Args)]
pub(crate) struct TranspileArgs {
    /// Archive of torch.export.save (.pt2); or, by way of Python with PyTorch: a Hugging Face folder or id, FILE.py:NAME,
    /// or a .pt file
    pub(crate) source: String,
    /// Folder of the new bundle [default: weights/NAME]
    pub(crate) destination: Option<PathBuf>,
    /// The same, as an option
    #[arg(long, value_name = "FOLDER", conflicts_with = "destination")]
    pub(crate) artifact_dir: Option<PathBuf>,
    /// What the program is for
    #[arg(long, default_value = "auto")]
    pub(crate) task: TaskName,
    /// Bits of the matrices [default: as in the source]
    #[arg(long, value_name = "1|2|3|4|5|6|8|16|32")]
    pub(crate) bits: Option<Bits>,
    /// Bits of embedding tables [default: as --bits, but at least 4]
    #[arg(long, value_name = "1|2|3|4|5|6|8|16|32")]
    pub(crate) embedding_bits: Option<Bits>,
    /// File with bits by name of the weight: `bits`, `embeddings`, and `[[rule]]` with `pattern` and `bits`; with several
    /// components, names begin with theirs and a dot
    #[arg(long, value_name = "FILE")]
    pub(crate) policy: Option<PathBuf>,
    /// Text to measure a causal language model on, below 8 bits [default: a small one of ours]
    #[arg(long, value_name = "FILE")]
    pub(crate) quality_text: Option<PathBuf>,
    /// Do not measure the bundle
    #[arg(long, conflicts_with = "quality_text")]
    pub(crate) no_quality: bool,
    /// Replace a bundle that is already there, and write one that is too far from its source
    #[arg(long)]
    pub(crate) force: bool,
    /// Name of the model [default: of the source]
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// Hugging Face folder with tokenizer and chat template, for an archive, which has none
    #[arg(long, value_name = "FOLDER")]
    pub(crate) tokenizer: Option<PathBuf>,
    /// Folder of `cactus convert`: its weights are taken by name; of a bundle with a program, the number of bits alone
    #[arg(long, value_name = "FOLDER")]
    pub(crate) weights_dir: Option<PathBuf>,
    /// Run the new bundle once, on the example or made-up inputs, and save what comes out in it as result.json
    #[arg(long)]
    pub(crate) execute_after_transpile: bool,
    /// Save what was made and what came out as JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) result_json: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) capture: CaptureArgs,
    #[command(flatten)]
    pub(crate) fusion: FusionArgs,
    /// Print what was made as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// What only the Python side reads, which gets the command line as it was typed.
#[derive(Debug, Args)]
#[command(next_help_heading = "Capturing (needs Python with PyTorch)")]
pub(crate) struct CaptureArgs {
    /// Text to capture with
    #[arg(long)]
    prompt: Option<String>,
    /// Image to capture with; may be given several times
    #[arg(long, value_name = "FILE")]
    image_file: Vec<PathBuf>,
    /// Sound to capture with
    #[arg(long, value_name = "FILE.wav")]
    audio_file: Option<PathBuf>,
    /// Taken, and not needed: states grow as they are used
    #[arg(long, value_name = "TOKENS")]
    max_new_tokens: Option<usize>,
    /// Weights of FILE.py:NAME, as torch.save wrote them
    #[arg(long, value_name = "FILE.pt")]
    state_dict: Option<PathBuf>,
    /// Arguments of NAME as a JSON object
    #[arg(long, value_name = "JSON")]
    init: Option<String>,
    /// Input to capture with: a file, or a type and sizes; may be given several times
    #[arg(long, value_name = "x=x.npy|x=f32[1,64]")]
    example: Vec<String>,
    /// Capture with the sizes of the example alone
    #[arg(long = "static")]
    fixed: bool,
    /// Do not compare with PyTorch
    #[arg(long)]
    skip_reference_compare: bool,
    /// Split a model of several components
    #[arg(long, value_name = "auto|on|off", value_parser = ["auto", "on", "off"])]
    component_pipeline: Option<String>,
    /// Components to make, comma-separated
    #[arg(long, value_name = "NAMES")]
    components: Option<String>,
    /// Run code that the model brings
    #[arg(long)]
    trust_remote_code: bool,
    /// Never use the network
    #[arg(long)]
    local_files_only: bool,
    /// Taken, and not needed: weights are read from the source
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

#[derive(Debug, Args)]
pub(crate) struct InspectArgs {
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    /// Print as JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// List every tensor
    #[arg(long)]
    pub(crate) tensors: bool,
    /// Draw the graph into this file: `.svg`, `.dot`, or `.txt` for the text form
    #[arg(long, value_name = "FILE")]
    pub(crate) graph: Option<PathBuf>,
    /// Draw the graph as it was before the passes
    #[arg(long, requires = "graph")]
    pub(crate) raw: bool,
    /// Draw both, the graph before the passes on the left
    #[arg(long, requires = "graph", conflicts_with = "raw")]
    pub(crate) side_by_side: bool,
    /// Component to draw [default: the first]
    #[arg(long, value_name = "NAME", requires = "graph")]
    pub(crate) component: Option<String>,
    /// List the kernel calls of the lowered program
    #[arg(long)]
    pub(crate) program: bool,
    /// Read everything and check every checksum
    #[arg(long)]
    pub(crate) verify: bool,
}

#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    #[command(flatten)]
    pub(crate) engine: EngineArgs,
    /// Tokens of the prompt
    #[arg(long, default_value_t = 1024)]
    pub(crate) prefill: usize,
    /// Tokens generated
    #[arg(long, default_value_t = 100)]
    pub(crate) decode: usize,
    /// Tokens in the context before those that are generated; several, with commas, for several measurements
    #[arg(long, default_value = "0", value_delimiter = ',')]
    pub(crate) depth: Vec<usize>,
    /// Repetitions; the median is reported
    #[arg(long, default_value_t = 5)]
    pub(crate) reps: usize,
    /// Print as JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Print the time of each operation
    #[arg(long)]
    pub(crate) profile: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// Print as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DownloadArgs {
    /// Name of a known model, Hugging Face id, or local path
    #[arg(default_value = cactus_hub::DEFAULT_MODEL)]
    pub(crate) model: String,
    /// Hugging Face token, for gated models [default: HF_TOKEN, or the token file of the Hugging Face tool]
    #[arg(long)]
    pub(crate) token: Option<String>,
    /// Print as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RemoveArgs {
    /// Name that `cactus list` shows
    pub(crate) model: String,
}

#[derive(Debug, Args)]
pub(crate) struct TokenizeArgs {
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    /// The text; `-` reads standard input
    #[arg(long, short)]
    pub(crate) text: Option<String>,
    /// Read the text from a file
    #[arg(long, conflicts_with = "text")]
    pub(crate) file: Option<PathBuf>,
    /// Decode these comma-separated token ids instead
    #[arg(long, value_delimiter = ',', conflicts_with_all = ["text", "file"])]
    pub(crate) decode: Vec<u32>,
    /// Leave out the tokens that the model puts around a text
    #[arg(long)]
    pub(crate) no_special: bool,
    /// Print as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ScoreArgs {
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    /// Threads [default: one for each fast core]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) threads: Option<u16>,
    /// The text file
    #[arg(long, short)]
    pub(crate) file: PathBuf,
    /// Tokens of a window; the second half of each is scored
    #[arg(long, default_value_t = 512)]
    pub(crate) context: usize,
    /// Windows scored [default: all]
    #[arg(long)]
    pub(crate) chunks: Option<usize>,
    /// Element type of the KV cache
    #[arg(long, value_enum, default_value_t = Kv::Int8)]
    pub(crate) kv: Kv,
    /// Print as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Questions with right and wrong answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "lowercase")]
pub(crate) enum EvalTask {
    /// Choose the ending of a text
    HellaSwag,
    /// Arithmetic in words
    Gsm8k,
    /// Complete a Python function
    HumanEval,
    /// Call tools
    Bfcl,
}

#[derive(Debug, Args)]
pub(crate) struct EvalArgs {
    /// The bundle
    pub(crate) bundle: PathBuf,
    /// Compare it with this bundle, made from the same source with `--bits 16` [default: measure its perplexity]
    #[arg(long, value_name = "BUNDLE", conflicts_with = "task")]
    pub(crate) against: Option<PathBuf>,
    /// The text file, or rows of JSON [default: a small text of ours]
    #[arg(long, short, conflicts_with = "task")]
    pub(crate) file: Option<PathBuf>,
    /// Tokens of a window, whose second half is measured; for a task, tokens of question and answer
    #[arg(long, value_name = "TOKENS")]
    pub(crate) context: Option<usize>,
    /// Windows measured [default: all]
    #[arg(long)]
    pub(crate) chunks: Option<NonZeroUsize>,
    /// Ask the questions of `--data` instead
    #[arg(long, requires = "data")]
    pub(crate) task: Option<EvalTask>,
    /// JSON lines of the task, as published, or gzip of them
    #[arg(long, value_name = "FILE", requires = "task")]
    pub(crate) data: Option<PathBuf>,
    /// File of BFCL's `possible_answer` folder that belongs to the data
    #[arg(long, value_name = "FILE", requires = "task")]
    pub(crate) answers: Option<PathBuf>,
    /// Ask only the first questions
    #[arg(long, value_name = "N", requires = "task")]
    pub(crate) limit: Option<NonZeroUsize>,
    /// Write results here as they come, and continue where they end
    #[arg(long, value_name = "FILE", requires = "task")]
    pub(crate) results: Option<PathBuf>,
    /// Most tokens of an answer
    #[arg(long, value_name = "TOKENS", requires = "task")]
    pub(crate) max_new_tokens: Option<usize>,
    /// Continue questions as plain text, without the chat template
    #[arg(long, requires = "task")]
    pub(crate) raw: bool,
    /// Run the programs that the model writes, with limits that are no sandbox: they can read what you can read
    #[arg(long, requires = "task")]
    pub(crate) allow_code_execution: bool,
    /// Threads [default: one for each fast core]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) threads: Option<u16>,
    /// Print as JSON
    #[arg(long)]
    pub(crate) json: bool,
}
