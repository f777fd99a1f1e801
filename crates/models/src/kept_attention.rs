//! Attention of Gemma 3n and 4: queries, keys and values are normed, scores are divided by nothing, and the last layers attend to keys and
//! values of the last layer of their kind that has its own. Gemma team 2025. In Gemma 4 and EmbeddingGemma 2 layers that see everything have other
//! heads than those with a window.

use crate::Result;
use crate::config::{Config, Dims, MAX_HEAD_DIM, MAX_HEADS, MAX_LAYERS, describe};
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

    /// That of layers which all have keys and values of their own.
    pub(crate) fn of_own(c: &Config<'_>, layers: usize, norm: Norm) -> Result<KeptAttention> {
        Ok(KeptAttention {
            own: layers,
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

/// The heads of layers that see everything: the fields of released configurations, where they are silent `usual` (width and number of keys'
/// heads), or what transformers 5.23 writes of each layer that differs, where all of them have to say the same. `counts` says whether their
/// number may differ.
pub(crate) fn full_heads(
    c: &Config<'_>,
    dims: &Dims,
    windows: &[Option<usize>],
    usual: [usize; 2],
    counts: bool,
) -> Result<Dims> {
    let local = [dims.head_dim, dims.kv_heads];
    let heads = |c: &Config<'_>, names: [&str; 2], usual: [usize; 2]| -> Result<[usize; 2]> {
        let width = c.size_or(names[0], MAX_HEAD_DIM, usual[0])?;
        let count = c.size_or(names[1], MAX_HEADS, usual[1])?;
        Ok([width, if counts { count } else { dims.kv_heads }])
    };
    let [head_dim, kv_heads] = match of_layers(c, windows.len())? {
        None => heads(c, ["global_head_dim", "num_global_key_value_heads"], usual)?,
        Some(layers) => {
            let mut found = None;
            for (layer, (own, window)) in layers.iter().zip(windows).enumerate() {
                let own = match own {
                    Some(own) => heads(own, OWN_HEADS, local)?,
                    None => local,
                };
                let usual = match window {
                    Some(_) => local,
                    None => *found.get_or_insert(own),
                };
                if own != usual {
                    let what = format!("layer {layer} has other heads than the layers of its kind before");
                    return Err(c.unsupported(BY_LAYER, what));
                }
            }
            found.unwrap_or(local)
        }
    };
    if !dims.heads.is_multiple_of(kv_heads) || !head_dim.is_multiple_of(2) {
        let what = format!(
            "expected a divisor of {} heads, each of an even width; found {kv_heads} heads of {head_dim}",
            dims.heads
        );
        return Err(c.invalid("num_global_key_value_heads", what));
    }
    Ok(Dims {
        head_dim,
        kv_heads,
        ..dims.clone()
    })
}

/// What differs from layer to layer, and the fields of a layer that may.
const BY_LAYER: &str = "per_layer_config";
const OWN_HEADS: [&str; 2] = ["head_dim", "num_key_value_heads"];

/// What is said of each layer that differs, where the field is there. Its names are numbers of layers, which may begin with zeros.
fn of_layers<'a>(c: &Config<'a>, layers: usize) -> Result<Option<Vec<Option<Config<'a>>>>> {
    let Some(all) = c.section(BY_LAYER, "per_layer_config.")? else {
        return Ok(None);
    };
    let mut found = vec![None; layers];
    for name in all.fields().keys() {
        let Some(layer) = name.parse().ok().and_then(|layer: usize| found.get_mut(layer)) else {
            let what = format!(
                "expected numbers of layers below {layers}, found {}",
                describe(&name.as_str().into())
            );
            return Err(c.invalid(BY_LAYER, what));
        };
        let own = all.section(name, "per_layer_config.*.")?;
        let differs = own.and_then(|own| {
            own.fields()
                .keys()
                .find(|key| !OWN_HEADS.contains(&key.as_str()) && own.has(key))
        });
        if let (Some(own), Some(field)) = (own, differs) {
            return Err(own.unsupported(field, "must be the same in all layers; only their heads may differ"));
        }
        *layer = own;
    }
    Ok(Some(found))
}
