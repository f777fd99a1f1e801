//! Names of the encoder of sounds of Gemma 3n, as those of Gemma 4 are, which has the same layers.

/// Parts of a layer: what Gemma 3n calls them, and Gemma 4.
const PARTS: [(&str, &str); 9] = [
    ("ffw_layer_start.", "feed_forward1."),
    ("ffw_layer_end.", "feed_forward2."),
    ("attention.pre_attn_norm.", "norm_pre_attn."),
    ("attention.post_norm.", "norm_post_attn."),
    ("attention.post.", "self_attn.post."),
    (
        "attention.attn.relative_position_embedding.pos_proj.",
        "self_attn.relative_k_proj.",
    ),
    ("attention.attn.", "self_attn."),
    ("lconv1d.", "lconv1d."),
    ("norm.", "norm_out."),
];
/// Ends of the names of matrices that may have bounds beside them in Gemma 4.
const PRODUCTS: [&str; 8] = [
    ".ffw_layer_1",
    ".ffw_layer_2",
    ".q_proj",
    ".k_proj",
    ".v_proj",
    ".post",
    ".linear_start",
    ".linear_end",
];

/// The name of a tensor of the encoder, which begins with `audio_model.`; any other as it is.
pub(crate) fn own(name: &str) -> String {
    let Some(inner) = name.strip_prefix("audio_model.") else {
        return name.to_owned();
    };
    let inner = inner.replace("subsample_conv_projection.conv_", "subsample_conv_projection.layer");
    let layer = inner.strip_prefix("conformer.").and_then(|rest| rest.split_once('.'));
    let found = layer.and_then(|(layer, rest)| {
        let (part, own) = PARTS.iter().find(|(part, _)| rest.starts_with(part))?;
        let name = format!("audio_model.layers.{layer}.{own}{}", &rest[part.len()..]);
        let stem = name.strip_suffix(".weight");
        let product = stem.filter(|stem| PRODUCTS.iter().any(|end| stem.ends_with(end)));
        Some(product.map_or(name.clone(), |stem| format!("{stem}.linear.weight")))
    });
    found.unwrap_or_else(|| format!("audio_model.{inner}"))
}

#[cfg(test)]
mod tests {
    use super::own;

    #[test]
    fn names_are_those_of_gemma4() {
        for (name, want) in [
            (
                "conformer.3.ffw_layer_end.ffw_layer_2.weight",
                "layers.3.feed_forward2.ffw_layer_2.linear.weight",
            ),
            (
                "conformer.0.attention.post_norm.weight",
                "layers.0.norm_post_attn.weight",
            ),
            (
                "conformer.0.attention.post.weight",
                "layers.0.self_attn.post.linear.weight",
            ),
            (
                "conformer.0.attention.attn.per_dim_scale",
                "layers.0.self_attn.per_dim_scale",
            ),
            (
                "conformer.0.attention.attn.relative_position_embedding.pos_proj.weight",
                "layers.0.self_attn.relative_k_proj.weight",
            ),
            (
                "conformer.0.lconv1d.depthwise_conv1d.weight",
                "layers.0.lconv1d.depthwise_conv1d.weight",
            ),
            ("conformer.0.norm.weight", "layers.0.norm_out.weight"),
            ("conformer.0.other.weight", "conformer.0.other.weight"),
            (
                "subsample_conv_projection.conv_1.norm.weight",
                "subsample_conv_projection.layer1.norm.weight",
            ),
            (
                "subsample_conv_projection.input_proj_linear.weight",
                "subsample_conv_projection.input_proj_linear.weight",
            ),
        ] {
            assert_eq!(own(&format!("audio_model.{name}")), format!("audio_model.{want}"));
        }
        assert_eq!(own("model.norm.weight"), "model.norm.weight");
    }
}
