//! Experts, computed side by side: equal bits on every tier and thread count, and those of each row with each of its experts.

mod support;

use cactus_kernels::{Activation, Epilogue, Exec, Expert, ExpertSizes, Experts};
use cactus_quant::{Packed, Packing, pack};
use support::{Random, assert_same_bits, products, same_everywhere};

struct Case {
    packings: [Packing; 2],
    rows: usize,
    chosen: usize,
    count: usize,
    n: usize,
    m: usize,
    biased: bool,
    accumulate: bool,
}

struct Weights {
    gate_up: Packed,
    down: Packed,
    biases: [Vec<f32>; 2],
}

impl Case {
    fn expert_of(&self, place: usize) -> usize {
        let (row, which) = (place / self.chosen, place % self.chosen);
        // Some experts are taken by most rows, some by few.
        (row * row % 7 + which * (1 + row % 2)) % self.count
    }

    fn weights(&self, random: &mut Random) -> Vec<Weights> {
        let &Case { n, m, count, .. } = self;
        let packed =
            |packing, rows, k, random: &mut Random| pack(packing, rows, k, &random.floats(rows * k, 0.5)).unwrap();
        (0..count)
            .map(|_| Weights {
                gate_up: packed(self.packings[0], 2 * m, n, random),
                down: packed(self.packings[1], n, m, random),
                biases: [random.floats(2 * m, 1.0), random.floats(n, 1.0)],
            })
            .collect()
    }

    /// Side by side.
    fn found(&self, exec: &Exec<'_>, weights: &[Weights], x: &[f32], shares: &[f32], before: &[f32]) -> Vec<f32> {
        let &Case { rows, chosen, n, m, .. } = self;
        let places: Vec<Vec<usize>> = (0..self.count)
            .map(|e| (0..rows * chosen).filter(|&p| self.expert_of(p) == e).collect())
            .collect();
        let taken: Vec<Expert<'_>> = weights
            .iter()
            .zip(&places)
            .filter(|(_, places)| !places.is_empty())
            .map(|(weights, places)| Expert {
                gate_up: weights.gate_up.view(),
                down: weights.down.view(),
                biases: self.biased.then_some([&weights.biases[0][..], &weights.biases[1]]),
                places,
            })
            .collect();
        let experts = Experts {
            act: Activation::Silu,
            chosen,
            taken: &taken,
            shares,
        };
        let packings = self.packings;
        let sizes = ExpertSizes {
            places: rows * chosen,
            packings,
            n,
            m,
        };
        let mut scratch = vec![f32::NAN; Exec::experts_scratch(&sizes)];
        let mut out = before.to_vec();
        let mut memory = vec![0f32; rows * (n + 64)];
        let x = exec.activations(packings[0], x, [rows, n], None, &mut memory);
        exec.experts(&experts, &x, &mut scratch, self.accumulate, &mut out);
        out
    }

    /// Each place for itself.
    fn expected(&self, exec: &Exec<'_>, weights: &[Weights], x: &[f32], shares: &[f32], before: &[f32]) -> Vec<f32> {
        let &Case { chosen, n, m, .. } = self;
        let mut out = before.to_vec();
        for (row, out) in out.chunks_exact_mut(n).enumerate() {
            let mut sum = vec![0f32; n];
            for place in row * chosen..(row + 1) * chosen {
                let Weights { gate_up, down, biases } = &weights[self.expert_of(place)];
                let epilogue = |which: usize| Epilogue {
                    bias: self.biased.then_some(&biases[which][..]),
                    ..Epilogue::default()
                };
                let (mut stage, mut hidden, mut y) = (vec![0.0; 2 * m], vec![0.0; m], vec![0.0; n]);
                products::linear(*exec, &gate_up.view(), &x[row * n..][..n], 1, epilogue(0), &mut stage);
                exec.gated(Activation::Silu, &stage, m, 1, &mut hidden);
                products::linear(*exec, &down.view(), &hidden, 1, epilogue(1), &mut y);
                sum.iter_mut().zip(&y).for_each(|(sum, y)| *sum += shares[place] * y);
            }
            match self.accumulate {
                true => out.iter_mut().zip(&sum).for_each(|(out, sum)| *out += sum),
                false => out.copy_from_slice(&sum),
            }
        }
        out
    }
}

#[test]
fn experts_equal_their_products_one_after_the_other() {
    use Packing::{Cq4G128, F16N16, Int8G32, RowMajor};
    for (packings, rows, chosen, count, [n, m], biased, accumulate) in [
        ([Int8G32, Int8G32], 5, 3, 4, [64, 48], true, false),
        ([Cq4G128, Cq4G128], 5, 3, 6, [64, 48], false, true),
        ([F16N16, F16N16], 5, 2, 3, [64, 48], false, false),
        // Of different packings, with rows that are no multiple of a vector.
        ([Int8G32, F16N16], 3, 2, 5, [40, 24], true, true),
        ([RowMajor, Cq4G128], 4, 1, 2, [24, 32], false, false),
        // One row, whose experts are large enough for several threads.
        ([Int8G32, Int8G32], 1, 4, 6, [512, 256], false, true),
        ([Cq4G128, Int8G32], 1, 2, 2, [512, 256], true, false),
        // More than one wave, and more places of one expert than a wave has.
        ([Int8G32, Int8G32], 150, 3, 7, [32, 16], false, true),
        ([Int8G32, Int8G32], 300, 1, 1, [32, 16], false, false),
    ] {
        let case = Case {
            packings,
            rows,
            chosen,
            count,
            n,
            m,
            biased,
            accumulate,
        };
        let mut random = Random::new(11);
        let (x, before) = (random.floats(rows * n, 2.0), random.floats(rows * n, 1.0));
        let (shares, weights) = (random.floats(rows * chosen, 1.0), case.weights(&mut random));
        let found = same_everywhere("experts", |exec| case.found(exec, &weights, &x, &shares, &before));
        let expected = same_everywhere("products of experts", |exec| {
            case.expected(exec, &weights, &x, &shares, &before)
        });
        assert_same_bits(
            &format!("{rows} rows, {chosen} of {count} experts in {packings:?}"),
            &found,
            &expected,
        );
    }
}
