//! Every graph function with any arguments: an error or a node, never anything else. Graphs of calls that were drawn are executed,
//! read and saved.
#![cfg(feature = "graphs")]

use cactus_ffi::*;
use proptest::prelude::*;
use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int, c_void};
use std::ptr;

/// Elements of the arrays that functions are lent; sizes and counts that are drawn are smaller.
const ROOM: usize = 16;
/// Sizes of axes are so small that an input of any shape fits the memory that is lent.
const MOST_AXIS: usize = 3;
const BYTES: usize = 64 << 10;

/// Where arguments come from.
enum Draw<'a> {
    /// Null pointers and zeros.
    Nothing,
    /// The largest numbers, and no arrays.
    Huge,
    /// What the bytes say.
    Bytes(&'a mut dyn Iterator<Item = u8>),
}

/// Arguments of one call, and the memory that they point to.
struct Lent<'a> {
    draw: Draw<'a>,
    nodes: u64,
    sizes: Vec<usize>,
    numbers: [u64; ROOM],
    floats: Vec<f32>,
    small: Vec<i8>,
    data: Vec<u8>,
    path: CString,
    node: u64,
    count: usize,
    int: c_int,
    pointer: *mut c_void,
    info: cactus_tensor_info_t,
}

impl Lent<'_> {
    fn byte(&mut self) -> u64 {
        match &mut self.draw {
            Draw::Bytes(bytes) => bytes.next().unwrap_or(0).into(),
            _ => 0,
        }
    }

    fn pick<T>(&mut self, nothing: T, huge: T, drawn: impl FnOnce(&mut Self) -> T) -> T {
        match self.draw {
            Draw::Nothing => nothing,
            Draw::Huge => huge,
            Draw::Bytes(_) => drawn(self),
        }
    }

    fn node(&mut self) -> u64 {
        self.pick(0, u64::MAX, |l| l.byte() % (l.nodes + 2))
    }

    fn size(&mut self) -> usize {
        self.pick(0, usize::MAX, |l| l.byte() as usize % ROOM)
    }

    fn float(&mut self) -> f32 {
        self.pick(0.0, f32::NAN, |l| (l.byte() as f32 - 100.0) / 16.0)
    }

    fn flag(&mut self) -> bool {
        self.pick(false, true, |l| l.byte() % 2 == 1)
    }

    fn int(&mut self) -> c_int {
        self.pick(0, c_int::MAX, |l| l.byte() as c_int % 11 - 2)
    }

    fn sizes(&mut self) -> *const usize {
        let drawn: Vec<usize> = (0..ROOM).map(|_| self.byte() as usize % (MOST_AXIS + 1)).collect();
        self.sizes.copy_from_slice(&drawn);
        self.pick(ptr::null(), ptr::null(), |l| l.sizes.as_ptr())
    }

    fn nodes(&mut self) -> *const u64 {
        for i in 0..ROOM {
            self.numbers[i] = self.byte() % (self.nodes + 1);
        }
        self.pick(ptr::null(), ptr::null(), |l| l.numbers.as_ptr())
    }

    fn floats(&mut self) -> *const f32 {
        self.pick(ptr::null(), ptr::null(), |l| l.floats.as_ptr())
    }

    fn bytes(&mut self) -> *const i8 {
        self.pick(ptr::null(), ptr::null(), |l| l.small.as_ptr())
    }

    fn axes(&mut self) -> *const u8 {
        self.pick(ptr::null(), ptr::null(), |l| l.data.as_ptr())
    }

    fn data(&mut self) -> *const c_void {
        self.pick(ptr::null(), ptr::null(), |l| l.data.as_ptr().cast())
    }

    fn memory(&mut self) -> *mut c_void {
        self.data().cast_mut()
    }

    fn path(&mut self) -> *const c_char {
        self.pick(ptr::null(), c"".as_ptr(), |l| l.path.as_ptr())
    }

    fn out(&mut self) -> *mut u64 {
        let out = &raw mut self.node;
        self.pick(ptr::null_mut(), out, |_| out)
    }

    /// Room for nodes that are written.
    fn list(&mut self) -> *mut u64 {
        let list = self.numbers.as_mut_ptr();
        self.pick(ptr::null_mut(), list, |_| list)
    }

    fn int_out(&mut self) -> *mut c_int {
        let out = &raw mut self.int;
        self.pick(ptr::null_mut(), out, |_| out)
    }

    fn size_out(&mut self) -> *mut usize {
        self.count = 1;
        let out = &raw mut self.count;
        self.pick(ptr::null_mut(), out, |_| out)
    }

    fn pointer(&mut self) -> *mut *mut c_void {
        let out = &raw mut self.pointer;
        self.pick(ptr::null_mut(), out, |_| out)
    }

    fn info(&mut self) -> *mut cactus_tensor_info_t {
        let out = &raw mut self.info;
        self.pick(ptr::null_mut(), out, |_| out)
    }
}

type Call = fn(*mut c_void, &mut Lent<'_>) -> c_int;

macro_rules! calls {
    ($($name:ident($($kind:ident)*);)*) => {
        &[$((stringify!($name), |graph, lent| {
            let _ = &lent;
            // SAFETY: every pointer is null or to memory of `lent`, which is as large as any argument that is drawn says.
            unsafe { $name(graph, $(lent.$kind()),*) }
        })),*]
    };
}

/// Every function, with the kinds of its arguments.
static CALLS: &[(&str, Call)] = calls! {
    cactus_graph_hard_reset();
    cactus_graph_save(path);
    cactus_graph_set_node_backend(node int);
    cactus_graph_get_output_info(node info);
    cactus_graph_get_node_op_type(node int_out);
    cactus_graph_get_node_inputs(node list size_out);
    cactus_graph_retain_outputs(nodes size);
    cactus_graph_input(sizes size int out);
    cactus_graph_set_input(node data int);
    cactus_graph_set_external_input(node memory int);
    cactus_graph_mark_embedded_input(node);
    cactus_graph_set_input_dynamic_dims(node axes size);
    cactus_graph_set_runtime_input_shape(node sizes size);
    cactus_graph_execute();
    cactus_graph_get_output_ptr(node pointer);
    cactus_graph_mmap_weights(path out);
    cactus_graph_mmap_embeddings(path out);
    cactus_graph_embedding_from_file(path node out);
    cactus_graph_bind_mmap_weights(node path);
    cactus_graph_set_grouped_scales(node size size data);
    cactus_graph_set_interleaved(node flag size);
    cactus_graph_release_weight_pages(node);
    cactus_graph_prefetch_weight_pages(node);
    cactus_graph_release_all_weight_pages();
    cactus_graph_add(node node out);
    cactus_graph_add_clipped(node node out);
    cactus_graph_subtract(node node out);
    cactus_graph_multiply(node node out);
    cactus_graph_divide(node node out);
    cactus_graph_not_equal(node node out);
    cactus_graph_equal(node node out);
    cactus_graph_less(node node out);
    cactus_graph_less_equal(node node out);
    cactus_graph_greater(node node out);
    cactus_graph_greater_equal(node node out);
    cactus_graph_bitwise_and(node node out);
    cactus_graph_bitwise_or(node node out);
    cactus_graph_where(node node node out);
    cactus_graph_clamp(node float float out);
    cactus_graph_masked_select_prefix(node node out);
    cactus_graph_masked_scatter(node node node out);
    cactus_graph_precision_cast(node int out);
    cactus_graph_quantize_activations(node out);
    cactus_graph_scalar_add(node float out);
    cactus_graph_scalar_subtract(node float out);
    cactus_graph_scalar_multiply(node float out);
    cactus_graph_scalar_divide(node float out);
    cactus_graph_scalar_floor_divide(node float out);
    cactus_graph_scalar_not_equal(node float out);
    cactus_graph_scalar_equal(node float out);
    cactus_graph_scalar_less(node float out);
    cactus_graph_scalar_less_equal(node float out);
    cactus_graph_scalar_greater(node float out);
    cactus_graph_scalar_greater_equal(node float out);
    cactus_graph_pow(node float out);
    cactus_graph_scalar_exp(node out);
    cactus_graph_scalar_sqrt(node out);
    cactus_graph_scalar_cos(node out);
    cactus_graph_scalar_sin(node out);
    cactus_graph_scalar_log(node out);
    cactus_graph_abs(node out);
    cactus_graph_relu(node out);
    cactus_graph_silu(node out);
    cactus_graph_gelu(node out);
    cactus_graph_gelu_erf(node out);
    cactus_graph_sigmoid(node out);
    cactus_graph_tanh(node out);
    cactus_graph_logical_not(node out);
    cactus_graph_bitwise_not(node out);
    cactus_graph_view(node sizes size out);
    cactus_graph_reshape(node sizes size out);
    cactus_graph_expand(node sizes size out);
    cactus_graph_transpose_n(node sizes size out);
    cactus_graph_transpose(node out);
    cactus_graph_flatten(node int int out);
    cactus_graph_slice(node int size size out);
    cactus_graph_strided_slice(node int size size size out);
    cactus_graph_index(node size int out);
    cactus_graph_unfold(node int size size out);
    cactus_graph_pad(node sizes size float out);
    cactus_graph_concat(node node int out);
    cactus_graph_cat(nodes size int out);
    cactus_graph_gather(node node out);
    cactus_graph_gather_dim(node node int out);
    cactus_graph_embedding_from_tensor(node node out);
    cactus_graph_topk(node size out);
    cactus_graph_scatter_topk(node node size out);
    cactus_graph_sum(node int out);
    cactus_graph_mean(node int out);
    cactus_graph_variance(node int out);
    cactus_graph_min(node int out);
    cactus_graph_max(node int out);
    cactus_graph_cumsum(node int out);
    cactus_graph_softmax(node int out);
    cactus_graph_glu(node int out);
    cactus_graph_gaussian_topk(node float out);
    cactus_graph_rms_norm(node node float out);
    cactus_graph_layernorm(node node node float flag out);
    cactus_graph_groupnorm(node node node size float out);
    cactus_graph_batchnorm(node node node node node int float out);
    cactus_graph_matmul(node node flag out);
    cactus_graph_moe_layer_gated(node node node nodes nodes nodes size size flag float float int out);
    cactus_graph_moe_layer_ungated(node node node nodes nodes size size flag float float int out);
    cactus_graph_dense_mlp_tq_fused(node node node node float float out);
    cactus_graph_qkv_tq_fused(node node node node out);
    cactus_graph_projection_pair_tq_fused(node node node out);
    cactus_graph_logits_tq_softcap(node node float float out);
    cactus_graph_altup_predict(node nodes size out);
    cactus_graph_altup_correct(node node nodes size out);
    cactus_graph_sample(node float float size out);
    cactus_graph_rope(node float size out);
    cactus_graph_rope_gptj(node float size size out);
    cactus_graph_attention(node node node float flag size size flag node flag out);
    cactus_graph_attention_cached(node node node node node float size size size out);
    cactus_graph_attention_cached_masked(node node node node node float size size size flag node flag out);
    cactus_graph_rel_pos_bias(node node float out);
    cactus_graph_rel_pos_attention(node node node node node flag node float size out);
    cactus_graph_attention_int8_hybrid(node node node float size bytes bytes floats floats size size size size out);
    cactus_graph_conv1d(node node flag node size out);
    cactus_graph_conv1d_depthwise(node node flag node size out);
    cactus_graph_conv1d_k3(node node size out);
    cactus_graph_conv1d_k7s3(node node node out);
    cactus_graph_conv1d_causal(node node size size out);
    cactus_graph_conv1d_causal_channel_first(node node size size out);
    cactus_graph_conv1d_same_depthwise_k9(node node flag node out);
    cactus_graph_conv1d_pointwise(node node flag node out);
    cactus_graph_conv2d_k3s2p1(node node flag node out);
    cactus_graph_conv2d_k3s1p1(node node flag node out);
    cactus_graph_conv2d_depthwise_k3s2p1(node node flag node out);
    cactus_graph_conv2d_pointwise_1x1(node node flag node out);
    cactus_graph_conv2d(node node flag node size size size size out);
    cactus_graph_lstm_cell(node node node node node node node out);
    cactus_graph_gated_deltanet_decode(node node node node node node float out);
    cactus_graph_gated_deltanet_prefill(node node node node node node size float out);
    cactus_graph_stft(node node size size out);
    cactus_graph_rfft(node out);
    cactus_graph_irfft(node size out);
    cactus_graph_mel_filter_bank(size size float float size int int out);
    cactus_graph_spectrogram(node node size size size float flag int float int float float flag out);
    cactus_graph_image_preprocess(node int int int int int int float floats floats out);
    cactus_graph_bilinear_interpolation(node size size out);
    cactus_graph_kv_cache_state(size size size size size size out);
    cactus_graph_kv_cache_append(node node size size out);
    cactus_graph_conv_cache_state(size size out);
    cactus_graph_conv_cache_append(node node out);
    cactus_graph_conv_cache_initialize(node node out);
    cactus_graph_recurrent_cache_write(node node out);
    cactus_graph_persistent(node out);
    cactus_graph_recurrent_cache_state(sizes size int out);
    cactus_graph_is_populated(node int_out);
    cactus_graph_invalidate_persistent(node);
};

thread_local! {
    static FOLDER: RefCell<Option<tempfile::TempDir>> = const { RefCell::new(None) };
}

fn lent(draw: Draw<'_>, nodes: u64) -> Lent<'_> {
    let path = FOLDER.with_borrow_mut(|folder| {
        let folder = folder.get_or_insert_with(|| tempfile::tempdir().unwrap());
        CString::new(folder.path().join("graph").to_str().unwrap()).unwrap()
    });
    Lent {
        draw,
        nodes,
        sizes: vec![0; ROOM],
        numbers: [0; ROOM],
        floats: (0..ROOM.pow(3)).map(|i| i as f32 / 64.0).collect(),
        small: (0..ROOM.pow(3)).map(|i| i as i8).collect(),
        data: (0..BYTES).map(|i| (i % 60) as u8).collect(),
        path,
        node: 0,
        count: 0,
        int: 0,
        pointer: ptr::null_mut(),
        info: cactus_tensor_info_t {
            precision: 0,
            rank: 0,
            shape: [0; 8],
            num_elements: 0,
            byte_size: 0,
        },
    }
}

/// A graph, ended when dropped.
struct Graph(*mut c_void);

/// What the last call that failed on this thread said. A panic is a defect.
fn last_error() -> String {
    // SAFETY: it takes nothing, and gives a text that holds until the next failure.
    let said = unsafe { std::ffi::CStr::from_ptr(cactus_get_last_error()) };
    said.to_string_lossy().into_owned()
}

impl Graph {
    fn new() -> Graph {
        // SAFETY: it takes nothing.
        Graph(unsafe { cactus_graph_create() })
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        // SAFETY: any handle may be given.
        unsafe { cactus_graph_destroy(self.0) };
    }
}

#[test]
fn every_function_refuses_what_is_no_graph_and_what_is_nothing() {
    assert_eq!(CALLS.len(), 151);
    let (graph, closed) = (Graph::new(), Graph::new().0);
    // What needs no argument but the graph, or none that cannot be 0.
    let fine = ["hard_reset", "execute", "retain_outputs", "release_all_weight_pages"];
    for (name, call) in CALLS {
        for handle in [ptr::null_mut(), closed, ptr::without_provenance_mut(12345)] {
            for draw in [Draw::Nothing, Draw::Huge] {
                assert_eq!(call(handle, &mut lent(draw, 0)), -1, "{name}");
            }
        }
        let all_fine = fine.iter().any(|f| name.ends_with(f));
        let found = call(graph.0, &mut lent(Draw::Nothing, 0));
        assert_eq!(found == 0, all_fine, "{name} of nothing");
        let found = call(graph.0, &mut lent(Draw::Huge, 0));
        assert!(found == -1 || all_fine, "{name} of huge numbers gives {found}");
    }
}

#[test]
fn every_function_has_a_row_in_the_documentation() {
    let page = include_str!("../../../docs/reference/c-abi-graph.md");
    let all = CALLS.iter().map(|(name, _)| *name);
    for name in all.chain(["cactus_graph_create", "cactus_graph_destroy", "cactus_graph_load"]) {
        let row = name.strip_prefix("cactus_graph_").map(|short| format!("| `{short}` |"));
        assert!(row.is_some_and(|row| page.contains(&row)), "{name}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn drawn_calls_give_nodes_or_errors(bytes in prop::collection::vec(any::<u8>(), 0..1500)) {
        let graph = Graph::new();
        let mut bytes = bytes.into_iter();
        let mut nodes = 0;
        let mut kept = Vec::new();
        while let (Some(a), Some(b)) = (bytes.next(), bytes.next()) {
            // Inputs come often, so that there is something to read.
            let at = match a {
                0..64 => CALLS.iter().position(|(name, _)| *name == "cactus_graph_input").unwrap(),
                64..88 => CALLS.iter().position(|(name, _)| *name == "cactus_graph_set_input").unwrap(),
                _ => (usize::from(a) * 256 + usize::from(b)) % CALLS.len(),
            };
            let mut lent = lent(Draw::Bytes(&mut bytes), nodes);
            let result = CALLS[at].1(graph.0, &mut lent);
            prop_assert!((-2..=0).contains(&result), "{} gives {result}", CALLS[at].0);
            let said = last_error();
            prop_assert!(result == 0 || !said.is_empty() && !said.contains("defect"), "{}: {said}", CALLS[at].0);
            if result == 0 && lent.node >= nodes {
                nodes = lent.node + 1;
            }
            // External inputs read this memory later.
            kept.push((lent.data, lent.sizes));
        }
        let data = vec![0u8; BYTES];
        // SAFETY: any handle, and memory of this function.
        unsafe {
            for node in 0..nodes {
                cactus_graph_set_input(graph.0, node, data.as_ptr().cast(), 2);
            }
            let result = cactus_graph_execute(graph.0);
            prop_assert!(result == 0 || !last_error().contains("defect") && !last_error().contains("bug"), "{}", last_error());
            let mut pointer = ptr::null_mut();
            for node in 0..nodes {
                if cactus_graph_get_output_ptr(graph.0, node, &raw mut pointer) == 0 {
                    prop_assert!(!pointer.is_null());
                }
            }
            let path = lent(Draw::Nothing, 0).path;
            if cactus_graph_save(graph.0, path.as_ptr()) == 0 {
                let again = Graph(cactus_graph_load(path.as_ptr()));
                prop_assert!(!again.0.is_null(), "what was saved is loaded");
            }
        }
        drop(kept);
    }
}
