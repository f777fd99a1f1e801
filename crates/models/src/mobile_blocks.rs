//! The blocks of MobileNetV5: what the released one has, or a configuration as timm decodes it. Qin et al. 2024 (MobileNetV4); timm's `mobilenetv5`.

use crate::Result;
use crate::config::{Config, MAX_HEAD_DIM, MAX_HEADS, MAX_WIDTH, describe};
use serde_json::Value;

/// Most stages, blocks of a stage, and pixels of a filter's side.
const MAX_STAGES: usize = 4;
const MAX_BLOCKS: usize = 256;
const MAX_SIDE: usize = 31;
/// By how much a block widens at most.
const MAX_RATIO: f64 = 64.0;
/// What numbers of channels are multiples of.
const CHANNELS: usize = 8;

/// One block.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Block {
    pub(crate) kind: Kind,
    /// Pixels from one window to the next: 2 halves the sides.
    pub(crate) stride: usize,
    /// Channels that it gives.
    pub(crate) channels: usize,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Kind {
    /// A convolution that widens, and one of a pixel that narrows.
    Edge { side: usize, ratio: f64 },
    /// Convolutions of each channel alone, where their side is not 0, around the one that widens, and one of a pixel that narrows.
    Inverted { before: usize, between: usize, ratio: f64 },
    /// Attention of so many heads to one key and value of each place, or of one of several, whose filters have this side.
    Attention {
        heads: usize,
        width: usize,
        every: usize,
        side: usize,
    },
}

/// The stages of the released network.
pub(crate) fn released() -> Vec<Vec<Block>> {
    let block = |kind, stride, channels| Block { kind, stride, channels };
    let edge = |stride| block(Kind::Edge { side: 3, ratio: 4.0 }, stride, 128);
    let inverted = |before, between, ratio, stride, channels| {
        let kind = Kind::Inverted { before, between, ratio };
        block(kind, stride, channels)
    };
    let attentive = |times: usize, channels, [heads, width, every]: [usize; 3]| {
        let kind = Kind::Attention {
            heads,
            width,
            every,
            side: 3,
        };
        let pair = [block(kind, 1, channels), inverted(0, 0, 2.0, 1, channels)];
        std::iter::repeat_n(pair, times).flatten()
    };
    let mut all = vec![vec![edge(2), edge(1), edge(1)], vec![inverted(3, 5, 6.0, 2, 256)]];
    all[1].extend([5, 3, 5, 3].map(|side| inverted(side, 0, 4.0, 1, 256)));
    let mut third = vec![inverted(5, 5, 6.0, 2, 640)];
    third.extend([inverted(5, 0, 4.0, 1, 640); 7]);
    third.push(inverted(0, 0, 1.0, 1, 640));
    third.extend(attentive(14, 640, [12, 64, 2]));
    let mut fourth = vec![inverted(5, 5, 6.0, 2, 1280)];
    fourth.extend(attentive(19, 1280, [16, 96, 1]));
    all.extend([third, fourth]);
    all
}

/// The stages of field `block_args`, a list of lists of blocks; those of the released network where it is silent.
pub(crate) fn read(args: &Config<'_>) -> Result<Vec<Vec<Block>>> {
    let key = "block_args";
    let Some(found) = args.get(key) else {
        return Ok(released());
    };
    let lists = found
        .as_array()
        .filter(|stages| (2..=MAX_STAGES).contains(&stages.len()));
    let stages = lists.and_then(|stages| stages.iter().map(Value::as_array).collect::<Option<Vec<_>>>());
    let Some(stages) = stages.filter(|stages| stages.iter().all(|s| (1..=MAX_BLOCKS).contains(&s.len()))) else {
        let what = format!(
            "expected 2 to {MAX_STAGES} lists of up to {MAX_BLOCKS} blocks, found {}",
            describe(found)
        );
        return Err(args.invalid(key, what));
    };
    let block = |value: &Value| of(args, value);
    let stages: Vec<Vec<Block>> = stages
        .into_iter()
        .map(|blocks| blocks.iter().map(block).collect())
        .collect::<Result<_>>()?;
    let halves = |(i, block): (usize, &Block)| (block.stride == 2) == (i == 0);
    match stages.iter().all(|blocks| blocks.iter().enumerate().all(halves)) {
        true => Ok(stages),
        false => Err(args.unsupported(
            key,
            "expected the first block of each stage to halve sides, and no other",
        )),
    }
}

fn of(args: &Config<'_>, value: &Value) -> Result<Block> {
    let Value::Object(_) = value else {
        let what = format!("expected blocks that are objects, found {}", describe(value));
        return Err(args.invalid("block_args", what));
    };
    let c = Config::new(args.family(), value)?.under("vision_config.model_args.block_args.");
    for (key, usual) in [
        ("act_layer", Value::Null),
        ("se_ratio", 0.0.into()),
        ("noskip", false.into()),
        ("force_in_chs", 0.into()),
        ("pw_kernel_size", 1.into()),
        ("dw_kernel_size_end", 0.into()),
        ("num_experts", 0.into()),
    ] {
        let same = |found: &Value| *found == usual || found.as_f64().is_some() && found.as_f64() == usual.as_f64();
        if c.get(key).is_some_and(|found| !same(found)) {
            return Err(c.unsupported(key, format!("expected {usual}")));
        }
    }
    let side = |key: &str| c.size_if_set(key, 0..=MAX_SIDE);
    let odd = |key: &str, usual: usize| -> Result<usize> {
        let found = side(key)?.unwrap_or(usual);
        match found == 0 || !found.is_multiple_of(2) {
            true => Ok(found),
            false => Err(c.unsupported(key, format!("expected an odd side, found {found}"))),
        }
    };
    let ratio = || Ok::<_, crate::Error>(c.number_if_set("exp_ratio", 1e-3..=MAX_RATIO)?.unwrap_or(1.0));
    let kind = match c.text("block_type")? {
        Some("er") => Kind::Edge {
            side: odd("exp_kernel_size", 3)?.max(1),
            ratio: ratio()?,
        },
        Some("uir") => Kind::Inverted {
            before: odd("dw_kernel_size_start", 0)?,
            between: odd("dw_kernel_size_mid", 0)?,
            ratio: ratio()?,
        },
        Some("mqa") => {
            let width = c.size("key_dim", 1..=MAX_HEAD_DIM)?;
            if c.size_or("value_dim", MAX_HEAD_DIM, width)? != width {
                return Err(c.unsupported("value_dim", format!("expected the same as `key_dim`, {width}")));
            }
            Kind::Attention {
                heads: c.size("num_heads", 1..=MAX_HEADS)?,
                width,
                every: c.size_or("kv_stride", 2, 1)?,
                side: odd("dw_kernel_size", 3)?.max(1),
            }
        }
        other => {
            let found = other.map_or_else(|| "none".to_owned(), |other| describe(&other.into()));
            return Err(c.unsupported("block_type", format!("expected `er`, `uir` or `mqa`, found {found}")));
        }
    };
    let block = Block {
        kind,
        stride: c.size_or("stride", 2, 1)?,
        channels: divisible(c.size("out_chs", 1..=MAX_WIDTH)? as f64),
    };
    let strides = match kind {
        Kind::Edge { .. } => true,
        Kind::Inverted { before, between, .. } => before + between > 0,
        Kind::Attention { .. } => false,
    };
    match block.stride == 1 || strides {
        true => Ok(block),
        false => Err(c.unsupported(
            "stride",
            "expected 1, as the block has no convolution that could halve sides",
        )),
    }
}

/// The multiple of 8 near so many channels, which is not less by more than a tenth.
pub(crate) fn divisible(channels: f64) -> usize {
    let near = ((channels + CHANNELS as f64 / 2.0) as usize / CHANNELS * CHANNELS).max(CHANNELS);
    match (near as f64) < 0.9 * channels {
        true => near + CHANNELS,
        false => near,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn released_network_has_the_blocks_of_timm() {
        let all = released();
        assert_eq!(all.iter().map(Vec::len).collect::<Vec<_>>(), [3, 5, 37, 39]);
        let attentive = |blocks: &Vec<Block>| {
            let those = blocks.iter().filter(|b| matches!(b.kind, Kind::Attention { .. }));
            those.count()
        };
        assert_eq!(all.iter().map(attentive).collect::<Vec<_>>(), [0, 0, 14, 19]);
        assert!(all.iter().all(|blocks| blocks[0].stride == 2));
        for (channels, near) in [(8.0, 8), (1.0, 8), (12.0, 16), (18.0, 24), (3840.0, 3840)] {
            assert_eq!(divisible(channels), near);
        }
    }
}
