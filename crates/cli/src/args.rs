//! Commands and options, apart from what they do.

mod answer;
mod cactus;
mod capture;
mod corpus;
mod embed;
mod extract;
mod listen;
mod measure;
mod precision;
mod route;
mod transcribe;
mod transpile;
mod vad;

pub(crate) use answer::{AnswerArgs, Thinking, WrongArgument};
pub(crate) use cactus::CactusArgs;
use cactus_passes::Bits;
pub(crate) use capture::CaptureArgs;
use clap::{Args, Parser, Subcommand, ValueEnum};
pub(crate) use corpus::{AskArgs, CorpusArgs, FindArgs, IndexArgs, SearchArgs};
pub(crate) use embed::{EmbedArgs, RerankArgs, TextModelArgs};
pub(crate) use extract::ExtractArgs;
pub(crate) use listen::{CommitBy, ListenArgs, LiveArgs, LiveFormat};
pub(crate) use measure::{CalibrateArgs, CalibrateTask, EvalArgs, EvalTask};
pub(crate) use precision::{CalibrationArgs, ComparisonArgs, WidthArgs};
pub(crate) use route::{AuthCommand, RouteArgs, RouteCommand};
use std::path::PathBuf;
pub(crate) use transcribe::{AgainArgs, HearArgs, TranscribeArgs, TranscriptFormat};
pub(crate) use transpile::{TaskName, TranspileArgs};
pub(crate) use vad::{SpansFormat, VadArgs};

/// Run language models on this machine's CPU.
#[derive(Debug, Parser)]
#[command(name = "cactus", version, max_term_width = 100, propagate_version = true, after_help = START)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

const START: &str = "\
Start with `cactus run`: it downloads the default model the first time, and then you can chat.
A bundle is a folder with a converted model: its weights, its graph and its tokenizer.";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Answer a prompt, or chat if there is none
    Run(Box<RunArgs>),
    /// Transcribe recordings
    Transcribe(Box<TranscribeArgs>),
    /// Transcribe the microphone, live
    Listen(Box<ListenArgs>),
    /// Find where somebody speaks in recordings
    Vad(Box<VadArgs>),
    /// Compute embeddings of texts and images
    Embed(Box<EmbedArgs>),
    /// Put documents in order by how well they answer a query
    Rerank(Box<RerankArgs>),
    /// Keep an index of the documents in a folder, for searches by meaning and words
    Index(Box<IndexArgs>),
    /// Search the documents in a folder
    Search(Box<SearchArgs>),
    /// Ask a question about the documents in a folder; the answer names its sources
    #[command(
        mut_arg("context", |arg| arg.default_value("8192")),
        mut_arg("top", |arg| arg.help("Give the model this many pieces"))
    )]
    Ask(Box<AskArgs>),
    /// Serve models over HTTP, with the APIs of OpenAI, Anthropic and Ollama and a chat page
    #[command(after_help = SERVE, mut_arg("context", |arg| arg.default_value("8192")))]
    Serve(Box<ServeArgs>),
    /// Make a bundle from a GGUF file or a Hugging Face model
    Convert(ConvertArgs),
    /// Make a bundle from a PyTorch model, or from a program saved by torch.export (`.pt2`)
    Transpile(Box<TranspileArgs>),
    /// Show what is inside a bundle
    Inspect(InspectArgs),
    /// Measure speed, load time and memory
    Bench(BenchArgs),
    /// Measure matrix products on every instruction set of this CPU, and show which one is used
    Kernels(KernelsArgs),
    /// List known models, and what is in the cache
    List(ListArgs),
    /// Download a model into the cache
    Download(DownloadArgs),
    /// Delete a model from the cache
    Remove(RemoveArgs),
    /// Show the tokens of a text
    Tokenize(TokenizeArgs),
    /// Compute the perplexity of a model on a text file
    Score(ScoreArgs),
    /// Measure the quality of a bundle: perplexity, difference from another bundle, tasks
    Eval(EvalArgs),
    /// Show which requests were handed off, why, and for how much
    #[command(subcommand)]
    Route(RouteCommand),
    /// Keep the keys of models that others run
    #[command(subcommand)]
    Auth(AuthCommand),
    /// Learn from questions with known answers how sure a model's answers are, and keep that in its bundle
    Calibrate(CalibrateArgs),
    /// Write the text of a PDF as lines of JSON, a page in each, for other programs
    #[command(hide = true)]
    ExtractPdf(ExtractArgs),
}

const SERVE: &str = "\
Start with `cactus serve`, and open http://127.0.0.1:8080 in a browser.
Clients of OpenAI use the address http://127.0.0.1:8080/v1, those of Anthropic and Ollama
http://127.0.0.1:8080. Keys can also come from CACTUS_API_KEY, separated by commas, which keeps
them out of the list of processes.";

#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// Models to serve, named as for `cactus run` or `cactus transcribe`; the first of its kind answers where a request names none, and
    /// the first of all is loaded at once
    /// [default: as for `cactus run`]
    pub(crate) models: Vec<String>,
    /// If no model is named, take the small one: smollm2-135m-instruct
    #[arg(long, conflicts_with = "models")]
    pub(crate) small: bool,
    /// Address to listen on; 0.0.0.0 is every address of this machine
    #[arg(long, default_value = "127.0.0.1", value_name = "ADDRESS", help_heading = "Access")]
    pub(crate) host: std::net::IpAddr,
    /// Port to listen on; 0 is a free one
    #[arg(long, default_value_t = 8080, help_heading = "Access")]
    pub(crate) port: u16,
    /// Key that clients have to send; can be repeated [default: CACTUS_API_KEY, or none]
    #[arg(long, value_name = "KEY", help_heading = "Access")]
    pub(crate) api_key: Vec<String>,
    /// Name under which clients reach this server, beside addresses and localhost; `*` is any
    #[arg(long, value_name = "NAME", help_heading = "Access")]
    pub(crate) allow_host: Vec<String>,
    /// Origin of web pages that may use this server, such as `https://app.example`
    #[arg(long, value_name = "ORIGIN", help_heading = "Access")]
    pub(crate) allow_origin: Vec<String>,
    /// Certificate chain as a PEM file: connections are encrypted
    #[arg(long, value_name = "FILE", requires = "tls_key", help_heading = "Access")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// Private key as a PEM file
    #[arg(long, value_name = "FILE", requires = "tls_cert", help_heading = "Access")]
    pub(crate) tls_key: Option<PathBuf>,
    /// File that says who else may answer, what may leave, and for how much: models `local`, `auto` and `cloud:NAME` [default:
    /// nothing leaves]
    #[arg(long, value_name = "FILE", help_heading = "Access")]
    pub(crate) policy: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) cactus: CactusArgs,
    /// Tokens of a picture, for models whose pictures have several sizes: more show more and take longer [default: as each bundle says]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) image_tokens: Option<u32>,
    /// Folder where files and vector stores are kept: `/v1/files`, `/v1/vector_stores` and `file_search` [default: none are kept]
    #[arg(long, value_name = "FOLDER", help_heading = "Files")]
    pub(crate) data: Option<PathBuf>,
    /// Folder of documents that the chat page and `file_search` can search; its index is kept in it, as `cactus index` does; can be
    /// repeated
    #[arg(long, value_name = "FOLDER", help_heading = "Files")]
    pub(crate) documents: Vec<PathBuf>,
    /// Model of new vector stores and of folders, one of those that are served [default: the first that makes vectors]
    #[arg(long, value_name = "MODEL", help_heading = "Files")]
    pub(crate) embedder: Option<String>,
    /// Fetch the pictures and sounds that requests name by address, from public addresses alone and at most 12 MB each [default: no address is
    /// fetched]
    #[arg(long, help_heading = "Files")]
    pub(crate) fetch_media: bool,
    /// Longest file that is kept
    #[arg(long, default_value = "16MB", value_name = "BYTES", value_parser = parse_bytes, help_heading = "Files")]
    pub(crate) max_file: u64,
    /// Most memory for all loaded models together, such as 4GB; idle ones are unloaded to make room [default: no limit]
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes, help_heading = "Limits")]
    pub(crate) max_memory: Option<u64>,
    /// Unload a model after so many minutes without a request [default: never]
    #[arg(long, value_name = "MINUTES", value_parser = clap::value_parser!(u32).range(1..), help_heading = "Limits")]
    pub(crate) idle: Option<u32>,
    /// Load the first model only when somebody asks for it
    #[arg(long, help_heading = "Limits")]
    pub(crate) lazy: bool,
    /// Requests to a model that are computed together
    #[arg(long, default_value_t = 32, value_name = "N", help_heading = "Limits")]
    pub(crate) parallel: usize,
    /// Requests to a model that may wait beside them; more are refused with status 429
    #[arg(long, default_value_t = 512, value_name = "N", help_heading = "Limits")]
    pub(crate) queue: usize,
    /// Tokens of all requests and cached prefixes together that a model keeps [default: as memory allows]
    #[arg(long, value_name = "TOKENS", help_heading = "Limits")]
    pub(crate) kv_tokens: Option<usize>,
    /// Longest body of a request
    #[arg(long, default_value = "16MB", value_name = "BYTES", value_parser = parse_bytes, help_heading = "Limits")]
    pub(crate) max_body: u64,
    /// Longest body of a request with a recording
    #[arg(long, default_value = "100MB", value_name = "BYTES", value_parser = parse_bytes, help_heading = "Limits")]
    pub(crate) max_audio: u64,
    /// Longest recording, and longest sound of a live session
    #[arg(long, default_value_t = 120, value_name = "MINUTES", value_parser = clap::value_parser!(u32).range(1..), help_heading = "Limits")]
    pub(crate) max_audio_minutes: u32,
    /// Recordings that are received, wait or are transcribed at once, and live sessions; more are refused with status 429
    #[arg(long, default_value_t = 8, value_name = "N", help_heading = "Limits")]
    pub(crate) recordings: usize,
    /// Longest time of an answer
    #[arg(long, default_value_t = 600, value_name = "SECONDS", help_heading = "Limits")]
    pub(crate) timeout: u64,
    /// Longest time that running answers get to finish when the server is told to stop
    #[arg(long, default_value_t = 30, value_name = "SECONDS", help_heading = "Limits")]
    pub(crate) drain: u64,
    #[command(flatten)]
    pub(crate) engine: EngineArgs,
    #[command(flatten)]
    pub(crate) source: SourceArgs,
}

/// Bytes with a unit: `512MB` (1 MB is 1e6 bytes), `4GiB` (1 GiB is 2^30).
fn parse_bytes(text: &str) -> Result<u64, String> {
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let factor = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1.0,
        "k" | "kb" => 1e3,
        "m" | "mb" => 1e6,
        "g" | "gb" => 1e9,
        "kib" => 1024.0,
        "mib" => 1048576.0,
        "gib" => 1073741824.0,
        _ => -1.0,
    };
    match number.parse::<f64>() {
        Ok(number) if factor > 0.0 && number > 0.0 => Ok((number * factor) as u64),
        _ => Err(format!(
            "expected bytes with a unit, such as 512MB or 4GB; found `{text}`"
        )),
    }
}

/// How a model that is no bundle yet is fetched and converted.
#[derive(Clone, Debug, Args)]
pub(crate) struct SourceArgs {
    /// Bits for each weight, if the model must be converted first
    #[arg(long, default_value = "8", value_name = "1|2|3|4|5|6|8|16|32")]
    pub(crate) bits: Bits,
    /// Below 8 bits, do not calibrate: faster, but much more quality is lost
    #[arg(long)]
    pub(crate) no_calibrate: bool,
    /// Hugging Face token, for gated models [default: HF_TOKEN, or the token that `hf auth login` saved]
    #[arg(long)]
    pub(crate) token: Option<String>,
    /// Never use the network
    #[arg(long)]
    pub(crate) offline: bool,
}

/// How a bundle is found and loaded.
#[derive(Clone, Debug, Args)]
pub(crate) struct ModelArgs {
    /// Bundle folder, GGUF file, address of one of them, Hugging Face folder or id, or the name of a known model [default:
    /// qwen2.5-1.5b-instruct, or smollm2-135m-instruct where the Hugging Face hub cannot be reached]
    pub(crate) model: Option<String>,
    /// If no model is named, take the small one: smollm2-135m-instruct
    #[arg(long, conflicts_with = "model")]
    pub(crate) small: bool,
    #[command(flatten)]
    pub(crate) source: SourceArgs,
    /// Convert again, even if the cache has a converted bundle
    #[arg(long)]
    pub(crate) reconvert: bool,
}

#[derive(Debug, Args)]
pub(crate) struct KernelsArgs {
    /// Rows, inputs and outputs of the product [default: several shapes from small language models]
    #[arg(value_name = "M,K,N")]
    pub(crate) shape: Option<String>,
    /// Format of the weights, such as int8_g32 or tcq3_g128 [default: 8 bits, 4 bits, half and single precision]
    #[arg(long)]
    pub(crate) packing: Option<String>,
    /// Number of threads
    #[arg(long, default_value = "1", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) threads: u16,
    /// Repetitions; the median is reported
    #[arg(long, default_value = "7")]
    pub(crate) reps: usize,
    /// Fail if the instruction set that is used is more than 10 % slower than the fastest
    #[arg(long)]
    pub(crate) assert: bool,
    /// Print the result as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct EngineArgs {
    /// Threads for reading the prompt [default: one for each fast core]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) threads: Option<u16>,
    /// Pin the threads to the fast cores
    #[arg(long)]
    pub(crate) pin: bool,
    /// Threads for generating the answer [default: the same as --threads]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) decode_threads: Option<u16>,
    /// Most tokens of prompt and answer together; the model has a limit of its own
    #[arg(long, default_value_t = 2048, value_name = "TOKENS")]
    pub(crate) context: usize,
    /// Prompt tokens processed in one pass
    #[arg(long, default_value_t = 128, value_name = "TOKENS")]
    pub(crate) chunk: usize,
    /// Number format of the KV cache
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
        _ => Err(format!(
            "expected an average from 2.125 to 16, such as auto:3.2; found `{average}`"
        )),
    }
}

fn parse_calibration_tokens(text: &str) -> Result<usize, String> {
    let least = cactus_quality::WINDOW;
    match text.parse() {
        Ok(tokens) if tokens >= least => Ok(tokens),
        _ => Err(format!(
            "expected at least {least} tokens, because the text is run in windows of {least}; found `{text}`"
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
    /// The prompt; `-` reads it from standard input. Without a prompt, a chat starts
    #[arg(long, short)]
    pub(crate) prompt: Option<String>,
    /// Show the model this picture (PNG, JPEG, WebP) with the prompt; can be repeated
    #[arg(long, visible_alias = "image-file", value_name = "FILE", conflicts_with_all = ["raw", "input_ids"])]
    pub(crate) image: Vec<PathBuf>,
    /// Tokens of a picture, for a model whose pictures have several sizes: more show more and take longer [default: as the bundle says]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) image_tokens: Option<u32>,
    /// Say what becomes of each picture: its views, their sizes, and how many tokens they are. With a folder, draw there what the model is given: each
    /// view with the squares of its tokens, as PNG. Frames of films are not drawn
    #[arg(long, requires = "image", value_name = "FOLDER", num_args = 0..=1, require_equals = true)]
    pub(crate) show_image_tokens: Option<Option<PathBuf>>,
    /// Play the model this sound (WAV, MP3, FLAC, Ogg, M4A) with the prompt; can be repeated
    #[arg(long, visible_alias = "audio-file", value_name = "FILE", conflicts_with_all = ["raw", "input_ids"])]
    pub(crate) audio: Vec<PathBuf>,
    /// Show the model this film with the prompt: a file, where the system has `ffmpeg`, or a folder of pictures, which are its frames by name; can
    /// be repeated
    #[arg(long, visible_alias = "video-file", value_name = "FILE", conflicts_with_all = ["raw", "input_ids"])]
    pub(crate) video: Vec<PathBuf>,
    /// Frames a second of a film that is a folder of pictures
    #[arg(long, value_name = "N", default_value_t = crate::film_file::USUAL_RATE, value_parser = crate::film_file::rate, requires = "video")]
    pub(crate) video_fps: f64,
    /// See at most this many frames of a film [default: as the bundle says]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), requires = "video")]
    pub(crate) video_frames: Option<u32>,
    /// Token ids to continue, instead of a prompt; separated by commas
    #[arg(long, value_delimiter = ',', value_name = "IDS", conflicts_with = "prompt")]
    pub(crate) input_ids: Option<Vec<u32>>,
    /// Input array, for a bundle that is a function; by name or position, can be repeated
    #[arg(long, value_name = "NAME=FILE.npy")]
    pub(crate) input: Vec<String>,
    /// Run only this component, on arrays or token ids [default: a language model generates; of a function, all
    /// components run in order]
    #[arg(long, value_name = "NAME")]
    pub(crate) component: Option<String>,
    /// Write each output of a function to this folder, as NAME.npy and as POSITION.npy
    #[arg(long, value_name = "FOLDER")]
    pub(crate) output_dir: Option<PathBuf>,
    /// System prompt
    #[arg(long)]
    pub(crate) system: Option<String>,
    /// Keep the conversation in this file: it goes on where the file says, and is saved after every answer
    #[arg(long, value_name = "FILE", conflicts_with_all = ["raw", "input_ids"])]
    pub(crate) session: Option<PathBuf>,
    /// Continue the prompt as plain text, without the model's chat template
    #[arg(long)]
    pub(crate) raw: bool,
    #[command(flatten)]
    pub(crate) answer: AnswerArgs,
    /// Generate at most this many tokens [default: 512]
    #[arg(long, alias = "max-tokens", value_name = "TOKENS", help_heading = "Generating")]
    pub(crate) max_new_tokens: Option<usize>,
    /// Randomness of the answer; 0 always takes the most likely token [default: as the model says, or 0]
    #[arg(long, allow_negative_numbers = true, help_heading = "Generating")]
    pub(crate) temperature: Option<f32>,
    /// Sample only from the most likely tokens whose probabilities add up to this; 1 is off [default: as the model says, or 1]
    #[arg(long, help_heading = "Generating")]
    pub(crate) top_p: Option<f32>,
    /// Sample only from this many of the most likely tokens; 0 is off [default: as the model says, or 0]
    #[arg(long, help_heading = "Generating")]
    pub(crate) top_k: Option<usize>,
    /// Sample only from tokens that are at least this fraction as likely as the best one; 0 is off [default: as the model says, or 0]
    #[arg(long, help_heading = "Generating")]
    pub(crate) min_p: Option<f32>,
    /// Sample only from the most typical tokens whose probabilities add up to this; 1 is off [default: as the model says, or 1]
    #[arg(long, help_heading = "Generating")]
    pub(crate) typical_p: Option<f32>,
    /// Make tokens that have occurred less likely; 1 is off [default: as the model says, or 1]
    #[arg(long, help_heading = "Generating")]
    pub(crate) repetition_penalty: Option<f32>,
    /// Make tokens less likely for each time they were generated [default: 0, which is off]
    #[arg(long, allow_negative_numbers = true, help_heading = "Generating")]
    pub(crate) frequency_penalty: Option<f32>,
    /// Make tokens less likely once they were generated [default: 0, which is off]
    #[arg(long, allow_negative_numbers = true, help_heading = "Generating")]
    pub(crate) presence_penalty: Option<f32>,
    /// Seed of the random numbers: the same seed gives the same answer [default: another one for each answer]
    #[arg(long, help_heading = "Generating")]
    pub(crate) seed: Option<u64>,
    /// End the answer at this text; can be repeated
    #[arg(long, value_name = "TEXT", help_heading = "Generating")]
    pub(crate) stop: Vec<String>,
    /// Keep generating after the model ends its answer
    #[arg(long, help_heading = "Generating")]
    pub(crate) ignore_eos: bool,
    /// Guess up to this many tokens at once (15 if no number is given) by looking for repeats in prompt and answer: the same
    /// answer, faster where text repeats
    #[arg(long, value_name = "TOKENS", num_args = 0..=1, default_missing_value = "15", help_heading = "Generating")]
    pub(crate) prompt_lookup: Option<usize>,
    /// Smaller model with the same vocabulary that guesses tokens: the same answer, faster where it guesses right
    #[arg(long, value_name = "MODEL", help_heading = "Generating")]
    pub(crate) draft_model: Option<String>,
    /// Print the log-probability of each token, and of the N likeliest alternatives
    #[arg(long, value_name = "N", help_heading = "Output")]
    pub(crate) logprobs: Option<usize>,
    /// When the context is full, drop the oldest tokens except the first four, instead of ending the answer
    #[arg(long, help_heading = "Generating")]
    pub(crate) rolling: bool,
    /// Print the result and timings as JSON
    #[arg(long, help_heading = "Output")]
    pub(crate) json: bool,
    /// Save the result and timings as JSON
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(crate) result_json: Option<PathBuf>,
    /// Check every byte of the bundle against its checksums first
    #[arg(long)]
    pub(crate) verify: bool,
    /// Print timings after each answer
    #[arg(long, short, help_heading = "Output")]
    pub(crate) verbose: bool,
    /// Print the time spent in each operation, and how long the threads of a decoder waited for each other
    #[arg(long, help_heading = "Output")]
    pub(crate) profile: bool,
    #[command(flatten)]
    pub(crate) route: RouteArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ConvertArgs {
    /// GGUF file or its address, Hugging Face folder or id, or the name of a known model. Of a state dict (.pt) or a single .safetensors file,
    /// only the weights are converted, for `cactus transpile --weights-dir`
    pub(crate) source: String,
    /// Folder to write the bundle to
    pub(crate) destination: PathBuf,
    /// Bits for each weight; with auto:AVERAGE, more bits for the matrices that need them most
    #[arg(long, default_value = "8", value_name = "1|2|3|4|5|6|8|16|32|auto:AVERAGE", value_parser = parse_bits)]
    pub(crate) bits: ConvertBits,
    #[command(flatten)]
    pub(crate) widths: WidthArgs,
    /// Merge this PEFT LoRA adapter into the weights first: a folder with `adapter_config.json` and
    /// `adapter_model.safetensors`
    #[arg(long, value_name = "FOLDER")]
    pub(crate) lora: Option<PathBuf>,
    /// The encoder of pictures that belongs to the model in a GGUF file: llama.cpp's `mmproj` file
    #[arg(long, value_name = "FILE.gguf")]
    pub(crate) mmproj: Option<PathBuf>,
    /// Of a file with networks for several rates (Silero VAD in ONNX: 16000 and 8000), take the one for this [default: the
    /// highest]
    #[arg(long, value_name = "HZ")]
    pub(crate) sample_rate: Option<u32>,
    /// Let a Parakeet hear recordings of hours as a whole, by attention that sees this many positions of 80 ms on each side.
    /// NVIDIA's own number is 256
    #[arg(long, value_name = "POSITIONS")]
    pub(crate) attention_context: Option<usize>,
    /// What stands before texts that are searched with, of a model that makes vectors [default: as its folder says]
    #[arg(long, value_name = "TEXT")]
    pub(crate) query_prompt: Option<String>,
    /// What stands before texts that are searched for, of a model that makes vectors [default: as its folder says]
    #[arg(long, value_name = "TEXT")]
    pub(crate) document_prompt: Option<String>,
    /// Take a model that was trained to say yes or no of a document (Qwen3-Reranker) as a reranker, where its folder does not say
    /// so
    #[arg(long)]
    pub(crate) rerank: bool,
    #[command(flatten)]
    pub(crate) calibration: CalibrationArgs,
    #[command(flatten)]
    pub(crate) comparison: ComparisonArgs,
    /// Replace an existing bundle, and write the new one even if its quality is below the floor
    #[arg(long, visible_alias = "reconvert")]
    pub(crate) force: bool,
    /// Hugging Face token, for gated models [default: HF_TOKEN, or the token that `hf auth login` saved]
    #[arg(long)]
    pub(crate) token: Option<String>,
    /// Never use the network
    #[arg(long)]
    pub(crate) offline: bool,
    #[command(flatten)]
    pub(crate) fusion: FusionArgs,
    /// Print a report of the conversion as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// What the passes may fuse.
#[derive(Debug, Args)]
pub(crate) struct FusionArgs {
    /// Do not fuse RMS norms
    #[arg(long)]
    no_fuse_rms_norm: bool,
    /// Do not fuse rotary embeddings
    #[arg(long)]
    no_fuse_rope: bool,
    /// Do not fuse attention
    #[arg(long)]
    no_fuse_attention: bool,
    /// Print which patterns were fused and where, and why a near match was not
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

#[derive(Debug, Args)]
pub(crate) struct InspectArgs {
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    /// Print the result as JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// List every tensor
    #[arg(long)]
    pub(crate) tensors: bool,
    /// Draw the graph to this file: .svg or .dot, or .txt for text
    #[arg(long, value_name = "FILE")]
    pub(crate) graph: Option<PathBuf>,
    /// Draw the graph as it was before optimization
    #[arg(long, requires = "graph")]
    pub(crate) raw: bool,
    /// Draw both graphs, the one before optimization on the left
    #[arg(long, requires = "graph", conflicts_with = "raw")]
    pub(crate) side_by_side: bool,
    /// Draw this component [default: the first]
    #[arg(long, value_name = "NAME", requires = "graph")]
    pub(crate) component: Option<String>,
    /// List the kernel calls that run the model
    #[arg(long)]
    pub(crate) program: bool,
    /// Read the whole bundle and check every checksum
    #[arg(long)]
    pub(crate) verify: bool,
}

#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    #[command(flatten)]
    pub(crate) engine: EngineArgs,
    /// Measure this component alone, as a function, on made-up inputs: of a model that hears, `encoder`. Sizes that vary are those
    /// of `--prefill`
    #[arg(long, conflicts_with_all = ["decode", "depth", "streams"])]
    pub(crate) component: Option<String>,
    /// Number of prompt tokens
    #[arg(long, default_value_t = 1024)]
    pub(crate) prefill: usize,
    /// Number of generated tokens
    #[arg(long, default_value_t = 100)]
    pub(crate) decode: usize,
    /// Tokens already in the context when generating starts; several numbers, separated by commas, are measured in turn
    #[arg(long, default_value = "0", value_delimiter = ',')]
    pub(crate) depth: Vec<usize>,
    /// Also measure so many answers generated at the same time, and show the tokens of all of them in a second; several
    /// numbers, separated by commas
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u16).range(1..=128))]
    pub(crate) streams: Vec<u16>,
    /// Repetitions; the median is reported
    #[arg(long, default_value_t = 5)]
    pub(crate) reps: usize,
    /// Print the result as JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Print the time spent in each operation, and how long the threads of a decoder waited for each other
    #[arg(long)]
    pub(crate) profile: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// Print the result as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DownloadArgs {
    /// Name of a known model, Hugging Face id, address of a GGUF file or of a bundle's folder, or local path [default: as for `cactus run`]
    pub(crate) model: Option<String>,
    /// If no model is named, take the small one: smollm2-135m-instruct
    #[arg(long, conflicts_with = "model")]
    pub(crate) small: bool,
    /// Hugging Face token, for gated models [default: HF_TOKEN, or the token that `hf auth login` saved]
    #[arg(long)]
    pub(crate) token: Option<String>,
    /// Print the result as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RemoveArgs {
    /// Name of the model, as `cactus list` shows it
    pub(crate) model: String,
}

#[derive(Debug, Args)]
pub(crate) struct TokenizeArgs {
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    /// The text; `-` reads it from standard input
    #[arg(long, short)]
    pub(crate) text: Option<String>,
    /// Read the text from a file
    #[arg(long, conflicts_with = "text")]
    pub(crate) file: Option<PathBuf>,
    /// Turn these token ids, separated by commas, into text instead
    #[arg(long, value_delimiter = ',', conflicts_with_all = ["text", "file"])]
    pub(crate) decode: Vec<u32>,
    /// Do not add the model's special tokens around the text
    #[arg(long)]
    pub(crate) no_special: bool,
    /// Print the result as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ScoreArgs {
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    /// Number of threads [default: one for each fast core]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) threads: Option<u16>,
    /// The text file
    #[arg(long, short)]
    pub(crate) file: PathBuf,
    /// Window length in tokens; the second half of each window is scored
    #[arg(long, default_value_t = 512)]
    pub(crate) context: usize,
    /// Score at most this many windows [default: all]
    #[arg(long)]
    pub(crate) chunks: Option<usize>,
    /// Number format of the KV cache
    #[arg(long, value_enum, default_value_t = Kv::Int8)]
    pub(crate) kv: Kv,
    /// Print the result as JSON
    #[arg(long)]
    pub(crate) json: bool,
}
