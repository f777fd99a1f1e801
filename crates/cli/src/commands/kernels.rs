//! What the matrix products can run on here, how fast each is, and which one is picked.

use crate::args::KernelsArgs;
use crate::output;
use anyhow::{Context, Result, bail, ensure};
use cactus_base::{AlignedBuf, Pool};
use cactus_kernels::{Activations, Epilogue, Exec, Kernels, QuantizedRows, RotatedRows};
use cactus_quant::{PackedLayout, PackedView, Packing};
use std::time::Instant;

/// Rows, inputs and outputs of the products of small language models: decoding, verifying guesses, prefill.
const SHAPES: [Shape; 7] = [
    Shape(1, 576, 1536),
    Shape(1, 896, 4864),
    Shape(1, 576, 49_152),
    Shape(4, 896, 4864),
    Shape(8, 896, 4864),
    Shape(128, 576, 3072),
    Shape(128, 896, 4864),
];
const PACKINGS: [Packing; 4] = [Packing::Int8G32, Packing::Tcq4G128, Packing::F16N16, Packing::F32N16];
/// Weights that are read in turn, so that decoding reads memory and not the cache, as with a whole model.
const WEIGHT_BYTES: usize = 128 << 20;
/// Most bytes of activations, and of outputs.
const ROW_BYTES: usize = 256 << 20;
/// A pick this much slower than the fastest is within the noise of a shared machine.
const NOISE: f64 = 1.10;

/// Rows, inputs, outputs.
#[derive(Clone, Copy)]
struct Shape(usize, usize, usize);

#[derive(serde::Serialize)]
struct Row {
    packing: &'static str,
    m: usize,
    k: usize,
    n: usize,
    tier: &'static str,
    microseconds: f64,
    weight_gb_per_s: f64,
    gop_per_s: f64,
    picked: bool,
    fastest: bool,
}

pub(crate) fn run(args: &KernelsArgs) -> Result<()> {
    let picked = Kernels::detect()?;
    let shapes = match &args.shape {
        Some(text) => vec![parse(text)?],
        None => SHAPES.to_vec(),
    };
    ensure!(args.reps > 0, "`--reps` must be at least 1");
    let packings = match &args.packing {
        Some(name) => vec![named(name)?],
        None => PACKINGS.to_vec(),
    };
    let threads = usize::from(args.threads);
    let pool = Pool::new(threads);
    let candidates: Vec<&'static Kernels> = Kernels::available().collect();
    let mut weights = AlignedBuf::zeroed(WEIGHT_BYTES)?;
    // Bytes 0x11 are integers 17 and small numbers as f16 and f32: no infinity and no subnormal slows a product down.
    weights.fill(0x11);
    let mut rows = Vec::new();
    for packing in packings {
        for shape in &shapes {
            let mut times: Vec<Vec<f64>> = vec![Vec::new(); candidates.len()];
            for _ in 0..args.reps {
                // In turn, so that a change in the machine's mood meets every candidate.
                for (kernels, times) in candidates.iter().zip(&mut times) {
                    let exec = Exec {
                        kernels,
                        step: &pool.step(threads),
                    };
                    times.push(seconds(exec, packing, *shape, &weights)?);
                }
            }
            let medians: Vec<f64> = times.iter_mut().map(|times| median(times)).collect();
            let best = medians.iter().copied().fold(f64::INFINITY, f64::min);
            for (kernels, seconds) in candidates.iter().zip(medians) {
                rows.push(row(packing, *shape, kernels, seconds, best, picked)?);
            }
        }
    }
    if args.json {
        output::json(&rows)?;
    } else {
        print(&rows);
    }
    let slow = rows.iter().find(|r| r.picked && !r.fastest);
    match slow {
        Some(r) if args.assert => bail!(
            "{}, which is used, is more than {:.0} % slower than the fastest for {} [{},{},{}]; measure again on an idle machine, or \
             report it",
            r.tier,
            (NOISE - 1.0) * 100.0,
            r.packing,
            r.m,
            r.k,
            r.n
        ),
        _ => Ok(()),
    }
}

/// The packing of matrices of that name.
fn named(name: &str) -> Result<Packing> {
    // Filters of convolutions are multiplied otherwise.
    let multiplied = |packing: &Packing| !matches!(packing, Packing::RowMajor | Packing::Int8N16);
    let mut matrices = Packing::ALL.into_iter().filter(multiplied);
    let found = matrices.clone().find(|packing| packing.name() == name);
    found.with_context(|| {
        let names: Vec<&str> = matrices.by_ref().map(Packing::name).collect();
        format!("there is no packing `{name}`; the packings are {}", names.join(", "))
    })
}

fn parse(text: &str) -> Result<Shape> {
    let wrong = || format!("expected M,K,N (rows, inputs, outputs), such as 1,576,1536; found `{text}`");
    let numbers: Vec<usize> = text
        .split(',')
        .map(|part| part.trim().parse())
        .collect::<Result<_, _>>()
        .with_context(wrong)?;
    let [m, k, n] = numbers[..] else { bail!(wrong()) };
    ensure!(m > 0 && k > 0 && n > 0, "{}", wrong());
    ensure!(m <= 4096, "expected at most 4096 rows, found {m}");
    for (what, width) in [("inputs", k), ("outputs", n)] {
        let bytes = width.checked_mul(4 * m).context("the numbers are too large")?;
        ensure!(
            bytes <= ROW_BYTES,
            "{m} rows of {width} {what} take {}; the limit is {}",
            output::bytes(bytes as u64),
            output::bytes(ROW_BYTES as u64)
        );
    }
    Ok(Shape(m, k, n))
}

/// Seconds of one product, averaged over copies of the weights.
fn seconds(exec: Exec<'_>, packing: Packing, Shape(m, k, n): Shape, weights: &[u8]) -> Result<f64> {
    let bytes = PackedLayout::new(packing, n, k)?.data_bytes();
    ensure!(
        bytes <= weights.len(),
        "{} outputs by {k} inputs take {} as {packing}; the limit is {}",
        n,
        output::bytes(bytes as u64),
        output::bytes(weights.len() as u64)
    );
    let copies = (weights.len() / bytes).clamp(1, if m < 16 { 256 } else { 4 });
    let x: Vec<f32> = (0..m * k).map(|i| (i as f32 * 0.7).sin()).collect();
    let sizes = [QuantizedRows::bytes(m, k), RotatedRows::bytes(m, k)];
    let size = sizes
        .into_iter()
        .max()
        .flatten()
        .context("the activations are too large")?;
    let mut memory = AlignedBuf::zeroed(size)?;
    let rotated = packing.codebook_bits().is_some();
    match packing {
        Packing::Int8G32 => exec.quantize_rows(&x, m, k, &mut QuantizedRows::new(&mut memory, m, k)),
        _ if rotated => exec.rotate_rows(&x, m, k, &mut RotatedRows::new(&mut memory, m, k)),
        _ => {}
    }
    let mut out = vec![0f32; m * n];
    let start = Instant::now();
    for data in weights.chunks_exact(bytes).take(copies) {
        let w = PackedView::new(packing, n, k, &[], data)?;
        let x = match packing {
            Packing::Int8G32 => Activations::Q8(QuantizedRows::new(&mut memory, m, k)),
            _ if rotated => Activations::Rotated(RotatedRows::new(&mut memory, m, k)),
            _ => Activations::F32(&x),
        };
        exec.linear(&w, x, m, Epilogue::default(), &mut out);
    }
    Ok(start.elapsed().as_secs_f64() / copies as f64)
}

fn median(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn row(
    packing: Packing,
    Shape(m, k, n): Shape,
    kernels: &Kernels,
    seconds: f64,
    best: f64,
    picked: &Kernels,
) -> Result<Row> {
    let bytes = PackedLayout::new(packing, n, k)?.data_bytes();
    Ok(Row {
        packing: packing.name(),
        m,
        k,
        n,
        tier: kernels.tier().name(),
        microseconds: seconds * 1e6,
        weight_gb_per_s: bytes as f64 / seconds / 1e9,
        gop_per_s: 2.0 * (m * k * n) as f64 / seconds / 1e9,
        picked: kernels.tier() == picked.tier(),
        fastest: seconds <= best * NOISE,
    })
}

fn print(rows: &[Row]) {
    let table: Vec<Vec<String>> = rows
        .iter()
        .map(|r| {
            let mark = match (r.picked, r.fastest) {
                (true, true) => "used",
                (true, false) => "used, not the fastest",
                _ => "",
            };
            vec![
                r.packing.to_owned(),
                format!("{},{},{}", r.m, r.k, r.n),
                r.tier.to_owned(),
                format!("{:.1}", r.microseconds),
                format!("{:.2}", r.weight_gb_per_s),
                format!("{:.1}", r.gop_per_s),
                mark.to_owned(),
            ]
        })
        .collect();
    output::table(&["packing", "M,K,N", "tier", "µs", "GB/s", "GOP/s", ""], &table);
}
