//! Products: linears, matrices, sums of products by letters, attention.

use super::elementwise::{one, scaled};
use super::shape::repeated;
use super::{Row, unsupported};
use crate::Result;
use crate::pt2::arguments::Call;
use crate::pt2::importer::{Importer, invalid};
use cactus_ir::{BinaryFn, CompareFn, Dim, Op, ReduceFn, ValueId};
use cactus_tensor::DType;

pub(super) const ROWS: &[(&str, Row)] = &[
    ("linear", linear),
    ("mm", |im, c| {
        let (a, b) = (c.tensor("self")?, c.tensor("mat2")?);
        one(im.op(Op::MatMul, &[a, b]))
    }),
    ("bmm", |im, c| {
        let (a, b) = (c.tensor("self")?, c.tensor("mat2")?);
        one(im.op(Op::MatMul, &[a, b]))
    }),
    ("mv", |im, c| {
        let (a, b) = (c.tensor("self")?, c.tensor("vec")?);
        one(matmul(im, a, b))
    }),
    ("dot", |im, c| {
        let (a, b) = (c.tensor("self")?, c.tensor("tensor")?);
        one(matmul(im, a, b))
    }),
    ("matmul", |im, c| {
        let (a, b) = (c.tensor("self")?, c.tensor("other")?);
        one(matmul(im, a, b))
    }),
    ("addmm", |im, c| add_product(im, c, ["mat1", "mat2"])),
    ("baddbmm", |im, c| add_product(im, c, ["batch1", "batch2"])),
    ("einsum", einsum),
    ("scaled_dot_product_attention", attention),
    ("_scaled_dot_product_flash_attention_for_cpu", attention),
];

fn linear(im: &mut Importer<'_>, call: &Call) -> Result<Vec<ValueId>> {
    let (x, w, bias) = (call.tensor("input")?, call.tensor("weight")?, call.optional("bias")?);
    if im.rank(w) != 2 {
        return unsupported("a linear whose weight is not a matrix");
    }
    let inputs: Vec<ValueId> = [x, w].into_iter().chain(bias).collect();
    one(im.op(Op::Linear, &inputs))
}

/// NumPy's product: operands of one axis are a row on the left, a column on the right.
fn matmul(im: &mut Importer<'_>, a: ValueId, b: ValueId) -> Result<ValueId> {
    let (ra, rb) = (im.rank(a), im.rank(b));
    if ra == 0 || rb == 0 {
        return unsupported("a product of a matrix with a number");
    }
    let left = if ra == 1 { im.unsqueeze(a, 0)? } else { a };
    let right = if rb == 1 { im.unsqueeze(b, 1)? } else { b };
    let y = im.op(Op::MatMul, &[left, right])?;
    let mut shape = im.shape(y);
    if rb == 1 {
        shape.pop();
    }
    if ra == 1 {
        shape.remove(shape.len() - 1 - usize::from(rb != 1));
    }
    im.reshape(y, shape)
}

fn add_product(im: &mut Importer<'_>, call: &Call, names: [&str; 2]) -> Result<Vec<ValueId>> {
    let (mut x, a, b) = (call.tensor("self")?, call.tensor(names[0])?, call.tensor(names[1])?);
    let (alpha, beta) = (call.float("alpha", Some(1.0))?, call.float("beta", Some(1.0))?);
    let mut y = im.op(Op::MatMul, &[a, b])?;
    if alpha != 1.0 {
        y = scaled(im, y, alpha)?;
    }
    if beta == 0.0 {
        return Ok(vec![y]);
    }
    if beta != 1.0 {
        x = scaled(im, x, beta)?;
    }
    one(im.binary(BinaryFn::Add, y, x))
}

/// Sums of products by letters, two operands at a time.
fn einsum(im: &mut Importer<'_>, call: &Call) -> Result<Vec<ValueId>> {
    let equation: String = call
        .text("equation", "")?
        .chars()
        .filter(|c| !c.is_whitespace())
        .collect();
    let operands = call.tensors("tensors")?;
    call.ignore(&["path"]);
    let Some((left, right)) = equation.split_once("->") else {
        return unsupported(format!("the equation `{equation}`: write its result after `->`"));
    };
    let terms: Vec<Vec<char>> = left.split(',').map(|t| t.chars().collect()).collect();
    let target: Vec<char> = right.chars().collect();
    let plain = terms.iter().flatten().chain(&target).all(|c| c.is_ascii_alphabetic());
    let distinct = terms
        .iter()
        .all(|t| t.iter().enumerate().all(|(i, c)| !t[..i].contains(c)));
    if !plain || !distinct || terms.len() != operands.len() {
        return unsupported(format!("the equation `{equation}`"));
    }
    let mut rest: Vec<(Vec<char>, ValueId)> = terms.into_iter().zip(operands).collect();
    for (letters, v) in &rest {
        if letters.len() != im.rank(*v) {
            return unsupported(format!("the equation `{equation}` for {}", im.ty(*v)));
        }
    }
    let mut joined = rest.remove(0);
    while !rest.is_empty() {
        let next = rest.remove(0);
        let needed = |c: &char| target.contains(c) || rest.iter().any(|(l, _)| l.contains(c));
        joined = product(im, joined, next, &needed)?;
    }
    let (letters, mut v) = joined;
    let summed: Vec<usize> = (0..letters.len()).filter(|&i| !target.contains(&letters[i])).collect();
    v = im.reduce(ReduceFn::Sum, v, &summed, false)?;
    let letters: Vec<char> = letters.into_iter().filter(|c| target.contains(c)).collect();
    let perm: Option<Vec<usize>> = target.iter().map(|c| letters.iter().position(|l| l == c)).collect();
    match perm {
        Some(perm) if perm.len() == letters.len() => one(im.permute(v, perm)),
        _ => unsupported(format!("the equation `{equation}`")),
    }
}

type Lettered = (Vec<char>, ValueId);

fn product(im: &mut Importer<'_>, a: Lettered, b: Lettered, needed: &dyn Fn(&char) -> bool) -> Result<Lettered> {
    let shared = |c: &char| a.0.contains(c) && b.0.contains(c);
    let batch: Vec<char> = a.0.iter().copied().filter(|c| shared(c) && needed(c)).collect();
    let summed: Vec<char> = a.0.iter().copied().filter(|c| shared(c) && !needed(c)).collect();
    let own = |l: &[char]| l.iter().copied().filter(|c| !shared(c)).collect::<Vec<char>>();
    let (left, right) = (own(&a.0), own(&b.0));
    // [batch…, left, summed] times [batch…, summed, right]
    let (la, sa) = arranged(im, &a, [&batch, &left, &summed])?;
    let (lb, _) = arranged(im, &b, [&batch, &summed, &right])?;
    let (lb_sizes, la_sizes) = (letters_sizes(im, &b, &right), sa);
    let y = im.op(Op::MatMul, &[la, lb])?;
    let shape: Vec<Dim> = im.shape(y)[..batch.len()]
        .iter()
        .cloned()
        .chain(la_sizes)
        .chain(lb_sizes)
        .collect();
    let y = im.reshape(y, shape)?;
    Ok(([batch, left, right].concat(), y))
}

fn letters_sizes(im: &Importer<'_>, x: &Lettered, letters: &[char]) -> Vec<Dim> {
    let shape = im.shape(x.1);
    letters
        .iter()
        .filter_map(|c| x.0.iter().position(|l| l == c))
        .map(|i| shape[i].clone())
        .collect()
}

/// `x` with its axes in groups: the first as they are, each of the others merged into one axis. With the sizes of the
/// second group.
fn arranged(im: &mut Importer<'_>, x: &Lettered, groups: [&[char]; 3]) -> Result<(ValueId, Vec<Dim>)> {
    let order: Vec<char> = groups.concat();
    let perm: Vec<usize> = order.iter().filter_map(|c| x.0.iter().position(|l| l == c)).collect();
    let sizes = groups.map(|g| letters_sizes(im, x, g));
    let merged = |dims: &[Dim]| {
        dims.iter()
            .try_fold(Dim::known(1), |a, d| match (a.as_integer(), d.as_integer()) {
                (Some(n), _) => d.times_integer(n).map_err(invalid),
                (_, Some(n)) => a.times_integer(n).map_err(invalid),
                _ => unsupported("two axes that vary merged into one"),
            })
    };
    let mut shape = sizes[0].clone();
    shape.push(merged(&sizes[1])?);
    shape.push(merged(&sizes[2])?);
    let y = im.permute(x.1, perm)?;
    let [_, second, _] = sizes;
    Ok((im.reshape(y, shape)?, second))
}

/// Attention written out, for the passes to recognize: heads `[…, heads, positions, width]`.
fn attention(im: &mut Importer<'_>, call: &Call) -> Result<Vec<ValueId>> {
    let (q, mut k, mut v) = (call.tensor("query")?, call.tensor("key")?, call.tensor("value")?);
    let mask = call.optional("attn_mask")?;
    if call.float("dropout_p", Some(0.0))? != 0.0 {
        return unsupported("dropout in attention; call eval() on the module first");
    }
    let causal = call.flag("is_causal", false)?;
    let rank = im.rank(q);
    let Some(width) = im.shape(q).last().and_then(Dim::as_known).filter(|_| rank >= 2) else {
        return unsupported("attention heads of a width that varies");
    };
    let scale = call.float("scale", Some(1.0 / (width as f64).sqrt()))?;
    if call.flag("enable_gqa", false)? && rank >= 3 {
        let (heads, kv) = (im.shape(q)[rank - 3].as_known(), im.shape(k)[rank - 3].as_known());
        let (Some(heads), Some(kv)) = (heads, kv.filter(|&n| n > 0)) else {
            return unsupported("a number of heads that varies");
        };
        if heads != kv {
            k = repeated(im, k, rank - 3, heads / kv)?;
            v = repeated(im, v, rank - 3, heads / kv)?;
        }
    }
    let mut perm: Vec<usize> = (0..rank).collect();
    perm.swap(rank - 1, rank - 2);
    let keys = im.permute(k, perm)?;
    let scores = im.op(Op::MatMul, &[q, keys])?;
    let mut scores = scaled(im, scores, scale)?;
    if causal {
        let shape = im.shape(scores);
        let (queries, all) = (shape[rank - 2].clone(), shape[rank - 1].clone());
        let key = im.b.iota(0usize, all).map_err(invalid)?;
        let query = im.b.iota(0usize, queries.clone()).map_err(invalid)?;
        let query = im.reshape(query, vec![queries, Dim::known(1)])?;
        let seen = im.compare(CompareFn::Le, key, query)?;
        scores = hidden(im, scores, seen)?;
    }
    if let Some(mask) = mask {
        scores = match im.dtype(mask) {
            DType::Bool => hidden(im, scores, mask)?,
            _ => im.binary(BinaryFn::Add, scores, mask)?,
        };
    }
    let shares = im.op(Op::Softmax { axis: rank - 1 }, &[scores])?;
    one(im.op(Op::MatMul, &[shares, v]))
}

/// Scores where they are seen, and minus infinity elsewhere.
fn hidden(im: &mut Importer<'_>, scores: ValueId, seen: ValueId) -> Result<ValueId> {
    let never = im.scalar(f64::NEG_INFINITY)?;
    im.select(seen, scores, never)
}
