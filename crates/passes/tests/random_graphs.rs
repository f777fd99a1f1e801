//! Graphs of random operations compute the same after every pass of the pipeline.

use cactus_ir::{BinaryFn, CompareFn, Dim, Graph, GraphBuilder, Op, ReduceFn, Result, TensorType, UnaryFn, ValueId};
use cactus_passes::{Options, StatePolicy, optimize_observed};
use cactus_reference::{States, Tensors, run};
use cactus_tensor::DType;
use cactus_testkit::{Random, assert_close, source_tensors};

const SYMBOLS: [&str; 2] = ["batch", "seq"];

/// Adds a random operation on values of `pool`, where the one drawn fits them.
fn add(b: &mut GraphBuilder, r: &mut Random, pool: &[ValueId]) -> Result<ValueId> {
    use BinaryFn::{Add, Div, Max, Min, Mul, Pow, Sub};
    use UnaryFn::{Abs, Cos, GeluTanh, Neg, Relu, Sigmoid, Silu, Tanh};
    // The latest values more often, so that chains grow.
    let pick = |r: &mut Random| {
        let reach = r.below(pool.len()) + 1;
        pool[pool.len() - 1 - r.below(reach)]
    };
    let x = pick(r);
    let shape = b.shape(x);
    let rank = shape.len();
    let axis = r.below(rank);
    match r.below(14) {
        0 => {
            let f = [Abs, Cos, GeluTanh, Neg, Relu, Sigmoid, Silu, Tanh][r.below(8)];
            b.unary(f, x)
        }
        1 | 2 => {
            let y = pick(r);
            b.binary([Add, Sub, Mul, Max, Min][r.below(5)], x, y)
        }
        3 => {
            let c = b.scalar([0.0, 1.0, 2.0, -1.0, 0.5, 3.0][r.below(6)])?;
            let f = [Add, Sub, Mul, Max][r.below(4)];
            if r.below(2) == 0 {
                b.binary(f, x, c)
            } else {
                b.binary(f, c, x)
            }
        }
        4 => {
            let c = b.scalar([1.0, 2.0][r.below(2)])?;
            b.binary([Pow, Div][r.below(2)], x, c)
        }
        5 => {
            let mut perm: Vec<usize> = (0..rank).collect();
            for i in (1..rank).rev() {
                perm.swap(i, r.below(i + 1));
            }
            b.permute(x, &perm)
        }
        6 => {
            // An axis of size 1 comes or goes, or the last is split.
            let mut to = shape.clone();
            match (r.below(3), to.iter().position(|d| d.is(1))) {
                (0, Some(i)) if rank > 2 => drop(to.remove(i)),
                (1, _) if to[rank - 1].is(4) => {
                    to.splice(rank - 1.., [Dim::known(2), Dim::known(2)]);
                }
                _ if rank < 5 => to.insert(r.below(rank + 1), Dim::known(1)),
                _ => {}
            }
            b.reshape(x, to)
        }
        7 => {
            let n = shape[axis].as_known().unwrap_or(0);
            let start = r.below(n + 1);
            let end = start + r.below(n + 1 - start);
            // A symbolic axis, or an empty slice, stays whole.
            let (start, end) = if end > start {
                (start.into(), end.into())
            } else {
                (0.into(), shape[axis].clone())
            };
            b.op(Op::Slice { axis, start, end }, &[x])
        }
        8 => {
            let y = if r.below(2) == 0 { x } else { pick(r) };
            b.op(Op::Concat { axis }, &[x, y])
        }
        9 => {
            let mut to = shape.clone();
            match to[axis].is(1) {
                true => to[axis] = Dim::known(2),
                false => to.insert(0, Dim::symbol("batch")),
            }
            if to.len() > 5 { Ok(x) } else { b.expand(x, to) }
        }
        10 => {
            let y = pick(r);
            let f = [CompareFn::Lt, CompareFn::Ge][r.below(2)];
            let zero = b.scalar(0.25)?;
            let mut cond = if r.below(2) == 0 {
                b.compare(f, x, zero)?
            } else {
                b.compare(f, zero, x)?
            };
            if r.below(2) == 0 {
                cond = b.unary(UnaryFn::Not, cond)?;
            }
            b.select(cond, x, y)
        }
        11 => {
            let f = [ReduceFn::Mean, ReduceFn::Max, ReduceFn::Sum][r.below(3)];
            b.op(
                Op::Reduce {
                    f,
                    axes: vec![axis],
                    keepdim: rank < 3 || r.below(2) == 0,
                },
                &[x],
            )
        }
        12 => {
            let w = b.weight(["w0", "w1", "w2"][r.below(3)], &[4, 4]);
            let y = match r.below(3) {
                0 => {
                    let w = b.permute(w, &[1, 0])?;
                    b.matmul(x, w)?
                }
                _ => b.linear(x, w, None)?,
            };
            let bias = b.weight(["b0.bias", "b1.bias"][r.below(2)], &[4]);
            if r.below(2) == 0 { b.add(bias, y) } else { Ok(y) }
        }
        _ => b.cast(x, DType::F32),
    }
}

fn random_graph(seed: u64) -> Graph {
    let r = &mut Random::new(seed);
    let mut b = GraphBuilder::new("random");
    let hidden = [Dim::symbol("batch"), Dim::symbol("seq"), Dim::known(4)];
    let mut pool = vec![
        b.input("x", TensorType::new(DType::F32, hidden.clone())),
        b.input("y", TensorType::new(DType::F32, hidden)),
        b.vector(vec![0.5, 1.0, -1.0, 2.0]).unwrap(),
        b.weight("v", &[4]),
    ];
    for _ in 0..24 {
        // What does not fit, in type or in size, is not added.
        let Ok(v) = add(&mut b, r, &pool) else { continue };
        let elems: usize = b.shape(v).iter().filter_map(Dim::as_known).product();
        let symbols = b.shape(v).iter().filter(|d| d.as_known().is_none()).count();
        if elems <= 64 && symbols <= 3 {
            // Values stay of moderate size, so that the tolerance means something.
            pool.push(if r.below(6) == 0 {
                b.unary(UnaryFn::Tanh, v).unwrap()
            } else {
                v
            });
        }
    }
    for (i, &v) in pool.iter().rev().take(3).enumerate() {
        b.output(&format!("y{i}"), v);
    }
    b.finish().unwrap()
}

#[test]
fn random_graph_computes_the_same_after_every_pass() {
    let mut fired = std::collections::BTreeSet::new();
    for seed in 0..600 {
        let raw = random_graph(seed);
        let weights = source_tensors(&raw, seed);
        let source = |name: &str| Ok(weights[name].clone());
        let mut given = Tensors::new();
        for &v in raw.inputs() {
            let bindings = SYMBOLS.iter().zip([2, 3]).map(|(s, n)| ((*s).to_owned(), n)).collect();
            let shape: Vec<usize> = raw.ty(v).shape.iter().map(|d| d.eval(&bindings).unwrap()).collect();
            let name = raw.value(v).name.clone();
            given.insert(name.clone(), Random::named(seed, &name).tensor(&shape, 1.5));
        }
        if given.len() < 2 {
            continue;
        }
        let want = run(&raw, &given, &source, &mut States::default()).unwrap();
        let mut last = raw.compacted();
        let options = Options {
            states: StatePolicy::Never,
            ..Options::default()
        };
        let done = optimize_observed(&raw, &options, &mut |pass, g| {
            if *g == last {
                return;
            }
            fired.insert(pass.to_owned());
            let got = run(g, &given, &source, &mut States::default())
                .unwrap_or_else(|e| panic!("seed {seed}, after {pass}: {e}\n{last}\n{g}"));
            for (name, want) in &want {
                let what = format!("seed {seed}, after {pass}, {name}\n{last}\n{g}");
                assert_close(&got[name], want, 1e-4, &what);
            }
            last = g.clone();
        });
        done.unwrap_or_else(|e| panic!("seed {seed}: {e}\n{last}"));
    }
    for pass in ["canonicalize", "fold", "sink_permutes", "merge_linear"] {
        assert!(fired.contains(pass), "{pass} never changed anything");
    }
}
