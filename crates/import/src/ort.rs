//! Moonshine as its package carries it: a folder with two programs of ONNX Runtime (`encoder_model.ort`,
//! `decoder_model_merged.ort`) and the tokens (`tokenizer.bin`).
//!
//! A program is a FlatBuffer, of which the constants are read and the nodes that use them: matrices have 8 bits with one scale and one
//! zero point, `[in, out]`, and no names but those of the nodes, such as `/layers.0/self_attn/q_proj/MatMul_quant`. The other
//! weights have the names of PyTorch. In the programs of some models all weights have 8 bits but for norms and biases, and a sum in
//! place of a zero point (`.../q_proj/MatMul` reads what a `..._add_node` gives). The heads are found by the shapes of keys, and the
//! rotary embedding by its frequencies. Written from what the files of `moonshine-voice` and `moonshine-cpp` hold and the schema of
//! ONNX Runtime (`ort.fbs`).

use crate::flat::{Buffer, Table};
use crate::{Error, Result, SharedBytes, SourceModel, TensorSource, TokenizerFiles, open_bytes};
use cactus_tensor::Tensor;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::{Path, PathBuf};

const ENCODER: &str = "encoder_model.ort";
const DECODER: &str = "decoder_model_merged.ort";
const TOKENS: &str = "tokenizer.bin";
/// Where the encoder's weights lie in the whole model.
const ENCODER_PREFIX: &str = "model.encoder.";
/// Positions of the decoder, which no file says (`max_position_embeddings` of the published models).
const CONTEXT: usize = 194;
/// Branches within branches that are looked into; a decoder is one branch.
const MAX_DEPTH: usize = 3;
/// Types of elements, as in ONNX.
const F32: i32 = 1;
const U8: i32 = 2;
const I8: i32 = 3;
const I64: i32 = 7;
/// Special tokens, which come first; then 256 bytes.
const SPECIAL: [&str; 3] = ["<unk>", "<s>", "</s>"];
/// Stands for a space in tokens.
const SPACE: char = '\u{2581}';
/// Longest token of which merges are made.
const MAX_TOKEN_CHARS: usize = 256;

/// Whether a folder holds such a model.
pub(crate) fn is_folder(path: &Path) -> bool {
    [ENCODER, DECODER, TOKENS].iter().all(|name| path.join(name).is_file())
}

/// Opens the folder.
///
/// # Errors
/// What is damaged, missing, or of another shape than Moonshine.
pub(crate) fn open_folder(path: &Path) -> Result<SourceModel> {
    let files = [path.join(ENCODER), path.join(DECODER)];
    let [encoder, decoder] = [open_bytes(&files[0])?, open_bytes(&files[1])?];
    let (config, source) = read([&files[0], &files[1]], [encoder, decoder])?;
    let tokens = path.join(TOKENS);
    let bytes = open_bytes(&tokens)?;
    let tokenizer_json = tokenizer(bytes.as_ref().as_ref()).map_err(|e| e.in_file(&tokens))?;
    Ok(SourceModel {
        format: "onnxruntime",
        generation_config: json!({"decoder_start_token_id": 1, "bos_token_id": 1, "eos_token_id": 2}),
        config,
        front_end: json!({}),
        hearing: json!({}),
        sentence: None,
        tokenizer: Some(TokenizerFiles {
            tokenizer_json: serde_json::to_vec(&tokenizer_json).unwrap_or_default(),
            tokenizer_config: json!({"add_bos_token": true, "bos_token": SPECIAL[1], "eos_token": SPECIAL[2]}),
            chat_template: None,
        }),
        tensors: Box::new(source),
    })
}

/// The configuration and weights of an encoder and a decoder; `paths` are for messages.
///
/// # Errors
/// [`crate::ErrorKind::Malformed`] where the bytes break the format, [`crate::ErrorKind::Missing`] for a tensor that is not
/// there, [`crate::ErrorKind::Unsupported`] for another kind of model.
pub fn read(paths: [&Path; 2], bytes: [SharedBytes; 2]) -> Result<(Value, OrtSource)> {
    let mut weights = BTreeMap::new();
    let mut found = Vec::new();
    for (file, prefix) in [ENCODER_PREFIX, ""].into_iter().enumerate() {
        let mut parse = || {
            let program = Program::parse(bytes[file].as_ref().as_ref())?;
            program.weights(prefix, file, &mut weights)?;
            Ok(program)
        };
        let parsed = parse().map_err(|e: Error| e.in_file(paths[file]));
        bytes[file].intact()?;
        found.push(parsed?);
    }
    let source = OrtSource {
        paths: paths.map(Path::to_path_buf),
        bytes,
        weights,
    };
    let config = config(&source, &found[0], &found[1]).map_err(|e| e.in_file(paths[1]))?;
    Ok((config, source))
}

/// A constant of a program.
#[derive(Clone, Debug)]
struct Constant {
    shape: Vec<usize>,
    kind: i32,
    range: Range<usize>,
}

struct Node {
    name: String,
    inputs: Vec<String>,
}

struct Program {
    constants: BTreeMap<String, Constant>,
    nodes: Vec<Node>,
    /// Frequencies of the rotary embedding.
    frequencies: Vec<f32>,
    /// Heads of attention and the width of one, where the program has them as numbers.
    heads: Option<[usize; 2]>,
}

impl Program {
    fn parse(bytes: &[u8]) -> Result<Program> {
        if bytes.get(4..8) != Some(b"ORTM") {
            return Err(Error::malformed("not a program of ONNX Runtime: `ORTM` is not at its beginning").at_offset(4));
        }
        let buffer = Buffer::new(bytes);
        let model = buffer.root()?.table(1)?;
        let graph = model.map(|m| m.table(7)).transpose()?.flatten();
        let graph = graph.ok_or_else(|| Error::malformed("the program has no graph"))?;
        let mut program = Program {
            constants: BTreeMap::new(),
            nodes: Vec::new(),
            frequencies: Vec::new(),
            heads: None,
        };
        program.add(graph, 0)?;
        let made = ["rotary_emb/Expand", "rotary_emb/MatMul"];
        let expand = program.nodes.iter().find(|n| made.iter().any(|m| n.name.ends_with(m)));
        let table = expand.and_then(|n| program.constants.get(n.inputs.first()?));
        if let Some(table) = table.filter(|t| t.kind == F32) {
            program.frequencies = floats(&bytes[table.range.clone()]);
        }
        // The last sizes that the keys of the first layer get.
        let sizes = program.nodes.iter().find(|n| n.name == "/layers.0/self_attn/Concat");
        if let Some([.., heads, width]) = sizes.map(|n| &n.inputs[..]) {
            let number = |name: &String| {
                let constant = program.constants.get(name).filter(|c| c.kind == I64)?;
                let value = bytes[constant.range.clone()].first_chunk::<8>()?;
                usize::try_from(i64::from_le_bytes(*value)).ok()
            };
            program.heads = number(heads).zip(number(width)).map(<[usize; 2]>::from);
        }
        Ok(program)
    }

    fn add(&mut self, graph: Table<'_>, depth: usize) -> Result<()> {
        for tensor in graph.tables(0)? {
            let name = tensor.text(0)?;
            let constant = constant(&tensor).map_err(|e| e.of_tensor(name))?;
            self.constants.entry(name.to_owned()).or_insert(constant);
        }
        for node in graph.tables(2)? {
            let inputs = node.texts(8)?.into_iter().map(str::to_owned).collect();
            let name = node.text(0)?.to_owned();
            self.nodes.push(Node { name, inputs });
            for attribute in node.tables(10)? {
                match attribute.table(7)? {
                    Some(inner) if depth < MAX_DEPTH => self.add(inner, depth + 1)?,
                    Some(_) => return Err(Error::unsupported("branches lie too deep in each other")),
                    None => {}
                }
            }
        }
        Ok(())
    }

    /// The weights by the names of `transformers`, which begin with `prefix`.
    fn weights(&self, prefix: &str, file: usize, out: &mut BTreeMap<String, Weight>) -> Result<()> {
        let mut add = |name: String, weight: Weight| match out.insert(name.clone(), weight) {
            None => Ok(()),
            Some(_) => Err(Error::malformed("two weights have this name").of_tensor(name)),
        };
        for (name, constant) in &self.constants {
            // What a program was made of from two leaves a mark behind the names, and so do passes over weights.
            let (name, is_quantized) = match name.strip_suffix("_quantized") {
                Some(name) => (name, true),
                None => (name.as_str(), false),
            };
            let name = name.strip_suffix("_add_tensor").unwrap_or(name);
            let mark = name.rsplit_once("_merged_").filter(|(_, n)| n.parse::<u32>().is_ok());
            let plain = mark.map_or(name, |(name, _)| name);
            if !(plain.ends_with(".weight") || plain.ends_with(".bias")) {
                continue;
            }
            let weight = match is_quantized {
                true => self.quantized(name, constant, file, false)?,
                false => Weight::plain(constant, file, constant.shape.clone()),
            };
            add(format!("{prefix}{}", renamed(plain)), weight.of_tensor(name)?)?;
        }
        let mut seen = BTreeSet::new();
        for node in &self.nodes {
            let path = node.name.trim_start_matches('/');
            let of = |input: &'_ String| -> Option<(String, &Constant)> {
                Some((input.clone(), self.constants.get(input)?))
            };
            let matrix = path.strip_suffix("/MatMul_quant").or_else(|| {
                let is_weight = |name: &String| {
                    let made = name.strip_suffix("_add_tensor");
                    made.is_some_and(|name| self.constants.contains_key(&format!("{name}_quantized")))
                };
                path.strip_suffix("/MatMul")
                    .filter(|_| node.inputs.iter().any(is_weight))
            });
            let norm = match path {
                "groupnorm/Mul" => Some("weight"),
                "groupnorm/Add" => Some("bias"),
                _ => None,
            };
            if let Some(module) = matrix.filter(|m| seen.insert(*m)) {
                let found = node.inputs.iter().find_map(|input| {
                    let made = input
                        .strip_suffix("_quantized")
                        .or_else(|| input.strip_suffix("_add_tensor"))?;
                    Some((made.to_owned(), self.constants.get(&format!("{made}_quantized"))?))
                });
                let Some((name, constant)) = found else {
                    return Err(Error::unsupported("expected a matrix of 8 bits").of_tensor(module));
                };
                let weight = self.quantized(&name, constant, file, true)?;
                add(format!("{prefix}{}.weight", renamed(&module.replace('/', "."))), weight)?;
            } else if let Some(what) = norm {
                let Some((name, constant)) = node.inputs.iter().find_map(of) else {
                    return Err(Error::missing("the norm has no constants").of_tensor(path));
                };
                let channels = constant.shape.iter().product();
                let weight = Weight::plain(constant, file, vec![channels]).of_tensor(&name)?;
                add(format!("{prefix}groupnorm.{what}"), weight)?;
            }
        }
        Ok(())
    }

    /// The weight `{name}_quantized` with its scale and zero point.
    fn quantized(&self, name: &str, constant: &Constant, file: usize, transposed: bool) -> Result<Weight> {
        let one = |suffix: &str, kinds: &[i32]| {
            let found = self.constants.get(&format!("{name}_{suffix}"));
            let found = found.filter(|c| kinds.contains(&c.kind) && c.shape.iter().product::<usize>() == 1);
            let what = || Error::unsupported(format!("expected one `{suffix}` for the whole matrix")).of_tensor(name);
            found.map(|c| c.range.clone()).ok_or_else(what)
        };
        let shape = match (&constant.shape[..], constant.kind) {
            (&[rows, columns], U8 | I8) if transposed => vec![columns, rows],
            (shape @ ([_, _] | [_, _, _]), U8 | I8) if !transposed => shape.to_vec(),
            _ => return Err(Error::unsupported("expected a matrix of 8 bits").of_tensor(name)),
        };
        let is_sum = self
            .constants
            .get(&format!("{name}_zero_point"))
            .is_some_and(|c| c.kind == F32);
        let zero = if is_sum { F32 } else { constant.kind };
        Ok(Weight {
            file,
            range: constant.range.clone(),
            shape,
            kind: constant.kind,
            quantized: Some(Quantized {
                scale: one("scale", &[F32])?,
                zero: one("zero_point", &[zero])?,
                is_sum,
                transposed,
            }),
        })
    }
}

fn constant(tensor: &Table<'_>) -> Result<Constant> {
    let shape: Option<Vec<usize>> = tensor.i64s(2)?.into_iter().map(|n| usize::try_from(n).ok()).collect();
    let shape = shape.ok_or_else(|| Error::malformed("a size is negative"))?;
    let (kind, range) = (tensor.i32(3)?, tensor.list(4, 1)?);
    let elements = shape.iter().try_fold(1usize, |n, &d| n.checked_mul(d));
    let Some(elements) = elements else {
        let what = format!("the shape {shape:?} has too many elements");
        return Err(Error::malformed(what).at_offset(range.start));
    };
    let size = match kind {
        F32 => 4,
        U8 | I8 => 1,
        // Sizes and indices, which no weight is made of.
        _ => 0,
    };
    if size > 0 && elements.checked_mul(size) != Some(range.len()) {
        let what = format!("the shape {shape:?} does not fit {} bytes", range.len());
        return Err(Error::malformed(what).at_offset(range.start));
    }
    Ok(Constant { shape, kind, range })
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    let numbers = bytes.chunks_exact(4);
    // Invariant: chunks of 4 bytes.
    numbers
        .map(|b| f32::from_le_bytes(b.try_into().expect("4 bytes")))
        .collect()
}

/// The name of a module or weight in `transformers`, where some programs have another.
fn renamed(name: &str) -> String {
    name.replace(".mlp.up_proj", ".mlp.fc1")
        .replace(".mlp.down_proj", ".mlp.fc2")
        .replace("_attn.dense", "_attn.o_proj")
}

#[derive(Clone, Debug)]
struct Quantized {
    scale: Range<usize>,
    zero: Range<usize>,
    /// Whether the zero point is added to the products, and not taken from the numbers.
    is_sum: bool,
    /// Stored `[in, out]`.
    transposed: bool,
}

#[derive(Clone, Debug)]
struct Weight {
    file: usize,
    range: Range<usize>,
    shape: Vec<usize>,
    kind: i32,
    quantized: Option<Quantized>,
}

impl Weight {
    fn plain(constant: &Constant, file: usize, shape: Vec<usize>) -> Weight {
        Weight {
            file,
            range: constant.range.clone(),
            shape,
            kind: constant.kind,
            quantized: None,
        }
    }

    /// Refuses types that this is not written for.
    fn of_tensor(self, name: &str) -> Result<Weight> {
        match self.kind == F32 || self.quantized.is_some() {
            true => Ok(self),
            false => Err(Error::unsupported("expected numbers of 32 bits").of_tensor(name)),
        }
    }

    fn values(&self, bytes: &[u8]) -> Vec<f32> {
        let stored = &bytes[self.range.clone()];
        let Some(quantized) = &self.quantized else {
            return floats(stored);
        };
        let scale = floats(&bytes[quantized.scale.clone()]).first().copied().unwrap_or(0.0);
        let number = |b: u8| match self.kind {
            I8 => f32::from(b.cast_signed()),
            _ => f32::from(b),
        };
        let zero = &bytes[quantized.zero.clone()];
        let (zero, sum) = match quantized.is_sum {
            true => (0.0, floats(zero).first().copied().unwrap_or(0.0)),
            false => (zero.first().map_or(0.0, |&b| number(b)), 0.0),
        };
        let value = |b: u8| (number(b) - zero) * scale + sum;
        match (quantized.transposed, &self.shape[..]) {
            (true, &[n, k]) => (0..n)
                .flat_map(|row| (0..k).map(move |column| column * n + row))
                .map(|at| value(stored[at]))
                .collect(),
            _ => stored.iter().map(|&b| value(b)).collect(),
        }
    }
}

/// The weights of both programs.
pub struct OrtSource {
    paths: [PathBuf; 2],
    bytes: [SharedBytes; 2],
    weights: BTreeMap<String, Weight>,
}

impl std::fmt::Debug for OrtSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("OrtSource").field(&self.describe()).finish()
    }
}

impl TensorSource for OrtSource {
    fn names(&self) -> Vec<&str> {
        self.weights.keys().map(String::as_str).collect()
    }

    fn shape(&self, name: &str) -> Option<Vec<usize>> {
        self.weights.get(name).map(|w| w.shape.clone())
    }

    fn stored_type(&self, name: &str) -> Option<&'static str> {
        self.weights.get(name).map(Weight::name)
    }

    fn read(&self, name: &str) -> Result<Tensor> {
        let weight = self.weights.get(name);
        let weight = weight.ok_or_else(|| Error::missing("there is no such tensor").of_tensor(name))?;
        let bytes = &self.bytes[weight.file];
        let values = weight.values(bytes.as_ref().as_ref());
        bytes.intact()?;
        let tensor = Tensor::from_f32(weight.shape.clone(), values);
        let failed = |e| {
            Error::malformed("the data do not fit the shape")
                .of_tensor(name)
                .caused_by(e)
        };
        tensor.map_err(failed).map_err(|e| e.in_file(&self.paths[weight.file]))
    }

    fn describe(&self) -> String {
        let types = crate::source::count_types(self.weights.values().map(Weight::name));
        format!("Moonshine for ONNX Runtime, {} weights ({types})", self.weights.len())
    }

    fn files(&self) -> Vec<PathBuf> {
        self.paths.to_vec()
    }
}

impl Weight {
    fn name(&self) -> &'static str {
        match self.kind {
            U8 => "U8",
            I8 => "I8",
            _ => "F32",
        }
    }
}

/// The configuration that shapes and frequencies say.
fn config(source: &OrtSource, encoder: &Program, decoder: &Program) -> Result<Value> {
    let sizes = |name: &str| -> Result<[usize; 2]> {
        let shape = source.shape(name);
        let shape =
            shape.ok_or_else(|| Error::missing("there is no such tensor; expected Moonshine").of_tensor(name))?;
        shape[..]
            .try_into()
            .map_err(|_| Error::unsupported(format!("expected a matrix, found the shape {shape:?}")).of_tensor(name))
    };
    let layers = |side: &str| {
        let has = |i: &usize| {
            source
                .weights
                .contains_key(&format!("model.{side}.layers.{i}.input_layernorm.weight"))
        };
        (0..).take_while(has).count()
    };
    let [vocab, hidden] = sizes("model.decoder.embed_tokens.weight")?;
    let [intermediate, _] = sizes("model.encoder.layers.0.mlp.fc1.weight")?;
    let empty = decoder
        .constants
        .iter()
        .find(|(name, _)| name.ends_with(".encoder.key"));
    let heads = empty.and_then(|(_, keys)| match keys.shape[..] {
        [0, heads, 1, width] if heads.checked_mul(width) == Some(hidden) => Some((heads, width)),
        _ => None,
    });
    let fits = |[heads, width]: &[usize; 2]| heads.checked_mul(*width) == Some(hidden);
    let heads = heads.or(encoder.heads.filter(fits).map(<(usize, usize)>::from));
    let Some((heads, width)) = heads else {
        return Err(Error::missing(
            "the decoder has no empty keys, and the encoder no sizes of keys, which say how many heads there are",
        ));
    };
    let frequencies = &encoder.frequencies;
    let pairs = frequencies.len();
    let base = match frequencies.get(1) {
        Some(second) => f64::from(*second)
            .powi(-i32::try_from(pairs).unwrap_or(i32::MAX))
            .round(),
        None => 10_000.0,
    };
    let expected = |i: usize| base.powf(-(i as f64) / pairs as f64);
    let near = |(i, f): (usize, &f32)| (f64::from(*f) - expected(i)).abs() <= 1e-5 * expected(i);
    if pairs == 0 || 2 * pairs > width || !frequencies.iter().enumerate().all(near) {
        let what = "the frequencies of the rotary embedding are missing, or no powers of one number";
        return Err(Error::unsupported(what));
    }
    Ok(json!({
        "model_type": "moonshine", "vocab_size": vocab, "hidden_size": hidden, "intermediate_size": intermediate,
        "encoder_num_hidden_layers": layers("encoder"), "decoder_num_hidden_layers": layers("decoder"),
        "encoder_num_attention_heads": heads, "decoder_num_attention_heads": heads,
        "max_position_embeddings": CONTEXT, "rope_theta": base,
        // Of a head, this share is `2 * pairs` when it is rounded down.
        "partial_rotary_factor": (2.0 * pairs as f64 + 0.5).min(width as f64) / width as f64,
        "tie_word_embeddings": !source.weights.contains_key("proj_out.weight"),
        "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1,
    }))
}

/// `tokenizer.json` of the tokens in `bytes`: each after its length, of which large ones take two bytes.
fn tokenizer(bytes: &[u8]) -> Result<Value> {
    let tokens = tokens(bytes)?;
    if tokens.len() < SPECIAL.len() + 256 {
        let what = format!(
            "expected three special tokens, 256 bytes and others, found {} tokens",
            tokens.len()
        );
        return Err(Error::malformed(what));
    }
    let (mut vocab, mut special) = (Map::new(), Vec::new());
    for (id, token) in tokens.iter().enumerate() {
        let spelled = match id.checked_sub(SPECIAL.len()) {
            Some(byte @ 0..256) => format!("<0x{byte:02X}>"),
            _ if token.is_empty() => format!("<unused_{id}>"),
            _ => match std::str::from_utf8(token) {
                Ok(text) => text.to_owned(),
                Err(e) => return Err(Error::malformed(format!("token {id} is not UTF-8")).caused_by(e)),
            },
        };
        let is_special = id < SPECIAL.len() || token.is_empty() || spelled.starts_with("<<") && spelled.ends_with(">>");
        if is_special {
            special.push(
                json!({"id": id, "content": spelled, "single_word": false, "lstrip": false, "rstrip": false,
                "normalized": false, "special": true}),
            );
        }
        if vocab.insert(spelled, id.into()).is_some() {
            return Err(Error::malformed(format!("token {id} is there twice")));
        }
    }
    let merges = merges(&vocab, &tokens);
    let prepend = json!({"type": "Prepend", "prepend": SPACE});
    let replace = |from: char, to: char| json!({"type": "Replace", "pattern": {"String": from}, "content": to});
    Ok(json!({
        "version": "1.0", "truncation": null, "padding": null, "pre_tokenizer": null, "post_processor": null,
        "added_tokens": special,
        "normalizer": {"type": "Sequence", "normalizers": [prepend, replace(' ', SPACE)]},
        "decoder": {"type": "Sequence", "decoders": [replace(SPACE, ' '), {"type": "ByteFallback"}, {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
        "model": {"type": "BPE", "dropout": null, "unk_token": SPECIAL[0], "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": true, "byte_fallback": true, "vocab": vocab, "merges": merges},
    }))
}

fn tokens(bytes: &[u8]) -> Result<Vec<&[u8]>> {
    let (mut tokens, mut rest) = (Vec::new(), bytes);
    while let Some((&first, after)) = rest.split_first() {
        let (len, after) = match (first, after.split_first()) {
            (0..128, _) => (usize::from(first), after),
            (_, Some((&second, after))) => (usize::from(second) * 128 + usize::from(first) - 128, after),
            (_, None) => (usize::MAX, after),
        };
        let Some((token, after)) = after.split_at_checked(len) else {
            let at = bytes.len() - rest.len();
            return Err(Error::malformed("the file ends in the middle of a token").at_offset(at));
        };
        tokens.push(token);
        rest = after;
    }
    Ok(tokens)
}

/// What each token can be made of, in the order of ids, which is that of the ranks.
fn merges(vocab: &Map<String, Value>, tokens: &[&[u8]]) -> Vec<Value> {
    let id = |text: &str| vocab.get(text).and_then(Value::as_u64);
    let mut all = Vec::new();
    for token in tokens.iter().skip(SPECIAL.len() + 256) {
        let Some(text) = std::str::from_utf8(token).ok().filter(|t| t.len() <= MAX_TOKEN_CHARS) else {
            continue;
        };
        let splits = text.char_indices().skip(1).map(|(at, _)| text.split_at(at));
        let mut parts: Vec<_> = splits.filter_map(|(a, b)| Some((id(a)?, id(b)?, a, b))).collect();
        parts.sort_unstable();
        all.extend(parts.into_iter().map(|(.., a, b)| json!([a, b])));
    }
    all
}

#[cfg(test)]
mod tests;
