//! Which weights can be coarse: each matrix alone is made coarser, and the model's output is compared.

use crate::compare::{LogSoftmax, divergence};
use crate::{Error, Result, Runner, Sensitivity, Windows};
use cactus_bundle::Bundle;
use cactus_quant::{Packing, pack};

/// Measures every matrix named in `names` at `bits` of a codebook packing, over the second halves of `windows`. `runner` holds
/// the weights in floats. `progress` gets the matrices done.
///
/// # Errors
/// What the runtime found, and matrices that cannot be packed.
pub fn sensitivity(
    runner: &mut Runner,
    names: &[String],
    bits: u32,
    windows: &Windows,
    progress: &mut dyn FnMut(usize),
) -> Result<Vec<Sensitivity>> {
    let vocab = runner.vocab_size();
    let mut reference: Vec<f32> = Vec::new();
    outputs(runner, windows, &mut |_, logits| reference.extend_from_slice(logits))?;
    let measure = &mut |name: &str| {
        let (elements, coarse) = coarser(runner.bundle(), name, bits)?;
        runner.replace(name, Some(coarse))?;
        let (mut sum, mut count) = (0.0, 0usize);
        let measured = outputs(runner, windows, &mut |i, logits| {
            let exact = &reference[i * vocab..(i + 1) * vocab];
            sum += divergence(exact, &LogSoftmax::of(exact), logits, &LogSoftmax::of(logits));
            count += 1;
        });
        runner.replace(name, None)?;
        measured?;
        Ok((elements, sum / count.max(1) as f64))
    };
    each_coarser(names, bits, measure, progress)
}

/// What `measure` finds for each matrix alone at `bits`: its elements, and how far the output is from the exact one.
pub(crate) fn each_coarser(
    names: &[String],
    bits: u32,
    measure: &mut dyn FnMut(&str) -> Result<(u64, f64)>,
    progress: &mut dyn FnMut(usize),
) -> Result<Vec<Sensitivity>> {
    let mut out = Vec::new();
    for (done, name) in names.iter().enumerate() {
        let (elements, divergence) = measure(name)?;
        out.push(Sensitivity {
            name: name.clone(),
            elements,
            divergence,
            bits,
            least: 2,
        });
        progress(done + 1);
    }
    Ok(out)
}

/// The logits of the second half of every window, counted through.
fn outputs(runner: &mut Runner, windows: &Windows, each: &mut dyn FnMut(usize, &[f32])) -> Result<()> {
    let mut base = 0;
    for window in windows.iter() {
        runner.reset();
        let first = window.len() / 2;
        runner.feed(window, first, &mut |i, logits| each(base + i - first, logits))?;
        base += window.len() - first;
    }
    runner.reset();
    Ok(())
}

/// The matrix `name` after a round trip through a codebook packing, in the packing that the bundle stores it in.
pub(crate) fn coarser(bundle: &Bundle, name: &str, bits: u32) -> Result<(u64, cactus_quant::Packed)> {
    let failed = |source| Error::Pack {
        weight: name.to_owned(),
        source,
    };
    let index = bundle
        .weight_index(name)
        .ok_or_else(|| Error::Mismatch(format!("the bundle has no tensor `{name}`")))?;
    let stored = bundle.weight_at(index).matrix().map_err(failed)?;
    let (n, k) = (stored.n(), stored.k());
    let mut values = vec![0f32; n * k];
    for (row, out) in values.chunks_exact_mut(k).enumerate() {
        stored.decode_row(row, out);
    }
    let packing = Packing::of_codebook_bits(bits).ok_or_else(|| {
        Error::Mismatch(format!(
            "sensitivity is measured with codebooks of 1 to 6 bits, not {bits}"
        ))
    })?;
    let packed = pack(packing, n, k, &values).map_err(failed)?;
    for (row, out) in values.chunks_exact_mut(k).enumerate() {
        packed.view().decode_row(row, out);
    }
    Ok(((n * k) as u64, pack(stored.packing(), n, k, &values).map_err(failed)?))
}
