//! What C is told of a node of a graph, in every build.

/// What is known of a node.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(non_camel_case_types, reason = "the name of the public header")]
pub struct cactus_tensor_info_t {
    /// 0 INT8, 1 FP16, 2 FP32, 3 to 6 codebook indices of 1 to 4 bits.
    pub precision: i32,
    /// How many sizes count.
    pub rank: usize,
    /// Sizes of the axes; 0 behind the last.
    pub shape: [usize; 8],
    /// Elements.
    pub num_elements: usize,
    /// Bytes of the elements.
    pub byte_size: usize,
}
