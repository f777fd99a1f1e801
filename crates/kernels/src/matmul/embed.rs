//! Rows of a packed table.

use crate::error::{Error, ErrorKind, Result};
use crate::exec::{Exec, SharedMut};
use crate::parts::{part_count, part_range};
use cactus_quant::PackedView;

impl Exec<'_> {
    /// Row `ids[i]` of the table `w [vocabulary, k]` as `out[i]`, `out [ids, k]`.
    ///
    /// # Errors
    /// [`ErrorKind::IndexOutOfRange`] for an id that the table lacks; `out` is then unchanged.
    ///
    /// # Panics
    /// When `out` has another length: a programming error.
    pub fn embed(&self, w: &PackedView<'_>, ids: &[u32], out: &mut [f32]) -> Result<()> {
        let k = w.k();
        assert_eq!(
            Some(out.len()),
            ids.len().checked_mul(k),
            "embed: elements of the output"
        );
        if let Some(at) = ids.iter().position(|&id| id as usize >= w.n()) {
            let context = format!(
                "id {} at position {at} is outside of the table, which has {} rows",
                ids[at],
                w.n()
            );
            return Err(Error::new(ErrorKind::IndexOutOfRange, context));
        }
        if k == 0 {
            return Ok(());
        }
        let parts = part_count(self.step.width(), ids.len(), 2 * k);
        let out = SharedMut::new(out);
        self.step.run(parts, &|part| {
            let range = part_range(ids.len(), parts, part);
            // SAFETY: the rows of different parts are disjoint.
            let out = unsafe { out.piece(range.start * k..range.end * k) };
            for (&id, out) in ids[range].iter().zip(out.chunks_exact_mut(k)) {
                w.decode_row(id as usize, out);
            }
        });
        Ok(())
    }
}
