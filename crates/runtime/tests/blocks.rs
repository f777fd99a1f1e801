//! Networks whose values have their channels in the lanes, beside the interpreter, with the same bits on every tier and number of threads.

use cactus_base::Pool;
use cactus_bundle::{About, Bundle, BundleWriter, Provenance};
use cactus_ir::{BinaryFn, ConvAttrs, Dim, Graph, GraphBuilder, Op, PoolAttrs, ReduceFn, TensorType, UnaryFn, ValueId};
use cactus_kernels::Kernels;
use cactus_quant::{Packing, pack};
use cactus_reference::States;
use cactus_runtime::Function;
use cactus_tensor::{DType, Tensor};
use std::collections::BTreeMap;
use std::sync::Arc;

const BATCH: usize = 2;
const SIZE: usize = 18;

fn made_up(shape: &[usize], step: f32) -> Tensor {
    let n: usize = shape.iter().product();
    let scale = 1.0 / (n as f32 / shape[0] as f32).sqrt();
    Tensor::from_f32(
        shape.to_vec(),
        (0..n).map(|i| (i as f32 * step).sin() * scale).collect(),
    )
    .unwrap()
}

/// A graph under way, and its weights.
struct Network {
    b: GraphBuilder,
    weights: BTreeMap<String, Tensor>,
}

impl Network {
    fn weight(&mut self, shape: &[usize]) -> ValueId {
        let name = format!("w{}", self.weights.len());
        let step = 0.37 + self.weights.len() as f32 * 0.11;
        let v = self.b.weight(&name, shape);
        self.weights.insert(name, made_up(shape, step));
        v
    }

    fn conv(&mut self, x: ValueId, filters: &[usize], [groups, stride, padding]: [usize; 3]) -> ValueId {
        let op = Op::Conv(attrs(groups, stride, padding));
        let operands = [x, self.weight(filters), self.weight(&filters[..1])];
        self.b.op(op, &operands).unwrap()
    }

    fn binary(&mut self, f: BinaryFn, x: ValueId, y: ValueId) -> ValueId {
        self.b.op(Op::Binary { f }, &[x, y]).unwrap()
    }
}

fn attrs(groups: usize, stride: usize, padding: usize) -> ConvAttrs {
    ConvAttrs {
        groups,
        stride: vec![stride; 2],
        padding: vec![[padding; 2]; 2],
        dilation: vec![1; 2],
    }
}

/// Convolutions of every kind and what may stand between them; some values are read by what takes planes alone.
fn network(channels: usize) -> (Graph, BTreeMap<String, Tensor>) {
    let mut n = Network {
        b: GraphBuilder::new("g"),
        weights: BTreeMap::new(),
    };
    let x =
        n.b.input("x", TensorType::new(DType::F32, [BATCH, 3, SIZE, SIZE].map(Dim::known)));
    let stem = n.conv(x, &[channels, 3, 3, 3], [1, 1, 1]);
    let stem = n.b.unary(UnaryFn::Relu, stem).unwrap();
    let tiles = n.conv(stem, &[channels, channels, 3, 3], [1, 1, 1]);
    let sum = n.binary(BinaryFn::Add, tiles, stem);
    let sum = n.b.unary(UnaryFn::HardSwish, sum).unwrap();
    // Each channel alone, and a factor that comes of all places.
    let alone = n.conv(sum, &[channels, 1, 5, 5], [channels, 2, 2]);
    let mean =
        n.b.op(
            Op::Reduce {
                f: ReduceFn::Mean,
                axes: vec![2, 3],
                keepdim: true,
            },
            &[alone],
        )
        .unwrap();
    let gate = n.conv(mean, &[channels, channels, 1, 1], [1, 1, 0]);
    let gate = n.b.unary(UnaryFn::Sigmoid, gate).unwrap();
    let gated = n.binary(BinaryFn::Mul, alone, gate);
    // A product of every place, as in ConvNeXt, and what it is multiplied by and added to.
    let permute = |perm: [usize; 4]| Op::Permute { perm: perm.to_vec() };
    let rows = n.b.op(permute([0, 2, 3, 1]), &[gated]).unwrap();
    let operands = [rows, n.weight(&[channels, channels])];
    let rows = n.b.op(Op::Linear, &operands).unwrap();
    let back = n.b.op(permute([0, 3, 1, 2]), &[rows]).unwrap();
    let scale = n.weight(&[channels, 1, 1]);
    let scaled = n.binary(BinaryFn::Mul, scale, back);
    let residual = n.binary(BinaryFn::Add, scaled, gated);
    let wide = n.conv(residual, &[2 * channels + 1, channels, 1, 1], [1, 1, 0]);
    let pool = |f, count_padding| {
        Op::Pool(PoolAttrs {
            f,
            kernel: vec![3, 2],
            stride: vec![1, 1],
            padding: vec![[1, 1], [1, 0]],
            dilation: vec![1, 1],
            count_padding,
        })
    };
    let largest = n.b.op(pool(ReduceFn::Max, false), &[wide]).unwrap();
    let means = n.b.op(pool(ReduceFn::Mean, false), &[largest]).unwrap();
    let narrow = n.conv(means, &[channels, 2 * channels + 1, 3, 3], [1, 1, 1]);
    let up = Op::ConvTranspose {
        conv: attrs(1, 2, 0),
        output_padding: vec![0; 2],
    };
    let again = n.conv(narrow, &[channels, channels, 1, 1], [1, 1, 0]);
    let mut joined = vec![stem];
    for of in [narrow, again] {
        let operands = [of, n.weight(&[channels, channels, 2, 2])];
        joined.push(n.b.op(up.clone(), &operands).unwrap());
    }
    let joined = n.b.op(Op::Concat { axis: 1 }, &joined).unwrap();
    let head = n.conv(joined, &[5, 3 * channels, 1, 1], [1, 1, 0]);
    let turned = n.b.op(permute([0, 1, 3, 2]), &[narrow]).unwrap();
    n.b.output("head", head);
    n.b.output("turned", turned);
    (n.b.finish().unwrap(), n.weights)
}

#[test]
fn networks_in_blocks_match_the_interpreter() {
    let input = made_up(&[BATCH, 3, SIZE, SIZE], 0.29);
    let inputs = BTreeMap::from([("x".to_owned(), input)]);
    // Whole blocks, a block and a part, and less than one.
    for channels in [32, 20, 10] {
        let (graph, weights) = network(channels);
        let source = |name: &str| -> cactus_reference::Result<Tensor> { Ok(weights[name].clone()) };
        let exact = cactus_reference::run(&graph, &inputs, &source, &mut States::new(&graph).unwrap()).unwrap();
        let mut first: Option<Vec<(String, Vec<u32>)>> = None;
        for kernels in Kernels::available() {
            let function = Function::with_weights(graph.clone(), &weights, Some(kernels)).unwrap();
            for threads in [1, 3] {
                let found = function.run(&Pool::new(threads), threads, &inputs).unwrap();
                for (name, found) in &found {
                    let (found, exact) = (found.as_f32().unwrap(), exact[name].as_f32().unwrap());
                    assert_eq!(found.len(), exact.len());
                    let largest = exact.iter().fold(0.0f32, |m, x| m.max(x.abs()));
                    let worst = found.iter().zip(exact).map(|(f, e)| (f - e).abs()).fold(0.0, f32::max);
                    assert!(worst <= 1e-5 * largest, "{channels} {name}: {worst} of {largest}");
                }
                let bits = found
                    .into_iter()
                    .map(|(name, x)| (name, x.as_f32().unwrap().iter().map(|v| v.to_bits()).collect()))
                    .collect();
                match &first {
                    None => first = Some(bits),
                    Some(first) => assert!(*first == bits, "{channels}, {:?}, {threads} threads", kernels.tier()),
                }
            }
        }
    }
}

/// Numbers without a pattern, which would cancel out, and let the error of integers look large.
fn noise(shape: &[usize], seed: u32) -> Tensor {
    let mut state = seed;
    let n = shape.iter().product();
    let next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 23) as f32 - 1.0
    };
    Tensor::from_f32(shape.to_vec(), std::iter::repeat_with(next).take(n).collect()).unwrap()
}

/// Convolutions with filters in 8 bits, one axis or two, and what stands between them. With `all_out` every value is given back, so that none is in blocks.
fn on_integers(axes: usize, all_out: bool) -> (Graph, Vec<(String, Tensor)>) {
    let mut b = GraphBuilder::new("g");
    let size = if axes == 1 { vec![300] } else { vec![SIZE; 2] };
    let shape = [vec![1, 32], size].concat();
    let x = b.input(
        "x",
        TensorType::new(DType::F32, shape.iter().copied().map(Dim::known).collect::<Vec<_>>()),
    );
    let mut weights: Vec<(String, Tensor)> = Vec::new();
    let mut conv = |b: &mut GraphBuilder, x: ValueId, [filters, channels, taps, stride]: [usize; 4]| {
        let name = format!("w{}", weights.len());
        let rows = [filters, taps.pow(axes as u32) * channels];
        let v = b.weight(&name, &rows);
        weights.push((name, noise(&rows, weights.len() as u32)));
        // As bundles hold them: tap by tap.
        let tapped = [vec![filters], vec![taps; axes], vec![channels]].concat();
        let v = b
            .reshape(v, tapped.into_iter().map(Dim::known).collect::<Vec<_>>())
            .unwrap();
        let perm: Vec<usize> = [0, axes + 1].into_iter().chain(1..=axes).collect();
        let v = b.permute(v, &perm).unwrap();
        let attrs = ConvAttrs {
            groups: 1,
            stride: vec![stride; axes],
            padding: vec![[taps / 2; 2]; axes],
            dilation: vec![1; axes],
        };
        b.op(Op::Conv(attrs), &[x, v]).unwrap()
    };
    let first = conv(&mut b, x, [64, 32, 3, 1]);
    let relu = b.unary(UnaryFn::Relu, first).unwrap();
    let second = conv(&mut b, relu, [64, 64, 1, 1]);
    let sum = b.op(Op::Binary { f: BinaryFn::Add }, &[second, relu]).unwrap();
    // Blocks of its first and second half.
    let half = |start: usize| Op::Slice {
        axis: 1,
        start: Dim::known(start),
        end: Dim::known(start + 32),
    };
    let halves = [0, 32].map(|start| b.op(half(start), &[sum]).unwrap());
    let product = b.op(Op::Binary { f: BinaryFn::Mul }, &halves).unwrap();
    let third = conv(&mut b, product, [40, 32, 3, 2]);
    let last = conv(&mut b, third, [33, 40, 1, 1]);
    b.output("last", last);
    if all_out {
        for (name, v) in [
            ("first", first),
            ("relu", relu),
            ("second", second),
            ("sum", sum),
            ("product", product),
            ("third", third),
        ] {
            b.output(name, v);
        }
    }
    (b.finish().unwrap(), weights)
}

#[test]
fn convolutions_on_integers_have_the_bits_of_planes() {
    let folder = tempfile::tempdir().unwrap();
    // Those of older bundles, in groups of 32, are packed anew.
    for (axes, packing) in [1, 2]
        .into_iter()
        .flat_map(|axes| [Packing::Int8N16, Packing::Int8G32].map(|p| (axes, p)))
    {
        let mut first: Option<Vec<u32>> = None;
        let shape = [vec![1, 32], if axes == 1 { vec![300] } else { vec![SIZE; 2] }].concat();
        let inputs = BTreeMap::from([("x".to_owned(), noise(&shape, 7))]);
        for all_out in [true, false] {
            let (graph, weights) = on_integers(axes, all_out);
            let mut writer =
                BundleWriter::create(&folder.path().join(format!("{axes}{packing}{all_out}")), false).unwrap();
            let mut decoded = BTreeMap::new();
            for (name, w) in &weights {
                let &[n, k] = w.shape() else {
                    panic!("{name} is no matrix")
                };
                let packed = pack(packing, n, k, w.as_f32().unwrap()).unwrap();
                writer
                    .add_weight(name, &[n, k], packing, packed.scales(), packed.data())
                    .unwrap();
                let mut rows = vec![0.0; n * k];
                for (i, row) in rows.chunks_exact_mut(k).enumerate() {
                    packed.view().decode_row(i, row);
                }
                decoded.insert(name.clone(), Tensor::from_f32([n, k], rows).unwrap());
            }
            let bindings = weights.iter().map(|(name, _)| (name.clone(), name.clone())).collect();
            writer.add_component("model", &graph, &graph, &bindings).unwrap();
            let bundle = writer.finish(About::default(), &Provenance::default()).unwrap();
            let bundle = Arc::new(Bundle::open(&bundle).unwrap());
            let source = |name: &str| -> cactus_reference::Result<Tensor> { Ok(decoded[name].clone()) };
            let exact = cactus_reference::run(&graph, &inputs, &source, &mut States::new(&graph).unwrap()).unwrap();
            let exact = exact["last"].as_f32().unwrap();
            for kernels in Kernels::available() {
                let function = Function::new(bundle.clone(), "model", Some(kernels)).unwrap();
                for threads in [1, 3] {
                    let found = function.run(&Pool::new(threads), threads, &inputs).unwrap();
                    let found = found
                        .iter()
                        .find(|(name, _)| name == "last")
                        .unwrap()
                        .1
                        .as_f32()
                        .unwrap();
                    let largest = exact.iter().fold(0.0f32, |m, x| m.max(x.abs()));
                    let worst = found.iter().zip(exact).map(|(f, e)| (f - e).abs()).fold(0.0, f32::max);
                    assert!(worst <= 0.02 * largest, "{packing}, {axes} axes: {worst} of {largest}");
                    let bits: Vec<u32> = found.iter().map(|x| x.to_bits()).collect();
                    let want = first.get_or_insert_with(|| bits.clone());
                    assert!(
                        *want == bits,
                        "{packing}, {axes} axes, all out: {all_out}, {:?}, {threads} threads",
                        kernels.tier()
                    );
                }
            }
        }
    }
}
