//! Encoding with error feedback: the sums it begins with, their factors, and what it saves.

use cactus_base::{Pool, Step};
use cactus_kernels::feedback::{Curvature, DAMPING, Factors, SHRINKAGE, SPAN_INPUTS, SecondMoments, Span, spans};
use cactus_kernels::{Exec, Kernels};
use cactus_quant::cq::rotation::rotate;
use cactus_quant::cq::{groups, trellis};
use cactus_quant::{Packed, Packing, pack};
use cactus_testkit::noise;

#[test]
fn spans_are_whole_groups_of_about_equal_width() {
    for (k, expected) in [
        (1, vec![(0, 32)]),
        (576, vec![(0, 576)]),
        (1024, vec![(0, 1024)]),
        (1536, vec![(0, 768), (768, 768)]),
        (2150, vec![(0, 768), (768, 768), (1536, 640)]),
    ] {
        let found: Vec<_> = spans(k).iter().map(|s| (s.start, s.size)).collect();
        assert_eq!(found, expected, "{k}");
    }
    for k in [1, 33, 350, 1120, 4864, 8960, 18944] {
        let all = spans(k);
        let inner = all
            .iter()
            .flat_map(|s| s.groups.iter().map(|&(i, start, d)| (i, s.start + start, d)));
        let groups: Vec<_> = groups(k).enumerate().map(|(i, (start, d))| (i, start, d)).collect();
        assert_eq!(inner.collect::<Vec<_>>(), groups, "{k}");
        assert!(all.iter().all(|s| s.size <= SPAN_INPUTS), "{k}");
    }
}

#[test]
fn sums_are_second_moments_within_spans_with_equal_bits() {
    for k in [19, 300, 1120] {
        let x: Vec<f32> = (0..7 * k).map(|i| ((i * 37 % 23) as f32 - 11.0) / 4.0).collect();
        let (pool, mut bits) = (Pool::new(3), None);
        for kernels in Kernels::available() {
            for width in [1, 3] {
                let step = pool.step(width);
                let exec = Exec { kernels, step: &step };
                let mut sums = SecondMoments::new(k);
                exec.add_second_moments(&x[..3 * k], &mut sums);
                exec.add_second_moments(&x[3 * k..], &mut sums);
                assert_eq!(sums.seen(), 7);
                let mut all = Vec::new();
                for s in sums.spans().to_vec() {
                    sums.each(&s, &mut |i, j, found| {
                        let (i, j) = (s.start + i, s.start + j);
                        let of = |i: usize, row: &[f32]| row.get(i).copied().unwrap_or(0.0);
                        let exact: f32 = x.chunks_exact(k).map(|row| of(i, row) * of(j, row)).sum();
                        assert!((found - exact).abs() < 1e-3, "{k}: {i} {j} {found} {exact}");
                        all.push(found.to_bits());
                    });
                }
                assert_eq!(*bits.get_or_insert_with(|| all.clone()), all, "{k} {}", kernels.tier());
                assert_eq!(SecondMoments::bytes(k), sums.held_bytes());
            }
        }
    }
}

#[test]
fn what_is_not_finite_spoils_nothing() {
    let step = Step::inline();
    for kernels in Kernels::available() {
        let exec = Exec { kernels, step: &step };
        let mut sums = SecondMoments::new(2);
        exec.add_second_moments(&[1.0, f32::NAN, f32::INFINITY, 2.0], &mut sums);
        let mut diagonal = Vec::new();
        let span = sums.spans()[0].clone();
        sums.each(&span, &mut |i, j, x| diagonal.extend((i == j && i < 2).then_some(x)));
        assert_eq!(diagonal, [1.0, 4.0]);
    }
}

/// A symmetric matrix with rows and columns in the basis of the packings, in the order of the paths through groups.
fn rotated(h: &[f32], span: &Span) -> Vec<f32> {
    let n = span.size;
    let mut out = h.to_vec();
    for _ in 0..2 {
        for row in out.chunks_exact_mut(n) {
            for &(_, start, d) in &span.groups {
                rotate(&mut row[start..start + d]);
                let group = row[start..start + d].to_vec();
                for (place, x) in row[start..start + d].iter_mut().enumerate() {
                    *x = group[trellis::input_at(place, d)] / (d as f32).sqrt();
                }
            }
        }
        out = (0..n * n).map(|at| out[at % n * n + at / n]).collect();
    }
    out
}

/// Rows of correlated inputs.
fn correlated(k: usize) -> Vec<f32> {
    let (own, common) = (noise(2 * k * k, 9), noise(2 * k, 8));
    let of = |(at, x): (usize, &f32)| {
        let (row, i) = (at / k, at % k);
        x * (1.0 + (i % 7) as f32) + common[row] * (i % 5) as f32
    };
    own.iter().enumerate().map(of).collect()
}

fn moments_of(exec: Exec<'_>, k: usize) -> SecondMoments {
    let mut sums = SecondMoments::new(k);
    exec.add_second_moments(&correlated(k), &mut sums);
    sums
}

#[test]
fn factors_multiply_to_the_damped_rotated_moments() {
    let step = Step::inline();
    for (kernels, k) in Kernels::available().flat_map(|kernels| [33, 160, 288, 1120].map(|k| (kernels, k))) {
        let exec = Exec { kernels, step: &step };
        let h = moments_of(exec, k);
        let c = exec.curvature(&h);
        let mut mean = 0.0;
        for s in h.spans() {
            h.each(s, &mut |i, j, x| {
                mean += if i == j { f64::from(x) / k as f64 } else { 0.0 }
            });
        }
        for f in c.spans() {
            let n = f.span.size;
            let mut expected = vec![0f32; n * n];
            h.each(&f.span, &mut |i, j, x| {
                let x = (f64::from(x) / mean) as f32 * if i == j { 1.0 } else { 1.0 - SHRINKAGE };
                (expected[i * n + j], expected[j * n + i]) = (x, x);
            });
            expected = rotated(&expected, &f.span);
            // Of the larger ones, every 37th place.
            for at in (0..n * n).step_by(if n > 300 { 37 } else { 1 }) {
                let (a, b) = (at / n, at % n);
                let u = |i: usize, j: usize| if i == j { 1.0 } else { f64::from(f.row(i)[j]) };
                if b > a {
                    continue;
                }
                let found: f64 = (a..n).map(|i| u(i, a) * f64::from(f.weight(i)) * u(i, b)).sum();
                let damping = if a == b { DAMPING } else { 0.0 };
                let error = (found - f64::from(expected[a * n + b]) - damping).abs();
                assert!(error < 2e-4, "{k}: {a} {b} {found} {}", expected[a * n + b]);
            }
        }
    }
}

#[test]
fn any_tier_and_number_of_threads_gives_equal_bits() {
    let (pool, mut bits) = (Pool::new(3), None);
    for (kernels, width) in Kernels::available().flat_map(|kernels| [(kernels, 1), (kernels, 3)]) {
        let step = pool.step(width);
        let exec = Exec { kernels, step: &step };
        let c = exec.curvature(&moments_of(exec, 1120));
        let of = |f: &Factors| {
            (0..f.span.size)
                .flat_map(|i| [f.row(i), &[f.weight(i)]].concat())
                .collect::<Vec<_>>()
        };
        let found: Vec<u32> = c.spans().iter().flat_map(of).map(f32::to_bits).collect();
        assert!(
            *bits.get_or_insert_with(|| found.clone()) == found,
            "{} {width}",
            kernels.tier()
        );
    }
}

#[test]
fn useless_moments_leave_every_input_to_itself() {
    let step = Step::inline();
    for kernels in Kernels::available() {
        let exec = Exec { kernels, step: &step };
        for x in [0.0, f32::NAN, 1e19, 1e30] {
            let mut sums = SecondMoments::new(64);
            exec.add_second_moments(&[x; 64], &mut sums);
            let c = exec.curvature(&sums);
            let f = &c.spans()[0];
            if x == 1e19 {
                // A matrix of rank one: damping keeps it usable.
                assert!((0..64).all(|i| f.weight(i) > 0.0 && f.row(i).iter().all(|x| x.is_finite())));
            } else {
                assert!((0..64).all(|i| f.weight(i) == 1.0 && f.row(i).iter().all(|x| *x == 0.0)));
            }
        }
    }
}

/// Mean squared change of the outputs for inputs `x`, relative to the outputs.
fn output_error(packed: &Packed, rows: &[f32], x: &[f32], k: usize) -> f64 {
    let (mut error, mut power) = (0f64, 0f64);
    let mut found = vec![0f32; k];
    for (o, row) in rows.chunks_exact(k).enumerate() {
        packed.view().decode_row(o, &mut found);
        for x in x.chunks_exact(k) {
            let dot = |w: &[f32]| -> f64 { w.iter().zip(x).map(|(&w, &x)| f64::from(w) * f64::from(x)).sum() };
            let (exact, got) = (dot(row), dot(&found));
            error += (exact - got).powi(2);
            power += exact * exact;
        }
    }
    error / power
}

/// Inputs that move together, as activations do.
fn inputs(k: usize, count: usize) -> Vec<f32> {
    let (common, mut x) = (noise(count * 8, 5), noise(count * k, 6));
    let mixing = noise(8 * k, 7);
    for (row, common) in x.chunks_exact_mut(k).zip(common.chunks_exact(8)) {
        for (i, x) in row.iter_mut().enumerate() {
            *x = 0.3 * *x + (0..8).map(|c| common[c] * mixing[c * k + i]).sum::<f32>();
        }
    }
    x
}

fn best() -> &'static Kernels {
    Kernels::detect().unwrap()
}

fn curvature(exec: Exec<'_>, x: &[f32], k: usize) -> Curvature {
    let mut sums = SecondMoments::new(k);
    exec.add_second_moments(x, &mut sums);
    exec.curvature(&sums)
}

#[test]
fn feedback_lowers_the_error_of_the_outputs() {
    let step = Step::inline();
    let exec = Exec {
        kernels: best(),
        step: &step,
    };
    for k in [128, 224, 256, 70] {
        let n = 40;
        let (rows, x) = (noise(n * k, 3), inputs(k, 3 * k));
        let curvature = curvature(exec, &x, k);
        for bits in 1..=6 {
            let packing = Packing::of_codebook_bits(bits).unwrap();
            let plain = output_error(&pack(packing, n, k, &rows).unwrap(), &rows, &x, k);
            let fed = exec.pack_with_feedback(packing, [n, k], &rows, &curvature).unwrap();
            let fed = output_error(&fed, &rows, &x, k);
            assert!(fed < 0.5 * plain, "{packing} {k}: {fed} {plain}");
        }
    }
}

#[test]
fn feedback_stays_within_a_span_and_helps_there() {
    let (n, k) = (16, 1120);
    let (rows, x) = (noise(n * k, 3), inputs(k, 600));
    let step = Step::inline();
    let exec = Exec {
        kernels: best(),
        step: &step,
    };
    let packing = Packing::Cq3G128;
    let plain = output_error(&pack(packing, n, k, &rows).unwrap(), &rows, &x, k);
    let fed = exec.pack_with_feedback(packing, [n, k], &rows, &curvature(exec, &x, k));
    let fed = output_error(&fed.unwrap(), &rows, &x, k);
    assert!(fed < 0.5 * plain, "{fed} {plain}");
}

#[test]
fn bytes_depend_on_neither_tier_nor_threads() {
    let pool = Pool::new(3);
    for (k, packing) in [
        (160, Packing::Cq3G128),
        (1120, Packing::Cq4G128),
        (96, Packing::Cq6G128),
    ] {
        let n = 35;
        let (rows, x) = (noise(n * k, 3), inputs(k, 300));
        let mut first = None;
        for (kernels, width) in Kernels::available().flat_map(|kernels| [(kernels, 1), (kernels, 3)]) {
            let step = pool.step(width);
            let exec = Exec { kernels, step: &step };
            let packed = exec.pack_with_feedback(packing, [n, k], &rows, &curvature(exec, &x, k));
            let data = packed.unwrap().data().to_vec();
            assert!(
                *first.get_or_insert_with(|| data.clone()) == data,
                "{} {width}",
                kernels.tier()
            );
        }
    }
}

#[test]
fn feedback_of_independent_inputs_is_as_good_as_none() {
    let (n, k) = (35, 160);
    let rows = noise(n * k, 3);
    let identity: Vec<f32> = (0..k * k).map(|i| f32::from(u8::from(i % (k + 1) == 0))).collect();
    let step = Step::inline();
    let exec = Exec {
        kernels: best(),
        step: &step,
    };
    let packing = Packing::Cq3G128;
    let fed = exec.pack_with_feedback(packing, [n, k], &rows, &curvature(exec, &identity, k));
    let x = noise(50 * k, 8);
    let plain = output_error(&pack(packing, n, k, &rows).unwrap(), &rows, &x, k);
    let fed = output_error(&fed.unwrap(), &rows, &x, k);
    assert!((fed / plain - 1.0).abs() < 0.05, "{fed} {plain}");
}

#[test]
fn bad_values_are_named_and_zero_rows_stay_zero() {
    let (n, k) = (20, 96);
    let mut rows = noise(n * k, 1);
    rows[17 * k..18 * k].fill(0.0);
    let step = Step::inline();
    let exec = Exec {
        kernels: best(),
        step: &step,
    };
    let curvature = curvature(exec, &inputs(k, 200), k);
    let pack = |packing, shape, rows: &[f32]| exec.pack_with_feedback(packing, shape, rows, &curvature);
    let packed = pack(Packing::Cq2G128, [n, k], &rows).unwrap();
    let mut out = vec![1.0; k];
    packed.view().decode_row(17, &mut out);
    assert!(out.iter().all(|x| *x == 0.0));
    for (at, bad) in [(19 * k + 70, f32::NAN), (3, f32::INFINITY), (18 * k + 5, 3e6)] {
        let mut rows = rows.clone();
        rows[at] = bad;
        let error = pack(Packing::Cq2G128, [n, k], &rows).unwrap_err();
        let place = format!("row {}, column {}", at / k, at % k);
        assert!(error.to_string().starts_with(&place), "{error}");
    }
    assert!(pack(Packing::Int8G32, [n, k], &rows).is_err());
    assert!(pack(Packing::Cq2G128, [k, n], &rows).is_err());
}

#[test]
fn trellises_lose_less_than_levels_alone() {
    let step = Step::inline();
    let exec = Exec {
        kernels: best(),
        step: &step,
    };
    for k in [160, 576, 1120] {
        let n = 48;
        let (rows, x) = (noise(n * k, 3), inputs(k, 3 * k));
        let curvature = curvature(exec, &x, k);
        // Of levels alone, by 2 to 6 bits. What is lost without feedback is in the tests of `quant`.
        for (bits, most) in (2..).zip([0.85, 0.82, 0.8, 0.82, 0.92]) {
            let lost = |packing| {
                let packed = exec.pack_with_feedback(packing, [n, k], &rows, &curvature).unwrap();
                output_error(&packed, &rows, &x, k)
            };
            let plain = lost(Packing::from_id(15 + bits).unwrap());
            let trellis = lost(Packing::of_codebook_bits(bits).unwrap());
            assert!(trellis < most * plain, "{bits} bits, {k} inputs: {trellis} {plain}");
        }
    }
}
