//! The memory of a plan: one aligned buffer for each slot.

use super::plan::Plan;
use crate::Result;
use cactus_base::AlignedBuf;

/// Buffers of the slots, and what kernels borrow while they run. A buffer is taken out while its value is computed.
#[derive(Debug)]
pub(super) struct Memory {
    pub(super) slots: Vec<Option<AlignedBuf>>,
    pub(super) scratch: Option<AlignedBuf>,
}

impl Memory {
    pub(super) fn new(plan: &Plan) -> Result<Memory> {
        let slots: std::result::Result<Vec<_>, _> =
            plan.slots.iter().map(|&n| AlignedBuf::zeroed(n).map(Some)).collect();
        Ok(Memory {
            slots: slots?,
            scratch: None,
        })
    }

    /// Bytes held.
    pub(super) fn bytes(&self) -> usize {
        let all = self.slots.iter().chain([&self.scratch]);
        all.flatten().map(|s| s.len()).sum()
    }
}
