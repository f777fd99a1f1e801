//! Attention against an `f64` reference, and its invariances.

mod support;

use cactus_base::AlignedBuf;
use cactus_kernels::{Exec, KvDType, KvLayout};
use support::{Random, assert_close, assert_same_bits, same_everywhere};

#[derive(Clone, Debug)]
struct Case {
    kv_heads: usize,
    group: usize,
    head_dim: usize,
    tokens: usize,
    window: Option<usize>,
    softcap: Option<f32>,
    dtype: KvDType,
}

impl Case {
    fn q_heads(&self) -> usize {
        self.kv_heads * self.group
    }

    fn scale(&self) -> f32 {
        1.0 / (self.head_dim as f32).sqrt()
    }

    fn layout(&self, capacity: usize) -> KvLayout {
        KvLayout::new(self.kv_heads, self.head_dim, self.dtype, capacity).unwrap()
    }

    /// Rows of a fused projection: queries, keys, values.
    fn stride(&self) -> usize {
        (self.q_heads() + 2 * self.kv_heads) * self.head_dim
    }

    fn inputs(&self, seed: u64) -> Vec<f32> {
        Random::new(seed).floats(self.tokens * self.stride(), 2.0)
    }

    /// Appends and attends in chunks, each of the next length in `chunks` (repeated), into `kv`.
    fn run(&self, exec: &Exec<'_>, kv: &mut [u8], capacity: usize, inputs: &[f32], chunks: &[usize]) -> Vec<f32> {
        let layout = self.layout(capacity);
        let (stride, k_at) = (self.stride(), self.q_heads() * self.head_dim);
        let v_at = k_at + self.kv_heads * self.head_dim;
        let mut out = vec![f32::NAN; self.tokens * k_at];
        let mut past = 0;
        for &chunk in chunks.iter().cycle() {
            if past == self.tokens {
                break;
            }
            let rows = chunk.min(self.tokens - past);
            let x = &inputs[past * stride..(past + rows) * stride];
            exec.kv_append(&layout, kv, past, rows, &x[k_at..], stride, &x[v_at..], stride);
            let out = &mut out[past * k_at..(past + rows) * k_at];
            exec.attention(
                &layout,
                kv,
                x,
                stride,
                rows,
                past,
                self.q_heads(),
                self.scale(),
                self.window,
                self.softcap,
                out,
            );
            past += rows;
        }
        out
    }

    fn run_fresh(&self, exec: &Exec<'_>, inputs: &[f32], chunks: &[usize]) -> Vec<f32> {
        let mut kv = AlignedBuf::zeroed(self.layout(self.tokens).bytes()).unwrap();
        self.run(exec, &mut kv, self.tokens, inputs, chunks)
    }

    /// The definition, on values after `store` (what storage makes of them).
    fn exact(
        &self,
        inputs: &[f32],
        store_q: impl Fn(&[f32]) -> Vec<f64>,
        store: impl Fn(&[f32]) -> Vec<f64>,
    ) -> Vec<f64> {
        let (stride, dim) = (self.stride(), self.head_dim);
        let head = |t: usize, h: usize| &inputs[t * stride + h * dim..][..dim];
        let mut out = Vec::new();
        for t in 0..self.tokens {
            let first = self.window.map_or(0, |w| (t + 1).saturating_sub(w));
            for h in 0..self.q_heads() {
                let kv_head = h / self.group;
                let q = store_q(head(t, h));
                let scores: Vec<f64> = (first..=t)
                    .map(|p| {
                        let k = store(head(p, self.q_heads() + kv_head));
                        let dot: f64 = q.iter().zip(&k).map(|(q, k)| q * k).sum();
                        let score = dot * f64::from(self.scale());
                        self.softcap
                            .map_or(score, |cap| f64::from(cap) * (score / f64::from(cap)).tanh())
                    })
                    .collect();
                let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let weights: Vec<f64> = scores.iter().map(|s| (s - max).exp()).collect();
                let total: f64 = weights.iter().sum();
                let mut row = vec![0.0; dim];
                for (p, weight) in (first..=t).zip(&weights) {
                    let v = store(head(p, self.q_heads() + self.kv_heads + kv_head));
                    for (out, v) in row.iter_mut().zip(v) {
                        *out += weight / total * v;
                    }
                }
                out.extend(row);
            }
        }
        out
    }
}

/// What 8-bit storage makes of a head.
fn int8(x: &[f32]) -> Vec<f64> {
    x.chunks(32)
        .flat_map(|group| {
            let max = group.iter().fold(0.0f32, |m, x| m.max(x.abs()));
            group
                .iter()
                .map(move |x| f64::from((x * (127.0 / max)).round_ties_even()) * f64::from(max) / 127.0)
        })
        .collect()
}

fn plain(x: &[f32]) -> Vec<f64> {
    x.iter().map(|x| f64::from(*x)).collect()
}

fn cases() -> Vec<Case> {
    let base = Case {
        kv_heads: 2,
        group: 3,
        head_dim: 64,
        tokens: 150,
        window: None,
        softcap: None,
        dtype: KvDType::I8G32,
    };
    let mut cases = vec![
        base.clone(),
        Case {
            tokens: 1,
            ..base.clone()
        },
        Case {
            tokens: 64,
            ..base.clone()
        },
        Case {
            tokens: 65,
            kv_heads: 1,
            group: 1,
            ..base.clone()
        },
        Case {
            head_dim: 16,
            group: 1,
            ..base.clone()
        },
        Case {
            head_dim: 48,
            group: 2,
            tokens: 70,
            ..base.clone()
        },
        Case {
            head_dim: 80,
            group: 7,
            tokens: 70,
            ..base.clone()
        },
        Case {
            head_dim: 128,
            kv_heads: 1,
            group: 2,
            tokens: 90,
            ..base.clone()
        },
        Case {
            head_dim: 256,
            kv_heads: 1,
            group: 4,
            tokens: 80,
            window: Some(17),
            ..base.clone()
        },
        Case {
            window: Some(64),
            ..base.clone()
        },
        Case {
            window: Some(1),
            tokens: 66,
            ..base.clone()
        },
        Case {
            window: Some(100),
            softcap: Some(5.0),
            ..base.clone()
        },
        Case {
            group: 40,
            kv_heads: 1,
            head_dim: 32,
            tokens: 66,
            ..base
        },
    ];
    let halves: Vec<Case> = cases
        .iter()
        .map(|c| Case {
            dtype: KvDType::F16,
            ..c.clone()
        })
        .collect();
    cases.extend(halves);
    cases
}

#[test]
fn attention_every_case_equals_reference_and_all_tiers() {
    for case in cases() {
        let inputs = case.inputs(7);
        let found = same_everywhere(&format!("{case:?}"), |exec| {
            case.run_fresh(exec, &inputs, &[case.tokens])
        });
        let largest = inputs.iter().fold(0.0f32, |m, x| m.max(x.abs()));
        match case.dtype {
            KvDType::I8G32 => {
                let exact = case.exact(&inputs, int8, int8);
                assert_close(&format!("{case:?}"), &found, &exact, 0.0, 5e-4 * f64::from(largest));
                let exact = case.exact(&inputs, plain, plain);
                assert_close(
                    &format!("{case:?} before quantizing"),
                    &found,
                    &exact,
                    0.0,
                    0.05 * f64::from(largest),
                );
            }
            _ => {
                let exact = case.exact(&inputs, plain, plain);
                assert_close(&format!("{case:?}"), &found, &exact, 0.0, 2e-3 * f64::from(largest));
            }
        }
    }
}

#[test]
fn attention_any_chunking_gives_the_same_bits() {
    for case in cases() {
        let inputs = case.inputs(11);
        for kernels in cactus_kernels::Kernels::available() {
            let exec = Exec {
                kernels,
                step: &cactus_base::Step::inline(),
            };
            let whole = case.run_fresh(&exec, &inputs, &[case.tokens]);
            for chunks in [&[1][..], &[7], &[64], &[33, 1, 50, 2]] {
                let found = case.run_fresh(&exec, &inputs, chunks);
                assert_same_bits(
                    &format!("{case:?} {} chunks {chunks:?}", kernels.tier()),
                    &found,
                    &whole,
                );
            }
        }
    }
}

#[test]
fn attention_in_a_ring_equals_attention_in_a_large_cache() {
    for case in cases().into_iter().filter(|c| c.window.is_some_and(|w| w < c.tokens)) {
        let window = case.window.unwrap();
        let inputs = case.inputs(13);
        for chunk in [1, 5, 40] {
            let found = same_everywhere(&format!("{case:?} chunk {chunk}"), |exec| {
                let capacity = window + chunk - 1;
                let mut kv = AlignedBuf::zeroed(case.layout(capacity).bytes()).unwrap();
                case.run(exec, &mut kv, capacity, &inputs, &[chunk])
            });
            let large = same_everywhere("large", |exec| case.run_fresh(exec, &inputs, &[case.tokens]));
            assert_same_bits(&format!("{case:?} chunk {chunk}"), &found, &large);
        }
    }
}

#[test]
fn attention_ignores_what_masked_slots_hold() {
    for case in cases() {
        let inputs = case.inputs(17);
        let found = same_everywhere(&format!("{case:?}"), |exec| {
            let mut kv = AlignedBuf::zeroed(case.layout(case.tokens).bytes()).unwrap();
            kv.fill(0xff);
            case.run(exec, &mut kv, case.tokens, &inputs, &[9, 70])
        });
        let expected = same_everywhere("zeroed", |exec| case.run_fresh(exec, &inputs, &[9, 70]));
        assert_same_bits(&format!("{case:?}"), &found, &expected);
    }
}

#[test]
fn append_of_a_whole_ring_from_the_middle_of_a_block_keeps_all_positions() {
    let case = &cases()[0];
    let inputs = case.inputs(19);
    let (stride, k_at) = (case.stride(), case.q_heads() * case.head_dim);
    let v_at = k_at + case.kv_heads * case.head_dim;
    let layout = case.layout(128);
    let append = |exec: &Exec<'_>, chunk: usize| {
        let mut kv = AlignedBuf::zeroed(layout.bytes()).unwrap();
        for first in (0..128).step_by(chunk) {
            let x = &inputs[first * stride..];
            exec.kv_append(
                &layout,
                &mut kv,
                first + 30,
                chunk,
                &x[k_at..],
                stride,
                &x[v_at..],
                stride,
            );
        }
        kv.chunks_exact(4)
            .map(|b| f32::from_ne_bytes([b[0], b[1], b[2], b[3]]))
            .collect()
    };
    let at_once = same_everywhere("append", |exec| append(exec, 128));
    let one_by_one = same_everywhere("append", |exec| append(exec, 1));
    let bits = |v: &[f32]| v.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
    assert_eq!(bits(&at_once), bits(&one_by_one));
}

#[test]
fn layout_of_hostile_sizes_is_an_error() {
    for (heads, dim, capacity) in [
        (0, 64, 10),
        (1, 0, 10),
        (1, 257, 10),
        (1, 64, 0),
        (1, 64, usize::MAX),
        (usize::MAX, 64, 64),
    ] {
        assert!(
            KvLayout::new(heads, dim, KvDType::I8G32, capacity).is_err(),
            "{heads} {dim} {capacity}"
        );
    }
    let layout = KvLayout::new(3, 64, KvDType::I8G32, 1000).unwrap();
    assert_eq!((layout.capacity_tokens(), layout.bytes()), (1024, 3 * 1024 * 144));
}
