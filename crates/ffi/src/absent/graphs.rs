//! The functions of `graph`.

use crate::tensor_info::cactus_tensor_info_t;
use std::ffi::{c_char, c_int, c_void};

functions! { "graphs":
    fn cactus_graph_rope(*mut c_void, u64, f32, usize, *mut u64) -> c_int;
    fn cactus_graph_rope_gptj(*mut c_void, u64, f32, usize, usize, *mut u64) -> c_int;
    fn cactus_graph_attention(*mut c_void, u64, u64, u64, f32, bool, usize, usize, bool, u64, bool, *mut u64) -> c_int;
    fn cactus_graph_attention_cached(*mut c_void, u64, u64, u64, u64, u64, f32, usize, usize, usize, *mut u64) -> c_int;
    fn cactus_graph_attention_cached_masked(
        *mut c_void, u64, u64, u64, u64, u64, f32, usize, usize, usize, bool, u64, bool, *mut u64
    ) -> c_int;
    fn cactus_graph_rel_pos_bias(*mut c_void, u64, u64, f32, *mut u64) -> c_int;
    fn cactus_graph_rel_pos_attention(*mut c_void, u64, u64, u64, u64, u64, bool, u64, f32, usize, *mut u64) -> c_int;
    fn cactus_graph_attention_int8_hybrid(
        *mut c_void, u64, u64, u64, f32, usize, *const i8, *const i8, *const f32, *const f32, usize, usize, usize,
        usize, *mut u64
    ) -> c_int;
    fn cactus_graph_conv1d(*mut c_void, u64, u64, bool, u64, usize, *mut u64) -> c_int;
    fn cactus_graph_conv1d_depthwise(*mut c_void, u64, u64, bool, u64, usize, *mut u64) -> c_int;
    fn cactus_graph_conv1d_k3(*mut c_void, u64, u64, usize, *mut u64) -> c_int;
    fn cactus_graph_conv1d_k7s3(*mut c_void, u64, u64, u64, *mut u64) -> c_int;
    fn cactus_graph_conv1d_causal(*mut c_void, u64, u64, usize, usize, *mut u64) -> c_int;
    fn cactus_graph_conv1d_causal_channel_first(*mut c_void, u64, u64, usize, usize, *mut u64) -> c_int;
    fn cactus_graph_conv1d_same_depthwise_k9(*mut c_void, u64, u64, bool, u64, *mut u64) -> c_int;
    fn cactus_graph_conv1d_pointwise(*mut c_void, u64, u64, bool, u64, *mut u64) -> c_int;
    fn cactus_graph_conv2d_k3s2p1(*mut c_void, u64, u64, bool, u64, *mut u64) -> c_int;
    fn cactus_graph_conv2d_k3s1p1(*mut c_void, u64, u64, bool, u64, *mut u64) -> c_int;
    fn cactus_graph_conv2d_depthwise_k3s2p1(*mut c_void, u64, u64, bool, u64, *mut u64) -> c_int;
    fn cactus_graph_conv2d_pointwise_1x1(*mut c_void, u64, u64, bool, u64, *mut u64) -> c_int;
    fn cactus_graph_conv2d(*mut c_void, u64, u64, bool, u64, usize, usize, usize, usize, *mut u64) -> c_int;
    fn cactus_graph_lstm_cell(*mut c_void, u64, u64, u64, u64, u64, u64, u64, *mut u64) -> c_int;
    fn cactus_graph_gated_deltanet_decode(*mut c_void, u64, u64, u64, u64, u64, u64, f32, *mut u64) -> c_int;
    fn cactus_graph_gated_deltanet_prefill(*mut c_void, u64, u64, u64, u64, u64, u64, usize, f32, *mut u64) -> c_int;
    fn cactus_graph_add(*mut c_void, u64, u64, *mut u64) -> c_int;
    fn cactus_graph_add_clipped(*mut c_void, u64, u64, *mut u64) -> c_int;
    fn cactus_graph_subtract(*mut c_void, u64, u64, *mut u64) -> c_int;
    fn cactus_graph_multiply(*mut c_void, u64, u64, *mut u64) -> c_int;
    fn cactus_graph_divide(*mut c_void, u64, u64, *mut u64) -> c_int;
    fn cactus_graph_not_equal(*mut c_void, u64, u64, *mut u64) -> c_int;
    fn cactus_graph_equal(*mut c_void, u64, u64, *mut u64) -> c_int;
    fn cactus_graph_less(*mut c_void, u64, u64, *mut u64) -> c_int;
    fn cactus_graph_less_equal(*mut c_void, u64, u64, *mut u64) -> c_int;
    fn cactus_graph_greater(*mut c_void, u64, u64, *mut u64) -> c_int;
    fn cactus_graph_greater_equal(*mut c_void, u64, u64, *mut u64) -> c_int;
    fn cactus_graph_bitwise_and(*mut c_void, u64, u64, *mut u64) -> c_int;
    fn cactus_graph_bitwise_or(*mut c_void, u64, u64, *mut u64) -> c_int;
    fn cactus_graph_where(*mut c_void, u64, u64, u64, *mut u64) -> c_int;
    fn cactus_graph_clamp(*mut c_void, u64, f32, f32, *mut u64) -> c_int;
    fn cactus_graph_masked_select_prefix(*mut c_void, u64, u64, *mut u64) -> c_int;
    fn cactus_graph_masked_scatter(*mut c_void, u64, u64, u64, *mut u64) -> c_int;
    fn cactus_graph_precision_cast(*mut c_void, u64, c_int, *mut u64) -> c_int;
    fn cactus_graph_quantize_activations(*mut c_void, u64, *mut u64) -> c_int;
    fn cactus_graph_create() -> *mut c_void;
    fn cactus_graph_destroy(*mut c_void);
    fn cactus_graph_hard_reset(*mut c_void) -> c_int;
    fn cactus_graph_save(*mut c_void, *const c_char) -> c_int;
    fn cactus_graph_load(*const c_char) -> *mut c_void;
    fn cactus_graph_set_node_backend(*mut c_void, u64, c_int) -> c_int;
    fn cactus_graph_get_output_info(*mut c_void, u64, *mut cactus_tensor_info_t) -> c_int;
    fn cactus_graph_get_node_op_type(*mut c_void, u64, *mut c_int) -> c_int;
    fn cactus_graph_get_node_inputs(*mut c_void, u64, *mut u64, *mut usize) -> c_int;
    fn cactus_graph_retain_outputs(*mut c_void, *const u64, usize) -> c_int;
    fn cactus_graph_matmul(*mut c_void, u64, u64, bool, *mut u64) -> c_int;
    fn cactus_graph_moe_layer_gated(
        *mut c_void, u64, u64, u64, *const u64, *const u64, *const u64, usize, usize, bool, f32, f32, c_int, *mut u64
    ) -> c_int;
    fn cactus_graph_moe_layer_ungated(
        *mut c_void, u64, u64, u64, *const u64, *const u64, usize, usize, bool, f32, f32, c_int, *mut u64
    ) -> c_int;
    fn cactus_graph_dense_mlp_tq_fused(*mut c_void, u64, u64, u64, u64, f32, f32, *mut u64) -> c_int;
    fn cactus_graph_qkv_tq_fused(*mut c_void, u64, u64, u64, u64, *mut u64) -> c_int;
    fn cactus_graph_projection_pair_tq_fused(*mut c_void, u64, u64, u64, *mut u64) -> c_int;
    fn cactus_graph_logits_tq_softcap(*mut c_void, u64, u64, f32, f32, *mut u64) -> c_int;
    fn cactus_graph_altup_predict(*mut c_void, u64, *const u64, usize, *mut u64) -> c_int;
    fn cactus_graph_altup_correct(*mut c_void, u64, u64, *const u64, usize, *mut u64) -> c_int;
    fn cactus_graph_sample(*mut c_void, u64, f32, f32, usize, *mut u64) -> c_int;
    fn cactus_graph_sum(*mut c_void, u64, c_int, *mut u64) -> c_int;
    fn cactus_graph_mean(*mut c_void, u64, c_int, *mut u64) -> c_int;
    fn cactus_graph_variance(*mut c_void, u64, c_int, *mut u64) -> c_int;
    fn cactus_graph_min(*mut c_void, u64, c_int, *mut u64) -> c_int;
    fn cactus_graph_max(*mut c_void, u64, c_int, *mut u64) -> c_int;
    fn cactus_graph_cumsum(*mut c_void, u64, c_int, *mut u64) -> c_int;
    fn cactus_graph_softmax(*mut c_void, u64, c_int, *mut u64) -> c_int;
    fn cactus_graph_glu(*mut c_void, u64, c_int, *mut u64) -> c_int;
    fn cactus_graph_gaussian_topk(*mut c_void, u64, f32, *mut u64) -> c_int;
    fn cactus_graph_rms_norm(*mut c_void, u64, u64, f32, *mut u64) -> c_int;
    fn cactus_graph_layernorm(*mut c_void, u64, u64, u64, f32, bool, *mut u64) -> c_int;
    fn cactus_graph_groupnorm(*mut c_void, u64, u64, u64, usize, f32, *mut u64) -> c_int;
    fn cactus_graph_batchnorm(*mut c_void, u64, u64, u64, u64, u64, c_int, f32, *mut u64) -> c_int;
    fn cactus_graph_input(*mut c_void, *const usize, usize, c_int, *mut u64) -> c_int;
    fn cactus_graph_set_input(*mut c_void, u64, *const c_void, c_int) -> c_int;
    fn cactus_graph_set_external_input(*mut c_void, u64, *mut c_void, c_int) -> c_int;
    fn cactus_graph_mark_embedded_input(*mut c_void, u64) -> c_int;
    fn cactus_graph_set_input_dynamic_dims(*mut c_void, u64, *const u8, usize) -> c_int;
    fn cactus_graph_set_runtime_input_shape(*mut c_void, u64, *const usize, usize) -> c_int;
    fn cactus_graph_execute(*mut c_void) -> c_int;
    fn cactus_graph_get_output_ptr(*mut c_void, u64, *mut *mut c_void) -> c_int;
    fn cactus_graph_scalar_add(*mut c_void, u64, f32, *mut u64) -> c_int;
    fn cactus_graph_scalar_subtract(*mut c_void, u64, f32, *mut u64) -> c_int;
    fn cactus_graph_scalar_multiply(*mut c_void, u64, f32, *mut u64) -> c_int;
    fn cactus_graph_scalar_divide(*mut c_void, u64, f32, *mut u64) -> c_int;
    fn cactus_graph_scalar_floor_divide(*mut c_void, u64, f32, *mut u64) -> c_int;
    fn cactus_graph_scalar_not_equal(*mut c_void, u64, f32, *mut u64) -> c_int;
    fn cactus_graph_scalar_equal(*mut c_void, u64, f32, *mut u64) -> c_int;
    fn cactus_graph_scalar_less(*mut c_void, u64, f32, *mut u64) -> c_int;
    fn cactus_graph_scalar_less_equal(*mut c_void, u64, f32, *mut u64) -> c_int;
    fn cactus_graph_scalar_greater(*mut c_void, u64, f32, *mut u64) -> c_int;
    fn cactus_graph_scalar_greater_equal(*mut c_void, u64, f32, *mut u64) -> c_int;
    fn cactus_graph_pow(*mut c_void, u64, f32, *mut u64) -> c_int;
    fn cactus_graph_scalar_exp(*mut c_void, u64, *mut u64) -> c_int;
    fn cactus_graph_scalar_sqrt(*mut c_void, u64, *mut u64) -> c_int;
    fn cactus_graph_scalar_cos(*mut c_void, u64, *mut u64) -> c_int;
    fn cactus_graph_scalar_sin(*mut c_void, u64, *mut u64) -> c_int;
    fn cactus_graph_scalar_log(*mut c_void, u64, *mut u64) -> c_int;
    fn cactus_graph_abs(*mut c_void, u64, *mut u64) -> c_int;
    fn cactus_graph_relu(*mut c_void, u64, *mut u64) -> c_int;
    fn cactus_graph_silu(*mut c_void, u64, *mut u64) -> c_int;
    fn cactus_graph_gelu(*mut c_void, u64, *mut u64) -> c_int;
    fn cactus_graph_gelu_erf(*mut c_void, u64, *mut u64) -> c_int;
    fn cactus_graph_sigmoid(*mut c_void, u64, *mut u64) -> c_int;
    fn cactus_graph_tanh(*mut c_void, u64, *mut u64) -> c_int;
    fn cactus_graph_logical_not(*mut c_void, u64, *mut u64) -> c_int;
    fn cactus_graph_bitwise_not(*mut c_void, u64, *mut u64) -> c_int;
    fn cactus_graph_view(*mut c_void, u64, *const usize, usize, *mut u64) -> c_int;
    fn cactus_graph_reshape(*mut c_void, u64, *const usize, usize, *mut u64) -> c_int;
    fn cactus_graph_expand(*mut c_void, u64, *const usize, usize, *mut u64) -> c_int;
    fn cactus_graph_transpose_n(*mut c_void, u64, *const usize, usize, *mut u64) -> c_int;
    fn cactus_graph_transpose(*mut c_void, u64, *mut u64) -> c_int;
    fn cactus_graph_flatten(*mut c_void, u64, c_int, c_int, *mut u64) -> c_int;
    fn cactus_graph_slice(*mut c_void, u64, c_int, usize, usize, *mut u64) -> c_int;
    fn cactus_graph_strided_slice(*mut c_void, u64, c_int, usize, usize, usize, *mut u64) -> c_int;
    fn cactus_graph_index(*mut c_void, u64, usize, c_int, *mut u64) -> c_int;
    fn cactus_graph_unfold(*mut c_void, u64, c_int, usize, usize, *mut u64) -> c_int;
    fn cactus_graph_pad(*mut c_void, u64, *const usize, usize, f32, *mut u64) -> c_int;
    fn cactus_graph_concat(*mut c_void, u64, u64, c_int, *mut u64) -> c_int;
    fn cactus_graph_cat(*mut c_void, *const u64, usize, c_int, *mut u64) -> c_int;
    fn cactus_graph_gather(*mut c_void, u64, u64, *mut u64) -> c_int;
    fn cactus_graph_gather_dim(*mut c_void, u64, u64, c_int, *mut u64) -> c_int;
    fn cactus_graph_embedding_from_tensor(*mut c_void, u64, u64, *mut u64) -> c_int;
    fn cactus_graph_topk(*mut c_void, u64, usize, *mut u64) -> c_int;
    fn cactus_graph_scatter_topk(*mut c_void, u64, u64, usize, *mut u64) -> c_int;
    fn cactus_graph_stft(*mut c_void, u64, u64, usize, usize, *mut u64) -> c_int;
    fn cactus_graph_rfft(*mut c_void, u64, *mut u64) -> c_int;
    fn cactus_graph_irfft(*mut c_void, u64, usize, *mut u64) -> c_int;
    fn cactus_graph_mel_filter_bank(*mut c_void, usize, usize, f32, f32, usize, c_int, c_int, *mut u64) -> c_int;
    fn cactus_graph_spectrogram(
        *mut c_void, u64, u64, usize, usize, usize, f32, bool, c_int, f32, c_int, f32, f32, bool, *mut u64
    ) -> c_int;
    fn cactus_graph_image_preprocess(
        *mut c_void, u64, c_int, c_int, c_int, c_int, c_int, c_int, f32, *const f32, *const f32, *mut u64
    ) -> c_int;
    fn cactus_graph_bilinear_interpolation(*mut c_void, u64, usize, usize, *mut u64) -> c_int;
    fn cactus_graph_kv_cache_state(*mut c_void, usize, usize, usize, usize, usize, usize, *mut u64) -> c_int;
    fn cactus_graph_kv_cache_append(*mut c_void, u64, u64, usize, usize, *mut u64) -> c_int;
    fn cactus_graph_conv_cache_state(*mut c_void, usize, usize, *mut u64) -> c_int;
    fn cactus_graph_conv_cache_append(*mut c_void, u64, u64, *mut u64) -> c_int;
    fn cactus_graph_conv_cache_initialize(*mut c_void, u64, u64, *mut u64) -> c_int;
    fn cactus_graph_recurrent_cache_write(*mut c_void, u64, u64, *mut u64) -> c_int;
    fn cactus_graph_persistent(*mut c_void, u64, *mut u64) -> c_int;
    fn cactus_graph_recurrent_cache_state(*mut c_void, *const usize, usize, c_int, *mut u64) -> c_int;
    fn cactus_graph_is_populated(*mut c_void, u64, *mut c_int) -> c_int;
    fn cactus_graph_invalidate_persistent(*mut c_void, u64) -> c_int;
    fn cactus_graph_mmap_weights(*mut c_void, *const c_char, *mut u64) -> c_int;
    fn cactus_graph_mmap_embeddings(*mut c_void, *const c_char, *mut u64) -> c_int;
    fn cactus_graph_embedding_from_file(*mut c_void, *const c_char, u64, *mut u64) -> c_int;
    fn cactus_graph_bind_mmap_weights(*mut c_void, u64, *const c_char) -> c_int;
    fn cactus_graph_set_grouped_scales(*mut c_void, u64, usize, usize, *const c_void) -> c_int;
    fn cactus_graph_set_interleaved(*mut c_void, u64, bool, usize) -> c_int;
    fn cactus_graph_release_weight_pages(*mut c_void, u64) -> c_int;
    fn cactus_graph_prefetch_weight_pages(*mut c_void, u64) -> c_int;
    fn cactus_graph_release_all_weight_pages(*mut c_void) -> c_int;
}
