//! Attention against an `f64` reference, and its invariances.

mod support;

use cactus_base::{AlignedBuf, Pool};
use cactus_kernels::{Attention, BLOCK_TOKENS, Exec, KvDType, KvLayout, KvRun};
use cactus_quant::cq::{groups, rotation};
use support::{Random, assert_close, assert_same_bits, same_everywhere};

#[derive(Clone, Debug)]
struct Case {
    kv_heads: usize,
    group: usize,
    head_dim: usize,
    tokens: usize,
    window: Option<usize>,
    chunk: Option<usize>,
    softcap: Option<f32>,
    sinks: bool,
    slopes: bool,
    dtype: KvDType,
    /// Added to two channels of every key.
    bias: f32,
    /// Positions that see each other, from one to before another.
    spans: &'static [(usize, usize)],
}

impl Case {
    fn q_heads(&self) -> usize {
        self.kv_heads * self.group
    }

    fn scale(&self) -> f32 {
        1.0 / (self.head_dim as f32).sqrt()
    }

    /// Scores of sinks: of some heads far above, of others far below those of keys.
    fn sinks(&self) -> Option<Vec<f32>> {
        let of = |h: usize| [0.5, 3.0, -40.0, 200.0][h % 4];
        self.sinks.then(|| (0..self.q_heads()).map(of).collect())
    }

    /// Those of ALiBi, the first head's larger than any model has them.
    fn slopes(&self) -> Option<Vec<f32>> {
        let of = |h: usize| if h == 0 { 8.0 } else { 0.5f32.powi(h as i32) };
        self.slopes.then(|| (0..self.q_heads()).map(of).collect())
    }

    /// One more than the last position that the one at `position` sees.
    fn until(&self, position: usize) -> usize {
        let span = self.spans.iter().find(|span| (span.0..span.1).contains(&position));
        span.map_or(position + 1, |span| span.1)
    }

    fn attend(&self, exec: &Exec<'_>, kv: &[u8], runs: &[KvRun<'_>], x: &[f32], out: &mut [f32]) {
        let (sinks, slopes) = (self.sinks(), self.slopes());
        let positions = runs.iter().flat_map(|run| run.past..run.past + run.rows);
        let until: Vec<u32> = positions.map(|position| self.until(position) as u32).collect();
        let attention = Attention {
            q_heads: self.q_heads(),
            scale: self.scale(),
            causal: true,
            until: (!self.spans.is_empty()).then_some(&until),
            window: self.window,
            chunk: self.chunk,
            softcap: self.softcap,
            sinks: sinks.as_deref(),
            slopes: slopes.as_deref(),
        };
        exec.attention(&self.layout(), kv, runs, &attention, x, self.stride(), out);
    }

    /// In pages that hold another layer's blocks too.
    fn layout(&self) -> KvLayout {
        let layout = KvLayout::new(self.kv_heads, self.head_dim, self.dtype).unwrap();
        let bytes = layout.bytes();
        layout.placed(64, bytes + 128)
    }

    fn memory(&self, pages: usize) -> AlignedBuf {
        AlignedBuf::zeroed(pages * (self.layout().bytes() + 128)).unwrap()
    }

    /// Pages for all positions, in no order.
    fn pages(&self) -> Vec<u32> {
        let count = self.tokens.div_ceil(BLOCK_TOKENS) as u32;
        (0..count)
            .map(|page| if page % 2 == 0 { page / 2 } else { count - 1 - page / 2 })
            .collect()
    }

    /// Rows of a fused projection: queries, keys, values.
    fn stride(&self) -> usize {
        (self.q_heads() + 2 * self.kv_heads) * self.head_dim
    }

    fn inputs(&self, seed: u64) -> Vec<f32> {
        let mut inputs = Random::new(seed).floats(self.tokens * self.stride(), 2.0);
        let keys = self.q_heads() * self.head_dim..(self.q_heads() + self.kv_heads) * self.head_dim;
        for row in inputs.chunks_exact_mut(self.stride()) {
            for head in row[keys.clone()].chunks_exact_mut(self.head_dim) {
                head[3] += self.bias;
                head[self.head_dim - 2] -= self.bias / 2.0;
            }
        }
        inputs
    }

    /// Appends and attends in chunks, each of the next length in `chunks` (repeated) or as much more as a span needs to end, into `pages`
    /// of `kv`.
    fn run(&self, exec: &Exec<'_>, kv: &mut [u8], pages: &[u32], inputs: &[f32], chunks: &[usize]) -> Vec<f32> {
        let layout = self.layout();
        let (stride, k_at) = (self.stride(), self.q_heads() * self.head_dim);
        let v_at = k_at + self.kv_heads * self.head_dim;
        let mut out = vec![f32::NAN; self.tokens * k_at];
        let mut past = 0;
        for &chunk in chunks.iter().cycle() {
            if past == self.tokens {
                break;
            }
            let rows = self.until(past + chunk.min(self.tokens - past) - 1) - past;
            let x = &inputs[past * stride..(past + rows) * stride];
            let run = KvRun { rows, past, pages };
            exec.kv_append(&layout, kv, &[run], &x[k_at..], stride, &x[v_at..], stride);
            let out = &mut out[past * k_at..(past + rows) * k_at];
            self.attend(exec, kv, &[run], x, out);
            past += rows;
        }
        out
    }

    fn run_fresh(&self, exec: &Exec<'_>, inputs: &[f32], chunks: &[usize]) -> Vec<f32> {
        let pages = self.pages();
        self.run(exec, &mut self.memory(pages.len()), &pages, inputs, chunks)
    }

    /// The definition, on what `storage` makes of queries, keys and values.
    fn exact(&self, inputs: &[f32], storage: &Storage) -> Vec<f64> {
        let (stride, dim) = (self.stride(), self.head_dim);
        let head = |t: usize, h: usize| &inputs[t * stride + h * dim..][..dim];
        let mut out = Vec::new();
        for t in 0..self.tokens {
            let window = self.window.map_or(0, |w| (t + 1).saturating_sub(w));
            let first = window.max(self.chunk.map_or(0, |n| t - t % n));
            for h in 0..self.q_heads() {
                let kv_head = h / self.group;
                let q = (storage.query)(head(t, h));
                let slope = self.slopes().map_or(0.0, |slopes| f64::from(slopes[h]));
                let sink = self.sinks().map(|sinks| f64::from(sinks[h]));
                let scores: Vec<f64> = (first..self.until(t))
                    .map(|p| {
                        let key = |p: usize| head(p, self.q_heads() + kv_head);
                        let [k, reference] = (storage.key)(key(p), key(p / 64 * 64));
                        let offset: f64 = plain(head(t, h)).iter().zip(reference).map(|(q, r)| q * r).sum();
                        let dot: f64 = q.iter().zip(&k).map(|(q, k)| q * k).sum();
                        let score = (dot + offset) * f64::from(self.scale());
                        let capped = self
                            .softcap
                            .map_or(score, |cap| f64::from(cap) * (score / f64::from(cap)).tanh());
                        capped - slope * (t as f64 - p as f64)
                    })
                    .collect();
                let max = scores.iter().copied().chain(sink).fold(f64::NEG_INFINITY, f64::max);
                let weights: Vec<f64> = scores.iter().map(|s| (s - max).exp()).collect();
                let total: f64 = weights.iter().sum::<f64>() + sink.map_or(0.0, |s| (s - max).exp());
                let mut row = vec![0.0; dim];
                for (p, weight) in (first..self.until(t)).zip(&weights) {
                    let v = (storage.value)(head(p, self.q_heads() + self.kv_heads + kv_head));
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

/// What storage makes of a query, of a key given the first key of its block (the rest, and the reference, which meets the
/// query as it is), and of a value.
struct Storage {
    query: fn(&[f32]) -> Vec<f64>,
    key: fn(&[f32], &[f32]) -> [Vec<f64>; 2],
    value: fn(&[f32]) -> Vec<f64>,
}

const EXACT: Storage = Storage {
    query: plain,
    key: |key, _| [plain(key), vec![]],
    value: plain,
};

const INT8: Storage = Storage {
    query: rotated_int8,
    key: |key, first| {
        let mean = first.iter().map(|x| x.abs()).sum::<f32>() / first.len() as f32;
        let outliers = first.iter().any(|x| x.abs() > 6.0 * mean);
        let reference = |x: &f32| if outliers && x.abs() > 2.0 * mean { *x } else { 0.0 };
        let reference: Vec<f32> = first.iter().map(reference).collect();
        let left: Vec<f32> = key.iter().zip(&reference).map(|(k, r)| k - r).collect();
        [rotated_int8(&left), plain(&reference)]
    },
    value: int8,
};

/// What 8 bits make of a head.
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

/// What 8 bits make of a head that is rotated first, and back.
fn rotated_int8(x: &[f32]) -> Vec<f64> {
    let mut padded = x.to_vec();
    padded.resize(x.len().next_multiple_of(32), 0.0);
    let runs: Vec<_> = groups(padded.len()).collect();
    for &(start, d) in &runs {
        rotation::rotate(&mut padded[start..start + d]);
    }
    let mut stored = int8(&padded);
    for (start, d) in runs {
        let run = &mut stored[start..start + d];
        rotation::hadamard(run);
        for (x, sign) in run.iter_mut().zip(rotation::SIGNS) {
            *x *= if sign < 0 { -1.0 } else { 1.0 } / d as f64;
        }
    }
    stored.truncate(x.len());
    stored
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
        chunk: None,
        softcap: None,
        sinks: false,
        slopes: false,
        dtype: KvDType::I8G32,
        bias: 0.0,
        spans: &[],
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
            bias: 150.0,
            ..base.clone()
        },
        Case {
            bias: 40.0,
            window: Some(64),
            softcap: Some(500.0),
            ..base.clone()
        },
        Case {
            bias: 100.0,
            window: Some(17),
            head_dim: 80,
            ..base.clone()
        },
        Case {
            head_dim: 512,
            kv_heads: 1,
            group: 4,
            tokens: 70,
            ..base.clone()
        },
        Case {
            head_dim: 264,
            kv_heads: 1,
            group: 2,
            tokens: 66,
            bias: 100.0,
            ..base.clone()
        },
        Case {
            sinks: true,
            ..base.clone()
        },
        Case {
            sinks: true,
            window: Some(17),
            softcap: Some(5.0),
            group: 4,
            ..base.clone()
        },
        Case {
            slopes: true,
            ..base.clone()
        },
        Case {
            slopes: true,
            sinks: true,
            softcap: Some(5.0),
            window: Some(70),
            group: 2,
            ..base.clone()
        },
        Case {
            chunk: Some(24),
            ..base.clone()
        },
        Case {
            chunk: Some(64),
            ..base.clone()
        },
        Case {
            chunk: Some(100),
            window: Some(40),
            bias: 100.0,
            ..base.clone()
        },
        Case {
            chunk: Some(1),
            tokens: 66,
            ..base.clone()
        },
        Case {
            chunk: Some(usize::MAX),
            tokens: 66,
            ..base.clone()
        },
        Case {
            spans: &[(3, 40), (41, 140)],
            ..base.clone()
        },
        // Longer than the window, to the end, and one after the other.
        Case {
            spans: &[(0, 64), (64, 66), (70, 150)],
            window: Some(17),
            bias: 100.0,
            ..base.clone()
        },
        Case {
            spans: &[(1, 149)],
            slopes: true,
            sinks: true,
            softcap: Some(5.0),
            window: Some(64),
            head_dim: 80,
            group: 1,
            ..base.clone()
        },
        // Weights of later blocks are small beside those before.
        Case {
            softcap: Some(0.5),
            kv_heads: 1,
            tokens: 330,
            ..base.clone()
        },
        Case {
            softcap: Some(0.5),
            group: 1,
            head_dim: 80,
            window: Some(250),
            tokens: 330,
            ..base.clone()
        },
        // Of which two threads take two, two and one together.
        Case {
            kv_heads: 5,
            group: 2,
            tokens: 70,
            sinks: true,
            slopes: true,
            bias: 100.0,
            ..base.clone()
        },
        Case {
            group: 72,
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
                let exact = case.exact(&inputs, &INT8);
                assert_close(&format!("{case:?}"), &found, &exact, 0.0, 5e-4 * f64::from(largest));
                let exact = case.exact(&inputs, &EXACT);
                assert_close(
                    &format!("{case:?} before quantizing"),
                    &found,
                    &exact,
                    0.0,
                    0.05 * f64::from(largest),
                );
            }
            _ => {
                let exact = case.exact(&inputs, &EXACT);
                assert_close(&format!("{case:?}"), &found, &exact, 0.0, 2e-3 * f64::from(largest));
            }
        }
    }
}

#[test]
fn attention_large_key_channels_do_not_cost_the_others_their_bits() {
    for head_dim in [64, 80, 128, 256] {
        let errors = [0.0, 150.0].map(|bias| {
            let case = Case {
                head_dim,
                bias,
                group: 2,
                tokens: 70,
                ..cases()[0].clone()
            };
            let inputs = case.inputs(29);
            let found = same_everywhere(&format!("{case:?}"), |exec| case.run_fresh(exec, &inputs, &[70]));
            let squares = case.exact(&inputs, &EXACT).into_iter().zip(found);
            squares.map(|(a, b)| (a - f64::from(b)).powi(2)).sum::<f64>().sqrt()
        });
        assert!(errors[1] < 1.5 * errors[0], "{head_dim}: {errors:?}");
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
            // Heads that two threads share unevenly.
            if case.kv_heads > 2 {
                let pool = Pool::new(2);
                let step = pool.step(2);
                let found = case.run_fresh(&Exec { kernels, step: &step }, &inputs, &[1]);
                assert_same_bits(&format!("{case:?} {} two threads", kernels.tier()), &found, &whole);
            }
        }
    }
}

#[test]
fn attention_in_pages_used_again_behind_the_window_equals_attention_in_all_pages() {
    for case in cases().into_iter().filter(|c| c.window.is_some_and(|w| w < c.tokens)) {
        let window = case.window.unwrap();
        let inputs = case.inputs(13);
        for chunk in [1, 5, 40] {
            let found = same_everywhere(&format!("{case:?} chunk {chunk}"), |exec| {
                // A span is computed at once.
                let longest = case.spans.iter().map(|span| span.1 - span.0).max().unwrap_or(0);
                let held = (window + chunk + longest - 1).div_ceil(BLOCK_TOKENS) + 1;
                let pages: Vec<u32> = (0..case.tokens.div_ceil(BLOCK_TOKENS))
                    .map(|b| (b % held) as u32)
                    .collect();
                case.run(exec, &mut case.memory(held), &pages, &inputs, &[chunk])
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
            let pages = case.pages();
            let mut kv = case.memory(pages.len());
            kv.fill(0xff);
            case.run(exec, &mut kv, &pages, &inputs, &[9, 70])
        });
        let expected = same_everywhere("zeroed", |exec| case.run_fresh(exec, &inputs, &[9, 70]));
        assert_same_bits(&format!("{case:?}"), &found, &expected);
    }
}

#[test]
fn attention_of_several_sequences_in_one_call_equals_each_alone() {
    // Lengths at the first call, and rows of each later one: a prompt that comes in while others are continued.
    let lengths = [1, 64, 40, 130, 63];
    let calls = [[1, 1, 1, 30, 1], [1, 1, 25, 1, 1], [70, 1, 1, 1, 2]];
    let base = cases().swap_remove(0);
    let odd = Case {
        head_dim: 48,
        window: Some(50),
        softcap: Some(5.0),
        ..base.clone()
    };
    let half = Case {
        dtype: KvDType::F16,
        ..odd.clone()
    };
    for case in [base, odd, half] {
        let sequences: Vec<Case> = lengths
            .iter()
            .zip(0..)
            .map(|(first, i)| Case {
                tokens: first + calls.iter().map(|rows| rows[i]).sum::<usize>(),
                ..case.clone()
            })
            .collect();
        let inputs: Vec<Vec<f32>> = sequences.iter().zip(31..).map(|(c, seed)| c.inputs(seed)).collect();
        let (layout, stride) = (case.layout(), case.stride());
        let (k_at, v_at) = (
            case.q_heads() * case.head_dim,
            (case.q_heads() + case.kv_heads) * case.head_dim,
        );
        // Pages of one memory in turns, so that no sequence has two in a row.
        let most = sequences.iter().map(|c| c.tokens.div_ceil(BLOCK_TOKENS)).max().unwrap();
        let pages: Vec<Vec<u32>> = (0..lengths.len())
            .map(|i| (0..most).map(|b| (b * lengths.len() + i) as u32).collect())
            .collect();
        let together = same_everywhere(&format!("{case:?}"), |exec| {
            let mut kv = case.memory(most * lengths.len());
            let mut outputs = vec![Vec::new(); lengths.len()];
            let mut past = [0; 5];
            for rows in [lengths].iter().chain(&calls) {
                let runs: Vec<KvRun<'_>> = (0..lengths.len())
                    .map(|i| KvRun {
                        rows: rows[i],
                        past: past[i],
                        pages: &pages[i],
                    })
                    .collect();
                let x: Vec<f32> = (0..lengths.len())
                    .flat_map(|i| &inputs[i][past[i] * stride..(past[i] + rows[i]) * stride])
                    .copied()
                    .collect();
                exec.kv_append(&layout, &mut kv, &runs, &x[k_at..], stride, &x[v_at..], stride);
                let mut out = vec![f32::NAN; rows.iter().sum::<usize>() * k_at];
                case.attend(exec, &kv, &runs, &x, &mut out);
                let mut rest = &out[..];
                for i in 0..lengths.len() {
                    let (own, after) = rest.split_at(rows[i] * k_at);
                    outputs[i].extend_from_slice(own);
                    (rest, past[i]) = (after, past[i] + rows[i]);
                }
            }
            outputs.concat()
        });
        let alone = same_everywhere("alone", |exec| {
            let runs = sequences.iter().zip(&inputs);
            runs.flat_map(|(c, inputs)| c.run_fresh(exec, inputs, &[c.tokens]))
                .collect()
        });
        assert_same_bits(&format!("{case:?}"), &together, &alone);
    }
}

#[test]
fn queries_that_see_all_of_another_sequence_are_as_one_at_its_end() {
    for case in cases() {
        if case.window.is_some() || case.chunk.is_some() || case.slopes {
            continue;
        }
        let (stride, k_at) = (case.stride(), case.q_heads() * case.head_dim);
        let (inputs, pages, layout, sinks) = (case.inputs(23), case.pages(), case.layout(), case.sinks());
        let last = &inputs[(case.tokens - 1) * stride..];
        // More than a tile has, where that does not take long.
        for count in [1, 5, if case.tokens < 100 { 70 } else { 40 }] {
            let what = format!("{count} of {case:?}");
            let found = same_everywhere(&what, |exec| {
                let mut kv = case.memory(pages.len());
                let causal = case.run(exec, &mut kv, &pages, &inputs, &[case.tokens]);
                let run = KvRun {
                    rows: count,
                    past: case.tokens,
                    pages: &pages,
                };
                let attention = Attention {
                    causal: false,
                    softcap: case.softcap,
                    sinks: sinks.as_deref(),
                    ..Attention::plain(case.q_heads(), case.scale())
                };
                let mut out = vec![f32::NAN; count * k_at];
                exec.attention(&layout, &kv, &[run], &attention, &last.repeat(count), stride, &mut out);
                let end = &causal[(case.tokens - 1) * k_at..];
                assert_same_bits(&what, &out, &end.repeat(count));
                out
            });
            assert!(found.iter().all(|x| x.is_finite()), "{what}");
        }
    }
}

#[test]
fn append_of_several_pages_from_the_middle_of_one_keeps_all_positions() {
    let case = &cases()[0];
    let inputs = case.inputs(19);
    let (stride, k_at) = (case.stride(), case.q_heads() * case.head_dim);
    let v_at = k_at + case.kv_heads * case.head_dim;
    let layout = case.layout();
    let append = |exec: &Exec<'_>, chunk: usize| {
        let mut kv = case.memory(3);
        for first in (0..128).step_by(chunk) {
            let x = &inputs[first * stride..];
            let run = KvRun {
                rows: chunk,
                past: first + 30,
                pages: &[2, 0, 1],
            };
            exec.kv_append(&layout, &mut kv, &[run], &x[k_at..], stride, &x[v_at..], stride);
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
#[cfg_attr(target_family = "wasm", ignore = "a panic ends the program")]
fn pages_that_are_missing_shared_or_beyond_the_memory_panic() {
    let layout = KvLayout::new(1, 64, KvDType::I8G32).unwrap();
    let x = vec![0.0; 200 * 64];
    for (runs, what) in [
        (vec![(100, 0, &[0][..])], "blocks up to 2, 1 pages"),
        (vec![(1, 0, &[4])], "page 4 of 4"),
        (vec![(1, 0, &[1]), (1, 0, &[1])], "page 1 is written for two blocks"),
        (vec![(100, 0, &[2, 2])], "page 2 is written for two blocks"),
    ] {
        let panic = std::panic::catch_unwind(|| {
            let mut kv = AlignedBuf::zeroed(4 * layout.bytes()).unwrap();
            let exec = Exec {
                kernels: cactus_kernels::Kernels::detect().unwrap(),
                step: &cactus_base::Step::inline(),
            };
            let run = |&(rows, past, pages)| KvRun { rows, past, pages };
            let runs: Vec<KvRun<'_>> = runs.iter().map(run).collect();
            exec.kv_append(&layout, &mut kv, &runs, &x, 64, &x, 64);
        });
        let message = *panic.unwrap_err().downcast::<String>().unwrap();
        assert!(message.contains(what), "{message}");
    }
}

#[test]
fn layout_of_hostile_sizes_is_an_error() {
    for (heads, dim) in [(0, 64), (1, 0), (1, 513), (usize::MAX, 64), (usize::MAX / 8, 256)] {
        assert!(KvLayout::new(heads, dim, KvDType::I8G32).is_err(), "{heads} {dim}");
    }
    let layout = KvLayout::new(3, 64, KvDType::I8G32).unwrap();
    assert_eq!(layout.bytes(), 3 * (64 * 144 + 64 * 4));
}
