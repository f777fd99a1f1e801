//! A GGUF file as a source of Hugging Face weights.

use super::metadata::required;
use super::names::{self, Arch, Change, LONG_ROPE_FACTORS, OfValues, ROPE_FACTORS};
use super::value_heads::{self, ValueHeads};
use super::{GgufFile, TensorInfo, config, gemma3n_rows, text_model, tokenizer};
use crate::{Error, Result, SharedBytes, SourceModel, TensorSource, experts, open_bytes};
use cactus_quant::gguf::decode;
use cactus_tensor::Tensor;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Most files that one model may be split into.
const MAX_PARTS: usize = 1000;
/// Colors of a pixel.
pub(super) const COLORS: usize = 3;

/// Opens a GGUF file; the first of a split model opens the others beside it.
///
/// # Errors
/// Those of [`GgufFile::parse`], [`GgufSource::new`], [`config::config`] and [`tokenizer::tokenizer`], naming the file.
pub fn open_file(path: &Path) -> Result<SourceModel> {
    let mut files = vec![Part::open(path.to_path_buf())?];
    let in_file = |e: Error| e.in_file(path);
    for sibling in siblings(path, &files[0].file).map_err(in_file)? {
        files.push(Part::open(sibling)?);
    }
    let source = GgufSource::from_parts(files).map_err(in_file)?;
    let file = source.file();
    let config = config::config(&source).map_err(in_file)?;
    let generation_config = config::generation_config(&file.metadata).map_err(in_file)?;
    let tokenizer = tokenizer::tokenizer(&file.metadata).map_err(in_file)?;
    let sentence = text_model::sentence(&source).map_err(in_file)?;
    Ok(SourceModel {
        format: "gguf",
        config,
        generation_config,
        front_end: serde_json::json!({}),
        hearing: serde_json::json!({}),
        sentence,
        tokenizer,
        tensors: experts::with_stacked(Box::new(source)).map_err(in_file)?,
    })
}

/// The other files of a split model, by the naming rule `NAME-00001-of-00003.gguf`.
fn siblings(path: &Path, file: &GgufFile) -> Result<Vec<PathBuf>> {
    let count = file.metadata.count("split.count")?.unwrap_or(1);
    if count <= 1 {
        return Ok(Vec::new());
    }
    if count > MAX_PARTS {
        return Err(Error::malformed(format!(
            "`split.count` should be at most {MAX_PARTS}, found {count}"
        )));
    }
    let number = file.metadata.count("split.no")?.unwrap_or(0);
    let name = path.file_name().and_then(|n| n.to_str()).unwrap_or("");
    let stem = name.strip_suffix(&format!("-00001-of-{count:05}.gguf"));
    match stem {
        Some(stem) if number == 0 => Ok((2..=count)
            .map(|i| path.with_file_name(format!("{stem}-{i:05}-of-{count:05}.gguf")))
            .collect()),
        _ => Err(Error::unsupported(format!(
            "it is part {} of {count} of a split model; open the first part, named `...-00001-of-{count:05}.gguf`",
            number.saturating_add(1)
        ))),
    }
}

/// One file of a model.
pub(super) struct Part {
    path: PathBuf,
    bytes: SharedBytes,
    pub(super) file: GgufFile,
}

impl Part {
    pub(super) fn open(path: PathBuf) -> Result<Part> {
        let bytes = open_bytes(&path)?;
        Part::new(path, bytes)
    }

    fn new(path: PathBuf, bytes: SharedBytes) -> Result<Part> {
        let file = GgufFile::parse((*bytes).as_ref()).map_err(|e| e.in_file(&path))?;
        Ok(Part { path, bytes, file })
    }
}

/// A weight: where it is stored and how its values differ from Hugging Face's.
#[derive(Clone)]
pub(super) struct Weight {
    part: usize,
    /// Number of the tensor in its part.
    tensor: usize,
    pub(super) shape: Vec<usize>,
    /// The first of its rows in the tensor, which it may have some of alone, with nothing changed.
    pub(super) first_row: usize,
    change: Change,
    /// Rows of a head, for the changes that reorder rows.
    head_dim: usize,
    /// Where heads of values are, for the changes of these.
    values: Option<ValueHeads>,
}

/// The weights of a GGUF model under Hugging Face names, shapes and values.
pub struct GgufSource {
    parts: Vec<Part>,
    /// Of a text model.
    arch: Option<Arch>,
    pub(super) weights: BTreeMap<String, Weight>,
}

impl GgufSource {
    /// The weights of one file, given its bytes; `path` is for messages.
    ///
    /// # Errors
    /// Those of [`GgufFile::parse`]; [`crate::ErrorKind::Unsupported`] where the architecture is not supported or has
    /// a tensor that its Hugging Face counterpart has not, which to leave out would change the model.
    pub fn new(path: &Path, bytes: SharedBytes) -> Result<GgufSource> {
        let part = Part::new(path.to_path_buf(), bytes)?;
        GgufSource::from_parts(vec![part]).map_err(|e| e.in_file(path))
    }

    fn from_parts(parts: Vec<Part>) -> Result<GgufSource> {
        let metadata = &parts[0].file.metadata;
        let name = required(metadata.string("general.architecture")?, "general.architecture")?;
        let arch = Arch::from_name(name)?;
        // What guesses tokens ahead stands behind the layers.
        let layers = match arch.is_qwen35() {
            true => config::layers(metadata, name, arch)?,
            false => usize::MAX,
        };
        let ahead = |tensor: &str| {
            let number = tensor.strip_prefix("blk.").and_then(|rest| rest.split_once('.'));
            let number = number.and_then(|(number, _)| number.parse::<usize>().ok());
            number.is_some_and(|layer| layer >= layers)
        };
        let mut source = GgufSource::named(parts, &ahead, |info| names::hugging_face(arch, &info.name))?;
        source.arch = Some(arch);
        if arch == Arch::Gemma3n {
            gemma3n_rows::take_apart(&mut source)?;
        }
        Ok(source)
    }

    /// The weights of `parts` but for those that `left` leaves, whose names and changes `names` says.
    pub(super) fn named(
        parts: Vec<Part>,
        left: &dyn Fn(&str) -> bool,
        names: impl Fn(&TensorInfo) -> Option<(String, Change)>,
    ) -> Result<GgufSource> {
        let metadata = &parts[0].file.metadata;
        let name = required(metadata.string("general.architecture")?, "general.architecture")?;
        let mut weights = BTreeMap::new();
        for (number, part) in parts.iter().enumerate() {
            for (tensor, info) in part.file.tensors.iter().enumerate() {
                if super::names::is_not_a_weight(&info.name) || left(&info.name) {
                    continue;
                }
                let (hf_name, change) = names(info).ok_or_else(|| {
                    Error::unsupported(format!(
                        "the architecture `{name}` has no such weight in its supported form"
                    ))
                    .of_tensor(info.name.as_str())
                })?;
                let mut weight = Weight {
                    part: number,
                    tensor,
                    shape: info.shape.clone(),
                    first_row: 0,
                    change,
                    head_dim: 0,
                    values: None,
                };
                weight
                    .prepare(metadata, name, info)
                    .map_err(|e| e.of_tensor(info.name.as_str()))?;
                if weights.insert(hf_name, weight).is_some() {
                    return Err(Error::malformed("another tensor is the same weight").of_tensor(info.name.as_str()));
                }
            }
        }
        Ok(GgufSource {
            parts,
            arch: None,
            weights,
        })
    }

    /// The file, or the first of a split model, which carries the metadata.
    pub fn file(&self) -> &GgufFile {
        &self.parts[0].file
    }

    /// The architecture of a text model.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Unsupported`] for another file.
    pub(super) fn arch(&self) -> Result<Arch> {
        self.arch
            .ok_or_else(|| Error::unsupported("the file holds no text model"))
    }

    /// Divisors of the rotary frequencies, `[head_dim / 2]`, where the file has them.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Malformed`] where the tensor cannot be decoded.
    pub fn rope_factors(&self) -> Result<Option<Vec<f32>>> {
        self.numbers(ROPE_FACTORS)
    }

    /// Those of `LongRoPE`, for short texts and for long ones, where the file has both.
    pub(super) fn long_rope_factors(&self) -> Result<Option<[Vec<f32>; 2]>> {
        let [short, long] = LONG_ROPE_FACTORS.map(|name| self.numbers(name));
        match (short?, long?) {
            (Some(short), Some(long)) => Ok(Some([short, long])),
            (None, None) => Ok(None),
            (short, _) => {
                let there = usize::from(short.is_none());
                let what = format!("the file has this and no `{}`", LONG_ROPE_FACTORS[1 - there]);
                Err(Error::missing(what).of_tensor(LONG_ROPE_FACTORS[there]))
            }
        }
    }

    /// The values of a tensor that is no weight.
    fn numbers(&self, name: &str) -> Result<Option<Vec<f32>>> {
        for part in &self.parts {
            if let Some(info) = part.file.tensors.iter().find(|t| t.name == name) {
                let mut factors = vec![0.0; info.elems()];
                decode_into(part, info, &mut factors)?;
                return Ok(Some(factors));
            }
        }
        Ok(None)
    }

    fn stored(&self, weight: &Weight) -> (&Part, &TensorInfo) {
        let part = &self.parts[weight.part];
        (part, &part.file.tensors[weight.tensor])
    }
}

impl Weight {
    /// Checks that the change applies to the tensor and works out what it needs.
    fn prepare(&mut self, metadata: &super::Metadata, arch: &str, info: &TensorInfo) -> Result<()> {
        let heads_key = match self.change {
            Change::Keep | Change::MinusOne | Change::BeforeSoftplus => return Ok(()),
            Change::FlatColorsLast => {
                return match info.shape.last() {
                    Some(last) if last.is_multiple_of(COLORS) && info.shape.len() <= 2 => Ok(()),
                    _ => Err(Error::malformed(format!(
                        "expected whole pixels of {COLORS} colors, found the shape {:?}",
                        info.shape
                    ))),
                };
            }
            Change::Exchanged => {
                let &[a, b, n] = &info.shape[..] else {
                    let what = format!("expected three axes, found the shape {:?}", info.shape);
                    return Err(Error::malformed(what));
                };
                self.shape = vec![b, a, n];
                return Ok(());
            }
            Change::DepthwiseTaps => {
                // Files in circulation hold [dim, taps]; a middle dimension of one means the same.
                let &[dim, .., taps] = &info.shape[..] else {
                    return Err(Error::malformed("expected the shape [dim, taps]"));
                };
                if dim.checked_mul(taps) != Some(info.elems()) {
                    return Err(Error::malformed(format!(
                        "expected the shape [dim, taps], found {:?}",
                        info.shape
                    )));
                }
                self.shape = vec![dim, 1, taps];
                return Ok(());
            }
            Change::ColorsLast => {
                let &[n, colors, rows, columns] = &info.shape[..] else {
                    let what = format!("expected the shape [n, colors, rows, columns], found {:?}", info.shape);
                    return Err(Error::malformed(what));
                };
                let flat = [colors, rows, columns].into_iter().try_fold(1usize, usize::checked_mul);
                let flat = flat.filter(|flat| flat.checked_mul(n) == Some(info.elems()));
                let flat = flat.ok_or_else(|| Error::malformed(format!("the shape {:?} is too large", info.shape)))?;
                self.shape = vec![n, flat];
                return Ok(());
            }
            Change::Experts | Change::TurnedExperts => {
                let &[experts, a, b] = &info.shape[..] else {
                    let what = format!("expected the shape [experts, rows, columns], found {:?}", info.shape);
                    return Err(Error::malformed(what));
                };
                let (rows, columns) = if self.change == Change::Experts { (a, b) } else { (b, a) };
                let all = experts.checked_mul(rows);
                let all = all.filter(|all| all.checked_mul(columns) == Some(info.elems()));
                let all = all.ok_or_else(|| Error::malformed(format!("the shape {:?} is too large", info.shape)))?;
                self.shape = vec![all, columns];
                return Ok(());
            }
            Change::Values(part) => return self.prepare_values(metadata, arch, info, part),
            Change::QueryRows => format!("{arch}.attention.head_count"),
            Change::KeyRows => format!("{arch}.attention.head_count_kv"),
        };
        let all_heads = format!("{arch}.attention.head_count");
        let heads = match metadata.count(&heads_key)? {
            Some(heads) => heads,
            None => required(metadata.count(&all_heads)?, &all_heads)?,
        };
        let rows = info.shape.first().copied().unwrap_or(0);
        if heads == 0 || !rows.is_multiple_of(heads) || !(rows / heads).is_multiple_of(2) {
            return Err(Error::malformed(format!(
                "its {rows} rows are not {heads} heads of an even number of rows"
            )));
        }
        self.head_dim = rows / heads;
        Ok(())
    }

    /// The same where heads of values have the rows or the columns.
    fn prepare_values(
        &mut self,
        metadata: &super::Metadata,
        arch: &str,
        info: &TensorInfo,
        part: OfValues,
    ) -> Result<()> {
        let shape = &info.shape;
        let ends = shape.first().copied().zip(shape.last().copied());
        let fits = match part {
            OfValues::Decays => shape.len() == 1,
            OfValues::Rows => shape.len() <= 2,
            OfValues::RowsBehindKeys | OfValues::Columns => shape.len() == 2,
            OfValues::Taps => ends.and_then(|(n, taps)| n.checked_mul(taps)) == Some(info.elems()) && shape.len() > 1,
        };
        let Some((rows, columns)) = ends.filter(|_| fits) else {
            return Err(Error::malformed(format!(
                "the shape {shape:?} is not that of such a weight"
            )));
        };
        let counted = if part == OfValues::Columns { columns } else { rows };
        self.values = Some(ValueHeads::read(metadata, arch, part, counted)?);
        if part == OfValues::Taps {
            self.shape = vec![rows, 1, columns];
        }
        Ok(())
    }
}

fn decode_into(part: &Part, info: &TensorInfo, out: &mut [f32]) -> Result<()> {
    let bytes = &(*part.bytes).as_ref()[info.range.clone()];
    decode(info.ty, bytes, out).map_err(|e| {
        Error::malformed("it cannot be decoded")
            .of_tensor(info.name.as_str())
            .in_file(&part.path)
            .caused_by(e)
    })
}

impl TensorSource for GgufSource {
    fn names(&self) -> Vec<&str> {
        self.weights.keys().map(String::as_str).collect()
    }

    fn shape(&self, name: &str) -> Option<Vec<usize>> {
        Some(self.weights.get(name)?.shape.clone())
    }

    fn stored_type(&self, name: &str) -> Option<&'static str> {
        Some(self.stored(self.weights.get(name)?).1.ty.name())
    }

    fn read(&self, name: &str) -> Result<Tensor> {
        let weight = self.weights.get(name).ok_or_else(|| {
            Error::missing("the model has no such tensor")
                .of_tensor(name)
                .in_file(&self.parts[0].path)
        })?;
        let (part, info) = self.stored(weight);
        let fail = |e: cactus_tensor::Error| {
            Error::malformed("the values do not fit the shape")
                .of_tensor(name)
                .in_file(&part.path)
                .caused_by(e)
        };
        let is_part = weight.change == Change::Keep && weight.shape != info.shape;
        let leading: usize = weight.shape.iter().rev().skip(1).product();
        if is_part && let Some(rows) = self.read_rows(name, 0..leading) {
            return rows?.reshaped(weight.shape.clone()).map_err(fail);
        }
        let mut values = vec![0.0; info.elems()];
        let decoded = decode_into(part, info, &mut values);
        part.bytes.intact()?;
        decoded?;
        match weight.change {
            Change::Keep if is_part => {
                // Rows begin within blocks.
                let width = weight.shape.last().copied().unwrap_or(1);
                values.drain(..weight.first_row * width);
                values.truncate(leading * width);
            }
            Change::Keep | Change::DepthwiseTaps | Change::Experts => {}
            Change::TurnedExperts => values = turned(&values, &info.shape),
            // A picture is to its pixels as an expert is to its columns: colors go behind.
            Change::ColorsLast => {
                let pixels = info.shape[2] * info.shape[3];
                values = turned(&values, &[info.shape[0], info.shape[1], pixels]);
            }
            Change::FlatColorsLast => {
                let last = info.shape.last().copied().unwrap_or(0);
                let rows = values.len() / last.max(1);
                values = turned(&values, &[rows, COLORS, last / COLORS]);
            }
            Change::Exchanged => values = exchanged(&values, &info.shape),
            Change::MinusOne => values.iter_mut().for_each(|v| *v -= 1.0),
            Change::BeforeSoftplus => {
                let made = before_softplus(&values);
                values = made.map_err(|e| e.of_tensor(info.name.as_str()).in_file(&part.path))?;
            }
            Change::Values(of) => {
                if of == OfValues::Decays {
                    let made = value_heads::logarithms(&values);
                    values = made.map_err(|e| e.of_tensor(info.name.as_str()).in_file(&part.path))?;
                }
                // `Weight::prepare` found where the heads are.
                if let Some(heads) = weight.values {
                    let last = info.shape.len() - 1;
                    values = match of {
                        OfValues::Columns => heads.columns(&values, info.shape[last]),
                        _ => heads.rows(&values, info.shape[0]),
                    };
                }
            }
            Change::QueryRows | Change::KeyRows => {
                values = reorder_rows(&values, info.shape[0], weight.head_dim);
            }
        }
        Tensor::from_f32(weight.shape.clone(), values).map_err(fail)
    }

    fn read_rows(&self, name: &str, rows: Range<usize>) -> Option<Result<Tensor>> {
        let weight = self.weights.get(name).filter(|w| matches!(w.change, Change::Keep))?;
        let (part, info) = self.stored(weight);
        let (&k, leading) = weight.shape.split_last().filter(|(_, leading)| !leading.is_empty())?;
        let n = leading.iter().try_fold(1usize, |n, &d| n.checked_mul(d))?;
        // Rows of whole blocks, in the order of the file.
        let blocks = k / info.ty.block_elems();
        if rows.end > n || rows.start > rows.end || blocks * info.ty.block_elems() != k {
            return None;
        }
        let row_bytes = blocks * info.ty.block_bytes();
        let [start, end] = [rows.start, rows.end].map(|row| (weight.first_row + row) * row_bytes);
        let bytes = &(*part.bytes).as_ref()[info.range.clone()][start..end];
        let fail = |e: Error| e.of_tensor(name).in_file(&part.path);
        let mut values = vec![0.0; rows.len() * k];
        let tensor = decode(info.ty, bytes, &mut values)
            .map_err(|e| fail(Error::malformed("it cannot be decoded").caused_by(e)))
            .and_then(|()| {
                let tensor = Tensor::from_f32(vec![rows.len(), k], values);
                tensor.map_err(|e| fail(Error::malformed("the values do not fit the shape").caused_by(e)))
            });
        Some(part.bytes.intact().and(tensor))
    }

    fn describe(&self) -> String {
        let tensors = self.parts.iter().flat_map(|p| &p.file.tensors);
        let types = crate::source::count_types(tensors.map(|t| t.ty.name()));
        let count: usize = self.parts.iter().map(|p| p.file.tensors.len()).sum();
        let version = self.file().version;
        format!("GGUF version {version}, {count} tensors ({types})")
    }

    fn files(&self) -> Vec<PathBuf> {
        self.parts.iter().map(|p| p.path.clone()).collect()
    }
}

/// `values` of `rows` rows with the rows of each head in Hugging Face order.
fn reorder_rows(values: &[f32], rows: usize, head_dim: usize) -> Vec<f32> {
    // `Weight::prepare` checked that there are rows and that heads of `head_dim` fill them.
    let row_len = values.len() / rows;
    let mut out = Vec::with_capacity(values.len());
    for row in 0..rows {
        let stored = names::stored_row(row, head_dim);
        out.extend_from_slice(&values[stored * row_len..(stored + 1) * row_len]);
    }
    out
}

/// `values` `[experts, columns, rows]` as `[experts, rows, columns]`.
fn turned(values: &[f32], shape: &[usize]) -> Vec<f32> {
    // `Weight::prepare` checked that there are three axes.
    let (columns, rows) = (shape[1], shape[2]);
    let mut out = Vec::with_capacity(values.len());
    for expert in values.chunks((columns * rows).max(1)) {
        for row in 0..rows {
            out.extend((0..columns).map(|column| expert[column * rows + row]));
        }
    }
    out
}

/// `values` `[a, b, n]` as `[b, a, n]`.
fn exchanged(values: &[f32], shape: &[usize]) -> Vec<f32> {
    // `Weight::prepare` checked that there are three axes.
    let [a, b, n] = [shape[0], shape[1], shape[2]];
    let places = (0..b).flat_map(|j| (0..a).map(move |i| (i * b + j) * n));
    places.flat_map(|at| &values[at..at + n]).copied().collect()
}

/// The numbers of which `values` are the softplus.
fn before_softplus(values: &[f32]) -> Result<Vec<f32>> {
    let of = |&v: &f32| {
        let made = f64::from(v).exp_m1().ln() as f32;
        match made.is_finite() {
            true => Ok(made),
            false => Err(Error::malformed(format!("expected numbers above 0, found {v}"))),
        }
    };
    values.iter().map(of).collect()
}

#[cfg(test)]
mod tests;
