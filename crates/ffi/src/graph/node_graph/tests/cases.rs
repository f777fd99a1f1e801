//! A case of every operation.

use super::*;

fn attend(causal: bool, offset: Option<usize>, window: usize, mask: bool, additive: bool) -> Attend {
    Attend {
        scale: 0.5,
        causal,
        offset,
        window,
        mask,
        additive,
    }
}

fn conv(form: ConvForm, groups: usize, stride: usize, padding: [usize; 2], dilation: usize) -> GraphOp {
    GraphOp::Conv {
        form,
        groups,
        stride,
        padding,
        dilation,
    }
}

/// Operations with the shapes of their operands.
pub(super) fn all() -> Vec<(GraphOp, Vec<Vec<usize>>)> {
    use ConvForm::{ChannelsFirst, ChannelsLast, KernelInside};
    let mut all: Vec<(GraphOp, Vec<Vec<usize>>)> = Vec::new();
    let mut add = |op: GraphOp, shapes: &[&[usize]]| all.push((op, shapes.iter().map(|s| s.to_vec()).collect()));
    use UnaryFn as U;
    for f in [
        U::Abs,
        U::Exp,
        U::Sqrt,
        U::Cos,
        U::Sin,
        U::Log,
        U::Relu,
        U::Silu,
        U::Gelu,
        U::GeluErf,
        U::Sigmoid,
        U::Tanh,
    ] {
        add(GraphOp::Unary(f), &[&[3, 5]]);
    }
    use BinaryFn as B;
    for f in [
        B::Add,
        B::AddClipped,
        B::Subtract,
        B::Multiply,
        B::Divide,
        B::FloorDivide,
        B::NotEqual,
        B::Less,
        B::GreaterEqual,
    ] {
        add(GraphOp::Binary(f), &[&[2, 1, 3], &[4, 1]]);
        add(GraphOp::Scalar { f, value: 0.3 }, &[&[5]]);
    }
    add(
        GraphOp::Clamp {
            low: -0.5,
            high: f32::INFINITY,
        },
        &[&[7]],
    );
    add(GraphOp::Where, &[&[2, 3], &[3], &[2, 1]]);
    for precision in [Precision::Fp16, Precision::Fp32, Precision::Int8] {
        add(GraphOp::Cast(precision), &[&[9]]);
    }
    add(GraphOp::MaskedSelectPrefix, &[&[2, 3, 2], &[2, 3]]);
    add(GraphOp::MaskedScatter, &[&[2, 3], &[2, 3], &[6]]);
    add(GraphOp::Reshape(vec![3, 2]), &[&[6]]);
    add(GraphOp::Expand(vec![2, 4, 3]), &[&[1, 3]]);
    add(GraphOp::Permute(vec![2, 0, 1]), &[&[2, 3, 4]]);
    for step in [1, 2] {
        add(
            GraphOp::Slice {
                axis: -1,
                start: 1,
                length: 2,
                step,
            },
            &[&[2, 5]],
        );
    }
    add(
        GraphOp::Slice {
            axis: 0,
            start: 1,
            length: 0,
            step: 1,
        },
        &[&[2, 5]],
    );
    add(GraphOp::Index { axis: 1, index: 2 }, &[&[2, 3, 2]]);
    add(GraphOp::Index { axis: 0, index: 1 }, &[&[2]]);
    add(
        GraphOp::Unfold {
            axis: 1,
            size: 3,
            step: 2,
        },
        &[&[2, 8, 2]],
    );
    add(
        GraphOp::Pad {
            pads: vec![1, 2, 0, 1],
            value: 0.5,
        },
        &[&[2, 3]],
    );
    add(GraphOp::Concat { axis: 1 }, &[&[2, 3], &[2, 1], &[2, 2]]);
    add(GraphOp::Take { axis: 0 }, &[&[4, 3], &[2, 2]]);
    add(GraphOp::Gather { axis: 1 }, &[&[4, 3], &[2, 2]]);
    add(GraphOp::TopK(2), &[&[3, 5]]);
    add(GraphOp::ScatterTopK(6), &[&[3, 2], &[3, 2]]);
    for f in [
        ReduceFn::Sum,
        ReduceFn::Mean,
        ReduceFn::Variance,
        ReduceFn::Min,
        ReduceFn::Max,
    ] {
        for axis in [None, Some(0), Some(1), Some(-2)] {
            add(GraphOp::Reduce { f, axis }, &[&[3, 4, 2]]);
        }
        add(GraphOp::Reduce { f, axis: Some(0) }, &[&[3]]);
    }
    for axis in [0, 1] {
        add(GraphOp::CumSum(axis), &[&[3, 4]]);
        add(GraphOp::Softmax(axis), &[&[3, 4]]);
        add(GraphOp::Glu(axis), &[&[2, 4]]);
    }
    add(GraphOp::MatMul { transposed: false }, &[&[2, 3], &[3, 4]]);
    add(GraphOp::MatMul { transposed: true }, &[&[2, 3], &[4, 3]]);
    add(GraphOp::MatMul { transposed: true }, &[&[5, 2, 3], &[5, 4, 3]]);
    add(GraphOp::RmsNorm { eps: 1e-5 }, &[&[3, 8], &[8]]);
    add(GraphOp::LayerNorm { eps: 1e-5 }, &[&[3, 8], &[8]]);
    add(GraphOp::LayerNorm { eps: 1e-5 }, &[&[3, 8], &[1, 8], &[8]]);
    add(GraphOp::GroupNorm { groups: 2, eps: 1e-5 }, &[&[2, 4, 3], &[4], &[4]]);
    add(
        GraphOp::BatchNorm { axis: 1, eps: 1e-5 },
        &[&[2, 4, 3], &[4], &[4], &[4], &[4]],
    );
    for (rotary, interleaved) in [(0, false), (4, true), (4, false)] {
        let (theta, offset) = (10000.0, 3);
        add(
            GraphOp::Rope {
                theta,
                offset,
                rotary,
                interleaved,
            },
            &[&[1, 3, 2, 8]],
        );
    }
    let qkv: [&[usize]; 3] = [&[1, 3, 4, 8], &[1, 5, 2, 8], &[1, 5, 2, 8]];
    for (causal, offset, window) in [
        (true, Some(2), 0),
        (true, Some(0), 0),
        (false, Some(0), 0),
        (true, None, 1),
        (false, None, 1),
    ] {
        add(GraphOp::Attention(attend(causal, offset, window, false, false)), &qkv);
        add(
            GraphOp::Attention(attend(causal, offset, window, true, true)),
            &[qkv[0], qkv[1], qkv[2], &[1, 3, 5]],
        );
        add(
            GraphOp::Attention(attend(causal, offset, window, true, false)),
            &[qkv[0], qkv[1], qkv[2], &[1, 4, 3, 5]],
        );
    }
    let square: &[usize] = &[1, 4, 2, 8];
    add(GraphOp::Attention(attend(true, Some(0), 2, false, false)), &[square; 3]);
    add(
        GraphOp::Attention(attend(true, Some(0), 0, false, false)),
        &[square, square, &[1, 4, 2, 4]],
    );
    add(
        GraphOp::Attention(attend(true, Some(0), 0, false, false)),
        &[square, square, &[1, 4, 2, 16]],
    );
    add(GraphOp::RelPosBias { scale: 0.5 }, &[&[1, 3, 2, 4], &[1, 5, 2, 4]]);
    for (window, mask) in [(0, false), (1, true)] {
        let scale = 0.5;
        let mut shapes: Vec<&[usize]> = vec![&[1, 3, 2, 4]; 4];
        shapes.push(&[1, 5, 2, 4]);
        if mask {
            shapes.push(&[1, 3]);
        }
        add(GraphOp::RelPosAttention { scale, window, mask }, &shapes);
    }
    add(conv(ChannelsFirst, 1, 2, [1, 1], 1), &[&[2, 3, 8], &[4, 3, 3], &[4]]);
    add(conv(ChannelsFirst, 0, 1, [2, 0], 1), &[&[1, 3, 8], &[3, 1, 3]]);
    add(conv(ChannelsLast, 0, 1, [4, 0], 2), &[&[1, 8, 3], &[3, 1, 3]]);
    add(conv(ChannelsLast, 0, 1, [1, 1], 1), &[&[1, 8, 3], &[3, 3]]);
    add(conv(ChannelsLast, 1, 1, [0, 0], 1), &[&[1, 8, 3], &[5, 3], &[5]]);
    add(conv(KernelInside, 1, 3, [0, 0], 1), &[&[1, 3, 20], &[3, 7, 4], &[4]]);
    add(
        conv(ChannelsFirst, 2, 2, [1, 1], 1),
        &[&[1, 4, 5, 6], &[6, 2, 3, 3], &[6]],
    );
    add(conv(ChannelsFirst, 1, 1, [0, 0], 1), &[&[1, 4, 5, 6], &[6, 4]]);
    add(conv(ChannelsFirst, 0, 2, [1, 1], 1), &[&[1, 4, 5, 6], &[4, 3, 3]]);
    add(
        GraphOp::LstmCell,
        &[&[2, 3], &[2, 4], &[2, 4], &[16, 3], &[16, 4], &[16], &[16]],
    );
    for t in [1, 3] {
        let (q, v, g): (&[usize], &[usize], &[usize]) = (&[1, t, 2, 4], &[1, t, 4, 3], &[1, t, 4]);
        add(GraphOp::GatedDelta { scale: 0.0 }, &[q, q, v, g, g, &[1, 4, 4, 3]]);
    }
    add(GraphOp::Stft { stride: 2, bins: 2 }, &[&[1, 1, 9], &[4, 1, 3]]);
    add(GraphOp::Rfft, &[&[2, 6]]);
    add(GraphOp::Irfft(6), &[&[2, 4, 2]]);
    for (norm, scale) in [(0, 0), (1, 2), (1, 1)] {
        let bank = MelBank {
            bins: 9,
            mels: 3,
            low: 0.0,
            high: 4000.0,
            rate: 8000,
            norm,
            scale,
        };
        add(GraphOp::MelFilterBank(bank), &[]);
    }
    for (center, pad, log) in [(true, 0, 2), (true, 1, 1), (false, 0, 0)] {
        let frames = Frames {
            length: 8,
            hop: 3,
            transform: 16,
            power: 1.0,
            center,
            pad,
            floor: 1e-3,
            log,
            preemphasis: 0.5,
            remove_mean: true,
        };
        add(GraphOp::Spectrogram(frames), &[&[30], &[9, 3]]);
    }
    for target in [[4, 6], [4, 4]] {
        let patches = Patches {
            source: [4, 6],
            target,
            patch: 2,
            channels: 2,
            rescale: 0.5,
            mean: vec![0.1, 0.2],
            deviation: vec![0.5, 2.0],
        };
        add(GraphOp::ImagePreprocess(patches), &[&[4, 6, 2]]);
    }
    add(GraphOp::Bilinear { height: 2, width: 5 }, &[&[9, 4]]);
    add(GraphOp::AltupPredict, &[&[3, 4], &[3, 5], &[3, 5]]);
    add(GraphOp::AltupCorrect, &[&[3, 2], &[3, 5], &[3, 5], &[3, 5]]);
    add(GraphOp::GaussianTopK { ppf: 0.5 }, &[&[3, 8]]);
    for (gated, activation) in [
        (true, Activation::Silu),
        (true, Activation::Tanh),
        (false, Activation::Gelu),
    ] {
        let mut shapes: Vec<&[usize]> = vec![&[5, 4], &[5, 3], &[5, 2]];
        for matrix in if gated { &[0, 0, 1][..] } else { &[0, 1] } {
            shapes.extend([if *matrix == 1 { &[4, 6][..] } else { &[6, 4] }; 3]);
        }
        let op = GraphOp::Experts {
            experts: 3,
            gated,
            normalize: true,
            eps: 1e-6,
            factor: 1.5,
            activation,
        };
        add(op, &shapes);
    }
    add(
        GraphOp::DenseMlp {
            product: 0.5,
            gate: 2.0,
        },
        &[&[3, 4], &[6, 4], &[6, 4], &[4, 6]],
    );
    add(GraphOp::Projections, &[&[3, 4], &[6, 4], &[2, 4], &[2, 4]]);
    add(GraphOp::SoftcapLogits { cap: 3.0, scale: 0.5 }, &[&[3, 4], &[6, 4]]);
    add(
        GraphOp::Sample {
            temperature: 0.0,
            top_p: 1.0,
            top_k: 0,
        },
        &[&[2, 7]],
    );
    add(GraphOp::Persistent, &[&[2, 7]]);
    all
}

/// Values of operand `k`, `n` of them, that `op` can take.
pub(super) fn values(op: &GraphOp, k: usize, n: usize, seed: u64) -> Vec<f32> {
    let any = numbers(n, seed * 16 + k as u64);
    let index = |most: usize| (0..n).map(|i| ((i * 7 + 3) % most) as f32).collect();
    match (op, k) {
        (GraphOp::Unary(UnaryFn::Sqrt | UnaryFn::Log), _) | (GraphOp::BatchNorm { .. }, 4) => {
            any.iter().map(|v| v.abs() + 0.1).collect()
        }
        (GraphOp::Binary(BinaryFn::Divide | BinaryFn::FloorDivide), 1) => any.iter().map(|v| v.abs() + 0.5).collect(),
        (GraphOp::Take { .. }, 1) => index(4),
        (GraphOp::Gather { .. }, 1) => index(3),
        // No place twice in a row, whose order would count.
        (GraphOp::ScatterTopK(_), 0) => (0..n).map(|i| (i % 2 + i / 2) as f32).collect(),
        (GraphOp::Experts { .. }, 1) => any.iter().map(|v| v.abs() + 0.1).collect(),
        (GraphOp::Experts { .. }, 2) => (0..n).map(|i| ((i % 2) + (i / 2) % 2) as f32).collect(),
        (GraphOp::Attention(Attend { additive: false, .. }), 3) => {
            any.iter().map(|v| f32::from(u8::from(*v > -0.2))).collect()
        }
        (GraphOp::MaskedScatter | GraphOp::MaskedSelectPrefix, 1) | (GraphOp::Where, 0) => {
            any.iter().map(|v| f32::from(u8::from(*v > 0.0))).collect()
        }
        (GraphOp::GatedDelta { .. }, 3) => any.iter().map(|v| -v.abs()).collect(),
        (GraphOp::Spectrogram(_), 1) => any.iter().map(|v| v.abs()).collect(),
        _ => any,
    }
}
