//! Parakeet (`model_type` `parakeet_ctc`, `parakeet_rnnt`, `parakeet_tdt`): the encoder is a Fast Conformer, the rest says
//! what is heard at each of its positions.
//!
//! With CTC (Graves et al. 2006) that is one layer. A transducer (Graves 2012) asks a small recurrent network about the text so
//! far as well; with durations (Xu et al. 2023) it says, too, how many positions on the next token is looked for.

use crate::config::{Config, Dims, MAX_LAYERS, MAX_VOCAB};
use crate::decoder::activation;
use crate::fastconformer::{FastConformer, pointwise};
use crate::layers::{self, linear};
use crate::registry::{self, ComponentDef, LocalDef, PositionsDef, TransducerDef};
use crate::{ModelDef, Result, local_attention};
use cactus_ir::{Constraint, Dim, Graph, GraphBuilder, Op, TensorType, UnaryFn, ValueId, WeightExpr};
use cactus_tensor::DType;

/// Output of the encoder and input of the joint, `f32[1, positions, width]` and `f32[rows, width]`.
const STATES: &str = "states";
/// Input of the predictor, `i64[1]`.
const TOKEN: &str = "token";
/// Input and output of the predictor, `f32[2 * layers, 1, width]`: the layers' outputs, then their cells.
const STATE: &str = "state";
const NEXT_STATE: &str = "next_state";
/// Output of the predictor and input of the joint, `f32[1, width]`.
const PREDICTION: &str = "prediction";
/// Symbol of the positions that the joint looks at.
const ROWS: &str = "rows";
/// Most durations, most positions that one spans, most tokens of a position.
const MAX_STEPS: usize = 1 << 10;

pub(crate) fn build_ctc(c: &Config<'_>) -> Result<ModelDef> {
    let encoder = FastConformer::read(c)?;
    let vocab = c.size_or("vocab_size", MAX_VOCAB, 1025)?;
    let blank = blank(c, "pad_token_id", vocab, 1024)?;
    let head = |b: &mut GraphBuilder, x| {
        b.scope("ctc_head", |b| {
            pointwise(b, x, "ctc_head", [vocab, encoder.hidden], true)
        })
    };
    let graph = encoder.graph(registry::ENCODER, layers::OUTPUT, head)?;
    let (local, about) = local_attention::components(c, &encoder, layers::OUTPUT, head)?;
    let components = [vec![function(registry::ENCODER, graph)], local].concat();
    define(c, &encoder, vocab, components, blank, (None, about))
}

pub(crate) fn build_rnnt(c: &Config<'_>) -> Result<ModelDef> {
    transducer(c, Vec::new())
}

pub(crate) fn build_tdt(c: &Config<'_>) -> Result<ModelDef> {
    let durations = c.sizes("durations", 0..=MAX_STEPS)?.unwrap_or((0..5).collect());
    let last = durations.last().copied();
    if !durations.is_sorted_by(|a, b| a < b) || last.is_none_or(|last| last == 0) {
        let what = format!("expected ascending numbers, the last from 1 on; found {durations:?}");
        return Err(c.invalid("durations", what));
    }
    transducer(c, durations)
}

/// What comes behind the encoder of a transducer.
struct Transducer {
    vocab: usize,
    hidden: usize,
    layers: usize,
    activation: UnaryFn,
    durations: usize,
}

fn transducer(c: &Config<'_>, durations: Vec<usize>) -> Result<ModelDef> {
    let encoder = FastConformer::read(c)?;
    let model = Transducer {
        vocab: c.size_or("vocab_size", MAX_VOCAB, 8193)?,
        hidden: c.size_or("decoder_hidden_size", crate::config::MAX_WIDTH, 640)?,
        layers: c.size_or("num_decoder_layers", MAX_LAYERS, 2)?,
        activation: activation(c, "hidden_act", "relu")?,
        durations: durations.len(),
    };
    let blank = blank(c, "blank_token_id", model.vocab, 8192)?;
    let most_symbols = c.size_or("max_symbols_per_step", MAX_STEPS, 10)?;
    let head = |b: &mut GraphBuilder, x| linear(b, x, "encoder_projector", model.hidden, encoder.hidden, true);
    let heard = encoder.graph(registry::ENCODER, STATES, head)?;
    let (local, about) = local_attention::components(c, &encoder, STATES, head)?;
    let own = vec![
        function(registry::ENCODER, heard),
        function(registry::PREDICTOR, model.predictor()?),
        function(registry::JOINT, model.joint()?),
    ];
    let components = [own, local].concat();
    let walk = TransducerDef {
        durations,
        most_symbols,
    };
    define(c, &encoder, model.vocab, components, blank, (Some(walk), about))
}

fn function(name: &'static str, graph: Graph) -> ComponentDef {
    ComponentDef {
        name: name.into(),
        graph,
        continues: false,
    }
}

/// The token that stands for none.
fn blank(c: &Config<'_>, key: &str, vocab: usize, default: usize) -> Result<usize> {
    let blank = c.size_if_set(key, 0..=MAX_VOCAB)?.unwrap_or(default);
    match blank < vocab {
        true => Ok(blank),
        false => Err(c.invalid(key, format_args!("{blank} is beyond `vocab_size`, which is {vocab}"))),
    }
}

fn define(
    c: &Config<'_>,
    encoder: &FastConformer,
    vocab: usize,
    components: Vec<ComponentDef>,
    blank: usize,
    (transducer, local): (Option<TransducerDef>, Option<LocalDef>),
) -> Result<ModelDef> {
    let dims = Dims {
        vocab,
        hidden: encoder.hidden,
        layers: encoder.layers,
        heads: encoder.heads,
        kv_heads: encoder.heads,
        head_dim: encoder.hidden / encoder.heads,
        context: encoder.context,
    };
    let task = match &transducer {
        None => registry::CTC,
        Some(t) if t.durations.is_empty() => registry::RNNT,
        Some(_) => registry::TDT,
    };
    Ok(ModelDef {
        task,
        positions: Some(PositionsDef {
            mels: encoder.mels,
            frames: encoder.position_frames,
            blank,
            transducer,
            local,
        }),
        ..registry::assemble(c, &dims, components, false)?
    })
}

impl Transducer {
    /// What the text so far lets expect: an embedding, layers of long short-term memory, a linear layer.
    fn predictor(&self) -> cactus_ir::Result<Graph> {
        let mut b = GraphBuilder::new(registry::PREDICTOR);
        let (hidden, n, one) = (self.hidden, self.layers, Dim::known(1));
        let token = b.input(TOKEN, TensorType::new(DType::I64, [one.clone()]));
        let states = [Dim::known(2 * n), one, hidden.into()];
        let state = b.input(STATE, TensorType::new(DType::F32, states.clone()));
        let table = b.weight("decoder.embedding.weight", &[self.vocab, hidden]);
        let mut x = b.scope("embedding", |b| b.embedding(table, token))?;
        let (mut outputs, mut cells) = (Vec::new(), Vec::new());
        for layer in 0..n {
            let (h, cell) = b.scope(format!("lstm.{layer}"), |b| self.lstm(b, x, state, layer))?;
            outputs.push(h);
            cells.push(cell);
            x = h;
        }
        outputs.append(&mut cells);
        let next = b.op(Op::Concat { axis: 0 }, &outputs)?;
        let next = b.reshape(next, states)?;
        let prediction = linear(&mut b, x, "decoder.decoder_projector", hidden, hidden, true)?;
        b.output(PREDICTION, prediction);
        b.output(NEXT_STATE, next);
        b.finish()
    }

    /// Output and cell of one layer after `x` `[1, hidden]`, like it (Hochreiter and Schmidhuber 1997). A call has one token, so
    /// what comes from below and what comes from before is one product, whose weight is stored as that of any linear layer.
    fn lstm(
        &self,
        b: &mut GraphBuilder,
        x: ValueId,
        state: ValueId,
        layer: usize,
    ) -> cactus_ir::Result<(ValueId, ValueId)> {
        let hidden = self.hidden;
        let name = |what: &str| format!("decoder.lstm.{what}_l{layer}");
        let source = |what: &str| WeightExpr::source(name(what));
        let bias = WeightExpr::Add {
            x: Box::new(source("bias_ih")),
            y: Box::new(source("bias_hh")),
        };
        let bias = b.weight_from(&name("bias"), &[4 * hidden], bias);
        let w = WeightExpr::Concat {
            axis: 1,
            parts: vec![source("weight_ih"), source("weight_hh")],
        };
        let w = b.weight_from(&name("weight"), &[4 * hidden, 2 * hidden], w);
        let part = |b: &mut GraphBuilder, i: usize| {
            let (start, end) = (Dim::known(i), Dim::known(i + 1));
            let part = b.op(Op::Slice { axis: 0, start, end }, &[state])?;
            b.reshape(part, [Dim::known(1), hidden.into()])
        };
        let (h, cell) = (part(b, layer)?, part(b, self.layers + layer)?);
        let both = b.concat_last(&[x, h])?;
        let gates = b.linear(both, w, Some(bias))?;
        let gate = |b: &mut GraphBuilder, i: usize, f| {
            let gate = b.slice_last(gates, i * hidden, (i + 1) * hidden)?;
            b.unary(f, gate)
        };
        let (input, forget) = (gate(b, 0, UnaryFn::Sigmoid)?, gate(b, 1, UnaryFn::Sigmoid)?);
        let (new, output) = (gate(b, 2, UnaryFn::Tanh)?, gate(b, 3, UnaryFn::Sigmoid)?);
        let (kept, added) = (b.mul(forget, cell)?, b.mul(input, new)?);
        let cell = b.add(kept, added)?;
        let seen = b.unary(UnaryFn::Tanh, cell)?;
        Ok((b.mul(output, seen)?, cell))
    }

    /// Logits of tokens, then of durations, of what is heard at some positions after one text.
    fn joint(&self) -> cactus_ir::Result<Graph> {
        let mut b = GraphBuilder::new(registry::JOINT);
        let (rows, hidden) = (Dim::symbol(ROWS), self.hidden);
        let states = b.input(STATES, TensorType::new(DType::F32, [rows.clone(), hidden.into()]));
        let prediction = b.input(PREDICTION, TensorType::new(DType::F32, [Dim::known(1), hidden.into()]));
        let x = b.add(states, prediction)?;
        let x = b.unary(self.activation, x)?;
        let logits = b.scope("joint", |b| {
            linear(b, x, "joint.head", self.vocab + self.durations, hidden, true)
        })?;
        b.output(layers::OUTPUT, logits);
        let mut graph = b.finish()?;
        graph.set_constraints(vec![Constraint::at_least(rows, 1)]);
        Ok(graph)
    }
}
