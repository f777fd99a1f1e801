//! One pass alone on a small graph.

use crate::kit::{inputs, output, run_pass};
use cactus_ir::{BinaryFn, Graph, GraphBuilder, Result, ValueId};
use cactus_testkit::assert_close;

/// What pass `name` makes of `before`, as text beside it and the report. Both compute the same at several lengths.
#[track_caller]
pub(crate) fn checked(name: &str, case: &str, before: &Graph) -> String {
    let (after, report) = run_pass(name, before);
    for (batch, seq) in [(1, 1), (2, 5)] {
        let given = inputs(before, batch, seq);
        let want = output(before, before, &given);
        assert_close(
            &output(&after, before, &given),
            &want,
            1e-5,
            &format!("{name} {case} [{batch}, {seq}]"),
        );
    }
    format!("{before}\n{after}\n{report}")
}

/// `x` and a number.
pub(crate) fn binary(b: &mut GraphBuilder, f: BinaryFn, x: ValueId, c: f32) -> Result<ValueId> {
    let c = b.scalar(c)?;
    b.binary(f, x, c)
}
