"""Small models of every family, with random weights: name -> a function that gives a model, its task and its family.

Purpose: what `sweep.py` captures and what the tests use. Sizes are small, structure is that of the published
models. It imports torch and transformers.
"""

import torch
import transformers as T

ZOO = {}
HIDDEN, LAYERS, VOCAB = 64, 2, 256


def model(family, task="auto"):
    """Registers a model that is made with seed 0 in evaluation mode."""

    def register(make):
        def made():
            torch.manual_seed(0)
            found = make()
            # A component has its inputs with it; a model of transformers gets them from its adapter.
            randomized(getattr(found, "module", found)).eval()
            return found

        ZOO[make.__name__] = (made, family, task)
        return make

    return register


def randomized(made):
    """What starts as zeros or ones would hide a mistake: biases, statistics, projections that begin at nothing."""
    with torch.no_grad():
        for name, x in list(made.named_parameters()) + list(made.named_buffers()):
            if not x.is_floating_point() or x.numel() < 2:
                continue
            if name.endswith("running_var"):
                x.uniform_(0.5, 2.0)
            elif bool((x == 0).all()):
                x.normal_(0.0, 0.1)
            elif bool((x == 1).all()) and isinstance(x, torch.nn.Parameter):
                x.uniform_(0.5, 1.5)
    return made


def text(**more):
    base = dict(
        vocab_size=VOCAB,
        hidden_size=HIDDEN,
        intermediate_size=128,
        num_hidden_layers=LAYERS,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        initializer_range=0.1,
    )
    return base | more


def vision(**more):
    base = dict(
        hidden_size=HIDDEN,
        intermediate_size=128,
        num_hidden_layers=LAYERS,
        num_attention_heads=4,
        image_size=32,
        patch_size=8,
    )
    return base | more


LOCAL = ["sliding_attention", "full_attention"]


@model("Llama, SmolLM2")
def smollm2():
    return T.LlamaForCausalLM(T.LlamaConfig(**text(tie_word_embeddings=True)))


@model("Llama, eager attention")
def llama_eager():
    return T.LlamaForCausalLM(T.LlamaConfig(**text(attn_implementation="eager")))


@model("SmolLM3")
def smollm3():
    return T.SmolLM3ForCausalLM(T.SmolLM3Config(**text(no_rope_layers=[1, 0])))


@model("Mistral")
def mistral():
    return T.MistralForCausalLM(T.MistralConfig(**text(sliding_window=8)))


@model("Qwen2, Qwen2.5")
def qwen2():
    return T.Qwen2ForCausalLM(T.Qwen2Config(**text()))


@model("Qwen3")
def qwen3():
    return T.Qwen3ForCausalLM(T.Qwen3Config(**text(head_dim=16)))


@model("Qwen3-MoE")
def qwen3_moe():
    config = T.Qwen3MoeConfig(**text(head_dim=16, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=32))
    return T.Qwen3MoeForCausalLM(config)


@model("Qwen3.5 (gated delta rule)")
def qwen3_5():
    config = T.Qwen3_5TextConfig(
        **text(
            head_dim=16,
            layer_types=["linear_attention", "full_attention"],
            linear_key_head_dim=16,
            linear_value_head_dim=16,
            linear_num_key_heads=2,
            linear_num_value_heads=4,
        )
    )
    return T.Qwen3_5ForCausalLM(config)


@model("Gemma 3 text")
def gemma3():
    return T.Gemma3ForCausalLM(T.Gemma3TextConfig(**text(head_dim=16, sliding_window=8, layer_types=LOCAL)))


@model("Gemma 3n text")
def gemma3n():
    config = T.Gemma3nTextConfig(
        **text(
            num_hidden_layers=4,
            head_dim=16,
            sliding_window=8,
            layer_types=LOCAL * 2,
            vocab_size_per_layer_input=VOCAB,
            hidden_size_per_layer_input=16,
            num_kv_shared_layers=2,
            laurel_rank=8,
            activation_sparsity_pattern=[0.95, 0.95, 0.0, 0.0],
        )
    )
    return T.Gemma3nForCausalLM(config)


def gemma4_config(**more):
    return T.Gemma4TextConfig(
        **text(
            num_hidden_layers=4,
            head_dim=16,
            global_head_dim=32,
            sliding_window=8,
            layer_types=LOCAL * 2,
            vocab_size_per_layer_input=VOCAB,
            hidden_size_per_layer_input=16,
            final_logit_softcapping=30.0,
            **more,
        )
    )


@model("Gemma 4 text (shared keys and values, per-layer embeddings)")
def gemma4():
    return T.Gemma4ForCausalLM(gemma4_config(num_kv_shared_layers=2, use_double_wide_mlp=True))


@model("Gemma 4 text with experts")
def gemma4_moe():
    more = dict(enable_moe_block=True, num_experts=4, top_k_experts=2, moe_intermediate_size=32)
    return T.Gemma4ForCausalLM(gemma4_config(**more))


@model("LFM2, LFM2.5")
def lfm2():
    config = T.Lfm2Config(**text(layer_types=["conv", "full_attention"], block_auto_adjust_ff_dim=False))
    return T.Lfm2ForCausalLM(config)


@model("LFM2-MoE")
def lfm2_moe():
    more = dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=32, num_dense_layers=1)
    return T.Lfm2MoeForCausalLM(T.Lfm2MoeConfig(**text(layer_types=["conv", "full_attention"], **more)))


@model("LFM3")
def lfm3():
    more = dict(head_dim=16, sliding_window=8, layer_types=["conv", "full_attention", "sliding_attention"])
    return T.Lfm3ForCausalLM(T.Lfm3Config(**text(**more) | dict(num_hidden_layers=3)))


@model("GPT-2")
def gpt2():
    config = T.GPT2Config(vocab_size=VOCAB, n_embd=HIDDEN, n_layer=LAYERS, n_head=4, n_positions=256)
    return T.GPT2LMHeadModel(config)


@model("Granite (scaled logits)")
def granite():
    more = dict(logits_scaling=3.0, embedding_multiplier=2.0, residual_multiplier=0.5, attention_multiplier=0.2)
    return T.GraniteForCausalLM(T.GraniteConfig(**text(**more)))


@model("Cohere (neighbors rotated, scaled logits)")
def cohere():
    return T.CohereForCausalLM(T.CohereConfig(**text(logit_scale=0.25, use_qk_norm=True)))


@model("Cohere 2")
def cohere2():
    return T.Cohere2ForCausalLM(T.Cohere2Config(**text(logit_scale=0.25, sliding_window=8, layer_types=LOCAL)))


@model("MiniCPM3 (latent attention)")
def minicpm3():
    more = dict(q_lora_rank=32, kv_lora_rank=16, qk_nope_head_dim=8, qk_rope_head_dim=8, v_head_dim=16)
    return T.MiniCPM3ForCausalLM(T.MiniCPM3Config(**text(num_key_value_heads=4, dim_model_base=32, **more)))


@model("GLM (neighbors of a part of heads rotated)")
def glm():
    return T.GlmForCausalLM(T.GlmConfig(**text(head_dim=16, partial_rotary_factor=0.5)))


@model("GPT-J (neighbors rotated by a stored table)")
def gptj():
    config = T.GPTJConfig(vocab_size=VOCAB, n_embd=HIDDEN, n_layer=LAYERS, n_head=4, n_positions=256, rotary_dim=8)
    return T.GPTJForCausalLM(config)


def bert_config():
    return T.BertConfig(
        vocab_size=VOCAB,
        hidden_size=HIDDEN,
        num_hidden_layers=LAYERS,
        num_attention_heads=4,
        intermediate_size=128,
        max_position_embeddings=128,
    )


@model("BERT, MiniLM")
def minilm():
    return T.BertModel(bert_config(), add_pooling_layer=False)


@model("nomic-embed v1.5")
def nomic_bert():
    config = T.NomicBertConfig(
        vocab_size=VOCAB,
        hidden_size=HIDDEN,
        num_hidden_layers=LAYERS,
        num_attention_heads=4,
        intermediate_size=128,
    )
    return T.NomicBertModel(config)


@model("EmbeddingGemma", "encoder_hidden_states")
def embedding_gemma():
    config = T.Gemma3TextConfig(
        **text(head_dim=16, sliding_window=8, layer_types=LOCAL, use_bidirectional_attention=True)
    )
    return T.Gemma3TextModel(config)


@model("EmbeddingGemma 2")
def embedding_gemma2():
    from transformers.models.embedding_gemma2 import EmbeddingGemma2TextConfig, EmbeddingGemma2TextModel

    return EmbeddingGemma2TextModel(EmbeddingGemma2TextConfig(**text(head_dim=16, sliding_window=8, layer_types=LOCAL)))


@model("Whisper")
def whisper():
    config = T.WhisperConfig(
        vocab_size=VOCAB,
        num_mel_bins=16,
        encoder_layers=LAYERS,
        decoder_layers=LAYERS,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=128,
        decoder_ffn_dim=128,
        d_model=HIDDEN,
        max_source_positions=50,
        max_target_positions=64,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=3,
        suppress_tokens=None,
        begin_suppress_tokens=None,
    )
    return T.WhisperForConditionalGeneration(config)


@model("Moonshine")
def moonshine():
    config = T.MoonshineConfig(
        vocab_size=VOCAB,
        hidden_size=HIDDEN,
        intermediate_size=128,
        encoder_num_hidden_layers=LAYERS,
        decoder_num_hidden_layers=LAYERS,
        encoder_num_attention_heads=4,
        decoder_num_attention_heads=4,
    )
    return T.MoonshineForConditionalGeneration(config)


def conformer():
    return dict(
        hidden_size=HIDDEN,
        num_hidden_layers=LAYERS,
        num_attention_heads=4,
        intermediate_size=128,
        conv_kernel_size=9,
        subsampling_factor=8,
        subsampling_conv_channels=16,
        num_mel_bins=32,
        max_position_embeddings=256,
    )


@model("Parakeet CTC")
def parakeet_ctc():
    return T.ParakeetForCTC(T.ParakeetCTCConfig(vocab_size=33, pad_token_id=32, encoder_config=conformer()))


@model("Parakeet TDT")
def parakeet_tdt():
    config = T.ParakeetTDTConfig(
        vocab_size=33, blank_token_id=32, decoder_hidden_size=32, num_decoder_layers=2, encoder_config=conformer()
    )
    return T.ParakeetForTDT(config)


@model("wav2vec 2.0 CTC")
def wav2vec2():
    config = T.Wav2Vec2Config(
        vocab_size=32,
        hidden_size=HIDDEN,
        num_hidden_layers=LAYERS,
        num_attention_heads=4,
        intermediate_size=128,
        conv_dim=(32, 32),
        conv_stride=(5, 4),
        conv_kernel=(10, 8),
        num_feat_extract_layers=2,
        num_conv_pos_embeddings=16,
        num_conv_pos_embedding_groups=4,
    )
    return T.Wav2Vec2ForCTC(config)


@model("ViT")
def vit():
    return T.ViTModel(T.ViTConfig(**vision()), add_pooling_layer=False)


@model("DINOv2")
def dinov2():
    config = T.Dinov2Config(
        hidden_size=HIDDEN, num_hidden_layers=LAYERS, num_attention_heads=4, image_size=32, patch_size=8
    )
    return T.Dinov2Model(config)


@model("SigLIP vision")
def siglip_vision():
    return T.SiglipVisionModel(T.SiglipVisionConfig(**vision(vision_use_head=False)))


@model("CLIP vision")
def clip_vision():
    return T.CLIPVisionModel(T.CLIPVisionConfig(**vision()))


@model("SmolVLM vision")
def smolvlm_vision():
    from transformers.models.smolvlm.modeling_smolvlm import SmolVLMVisionConfig, SmolVLMVisionTransformer

    return SmolVLMVisionTransformer(SmolVLMVisionConfig(**vision()))


@model("LFM2-VL vision (SigLIP 2)")
def lfm2_vl_vision():
    from transformers.models.siglip2.modeling_siglip2 import Siglip2VisionModel

    config = T.Siglip2VisionConfig(
        hidden_size=HIDDEN,
        intermediate_size=128,
        num_hidden_layers=LAYERS,
        num_attention_heads=4,
        num_patches=64,
        patch_size=4,
        vision_use_head=False,
    )
    return Siglip2VisionModel(config)


@model("Qwen3-VL vision")
def qwen3_vl_vision():
    from transformers.models.qwen3_vl.modeling_qwen3_vl import Qwen3VLVisionModel

    config = T.Qwen3VLVisionConfig(
        depth=LAYERS,
        hidden_size=HIDDEN,
        intermediate_size=128,
        num_heads=4,
        patch_size=4,
        out_hidden_size=HIDDEN,
        num_position_embeddings=64,
        deepstack_visual_indexes=[0],
    )
    return Qwen3VLVisionModel(config)


@model("Gemma 3n audio")
def gemma3n_audio():
    from transformers.models.gemma3n.modeling_gemma3n import Gemma3nAudioEncoder

    config = T.Gemma3nAudioConfig(
        hidden_size=HIDDEN,
        conf_num_attention_heads=4,
        conf_num_hidden_layers=LAYERS,
        sscp_conv_channel_size=[16, 8],
    )
    return Gemma3nAudioEncoder(config)


@model("Gemma 4 vision")
def gemma4_vision():
    from transformers.models.gemma4.modeling_gemma4 import Gemma4VisionModel

    config = T.Gemma4VisionConfig(
        hidden_size=HIDDEN,
        intermediate_size=128,
        num_hidden_layers=LAYERS,
        num_attention_heads=4,
        num_key_value_heads=4,
        head_dim=16,
        patch_size=4,
        position_embedding_size=64,
        pooling_kernel_size=3,
    )
    return Gemma4VisionModel(config)


@model("Gemma 4 audio")
def gemma4_audio():
    from transformers.models.gemma4.modeling_gemma4 import Gemma4AudioModel

    config = T.Gemma4AudioConfig(
        hidden_size=HIDDEN,
        num_hidden_layers=LAYERS,
        num_attention_heads=4,
        subsampling_conv_channels=[128, 8],
        output_proj_dims=HIDDEN,
    )
    return Gemma4AudioModel(config)


@model("Gemma 3 with vision")
def gemma3_vlm():
    config = T.Gemma3Config(
        text_config=text(head_dim=16, sliding_window=8, layer_types=LOCAL),
        vision_config=vision(vision_use_head=False),
        mm_tokens_per_image=4,
        image_token_index=255,
    )
    return T.Gemma3ForConditionalGeneration(config)


@model("LLaVA")
def llava():
    config = T.LlavaConfig(
        text_config=text(model_type="llama"),
        vision_config=vision(model_type="siglip_vision_model", vision_use_head=False),
        image_token_index=255,
        vision_feature_layer=-1,
        vision_feature_select_strategy="full",
    )
    return T.LlavaForConditionalGeneration(config)
