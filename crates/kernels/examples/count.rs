//! Runs one kernel a number of times, for an instruction counter outside: `cargo xtask kernels-table` starts it under
//! emulation and takes differences between numbers of calls.
//!
//! `count TIER CASE CALLS` prints on one line how many bytes of weights or cache one call reads and how many
//! multiply-adds it does. Without arguments it prints the names of the cases.
#![allow(clippy::print_stdout, reason = "its output is its purpose")]

use cactus_base::{AlignedBuf, Step};
use cactus_kernels::dense::{
    BlockConv, BlockEpilogue, DenseAttention, Filters, Form, Recurrent, ScoreBias, ScoreOperands, Source, Window,
    packed_bytes, recurrent_scratch_elems,
};
use cactus_kernels::{
    Activations, Attention, BLOCK_TOKENS, DeltaRows, Epilogue, Exec, GatedDelta, Kernels, KvDType, KvLayout, KvRun,
    QuantizedRows, RotatedRows,
};
use cactus_quant::{PackedLayout, PackedView, Packing};

/// Outputs and inputs of the products.
const N: usize = 64;
const K: usize = 512;
const HEAD_DIM: usize = 64;
/// Query heads of the one KV head.
const HEADS: usize = 4;
const POSITIONS: usize = 256;
/// Channels of the convolutions, and hidden units of the recurrent layer.
const CHANNELS: usize = 64;
/// Positions that convolutions give, and that attention without a cache has.
const FRAMES: usize = 96;
/// Rows and columns of a plane.
const PLANE: usize = 16;
/// Those of a picture.
const PATCHES: usize = 256;

enum Work {
    /// Rows times a matrix in this packing.
    Linear(Packing, usize),
    /// Attention of the last rows of [`POSITIONS`].
    Attention(KvDType, usize),
    /// One position of the gated delta rule, [`HEADS`] heads of [`HEAD_DIM`] keys and values.
    GatedDelta,
    /// Convolution along time: channels of a group, taps and stride.
    Conv(usize, usize, usize),
    /// Convolution of each channel along time with so many taps.
    Depthwise(usize),
    /// Convolution of a plane of [`PLANE`] by [`PLANE`] places in tiles, 64 channels.
    Tiles,
    /// The same with filters in 8 bits.
    Integers,
    /// Attention of all of [`FRAMES`] to all, with something added to each score, as for relative positions.
    Relative,
    /// Attention of all of [`PATCHES`] to all on bytes, one head.
    Bytes,
    /// One step of an LSTM.
    Lstm,
}

// Codebooks of 5 and 6 bits take long to compute, and more so under emulation.
const CASES: [(&str, Work); 26] = [
    ("linear_i8_rows_1", Work::Linear(Packing::Int8G32, 1)),
    ("linear_i8_rows_4", Work::Linear(Packing::Int8G32, 4)),
    ("linear_i8_rows_16", Work::Linear(Packing::Int8G32, 16)),
    ("linear_i8_rows_64", Work::Linear(Packing::Int8G32, 64)),
    ("linear_cq1_rows_1", Work::Linear(Packing::Cq1G128, 1)),
    ("linear_tcq2_rows_1", Work::Linear(Packing::Tcq2G128, 1)),
    ("linear_tcq3_rows_1", Work::Linear(Packing::Tcq3G128, 1)),
    ("linear_tcq4_rows_1", Work::Linear(Packing::Tcq4G128, 1)),
    ("linear_tcq4_rows_4", Work::Linear(Packing::Tcq4G128, 4)),
    ("linear_tcq4_rows_16", Work::Linear(Packing::Tcq4G128, 16)),
    ("linear_f16_rows_1", Work::Linear(Packing::F16N16, 1)),
    ("linear_f16_rows_4", Work::Linear(Packing::F16N16, 4)),
    ("linear_f32_rows_4", Work::Linear(Packing::F32N16, 4)),
    ("attention_i8_rows_1", Work::Attention(KvDType::I8G32, 1)),
    ("attention_i8_rows_8", Work::Attention(KvDType::I8G32, 8)),
    ("attention_f16_rows_1", Work::Attention(KvDType::F16, 1)),
    ("attention_f16_rows_8", Work::Attention(KvDType::F16, 8)),
    ("gated_delta_rows_1", Work::GatedDelta),
    ("conv_f32_taps_3", Work::Conv(CHANNELS, 3, 1)),
    ("conv_f32_taps_3_stride_2", Work::Conv(CHANNELS, 3, 2)),
    ("conv_f32_depthwise_taps_9", Work::Depthwise(9)),
    ("conv_f32_tiles", Work::Tiles),
    ("conv_i8_taps_9", Work::Integers),
    ("attention_f32_relative", Work::Relative),
    ("attention_bytes", Work::Bytes),
    ("lstm_f32_step", Work::Lstm),
];

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [tier, case, calls] = &arguments[..] else {
        CASES.iter().for_each(|(name, _)| println!("{name}"));
        return;
    };
    let kernels = Kernels::choose(tier).unwrap_or_else(|e| panic!("{e}"));
    let calls: usize = calls.parse().expect("a number of calls");
    let (_, work) = CASES.iter().find(|(name, _)| name == case).expect("a case");
    let exec = Exec {
        kernels,
        step: &Step::inline(),
    };
    match *work {
        Work::Linear(packing, rows) => linear(exec, packing, rows, calls),
        Work::Attention(dtype, rows) => attention(exec, dtype, rows, calls),
        Work::GatedDelta => gated_delta(exec, calls),
        Work::Conv(channels, taps, stride) => conv(exec, channels, [taps, stride], calls),
        Work::Depthwise(taps) => depthwise(exec, taps, calls),
        Work::Tiles => tiles(exec, calls),
        Work::Integers => integers(exec, calls),
        Work::Relative => relative(exec, calls),
        Work::Bytes => bytes(exec, calls),
        Work::Lstm => lstm(exec, calls),
    }
}

fn values(n: usize) -> Vec<f32> {
    (0..n).map(|i| (i % 29) as f32 / 14.0 - 1.0).collect()
}

fn linear(exec: Exec<'_>, packing: Packing, rows: usize, calls: usize) {
    let layout = PackedLayout::new(packing, N, K).expect("a layout");
    let mut data = AlignedBuf::zeroed(layout.data_bytes()).expect("memory");
    // Integers 17, f16 numbers and scales below 0.001.
    data.fill(0x11);
    let w = PackedView::new(packing, N, K, &[], &data).expect("a view");
    let x = values(rows * K);
    let rotates = packing.codebook_bits().is_some();
    let bytes = if rotates {
        RotatedRows::bytes(rows, K)
    } else {
        QuantizedRows::bytes(rows, K)
    };
    let mut memory = AlignedBuf::zeroed(bytes.expect("a size")).expect("memory");
    if rotates {
        exec.rotate_rows(&x, rows, K, &mut RotatedRows::new(&mut memory, rows, K));
    } else {
        exec.quantize_rows(&x, rows, K, &mut QuantizedRows::new(&mut memory, rows, K));
    }
    let mut out = vec![0.0; rows * N];
    for _ in 0..calls {
        let x = match packing {
            Packing::Int8G32 => Activations::Q8(QuantizedRows::new(&mut memory, rows, K)),
            _ if rotates => Activations::Rotated(RotatedRows::new(&mut memory, rows, K)),
            _ => Activations::F32(&x),
        };
        exec.linear(&w, x, rows, Epilogue::default(), &mut out);
    }
    println!("{} {}", layout.data_bytes(), N * K * rows);
}

fn attention(exec: Exec<'_>, dtype: KvDType, rows: usize, calls: usize) {
    let layout = KvLayout::new(1, HEAD_DIM, dtype).expect("a layout");
    let pages: Vec<u32> = (0..POSITIONS.div_ceil(BLOCK_TOKENS) as u32).collect();
    let mut kv = AlignedBuf::zeroed(pages.len() * layout.bytes()).expect("memory");
    let cached = values(POSITIONS * HEAD_DIM);
    let run = |rows: usize, past: usize| KvRun {
        rows,
        past,
        pages: &pages,
    };
    let all = [run(POSITIONS, 0)];
    exec.kv_append(&layout, &mut kv, &all, &cached, HEAD_DIM, &cached, HEAD_DIM);
    let width = HEADS * HEAD_DIM;
    let q = values(rows * width);
    let mut out = vec![0.0; rows * width];
    let past = POSITIONS - rows;
    for _ in 0..calls {
        let runs = [run(rows, past)];
        exec.attention(
            &layout,
            &kv,
            &runs,
            &Attention::plain(HEADS, 0.125),
            &q,
            width,
            &mut out,
        );
    }
    // Products with keys and with values; a row sees all positions up to its own.
    let seen: usize = (0..rows).map(|row| past + row + 1).sum();
    println!("{} {}", pages.len() * layout.bytes(), 2 * seen * width);
}

fn gated_delta(exec: Exec<'_>, calls: usize) {
    let (x, gates) = (values(HEADS * HEAD_DIM), vec![0.5; HEADS]);
    let mut state = vec![0.25; HEADS * HEAD_DIM * HEAD_DIM];
    let mut out = vec![0.0; HEADS * HEAD_DIM];
    let rows = |data| DeltaRows {
        data,
        stride: HEADS * HEAD_DIM,
    };
    let inputs = GatedDelta {
        len: 1,
        heads: HEADS,
        key_heads: HEADS,
        keys: HEAD_DIM,
        values: HEAD_DIM,
        q: rows(&x),
        k: rows(&x),
        v: rows(&x),
        decay: rows(&gates),
        rate: rows(&gates),
    };
    for _ in 0..calls {
        exec.gated_delta(&inputs, &mut state, &mut out);
    }
    println!("{} {}", 4 * state.len(), 3 * state.len());
}

/// Windows of `taps` along time that give [`FRAMES`] positions.
fn along_time(taps: usize, stride: usize) -> Window {
    Window {
        size: [1, 1, FRAMES * stride],
        out: [1, 1, FRAMES],
        kernel: [1, 1, taps],
        stride: [1, 1, stride],
        before: [0, 0, taps / 2],
        dilation: [1; 3],
    }
}

fn depthwise(exec: Exec<'_>, taps: usize, calls: usize) {
    let w = along_time(taps, 1);
    let (x, weight) = (values(CHANNELS * FRAMES), values(CHANNELS * taps));
    let mut scratch = vec![0.0; exec.conv_depthwise_scratch_elems(&w)];
    let mut out = vec![0.0; CHANNELS * FRAMES];
    for _ in 0..calls {
        exec.conv_depthwise(&w, &x, &weight, Epilogue::default(), &mut scratch, &mut out);
    }
    println!("{} {}", 4 * weight.len(), weight.len() * FRAMES);
}

/// Windows of three by three taps over a plane, zeros around it.
fn over_plane() -> Window {
    Window {
        size: [1, PLANE, PLANE],
        out: [1, PLANE, PLANE],
        kernel: [1, 3, 3],
        stride: [1; 3],
        before: [0, 1, 1],
        dilation: [1; 3],
    }
}

fn integers(exec: Exec<'_>, calls: usize) {
    let (w, k) = (over_plane(), 9 * CHANNELS);
    let layout = PackedLayout::new(Packing::Int8N16, CHANNELS, k).expect("a layout");
    let mut data = AlignedBuf::zeroed(layout.data_bytes()).expect("memory");
    data.fill(0x11);
    let weight = PackedView::new(Packing::Int8N16, CHANNELS, k, &[], &data).expect("a view");
    let x = values(CHANNELS * PLANE * PLANE);
    let mut scratch = vec![0.0; exec.conv_integers_scratch_elems(&w, &weight)];
    let mut out = vec![0.0; CHANNELS * PLANE * PLANE];
    for _ in 0..calls {
        exec.conv_integers(
            &w,
            1,
            [Form::Planes; 2],
            &x,
            &weight,
            Epilogue::default(),
            &mut scratch,
            &mut out,
        );
    }
    println!("{} {}", layout.data_bytes(), CHANNELS * k * PLANE * PLANE);
}

fn tiles(exec: Exec<'_>, calls: usize) {
    let w = over_plane();
    let conv = BlockConv::of(&w, CHANNELS, CHANNELS).expect("a convolution over a plane");
    let (x, weight) = (values(CHANNELS * PLANE * PLANE), values(CHANNELS * CHANNELS * 9));
    let (source, filters) = (Source::Blocks(&x), Filters::Plain(&weight));
    let mut scratch = vec![0.0; exec.conv_blocks_scratch_elems(&conv, source)];
    let mut out = vec![0.0; CHANNELS * PLANE * PLANE];
    for _ in 0..calls {
        exec.conv_blocks(&conv, source, filters, BlockEpilogue::default(), &mut scratch, &mut out);
    }
    println!("{} {}", 4 * weight.len(), weight.len() * PLANE * PLANE);
}

fn conv(exec: Exec<'_>, channels: usize, [taps, stride]: [usize; 2], calls: usize) {
    let groups = CHANNELS / channels;
    let w = along_time(taps, stride);
    let x = values(CHANNELS * FRAMES * stride);
    let weight = values(CHANNELS * channels * taps);
    let mut scratch = vec![0.0; exec.conv_scratch_elems(&w, channels)];
    let mut out = vec![0.0; CHANNELS * FRAMES];
    for _ in 0..calls {
        exec.conv(&w, &x, &weight, Epilogue::default(), groups, &mut scratch, &mut out);
    }
    println!("{} {}", 4 * weight.len(), weight.len() * FRAMES);
}

fn relative(exec: Exec<'_>, calls: usize) {
    let shape = DenseAttention::plain([FRAMES; 2], [HEADS; 2], HEAD_DIM, 0.125);
    let x = values(FRAMES * HEADS * HEAD_DIM);
    let scores = values(HEADS * FRAMES * FRAMES);
    let more = ScoreOperands {
        bias: Some(ScoreBias {
            data: &scores,
            strides: [scores.len(), FRAMES * FRAMES, FRAMES],
        }),
        ..ScoreOperands::default()
    };
    let mut scratch = vec![0.0; exec.attend_dense_scratch_bytes(&shape) / 4];
    let mut out = vec![0.0; x.len()];
    for _ in 0..calls {
        exec.attend_dense(&shape, [&x, &x, &x], more, &mut scratch, &mut out);
    }
    println!("{} {}", 4 * 2 * x.len(), 2 * x.len() * FRAMES);
}

fn bytes(exec: Exec<'_>, calls: usize) {
    let shape = DenseAttention {
        integers: true,
        ..DenseAttention::plain([PATCHES; 2], [1; 2], HEAD_DIM, 0.125)
    };
    let x = values(PATCHES * HEAD_DIM);
    let mut scratch = vec![0.0; exec.attend_dense_scratch_bytes(&shape) / 4];
    let mut out = vec![0.0; x.len()];
    for _ in 0..calls {
        exec.attend_dense(&shape, [&x; 3], ScoreOperands::default(), &mut scratch, &mut out);
    }
    println!("{} {}", 4 * 2 * x.len(), 2 * x.len() * PATCHES);
}

fn lstm(exec: Exec<'_>, calls: usize) {
    let layer = Recurrent {
        len: 1,
        batch: 1,
        width: CHANNELS,
        reverse: false,
    };
    let (gates, state) = (values(4 * CHANNELS), values(CHANNELS));
    let mut w = vec![0.0; packed_bytes(4 * CHANNELS, CHANNELS) / 4];
    exec.pack_rows(
        &values(4 * CHANNELS * CHANNELS),
        4 * CHANNELS,
        CHANNELS,
        CHANNELS,
        &mut w,
    );
    let mut scratch = vec![0.0; recurrent_scratch_elems(&layer, 4)];
    let mut out = vec![0.0; 2 * CHANNELS];
    for _ in 0..calls {
        exec.lstm(&layer, &gates, &w, &state, &state, &mut scratch, &mut out);
    }
    println!("{} {}", 4 * w.len(), 4 * CHANNELS * CHANNELS);
}
