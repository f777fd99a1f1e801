//! The functions of vectors, indexes and documents.

use std::ffi::{c_char, c_float, c_int, c_void};

functions! { "search":
    fn cactus_embed(*mut c_void, *const c_char, *mut c_float, usize, *mut usize, bool) -> c_int;
    fn cactus_image_embed(*mut c_void, *const c_char, *mut c_float, usize, *mut usize) -> c_int;
    fn cactus_index_init(*const c_char, usize) -> *mut c_void;
    fn cactus_index_add(
        *mut c_void, *const c_int, *const *const c_char, *const *const c_char, *const *const c_float, usize, usize
    ) -> c_int;
    fn cactus_index_delete(*mut c_void, *const c_int, usize) -> c_int;
    fn cactus_index_get(
        *mut c_void, *const c_int, usize, *mut *mut c_char, *mut usize, *mut *mut c_char, *mut usize,
        *mut *mut c_float, *mut usize
    ) -> c_int;
    fn cactus_index_query(
        *mut c_void, *const *const c_float, usize, usize, *const c_char, *mut *mut c_int, *mut usize,
        *mut *mut c_float, *mut usize
    ) -> c_int;
    fn cactus_index_compact(*mut c_void) -> c_int;
    fn cactus_index_destroy(*mut c_void);
    fn cactus_rag_query(*mut c_void, *const c_char; *mut c_char, usize; usize) -> c_int;
}
