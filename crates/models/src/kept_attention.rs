//! Attention of Gemma 3n and 4: queries, keys and values are normed, scores are divided by nothing, and the last layers attend to keys and
//! values of the last layer of their kind that has its own. Gemma team 2025.

use crate::Result;
use crate::config::{Config, Dims, MAX_LAYERS};
use crate::layers::{self, Norm, linear};
use crate::rotary::Rotary;
use cactus_ir::{GraphBuilder, ValueId};

/// Keys and values of a layer.
pub(crate) type Kept = [ValueId; 2];

#[derive(Clone, Copy, Debug)]
pub(crate) struct KeptAttention {
    /// Layers from this one on have no keys and values of their own.
    pub(crate) own: usize,
    bias: bool,
    norm: Norm,
}

/// What layers of a kind share.
#[derive(Clone, Copy)]
pub(crate) struct OfKind<'a> {
    pub(crate) dims: &'a Dims,
    pub(crate) rotary: Rotary,
    pub(crate) mask: ValueId,
    /// Whether keys, before they are normed, are the values, too.
    pub(crate) keys_are_values: bool,
}

impl KeptAttention {
    /// That of layers with these windows.
    pub(crate) fn read(c: &Config<'_>, windows: &[Option<usize>], norm: Norm) -> Result<KeptAttention> {
        let shared = c.size_if_set("num_kv_shared_layers", 0..=MAX_LAYERS)?.unwrap_or(0);
        let own = windows.len().saturating_sub(shared);
        let is_known = |layer: usize| windows[..own].contains(&windows[layer]);
        if !(own..windows.len()).all(is_known) {
            let what = format!("{shared} layers need keys and values of an earlier layer of their kind");
            return Err(c.invalid("num_kv_shared_layers", what));
        }
        Ok(KeptAttention {
            own,
            bias: c.flag("attention_bias", false)?,
            norm,
        })
    }

    /// What stands before the names of weights that checkpoints of so many layers may have for keys and values that nothing reads.
    pub(crate) fn idle(&self, layers: usize) -> Vec<String> {
        let of = |layer: usize| ["k_", "v_"].map(|name| format!("model.layers.{layer}.self_attn.{name}"));
        (self.own..layers).flat_map(of).collect()
    }

    /// Attention of `x` `[b, s, hidden]` in layer `layer` with the weights under `at`, to keys and values that it makes and leaves in `kept`, or
    /// finds there.
    pub(crate) fn apply(
        &self,
        b: &mut GraphBuilder,
        x: ValueId,
        layer: usize,
        at: &str,
        kind: OfKind<'_>,
        kept: &mut Option<Kept>,
    ) -> cactus_ir::Result<ValueId> {
        let Dims {
            hidden,
            heads,
            kv_heads,
            head_dim,
            ..
        } = *kind.dims;
        let project = |b: &mut GraphBuilder, name: &str, heads: usize| {
            let y = linear(b, x, &format!("{at}.{name}"), heads * head_dim, hidden, self.bias)?;
            let batch = b.shape(x)[0].clone();
            b.reshape(y, [batch, layers::seq(), heads.into(), head_dim.into()])
        };
        // Normed, as [b, heads, s, d].
        let ready = |b: &mut GraphBuilder, y: ValueId, norm: Option<&str>| {
            let y = match norm {
                Some(name) => self.norm.apply(b, y, &format!("{at}.{name}.weight"), head_dim)?,
                None => self.norm.bare(b, y)?,
            };
            b.permute(y, &[0, 2, 1, 3])
        };
        let q = project(b, "q_proj", heads)?;
        let q = ready(b, q, Some("q_norm"))?;
        let q = kind.rotary.apply(b, q)?;
        let [k, v] = match *kept {
            Some(found) if layer >= self.own => found,
            _ => {
                let k = project(b, "k_proj", kv_heads)?;
                let v = match kind.keys_are_values {
                    true => k,
                    false => project(b, "v_proj", kv_heads)?,
                };
                let k = ready(b, k, Some("k_norm"))?;
                *kept.insert([kind.rotary.apply(b, k)?, ready(b, v, None)?])
            }
        };
        let (k, v) = (layers::repeat_kv(b, k, kind.dims)?, layers::repeat_kv(b, v, kind.dims)?);
        let y = layers::attend(b, [q, k, v], kind.dims, 1.0, kind.mask)?;
        linear(b, y, &format!("{at}.o_proj"), hidden, heads * head_dim, self.bias)
    }
}
