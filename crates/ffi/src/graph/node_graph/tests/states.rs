//! Caches, persistent nodes, shapes that change, and what is read beside the outputs.

use super::*;

fn kv(g: &mut Graph, capacity: usize, window: usize, sink: usize) -> usize {
    let op = GraphOp::KvState {
        capacity,
        heads: 1,
        head_dim: 2,
        window,
        sink,
    };
    g.add(op, &[]).unwrap()
}

fn attend() -> Attend {
    Attend {
        scale: 0.7,
        causal: true,
        offset: None,
        window: 0,
        mask: false,
        additive: false,
    }
}

/// Keys and values, position by position and many at once, are those of attention over all of them.
#[test]
fn cached_attention_is_that_of_the_whole_sequence() {
    let rows = numbers(3 * 7 * 2, 5);
    let part = |which: usize, from: usize, to: usize| rows[which * 14 + from * 2..which * 14 + to * 2].to_vec();
    let mut whole = Graph::new();
    let qkv: Vec<usize> = (0..3)
        .map(|i| given(&mut whole, &[1, 7, 1, 2], &part(i, 0, 7)))
        .collect();
    let all = whole
        .add(
            GraphOp::Attention(Attend {
                offset: Some(0),
                ..attend()
            }),
            &qkv,
        )
        .unwrap();
    whole.execute().unwrap();
    let want = read(&mut whole, all);
    for masked in [false, true] {
        let mut g = Graph::new();
        let (kc, vc) = (kv(&mut g, 16, 0, 0), kv(&mut g, 16, 0, 0));
        let x: Vec<usize> = (0..3)
            .map(|_| g.input(&[1, 4, 1, 2], Precision::Fp32).unwrap())
            .collect();
        let held = g.add(GraphOp::KvAppend { window: 0, sink: 0 }, &[x[1], kc]).unwrap();
        g.add(GraphOp::KvAppend { window: 0, sink: 0 }, &[x[2], vc]).unwrap();
        let mut operands = vec![x[0], x[1], x[2], kc, vc];
        if masked {
            let mask = g.input(&[1, 4, 16], Precision::Fp32).unwrap();
            set(&mut g, mask, &[1.0; 64]);
            operands.push(mask);
        }
        let op = GraphOp::AttentionCached {
            attend: Attend {
                mask: masked,
                ..attend()
            },
            value_dim: 0,
        };
        let y = g.add(op, &operands).unwrap();
        x.iter()
            .for_each(|&i| g.set_dynamic(i, &[false, true, false, false]).unwrap());
        let mut at = 0;
        for n in [4, 1, 2] {
            if n != 4 {
                for &i in &x {
                    g.set_input_shape(i, &[1, n, 1, 2]).unwrap_or(());
                }
            }
            if masked && n != 4 {
                // The mask is of four rows.
                break;
            }
            for (i, &id) in x.iter().enumerate() {
                set(&mut g, id, &part(i, at, at + n));
            }
            g.execute().unwrap();
            close(
                &read(&mut g, y),
                &want[at * 2..(at + n) * 2],
                &format!("positions from {at} on"),
            );
            at += n;
            assert_eq!(read(&mut g, held), [at as f32]);
        }
    }
}

#[test]
fn caches_keep_the_first_and_the_last_positions() {
    let mut g = Graph::new();
    let cache = kv(&mut g, 8, 4, 1);
    let x = g.input(&[1, 1, 1, 2], Precision::Fp32).unwrap();
    let held = g.add(GraphOp::KvAppend { window: 0, sink: 0 }, &[x, cache]).unwrap();
    let first = |g: &mut Graph| read(g, cache).chunks(2).map(|r| r[0]).collect::<Vec<_>>();
    for i in 0..7 {
        set(&mut g, x, &[i as f32, 0.0]);
        g.execute().unwrap();
        assert_eq!(read(&mut g, held), [(i + 1).min(4) as f32]);
    }
    assert_eq!(first(&mut g)[..4], [0.0, 4.0, 5.0, 6.0]);
    // What failed changes nothing.
    let gone = g.input(&[1], Precision::Fp32).unwrap();
    g.add(GraphOp::Unary(UnaryFn::Abs), &[gone]).unwrap();
    assert!(g.execute().is_err());
    assert_eq!(first(&mut g)[..4], [0.0, 4.0, 5.0, 6.0]);
}

#[test]
fn windows_of_convolutions_and_tensors_move_on() {
    let mut g = Graph::new();
    let cache = g.add(GraphOp::ConvState { rows: 3, channels: 2 }, &[]).unwrap();
    let x = g.input(&[1, 2], Precision::Fp32).unwrap();
    let window = g.add(GraphOp::ConvAppend, &[x, cache]).unwrap();
    let sum = g.recurrent_state(&[1, 2], Precision::Fp32).unwrap();
    let more = g.add(GraphOp::Binary(BinaryFn::Add), &[sum, x]).unwrap();
    let kept = g.add(GraphOp::RecurrentWrite, &[more, sum]).unwrap();
    let behind = g
        .add(
            GraphOp::Scalar {
                f: BinaryFn::Multiply,
                value: 2.0,
            },
            &[sum],
        )
        .unwrap();
    for i in 1..=4 {
        set(&mut g, x, &[i as f32, 10.0]);
        g.execute().unwrap();
        let total = (i * (i + 1) / 2) as f32;
        assert_eq!(read(&mut g, kept), [total, 10.0 * i as f32]);
        // A node behind the write reads what was written; the cache itself holds it.
        assert_eq!(read(&mut g, behind), [2.0 * total, 20.0 * i as f32]);
        assert_eq!(read(&mut g, sum), [total, 10.0 * i as f32]);
        // Reading what was not kept computes it again, and moves nothing.
        assert_eq!(read(&mut g, more), [total, 10.0 * i as f32]);
    }
    assert_eq!(read(&mut g, window), [2.0, 10.0, 3.0, 10.0, 4.0, 10.0]);
    assert_eq!(read(&mut g, cache), [2.0, 10.0, 3.0, 10.0, 4.0, 10.0]);
}

#[test]
fn fewer_rows_than_the_window_have_zeros_before_them() {
    for (n, want) in [(1, [0.0, 0.0, 1.0]), (3, [1.0, 2.0, 3.0]), (5, [3.0, 4.0, 5.0])] {
        let mut g = Graph::new();
        let cache = g.add(GraphOp::ConvState { rows: 3, channels: 1 }, &[]).unwrap();
        let rows: Vec<f32> = (1..=n).map(|i| i as f32).collect();
        let x = given(&mut g, &[n, 1], &rows);
        let nothing = g.add(GraphOp::ConvInitialize, &[x, cache]).unwrap();
        g.execute().unwrap();
        assert_eq!(g.info(nothing).unwrap().shape, [0]);
        assert!(g.output(nothing).unwrap().is_empty());
        assert_eq!(read(&mut g, cache), want);
    }
}

#[test]
fn persistent_values_stay_until_they_are_invalidated() {
    let mut g = Graph::new();
    let x = given(&mut g, &[2], &[1.0, 2.0]);
    let once = g.add(GraphOp::Persistent, &[x]).unwrap();
    let y = g
        .add(
            GraphOp::Scalar {
                f: BinaryFn::Add,
                value: 1.0,
            },
            &[once],
        )
        .unwrap();
    assert!(!g.is_populated(once).unwrap() && g.is_populated(y).is_err());
    for (value, want) in [(1.0, 2.0), (5.0, 2.0)] {
        set(&mut g, x, &[value, 2.0]);
        g.execute().unwrap();
        assert_eq!(read(&mut g, y), [want, 3.0]);
        assert_eq!(read(&mut g, once), [1.0, 2.0]);
        assert!(g.is_populated(once).unwrap());
    }
    g.invalidate_persistent(once).unwrap();
    g.execute().unwrap();
    assert_eq!(read(&mut g, y), [6.0, 3.0]);
}

#[test]
fn shapes_follow_an_input_or_nothing_changes() {
    let mut g = Graph::new();
    let x = given(&mut g, &[2, 3], &[1.0; 6]);
    let y = g.add(GraphOp::Softmax(-1), &[x]).unwrap();
    let sum = g
        .add(
            GraphOp::Reduce {
                f: ReduceFn::Sum,
                axis: Some(0),
            },
            &[y],
        )
        .unwrap();
    g.set_dynamic(x, &[false, true]).unwrap();
    g.execute().unwrap();
    assert!(g.set_input_shape(x, &[3, 3]).is_err() && g.set_input_shape(x, &[2]).is_err());
    g.set_input_shape(x, &[2, 4]).unwrap();
    assert_eq!(g.info(sum).unwrap().shape, [4]);
    assert_eq!(g.execute().unwrap_err().kind(), ErrorKind::Order);
    set(&mut g, x, &[1.0; 8]);
    g.execute().unwrap();
    assert_eq!(read(&mut g, sum), [0.5; 4]);
    g.add(GraphOp::Reshape(vec![8]), &[y]).unwrap();
    assert!(g.set_input_shape(x, &[2, 5]).is_err());
    assert_eq!(g.info(y).unwrap().shape, [2, 4]);
}

#[test]
fn saved_graphs_give_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("deep").join("graph.cg");
    let mut g = Graph::new();
    let x = given(&mut g, &[2, 3], &numbers(6, 9));
    let bias = given(&mut g, &[3], &numbers(3, 10));
    g.mark_embedded_input(bias).unwrap();
    let clamped = g
        .add(
            GraphOp::Clamp {
                low: f32::NEG_INFINITY,
                high: 0.25,
            },
            &[x],
        )
        .unwrap();
    let y = g.add(GraphOp::Binary(BinaryFn::Add), &[clamped, bias]).unwrap();
    let z = g.add(GraphOp::Cast(Precision::Fp16), &[y]).unwrap();
    g.retain_outputs(&[y]).unwrap();
    g.execute().unwrap();
    g.save(&path).unwrap();
    let mut loaded = Graph::load(&path).unwrap();
    set(&mut loaded, x, &numbers(6, 9));
    loaded.execute().unwrap();
    for id in [x, bias, clamped, y, z] {
        assert_eq!(loaded.info(id).unwrap(), g.info(id).unwrap());
        assert_eq!(read(&mut loaded, id), read(&mut g, id), "node {id}");
    }
    assert!(Graph::load(&dir.path().join("none")).is_err());
    g.hard_reset();
    assert!(g.node_count() == 0 && g.execute().is_ok() && g.output(x).is_err());
}

#[test]
fn drawn_tokens_are_of_those_that_are_kept() {
    let mut g = Graph::new();
    let logits = given(&mut g, &[1, 5], &[0.0, 3.0, 2.9, -50.0, 2.8]);
    let op = GraphOp::Sample {
        temperature: 1.0,
        top_p: 0.99,
        top_k: 3,
    };
    let token = g.add(op, &[logits]).unwrap();
    let mut seen = [0; 5];
    for _ in 0..200 {
        g.execute().unwrap();
        let once = read(&mut g, token)[0];
        assert_eq!(read(&mut g, token)[0], once);
        seen[once as usize] += 1;
    }
    assert_eq!((seen[0], seen[3]), (0, 0));
    assert!(seen[1] > 0 && seen[2] > 0 && seen[4] > 0, "{seen:?}");
}

#[test]
fn whole_numbers_get_their_scales_and_their_order() {
    let mut g = Graph::new();
    let w = g.input(&[4, 4], Precision::Int8).unwrap();
    // Element [r, c] is 4 r + c; a block of four rows has four elements of each in turn, as they lie.
    let bytes: Vec<u8> = (0..16).collect();
    g.set_input(w, &bytes, Precision::Int8).unwrap();
    g.set_interleaved(w, true, 4).unwrap();
    g.set_grouped_scales(w, 2, 2, &[1.0, 2.0, 1.0, 2.0, 1.0, 2.0, 1.0, 2.0])
        .unwrap();
    let x = given(&mut g, &[1, 4], &[1.0, 0.0, 1.0, 0.0]);
    let y = g.add(GraphOp::MatMul { transposed: true }, &[x, w]).unwrap();
    g.execute().unwrap();
    assert_eq!(read(&mut g, y), [4.0, 16.0, 28.0, 40.0]);
    assert!(g.set_grouped_scales(w, 3, 1, &[1.0; 4]).is_err() && g.set_interleaved(x, true, 0).is_err());
}
