//! The pictures of Gemma 3n: MobileNetV5, convolutions and attention over places, whose last two scales are joined (Qin et al. 2024, timm's
//! `mobilenetv5`). A token is a square of places of the larger scale, whose mean is normed and projected. Gemma team 2025.
//!
//! A call computes one picture, which comes as the squares of its tokens and is put together again. Channels are the last axis but in
//! convolutions, so that those of one pixel are products.

use crate::Result;
use crate::config::{Config, MAX_WIDTH};
use crate::layers::{Norm, linear, matrix};
use crate::mobile_blocks::{self, Block, Kind, divisible};
use crate::picture_encoder::{self, CHANNELS, PATCHES, PICTURE_ENCODER, ROWS};
use crate::picture_tower::{attend_scaled, heads_of};
use crate::registry::ComponentDef;
use cactus_ir::{ConvAttrs, Dim, Graph, GraphBuilder, Op, ReduceFn, UnaryFn, ValueId, WeightExpr};
use cactus_tensor::DType;

/// Pixels of a token's side.
pub(crate) const TOKEN_SIDE: usize = 48;
/// Most tokens of a side.
const MAX_SIDE: usize = 64;
/// Channels of the first convolution, and tokens of a side, where the configuration is silent.
const STEM: usize = 64;
const SIDE: usize = 16;
/// Channels of what the encoder gives, which timm has in no field.
const OUTPUT: usize = 2048;
/// By how much joined scales are widened.
const JOINED_RATIO: f64 = 2.0;
/// Fields of timm's arguments that are known.
const FIELDS: [&str; 3] = ["block_args", "stem_size", "msfa_output_resolution"];
/// Where its weights are.
const AT: &str = "vision_model.timm_model";

/// The encoder.
#[derive(Debug)]
pub(crate) struct MobileEncoder {
    stem: usize,
    stages: Vec<Vec<Block>>,
    /// Tokens of a side.
    pub(crate) side: usize,
    /// Places of a side of the last stages, the first the larger.
    joined: [usize; 2],
    norm: Norm,
    /// Of norms before and behind the projection.
    own_norm: Norm,
    /// Width of a row.
    width: usize,
}

/// What a layer gives: places of a square, row after row, `[1, side * side, channels]`.
#[derive(Clone, Copy)]
struct Places {
    x: ValueId,
    side: usize,
    channels: usize,
}

/// Windows of a convolution.
#[derive(Clone, Copy)]
struct Windows {
    side: usize,
    stride: usize,
    /// Whether each channel is alone.
    apart: bool,
}

impl MobileEncoder {
    /// The encoder of section `vision`, for a decoder of this width.
    pub(crate) fn read(vision: &Config<'_>, width: usize) -> Result<MobileEncoder> {
        let known = "mobilenetv5_300m_enc";
        let found = vision.text("architecture")?.unwrap_or(known);
        if found != known {
            return Err(vision.unsupported("architecture", format!("expected `{known}`")));
        }
        let output = vision.size_or("hidden_size", MAX_WIDTH, OUTPUT)?;
        if output != OUTPUT {
            return Err(vision.unsupported("hidden_size", format!("expected {OUTPUT}, found {output}")));
        }
        let none = serde_json::json!({});
        let args = match vision.section("model_args", "vision_config.model_args.")? {
            Some(args) => args,
            None => Config::new(vision.family(), &none)?,
        };
        if let Some(key) = args.fields().keys().find(|key| !FIELDS.contains(&key.as_str())) {
            return Err(args.unsupported(key, format!("expected no fields but {}", FIELDS.join(", "))));
        }
        let side = args.size_or("msfa_output_resolution", MAX_SIDE, SIDE)?;
        let stages = mobile_blocks::read(&args)?;
        let mut places = (side * TOKEN_SIDE).div_ceil(2);
        let mut of_stages = Vec::new();
        for block in stages.iter().flat_map(|blocks| blocks.iter().map(Some).chain([None])) {
            match block {
                Some(block) => places = places.div_ceil(block.stride),
                None => of_stages.push(places),
            }
        }
        let joined = [of_stages[of_stages.len() - 2], of_stages[of_stages.len() - 1]];
        if !joined[0].is_multiple_of(joined[1]) || !joined[0].is_multiple_of(side) {
            let what = format!(
                "expected two last stages of which the larger has a multiple of the places of a side of the other and of the {side} tokens; found {} and {}",
                joined[0], joined[1]
            );
            return Err(args.unsupported("block_args", what));
        }
        let norm = |eps| Norm { eps, plus_one: false };
        Ok(MobileEncoder {
            stem: divisible(args.size_or("stem_size", MAX_WIDTH, STEM)? as f64),
            stages,
            side,
            joined,
            norm: norm(picture_encoder::EPS as f32),
            own_norm: norm(vision.epsilon("rms_norm_eps", 1e-6)?),
            width,
        })
    }

    pub(crate) fn component(&self) -> Result<ComponentDef> {
        Ok(picture_encoder::component(self.graph()?))
    }

    fn graph(&self) -> cactus_ir::Result<Graph> {
        let mut b = GraphBuilder::new(PICTURE_ENCODER);
        let numbers = CHANNELS * TOKEN_SIDE.pow(2);
        let shape = [self.side.pow(2).into(), 1.into(), numbers.into()];
        let squares = picture_encoder::of_patches(&mut b, PATCHES, DType::F32, shape);
        let x = b.scope("vision_model", |b| {
            let mut x = self.stem(b, squares)?;
            let mut ends = Vec::new();
            for (stage, blocks) in self.stages.iter().enumerate() {
                for (i, block) in blocks.iter().enumerate() {
                    let at = format!("{AT}.blocks.{stage}.{i}");
                    x = b.scope(format!("blocks.{stage}.{i}"), |b| self.block(b, x, *block, &at))?;
                }
                ends.push(x);
            }
            let last = [ends[ends.len() - 2], ends[ends.len() - 1]];
            b.scope("msfa", |b| self.joined(b, last))
        })?;
        let rows = b.scope("embed_vision", |b| {
            let x = b.scale(x, (OUTPUT as f64).sqrt() as f32)?;
            let x = self
                .own_norm
                .apply(b, x, "embed_vision.soft_embedding_norm.weight", OUTPUT)?;
            let x = linear(b, x, "embed_vision.embedding_projection", self.width, OUTPUT, false)?;
            self.own_norm.bare(b, x)
        })?;
        b.output(ROWS, rows);
        b.finish()
    }

    /// The picture of the squares of tokens, `[1, tokens, 1, numbers]`, through the first convolution.
    fn stem(&self, b: &mut GraphBuilder, squares: ValueId) -> cactus_ir::Result<Places> {
        let (n, square, side) = (self.side, TOKEN_SIDE, self.side * TOKEN_SIDE);
        let x = b.reshape(squares, [n, n, CHANNELS, square, square].map(Dim::known))?;
        let x = b.permute(x, &[0, 3, 1, 4, 2])?;
        let x = b.reshape(x, [1, side * side, CHANNELS].map(Dim::known))?;
        let channels = CHANNELS;
        b.scope("conv_stem", |b| {
            let windows = Windows {
                side: 3,
                stride: 2,
                apart: false,
            };
            let at = format!("{AT}.conv_stem");
            let mut x = self.convolved(
                b,
                Places { x, side, channels },
                &format!("{at}.conv"),
                windows,
                self.stem,
            )?;
            let name = format!("{at}.conv.bias");
            // Stored with more axes in GGUF files.
            let flat = WeightExpr::Reshape {
                x: Box::new(WeightExpr::source(&name)),
                shape: vec![self.stem],
            };
            let bias = b.weight_from(&name, &[self.stem], flat);
            x.x = b.add(x.x, bias)?;
            self.normed(b, x, &format!("{at}.bn"), true)
        })
    }

    /// `x` through a convolution to `channels` channels, whose zeros are where those of TensorFlow are.
    fn convolved(
        &self,
        b: &mut GraphBuilder,
        x: Places,
        at: &str,
        windows: Windows,
        channels: usize,
    ) -> cactus_ir::Result<Places> {
        let Windows { side, stride, apart } = windows;
        let end = x.side.div_ceil(stride);
        let zeros = ((end - 1) * stride + side).saturating_sub(x.side);
        let (groups, from) = if apart { (channels, 1) } else { (1, x.channels) };
        let planes = b.reshape(x.x, [1, x.side, x.side, x.channels].map(Dim::known))?;
        let planes = b.permute(planes, &[0, 3, 1, 2])?;
        let filters = b.weight(&format!("{at}.weight"), &[channels, from, side, side]);
        let op = Op::Conv(ConvAttrs {
            groups,
            stride: vec![stride; 2],
            padding: vec![[zeros / 2, zeros - zeros / 2]; 2],
            dilation: vec![1; 2],
        });
        let y = b.op(op, &[planes, filters])?;
        let y = b.permute(y, &[0, 2, 3, 1])?;
        let y = b.reshape(y, [1, end * end, channels].map(Dim::known))?;
        Ok(Places {
            x: y,
            side: end,
            channels,
        })
    }

    /// `x` through a convolution of one pixel.
    fn product(&self, b: &mut GraphBuilder, x: Places, at: &str, channels: usize) -> cactus_ir::Result<Places> {
        let filters = matrix(b, &format!("{at}.weight"), [channels, x.channels]);
        let y = b.linear(x.x, filters, None)?;
        Ok(Places { x: y, channels, ..x })
    }

    /// `x` normed over its channels, and bent where `bends`.
    fn normed(&self, b: &mut GraphBuilder, x: Places, at: &str, bends: bool) -> cactus_ir::Result<Places> {
        let y = self.norm.apply(b, x.x, &format!("{at}.weight"), x.channels)?;
        let y = if bends { b.unary(UnaryFn::GeluTanh, y)? } else { y };
        Ok(Places { x: y, ..x })
    }

    fn block(&self, b: &mut GraphBuilder, x: Places, block: Block, at: &str) -> cactus_ir::Result<Places> {
        let Block { kind, stride, channels } = block;
        let mut y = match kind {
            Kind::Edge { side, ratio } => {
                let wide = divisible(x.channels as f64 * ratio);
                let windows = Windows {
                    side,
                    stride,
                    apart: false,
                };
                let y = self.convolved(b, x, &format!("{at}.conv_exp"), windows, wide)?;
                let y = self.normed(b, y, &format!("{at}.bn1"), true)?;
                let y = self.product(b, y, &format!("{at}.conv_pwl"), channels)?;
                self.normed(b, y, &format!("{at}.bn2"), false)?
            }
            Kind::Inverted { before, between, ratio } => {
                let y = self.inverted(b, x, at, [before, between, stride], (ratio, channels))?;
                scaled(b, y, at)?
            }
            Kind::Attention {
                heads,
                width,
                every,
                side,
            } => {
                let y = self.normed(b, x, &format!("{at}.norm"), false)?;
                let y = b.scope("attn", |b| {
                    let of = format!("{at}.attn");
                    self.attention(b, y, &of, ([heads, width, every, side], channels))
                })?;
                scaled(b, y, at)?
            }
        };
        if stride == 1 && channels == x.channels {
            y.x = b.add(y.x, x.x)?;
        }
        Ok(y)
    }

    fn inverted(
        &self,
        b: &mut GraphBuilder,
        x: Places,
        at: &str,
        [before, between, stride]: [usize; 3],
        (ratio, channels): (f64, usize),
    ) -> cactus_ir::Result<Places> {
        let wide = divisible(x.channels as f64 * ratio);
        let mut y = x;
        if before > 0 {
            let stride = if between > 0 { 1 } else { stride };
            let windows = Windows {
                side: before,
                stride,
                apart: true,
            };
            y = self.convolved(b, y, &format!("{at}.dw_start.conv"), windows, y.channels)?;
            y = self.normed(b, y, &format!("{at}.dw_start.bn"), false)?;
        }
        y = self.product(b, y, &format!("{at}.pw_exp.conv"), wide)?;
        y = self.normed(b, y, &format!("{at}.pw_exp.bn"), true)?;
        if between > 0 {
            let windows = Windows {
                side: between,
                stride,
                apart: true,
            };
            y = self.convolved(b, y, &format!("{at}.dw_mid.conv"), windows, wide)?;
            y = self.normed(b, y, &format!("{at}.dw_mid.bn"), true)?;
        }
        y = self.product(b, y, &format!("{at}.pw_proj.conv"), channels)?;
        self.normed(b, y, &format!("{at}.pw_proj.bn"), false)
    }

    /// What each place finds at all of them, or at one of every few.
    fn attention(
        &self,
        b: &mut GraphBuilder,
        x: Places,
        at: &str,
        ([heads, width, every, side], channels): ([usize; 4], usize),
    ) -> cactus_ir::Result<Places> {
        let wide = heads * width;
        let q = self.product(b, x, &format!("{at}.query.proj"), wide)?;
        let q = heads_of(b, q.x, wide, heads)?;
        let of = |b: &mut GraphBuilder, name: &str| {
            let mut y = x;
            if every > 1 {
                let windows = Windows {
                    side,
                    stride: every,
                    apart: true,
                };
                y = self.convolved(b, y, &format!("{at}.{name}.down_conv"), windows, y.channels)?;
                y = self.normed(b, y, &format!("{at}.{name}.norm"), false)?;
            }
            let y = self.product(b, y, &format!("{at}.{name}.proj"), width)?;
            let places = y.side * y.side;
            let one = heads_of(b, y.x, width, 1)?;
            let one = b.reshape(one, [1, 1, 1, places, width].map(Dim::known))?;
            let all = b.expand(one, [1, 1, heads, places, width].map(Dim::known))?;
            b.reshape(all, [1, heads, places, width].map(Dim::known))
        };
        let (k, v) = (of(b, "key")?, of(b, "value")?);
        let y = attend_scaled(b, [q, k, v], wide, (width as f64).powf(-0.5) as f32)?;
        let y = Places {
            x: y,
            channels: wide,
            ..x
        };
        self.product(b, y, &format!("{at}.output.proj"), channels)
    }

    /// The last two scales in the places of the larger, and their means over the squares of tokens, `[1, tokens, channels]`.
    fn joined(&self, b: &mut GraphBuilder, [large, small]: [Places; 2]) -> cactus_ir::Result<ValueId> {
        let [places, few] = self.joined;
        let times = places / few;
        let x = b.reshape(small.x, [1, few, 1, few, 1, small.channels].map(Dim::known))?;
        let x = b.expand(x, [1, few, times, few, times, small.channels].map(Dim::known))?;
        let x = b.reshape(x, [1, places * places, small.channels].map(Dim::known))?;
        let x = b.concat_last(&[large.x, x])?;
        let channels = large.channels + small.channels;
        let x = Places {
            x,
            side: places,
            channels,
        };
        let at = format!("{AT}.msfa");
        let x = self.inverted(b, x, &format!("{at}.ffn"), [0, 0, 1], (JOINED_RATIO, OUTPUT))?;
        let (side, square) = (self.side, places / self.side);
        let x = b.reshape(x.x, [side, square, side, square, OUTPUT].map(Dim::known))?;
        let (f, axes, keepdim) = (ReduceFn::Mean, vec![1, 3], false);
        let x = b.op(Op::Reduce { f, axes, keepdim }, &[x])?;
        let x = b.reshape(x, [1, side * side, OUTPUT].map(Dim::known))?;
        self.norm.apply(b, x, &format!("{at}.norm.weight"), OUTPUT)
    }
}

/// `x` times a factor of each channel.
fn scaled(b: &mut GraphBuilder, x: Places, at: &str) -> cactus_ir::Result<Places> {
    let factors = b.weight(&format!("{at}.layer_scale.gamma"), &[x.channels]);
    let y = b.mul(x.x, factors)?;
    Ok(Places { x: y, ..x })
}
