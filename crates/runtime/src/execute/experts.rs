//! Experts that a router chooses.

use super::{Call, activations, floats, parts};
use crate::experts::{Layer, choose};
use crate::step::{RoutedExperts, View};
use crate::{Error, Result};
use cactus_quant::PackedView;
use std::ops::Range;

impl Call<'_> {
    pub(super) fn experts(&mut self, step: &RoutedExperts, rows: &Range<usize>) -> Result<()> {
        let (program, exec, n) = (self.program, self.exec, rows.len());
        let [gate_up, down] = step.weights.map(|weight| self.matrix(weight));
        let (gate_up, down) = (gate_up?, down?);
        let layer = Layer {
            act: step.activation,
            experts: step.experts,
            chosen: step.route.chosen,
            n: step.n,
            m: step.m,
            matrices: &|e| Ok([part(gate_up, e, 2 * step.m)?, part(down, e, step.n)?]),
            biases: step
                .biases
                .as_ref()
                .map(|b| [b[0].numbers(program), b[1].numbers(program)]),
        };
        let spans = [
            self.view_span(step.scores, rows),
            self.operand_span(step.x, rows),
            self.view_span(View::of(step.out, step.n), rows),
            self.whole(step.scratch),
        ];
        let [scores, x, out, scratch] = parts(self.arena, spans);
        let (scores, scratch) = (floats(scores), floats(scratch));
        let of = [&step.bias, &step.factor].map(|x| x.as_ref().map(|x| x.numbers(program)));
        let choices = choose(
            &exec,
            &step.route,
            step.experts,
            scores,
            of,
            &mut scratch[..n * step.experts],
        )?;
        let x = activations(step.x, x, n, step.n);
        layer.compute(&exec, &choices, &x, scratch, step.accumulate, floats(out))
    }
}

/// Rows of expert `e` of a matrix of experts with `rows` each.
fn part(whole: PackedView<'_>, e: usize, rows: usize) -> Result<PackedView<'_>> {
    whole.rows(e * rows, rows).ok_or_else(|| {
        Error::Argument(format!(
            "expert {e} lies outside of its matrix; this is a bug, please report it"
        ))
    })
}
