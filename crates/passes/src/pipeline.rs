//! The order of passes, and running them. What a pass does is its own business; the graph is verified between any two.

use crate::canonicalize::Canonicalize;
use crate::dead_code::DeadCode;
use crate::drop_repeats::DropRepeats;
use crate::fold::Fold;
use crate::fold_padding::FoldPadding;
use crate::fuse_activation::FuseActivation;
use crate::fuse_altup::FuseAltup;
use crate::fuse_attention::FuseAttention;
use crate::fuse_conv_activation::FuseConvActivation;
use crate::fuse_conv_norm::FuseConvNorm;
use crate::fuse_delta_steps::FuseDeltaSteps;
use crate::fuse_experts::FuseExperts;
use crate::fuse_gate::FuseGate;
use crate::fuse_gated_mlp::FuseGatedMlp;
use crate::fuse_layer_norm::FuseLayerNorm;
use crate::fuse_norm_add::FuseNormAdd;
use crate::fuse_norm_gate::FuseNormGate;
use crate::fuse_norm_rope::FuseNormRope;
use crate::fuse_norm_scale::FuseNormScale;
use crate::fuse_rms_norm::FuseRmsNorm;
use crate::fuse_rope::FuseRope;
use crate::fuse_router::FuseRouter;
use crate::fuse_short_conv::FuseShortConv;
use crate::fuse_sinks::FuseSinks;
use crate::insert_states::InsertStates;
use crate::keep_batch::KeepBatch;
use crate::merge_linear::MergeLinear;
use crate::positions::Positions;
use crate::sink_permutes::SinkPermutes;
use crate::sink_reshapes::SinkReshapes;
use crate::take_rows::TakeRows;
use crate::{Error, ErrorKind, Report, Result};
use cactus_ir::Graph;
use std::collections::BTreeSet;
use std::fmt::Debug;

/// One rewrite of a graph.
pub trait Pass: Debug {
    /// Stable name, `snake_case`.
    fn name(&self) -> &'static str;

    /// Rewrites `graph` and records where it fired and where it nearly did. What it computes stays the same.
    ///
    /// # Errors
    /// [`ErrorKind::Graph`] where the graph breaks an invariant.
    fn run(&self, graph: &mut Graph, report: &mut Report) -> Result<()>;
}

/// Whether the pipeline ends in a stateful graph.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StatePolicy {
    /// States are inserted; a graph that cannot have them is an error. For causal language models.
    #[default]
    Required,
    /// States are inserted where that is possible.
    IfPossible,
    /// The graph stays a pure function. For encoders.
    Never,
}

/// Choices of [`optimize`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Passes left out, by name; see [`pass_names`].
    pub disabled: BTreeSet<String>,
    /// What becomes of states.
    pub states: StatePolicy,
}

impl Options {
    /// The same without pass `name`.
    pub fn without(mut self, name: &str) -> Self {
        self.disabled.insert(name.to_owned());
        self
    }
}

/// The pipeline, in order. Canonicalize comes again wherever a pass leaves chains behind.
static PIPELINE: &[&dyn PassSync] = &[
    &Canonicalize,
    &TakeRows,
    &Canonicalize,
    &Fold,
    &Positions,
    &Canonicalize,
    &DropRepeats,
    &Canonicalize,
    &DropRepeats,
    &Canonicalize,
    &SinkReshapes,
    &KeepBatch,
    &Canonicalize,
    &FoldPadding,
    &FuseConvNorm,
    &FuseActivation,
    &FuseLayerNorm,
    &FuseRmsNorm,
    &FuseNormScale,
    &FuseRope,
    &FuseAttention,
    &Canonicalize,
    &FuseSinks,
    &Fold,
    &SinkPermutes,
    &Canonicalize,
    &FuseAltup,
    &FuseShortConv,
    &Canonicalize,
    &SinkPermutes,
    &Canonicalize,
    &FuseGatedMlp,
    &FuseExperts,
    &FuseDeltaSteps,
    &FuseConvActivation,
    &MergeLinear,
    &Canonicalize,
    // Behind experts, whose rows had another shape before.
    &FuseRmsNorm,
    &InsertStates,
    &FuseNormRope,
    &FuseNormAdd,
    &FuseNormGate,
    &FuseGate,
    &FuseRouter,
    &DeadCode,
];

/// A pass that a static table may hold.
trait PassSync: Pass + Sync {}
impl<P: Pass + Sync> PassSync for P {}

/// Names of all passes, in order of their first run.
pub fn pass_names() -> Vec<&'static str> {
    let mut names = Vec::new();
    for p in PIPELINE {
        if !names.contains(&p.name()) {
            names.push(p.name());
        }
    }
    names
}

/// The pass called `name`.
pub fn pass(name: &str) -> Option<&'static dyn Pass> {
    PIPELINE.iter().find(|p| p.name() == name).map(|p| *p as &dyn Pass)
}

/// Runs the pipeline on `graph`, which is verified after each pass.
///
/// # Errors
/// [`ErrorKind::Option`] for a disabled pass that does not exist, [`ErrorKind::State`] where states are required and
/// cannot be inserted, [`ErrorKind::Graph`] where the graph is not valid.
pub fn optimize(graph: &Graph, options: &Options) -> Result<(Graph, Report)> {
    optimize_observed(graph, options, &mut |_, _| {})
}

/// As [`optimize`]; `observe` sees the graph after each pass, with the pass's name.
///
/// # Errors
/// As [`optimize`].
pub fn optimize_observed(
    graph: &Graph,
    options: &Options,
    observe: &mut dyn FnMut(&str, &Graph),
) -> Result<(Graph, Report)> {
    let names = pass_names();
    if let Some(unknown) = options.disabled.iter().find(|n| !names.contains(&n.as_str())) {
        let what = format!("there is no pass `{unknown}`; expected one of {}", names.join(", "));
        return Err(Error::new(ErrorKind::Option, what));
    }
    graph.verify()?;
    let mut graph = graph.compacted();
    let mut report = Report::default();
    for p in PIPELINE {
        let name = p.name();
        let skipped = name == InsertStates::NAME && options.states == StatePolicy::Never;
        if skipped || options.disabled.contains(name) {
            continue;
        }
        p.run(&mut graph, &mut report).map_err(|e| e.in_pass(name))?;
        graph = graph.compacted();
        graph.verify().map_err(|e| Error::from(e).in_pass(name))?;
        if name == InsertStates::NAME
            && options.states == StatePolicy::Required
            && let Some((at, why)) = report.misses(name).next()
        {
            let at = if at.is_empty() { "the graph" } else { at };
            let mut what = format!("states cannot be inserted, because of {at}: {why}");
            // What mixes positions is most often attention that was not recognized, of which its own pass knows more.
            if let Some((at, why)) = report.unproven(FuseAttention::NAME) {
                what += &format!("; attention at {at}: {why}");
            }
            return Err(Error::new(ErrorKind::State, what).in_pass(name));
        }
        observe(name, &graph);
    }
    Ok((graph, report))
}
