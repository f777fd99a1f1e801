//! Writes a Whisper file of whisper.cpp: only as much as a seed needs.

use cactus_import::ggml::MAGIC;

const WIDTH: usize = 16;
const MELS: usize = 4;
/// Bytes, and a token made of them.
const TOKENS: usize = 257;
/// With special tokens, 99 languages and times.
const VOCAB: usize = TOKENS + 8 + 99 + 1501;

/// A model of one layer on each side, whose weights are zeros; matrices in half precision.
pub(crate) fn whisper() -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    let numbers = |out: &mut Vec<u8>, all: &[usize]| all.iter().for_each(|&n| out.extend((n as u32).to_le_bytes()));
    numbers(&mut out, &[VOCAB, 10, WIDTH, 1, 1, 12, WIDTH, 1, 1, MELS, 1]);
    numbers(&mut out, &[MELS, 201]);
    out.resize(out.len() + 4 * MELS * 201, 0);
    numbers(&mut out, &[TOKENS]);
    for byte in (0..=255).rev() {
        numbers(&mut out, &[1]);
        out.push(byte);
    }
    numbers(&mut out, &[2]);
    out.extend(b"he");
    for (name, shape) in tensors() {
        let is_half = shape.len() > 1 && !name.ends_with("bias") && !name.ends_with("positional_embedding");
        numbers(&mut out, &[shape.len(), name.len(), usize::from(is_half)]);
        let contiguous_first: Vec<usize> = shape.iter().rev().copied().collect();
        numbers(&mut out, &contiguous_first);
        out.extend(name.as_bytes());
        let bytes = if is_half { 2 } else { 4 };
        out.resize(out.len() + bytes * shape.iter().product::<usize>(), 0);
    }
    out
}

/// Every tensor by OpenAI's name, and its shape.
fn tensors() -> Vec<(String, Vec<usize>)> {
    let mut all: Vec<(String, Vec<usize>)> = vec![
        ("encoder.conv1.weight".into(), vec![WIDTH, MELS, 3]),
        ("encoder.conv1.bias".into(), vec![WIDTH, 1]),
        ("encoder.conv2.weight".into(), vec![WIDTH, WIDTH, 3]),
        ("encoder.conv2.bias".into(), vec![WIDTH, 1]),
        ("encoder.positional_embedding".into(), vec![10, WIDTH]),
        ("decoder.positional_embedding".into(), vec![12, WIDTH]),
        ("decoder.token_embedding.weight".into(), vec![VOCAB, WIDTH]),
    ];
    let mut pair = |name: String, shape: &[usize]| {
        all.push((format!("{name}.weight"), shape.to_vec()));
        if !name.ends_with("key") {
            all.push((format!("{name}.bias"), shape[..1].to_vec()));
        }
    };
    for (side, last, attentions) in [
        ("encoder", "ln_post", &["attn"][..]),
        ("decoder", "ln", &["attn", "cross_attn"]),
    ] {
        pair(format!("{side}.{last}"), &[WIDTH]);
        let at = format!("{side}.blocks.0");
        for attention in attentions {
            pair(format!("{at}.{attention}_ln"), &[WIDTH]);
            for linear in ["query", "key", "value", "out"] {
                pair(format!("{at}.{attention}.{linear}"), &[WIDTH, WIDTH]);
            }
        }
        pair(format!("{at}.mlp_ln"), &[WIDTH]);
        pair(format!("{at}.mlp.0"), &[2 * WIDTH, WIDTH]);
        pair(format!("{at}.mlp.2"), &[WIDTH, 2 * WIDTH]);
    }
    all
}
