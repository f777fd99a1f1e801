use crate::{Pass, Report, Result};
use cactus_ir::Graph;

/// Removes nodes whose results nobody reads, and values nobody uses.
#[derive(Debug)]
pub(crate) struct DeadCode;

impl Pass for DeadCode {
    fn name(&self) -> &'static str {
        "dead_code"
    }

    fn run(&self, graph: &mut Graph, _: &mut Report) -> Result<()> {
        *graph = graph.compacted();
        Ok(())
    }
}
