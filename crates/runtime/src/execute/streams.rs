//! Steps of alternating updates.

use super::{Call, floats, parts, row_of};
use crate::Result;
use crate::step::{Kind, View};
use crate::streams::{Strided, add_to_each};
use std::ops::Range;

impl Call<'_> {
    pub(super) fn streams(&mut self, kind: &Kind, rows: &Range<usize>) -> Result<()> {
        let exec = self.exec;
        let operand = |data, view: View| Strided {
            data: &<[f32]>::as_ref(data)[view.offset..],
            stride: view.stride,
        };
        match kind {
            Kind::AltupPredict {
                streams,
                x,
                routes,
                factors,
                scratch,
            } => {
                let factors = self.matrix(*factors)?;
                let spans = [
                    self.view_span(*x, rows),
                    self.view_span(*routes, rows),
                    self.whole(*scratch),
                ];
                let [xs, given, scratch] = parts(self.arena, spans);
                let routes = (operand(floats(given), *routes), rows.len());
                let xs = &mut floats(xs)[x.offset..];
                streams.predict(exec, routes, &factors, floats(scratch), (xs, x.stride));
            }
            Kind::AltupCorrect {
                streams,
                active,
                x,
                new,
                routes,
                factors,
                scratch,
            } => {
                let factors = self.matrix(*factors)?;
                let spans = [*x, *new, *routes].map(|view| self.view_span(view, rows));
                let [x_span, new_span, routes_span] = spans;
                let spans = [x_span, new_span, routes_span, self.whole(*scratch)];
                let [xs, news, given, scratch] = parts(self.arena, spans);
                let routes = (operand(floats(given), *routes), rows.len());
                let new = (operand(floats(news), *new), *active);
                let xs = &mut floats(xs)[x.offset..];
                streams.correct(exec, new, routes, &factors, floats(scratch), (xs, x.stride));
            }
            Kind::AddToEach { x, y } => {
                let [xs, ys] = parts(self.arena, [self.view_span(*x, rows), self.view_span(*y, rows)]);
                for (i, row) in floats(xs).chunks_exact_mut(x.stride.max(1)).enumerate() {
                    add_to_each(&mut row[x.offset..][..x.width], row_of(floats(ys), *y, i));
                }
            }
            _ => {}
        }
        Ok(())
    }
}
