//! Steps of gated units, short convolutions, and what the gated delta rule is given.

use super::{Call, floats, parts, row_of};
use crate::gates;
use crate::step::{Kind, View};
use cactus_kernels::DeltaRows;
use std::ops::Range;

impl Call<'_> {
    pub(super) fn short_conv(&mut self, kind: &Kind) {
        let Kind::ShortConv {
            state,
            x,
            weight,
            bias,
            then,
            out,
        } = kind
        else {
            return;
        };
        let exec = self.exec;
        let w = self.program.vector(*weight);
        let b = bias.map(|b| self.program.vector(b));
        for run in self.runs.iter_mut() {
            let at = |v: View| {
                let at = self.lowered.offsets[v.buffer];
                at + run.rows.start * v.stride * 4..at + run.rows.end * v.stride * 4
            };
            let memory = floats(&mut run.carried[*state]);
            let [xs, os] = parts(self.arena, [at(*x), at(View::of(*out, x.width))]);
            let (xs, os) = (&floats(xs)[x.offset..], floats(os));
            exec.short_conv(xs, x.stride, w, b, memory, run.rows.len(), x.width, os);
            if let Some(f) = then {
                exec.unary_in_place(*f, os);
            }
        }
    }

    pub(super) fn decays(&mut self, kind: &Kind, rows: &Range<usize>) {
        let Kind::Decays {
            step,
            rate,
            speed,
            bias,
            decay,
            learned,
        } = kind
        else {
            return;
        };
        let exec = self.exec;
        let of_heads = [speed, bias].map(|x| x.numbers(self.program));
        let heads = of_heads[0].len();
        let made = [*decay, *learned].map(|b| self.span(b, heads, rows));
        let (step_span, rate_span) = (self.view_span(*step, rows), self.view_span(*rate, rows));
        let operand = |data, view: &View| DeltaRows {
            data: &<[f32]>::as_ref(data)[view.offset..],
            stride: view.stride,
        };
        let [decay, learned] = made;
        if step.buffer == rate.buffer {
            let [both, decay, learned] = parts(self.arena, [step_span, decay, learned]);
            let both: &[f32] = floats(both);
            let operands = [operand(both, step), operand(both, rate)];
            gates::decays(exec, operands, of_heads, floats(decay), floats(learned));
        } else {
            let [steps, rates, decay, learned] = parts(self.arena, [step_span, rate_span, decay, learned]);
            let operands = [operand(floats(steps), step), operand(floats(rates), rate)];
            gates::decays(exec, operands, of_heads, floats(decay), floats(learned));
        }
    }

    pub(super) fn gated_rows(&mut self, kind: &Kind, rows: &Range<usize>) {
        let Kind::GatedRows {
            unit,
            gate,
            up,
            scratch,
            out,
        } = kind
        else {
            return;
        };
        let exec = self.exec;
        let (gate_span, up_span) = (self.view_span(*gate, rows), self.view_span(*up, rows));
        let (scratch, out) = (self.whole(*scratch), self.span(*out, unit.n, rows));
        let copied = |gates: &[f32], ups: &[f32], scratch, out| {
            unit.run(exec, scratch, out, |i, _, to_gate, to_up| {
                to_gate.copy_from_slice(row_of(gates, *gate, i));
                to_up.copy_from_slice(row_of(ups, *up, i));
            });
        };
        if gate.buffer == up.buffer {
            let [both, scratch, out] = parts(self.arena, [gate_span, scratch, out]);
            let both: &[f32] = floats(both);
            copied(both, both, floats(scratch), floats(out));
        } else {
            let [gates, ups, scratch, out] = parts(self.arena, [gate_span, up_span, scratch, out]);
            copied(floats(gates), floats(ups), floats(scratch), floats(out));
        }
    }
}
