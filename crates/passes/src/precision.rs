//! The choice of storage for each weight. It rewrites nothing: the graph sees every weight as `f32`.

use crate::pattern::{insert_before, is_output, result, times_scalar, users};
use crate::policy::Policy;
use cactus_ir::{AttentionAttrs, BinaryFn, Dim, Graph, Node, Op, TensorType, ValueId, WeightExpr};
use cactus_tensor::DType;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// Precision asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Bits {
    /// Codebook indices of 1 bit.
    One,
    /// Codebook indices of 2 bits.
    Two,
    /// Codebook indices of 3 bits.
    Three,
    /// Codebook indices of 4 bits.
    Four,
    /// Codebook indices of 5 bits.
    Five,
    /// Codebook indices of 6 bits.
    Six,
    /// INT8 in groups along the input dimension.
    #[default]
    Eight,
    /// IEEE half precision.
    Sixteen,
    /// Single precision.
    ThirtyTwo,
}

impl Bits {
    /// Every precision, from the smallest.
    pub const ALL: [Bits; 9] = [
        Bits::One,
        Bits::Two,
        Bits::Three,
        Bits::Four,
        Bits::Five,
        Bits::Six,
        Bits::Eight,
        Bits::Sixteen,
        Bits::ThirtyTwo,
    ];

    /// The precision of so many bits.
    #[must_use]
    pub fn from_number(bits: u32) -> Option<Bits> {
        Bits::ALL.into_iter().find(|b| b.number() == bits)
    }

    /// Bits of a weight, without scales.
    #[must_use]
    pub fn number(self) -> u32 {
        match self {
            Bits::One => 1,
            Bits::Two => 2,
            Bits::Three => 3,
            Bits::Four => 4,
            Bits::Five => 5,
            Bits::Six => 6,
            Bits::Eight => 8,
            Bits::Sixteen => 16,
            Bits::ThirtyTwo => 32,
        }
    }

    /// Bits of a weight with its share of the scales.
    #[must_use]
    pub fn stored(self) -> f64 {
        match self {
            Bits::One | Bits::Two | Bits::Three | Bits::Four | Bits::Five | Bits::Six => {
                f64::from(self.number()) + 0.125
            }
            Bits::Eight => 8.5,
            Bits::Sixteen | Bits::ThirtyTwo => f64::from(self.number()),
        }
    }
}

impl std::str::FromStr for Bits {
    type Err = String;

    fn from_str(text: &str) -> Result<Bits, String> {
        let found = text.parse().ok().and_then(Bits::from_number);
        found.ok_or_else(|| format!("expected 1, 2, 3, 4, 5, 6, 8, 16 or 32 bits, found `{text}`"))
    }
}

/// How a weight is stored. The block layout is the writer's business.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Storage {
    /// Matrix `[n, k]` as codebook indices of so many bits, 1 to 6, of rotated groups along `k`.
    Codebook(u32),
    /// Matrix `[n, k]` in INT8 with a scale for each group of 32 along `k`.
    Int8,
    /// Matrix `[n, k]` in INT8 with a scale for each row: filters that [`lay_filters`] has laid tap by tap.
    Int8Rows,
    /// Matrix `[n, k]` in half precision.
    F16,
    /// Matrix `[n, k]` in single precision.
    F32,
    /// Plain row-major single precision, for tensors that are no matrix of a product.
    Plain,
}

/// The storage of one weight, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StorageChoice {
    /// The storage.
    pub storage: Storage,
    /// Why; a clause.
    pub reason: String,
}

/// Elements of the smallest group that shares a scale: rows are padded to a multiple.
const GROUP: usize = 32;

/// Rows that the packings of matrices keep together.
const BLOCK_ROWS: usize = 16;

/// Chooses how every weight of an optimized graph is stored, by its name. Matrices of linears and embeddings get the
/// precision that the policy says, and filters that are one 8 bits where it says 8 or fewer; norms, biases, taps of other
/// convolutions and whatever else is read elementwise stay `f32`: they are small, and errors in them reach everything.
pub fn choose_storage(graph: &Graph, policy: &Policy) -> BTreeMap<String, StorageChoice> {
    let weights = graph.weights();
    weights
        .into_iter()
        .map(|(v, _)| (graph.value(v).name.clone(), choose(graph, v, policy)))
        .collect()
}

/// Share of all weights from which on [`unquantized`] says something.
const WORTH_SAYING: f64 = 0.1;

/// What somebody who asked for few bits should know, in a sentence: that many of the weights of these graphs stay in single
/// precision, since no product reads them as matrices.
#[must_use]
pub fn unquantized(graphs: &[&Graph], policy: &Policy) -> Option<String> {
    let (mut all, mut kept) = (0.0, Vec::new());
    for g in graphs {
        for (v, _) in g.weights() {
            let shape = g.ty(v).known_shape().unwrap_or_default();
            let elements: f64 = shape.iter().map(|&d| d as f64).product();
            all += elements;
            let choice = choose(g, v, policy);
            if choice.storage == Storage::Plain && shape.len() > 1 {
                kept.push((elements, g.value(v).name.clone(), choice.reason));
            }
        }
    }
    let share = kept.iter().map(|(n, ..)| n).sum::<f64>() / all;
    let (_, name, reason) = kept.iter().max_by(|a, b| a.0.total_cmp(&b.0))?;
    let more = match kept.len() - 1 {
        0 => String::new(),
        n => format!(" and {n} more"),
    };
    (share >= WORTH_SAYING).then(|| {
        format!(
            "{:.0} % of the weights stay in single precision, because no product reads them as matrices: `{name}` ({reason}){more}",
            100.0 * share
        )
    })
}

/// What reads a matrix of filters, a row for each.
const CONVOLUTION: &str = "a convolution";

/// Whether `v` are the filters of convolutions, all of whose channels every window reads, and nothing else.
fn is_convolution(g: &Graph, v: ValueId) -> bool {
    let readers = users(g, v);
    !readers.is_empty()
        && !is_output(g, v)
        && readers.iter().all(|&id| {
            let node = g.node(id);
            let groups = match &node.op {
                Op::Conv(attrs) => attrs.groups,
                Op::Conv1d { groups, .. } => *groups,
                _ => 0,
            };
            groups == 1 && node.inputs.iter().position(|&input| input == v) == Some(1)
        })
}

/// Whether `v` are such filters but for the order of their axes.
fn becomes_convolution(g: &Graph, v: ValueId) -> bool {
    let turned = |v: ValueId| match users(g, v)[..] {
        [reader] if matches!(g.node(reader).op, Op::Permute { .. }) => is_convolution(g, result(g, reader)),
        _ => false,
    };
    is_convolution(g, v) || (!is_output(g, v) && turned(v))
}

/// With fewer windows convolutions are faster as products of rows that windows gather, if those have [`MANY_INPUTS`].
const FEW_WINDOWS: usize = 256;
/// Inputs of a window from which on gathering them is little beside the product.
const MANY_INPUTS: usize = 128;

/// Multiplications for each number that is quantized or moved, from which on convolutions on integers are faster than those on floats.
const WORTH_QUANTIZING: usize = 32;

/// How the filters of a convolution lie where that is not as the model has them.
enum Laid {
    /// In 8 bits, the channels of a tap side by side.
    TapByTap,
    /// In single precision, a row for each.
    Rows,
}

/// Stores the filters of convolutions as matrices of a row for each where products with rows are faster.
///
/// - Where `policy` gives 8 bits or fewer: `[filters, taps · channels]`, the channels of a tap side by side, so that
///   what a place has is quantized once for all windows. Leaves those whose channels are no whole vectors, unless they have one tap, and those that
///   have too few multiplications to be faster.
/// - Where it gives 32 bits and few windows are known to be: `[filters, channels · taps]`.
///
/// Returns the names of those of the first kind, which [`Storage::Int8Rows`] then stores.
///
/// # Errors
/// [`ErrorKind::Graph`](crate::ErrorKind::Graph) where the graph is not valid.
pub fn lay_filters(graph: &mut Graph, policy: &Policy) -> crate::Result<BTreeSet<String>> {
    let filters: Vec<(ValueId, WeightExpr)> = graph.weights().into_iter().map(|(v, e)| (v, e.clone())).collect();
    let (mut changed, mut by_taps) = (false, BTreeSet::new());
    for (v, expr) in filters {
        if let Some(laid) = laid(graph, v, policy) {
            if matches!(laid, Laid::TapByTap) {
                by_taps.insert(graph.value(v).name.clone());
            }
            lay(graph, v, expr, &laid)?;
            changed = true;
        }
    }
    if changed {
        *graph = graph.compacted();
    }
    Ok(by_taps)
}

fn laid(g: &Graph, v: ValueId, policy: &Policy) -> Option<Laid> {
    let shape = g.ty(v).known_shape()?;
    let [filters, channels, kernel @ ..] = &shape[..] else {
        return None;
    };
    if kernel.is_empty() || !is_convolution(g, v) {
        return None;
    }
    let taps: usize = kernel.iter().product();
    match storage_of_matrix(policy.bits_of(&g.value(v).name, false).0, channels * taps) {
        Storage::Int8 | Storage::Codebook(_) => {
            let fits = taps == 1 || channels % BLOCK_ROWS == 0;
            let pays = filters * channels * taps >= WORTH_QUANTIZING * (filters + channels);
            (fits && pays).then_some(Laid::TapByTap)
        }
        Storage::F32 => (channels * taps >= MANY_INPUTS && has_few_windows(g, v)).then_some(Laid::Rows),
        _ => None,
    }
}

/// Whether all convolutions with the filters `v` are known to have few windows.
fn has_few_windows(g: &Graph, v: ValueId) -> bool {
    users(g, v).iter().all(|&reader| {
        let places = g.ty(result(g, reader)).shape.get(2..).unwrap_or_default();
        let windows = places.iter().try_fold(1usize, |n, dim| n.checked_mul(dim.as_known()?));
        windows.is_some_and(|windows| windows < FEW_WINDOWS)
    })
}

fn lay(g: &mut Graph, v: ValueId, expr: WeightExpr, laid: &Laid) -> crate::Result<()> {
    let (name, shape) = (g.value(v).name.clone(), g.ty(v).known_shape().unwrap_or_default());
    let (axes, rows) = (shape.len(), [shape[0], shape[1..].iter().product()]);
    // Channels last, and back.
    let last: Vec<usize> = [0].into_iter().chain(2..axes).chain([1]).collect();
    let back: Vec<usize> = [0, axes - 1].into_iter().chain(1..axes - 1).collect();
    let moves = matches!(laid, Laid::TapByTap) && rows[1] != shape[1];
    let x = match moves {
        true => WeightExpr::Permute {
            x: Box::new(expr),
            perm: last.clone(),
        },
        false => expr,
    };
    let flat = WeightExpr::Reshape {
        x: Box::new(x),
        shape: rows.to_vec(),
    };
    let Some(&first) = users(g, v).first() else {
        return Ok(());
    };
    let matrix = g.add_weight(name, TensorType::new(DType::F32, rows.map(Dim::from)), flat);
    let sizes = |order: &[usize]| order.iter().map(|&axis| shape[axis].into()).collect();
    let order: Vec<usize> = if moves { last } else { (0..axes).collect() };
    let mut seen = insert_before(g, first, Op::Reshape { shape: sizes(&order) }, &[matrix])?;
    if moves {
        seen = insert_before(g, first, Op::Permute { perm: back }, &[seen])?;
    }
    g.replace_uses(v, seen);
    Ok(())
}

fn choose(g: &Graph, v: ValueId, policy: &Policy) -> StorageChoice {
    let choice = |storage, reason: String| StorageChoice { storage, reason };
    let mut roles: Vec<&str> = Vec::new();
    for (_, node) in g.nodes() {
        for (i, _) in node.inputs.iter().enumerate().filter(|(_, input)| **input == v) {
            let role = match (&node.op, i) {
                (Op::Linear, 1) | (Op::AltupPredict, 2) | (Op::AltupCorrect { .. }, 3) => "a linear",
                (Op::Embedding, 0) => "an embedding",
                // Each expert is a matrix of its own, which must begin with a block of rows.
                (op, i) if op.expert_weights().is_some_and(|w| w.contains(&i)) => {
                    let [gate_up, down] = op.expert_weights().unwrap_or([i, i]);
                    let (n, m) = (
                        g.ty(node.inputs[gate_up]).last_known(),
                        g.ty(node.inputs[down]).last_known(),
                    );
                    let rows = if i == gate_up { m.map(|m| 2 * m) } else { n };
                    match rows {
                        Some(rows) if rows % BLOCK_ROWS == 0 => "experts",
                        _ => return choice(Storage::Plain, "experts with an odd number of rows".into()),
                    }
                }
                (Op::Linear, _) => return choice(Storage::Plain, "a bias".into()),
                (
                    Op::RmsNorm { .. }
                    | Op::LayerNorm { .. }
                    | Op::NormRope { .. }
                    | Op::NormAdd { .. }
                    | Op::NormGate { .. },
                    _,
                ) => {
                    return choice(Storage::Plain, "a norm".into());
                }
                (Op::Reshape { .. }, 0) if g.ty(v).shape.len() == 2 && becomes_convolution(g, node.outputs[0]) => {
                    CONVOLUTION
                }
                (Op::ShortConv { .. } | Op::Conv1d { .. }, _) => {
                    return choice(Storage::Plain, "a convolution".into());
                }
                (op, _) => return choice(Storage::Plain, format!("read by {}", op.mnemonic())),
            };
            if !roles.contains(&role) {
                roles.push(role);
            }
        }
    }
    if roles.is_empty() {
        return choice(Storage::Plain, "an output of the model".into());
    }
    let role = roles.join(" and ");
    let width = g.ty(v).last_known().unwrap_or(0);
    let (bits, why) = policy.bits_of(&g.value(v).name, roles.contains(&"an embedding"));
    let storage = match (storage_of_matrix(bits, width), roles.contains(&CONVOLUTION)) {
        (storage, false) => storage,
        (Storage::Int8 | Storage::Codebook(_), true) => Storage::Int8,
        (Storage::F32, true)
            if g.nodes()
                .any(|(_, node)| node.inputs.contains(&v) && has_few_windows(g, node.outputs[0])) =>
        {
            Storage::F32
        }
        (_, true) => return choice(Storage::Plain, CONVOLUTION.into()),
    };
    match (bits, storage) {
        (Bits::Sixteen, _) | (_, Storage::F32 | Storage::Int8 | Storage::Codebook(_)) => {
            choice(storage, format!("{role}, {} bits {why}", bits.number()))
        }
        _ => choice(
            storage,
            format!("{role}, but so narrow ({width}) that groups of {GROUP} would be larger than 16 bits"),
        ),
    }
}

/// Lets attention be computed on integers where its queries, keys and values are products with matrices of 8 bits or fewer, so that more
/// accuracy than that is lost already, where it has nothing beside them, and no fewer queries than keys, as in encoders: keys become bytes in each
/// call, which pays for many queries alone. Returns how many operations of the graph that are.
///
/// # Errors
/// [`ErrorKind::Graph`](crate::ErrorKind::Graph) where the graph is not valid.
pub fn attend_on_integers(graph: &mut Graph, chosen: &BTreeMap<String, StorageChoice>) -> crate::Result<usize> {
    let fitting: Vec<_> = graph
        .nodes()
        .filter_map(|(id, node)| match &node.op {
            Op::Attention(a) if a.is_bare(node.inputs.len()) && has_many_queries(graph, node) => {
                let few = node.inputs.iter().all(|&v| is_of_few_bits(graph, v, chosen));
                let integers = true;
                few.then(|| (id, AttentionAttrs { integers, ..a.clone() }, node.inputs.clone()))
            }
            _ => None,
        })
        .collect();
    for (id, attrs, inputs) in &fitting {
        graph.replace(*id, Op::Attention(attrs.clone()), inputs)?;
    }
    Ok(fitting.len())
}

/// Whether an attention has no fewer queries than keys.
fn has_many_queries(g: &Graph, attention: &Node) -> bool {
    let [queries, keys] = [0, 1].map(|i| &g.ty(attention.inputs[i]).shape[1]);
    queries == keys || matches!((queries.as_known(), keys.as_known()), (Some(q), Some(k)) if q >= k)
}

/// Whether `v` is a product with a matrix of 8 bits or fewer, moved about or with something added, normalized or scaled at most.
fn is_of_few_bits(g: &Graph, mut v: ValueId, chosen: &BTreeMap<String, StorageChoice>) -> bool {
    while let Some((_, node)) = g.producer(v) {
        v = match &node.op {
            Op::Linear => {
                let storage = chosen.get(&g.value(node.inputs[1]).name).map(|choice| choice.storage);
                return matches!(storage, Some(Storage::Int8 | Storage::Codebook(_)));
            }
            Op::Reshape { .. }
            | Op::Permute { .. }
            | Op::Slice { .. }
            | Op::RmsNorm { .. }
            | Op::Rope { .. }
            | Op::NormRope { .. }
            // Kept within bounds.
            | Op::Binary {
                f: BinaryFn::Max | BinaryFn::Min,
            } => node.inputs[0],
            Op::Binary { .. } => match times_scalar(g, v) {
                Some((x, _)) => x,
                None => return false,
            },
            _ => return false,
        };
    }
    false
}

/// The storage of a matrix of rows of `width` that is asked to have `bits`: 16 where rows are so short that fewer would
/// take more.
#[must_use]
pub fn storage_of_matrix(bits: Bits, width: usize) -> Storage {
    match bits {
        Bits::ThirtyTwo => Storage::F32,
        Bits::Sixteen => Storage::F16,
        _ if bits.stored() * width.next_multiple_of(GROUP) as f64 >= 16.0 * width as f64 => Storage::F16,
        Bits::Eight => Storage::Int8,
        few => Storage::Codebook(few.number()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cactus_ir::{ConvAttrs, GraphBuilder};

    #[test]
    fn storage_follows_reader_width_and_bits() {
        let mut b = GraphBuilder::new("g");
        let ids = b.input("ids", TensorType::new(DType::I64, ["seq".into()]));
        let table = b.weight("tied", &[8, 64]);
        let (narrow, wide) = (b.weight("narrow", &[8, 64]), b.weight("wide", &[64, 8]));
        let [bias, norm, factor] = [("bias", 8), ("norm", 8), ("factor", 64)].map(|(name, n)| b.weight(name, &[n]));
        let y = b
            .embedding(table, ids)
            .and_then(|x| b.mul(x, factor))
            .and_then(|x| b.linear(x, narrow, Some(bias)))
            .and_then(|x| b.op(Op::RmsNorm { eps: 1e-6 }, &[x, norm]))
            .and_then(|x| b.linear(x, wide, None))
            .and_then(|x| b.linear(x, table, None))
            .unwrap();
        b.output("y", y);
        let g = b.finish().unwrap();
        let (plain, f16, f32) = (Storage::Plain, Storage::F16, Storage::F32);
        let cases = [
            ("tied", [Storage::Codebook(4), Storage::Int8, f16, f32], "a linear"),
            ("narrow", [Storage::Codebook(3), Storage::Int8, f16, f32], "a linear"),
            ("wide", [Storage::Codebook(3), f16, f16, f32], "a linear"),
            ("bias", [plain; 4], "a bias"),
            ("norm", [plain; 4], "a norm"),
            ("factor", [plain; 4], "read by mul"),
        ];
        for (i, bits) in [Bits::Three, Bits::Eight, Bits::Sixteen, Bits::ThirtyTwo]
            .into_iter()
            .enumerate()
        {
            let choices = choose_storage(&g, &Policy::uniform(bits));
            assert_eq!(choices.len(), cases.len());
            for (name, want, reason) in &cases {
                let choice = &choices[*name];
                assert_eq!(choice.storage, want[i], "{name} at {bits:?}: {}", choice.reason);
                assert!(choice.reason.contains(reason), "{name}: {}", choice.reason);
            }
        }
        assert!(
            choose_storage(&g, &Policy::uniform(Bits::Eight))["wide"]
                .reason
                .contains("so narrow (8)")
        );
        assert!(
            choose_storage(&g, &Policy::uniform(Bits::Eight))["tied"]
                .reason
                .contains("embedding")
        );
        assert_eq!(unquantized(&[&g], &Policy::uniform(Bits::Four)), None);
    }

    #[test]
    fn filters_that_every_window_reads_whole_have_8_bits_at_most() {
        let stored = |groups: usize, bits, length: Dim| {
            let mut b = GraphBuilder::new("g");
            let x = b.input("x", TensorType::new(DType::F32, [1.into(), 64.into(), length]));
            let w = b.weight("filters", &[32, 64 / groups * 3]);
            let filters = b.reshape(w, [32.into(), (64 / groups).into(), 3.into()]).unwrap();
            let (pad_left, pad_right) = (1, 1);
            let conv = Op::Conv1d {
                groups,
                pad_left,
                pad_right,
            };
            let y = b.op(conv, &[x, filters]).unwrap();
            b.output("y", y);
            choose_storage(&b.finish().unwrap(), &Policy::uniform(bits))["filters"].storage
        };
        for (groups, bits, expected) in [
            (1, Bits::Four, Storage::Int8),
            (1, Bits::Eight, Storage::Int8),
            (1, Bits::Sixteen, Storage::Plain),
            (1, Bits::ThirtyTwo, Storage::Plain),
            (2, Bits::Eight, Storage::Plain),
        ] {
            for length in ["seq".into(), 3000.into()] {
                assert_eq!(stored(groups, bits, length), expected, "{groups} groups, {bits:?}");
            }
        }
        // A weight that is no matrix as it is stored.
        let mut b = GraphBuilder::new("g");
        let x = b.input("x", TensorType::new(DType::F32, [1, 64, 9].map(Dim::from)));
        let w = b.weight("filters", &[32, 64, 1, 1]);
        let filters = b.reshape(w, [32, 64, 1].map(Dim::from)).unwrap();
        let conv = Op::Conv1d {
            groups: 1,
            pad_left: 0,
            pad_right: 0,
        };
        let y = b.op(conv, &[x, filters]).unwrap();
        b.output("y", y);
        let g = b.finish().unwrap();
        for bits in [Bits::Eight, Bits::ThirtyTwo] {
            let chosen = choose_storage(&g, &Policy::uniform(bits));
            assert_eq!(chosen["filters"].storage, Storage::Plain, "{bits:?}");
        }
        // Few windows.
        assert_eq!(stored(1, Bits::ThirtyTwo, 9.into()), Storage::F32);
    }

    #[test]
    fn filters_lie_tap_by_tap_in_few_bits_and_in_rows_for_few_windows() {
        let stored = |channels: usize, kernel: usize, groups: usize, bits| {
            let mut b = GraphBuilder::new("g");
            let sizes = [1, channels, 9, 9].map(Dim::from);
            let x = b.input("x", TensorType::new(DType::F32, sizes));
            let w = b.weight("filters", &[96, channels / groups, kernel, kernel]);
            let conv = Op::Conv(ConvAttrs {
                groups,
                stride: vec![1; 2],
                padding: vec![[1, 1]; 2],
                dilation: vec![1; 2],
            });
            let y = b.op(conv, &[x, w]).unwrap();
            b.output("y", y);
            let (mut g, policy) = (b.finish().unwrap(), Policy::uniform(bits));
            let changed = lay_filters(&mut g, &policy).unwrap();
            g.verify().unwrap();
            let [(weight, expr)] = g.weights()[..] else {
                panic!("one weight")
            };
            let (is_laid, by_taps) = (g.ty(weight).shape.len() == 2, changed.contains("filters"));
            assert_eq!(by_taps, is_laid && bits != Bits::ThirtyTwo);
            let turned = matches!(expr, WeightExpr::Reshape { x, .. } if matches!(**x, WeightExpr::Permute { .. }));
            assert_eq!(turned, by_taps && kernel > 1);
            choose_storage(&g, &policy)["filters"].storage
        };
        for (channels, kernel, groups, bits, expected) in [
            (64, 3, 1, Bits::Eight, Storage::Int8),
            (64, 3, 1, Bits::Four, Storage::Int8),
            (72, 1, 1, Bits::Eight, Storage::Int8),
            (80, 3, 1, Bits::Eight, Storage::Int8),
            (72, 3, 1, Bits::Eight, Storage::Plain),
            (24, 1, 1, Bits::Eight, Storage::Plain),
            (64, 3, 2, Bits::Eight, Storage::Plain),
            (64, 3, 1, Bits::Sixteen, Storage::Plain),
            (64, 3, 1, Bits::ThirtyTwo, Storage::F32),
            (24, 1, 1, Bits::ThirtyTwo, Storage::Plain),
        ] {
            let what = format!("{channels} channels, {kernel} taps a side, {groups} groups, {bits:?}");
            assert_eq!(stored(channels, kernel, groups, bits), expected, "{what}");
        }
    }

    #[test]
    fn attention_is_on_integers_where_all_that_it_reads_has_few_bits_and_nothing_stands_beside() {
        let chosen_of = |queries: Dim, keys: Dim, causal: bool, rule: Option<(&str, Bits)>| {
            let mut b = GraphBuilder::new("g");
            let [q, k, v] = [("q", &queries), ("k", &keys), ("v", &keys)].map(|(name, length)| {
                let x = format!("{name}.x");
                let x = b.input(&x, TensorType::new(DType::F32, [1.into(), length.clone(), 64.into()]));
                let (w, bias) = (b.weight(name, &[64, 64]), b.weight(&format!("{name}.bias"), &[64]));
                let y = b.linear(x, w, Some(bias)).unwrap();
                let y = b.scale(y, 0.5).unwrap();
                b.reshape(y, [1.into(), length.clone(), 2.into(), 32.into()]).unwrap()
            });
            let attrs = AttentionAttrs {
                scale: 0.2,
                causal,
                ..AttentionAttrs::default()
            };
            let y = b.op(Op::Attention(attrs), &[q, k, v]).unwrap();
            b.output("y", y);
            let mut g = b.finish().unwrap();
            let mut policy = Policy::uniform(Bits::Eight);
            policy.rules.extend(rule.map(|(name, bits)| (name.to_owned(), bits)));
            let storage = choose_storage(&g, &policy);
            let count = attend_on_integers(&mut g, &storage).unwrap();
            g.verify().unwrap();
            let all = g
                .nodes()
                .filter(|(_, node)| matches!(&node.op, Op::Attention(a) if a.integers));
            assert_eq!(all.count(), count);
            count
        };
        let alike = |causal, rule| chosen_of("seq".into(), "seq".into(), causal, rule);
        assert_eq!(alike(false, None), 1);
        assert_eq!(alike(false, Some(("v", Bits::Four))), 1);
        assert_eq!(alike(false, Some(("v", Bits::Sixteen))), 0);
        assert_eq!(alike(true, None), 0);
        for (queries, keys, count) in [
            ("a".into(), "b".into(), 0),
            (7.into(), 8.into(), 0),
            (8.into(), 7.into(), 1),
        ] {
            assert_eq!(chosen_of(queries, keys, false, None), count);
        }
    }

    #[test]
    fn weights_that_stay_whole_are_named_where_they_are_many() {
        let with = |rows: usize| {
            let mut b = GraphBuilder::new("g");
            let x = b.input("x", TensorType::new(DType::F32, ["n".into(), 64.into()]));
            let (w, experts) = (b.weight("w", &[64, 64]), b.weight("experts", &[rows, 64]));
            let at = b.scalar_i64(1).unwrap();
            let taken = b.op(Op::Take { axis: 0 }, &[experts, at]).unwrap();
            let y = b.linear(x, w, None).and_then(|y| b.mul(y, taken)).unwrap();
            b.output("y", y);
            b.finish().unwrap()
        };
        let policy = Policy::uniform(Bits::Eight);
        assert_eq!(unquantized(&[&with(7)], &policy), None);
        let said = unquantized(&[&with(7), &with(320)], &policy).unwrap();
        assert_eq!(
            said,
            "72 % of the weights stay in single precision, because no product reads them as matrices: `experts` (read by take) and 1 more"
        );
    }
}
