//! Gemma 4 without encoders (`model_type` `gemma4_unified`: 12B): a token of a picture is a square of its pixels, normed, projected and moved by
//! where it is, and one of a sound is a stretch of its samples, normed and projected. The rows of a picture see each other in layers with a
//! window, and those of a sound see what is before them. Gemma team 2026.

use crate::config::{Config, MAX_WIDTH};
use crate::gemma4::{FILMS, MARKS, SOUND_MARKS};
use crate::gemma4_text::{Gemma4, Usual};
use crate::layers::{Norm, layer_norm, layer_norm_of, linear};
use crate::picture_encoder::{self, CELLS, CHANNELS, PATCHES, PICTURE_ENCODER, ROWS, TOKENS};
use crate::registry::{ComponentDef, HeardDef, HearsDef, SeesDef, ViewsDef};
use crate::sound_encoder::{BLOCKS, FEATURES, SOUND_ENCODER};
use crate::{ModelDef, Result, seeing};
use cactus_ir::{BinaryFn, Constraint, Dim, Graph, GraphBuilder, TensorType, ValueId, WeightExpr};
use cactus_tensor::DType;

/// What the text model has where its configuration is silent.
const USUAL: Usual = Usual {
    window: 1024,
    both_ways: true,
    inputs: 0,
};
/// Of the norms of pictures, as torch has it: no field is for it.
const EPS: f32 = 1e-5;
/// Most columns or rows of a picture.
const MAX_SIDE: usize = 1 << 16;
/// Most samples of a row.
const MAX_SAMPLES: usize = 1 << 14;

pub(crate) fn build(c: &Config<'_>) -> Result<ModelDef> {
    let [text, vision] = seeing::sections(c, "gemma4_unified_text")?;
    let mut decoder = Gemma4::read(&text, USUAL)?;
    decoder.media = true;
    decoder.tied = seeing::tied(c, &text, true)?;
    let pictures = Pictures::read(&vision, decoder.dims.hidden)?;
    let sees = SeesDef {
        component: PICTURE_ENCODER,
        patch: pictures.patch,
        merge: pictures.merge,
        table: pictures.sides * pictures.merge,
        views: ViewsDef::Budget,
        places: None,
        channels_last: true,
        copies: 1,
        marks: MARKS,
        films: Some(FILMS),
    };
    let width = decoder.dims.hidden;
    let model = seeing::beside(
        c,
        decoder.generator(&text)?,
        picture_encoder::component(pictures.graph()?),
        sees,
    )?;
    match c.section("audio_config", "audio_config.")? {
        Some(audio) => with_sounds(model, &audio, width),
        None => Ok(model),
    }
}

pub(crate) fn build_text(c: &Config<'_>) -> Result<ModelDef> {
    Gemma4::read(c, USUAL)?.generator(c)
}

/// What a square of pixels becomes a row by.
#[derive(Debug)]
struct Pictures {
    hidden: usize,
    patch: usize,
    /// Patches of a square's side.
    merge: usize,
    /// Columns and rows of squares that have a position.
    sides: usize,
    norm: Norm,
    /// Width of a row.
    width: usize,
}

impl Pictures {
    fn read(vision: &Config<'_>, width: usize) -> Result<Pictures> {
        Ok(Pictures {
            hidden: vision.size_or("mm_embed_dim", MAX_WIDTH, 3840)?,
            patch: picture_encoder::side_of_patch(vision, 16)?,
            merge: picture_encoder::merge(vision, "pooling_kernel_size", 3)?,
            sides: vision.size_or("mm_posemb_size", MAX_SIDE, 1120)?,
            norm: bare(vision)?,
            width,
        })
    }

    fn graph(&self) -> cactus_ir::Result<Graph> {
        let mut b = GraphBuilder::new(PICTURE_ENCODER);
        let (tokens, joined) = (Dim::symbol(TOKENS), self.merge.pow(2));
        let (n, numbers) = (self.hidden, CHANNELS * self.patch.pow(2));
        let mut input = |name: &str, dtype, width: usize| {
            picture_encoder::of_patches(&mut b, name, dtype, [tokens.clone(), joined.into(), width.into()])
        };
        let pixels = input(PATCHES, DType::F32, numbers);
        let cells = input(CELLS, DType::I64, 2);
        let square = joined * numbers;
        let x = b.reshape(pixels, [1.into(), tokens.clone(), square.into()])?;
        let x = b.scope("vision_embedder", |b| {
            let at = |name: &str| format!("vision_embedder.{name}");
            let of = |name: &str| self.by_patches(&at(&format!("patch_ln1.{name}")), &[]);
            let [weight, bias] = ["weight", "bias"].map(|name| {
                let (name, expr) = (at(&format!("patch_ln1.{name}")), of(name));
                Some(b.weight_from(&name, &[square], expr))
            });
            let x = layer_norm_of(b, x, "patch_ln1", [weight, bias], EPS)?;
            let name = at("patch_dense.weight");
            let matrix = b.weight_from(&name, &[n, square], self.by_patches(&name, &[n]));
            let bias = b.weight(&at("patch_dense.bias"), &[n]);
            let x = b.linear(x, matrix, Some(bias))?;
            let x = layer_norm(b, x, &at("patch_ln2"), n, EPS, true)?;
            let positions = self.positions(b, cells, &tokens)?;
            let x = b.add(x, positions)?;
            layer_norm(b, x, &at("pos_norm"), n, EPS, true)
        })?;
        let rows = projected(&mut b, x, self.norm, "embed_vision", [self.width, n])?;
        b.output(ROWS, rows);
        b.finish()
    }

    /// What is stored by the rows of a square `[…, rows, columns, colors]`, by its patches, as they come.
    fn by_patches(&self, name: &str, before: &[usize]) -> WeightExpr {
        let (merge, patch) = (self.merge, self.patch);
        let reshape = |x, shape| WeightExpr::Reshape { x: Box::new(x), shape };
        let parted = [before, &[merge, patch, merge, patch, CHANNELS]].concat();
        let first = before.len();
        let perm = (0..first).chain([0, 2, 1, 3, 4].map(|axis| first + axis)).collect();
        let sorted = WeightExpr::Permute {
            x: Box::new(reshape(WeightExpr::source(name), parted)),
            perm,
        };
        reshape(sorted, [before, &[(merge * patch).pow(2) * CHANNELS]].concat())
    }

    /// Where each square is, `[1, tokens, hidden]`: the sum of what tables have for its column and its row.
    fn positions(&self, b: &mut GraphBuilder, cells: ValueId, tokens: &Dim) -> cactus_ir::Result<ValueId> {
        let name = "vision_embedder.pos_embedding";
        let shape = vec![self.sides * 2, self.hidden];
        // A column and a row in turn.
        let both = WeightExpr::Reshape {
            x: Box::new(WeightExpr::source(name)),
            shape: shape.clone(),
        };
        let table = b.weight_from(name, &shape, both);
        // The first patch says where the square is.
        let joined = self.merge.pow(2);
        let cells = b.reshape(cells, [1.into(), tokens.clone(), (2 * joined).into()])?;
        let of = |b: &mut GraphBuilder, axis: usize, kind: usize| {
            let at = b.slice_last(cells, axis, axis + 1)?;
            let at = b.reshape(at, [1.into(), tokens.clone()])?;
            let merge = b.scalar_i64(self.merge as i64)?;
            let at = b.binary(BinaryFn::FloorDiv, at, merge)?;
            let two = b.scalar_i64(2)?;
            let at = b.mul(at, two)?;
            let kind = b.scalar_i64(kind as i64)?;
            let at = b.add(at, kind)?;
            b.embedding(table, at)
        };
        let (columns, rows) = (of(b, 1, 0)?, of(b, 0, 1)?);
        b.add(columns, rows)
    }
}

/// `model` with what it hears by.
fn with_sounds(model: ModelDef, audio: &Config<'_>, width: usize) -> Result<ModelDef> {
    let samples = audio.size_or("audio_embed_dim", MAX_SAMPLES, 640)?;
    let norm = bare(audio)?;
    let graph = || -> cactus_ir::Result<Graph> {
        let mut b = GraphBuilder::new(SOUND_ENCODER);
        let blocks = Dim::symbol(BLOCKS);
        let shape = [blocks.clone(), 1.into(), samples.into()];
        let features = b.input(FEATURES, TensorType::new(DType::F32, shape));
        let x = b.reshape(features, [1.into(), blocks.clone(), samples.into()])?;
        let rows = projected(&mut b, x, norm, "embed_audio", [width, samples])?;
        b.output(ROWS, rows);
        let mut graph = b.finish()?;
        graph.set_constraints(vec![Constraint::at_least(blocks, 1)]);
        Ok(graph)
    };
    let encoder = ComponentDef {
        name: SOUND_ENCODER.into(),
        graph: graph()?,
        continues: false,
    };
    Ok(HearsDef {
        component: SOUND_ENCODER,
        heard: HeardDef::Samples(samples),
        block_frames: 1,
        row_frames: 1,
        all_rows: None,
        marks: SOUND_MARKS,
    }
    .beside(model, encoder))
}

fn bare(section: &Config<'_>) -> Result<Norm> {
    Ok(Norm {
        eps: section.epsilon("rms_norm_eps", 1e-6)?,
        plus_one: false,
    })
}

/// What stands among embeddings, `[1, rows, width]`.
fn projected(
    b: &mut GraphBuilder,
    x: ValueId,
    norm: Norm,
    name: &str,
    [width, from]: [usize; 2],
) -> cactus_ir::Result<ValueId> {
    b.scope(name, |b| {
        let x = norm.bare(b, x)?;
        linear(b, x, &format!("{name}.embedding_projection"), width, from, false)
    })
}
