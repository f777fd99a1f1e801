//! Speed of the products on the shapes of small language models: GB/s of weights at one row, GOP/s at a prefill chunk, and at as many rows as
//! an encoder of speech has.
//!
//! `cargo bench -p cactus-kernels --bench matmul -- [THREADS] [TIER] [ROWS]`. Rows of different shapes are measured in turn and
//! the median is printed. Weights of decode exceed the caches, as those of a whole model do: a shape is repeated until
//! all copies have 256 MB. Memory and neighbors make absolute figures vary; compare ratios within one run.

use cactus_base::{AlignedBuf, Pool};
use cactus_kernels::{Activations, Epilogue, Exec, Kernels, QuantizedRows, RotatedRows};
use cactus_quant::{PackedLayout, PackedView, Packing};
use std::io::Write;
use std::time::Instant;

const SHAPES: [(usize, usize); 8] = [
    (576, 576),
    (3072, 576),
    (576, 1536),
    (49_152, 576),
    (4096, 640),
    (262_144, 640),
    (4864, 896),
    (896, 4864),
];
const DECODE_BYTES: usize = 256 << 20;

struct Case {
    packing: Packing,
    n: usize,
    k: usize,
    rows: usize,
    seconds: Vec<f64>,
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    let threads = arguments.first().and_then(|a| a.parse().ok()).unwrap_or(1);
    let tier = arguments.get(1).map_or("auto", String::as_str);
    let only = arguments.get(2).and_then(|a| a.parse::<usize>().ok());
    let kernels = Kernels::choose(tier).unwrap_or_else(|e| panic!("{e}"));
    let pool = Pool::new(threads);

    let mut cases = Vec::new();
    for packing in [
        Packing::Int8G32,
        Packing::F16N16,
        Packing::F32N16,
        Packing::Tcq6G128,
        Packing::Tcq5G128,
        Packing::Tcq4G128,
        Packing::Tcq3G128,
        Packing::Tcq2G128,
        Packing::Cq6G128,
        Packing::Cq5G128,
        Packing::Cq4G128,
        Packing::Cq3G128,
        Packing::Cq2G128,
        Packing::Cq1G128,
    ] {
        for (n, k) in SHAPES {
            // A table of a vocabulary in single precision is larger than the memory that is set aside.
            if packing == Packing::F32N16 && n > 10_000 {
                continue;
            }
            for rows in [1, 4, 128, 1500] {
                let large = rows > 4 && n > 10_000;
                if !large && only.is_none_or(|only| only == rows) {
                    cases.push(Case {
                        packing,
                        n,
                        k,
                        rows,
                        seconds: Vec::new(),
                    });
                }
            }
        }
    }
    let mut bytes = AlignedBuf::zeroed(DECODE_BYTES + (300 << 20)).expect("memory for weights");
    // Small values: bytes 0x11 are integers 17, f16 numbers and f16 scales below 0.001.
    bytes.fill(0x11);
    for _ in 0..7 {
        for case in &mut cases {
            let seconds = run(
                case,
                Exec {
                    kernels,
                    step: &pool.step(threads),
                },
                &bytes,
            );
            case.seconds.push(seconds);
        }
    }
    let mut out = std::io::stdout().lock();
    for case in &mut cases {
        case.seconds.sort_by(f64::total_cmp);
        let median = case.seconds[case.seconds.len() / 2];
        let weights = PackedLayout::new(case.packing, case.n, case.k)
            .expect("layout")
            .data_bytes();
        let _ = writeln!(
            out,
            "{:9} [{:6} x {:4}] rows {:3} threads {threads} {:11}: {:9.1} us  {:6.2} GB/s  {:6.1} GOP/s",
            case.packing.name(),
            case.n,
            case.k,
            case.rows,
            kernels.tier().name(),
            median * 1e6,
            weights as f64 / median / 1e9,
            2.0 * (case.n * case.k * case.rows) as f64 / median / 1e9
        );
    }
}

/// Seconds of one product, averaged over copies of the weights.
fn run(case: &Case, exec: Exec<'_>, bytes: &[u8]) -> f64 {
    let layout = PackedLayout::new(case.packing, case.n, case.k).expect("layout");
    let copies = if case.rows < 16 {
        (DECODE_BYTES / layout.data_bytes()).max(1)
    } else {
        4
    };
    let x: Vec<f32> = (0..case.rows * case.k).map(|i| (i as f32 * 0.7).sin()).collect();
    let bytes_of = |f: fn(usize, usize) -> Option<usize>| f(case.rows, case.k).expect("size");
    let mut memory = AlignedBuf::zeroed(bytes_of(QuantizedRows::bytes)).expect("memory");
    let mut rotated = AlignedBuf::zeroed(bytes_of(RotatedRows::bytes)).expect("memory");
    let (rows, k) = (case.rows, case.k);
    exec.quantize_rows(&x, rows, k, &mut QuantizedRows::new(&mut memory, rows, k));
    exec.rotate_rows(&x, rows, k, &mut RotatedRows::new(&mut rotated, rows, k));
    let mut out = vec![0f32; case.rows * case.n];
    let start = Instant::now();
    for copy in 0..copies {
        let data = &bytes[copy * layout.data_bytes()..(copy + 1) * layout.data_bytes()];
        let w = PackedView::new(case.packing, case.n, case.k, &[], data).expect("view");
        let x = match case.packing {
            Packing::Int8G32 => Activations::Q8(QuantizedRows::new(&mut memory, case.rows, case.k)),
            p if p.codebook_bits().is_some() => Activations::Rotated(RotatedRows::new(&mut rotated, rows, k)),
            _ => Activations::F32(&x),
        };
        exec.linear(&w, x, case.rows, Epilogue::default(), &mut out);
    }
    start.elapsed().as_secs_f64() / copies as f64
}
