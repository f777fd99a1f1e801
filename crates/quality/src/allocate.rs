//! Spending bits where they matter.

use cactus_passes::Bits;
use serde::Serialize;
use std::collections::BTreeMap;

/// What coarser weights of one matrix do to the model.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Sensitivity {
    /// The matrix.
    pub name: String,
    /// Its elements.
    pub elements: u64,
    /// Divergence of the model's output, in nats, with this matrix alone at `bits`.
    pub divergence: f64,
    /// The bits it was measured with.
    pub bits: u32,
    /// Where not every precision may be chosen, the least one, in bits.
    pub least: u32,
}

/// Precisions that an allocation chooses from, and the squared error of weights at each, relative to their squares.
const CHOICES: [(Bits, f64); 6] = [
    (Bits::Two, 0.1175),
    (Bits::Three, 0.03454),
    (Bits::Four, 0.009497),
    (Bits::Five, 0.00248),
    (Bits::Six, 0.00067),
    (Bits::Eight, 0.00004),
];

/// Bits for every matrix, so that the average of `stored` bits over all elements is at most `target` and the sum of the
/// divergences least: divergence is taken to be proportional to the squared error of the weights, and to add up. Beginning
/// with the fewest bits, the matrix where the next bits save most for their size gets them, until nothing fits.
///
/// Where even the fewest bits are above the target, that is what comes back.
#[must_use]
pub fn allocate(sensitivities: &[Sensitivity], target: f64) -> BTreeMap<String, Bits> {
    let error_at = |bits: u32| {
        CHOICES
            .iter()
            .find(|(b, _)| b.number() == bits)
            .map_or(1.0, |(_, e)| *e)
    };
    let least = |s: &Sensitivity| CHOICES.iter().position(|(b, _)| b.number() >= s.least).unwrap_or(0);
    let mut chosen: Vec<usize> = sensitivities.iter().map(least).collect();
    let elements: u64 = sensitivities.iter().map(|s| s.elements).sum();
    let cost = |s: &Sensitivity, choice: usize| s.elements as f64 * CHOICES[choice].0.stored();
    let mut spent: f64 = sensitivities.iter().zip(&chosen).map(|(s, &c)| cost(s, c)).sum();
    let budget = elements as f64 * target;
    loop {
        let mut best: Option<(f64, usize, usize, f64)> = None;
        for (i, s) in sensitivities.iter().enumerate() {
            let unit = s.divergence / error_at(s.bits);
            // A step may skip a precision: 8 bits are worth their size only as a whole.
            for (next, (_, error)) in CHOICES.iter().enumerate().skip(chosen[i] + 1) {
                let price = cost(s, next) - cost(s, chosen[i]);
                if spent + price > budget {
                    break;
                }
                let gain = unit * (CHOICES[chosen[i]].1 - error) / price;
                if best.is_none_or(|(g, ..)| gain > g) {
                    best = Some((gain, i, next, price));
                }
            }
        }
        let Some((_, i, next, price)) = best else { break };
        chosen[i] = next;
        spent += price;
    }
    sensitivities
        .iter()
        .zip(chosen)
        .map(|(s, c)| (s.name.clone(), CHOICES[c].0))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(name: &str, elements: u64, divergence: f64) -> Sensitivity {
        Sensitivity {
            name: name.into(),
            elements,
            divergence,
            bits: 3,
            least: 2,
        }
    }

    fn average(s: &[Sensitivity], bits: &BTreeMap<String, Bits>) -> f64 {
        let total: f64 = s.iter().map(|s| s.elements as f64).sum();
        s.iter()
            .map(|s| s.elements as f64 * bits[&s.name].stored())
            .sum::<f64>()
            / total
    }

    #[test]
    fn bits_go_where_they_matter_within_the_target() {
        let s: Vec<_> = (0..40)
            .map(|i| {
                of(
                    &format!("w{i}"),
                    1000 + 100 * (i % 3),
                    0.001 * f64::from(1 + (i as u32 * 7) % 40),
                )
            })
            .collect();
        let mut before = 0.0;
        for target in [2.125, 2.5, 3.2, 4.125, 6.0, 8.5] {
            let bits = allocate(&s, target);
            let found = average(&s, &bits);
            assert!(
                found <= target + 1e-9 && found > target - 0.4 && found >= before,
                "{target}: {found}"
            );
            before = found;
            // Of equal size, the more sensitive one never has fewer bits.
            for a in &s {
                for b in s
                    .iter()
                    .filter(|b| b.elements == a.elements && b.divergence > a.divergence)
                {
                    assert!(bits[&b.name] >= bits[&a.name], "{target}: {a:?} {b:?}");
                }
            }
        }
    }

    #[test]
    fn a_least_precision_holds_even_above_the_target() {
        let mut s = vec![of("table", 10, 0.0), of("w", 10, 1.0)];
        s[0].least = 4;
        let bits = allocate(&s, 2.0);
        assert_eq!((bits["table"], bits["w"]), (Bits::Four, Bits::Two));
    }
}
