//! Whisper folders of CTranslate2, as faster-whisper uses them: `model.bin`, `config.json`, `tokenizer.json` or `vocabulary.*`.
//!
//! `model.bin`, all little-endian: u32 version, the name of the model's kind, u32 revision of it, u32 number of variables;
//! for each a name, u8 rank, u32 sizes, u8 type, u32 bytes, data; then u32 number of aliases and the two names of each. A name
//! is a u16 length, the bytes and a zero. Written from the format as CTranslate2's Python package writes it
//! (`ctranslate2/specs/model_spec.py`) and what files in circulation hold.
//!
//! Here CTranslate2's habits end: queries, keys and values in one matrix, keys with a bias of zeros, 8-bit integers with the
//! inverse of a scale for each row.

use crate::cursor::Cursor;
use crate::hf::{self, read_json};
use crate::named::{Factors, NamedSource, Place, Stored, in_file};
use crate::ranks::{self, Ranks};
use crate::{Error, Result, SharedBytes, SourceModel, TensorSource, TokenizerFiles, open_bytes};
use cactus_quant::gguf::GgmlType;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::path::Path;

/// File name of the weights.
const WEIGHTS: &str = "model.bin";
/// The version of the container that is read, which CTranslate2 has written since 2022.
const VERSION: u32 = 6;
/// The kind of model that is read.
const KIND: &str = "WhisperSpec";
/// Largest rank of a variable.
const MAX_RANK: usize = 4;
/// Shortest variable: an empty name, rank, type, bytes.
const MIN_VARIABLE_BYTES: usize = 2 + 1 + 1 + 4;
/// Number of the exact GELU among CTranslate2's activations.
const GELU: i64 = 3;
/// From this many tokens on a Whisper model knows several languages.
const MULTILINGUAL_VOCAB: usize = 51_865;

/// Whether a folder is one of CTranslate2: it has a `model.bin`, and no weights of another form.
pub fn is_folder(folder: &Path) -> bool {
    let has = |name: &str| folder.join(name).is_file();
    has(WEIGHTS) && !has("model.safetensors") && !has("model.safetensors.index.json")
}

/// A variable of the file.
enum Variable {
    Tensor(Place),
    /// A number, of any integer type.
    Number(i64),
}

/// The parsed file: variables by name, aliases resolved.
struct Variables(BTreeMap<String, Variable>);

impl Variables {
    fn parse(bytes: &[u8]) -> Result<Variables> {
        let mut cursor = Cursor::new(bytes);
        let version = cursor.u32()?;
        if version != VERSION {
            let what = format!(
                "expected a model of CTranslate2 of version {VERSION}, found version {version}; convert the model again with a current ct2-transformers-converter"
            );
            return Err(Error::unsupported(what).at_offset(0));
        }
        let kind = name(&mut cursor)?;
        if kind != KIND {
            let what = format!("expected a Whisper model (`{KIND}`), found `{}`", kind.escape_debug());
            return Err(Error::unsupported(what).at_offset(4));
        }
        cursor.u32()?;
        let count = cursor.count_u32("variables", MIN_VARIABLE_BYTES)?;
        let mut raw = BTreeMap::new();
        for _ in 0..count {
            let start = cursor.at;
            let (name, variable) = variable(&mut cursor)?;
            if raw.contains_key(&name) {
                return Err(Error::malformed("the name occurs twice")
                    .of_tensor(name)
                    .at_offset(start));
            }
            raw.insert(name, variable);
        }
        let aliases = cursor.count_u32("aliases", 4)?;
        let mut found = Variables(raw);
        found.scale(bytes)?;
        for _ in 0..aliases {
            let (alias, of) = (name(&mut cursor)?, name(&mut cursor)?);
            if let Some(Variable::Tensor(place)) = found.0.get(&of) {
                let place = place.clone();
                found.0.insert(alias, Variable::Tensor(place));
            }
        }
        if cursor.remaining() > 0 {
            let what = format!("expected the end of the file, found {} more bytes", cursor.remaining());
            return Err(Error::malformed(what).at_offset(cursor.at));
        }
        Ok(found)
    }

    /// Gives integers their scales.
    fn scale(&mut self, bytes: &[u8]) -> Result<()> {
        let integers = self.0.iter().filter_map(|(name, v)| match v {
            Variable::Tensor(place) if matches!(place.stored, Stored::Int8Rows(_)) => Some(name.clone()),
            _ => None,
        });
        for name in integers.collect::<Vec<_>>() {
            let scale = format!("{name}_scale");
            let fail = |what: String| Err(Error::malformed(what).of_tensor(name.as_str()));
            let scales = match self.tensor(&scale)? {
                place if matches!(place.stored, Stored::Blocks(_)) => place.values(bytes)?,
                _ => return fail("its scales should be floats, found 8-bit integers".into()),
            };
            let Some(Variable::Tensor(place)) = self.0.get_mut(&name) else {
                continue;
            };
            let rows = place.shape.first().copied().unwrap_or(0);
            if scales.len() != rows || scales.iter().any(|s| !s.is_finite() || *s == 0.0) {
                return fail(format!(
                    "its {rows} rows should have as many scales other than zero, found {}",
                    scales.len()
                ));
            }
            place.stored = Stored::Int8Rows(scales.into());
        }
        Ok(())
    }

    fn tensor(&self, name: &str) -> Result<&Place> {
        match self.0.get(name) {
            Some(Variable::Tensor(place)) => Ok(place),
            Some(Variable::Number(_)) => Err(Error::malformed("expected a tensor, found a number").of_tensor(name)),
            None => Err(Error::missing("the file has no such variable").of_tensor(name)),
        }
    }

    fn number(&self, name: &str) -> Option<i64> {
        match self.0.get(name)? {
            Variable::Number(n) => Some(*n),
            Variable::Tensor(_) => None,
        }
    }

    /// The sizes of a tensor of rank `N`.
    fn sizes<const N: usize>(&self, name: &str) -> Result<[usize; N]> {
        let shape = &self.tensor(name)?.shape;
        shape[..]
            .try_into()
            .map_err(|_| Error::malformed(format!("expected {N} axes, found the shape {shape:?}")).of_tensor(name))
    }

    /// Layers of one side, which are numbered from 0.
    fn layers(&self, side: &str) -> usize {
        let first = |layer: &usize| {
            self.0
                .contains_key(&format!("{side}/layer_{layer}/ffn/linear_0/weight"))
        };
        (0..self.0.len()).take_while(first).count()
    }

    /// The configuration in the convention of `transformers`.
    fn config(&self) -> Result<Value> {
        let [hidden, mels, _] = self.sizes("encoder/conv1/weight")?;
        let [vocab, _] = self.sizes("decoder/embeddings/weight")?;
        let [frames, _] = self.sizes("encoder/position_encodings/encodings")?;
        let [context, _] = self.sizes("decoder/position_encodings/encodings")?;
        let expected = [
            ("decoder/activation", GELU, "exact GELU"),
            ("decoder/pre_norm", 1, "norms before each layer"),
            ("decoder/scale_embeddings", 0, "embeddings as they are"),
        ];
        for (name, want, what) in expected {
            if let Some(found) = self.number(name).filter(|&n| n != want) {
                let what = format!("{found} is not supported; expected {want}, {what}");
                return Err(Error::unsupported(what).of_tensor(name));
            }
        }
        let mut config = json!({
            "model_type": "whisper", "architectures": ["WhisperForConditionalGeneration"], "d_model": hidden,
            "num_mel_bins": mels, "vocab_size": vocab, "max_source_positions": frames, "max_target_positions": context,
            "activation_function": "gelu", "scale_embedding": false, "tie_word_embeddings": true,
        });
        for side in ["encoder", "decoder"] {
            let heads = format!("{side}/num_heads");
            let Some(count) = self.number(&heads) else {
                return Err(Error::missing("the file has no such variable").of_tensor(heads));
            };
            let [width, _] = self.sizes(&format!("{side}/layer_0/ffn/linear_0/weight"))?;
            config[format!("{side}_layers")] = self.layers(side).into();
            config[format!("{side}_attention_heads")] = count.into();
            config[format!("{side}_ffn_dim")] = width.into();
        }
        Ok(config)
    }

    /// The weights under the names of `transformers`.
    fn weights(&self) -> Result<BTreeMap<String, Place>> {
        let mut out = BTreeMap::new();
        for side in ["encoder", "decoder"] {
            let at = format!("model.{side}");
            self.norm(&mut out, &format!("{side}/layer_norm"), &format!("{at}.layer_norm"))?;
            self.whole(
                &mut out,
                &format!("{side}/position_encodings/encodings"),
                &format!("{at}.embed_positions.weight"),
            )?;
            for layer in 0..self.layers(side) {
                let (from, to) = (format!("{side}/layer_{layer}"), format!("{at}.layers.{layer}"));
                let own = format!("{from}/self_attention");
                self.parts(
                    &mut out,
                    &format!("{own}/linear_0"),
                    &to,
                    &["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"],
                )?;
                self.parts(&mut out, &format!("{own}/linear_1"), &to, &["self_attn.out_proj"])?;
                self.norm(
                    &mut out,
                    &format!("{own}/layer_norm"),
                    &format!("{to}.self_attn_layer_norm"),
                )?;
                if side == "decoder" {
                    let cross = format!("{from}/attention");
                    self.parts(&mut out, &format!("{cross}/linear_0"), &to, &["encoder_attn.q_proj"])?;
                    self.parts(
                        &mut out,
                        &format!("{cross}/linear_1"),
                        &to,
                        &["encoder_attn.k_proj", "encoder_attn.v_proj"],
                    )?;
                    self.parts(&mut out, &format!("{cross}/linear_2"), &to, &["encoder_attn.out_proj"])?;
                    self.norm(
                        &mut out,
                        &format!("{cross}/layer_norm"),
                        &format!("{to}.encoder_attn_layer_norm"),
                    )?;
                }
                self.parts(&mut out, &format!("{from}/ffn/linear_0"), &to, &["fc1"])?;
                self.parts(&mut out, &format!("{from}/ffn/linear_1"), &to, &["fc2"])?;
                self.norm(
                    &mut out,
                    &format!("{from}/ffn/layer_norm"),
                    &format!("{to}.final_layer_norm"),
                )?;
            }
        }
        for conv in ["conv1", "conv2"] {
            for part in ["weight", "bias"] {
                self.whole(
                    &mut out,
                    &format!("encoder/{conv}/{part}"),
                    &format!("model.encoder.{conv}.{part}"),
                )?;
            }
        }
        self.whole(
            &mut out,
            "decoder/embeddings/weight",
            "model.decoder.embed_tokens.weight",
        )?;
        Ok(out)
    }

    fn whole(&self, out: &mut BTreeMap<String, Place>, from: &str, to: &str) -> Result<()> {
        out.insert(to.to_owned(), self.tensor(from)?.clone());
        Ok(())
    }

    fn norm(&self, out: &mut BTreeMap<String, Place>, from: &str, to: &str) -> Result<()> {
        self.whole(out, &format!("{from}/gamma"), &format!("{to}.weight"))?;
        self.whole(out, &format!("{from}/beta"), &format!("{to}.bias"))
    }

    /// Linears whose rows lie one after the other in one; keys have no bias.
    fn parts(&self, out: &mut BTreeMap<String, Place>, from: &str, to: &str, names: &[&str]) -> Result<()> {
        let (weight, bias) = (format!("{from}/weight"), format!("{from}/bias"));
        let ([rows, k], place) = (self.sizes(&weight)?, self.tensor(&weight)?);
        let n = rows / names.len();
        if n == 0 || !rows.is_multiple_of(names.len()) {
            let what = format!("{rows} rows are not {} matrices of equal size", names.len());
            return Err(Error::malformed(what).of_tensor(weight));
        }
        for (i, name) in names.iter().enumerate() {
            let part = i * n..(i + 1) * n;
            let fail = |e: Error, of: &str| e.of_tensor(of);
            let matrix = place.rows(part.clone(), &[n, k]).map_err(|e| fail(e, &weight))?;
            out.insert(format!("{to}.{name}.weight"), matrix);
            if !name.ends_with("k_proj") {
                let vector = self.tensor(&bias)?.rows(part, &[n]).map_err(|e| fail(e, &bias))?;
                out.insert(format!("{to}.{name}.bias"), vector);
            }
        }
        Ok(())
    }
}

/// A length, that many bytes of which the last is zero.
fn name(cursor: &mut Cursor<'_>) -> Result<String> {
    let start = cursor.at;
    let len = usize::from(cursor.u16()?);
    let bytes = cursor.take(len)?;
    let text = bytes.strip_suffix(&[0]).and_then(|b| std::str::from_utf8(b).ok());
    let text = text.filter(|t| !t.contains('\0'));
    text.map(str::to_owned)
        .ok_or_else(|| Error::malformed("expected a name in UTF-8 that ends in a zero byte").at_offset(start))
}

fn variable(cursor: &mut Cursor<'_>) -> Result<(String, Variable)> {
    let name = name(cursor)?;
    let at = cursor.at;
    let fail = |e: Error| e.of_tensor(name.as_str()).at_offset(at);
    let rank = usize::from(cursor.u8()?);
    if rank > MAX_RANK {
        return Err(fail(Error::malformed(format!(
            "a variable has at most {MAX_RANK} axes, found {rank}"
        ))));
    }
    let mut shape = Vec::with_capacity(rank);
    for _ in 0..rank {
        shape.push(cursor.u32()? as usize);
    }
    let ty = cursor.u8()?;
    let bytes = cursor.u32()? as usize;
    let start = cursor.at;
    let data = cursor.take(bytes)?;
    let integer = match (rank, ty, data) {
        (0, 1, &[b]) => Some(i64::from(b.cast_signed())),
        (0, 2, &[a, b]) => Some(i16::from_le_bytes([a, b]).into()),
        (0, 3, &[a, b, c, d]) => Some(i32::from_le_bytes([a, b, c, d]).into()),
        _ => None,
    };
    if let Some(n) = integer {
        return Ok((name, Variable::Number(n)));
    }
    let stored = match ty {
        0 => Stored::Blocks(GgmlType::F32),
        1 => Stored::Int8Rows(Factors::default()),
        4 => Stored::Blocks(GgmlType::F16),
        5 => Stored::Blocks(GgmlType::BF16),
        2 | 3 => {
            let what = "integers of 16 and 32 bits are not supported; convert the model again with float16 or int8";
            return Err(fail(Error::unsupported(what)));
        }
        other => return Err(fail(Error::malformed(format!("unknown type {other}")))),
    };
    let place = Place::new(start, start + bytes, stored, shape).map_err(fail)?;
    if place.range.end != start + bytes {
        let what = format!(
            "its shape {:?} takes {} bytes, it says {bytes}",
            place.shape,
            place.range.len()
        );
        return Err(fail(Error::malformed(what)));
    }
    Ok((name, Variable::Tensor(place)))
}

/// Opens a Whisper folder of CTranslate2.
///
/// # Errors
/// [`crate::ErrorKind::Missing`] where `model.bin` or a variable is absent, [`crate::ErrorKind::Malformed`] where a file breaks
/// its format, [`crate::ErrorKind::Unsupported`] for another model than Whisper, another version, or weights in integers of
/// 16 bits.
pub fn open_folder(folder: &Path) -> Result<SourceModel> {
    let path = folder.join(WEIGHTS);
    let (config, source) = parts(&path, open_bytes(&path)?)?;
    let vocab_size = config["vocab_size"]
        .as_u64()
        .and_then(|n| usize::try_from(n).ok())
        .unwrap_or(0);
    let mut generation_config = Map::new();
    let mut tokenizer = hf::open_texts(folder)?.tokenizer;
    if tokenizer.is_none()
        && let Some((files, config)) = of_vocabulary(folder, vocab_size)?
    {
        generation_config = config;
        tokenizer = Some(files);
    }
    generation_config.insert("is_multilingual".to_owned(), (vocab_size >= MULTILINGUAL_VOCAB).into());
    let config_path = folder.join("config.json");
    if config_path.is_file() {
        let own = read_json(&config_path)?;
        for (from, to) in [
            ("suppress_ids", "suppress_tokens"),
            ("suppress_ids_begin", "begin_suppress_tokens"),
            ("alignment_heads", "alignment_heads"),
        ] {
            if let Some(value) = own.get(from).filter(|v| v.is_array()) {
                generation_config.insert(to.to_owned(), value.clone());
            }
        }
    }
    Ok(SourceModel {
        format: "ctranslate2",
        config,
        generation_config: Value::Object(generation_config),
        front_end: json!({}),
        hearing: json!({}),
        sentence: None,
        tokenizer,
        tensors: Box::new(source),
    })
}

/// The weights of a `model.bin`, given its bytes, with the configuration that they imply; `path` is for messages.
///
/// # Errors
/// As [`open_folder`].
pub fn read(path: &Path, bytes: SharedBytes) -> Result<(Value, Box<dyn TensorSource>)> {
    let (config, source) = parts(path, bytes)?;
    Ok((config, Box::new(source)))
}

fn parts(path: &Path, bytes: SharedBytes) -> Result<(Value, NamedSource)> {
    let variables = in_file(Variables::parse((*bytes).as_ref()), path)?;
    bytes.intact()?;
    let config = in_file(variables.config(), path)?;
    let weights = in_file(variables.weights(), path)?;
    let source = NamedSource {
        path: path.to_path_buf(),
        bytes,
        weights,
        form: format!("CTranslate2 version {VERSION}"),
    };
    Ok((config, source))
}

/// A tokenizer from `vocabulary.json` or `vocabulary.txt`, where the folder has one of them and no `tokenizer.json`.
fn of_vocabulary(folder: &Path, vocab_size: usize) -> Result<Option<(TokenizerFiles, Map<String, Value>)>> {
    let read = |name: &str| match std::fs::read_to_string(folder.join(name)) {
        Ok(text) => Ok(Some(text)),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(Error::reading(&folder.join(name), e)),
    };
    let (path, tokens): (_, Vec<String>) = match (read("vocabulary.json")?, read("vocabulary.txt")?) {
        (Some(json), _) => {
            let path = folder.join("vocabulary.json");
            let failed = |e| Error::malformed("expected a list of texts").in_file(&path).caused_by(e);
            let tokens = serde_json::from_str(&json).map_err(failed)?;
            (path, tokens)
        }
        (None, Some(text)) => (folder.join("vocabulary.txt"), text.lines().map(str::to_owned).collect()),
        (None, None) => return Ok(None),
    };
    let plain = tokens.iter().take_while(|t| *t != "<|endoftext|>");
    let bytes = ranks::unspelled(plain)
        .ok_or_else(|| Error::malformed("expected tokens as a byte-level tokenizer spells them").in_file(&path))?;
    let ranks = in_file(Ranks::new(bytes.iter().map(Vec::as_slice).collect()), &path)?;
    let made = in_file(ranks::whisper(&ranks, vocab_size), &path)?;
    Ok(Some((made.tokenizer, made.generation_config)))
}

#[cfg(test)]
mod tests;
