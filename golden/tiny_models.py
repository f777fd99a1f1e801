"""Write the tiny golden models: random-weight Hugging Face folders and what transformers computes from them.

For every case in CASES this writes `models/<case>/` with config.json, safetensors weights, generation_config.json,
a small byte-level BPE tokenizer, and two files of expected results:

  expected.safetensors   logits of every position of `input_ids`, F32 [seq, vocab]
  expected.json          input ids, 64 greedy tokens with the smallest top-2 margin, and the NLL of a longer sequence

The expected results are computed from the folder as written (AutoModelForCausalLM.from_pretrained), so a mistake in a
config key shows up here and not in the engine's tests. Arithmetic is F32 on one thread with eager attention; F16 and
BF16 cases are the rounded weights evaluated in F32.

Run: python golden/tiny_models.py [case ...]
"""

import json
import math
import os
import shutil
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoConfig, AutoModelForCausalLM

ROOT = Path(__file__).resolve().parent
OUT = ROOT / "models"

GREEDY_STEPS = 64
NLL_TOKENS = 160
MIN_MARGIN = 0.02  # smallest allowed gap between the two best logits of any greedy step
MIN_DISTINCT = 20  # distinct tokens that the greedy continuation must contain
LOGIT_STD = (1.0, 3.0)

SPECIAL = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}

# Each config is spelt as real checkpoints on the hub spell it: `rope_theta`/`rope_scaling` at the top level and
# `torch_dtype` (transformers 4), except `qwen3`, which uses the newer `rope_parameters` and `dtype`.
CASES = {
    # SmolLM2-like: 3 query heads per KV head, tied head, no explicit head_dim, dims that are not multiples of 32.
    "llama": dict(
        dtype="float32",
        prompt=12,
        seq=40,
        config=dict(
            architectures=["LlamaForCausalLM"],
            model_type="llama",
            attention_bias=False,
            hidden_act="silu",
            hidden_size=48,
            intermediate_size=104,
            num_hidden_layers=2,
            num_attention_heads=3,
            num_key_value_heads=1,
            max_position_embeddings=512,
            rms_norm_eps=1e-5,
            rope_theta=100000,
            rope_scaling=None,
            tie_word_embeddings=True,
            torch_dtype="float32",
            vocab_size=192,
            **SPECIAL,
        ),
    ),
    # Llama 3.2: llama3 rope scaling whose three bands all occur in 16 frequencies; untied head; BF16 weights.
    "llama32": dict(
        dtype="bfloat16",
        prompt=12,
        seq=40,
        config=dict(
            architectures=["LlamaForCausalLM"],
            model_type="llama",
            attention_bias=False,
            mlp_bias=False,
            head_dim=32,
            hidden_act="silu",
            hidden_size=64,
            intermediate_size=96,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=1024,
            rms_norm_eps=1e-5,
            rope_theta=500000.0,
            rope_scaling=dict(
                factor=8.0,
                high_freq_factor=4.0,
                low_freq_factor=1.0,
                original_max_position_embeddings=128,
                rope_type="llama3",
            ),
            tie_word_embeddings=False,
            torch_dtype="bfloat16",
            vocab_size=128,
            bos_token_id=1,
            eos_token_id=[2, 3],
        ),
    ),
    # SmolLM3: every fourth layer without rope (0 in no_rope_layers). Written as two shards with an index.
    "smollm3": dict(
        dtype="float32",
        shards=2,
        prompt=12,
        seq=40,
        config=dict(
            architectures=["SmolLM3ForCausalLM"],
            model_type="smollm3",
            attention_bias=False,
            mlp_bias=False,
            hidden_act="silu",
            hidden_size=48,
            intermediate_size=40,
            num_hidden_layers=4,
            num_attention_heads=3,
            num_key_value_heads=1,
            layer_types=["full_attention"] * 4,
            max_position_embeddings=512,
            max_window_layers=28,
            no_rope_layer_interval=4,
            no_rope_layers=[1, 1, 1, 0],
            rms_norm_eps=1e-6,
            rope_theta=2000000.0,
            rope_scaling=None,
            sliding_window=None,
            use_sliding_window=False,
            tie_word_embeddings=True,
            torch_dtype="float32",
            vocab_size=128,
            **SPECIAL,
        ),
    ),
    # Qwen2 / Qwen2.5: biases on q, k and v; untied head.
    "qwen2": dict(
        dtype="float32",
        prompt=12,
        seq=40,
        config=dict(
            architectures=["Qwen2ForCausalLM"],
            model_type="qwen2",
            hidden_act="silu",
            hidden_size=64,
            intermediate_size=80,
            max_window_layers=2,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=1,
            max_position_embeddings=512,
            rms_norm_eps=1e-6,
            rope_theta=1000000.0,
            sliding_window=512,
            use_sliding_window=False,
            tie_word_embeddings=False,
            torch_dtype="float32",
            vocab_size=128,
            bos_token_id=1,
            eos_token_id=2,
        ),
    ),
    "qwen2_tied": dict(
        dtype="float16",
        prompt=12,
        seq=40,
        config=dict(
            architectures=["Qwen2ForCausalLM"],
            model_type="qwen2",
            hidden_act="silu",
            hidden_size=64,
            intermediate_size=160,
            max_window_layers=2,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=512,
            rms_norm_eps=1e-6,
            rope_theta=1000000.0,
            sliding_window=512,
            use_sliding_window=False,
            tie_word_embeddings=True,
            torch_dtype="float16",
            vocab_size=256,
            bos_token_id=1,
            eos_token_id=2,
        ),
    ),
    # Qwen3: norms on q and k, head_dim that is not hidden_size / heads, the newer spelling of rope.
    "qwen3": dict(
        dtype="float32",
        prompt=12,
        seq=40,
        config=dict(
            architectures=["Qwen3ForCausalLM"],
            model_type="qwen3",
            attention_bias=False,
            dtype="float32",
            head_dim=32,
            hidden_act="silu",
            hidden_size=32,
            intermediate_size=96,
            layer_types=["full_attention"] * 3,
            max_window_layers=3,
            num_hidden_layers=3,
            num_attention_heads=2,
            num_key_value_heads=1,
            max_position_embeddings=512,
            rms_norm_eps=1e-6,
            rope_parameters=dict(rope_theta=1000000.0, rope_type="default"),
            sliding_window=None,
            use_sliding_window=False,
            tie_word_embeddings=True,
            vocab_size=160,
            bos_token_id=1,
            eos_token_id=2,
        ),
    ),
    # Gemma 3 text: five sliding layers, one full, one sliding; window 16 on sequences of 64; two
    # rope bases; four norms a layer; embeddings scaled by sqrt(hidden).
    "gemma3_text": dict(
        dtype="float32",
        prompt=24,
        seq=64,
        config=dict(
            architectures=["Gemma3ForCausalLM"],
            model_type="gemma3_text",
            attention_bias=False,
            attn_logit_softcapping=None,
            final_logit_softcapping=None,
            head_dim=32,
            hidden_activation="gelu_pytorch_tanh",
            hidden_size=32,
            intermediate_size=40,
            num_hidden_layers=7,
            num_attention_heads=2,
            num_key_value_heads=1,
            max_position_embeddings=512,
            query_pre_attn_scalar=32,
            rms_norm_eps=1e-6,
            rope_local_base_freq=10000.0,
            rope_scaling=None,
            rope_theta=1000000.0,
            sliding_window=16,
            _sliding_window_pattern=6,
            layer_types=["sliding_attention"] * 5 + ["full_attention", "sliding_attention"],
            torch_dtype="float32",
            use_bidirectional_attention=False,
            vocab_size=128,
            pad_token_id=0,
            bos_token_id=2,
            eos_token_id=1,
        ),
    ),
    # LFM2: gated short convolutions and one attention layer; the feed-forward size is derived from block_ff_dim.
    "lfm2": dict(
        dtype="float32",
        prompt=12,
        seq=40,
        config=dict(
            architectures=["Lfm2ForCausalLM"],
            model_type="lfm2",
            block_auto_adjust_ff_dim=True,
            block_dim=32,
            block_ff_dim=136,
            block_ffn_dim_multiplier=1.0,
            block_multiple_of=32,
            block_norm_eps=1e-5,
            conv_L_cache=3,
            conv_bias=False,
            conv_dim=32,
            full_attn_idxs=[2],
            hidden_size=32,
            max_position_embeddings=512,
            norm_eps=1e-5,
            num_attention_heads=2,
            num_heads=2,
            num_hidden_layers=4,
            num_key_value_heads=1,
            rope_theta=1000000.0,
            torch_dtype="float32",
            vocab_size=128,
            **SPECIAL,
        ),
    ),
    # OLMo 2: norms behind the sublayers alone, norms of q and k over all heads, unlike KV heads.
    "olmo2": dict(
        dtype="float32",
        prompt=12,
        seq=40,
        config=dict(
            architectures=["Olmo2ForCausalLM"],
            model_type="olmo2",
            attention_bias=False,
            hidden_act="silu",
            hidden_size=48,
            intermediate_size=80,
            num_hidden_layers=2,
            num_attention_heads=3,
            num_key_value_heads=1,
            max_position_embeddings=512,
            rms_norm_eps=1e-6,
            rope_theta=500000,
            rope_scaling=None,
            tie_word_embeddings=False,
            torch_dtype="float32",
            vocab_size=128,
            **SPECIAL,
        ),
    ),
    # Phi-4-mini: q, k, v and gate, up are one weight each; three quarters of each head turn, by factors of LongRoPE; tied head.
    "phi3": dict(
        dtype="float32",
        prompt=12,
        seq=40,
        config=dict(
            architectures=["Phi3ForCausalLM"],
            model_type="phi3",
            hidden_act="silu",
            hidden_size=64,
            intermediate_size=80,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=2048,
            original_max_position_embeddings=256,
            partial_rotary_factor=0.75,
            rms_norm_eps=1e-5,
            rope_theta=10000.0,
            rope_scaling=dict(
                type="longrope",
                short_factor=[1.0, 1.125, 1.375, 1.75, 2.0, 2.5],
                long_factor=[1.0, 1.5, 3.0, 6.0, 12.0, 16.0],
            ),
            sliding_window=262144,
            tie_word_embeddings=True,
            torch_dtype="float32",
            vocab_size=128,
            **SPECIAL,
        ),
    ),
    # Phi-3-mini-4k: all of each head turns, a window on every layer, untied head.
    "phi3_window": dict(
        dtype="float32",
        prompt=24,
        seq=64,
        config=dict(
            architectures=["Phi3ForCausalLM"],
            model_type="phi3",
            hidden_act="silu",
            hidden_size=48,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=3,
            num_key_value_heads=3,
            max_position_embeddings=512,
            original_max_position_embeddings=512,
            rms_norm_eps=1e-5,
            rope_theta=10000.0,
            rope_scaling=None,
            sliding_window=15,
            tie_word_embeddings=False,
            torch_dtype="float32",
            vocab_size=128,
            **SPECIAL,
        ),
    ),
    # Granite 3: factors on embeddings, scores, residuals and logits.
    "granite": dict(
        dtype="float32",
        prompt=12,
        seq=40,
        config=dict(
            architectures=["GraniteForCausalLM"],
            model_type="granite",
            attention_bias=False,
            attention_multiplier=0.2,
            embedding_multiplier=3.0,
            hidden_act="silu",
            hidden_size=64,
            intermediate_size=96,
            logits_scaling=1.6,
            max_position_embeddings=512,
            mlp_bias=False,
            num_attention_heads=4,
            num_hidden_layers=2,
            num_key_value_heads=2,
            residual_multiplier=0.6,
            rms_norm_eps=1e-5,
            rope_scaling=None,
            rope_theta=10000.0,
            tie_word_embeddings=True,
            torch_dtype="float32",
            vocab_size=128,
            **SPECIAL,
        ),
    ),
    # GLM-4-0414: neighbors of the first half of each head turn, norms on both sides of the sublayers, gate and up are one weight.
    "glm4": dict(
        dtype="float32",
        prompt=12,
        seq=40,
        config=dict(
            architectures=["Glm4ForCausalLM"],
            model_type="glm4",
            attention_bias=True,
            head_dim=16,
            hidden_act="silu",
            hidden_size=48,
            intermediate_size=80,
            max_position_embeddings=512,
            num_attention_heads=4,
            num_hidden_layers=2,
            num_key_value_heads=2,
            partial_rotary_factor=0.5,
            rms_norm_eps=1e-5,
            rope_theta=10000.0,
            tie_word_embeddings=False,
            torch_dtype="float32",
            vocab_size=128,
            bos_token_id=1,
            eos_token_id=[2, 3],
            pad_token_id=0,
        ),
    ),
    # GLM-4-9b-chat-hf: as GLM-4-0414 without the norms behind the sublayers.
    "glm": dict(
        dtype="float32",
        prompt=12,
        seq=40,
        config=dict(
            architectures=["GlmForCausalLM"],
            model_type="glm",
            attention_bias=True,
            head_dim=16,
            hidden_act="silu",
            hidden_size=48,
            intermediate_size=80,
            max_position_embeddings=512,
            num_attention_heads=4,
            num_hidden_layers=2,
            num_key_value_heads=2,
            partial_rotary_factor=0.5,
            rms_norm_eps=1.5625e-07,
            rope_theta=10000.0,
            tie_word_embeddings=False,
            torch_dtype="float32",
            vocab_size=128,
            bos_token_id=1,
            eos_token_id=[2, 3],
            pad_token_id=0,
        ),
    ),
    # Qwen3-MoE: a softmax over all experts, whose chosen sum to one. Experts are stacked, as transformers 5 has them in memory.
    "qwen3_moe": dict(
        dtype="float32",
        prompt=12,
        seq=40,
        stacked=True,
        config=dict(
            architectures=["Qwen3MoeForCausalLM"],
            model_type="qwen3_moe",
            attention_bias=False,
            decoder_sparse_step=1,
            head_dim=32,
            hidden_act="silu",
            hidden_size=48,
            intermediate_size=80,
            max_position_embeddings=512,
            max_window_layers=2,
            mlp_only_layers=[],
            moe_intermediate_size=24,
            norm_topk_prob=True,
            num_attention_heads=2,
            num_experts=6,
            num_experts_per_tok=2,
            num_hidden_layers=2,
            num_key_value_heads=1,
            rms_norm_eps=1e-6,
            rope_scaling=None,
            rope_theta=1000000.0,
            sliding_window=None,
            tie_word_embeddings=False,
            torch_dtype="float32",
            use_sliding_window=False,
            vocab_size=128,
            bos_token_id=1,
            eos_token_id=2,
        ),
    ),
    # OLMoE: norms of q and k over all heads, shares that do not sum to one. Each expert has tensors of its own, as on the hub.
    "olmoe": dict(
        dtype="float32",
        prompt=12,
        seq=40,
        config=dict(
            architectures=["OlmoeForCausalLM"],
            model_type="olmoe",
            attention_bias=False,
            clip_qkv=None,
            hidden_act="silu",
            hidden_size=64,
            intermediate_size=40,
            max_position_embeddings=512,
            norm_topk_prob=False,
            num_attention_heads=4,
            num_experts=5,
            num_experts_per_tok=3,
            num_hidden_layers=2,
            num_key_value_heads=2,
            rms_norm_eps=1e-5,
            rope_scaling=None,
            rope_theta=10000.0,
            tie_word_embeddings=False,
            torch_dtype="float32",
            vocab_size=128,
            **SPECIAL,
        ),
    ),
    # LFM2-8B-A1B: logistic shares, a bias that only ranks, a first layer without experts; experts as on the hub; BF16.
    "lfm2_moe": dict(
        dtype="bfloat16",
        prompt=12,
        seq=40,
        config=dict(
            architectures=["Lfm2MoeForCausalLM"],
            model_type="lfm2_moe",
            conv_L_cache=3,
            conv_bias=False,
            hidden_size=32,
            intermediate_size=80,
            layer_types=["conv", "conv", "full_attention", "conv"],
            max_position_embeddings=512,
            moe_intermediate_size=24,
            norm_eps=1e-5,
            norm_topk_prob=True,
            num_attention_heads=2,
            num_dense_layers=1,
            num_experts=6,
            num_experts_per_tok=2,
            num_hidden_layers=4,
            num_key_value_heads=1,
            rope_theta=1000000.0,
            routed_scaling_factor=1.0,
            tie_word_embeddings=True,
            torch_dtype="bfloat16",
            use_expert_bias=True,
            vocab_size=128,
            **SPECIAL,
        ),
    ),
    # Gemma 3n: four streams, a branch of low rank beside attention, early layers that keep only large gates, inputs for each layer that the last
    # tokens have not; the last three layers attend to keys and values of earlier ones of either kind.
    "gemma3n_text": dict(
        dtype="float32",
        prompt=12,
        seq=40,
        config=dict(
            architectures=["Gemma3nForCausalLM"],
            model_type="gemma3n_text",
            activation_sparsity_pattern=[0.95, 0.75, 0.0, 0.0, 0.0, 0.0, 0.0],
            altup_active_idx=0,
            altup_coef_clip=120.0,
            altup_correct_scale=True,
            altup_num_inputs=4,
            attention_bias=False,
            final_logit_softcapping=30.0,
            head_dim=16,
            hidden_activation="gelu_pytorch_tanh",
            hidden_size=48,
            hidden_size_per_layer_input=16,
            intermediate_size=[80] * 7,
            laurel_rank=8,
            layer_types=["sliding_attention", "sliding_attention", "full_attention", "sliding_attention", "sliding_attention", "full_attention", "sliding_attention"],
            max_position_embeddings=512,
            num_attention_heads=3,
            num_hidden_layers=7,
            num_key_value_heads=1,
            num_kv_shared_layers=3,
            rms_norm_eps=1e-6,
            rope_local_base_freq=10000.0,
            rope_scaling=None,
            rope_theta=1000000.0,
            sliding_window=8,
            tie_word_embeddings=True,
            torch_dtype="float32",
            vocab_size=128,
            vocab_size_per_layer_input=112,
            **SPECIAL,
        ),
    ),
    # Gemma 4 E2B: inputs for each layer, wider heads in layers that see everything, of which a quarter is turned, norms of values; the last
    # two layers attend to keys and values of earlier ones, and their gated units are twice as wide.
    "gemma4_text": dict(
        dtype="bfloat16",
        prompt=12,
        seq=40,
        config=dict(
            architectures=["Gemma4ForCausalLM"],
            model_type="gemma4_text",
            attention_bias=False,
            attention_k_eq_v=False,
            enable_moe_block=False,
            final_logit_softcapping=30.0,
            global_head_dim=32,
            head_dim=16,
            hidden_activation="gelu_pytorch_tanh",
            hidden_size=48,
            hidden_size_per_layer_input=16,
            intermediate_size=80,
            layer_types=["sliding_attention", "full_attention", "sliding_attention", "full_attention", "sliding_attention", "full_attention"],
            max_position_embeddings=512,
            num_attention_heads=3,
            num_hidden_layers=6,
            num_key_value_heads=1,
            num_kv_shared_layers=2,
            rms_norm_eps=1e-6,
            rope_parameters={
                "full_attention": {"partial_rotary_factor": 0.25, "rope_theta": 1000000.0, "rope_type": "proportional"},
                "sliding_attention": {"rope_theta": 10000.0, "rope_type": "default"},
            },
            sliding_window=8,
            tie_word_embeddings=True,
            torch_dtype="bfloat16",
            use_double_wide_mlp=True,
            vocab_size=128,
            vocab_size_per_layer_input=128,
            **SPECIAL,
        ),
    ),
    # Gemma 4 26B-A4B: experts beside the gated unit, keys that are values where a layer sees everything, fewer of their heads there.
    "gemma4_moe": dict(
        dtype="float32",
        prompt=12,
        seq=40,
        stacked=True,
        # Rounding may choose another expert.
        margin=0.025,
        config=dict(
            architectures=["Gemma4ForCausalLM"],
            model_type="gemma4_text",
            attention_bias=False,
            attention_k_eq_v=True,
            enable_moe_block=True,
            final_logit_softcapping=30.0,
            global_head_dim=32,
            head_dim=16,
            hidden_activation="gelu_pytorch_tanh",
            hidden_size=48,
            hidden_size_per_layer_input=0,
            intermediate_size=56,
            layer_types=["sliding_attention", "full_attention", "full_attention"],
            max_position_embeddings=512,
            moe_intermediate_size=24,
            num_attention_heads=4,
            num_experts=6,
            num_global_key_value_heads=1,
            num_hidden_layers=3,
            num_key_value_heads=2,
            num_kv_shared_layers=0,
            rms_norm_eps=1e-6,
            sliding_window=8,
            tie_word_embeddings=True,
            top_k_experts=2,
            torch_dtype="float32",
            use_double_wide_mlp=False,
            vocab_size=128,
            vocab_size_per_layer_input=128,
            **SPECIAL,
        ),
    ),
    # Granite 3 with experts: the factors of Granite, and experts that are one tensor each way; with a shared one, another width and head.
    "granitemoe": dict(
        dtype="float32",
        prompt=12,
        seq=40,
        stacked=True,
        config=dict(
            architectures=["GraniteMoeForCausalLM"],
            model_type="granitemoe",
            attention_bias=False,
            attention_multiplier=0.2,
            embedding_multiplier=3.0,
            hidden_act="silu",
            hidden_size=64,
            intermediate_size=40,
            logits_scaling=1.6,
            max_position_embeddings=512,
            num_attention_heads=4,
            num_experts_per_tok=2,
            num_hidden_layers=2,
            num_key_value_heads=2,
            num_local_experts=5,
            residual_multiplier=0.6,
            rms_norm_eps=1e-6,
            rope_scaling=None,
            rope_theta=10000.0,
            tie_word_embeddings=True,
            torch_dtype="float32",
            vocab_size=128,
            **SPECIAL,
        ),
    ),
    "granitemoeshared": dict(
        dtype="bfloat16",
        prompt=12,
        seq=40,
        stacked=True,
        config=dict(
            architectures=["GraniteMoeSharedForCausalLM"],
            model_type="granitemoeshared",
            attention_bias=False,
            attention_multiplier=0.25,
            embedding_multiplier=2.0,
            hidden_act="silu",
            hidden_size=48,
            intermediate_size=24,
            logits_scaling=1.2,
            max_position_embeddings=512,
            num_attention_heads=3,
            num_experts_per_tok=3,
            num_hidden_layers=2,
            num_key_value_heads=1,
            num_local_experts=6,
            residual_multiplier=0.7,
            rms_norm_eps=1e-5,
            rope_theta=10000.0,
            shared_intermediate_size=56,
            tie_word_embeddings=False,
            torch_dtype="bfloat16",
            vocab_size=128,
            **SPECIAL,
        ),
    ),
    # gpt-oss: sinks, a window on every other layer, YaRN that is not rounded, experts with biases and units that are cut. Weights of experts
    # are numbers that MXFP4 has; golden/mxfp4 has them packed, as released.
    "gpt_oss": dict(
        dtype="float32",
        prompt=24,
        seq=64,
        stacked=True,
        mxfp4=True,
        config=dict(
            architectures=["GptOssForCausalLM"],
            model_type="gpt_oss",
            attention_bias=True,
            experts_per_token=2,
            head_dim=16,
            hidden_act="silu",
            hidden_size=64,
            initial_context_length=32,
            intermediate_size=32,
            layer_types=["sliding_attention", "full_attention"],
            max_position_embeddings=512,
            num_attention_heads=4,
            num_experts_per_tok=2,
            num_hidden_layers=2,
            num_key_value_heads=2,
            num_local_experts=4,
            rms_norm_eps=1e-5,
            rope_scaling=dict(
                beta_fast=32.0, beta_slow=1.0, factor=16.0, original_max_position_embeddings=32, rope_type="yarn", truncate=False
            ),
            rope_theta=150000,
            sliding_window=12,
            swiglu_limit=7.0,
            tie_word_embeddings=False,
            torch_dtype="float32",
            vocab_size=128,
            **SPECIAL,
        ),
    ),
}

CORPUS = """
The engine maps a file, checks every offset in it and answers on the processor that is there. A small model is a
model all the same: it has an embedding, some layers, a norm and a head, and the rain that falls on a phone falls on
a server too. The quick brown fox jumps over the lazy dog while the other foxes are thinking about the weather in the
north, the price of bread, 3 of 14 trains, 159 boats and 2653 birds. What is the capital of France? The capital of
France is Paris. What is the answer to the question that was never asked? There is no answer, there is only the
asking. She said that the station was closing, that the train had gone, and that nothing in the timetable was true.
Reading and writing are the same thing seen from two sides; so are compression and prediction, so are the tide and
the moon. def main(args): return [x + 1 for x in args if x > 0] { "name": "value", "other": [1, 2, 3] }
"""

CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + "
    "'\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


def write_json(path, value):
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")


def write_tokenizer(folder, config):
    """A GPT-2 style byte-level BPE over printable ASCII, exactly vocab_size tokens, learnt from CORPUS."""
    names = {0: "<|endoftext|>", 1: "<|im_start|>", 2: "<|im_end|>", 3: "<|tool|>"}
    special = [AddedToken(names[i], special=True, normalized=False) for i in range(4)]
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tok.decoder = decoders.ByteLevel()
    alphabet = [chr(c) for c in range(33, 127)] + ["\u0120", "\u010a"]
    trainer = trainers.BpeTrainer(
        vocab_size=config["vocab_size"], initial_alphabet=alphabet, special_tokens=special, show_progress=False
    )
    tok.train_from_iterator([CORPUS.replace("\n", " ")], trainer)
    assert tok.get_vocab_size() == config["vocab_size"], tok.get_vocab_size()
    tok.save(str(folder / "tokenizer.json"))
    eos = config["eos_token_id"]
    write_json(
        folder / "tokenizer_config.json",
        {
            "add_bos_token": False,
            "bos_token": names[config["bos_token_id"]],
            "eos_token": names[eos[0] if isinstance(eos, list) else eos],
            "pad_token": names[0],
            "chat_template": CHAT_TEMPLATE,
            "clean_up_tokenization_spaces": False,
            "model_max_length": config["max_position_embeddings"],
            "tokenizer_class": "PreTrainedTokenizerFast",
        },
    )


def randomize(model, config, generator):
    """Weights of a size that makes attention peaked, logits of std 1 to 3 and greedy text varied."""
    hidden = config["hidden_size"]
    tied = model.config.tie_word_embeddings
    gemma3 = config["model_type"] == "gemma3_text"
    # Their norms are stored as they are, and they divide scores by nothing.
    gemma3n = config["model_type"] == "gemma3n_text"
    gemma4 = gemma3n or config["model_type"] == "gemma4_text"

    def normal(p, std, mean=0.0):
        p.data.copy_(mean + std * torch.randn(p.shape, generator=generator))

    for name, p in model.named_parameters():
        if "norm" in name and (gemma3 or gemma4):
            # Loud sublayers and peaked attention, or greedy text falls into a short loop. Those of Gemma 3 are stored less one.
            # Sparse gates make what is rounded larger, so that sublayers of Gemma 3n are quiet.
            loud = {"post_": -0.3 if gemma3n else 1.0, "model.norm": 1.0}
            loud |= {"q_norm": 1.0, "k_norm": 1.0} if gemma3 else {"q_norm": -0.5, "k_norm": -0.5, "model.norm": 3.0}
            normal(p, 0.25, next((v for k, v in loud.items() if k in name), 0.0) + gemma4)
        elif "norm" in name:
            normal(p, 0.25, 1.0)
        elif name.endswith("sinks"):
            # About as large as scores.
            normal(p, 2.0)
        elif name.endswith("bias"):
            normal(p, 0.5)
        elif "embed_tokens_per_layer" in name:
            normal(p, 0.5)
        elif "embed_tokens" in name:
            normal(p, (1.0 if gemma3 else 0.5 if gemma4 else 2.0) / math.sqrt(hidden) if tied else 0.5)
        elif "lm_head" in name:
            normal(p, 2.0 / math.sqrt(hidden))
        elif "conv.conv" in name:
            normal(p, 1.0)
        elif name.endswith(("router.scale", "per_expert_scale", "correct_output_scale")):
            normal(p, 0.25, 1.0)
        elif name.endswith("modality_router.weight"):
            # What it is multiplied with is divided by the width.
            normal(p, math.sqrt(hidden))
        elif name.endswith(("prediction_coefs.weight", "correction_coefs.weight")):
            normal(p, 0.3)
        elif name.endswith((".gate.weight", ".router.weight", ".router.proj.weight")):
            # Scores of experts that differ enough for rounding not to choose another.
            normal(p, 3.0 / math.sqrt(hidden))
        else:
            gain = 1.6 if any(s in name for s in ("q_proj", "k_proj")) else 1.8
            normal(p, gain / math.sqrt(p.shape[-1]))
        if config["model_type"] == "gpt_oss" and name.endswith(("experts.gate_up_proj", "experts.down_proj")):
            # Some of what is cut is larger than that.
            p.data.copy_(unpacked(*packed((3.0 if "gate_up" in name else 1.0) * p.data)))
    for name, x in model.named_buffers():
        if name.endswith("layer_scalar"):
            x.copy_(1.0 + 0.25 * torch.randn(x.shape, generator=generator))
        if name.endswith("expert_bias"):
            x.copy_(0.3 * torch.randn(x.shape, generator=generator))


E2M1 = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])


def packed(x):
    """`[experts, columns, rows]` as blocks and scales of MXFP4, each for 32 columns of a row."""
    rows = x.transpose(1, 2).unflatten(-1, (-1, 32))
    exponent = torch.floor(torch.log2(rows.abs().amax(-1, keepdim=True))) - 2
    codes = (rows.unsqueeze(-1).abs() / 2.0**exponent.unsqueeze(-1) - E2M1).abs().argmin(-1) + 8 * (rows < 0)
    return (codes[..., ::2] + 16 * codes[..., 1::2]).to(torch.uint8), (exponent.squeeze(-1) + 127).to(torch.uint8)


def unpacked(blocks, scales):
    """What transformers makes of them, `[experts, columns, rows]`."""
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors

    return convert_moe_packed_tensors(blocks, scales, dtype=torch.float32)


def save_packed(model, name, config):
    """The folder with the weights of experts packed."""
    folder = ROOT / "mxfp4" / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    write_json(folder / "config.json", config | {"quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]}})
    state = {}
    for key, x in model.state_dict().items():
        if key.endswith(("experts.gate_up_proj", "experts.down_proj")):
            state[f"{key}_blocks"], state[f"{key}_scales"] = packed(x)
            assert torch.equal(unpacked(state[f"{key}_blocks"], state[f"{key}_scales"]), x), key
        else:
            state[key] = x.contiguous()
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})


def hub_form(state, names):
    """Stacked experts as tensors of their own, under the names of the checkpoints that are published."""
    out = {}
    for name, x in state.items():
        stem, _, last = name.rpartition(".")
        if not stem.endswith(".experts"):
            out[name] = x
            continue
        for i, expert in enumerate(x):
            parts = expert.chunk(2) if last == "gate_up_proj" else [expert]
            for part, own in zip(parts, names[:2] if last == "gate_up_proj" else names[2:]):
                out[f"{stem}.{i}.{own}.weight"] = part.contiguous()
    return out


def save_weights(model, folder, dtype, shards, stacked):
    state = {k: v.detach().to(dtype).contiguous() for k, v in model.state_dict().items()}
    # A bias that ranks stays in single precision, as in the published checkpoints.
    state.update({k: v.float() for k, v in model.state_dict().items() if k.endswith("expert_bias")})
    if not stacked:
        lfm2 = model.config.model_type == "lfm2_moe"
        state = hub_form(state, ["w1", "w3", "w2"] if lfm2 else ["gate_proj", "up_proj", "down_proj"])
    if model.config.model_type.startswith("granitemoe"):
        own = {"experts.gate_up_proj": "input_linear.weight", "experts.down_proj": "output_linear.weight", "router.weight": "router.layer.weight"}
        for new, old in own.items():
            state = {name.replace(f"block_sparse_moe.{new}", f"block_sparse_moe.{old}"): x for name, x in state.items()}
    if model.config.tie_word_embeddings:
        state.pop("lm_head.weight", None)
    meta = {"format": "pt"}
    if shards == 1:
        save_file(state, folder / "model.safetensors", metadata=meta)
        return
    names = sorted(state)
    weight_map, total = {}, 0
    for i in range(shards):
        part = names[i * len(names) // shards : (i + 1) * len(names) // shards]
        file = f"model-{i + 1:05}-of-{shards:05}.safetensors"
        save_file({n: state[n] for n in part}, folder / file, metadata=meta)
        weight_map.update({n: file for n in part})
        total += sum(state[n].numel() * state[n].element_size() for n in part)
    write_json(
        folder / "model.safetensors.index.json", {"metadata": {"total_size": total}, "weight_map": weight_map}
    )


def load(folder):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    return model.eval()


@torch.no_grad()
def greedy(model, prompt):
    """Tokens and the smallest top-2 gap, each step recomputed from scratch and checked against the cached path."""
    ids, margin, past = list(prompt), math.inf, None
    for step in range(GREEDY_STEPS):
        logits = model(torch.tensor([ids]), use_cache=False).logits[0, -1]
        step_ids = ids if past is None else ids[-1:]
        cached = model(torch.tensor([step_ids]), past_key_values=past, use_cache=True)
        past = cached.past_key_values
        drift = (cached.logits[0, -1] - logits).abs().max().item()
        assert drift < 1e-3, f"cached and full forward differ by {drift} at step {step}"
        top = logits.topk(2).values
        margin = min(margin, (top[0] - top[1]).item())
        ids.append(int(logits.argmax()))
    return ids[len(prompt) :], margin


@torch.no_grad()
def nll(model, ids):
    """Mean negative log-likelihood in nats of ids[1:] given what precedes each."""
    logits = model(torch.tensor([ids]), use_cache=False).logits[0].double()
    return torch.nn.functional.cross_entropy(logits[:-1], torch.tensor(ids[1:])).item()


def attempt(name, case, seed):
    """Write the folder from this seed and return its expected results, or None where they are not healthy."""
    config, folder = case["config"], OUT / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    write_json(folder / "config.json", config)
    generator = torch.Generator().manual_seed(seed)
    model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder)).float()
    randomize(model, config, generator)
    model.tie_weights()
    save_weights(model, folder, getattr(torch, case["dtype"]), case.get("shards", 1), case.get("stacked", False))

    model = load(folder)
    ids = torch.randint(4, config["vocab_size"], (NLL_TOKENS,), generator=generator).tolist()
    input_ids = ids[: case["seq"]]
    with torch.no_grad():
        logits = model(torch.tensor([input_ids]), use_cache=False).logits[0].float().contiguous()
    tokens, margin = greedy(model, ids[: case["prompt"]])
    if case.get("mxfp4"):
        save_packed(model, name, config)
    std, distinct = logits.std().item(), len(set(tokens))
    print(f"{name} seed {seed}: std {std:.2f} margin {margin:.4f} distinct {distinct}", flush=True)
    if not (margin >= case.get("margin", MIN_MARGIN) and distinct >= MIN_DISTINCT and LOGIT_STD[0] <= std <= LOGIT_STD[1]):
        return None
    save_file({"logits": logits}, folder / "expected.safetensors")
    mean = nll(model, ids)
    return {
        "case": name,
        "seed": seed,
        "weights_dtype": case["dtype"],
        "input_ids": input_ids,
        "logits": {"file": "expected.safetensors", "tensor": "logits", "shape": list(logits.shape), "std": std},
        "greedy": {"prompt_ids": ids[: case["prompt"]], "tokens": tokens, "min_margin": margin},
        "nll": {"ids": ids, "mean": mean, "perplexity": math.exp(mean)},
    }


def make(name):
    case = CASES[name]
    for seed in range(1, 400):
        expected = attempt(name, case, seed)
        if expected is not None:
            break
    else:
        sys.exit(f"{name}: no seed gave healthy results")
    config, folder = case["config"], OUT / name
    write_tokenizer(folder, config)
    write_json(
        folder / "generation_config.json",
        {
            "_from_model_config": False,
            "bos_token_id": config["bos_token_id"],
            "eos_token_id": config["eos_token_id"],
            "do_sample": True,
            "temperature": 0.6,
            "top_p": 0.9,
            "top_k": 40,
        },
    )
    write_json(folder / "expected.json", expected)
    if case.get("mxfp4"):
        for file in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
            shutil.copy(folder / file, ROOT / "mxfp4" / name)


def main():
    torch.set_num_threads(1)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    for name in sys.argv[1:] or CASES:
        make(name)


if __name__ == "__main__":
    main()
