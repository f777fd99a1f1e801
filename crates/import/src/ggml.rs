//! Whisper files of whisper.cpp (`ggml-base.en.bin` and its like).
//!
//! All little-endian: the magic number, eleven 32-bit sizes, the mel filters, the tokens without the special ones, and to the
//! end of the file tensors: u32 rank, u32 length of the name, u32 type, u32 sizes with the contiguous one first, name, data.
//! Written from whisper.cpp's conversion (`models/convert-pt-to-ggml.py`) and what files in circulation hold. The names are
//! those of OpenAI's implementation.
//!
//! A file does not say which tokens are never written, nor which heads follow the sound: the former are found in its
//! vocabulary, the latter are known for OpenAI's models by their sizes.

use crate::cursor::Cursor;
use crate::named::{NamedSource, Place, Stored, in_file};
use crate::ranks::{self, Ranks};
use crate::{Error, Result, SharedBytes, SourceModel, open_bytes};
use cactus_quant::gguf::GgmlType;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;

/// The first four bytes of a file: `ggml` as a number.
pub const MAGIC: [u8; 4] = *b"lmgg";

/// Largest rank of a tensor.
const MAX_RANK: usize = 4;
/// Files of block types say by this factor which layout of blocks they have.
const LAYOUT_FACTOR: usize = 1000;
/// The layout that GGUF has, too.
const LAYOUT: usize = 2;

/// The sizes at the beginning of a file, in their order.
#[derive(Debug)]
struct Sizes {
    vocab: usize,
    audio_context: usize,
    audio_heads: usize,
    audio_layers: usize,
    text_context: usize,
    text_state: usize,
    text_heads: usize,
    text_layers: usize,
    mels: usize,
    kind: usize,
}

struct File<'a> {
    sizes: Sizes,
    tokens: Vec<&'a [u8]>,
    tensors: BTreeMap<String, Place>,
}

impl<'a> File<'a> {
    fn parse(bytes: &'a [u8]) -> Result<File<'a>> {
        let mut cursor = Cursor::new(bytes);
        if cursor.take(4).ok() != Some(&MAGIC[..]) {
            return Err(Error::malformed("not a file of whisper.cpp: it does not start with its number").at_offset(0));
        }
        let mut all = [0usize; 11];
        for slot in &mut all {
            *slot = cursor.u32()? as usize;
        }
        let [vocab, audio_context, audio_state, audio_heads, audio_layers, rest @ ..] = all;
        let [text_context, text_state, text_heads, text_layers, mels, kind] = rest;
        let sizes = Sizes {
            vocab,
            audio_context,
            audio_heads,
            audio_layers,
            text_context,
            text_state,
            text_heads,
            text_layers,
            mels,
            kind,
        };
        if audio_state != text_state {
            let what = format!(
                "the encoder is {audio_state} wide and the decoder {text_state}; expected equal widths, as Whisper has"
            );
            return Err(Error::unsupported(what).at_offset(12));
        }
        // The filters follow from the number of bands.
        let (filters, width) = (cursor.u32()? as usize, cursor.u32()? as usize);
        let filters = filters.checked_mul(width).and_then(|n| n.checked_mul(4));
        cursor.take(filters.unwrap_or(usize::MAX))?;
        let count = cursor.count_u32("tokens", 4)?;
        let mut tokens = Vec::with_capacity(count);
        for _ in 0..count {
            let len = cursor.count_u32("bytes of a token", 1)?;
            tokens.push(cursor.take(len)?);
        }
        let mut tensors = BTreeMap::new();
        while cursor.remaining() > 0 {
            let start = cursor.at;
            let (name, place) = tensor(&mut cursor, &sizes)?;
            if tensors.insert(name.clone(), place).is_some() {
                return Err(Error::malformed("the name occurs twice")
                    .of_tensor(name)
                    .at_offset(start));
            }
        }
        Ok(File { sizes, tokens, tensors })
    }

    /// The configuration in the convention of `transformers`.
    fn config(&self) -> Result<Value> {
        let s = &self.sizes;
        let width = |side: &str| -> Result<usize> {
            let name = format!("{side}.blocks.0.mlp.0.weight");
            match self.tensors.get(&name).map(|p| &p.shape[..]) {
                Some(&[n, _]) => Ok(n),
                _ => Err(Error::missing("the file has no such matrix").of_tensor(name)),
            }
        };
        Ok(json!({
            "model_type": "whisper", "architectures": ["WhisperForConditionalGeneration"], "d_model": s.text_state,
            "num_mel_bins": s.mels, "vocab_size": s.vocab, "max_source_positions": s.audio_context,
            "max_target_positions": s.text_context, "encoder_layers": s.audio_layers, "decoder_layers": s.text_layers,
            "encoder_attention_heads": s.audio_heads, "decoder_attention_heads": s.text_heads,
            "encoder_ffn_dim": width("encoder")?, "decoder_ffn_dim": width("decoder")?,
            "activation_function": "gelu", "scale_embedding": false, "tie_word_embeddings": true,
        }))
    }

    /// The weights under the names and shapes of `transformers`.
    fn weights(&self) -> Result<BTreeMap<String, Place>> {
        let mut out = BTreeMap::new();
        for (name, place) in &self.tensors {
            let Some(to) = hugging_face_name(name) else {
                let what = "Whisper has no such tensor, and leaving it out could change the model";
                return Err(Error::unsupported(what).of_tensor(name.as_str()));
            };
            // Biases of convolutions are columns.
            let place = match (name.ends_with("bias"), &place.shape[..]) {
                (true, &[n, 1]) => place.reshaped(&[n]),
                _ => Ok(place.clone()),
            };
            out.insert(to, place.map_err(|e| e.of_tensor(name.as_str()))?);
        }
        Ok(out)
    }

    /// Heads of cross attention that follow the sound, known by the sizes of OpenAI's models (published with each in
    /// `whisper/__init__.py`). The first and the second large model have the same sizes, so theirs are left out.
    fn alignment_heads(&self) -> Option<Vec<[usize; 2]>> {
        let s = &self.sizes;
        let english = s.vocab == 51_864;
        let heads: &[(usize, &[usize])] = match (s.audio_layers, s.text_layers, english, s.mels) {
            (4, 4, true, 80) => &[(1, &[0]), (2, &[0, 5]), (3, &[0, 1, 2, 3, 4])],
            (4, 4, false, 80) => &[(2, &[2]), (3, &[0, 2, 3, 4, 5])],
            (6, 6, true, 80) => &[(3, &[3]), (4, &[7]), (5, &[1, 5, 7])],
            (6, 6, false, 80) => &[(3, &[1]), (4, &[2, 3, 7]), (5, &[1, 2, 4, 6])],
            (12, 12, true, 80) => &[
                (6, &[6]),
                (7, &[0, 3, 8]),
                (8, &[2, 5, 7]),
                (9, &[0, 4, 8, 10]),
                (10, &[0, 1, 2, 3, 6, 11]),
                (11, &[2, 4]),
            ],
            (12, 12, false, 80) => &[(5, &[3, 9]), (8, &[0, 4, 7, 8]), (9, &[0, 7, 9]), (10, &[5])],
            (24, 24, true, 80) => &[
                (11, &[4]),
                (14, &[1, 12, 14]),
                (15, &[4]),
                (16, &[0, 4, 9]),
                (17, &[12, 14]),
                (18, &[7, 10, 15]),
                (20, &[0, 3, 9, 14]),
                (21, &[12]),
            ],
            (24, 24, false, 80) => &[(13, &[15]), (15, &[4, 15]), (16, &[1]), (20, &[0]), (23, &[4])],
            (32, 32, false, 128) => &[
                (7, &[0]),
                (10, &[17]),
                (12, &[18]),
                (13, &[12]),
                (16, &[1]),
                (17, &[14]),
                (19, &[11]),
                (21, &[4]),
                (24, &[1]),
                (25, &[6]),
            ],
            (32, 4, false, 128) => &[(2, &[4, 11]), (3, &[3, 6, 11, 14])],
            _ => return None,
        };
        let pairs = heads
            .iter()
            .flat_map(|(layer, heads)| heads.iter().map(|head| [*layer, *head]));
        Some(pairs.collect())
    }
}

fn tensor(cursor: &mut Cursor<'_>, sizes: &Sizes) -> Result<(String, Place)> {
    let start = cursor.at;
    let rank = cursor.u32()? as usize;
    if rank > MAX_RANK {
        let what = format!("a tensor has at most {MAX_RANK} axes, found {rank}");
        return Err(Error::malformed(what).at_offset(start));
    }
    let len = cursor.count_u32("bytes of a name", 1)?;
    let ty = cursor.u32()?;
    let mut shape = Vec::with_capacity(rank);
    for _ in 0..rank {
        shape.push(cursor.u32()? as usize);
    }
    shape.reverse();
    let name = std::str::from_utf8(cursor.take(len)?)
        .map_err(|e| {
            Error::malformed("a tensor's name is not UTF-8")
                .at_offset(start)
                .caused_by(e)
        })?
        .to_owned();
    let fail = |e: Error| e.of_tensor(name.as_str()).at_offset(start);
    let Some(ty) = GgmlType::from_id(ty) else {
        let known = GgmlType::name_of_id(ty).map_or_else(|| format!("number {ty}"), str::to_owned);
        return Err(fail(Error::unsupported(format!("the type {known} is not supported"))));
    };
    let layout = sizes.kind / LAYOUT_FACTOR;
    if ty.block_elems() > 1 && layout != LAYOUT {
        let what = format!(
            "blocks of layout {layout} are not supported, expected {LAYOUT}; quantize the model again with a current whisper.cpp, or take the one of half precision"
        );
        return Err(fail(Error::unsupported(what)));
    }
    let place = Place::new(cursor.at, cursor.bytes.len(), Stored::Blocks(ty), shape).map_err(fail)?;
    cursor.take(place.range.len())?;
    Ok((name, place))
}

/// A name of OpenAI's implementation as that of `transformers`.
fn hugging_face_name(name: &str) -> Option<String> {
    let (side, rest) = name.split_once('.')?;
    let norm = match side {
        "encoder" => "ln_post",
        "decoder" => "ln",
        _ => return None,
    };
    let at = format!("model.{side}");
    match rest {
        "positional_embedding" => return Some(format!("{at}.embed_positions.weight")),
        "token_embedding.weight" if side == "decoder" => return Some(format!("{at}.embed_tokens.weight")),
        _ => {}
    }
    let (module, part) = rest.rsplit_once('.').filter(|(_, p)| ["weight", "bias"].contains(p))?;
    if module == norm {
        return Some(format!("{at}.layer_norm.{part}"));
    }
    if ["conv1", "conv2"].contains(&module) && side == "encoder" {
        return Some(format!("{at}.{module}.{part}"));
    }
    let (layer, module) = module.strip_prefix("blocks.")?.split_once('.')?;
    let layer: usize = layer.parse().ok()?;
    let to = match module {
        "attn_ln" => "self_attn_layer_norm",
        "cross_attn_ln" => "encoder_attn_layer_norm",
        "mlp_ln" => "final_layer_norm",
        "mlp.0" => "fc1",
        "mlp.2" => "fc2",
        other => {
            let (attention, linear) = other.split_once('.')?;
            let linear = match linear {
                "query" => "q_proj",
                "key" => "k_proj",
                "value" => "v_proj",
                "out" => "out_proj",
                _ => return None,
            };
            return match attention {
                "attn" => Some(format!("{at}.layers.{layer}.self_attn.{linear}.{part}")),
                "cross_attn" => Some(format!("{at}.layers.{layer}.encoder_attn.{linear}.{part}")),
                _ => None,
            };
        }
    };
    Some(format!("{at}.layers.{layer}.{to}.{part}"))
}

/// Whether a file begins as those of whisper.cpp do.
pub fn is_file(path: &Path) -> bool {
    let mut magic = [0; 4];
    let read = std::fs::File::open(path).and_then(|mut file| std::io::Read::read_exact(&mut file, &mut magic));
    read.is_ok() && magic == MAGIC
}

/// Opens a Whisper file of whisper.cpp.
///
/// # Errors
/// [`crate::ErrorKind::Malformed`] where the file breaks its format, [`crate::ErrorKind::Unsupported`] for a type of tensor, a
/// layout of blocks or a vocabulary that is not known.
pub fn open_file(path: &Path) -> Result<SourceModel> {
    read(path, open_bytes(path)?)
}

/// As [`open_file`], given the bytes; `path` is for messages.
///
/// # Errors
/// As [`open_file`].
pub fn read(path: &Path, bytes: SharedBytes) -> Result<SourceModel> {
    let file = in_file(File::parse((*bytes).as_ref()), path)?;
    let config = in_file(file.config(), path)?;
    let ranks = in_file(Ranks::new(file.tokens.clone()), path)?;
    let made = in_file(ranks::whisper(&ranks, file.sizes.vocab), path)?;
    let mut generation_config = made.generation_config;
    if let Some(heads) = file.alignment_heads() {
        generation_config.insert("alignment_heads".to_owned(), json!(heads));
    }
    let weights = in_file(file.weights(), path)?;
    drop(ranks);
    drop(file);
    bytes.intact()?;
    let source = NamedSource {
        path: path.to_path_buf(),
        bytes,
        weights,
        form: "whisper.cpp".to_owned(),
    };
    Ok(SourceModel {
        format: "ggml",
        config,
        generation_config: Value::Object(generation_config),
        front_end: json!({}),
        hearing: json!({}),
        sentence: None,
        tokenizer: Some(made.tokenizer),
        tensors: Box::new(source),
    })
}

#[cfg(test)]
mod tests;
