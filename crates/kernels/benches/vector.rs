//! Times of the vector kernels and of attention at shapes of real models: `cargo bench -p cactus-kernels --bench vector`.
//!
//! `decode` is attention as generating has it: one query, after as many bytes were read as a layer has of weights, so that keys and values come from
//! memory.
//!
//! Arguments filter by substring. Figures allow for a shared machine, see `measure`.
#![allow(clippy::print_stdout, missing_docs, reason = "a program that reports to its user")]

use cactus_base::{AlignedBuf, Pool};
use cactus_kernels::{Activation, Attention, BLOCK_TOKENS, BinaryOp, Exec, Kernels, KvDType, KvLayout, KvRun};
use std::hint::black_box;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

/// Seconds that this thread has been running, where the system tells: on a shared machine the time that others had in
/// between is not ours.
fn thread_seconds() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split(' ').next()?.parse::<f64>().ok().map(|ns| ns / 1e9)
}

/// Time of a call in seconds: the best one of at least 50 ms; of long calls on one thread the mean of the thread's own
/// time over at least 300 ms, as its clock ticks in milliseconds.
fn measure(single: bool, mut f: impl FnMut()) -> f64 {
    f();
    let begin = Instant::now();
    let mut best = f64::INFINITY;
    while begin.elapsed().as_millis() < 50 {
        let start = Instant::now();
        f();
        best = best.min(start.elapsed().as_secs_f64());
    }
    if single && best > 1e-3 {
        let (begin, own) = (Instant::now(), thread_seconds());
        let mut calls = 0.0;
        while begin.elapsed().as_millis() < 300 {
            f();
            calls += 1.0;
        }
        if let (Some(start), Some(end)) = (own, thread_seconds()) {
            best = best.min((end - start) / calls);
        }
    }
    best
}

/// Name, query heads, KV heads, head dimension.
const MODELS: [(&str, usize, usize, usize); 3] = [
    ("smollm2-135m", 9, 3, 64),
    ("qwen2.5-0.5b", 14, 2, 64),
    ("gemma-3-270m", 4, 1, 256),
];

fn main() {
    let filters: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    let wanted = |name: &str| filters.is_empty() || filters.iter().any(|f| name.contains(f.as_str()));
    for threads in [1, 2] {
        let pool = Pool::new(threads);
        let step = pool.step(threads);
        if threads > 1 && wanted("join") {
            // Every part waits for the others, so each run needs all threads.
            let arrived = AtomicUsize::new(0);
            let seconds = measure(false, || {
                arrived.store(0, Ordering::Relaxed);
                step.run(threads, &|_| {
                    arrived.fetch_add(1, Ordering::AcqRel);
                    while arrived.load(Ordering::Acquire) < threads {
                        std::hint::spin_loop();
                    }
                });
            });
            println!("{:55} {:10.2} us", format!("join t{threads}"), seconds * 1e6);
        }
        for kernels in Kernels::available() {
            let exec = Exec { kernels, step: &step };
            let report = |name: String, f: &mut dyn FnMut(), per_call: f64, unit: &str| {
                let name = format!("{} t{threads} {name}", kernels.tier());
                if wanted(&name) {
                    let seconds = measure(threads == 1, f);
                    println!(
                        "{name:55} {:10.2} us {:9.2} {unit}",
                        seconds * 1e6,
                        per_call / seconds / 1e9
                    );
                }
            };
            vectors(&exec, &report);
            attention(&exec, &report);
        }
        let kernels = Kernels::available().last().expect("a tier");
        let exec = Exec { kernels, step: &step };
        for shape in MODELS {
            if wanted(&format!("decode {}", shape.0)) {
                decode(&exec, shape, threads);
            }
        }
    }
}

/// Times of appending a position and of attention, the median of 20 passes over layers with pages in common.
fn decode(exec: &Exec<'_>, (model, q_heads, kv_heads, dim): (&str, usize, usize, usize), threads: usize) {
    const LAYERS: usize = 24;
    const WEIGHTS: usize = 3 << 20;
    let mut weights = AlignedBuf::zeroed(LAYERS * WEIGHTS).expect("memory");
    weights.fill(1);
    let one = KvLayout::new(kv_heads, dim, KvDType::I8G32).expect("a valid shape");
    let layers = (0..LAYERS).map(|i| one.clone().placed(i * one.bytes(), LAYERS * one.bytes()));
    let layers: Vec<KvLayout> = layers.collect();
    let width = kv_heads * dim;
    let data = |n: usize, seed: usize| -> Vec<f32> {
        let value = |i: usize| ((i * 7919 + seed) % 1013) as f32 / 300.0 - 1.7;
        (0..n).map(value).collect()
    };
    for past in [30_usize, 300, 1500, 4000] {
        let pages: Vec<u32> = (0..(past + 1).div_ceil(BLOCK_TOKENS) as u32).collect();
        // Large enough for huge pages, which the runtime has, too.
        let bytes = pages.len() * LAYERS * one.bytes();
        let mut kv = AlignedBuf::zeroed(bytes.max(8 << 20)).expect("memory");
        let run = |rows: usize, past: usize| {
            [KvRun {
                rows,
                past,
                pages: &pages,
            }]
        };
        let (k, v) = (data((past + 1) * width, 1), data((past + 1) * width, 2));
        for layout in &layers {
            exec.kv_append(layout, &mut kv, &run(past + 1, 0), &k, width, &v, width);
        }
        let q = data(q_heads * dim, 3);
        let mut out = vec![0.0; q_heads * dim];
        let attention = Attention::plain(q_heads, 1.0 / (dim as f32).sqrt());
        let (mut appending, mut attending) = (Vec::new(), Vec::new());
        for _ in 0..20 {
            let (mut append, mut attend) = (0.0, 0.0);
            for (layout, weights) in layers.iter().zip(weights.chunks(WEIGHTS)) {
                let words: &[u64] = bytemuck::cast_slice(weights);
                black_box(words.iter().fold(0u64, |sum, x| sum.wrapping_add(*x)));
                let start = Instant::now();
                exec.kv_append(layout, &mut kv, &run(1, past), &k, width, &v, width);
                append += start.elapsed().as_secs_f64();
                let start = Instant::now();
                exec.attention(
                    layout,
                    &kv,
                    &run(1, past),
                    &attention,
                    black_box(&q),
                    q_heads * dim,
                    &mut out,
                );
                attend += start.elapsed().as_secs_f64();
            }
            appending.push(append / LAYERS as f64);
            attending.push(attend / LAYERS as f64);
        }
        let median = |times: &mut Vec<f64>| {
            times.sort_by(f64::total_cmp);
            times[times.len() / 2]
        };
        let (append, attend) = (median(&mut appending), median(&mut attending));
        let gb = (pages.len() * one.bytes()) as f64 / attend / 1e9;
        println!(
            "{:40} append {:6.2} us, attention {:7.2} us, {gb:5.1} GB/s",
            format!("decode {model} t{threads} 1+{past}"),
            append * 1e6,
            attend * 1e6
        );
    }
}

type Report<'a> = dyn Fn(String, &mut dyn FnMut(), f64, &str) + 'a;

fn vectors(exec: &Exec<'_>, report: &Report<'_>) {
    for (rows, dim) in [(1, 576), (256, 576), (1, 2048)] {
        let x: Vec<f32> = (0..rows * dim * 2).map(|i| (i % 97) as f32 / 20.0 - 2.0).collect();
        let w = vec![1.0f32; dim];
        let mut out = vec![0.0f32; rows * dim];
        let bytes = (rows * dim * 8) as f64;
        let x1 = &x[..rows * dim];
        report(
            format!("rms_norm {rows}x{dim}"),
            &mut || exec.rms_norm(black_box(x1), &w, 1e-6, rows, dim, &mut out),
            bytes,
            "GB/s",
        );
        report(
            format!("softmax {rows}x{dim}"),
            &mut || exec.softmax_rows(black_box(x1), rows, dim, &mut out),
            bytes,
            "GB/s",
        );
        report(
            format!("row_statistics {rows}x{dim}"),
            &mut || {
                for row in x1.chunks(dim) {
                    black_box(exec.kernels.row_statistics(black_box(row)));
                }
            },
            bytes / 2.0,
            "GB/s",
        );
        for act in Activation::ALL {
            let name = format!("gated {act:?} {rows}x{dim}");
            report(
                name,
                &mut || exec.gated(act, black_box(&x), dim, rows, &mut out),
                bytes * 1.5,
                "GB/s",
            );
        }
        report(
            format!("add {rows}x{dim}"),
            &mut || exec.binary(BinaryOp::Add, black_box(x1), x1, &mut out),
            bytes * 1.5,
            "GB/s",
        );
    }
}

fn attention(exec: &Exec<'_>, report: &Report<'_>) {
    for dtype in [KvDType::I8G32, KvDType::F16] {
        for (model, q_heads, kv_heads, dim) in MODELS {
            for (rows, past) in [(1024_usize, 0_usize), (128, 896), (1, 127), (1, 1023), (1, 4095)] {
                let total = past + rows;
                let layout = KvLayout::new(kv_heads, dim, dtype).expect("a valid shape");
                let pages: Vec<u32> = (0..total.div_ceil(BLOCK_TOKENS) as u32).collect();
                let cache_bytes = pages.len() * layout.bytes();
                let run = |rows: usize, past: usize| {
                    [KvRun {
                        rows,
                        past,
                        pages: &pages,
                    }]
                };
                let mut kv = AlignedBuf::zeroed(cache_bytes).expect("memory");
                let data = |n: usize, seed: usize| -> Vec<f32> {
                    (0..n)
                        .map(|i| ((i * 7919 + seed) % 1013) as f32 / 300.0 - 1.7)
                        .collect()
                };
                let (k, v) = (data(total * kv_heads * dim, 1), data(total * kv_heads * dim, 2));
                let q = data(rows * q_heads * dim, 3);
                let mut out = vec![0.0; rows * q_heads * dim];
                let width = kv_heads * dim;
                let name = format!("kv_append {dtype:?} {model} {rows}+{past}");
                let elements = (rows * width * 2 * 4) as f64;
                report(
                    name,
                    &mut || exec.kv_append(&layout, &mut kv, &run(rows, past), &k, width, &v, width),
                    elements,
                    "GB/s in",
                );
                exec.kv_append(&layout, &mut kv, &run(total, 0), &k, width, &v, width);
                let scale = 1.0 / (dim as f32).sqrt();
                let runs = run(rows, past);
                let mut attend = || {
                    let q = black_box(&q);
                    exec.attention(
                        &layout,
                        &kv,
                        &runs,
                        &Attention::plain(q_heads, scale),
                        q,
                        q_heads * dim,
                        &mut out,
                    );
                };
                let name = format!("attention {dtype:?} {model} {rows}+{past}");
                if rows == 1 {
                    report(name, &mut attend, cache_bytes as f64, "GB/s of cache");
                } else {
                    let pairs = rows as f64 * (past as f64 + (rows as f64 + 1.0) / 2.0) * q_heads as f64;
                    report(name, &mut attend, pairs, "G pairs/s");
                }
            }
        }
    }
}
