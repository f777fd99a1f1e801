//! GGUF tensor names of encoders, and their Hugging Face counterparts.

use super::names::{Arch, Change};

/// The last layer of a classification, and of Qwen3-Reranker the two rows of the head that count.
pub(super) const CLASSES: &str = "cls.output.weight";
/// The layer before it.
pub(super) const POOLER: &str = "cls.weight";

/// The Hugging Face name of a GGUF tensor of an encoder and the change its values need. `None`: not a weight of it.
pub(super) fn hugging_face(arch: Arch, name: &str) -> Option<(String, Change)> {
    let (stem, suffix) = name.rsplit_once('.')?;
    if !matches!(suffix, "weight" | "bias") {
        return None;
    }
    let Some(rest) = stem.strip_prefix("blk.") else {
        return Some((format!("{}.{suffix}", outside(arch, stem)?), Change::Keep));
    };
    let (layer, stem) = rest.split_once('.')?;
    // A plain decimal number, so that no two spellings collide.
    if layer.parse::<u32>().ok()?.to_string() != layer {
        return None;
    }
    let layers = match arch {
        Arch::Bert => "encoder.layer",
        Arch::ModernBert => "layers",
        _ => "encoder.layers",
    };
    if let (Arch::NomicBertMoe, "weight", Some((stem, change))) = (arch, suffix, of_experts(stem)) {
        // The makers' experts are parameters of their own, without a suffix.
        return Some((format!("{layers}.{layer}.{stem}"), change));
    }
    Some((
        format!("{layers}.{layer}.{}.{suffix}", of_layer(arch, stem)?),
        Change::Keep,
    ))
}

fn outside(arch: Arch, stem: &str) -> Option<&'static str> {
    Some(match (arch, stem) {
        (Arch::ModernBert, "token_embd") => "embeddings.tok_embeddings",
        (Arch::ModernBert, "token_embd_norm") => "embeddings.norm",
        (Arch::ModernBert, "output_norm") => "final_norm",
        (Arch::ModernBert, "cls") => "head.dense",
        (Arch::ModernBert, "cls.norm") => "head.norm",
        (Arch::Bert | Arch::ModernBert, "cls.output") => "classifier",
        // The first layer of RoBERTa's head is BERT's pooler by what it computes.
        (Arch::Bert, "cls") => "pooler.dense",
        (Arch::Bert, "position_embd") => "embeddings.position_embeddings",
        (Arch::Bert, "token_embd_norm") => "embeddings.LayerNorm",
        (Arch::NomicBert | Arch::NomicBertMoe, "token_embd_norm") => "emb_ln",
        (Arch::Bert | Arch::NomicBert | Arch::NomicBertMoe, "token_embd") => "embeddings.word_embeddings",
        (Arch::Bert | Arch::NomicBert | Arch::NomicBertMoe, "token_types") => "embeddings.token_type_embeddings",
        _ => return None,
    })
}

fn of_layer(arch: Arch, stem: &str) -> Option<&'static str> {
    Some(match (arch, stem) {
        (Arch::Bert, "attn_q") => "attention.self.query",
        (Arch::Bert, "attn_k") => "attention.self.key",
        (Arch::Bert, "attn_v") => "attention.self.value",
        (Arch::Bert, "attn_output") => "attention.output.dense",
        (Arch::Bert, "attn_output_norm") => "attention.output.LayerNorm",
        (Arch::Bert, "ffn_up") => "intermediate.dense",
        (Arch::Bert, "ffn_down") => "output.dense",
        (Arch::Bert, "layer_output_norm") => "output.LayerNorm",
        (Arch::ModernBert, "attn_norm") => "attn_norm",
        (Arch::ModernBert, "attn_qkv") => "attn.Wqkv",
        (Arch::ModernBert, "attn_output") => "attn.Wo",
        (Arch::ModernBert, "ffn_norm") => "mlp_norm",
        (Arch::ModernBert, "ffn_up") => "mlp.Wi",
        (Arch::ModernBert, "ffn_down") => "mlp.Wo",
        (Arch::NomicBert, "ffn_up") => "mlp.fc11",
        (Arch::NomicBert, "ffn_gate") => "mlp.fc12",
        (Arch::NomicBertMoe, "ffn_up") => "mlp.fc1",
        (Arch::NomicBertMoe, "ffn_gate_inp") => "mlp.router.layer",
        (Arch::NomicBert | Arch::NomicBertMoe, "attn_qkv") => "attn.Wqkv",
        (Arch::NomicBert | Arch::NomicBertMoe, "attn_output") => "attn.out_proj",
        (Arch::NomicBert | Arch::NomicBertMoe, "attn_output_norm") => "norm1",
        (Arch::NomicBert | Arch::NomicBertMoe, "ffn_down") => "mlp.fc2",
        (Arch::NomicBert | Arch::NomicBertMoe, "layer_output_norm") => "norm2",
        _ => return None,
    })
}

fn of_experts(stem: &str) -> Option<(&'static str, Change)> {
    match stem {
        "ffn_up_exps" => Some(("mlp.experts.mlp.w1", Change::Experts)),
        "ffn_down_exps" => Some(("mlp.experts.mlp.w2", Change::TurnedExperts)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hugging_face_names_of_encoders() {
        use Change::*;
        type Case = (Arch, &'static str, Option<(&'static str, Change)>);
        let cases: &[Case] = &[
            (
                Arch::Bert,
                "token_embd.weight",
                Some(("embeddings.word_embeddings.weight", Keep)),
            ),
            (
                Arch::Bert,
                "blk.11.layer_output_norm.bias",
                Some(("encoder.layer.11.output.LayerNorm.bias", Keep)),
            ),
            (Arch::Bert, POOLER, Some(("pooler.dense.weight", Keep))),
            (Arch::Bert, "cls.output.bias", Some(("classifier.bias", Keep))),
            (
                Arch::NomicBert,
                "blk.0.ffn_gate.weight",
                Some(("encoder.layers.0.mlp.fc12.weight", Keep)),
            ),
            (
                Arch::NomicBertMoe,
                "blk.1.ffn_down_exps.weight",
                Some(("encoder.layers.1.mlp.experts.mlp.w2", TurnedExperts)),
            ),
            (Arch::NomicBert, "blk.1.ffn_down_exps.weight", None),
            (Arch::NomicBertMoe, "blk.1.ffn_down_exps.bias", None),
            (
                Arch::ModernBert,
                "blk.0.ffn_up.weight",
                Some(("layers.0.mlp.Wi.weight", Keep)),
            ),
            (Arch::ModernBert, "cls.norm.weight", Some(("head.norm.weight", Keep))),
            (Arch::Bert, "blk.01.attn_q.weight", None),
            (Arch::Bert, "blk.0.attn_q.scale", None),
            (Arch::Bert, "blk.0.attn_q_norm.weight", None),
            (Arch::Bert, "output.weight", None),
        ];
        for (arch, name, want) in cases {
            let want = want.map(|(n, c)| (n.to_owned(), c));
            assert_eq!(hugging_face(*arch, name), want, "{arch:?} {name}");
        }
    }
}
