"""Small configurations of every architecture of transformers.

Purpose: `config(model_type)` takes the library's own default configuration and makes it small: sizes by their names, and
of the layers one of each kind. What the rules do not reach is in `OVERRIDES`, by the type of the model. It imports
transformers.
"""

from __future__ import annotations

import math
from typing import Any

from transformers.models.auto.configuration_auto import CONFIG_MAPPING

HIDDEN, HEADS, LAYERS, VOCAB = 64, 4, 2, 256

#: Sizes by name. A value that is smaller or absent already stays.
SIZES: dict[str, int] = {
    name: size
    for names, size in [
        (
            "hidden_size d_model n_embd embed_dim embedding_size dim model_dim hidden_dim hidden_size_global projection_dim "
            "word_embed_proj_dim encoder_hidden_size decoder_hidden_size cross_attention_hidden_size attention_hidden_size "
            "out_hidden_size lm_hidden_size output_hidden_size backbone_hidden_size text_hidden_size vision_hidden_size "
            "text_embed_dim vision_output_dim projector_input_dim projector_output_dim output_dim final_dim width "
            "output_proj_dims conv_dim_out adapter_out_dim adapter_input_size adapter_in_dim vision_feature_dim lru_width",
            HIDDEN,
        ),
        (
            "intermediate_size ffn_dim encoder_ffn_dim decoder_ffn_dim d_ff dff n_inner dim_ff ffn_hidden_size mlp_dim "
            "intermediate_size_mlp dense_intermediate_size projector_hidden_size dim_feedforward feed_forward_size hidden_dim_ffn",
            128,
        ),
        (
            "num_hidden_layers n_layer n_layers num_layers encoder_layers decoder_layers num_decoder_layers "
            "num_encoder_layers depth num_blocks num_hidden_layers_vision attention_layers conf_num_hidden_layers "
            "num_layers_per_stack e_layers d_layers num_global_layers",
            LAYERS,
        ),
        (
            "num_attention_heads n_head n_heads num_heads encoder_attention_heads decoder_attention_heads attention_heads "
            "num_encoder_attention_heads num_decoder_attention_heads conf_num_attention_heads swa_num_attention_heads "
            "linear_num_heads swa_num_key_value_heads num_attention_heads_vision",
            HEADS,
        ),
        ("head_dim linear_head_dim kv_channels d_kv global_head_dim swa_head_dim dim_head linear_key_head_dim "
         "linear_value_head_dim qk_nope_head_dim v_head_dim index_head_dim swa_v_head_dim attention_head_dim", 16),
        ("qk_rope_head_dim", 8),
        ("q_lora_rank", 32),
        ("kv_lora_rank o_lora_rank", 32),
        ("rotary_dim", 8),
        ("vocab_size decoder_vocab_size vocab_size_per_layer_input unpadded_vocab_size encoder_vocab_size "
         "text_vocab_size codebook_size", VOCAB),
        ("max_position_embeddings n_positions n_ctx max_seq_len max_target_positions model_max_length max_sequence_length "
         "seq_length max_seq_length original_max_position_embeddings", 512),
        ("max_source_positions", 50),
        ("sliding_window window_size attention_window local_attention_window_len sliding_window_size local_attention "
         "attention_chunk_size attention_window_size keep_window_size", 8),
        ("first_k_dense_replace num_dense_layers", 1),
        ("num_experts n_routed_experts num_local_experts moe_num_experts num_routed_experts zero_expert_num", 4),
        ("num_experts_per_tok num_experts_per_token moe_topk moe_top_k moe_k top_k_experts num_selected_experts "
         "n_group num_expert_group", 2),
        ("topk_group n_shared_experts num_shared_experts moe_num_shared_experts", 1),
        ("moe_intermediate_size expert_ffn_hidden_size shared_expert_intermediate_size "
         "shared_experts_intermediate_size shared_intermediate_size expert_dim decoder_moe_ffn_dim", 32),
        ("mamba_d_state state_size ssm_state_size", 16),
        ("mamba_n_heads mamba_num_heads n_mamba_heads", 8),
        ("mamba_d_head mamba_head_dim", 16),
        ("mamba_dt_rank time_step_rank", 8),
        ("mamba_n_groups n_groups", 2),
        ("chunk_size mamba_chunk_size block_size index_block_size", 8),
        ("hidden_size_per_layer_input laurel_rank d_rel hc_lowrank", 16),
        ("index_topk", 4),
        # Scores of keys are sums over heads of what is above zero. Of few heads it is often zero for several keys, of which
        # `torch.topk` takes any.
        ("index_n_heads", 16),
        ("num_mel_bins num_channels_mel input_feat_size feature_size", 16),
        ("image_size input_size_image img_size", 32),
        ("patch_size", 8),
        ("num_position_embeddings", 64),
    ]
    for name in names.split()
}  # fmt: skip

#: Numbers that scale: one would hide where they are forgotten.
SCALES = {
    "embedding_multiplier": 3.0, "residual_multiplier": 0.5, "attention_multiplier": 0.2, "logits_scaling": 4.0,
    "lm_head_multiplier": 0.5, "key_multiplier": 0.7, "attention_out_multiplier": 0.8, "attention_in_multiplier": 1.2,
    "ssm_in_multiplier": 0.9, "ssm_out_multiplier": 1.1, "route_scale": 2.0, "routed_scaling_factor": 2.0,
}  # fmt: skip

#: What the rules do not reach: values by the type of a model, which win.
_EXPERTS = dict(n_routed_experts=4, n_shared_experts=1, num_experts_per_tok=2, first_k_dense_replace=1)
_SHARED = dict(num_hidden_layers=4, num_kv_shared_layers=2, layer_types=["sliding_attention", "full_attention"] * 2)
OVERRIDES: dict[str, dict[str, Any]] = {
    "blt": dict(encoder_hash_byte_group_vocab=256, encoder_hash_byte_group_size=[3, 4]),
    "cohere_compass_text": dict(
        layer_types=["sliding_attention", "full_attention"],
        rope_parameters={
            kind: {"rope_type": "default", "rope_theta": 1e4} for kind in ("sliding_attention", "full_attention")
        },
        logit_scale=0.5,
    ),
    "dbrx": dict(attn_config=dict(kv_n_heads=2, rope_theta=1e4, clip_qkv=8.0), ffn_config=dict(hidden_size=64, ffn_hidden_size=128, moe_top_k=2)),
    "deepseek_v2": _EXPERTS,
    # A key stands for four tokens, and twelve tokens have to have as many as are chosen.
    "deepseek_v4": dict(index_topk=2),
    "dots1": _EXPERTS,
    "dots3_note_text": dict(
        layer_types=["indexed_attention", "sliding_attention"], mlp_layer_types=["dense", "sparse"], num_hidden_layers=2,
        per_layer_config={"0": dict(head_dim=24), "1": dict(head_dim=24)}, head_dim=24, qk_nope_head_dim=16, qk_rope_head_dim=8,
    ),
    "gemma3n_text": dict(
        **_SHARED, intermediate_size=[128] * 4, activation_sparsity_pattern=[0.95, 0.95, 0.0, 0.0],
    ),
    "gemma4_text": dict(**_SHARED, hidden_size_per_layer_input=16, num_experts=None),
    "hunyuan_v1_dense": dict(head_dim=16),
    "hunyuan_v1_moe": dict(head_dim=16, num_experts=4, moe_topk=2),
    "lfm2_moe": dict(layer_types=["conv", "full_attention"], num_dense_layers=1),
    "mamba2": dict(num_heads=8, head_dim=16),
    "ministral": dict(head_dim=16),
    "nemotron": dict(num_key_value_heads=2),
    "qwen4_exp_text": dict(indexer_n_heads=2, indexer_kv_heads=1, indexer_head_dim=16, indexer_budget=8, indexer_compress_ratio=4,
                           layer_types=["linear_attention", "indexed_attention"], num_hidden_layers=2),
    "reformer": dict(axial_pos_embds_dim=[32, 32], axial_pos_shape=[16, 32], num_buckets=None, is_decoder=True,
                     attn_layers=["local", "lsh"], attention_head_size=16, local_attn_chunk_length=8, lsh_attn_chunk_length=8),
    "roc_bert": dict(shape_embed_dim=32, shape_vocab_size=64, pronunciation_embed_dim=32, pronunciation_vocab_size=64),
    "xlm": dict(emb_dim=64, causal=True, is_encoder=False),
    "xmod": dict(default_language="en_XX"),
    "zamba": dict(layers_block_type=["linear_attention", "hybrid", "hybrid"], num_hidden_layers=3, attention_hidden_size=128,
                  attention_head_dim=32, n_mamba_heads=2),
    "zamba2": dict(attention_hidden_size=128, attention_head_dim=32, kv_channels=16, n_mamba_heads=8, mamba_headdim=16,
                   layers_block_type=["linear_attention", "hybrid", "hybrid"], num_hidden_layers=3, adapter_rank=8),
}  # fmt: skip

#: What a text decoder of an architecture that also encodes is told.
DECODER = {"is_decoder": True, "add_cross_attention": False}


def _layers(default: dict) -> tuple[int | None, list[int]]:
    """How many layers the default has, and of each kind the first, by every list that has one entry a layer."""
    count = next((default[k] for k in ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "depth", "num_blocks")
                  if isinstance(default.get(k), int)), None)  # fmt: skip
    lists = [v for v in default.values() if isinstance(v, list) and count and len(v) == count and count > 1]
    kinds: dict[str, int] = {}
    for i in range(count or 0):
        kinds.setdefault(repr([v[i] for v in lists]), i)
    chosen = sorted(kinds.values())[:5]
    for i in range(count or 0):
        if len(chosen) >= LAYERS:
            break
        if i not in chosen:
            chosen.append(i)
    return count, sorted(chosen)


def _small(default: dict, model_type: str | None) -> dict:
    """The changes that make a configuration small."""
    out: dict[str, Any] = {}
    count, chosen = _layers(default)
    for name, value in default.items():
        if isinstance(value, dict) and value.get("model_type") is not None:
            out[name] = _small(value, value["model_type"]) | {"model_type": value["model_type"]}
        elif isinstance(value, bool) or value is None:
            continue
        elif isinstance(value, list) and name in ("depths", "layers", "num_blocks", "layer_depths"):
            out[name] = [min(v, 2) if isinstance(v, int) else v for v in value]
        elif name == "embed_dim" and any(isinstance(default.get(k), list) for k in ("num_heads", "num_attention_heads")):
            continue
        elif name in SCALES and isinstance(value, (int, float)):
            out[name] = SCALES[name]
        elif isinstance(value, list) and count and len(value) == count and count > 1:
            out[name] = [_item(name, value[i]) for i in chosen]
        elif isinstance(value, int):
            if name in ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "depth", "num_blocks") and count:
                out[name] = len(chosen) if value == count else min(value, LAYERS)
            elif name in SIZES and value > SIZES[name]:
                out[name] = SIZES[name]
            elif name.endswith(("_token_id", "_token_index")) and value >= VOCAB:
                out[name] = 3 if name.startswith("pad") else 4
    _heads(default, out)
    _rope(default, out)
    if "initializer_range" in default:
        out["initializer_range"] = 0.1
    if "init_std" in default:
        out["init_std"] = 0.1
    for name in ("pad_token_id", "bos_token_id", "eos_token_id"):
        if isinstance(default.get(name), int) and default[name] >= VOCAB:
            out[name] = {"p": 0, "b": 1, "e": 2}[name[0]]
    out |= OVERRIDES.get(model_type or "", {})
    return out


def _item(name: str, value: Any) -> Any:
    """An entry of a list that has one a layer: numbers of heads and widths are made small."""
    if isinstance(value, int) and not isinstance(value, bool):
        if "heads" in name:
            return min(value, HEADS)
        if "intermediate" in name:
            return min(value, 128)
    return value


def _heads(default: dict, out: dict) -> None:
    """Fewer heads of keys and values than of queries, unless one for all is the family's way."""
    for name in ("num_key_value_heads", "num_kv_heads", "kv_n_heads", "linear_num_key_heads", "num_global_key_value_heads"):
        if isinstance(default.get(name), int):
            out[name] = min(default[name], 2)
    if isinstance(default.get("qk_rope_head_dim"), int) and "head_dim" in default:
        out["head_dim"] = SIZES["qk_rope_head_dim"]
    if isinstance(default.get("linear_num_value_heads"), int):
        out["linear_num_value_heads"] = 4
    of = default.get("num_attention_heads")
    if isinstance(default.get("num_key_value_heads"), int) and default["num_key_value_heads"] == of:
        # Several of these take no fewer; the configuration says the same number, so it stays so.
        out["num_key_value_heads"] = HEADS


def _rope(default: dict, out: dict) -> None:
    """Sections of a rotary embedding of several axes fill the smaller head."""
    for name in ("rope_parameters", "rope_scaling"):
        rope = default.get(name)
        if not isinstance(rope, dict):
            continue
        section = rope.get("mrope_section")
        if section:
            width = out.get("head_dim", HIDDEN // HEADS)
            half = int(width * rope.get("partial_rotary_factor", 1.0)) // 2
            small = [max(1, s * half // sum(section)) for s in section]
            small[0] += half - sum(small)
            out[name] = {**rope, "mrope_section": small}


def config(model_type: str, decoder: bool = False):
    """A small configuration; one of a decoder alone where `decoder` is set and the family has both."""
    made = CONFIG_MAPPING[model_type]
    default = made().to_dict()
    changes = _small(default, model_type)
    if decoder and default.get("is_decoder") is False and not default.get("is_encoder_decoder", False):
        changes |= {k: v for k, v in DECODER.items() if k in default or k == "is_decoder"}
    return made(**changes)


def parameters(model) -> int:
    return sum(math.prod(p.shape) for p in model.parameters())
