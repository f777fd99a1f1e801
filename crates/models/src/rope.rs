//! Rotary position embedding: from configuration to inverse frequencies.
//!
//! Rope is Su et al. 2021 ("RoFormer"); its context extensions follow `modeling_rope_utils.py` of Hugging Face
//! transformers, which is what checkpoints are trained and published against.

use crate::Result;
use crate::config::{Config, MAX_CONTEXT, describe};
use std::f64::consts::PI;

/// Frequencies of one rotary embedding.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Rope {
    /// Angle per position of each pair, `[head_dim / 2]`.
    pub(crate) inv_freq: Vec<f32>,
    /// Factor on cosine and sine (YaRN), usually 1.
    pub(crate) scale: f32,
}

/// Kinds of layers in `rope_parameters` (transformers 5), and what errors call them.
pub(crate) const FULL: (&str, &str) = ("full_attention", "rope_parameters.full_attention.");
pub(crate) const SLIDING: (&str, &str) = ("sliding_attention", "rope_parameters.sliding_attention.");

/// Everything a configuration can say about scaling, by `rope_type`.
const SUPPORTED: &str = "`default`, `linear`, `dynamic`, `llama3`, `yarn`, `proportional` and `freq_factors`";

impl Rope {
    /// Reads the rope of a model that has one: `rope_parameters` (transformers 5), else `rope_theta` and `rope_scaling`.
    pub(crate) fn read(c: &Config<'_>, head_dim: usize, default_theta: f64) -> Result<Rope> {
        match c.section("rope_parameters", "rope_parameters.")? {
            Some(p) => {
                let theta = theta(&p, "rope_theta")?
                    .or(theta(c, "rope_theta")?)
                    .unwrap_or(default_theta);
                Rope::scaled(c, Some(&p), head_dim, theta)
            }
            None => {
                let theta = theta(c, "rope_theta")?.unwrap_or(default_theta);
                Rope::scaled(c, c.section("rope_scaling", "rope_scaling.")?.as_ref(), head_dim, theta)
            }
        }
    }

    /// Reads the rope of a model that turns the first elements of each head alone, by default this share of them.
    pub(crate) fn of_part(c: &Config<'_>, head_dim: usize, default_theta: f64, default_share: f64) -> Result<Rope> {
        let Part { section, width, theta } = Part::read(c, head_dim, default_theta, default_share)?;
        if let Some(p) = section {
            let (key, kind) = rope_type(&p)?;
            if kind != "default" {
                let what = format!("{} is not supported; expected `default`", describe(&kind.into()));
                return Err(p.unsupported(key, what));
            }
        }
        Rope::scaled_part(None, c, width, theta)
    }

    /// The same with the scalings of [`Rope::read`].
    pub(crate) fn read_part(c: &Config<'_>, head_dim: usize, default_theta: f64, default_share: f64) -> Result<Rope> {
        let Part { section, width, theta } = Part::read(c, head_dim, default_theta, default_share)?;
        Rope::scaled_part(section.as_ref(), c, width, theta)
    }

    /// The rope of a model with `LongRoPE` (Ding et al. 2024), which has factors for short texts and others for long ones, and the
    /// longest text that is short; `None` where the rope is another. The factors are those for short texts: which ones hold for a
    /// position depends on how long its text becomes, and keys are turned before that is known.
    pub(crate) fn long(c: &Config<'_>, head_dim: usize, default_theta: f64) -> Result<Option<(Rope, usize)>> {
        let Part { section, width, theta } = Part::read(c, head_dim, default_theta, 1.0)?;
        let Some(p) = section else { return Ok(None) };
        if !["longrope", "su"].contains(&rope_type(&p)?.1) {
            return Ok(None);
        }
        let pairs = width / 2;
        let lists = ["short_factor", "long_factor"].map(|key| {
            let found = p.numbers(key, 1e-6..=1e6)?.unwrap_or_default();
            if found.len() != pairs {
                let what = format!("expected {pairs} numbers, one for each pair, found {}", found.len());
                return Err(p.invalid(key, what));
            }
            Ok(found)
        });
        let [short, long] = lists;
        let (short, _) = (short?, long?);
        let key = "original_max_position_embeddings";
        let whole = c.size("max_position_embeddings", 1..=MAX_CONTEXT)?;
        let most = match c.size_if_set(key, 2..=MAX_CONTEXT)? {
            Some(n) => n,
            None => p.size_if_set(key, 2..=MAX_CONTEXT)?.unwrap_or(whole),
        };
        let factor = match p.number_if_set("factor", 1e-3..=1e6)? {
            Some(factor) => factor,
            None => whole as f64 / most as f64,
        };
        let scale = match p.number_if_set("attention_factor", 1e-6..=1e6)? {
            Some(scale) => scale,
            None if factor <= 1.0 => 1.0,
            None => (1.0 + factor.ln() / (most as f64).ln()).sqrt(),
        };
        let inv = short.iter().enumerate();
        let inv = inv.map(|(i, by)| (theta.powf(-((2 * i) as f64) / width as f64) / by) as f32);
        let rope = Rope {
            inv_freq: inv.collect(),
            scale: scale as f32,
        };
        Ok(Some((rope, most)))
    }

    /// The rope of a kind of layers, which its section of `kinds` describes.
    pub(crate) fn of_kind(
        c: &Config<'_>,
        kinds: &Config<'_>,
        (kind, at): (&str, &'static str),
        head_dim: usize,
        default_theta: f64,
    ) -> Result<Rope> {
        let p = kinds.section(kind, at)?;
        let theta = match &p {
            Some(p) => theta(p, "rope_theta")?.unwrap_or(default_theta),
            None => default_theta,
        };
        Rope::scaled(c, p.as_ref(), head_dim, theta)
    }

    /// Frequencies of base `theta` under the scaling described by `p`.
    pub(crate) fn scaled(c: &Config<'_>, p: Option<&Config<'_>>, head_dim: usize, theta: f64) -> Result<Rope> {
        let partial = match p {
            Some(p) => p.number_if_set("partial_rotary_factor", 0.0..=1.0)?,
            None => None,
        };
        if let Some(p) = p
            && rope_type(p)?.1 == "proportional"
        {
            let factor = p.number_if_set("factor", 1e-3..=1e6)?.unwrap_or(1.0);
            let mut rope = Rope::proportional(head_dim, theta, partial.unwrap_or(1.0));
            rope.inv_freq
                .iter_mut()
                .for_each(|f| *f = (f64::from(*f) / factor) as f32);
            return Ok(rope);
        }
        if partial
            .or(c.number_if_set("partial_rotary_factor", 0.0..=1.0)?)
            .is_some_and(|f| f != 1.0)
        {
            return Err(c.unsupported(
                "partial_rotary_factor",
                "rotating only a part of each head is not supported",
            ));
        }
        Rope::scaled_part(p, c, head_dim, theta)
    }

    /// The rope of Gemma 4: frequencies as if the whole head turned, of which all but the first share are 0.
    pub(crate) fn proportional(head_dim: usize, theta: f64, share: f64) -> Rope {
        let (pairs, turning) = (head_dim / 2, (share * head_dim as f64 / 2.0) as usize);
        let frequency = |i: usize| match i < turning {
            true => theta.powf(-((2 * i) as f64) / head_dim as f64) as f32,
            false => 0.0,
        };
        Rope {
            inv_freq: (0..pairs).map(frequency).collect(),
            scale: 1.0,
        }
    }

    /// The same of heads of which `width` elements are turned.
    fn scaled_part(p: Option<&Config<'_>>, c: &Config<'_>, width: usize, theta: f64) -> Result<Rope> {
        let pairs = width / 2;
        let inv: Vec<f64> = (0..pairs)
            .map(|i| theta.powf(-((2 * i) as f64) / width as f64))
            .collect();
        let plain = |inv: Vec<f64>| Rope {
            inv_freq: inv.into_iter().map(|f| f as f32).collect(),
            scale: 1.0,
        };
        let Some(p) = p else { return Ok(plain(inv)) };
        let (key, kind) = rope_type(p)?;
        match kind {
            // Dynamic NTK scaling changes nothing within `max_position_embeddings`, which is our context.
            "default" | "dynamic" => Ok(plain(inv)),
            "linear" => {
                let factor = factor(p)?;
                Ok(plain(inv.into_iter().map(|f| f / factor).collect()))
            }
            // The divisors, where they are given, are what the parameters of `llama3` were turned into.
            "llama3" if !p.has("freq_factors") => llama3(p, inv).map(plain),
            "llama3" | "freq_factors" => {
                let factors = p.numbers("freq_factors", 1e-6..=1e6)?.unwrap_or_default();
                if factors.len() != pairs {
                    let what = format!("expected {pairs} numbers, one for each pair, found {}", factors.len());
                    return Err(p.invalid("freq_factors", what));
                }
                Ok(plain(inv.iter().zip(factors).map(|(f, by)| f / by).collect()))
            }
            "yarn" => yarn(c, p, inv, width, theta),
            other => {
                let what = format!(
                    "{} is not supported; supported are {SUPPORTED}",
                    describe(&other.into())
                );
                Err(p.unsupported(key, what))
            }
        }
    }
}

/// What a configuration says of a rope that may turn a part of each head.
struct Part<'a> {
    /// The section with the scaling.
    section: Option<Config<'a>>,
    /// Elements of a head that are turned.
    width: usize,
    theta: f64,
}

impl<'a> Part<'a> {
    fn read(c: &Config<'a>, head_dim: usize, default_theta: f64, default_share: f64) -> Result<Part<'a>> {
        let section = match c.section("rope_parameters", "rope_parameters.")? {
            Some(p) => Some(p),
            None => c.section("rope_scaling", "rope_scaling.")?,
        };
        let key = "partial_rotary_factor";
        let (mut base, mut share) = (theta(c, "rope_theta")?, c.number_if_set(key, 0.0..=1.0)?);
        if let Some(p) = &section {
            base = theta(p, "rope_theta")?.or(base);
            share = p.number_if_set(key, 0.0..=1.0)?.or(share);
        }
        let width = (head_dim as f64 * share.unwrap_or(default_share)) as usize;
        if width < 2 || !width.is_multiple_of(2) {
            let what = format!("expected an even number of the {head_dim} elements of a head, found {width}");
            return Err(c.unsupported(key, what));
        }
        Ok(Part {
            section,
            width,
            theta: base.unwrap_or(default_theta),
        })
    }
}

/// The kind of scaling, and the field that names it: files written before the rename say `type`.
fn rope_type<'a>(p: &Config<'a>) -> Result<(&'static str, &'a str)> {
    let key = if p.has("rope_type") { "rope_type" } else { "type" };
    Ok((key, p.text(key)?.unwrap_or("default")))
}

pub(crate) fn theta(c: &Config<'_>, key: &str) -> Result<Option<f64>> {
    c.number_if_set(key, 1.0..=1e12)
}

fn factor(p: &Config<'_>) -> Result<f64> {
    p.number("factor", 1e-3..=1e6)
}

/// Llama 3.1: long wavelengths are stretched by `factor`, short ones kept, those between blended.
fn llama3(p: &Config<'_>, inv: Vec<f64>) -> Result<Vec<f64>> {
    let factor = factor(p)?;
    let low = p.number("low_freq_factor", 1e-3..=1e6)?;
    let high = p.number("high_freq_factor", 1e-3..=1e6)?;
    if high <= low {
        return Err(p.invalid(
            "high_freq_factor",
            format_args!("expected more than `low_freq_factor`, found {high}"),
        ));
    }
    let context = p.size("original_max_position_embeddings", 1..=MAX_CONTEXT)? as f64;
    Ok(inv
        .into_iter()
        .map(|f| {
            let turns = context * f / (2.0 * PI);
            if turns < low {
                f / factor
            } else if turns > high {
                f
            } else {
                let keep = (turns - low) / (high - low);
                (1.0 - keep) * f / factor + keep * f
            }
        })
        .collect())
}

/// YaRN, Peng et al. 2023: pairs that turn often within the original context keep their frequency, pairs that do not
/// are stretched by `factor`, with a linear ramp between; cosine and sine grow by the attention factor.
fn yarn(c: &Config<'_>, p: &Config<'_>, inv: Vec<f64>, head_dim: usize, theta: f64) -> Result<Rope> {
    let positive = 1e-6..=1e6;
    let context = match p.size_if_set("original_max_position_embeddings", 1..=MAX_CONTEXT)? {
        Some(n) => n,
        None => c.size("max_position_embeddings", 1..=MAX_CONTEXT)?,
    } as f64;
    let factor = factor(p)?;
    let mscale = |m: f64| {
        if factor <= 1.0 {
            1.0
        } else {
            0.1 * m * factor.ln() + 1.0
        }
    };
    let scale = match p.number_if_set("attention_factor", positive.clone())? {
        Some(f) => f,
        None => match (
            p.number_if_set("mscale", 0.0..=1e6)?,
            p.number_if_set("mscale_all_dim", 0.0..=1e6)?,
        ) {
            (Some(m), Some(all)) if m != 0.0 && all != 0.0 => mscale(m) / mscale(all),
            _ => mscale(1.0),
        },
    };
    let beta_fast = p.number_if_set("beta_fast", positive.clone())?.unwrap_or(32.0);
    let beta_slow = p.number_if_set("beta_slow", positive)?.unwrap_or(1.0);
    if theta <= 1.0 {
        return Err(c.invalid("rope_theta", "yarn needs a base above 1"));
    }
    // The pair that turns `rotations` times within the original context.
    let pair = |rotations: f64| head_dim as f64 * (context / (rotations * 2.0 * PI)).ln() / (2.0 * theta.ln());
    let (mut low, mut high) = (pair(beta_fast), pair(beta_slow));
    if p.flag("truncate", true)? {
        (low, high) = (low.floor(), high.ceil());
    }
    let (low, mut high) = (low.max(0.0), high.min(head_dim as f64 - 1.0));
    if low == high {
        high += 0.001;
    }
    let inv_freq = inv.into_iter().enumerate().map(|(i, f)| {
        let stretched = ((i as f64 - low) / (high - low)).clamp(0.0, 1.0);
        (f / factor * stretched + f * (1.0 - stretched)) as f32
    });
    Ok(Rope {
        inv_freq: inv_freq.collect(),
        scale: scale as f32,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;
    use serde_json::{Value, json};

    fn read(config: Value, head_dim: usize) -> Result<Rope> {
        Rope::read(&Config::new("test", &config)?, head_dim, 10_000.0)
    }

    /// Expected values are those of transformers 5.23 (computed in F32).
    #[test]
    fn rope_frequencies_match_the_reference() {
        let plain: &[f32] = &[
            1.0,
            0.316_227_76,
            0.1,
            0.031_622_78,
            0.01,
            0.003_162_278,
            0.001,
            0.000_316_227_8,
        ];
        let cases: &[(Value, &[f32], f32)] = &[
            (json!({}), plain, 1.0),
            (json!({"rope_scaling": null, "rope_theta": 10000}), plain, 1.0),
            (
                json!({"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}, "rope_theta": 3.0}),
                plain,
                1.0,
            ),
            (
                json!({"rope_scaling": {"rope_type": "dynamic", "factor": 4.0}}),
                plain,
                1.0,
            ),
            (
                json!({"rope_scaling": {"type": "linear", "factor": 4}}),
                &[
                    0.25,
                    0.079_056_94,
                    0.025,
                    0.007_905_695,
                    0.0025,
                    0.000_790_569_5,
                    0.000_25,
                    7.905_695e-5,
                ],
                1.0,
            ),
            (
                json!({"rope_scaling": {"rope_type": "freq_factors", "freq_factors": [1, 1, 1, 1, 2, 2, 4, 4]}}),
                &[
                    1.0,
                    0.316_227_76,
                    0.1,
                    0.031_622_78,
                    0.005,
                    0.001_581_139,
                    0.000_25,
                    7.905_695e-5,
                ],
                1.0,
            ),
            (
                json!({"rope_scaling": {"rope_type": "llama3", "factor": 8.0, "freq_factors": [1, 1, 1, 1, 1, 1, 1, 2]}}),
                &[
                    1.0,
                    0.316_227_76,
                    0.1,
                    0.031_622_78,
                    0.01,
                    0.003_162_278,
                    0.001,
                    0.000_158_113_9,
                ],
                1.0,
            ),
            (
                json!({"rope_theta": 500000.0, "rope_scaling": {"rope_type": "llama3", "factor": 8.0,
                    "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 128}}),
                &[
                    1.0,
                    0.191_126_5,
                    4.700_754e-3,
                    9.115_831_3e-4,
                    1.767_766_8e-4,
                    3.428_102_4e-5,
                    6.647_87e-6,
                    1.289_173_2e-6,
                ],
                1.0,
            ),
            (
                json!({"rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}}),
                &[
                    1.0,
                    0.237_170_82,
                    0.05,
                    7.905_695e-3,
                    2.5e-3,
                    7.905_695e-4,
                    2.5e-4,
                    7.905_695e-5,
                ],
                1.138_629_4,
            ),
            (
                json!({"rope_theta": 1e6, "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "truncate": false,
                    "mscale": 0.7, "mscale_all_dim": 0.9, "original_max_position_embeddings": 32768}}),
                &[
                    1.0,
                    0.177_827_94,
                    0.031_622_78,
                    5.517_270_4e-3,
                    6.074_08e-4,
                    4.445_698_5e-5,
                    7.905_694e-6,
                    1.405_853_4e-6,
                ],
                0.975_349_65,
            ),
        ];
        for (config, want, scale) in cases {
            let got = read(config.clone(), 16).unwrap();
            assert_eq!(got.inv_freq.len(), 8);
            for (g, w) in got.inv_freq.iter().zip(*want) {
                assert!((g - w).abs() <= 2e-6 * w.abs(), "{config}: {g} is not {w}");
            }
            assert!((got.scale - scale).abs() < 1e-6, "{config}: scale {}", got.scale);
        }
    }

    #[test]
    fn rope_with_bad_parameters_names_the_field() {
        let cases = [
            (json!({"rope_theta": "big"}), ErrorKind::Invalid, "`rope_theta`"),
            (json!({"rope_theta": 0}), ErrorKind::Invalid, "`rope_theta`"),
            (json!({"rope_scaling": [1]}), ErrorKind::Invalid, "`rope_scaling`"),
            (
                json!({"rope_scaling": {"type": 1}}),
                ErrorKind::Invalid,
                "`rope_scaling.type`",
            ),
            (json!({"rope_scaling": {"type": "su"}}), ErrorKind::Unsupported, "`su`"),
            (
                json!({"rope_parameters": {"rope_type": "longrope"}}),
                ErrorKind::Unsupported,
                "`rope_parameters.rope_type`",
            ),
            (
                json!({"rope_scaling": {"type": "linear"}}),
                ErrorKind::Missing,
                "`rope_scaling.factor`",
            ),
            (
                json!({"rope_scaling": {"type": "linear", "factor": 0}}),
                ErrorKind::Invalid,
                "`rope_scaling.factor`",
            ),
            (
                json!({"rope_scaling": {"type": "freq_factors", "freq_factors": [1, 2]}}),
                ErrorKind::Invalid,
                "expected 8 numbers",
            ),
            (
                json!({"rope_scaling": {"type": "freq_factors", "freq_factors": vec![0; 8]}}),
                ErrorKind::Invalid,
                "a list, each a number",
            ),
            (
                json!({"rope_scaling": {"type": "llama3", "factor": 8, "low_freq_factor": 4, "high_freq_factor": 1,
                    "original_max_position_embeddings": 8}}),
                ErrorKind::Invalid,
                "`rope_scaling.high_freq_factor`",
            ),
            (
                json!({"rope_scaling": {"type": "yarn", "factor": 4}}),
                ErrorKind::Missing,
                "`max_position_embeddings`",
            ),
            (
                json!({"partial_rotary_factor": 0.5}),
                ErrorKind::Unsupported,
                "`partial_rotary_factor`",
            ),
        ];
        for (config, kind, text) in cases {
            let e = read(config.clone(), 16).unwrap_err();
            assert_eq!(e.kind(), kind, "{config}: {e}");
            assert!(e.to_string().contains(text), "{config}: {e}");
        }
    }
}
