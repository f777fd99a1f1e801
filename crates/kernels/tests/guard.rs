//! Operands that end where memory ends, and operands at odd addresses: nothing is read or written beyond them, and the bits
//! are those of memory that is aligned and has neighbors.
#![cfg(unix)]

mod support;

use bytemuck::Pod;
use cactus_base::{AlignedBuf, Pool, Step};
use cactus_kernels::dense::{Form, Window, block_elems};
use cactus_kernels::{
    Activations, Attention, Epilogue, Exec, Kernels, KvDType, KvLayout, KvRun, QuantizedRows, RotatedRows,
};
use cactus_quant::{PackedView, Packing, pack};
use cactus_testkit::noise;
use std::ptr::NonNull;
use support::{Random, products::linear};

/// Elements that end right before a page which nobody may touch.
struct Guarded<T> {
    mapping: NonNull<u8>,
    mapped_bytes: usize,
    start: NonNull<T>,
    len: usize,
}

impl<T: Pod> Guarded<T> {
    fn copy(from: &[T]) -> Self {
        // SAFETY: sysconf has no preconditions.
        let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap();
        let bytes = size_of_val(from);
        let open = bytes.next_multiple_of(page);
        let mapped_bytes = open + page;
        let (access, kind) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
        );
        // SAFETY: a fresh anonymous mapping where the system likes touches no memory that is in use.
        let mapping = unsafe { libc::mmap(std::ptr::null_mut(), mapped_bytes, access, kind, -1, 0) };
        assert!(mapping != libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
        let mapping = NonNull::new(mapping.cast::<u8>()).unwrap();
        // SAFETY: both lie in the mapping: its last page, and the bytes before it. The latter are zeros until they are
        // copied, which are a value of every `Pod`, and aligned as pages are and sizes divide.
        let start = unsafe {
            assert_eq!(
                libc::mprotect(mapping.add(open).as_ptr().cast(), page, libc::PROT_NONE),
                0
            );
            let start = mapping.add(open - bytes).cast::<T>();
            std::slice::from_raw_parts_mut(start.as_ptr(), from.len()).copy_from_slice(from);
            start
        };
        Self {
            mapping,
            mapped_bytes,
            start,
            len: from.len(),
        }
    }

    fn get(&mut self) -> &mut [T] {
        // SAFETY: as in `copy`; borrowed as long as `self`.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl<T> Drop for Guarded<T> {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping made in `copy`.
        unsafe { libc::munmap(self.mapping.as_ptr().cast(), self.mapped_bytes) };
    }
}

fn packings() -> impl Iterator<Item = Packing> {
    let floats = [
        Packing::RowMajor,
        Packing::Int8G32,
        Packing::Int8N16,
        Packing::F16N16,
        Packing::F32N16,
    ];
    let codebooks = Packing::ALL.into_iter().filter(|p| p.codebook_bits().is_some());
    floats.into_iter().chain(codebooks)
}

#[test]
fn products_stay_within_their_operands() {
    let pool = Pool::new(2);
    for packing in packings() {
        for (n, k) in [(1, 1), (15, 31), (16, 32), (17, 33), (33, 129), (48, 256)] {
            let packed = pack(packing, n, k, &noise(n * k, 5)).unwrap();
            let mut data = Guarded::copy(packed.data());
            let w = PackedView::new(packing, n, k, packed.scales(), data.get()).unwrap();
            for rows in [1, 2, 5, 8, 9] {
                let x = noise(rows * k, 6);
                let mut guarded_x = Guarded::copy(&x);
                let words = QuantizedRows::bytes(rows, k).max(RotatedRows::bytes(rows, k)).unwrap() / 4;
                for kernels in Kernels::available() {
                    for step in [Step::inline(), pool.step(2)] {
                        let exec = Exec { kernels, step: &step };
                        let mut expected = vec![0.0; rows * n];
                        linear(exec, &packed.view(), &x, rows, Epilogue::default(), &mut expected);
                        let mut out = Guarded::copy(&vec![f32::NAN; rows * n]);
                        let mut memory = Guarded::copy(&vec![u32::MAX; words]);
                        let bytes = bytemuck::cast_slice_mut::<u32, u8>(memory.get());
                        let x = &*guarded_x.get();
                        let x = if packing == Packing::Int8G32 {
                            let start = bytes.len() - QuantizedRows::bytes(rows, k).unwrap();
                            exec.quantize_rows(x, rows, k, &mut QuantizedRows::new(&mut bytes[start..], rows, k));
                            Activations::Q8(QuantizedRows::new(&mut bytes[start..], rows, k))
                        } else if packing.codebook_bits().is_some() {
                            let start = bytes.len() - RotatedRows::bytes(rows, k).unwrap();
                            exec.rotate_rows(x, rows, k, &mut RotatedRows::new(&mut bytes[start..], rows, k));
                            Activations::Rotated(RotatedRows::new(&mut bytes[start..], rows, k))
                        } else {
                            Activations::F32(x)
                        };
                        exec.linear(&w, x, rows, Epilogue::default(), out.get());
                        assert_eq!(out.get(), expected, "{packing} {n}x{k} rows {rows} {}", kernels.tier());
                    }
                }
            }
        }
    }
}

#[test]
fn convolutions_on_integers_stay_within_their_operands() {
    let pool = Pool::new(2);
    // Places, taps, stride and zeros before of two axes.
    for (size, kernel, stride, before) in [([9, 11], [3, 3], 1, 1), ([8, 7], [1, 1], 2, 0), ([1, 40], [1, 2], 1, 0)] {
        let out = |axis: usize| (size[axis] + 2 * before - kernel[axis]) / stride + 1;
        let w = Window {
            size: [1, size[0], size[1]],
            out: [1, out(0), out(1)],
            kernel: [1, kernel[0], kernel[1]],
            stride: [1, stride, stride],
            before: [0, before, before],
            dilation: [1; 3],
        };
        let (places, windows, taps) = (size[0] * size[1], out(0) * out(1), kernel[0] * kernel[1]);
        for (channels, filters) in [(16, 5), (32, 40), (272, 80)] {
            let k = channels * taps;
            let packed = pack(Packing::Int8N16, filters, k, &noise(filters * k, 5)).unwrap();
            let mut data = Guarded::copy(packed.data());
            let view = PackedView::new(Packing::Int8N16, filters, k, &[], data.get()).unwrap();
            for forms in [[Form::Planes; 2], [Form::Blocks; 2]] {
                let elems = |n: usize, places: usize, form| match form {
                    Form::Planes => n * places,
                    Form::Blocks => block_elems(n, places),
                };
                let mut x = Guarded::copy(&noise(elems(channels, places, forms[0]), 6));
                for kernels in Kernels::available() {
                    for step in [Step::inline(), pool.step(2)] {
                        let exec = Exec { kernels, step: &step };
                        let scratch = exec.conv_integers_scratch_elems(&w, &view);
                        let mut scratch = Guarded::copy(&vec![f32::NAN; scratch]);
                        let mut out = Guarded::copy(&vec![f32::NAN; elems(filters, windows, forms[1])]);
                        let epilogue = Epilogue::default();
                        exec.conv_integers(&w, 1, forms, x.get(), &view, epilogue, scratch.get(), out.get());
                        assert!(out.get().iter().all(|x| x.is_finite()), "{w:?} {channels} {filters}");
                    }
                }
            }
        }
    }
}

#[test]
fn weights_and_activations_at_odd_addresses_give_equal_bits() {
    let (n, k, rows) = (33, 160, 9);
    for packing in packings() {
        let packed = pack(packing, n, k, &noise(n * k, 5)).unwrap();
        let x = noise(rows * k, 6);
        for shift in [4, 20, 60] {
            let shifted = |bytes: &[u8]| {
                let mut memory = AlignedBuf::zeroed(bytes.len() + 64).unwrap();
                memory[shift..shift + bytes.len()].copy_from_slice(bytes);
                memory
            };
            let own_data = shifted(packed.data());
            let own_x = shifted(bytemuck::cast_slice(&x));
            let data = &own_data[shift..shift + packed.data().len()];
            let w = PackedView::new(packing, n, k, packed.scales(), data).unwrap();
            let shifted_x: &[f32] = bytemuck::cast_slice(&own_x[shift..shift + 4 * x.len()]);
            for kernels in Kernels::available() {
                let step = Step::inline();
                let exec = Exec { kernels, step: &step };
                let [mut expected, mut out] = [vec![0.0; rows * n], vec![0.0; rows * n]];
                linear(exec, &packed.view(), &x, rows, Epilogue::default(), &mut expected);
                linear(exec, &w, shifted_x, rows, Epilogue::default(), &mut out);
                assert_eq!(out, expected, "{packing}, {shift} bytes off, {}", kernels.tier());
            }
        }
    }
}

#[test]
fn attention_stays_within_its_operands() {
    for dtype in [KvDType::I8G32, KvDType::F16] {
        for (kv_heads, group, head_dim, tokens) in [(1, 1, 16, 1_usize), (2, 3, 24, 65), (1, 4, 64, 130)] {
            let layout = KvLayout::new(kv_heads, head_dim, dtype).unwrap();
            let pages: Vec<u32> = (0..tokens.div_ceil(64) as u32).rev().collect();
            let heads = kv_heads * group;
            let q = Random::new(1).floats(tokens * heads * head_dim, 1.0);
            let kv = Random::new(2).floats(2 * tokens * kv_heads * head_dim, 1.0);
            let (k, v) = kv.split_at(tokens * kv_heads * head_dim);
            let (mut q, mut k, mut v) = (Guarded::copy(&q), Guarded::copy(k), Guarded::copy(v));
            let scale = 1.0 / (head_dim as f32).sqrt();
            for kernels in Kernels::available() {
                let step = Step::inline();
                let exec = Exec { kernels, step: &step };
                let mut run = |cache: &mut [u8], out: &mut [f32]| {
                    let width = kv_heads * head_dim;
                    let runs = [KvRun {
                        rows: tokens,
                        past: 0,
                        pages: &pages,
                    }];
                    exec.kv_append(&layout, cache, &runs, k.get(), width, v.get(), width);
                    exec.attention(
                        &layout,
                        cache,
                        &runs,
                        &Attention::plain(heads, scale),
                        q.get(),
                        heads * head_dim,
                        out,
                    );
                };
                let mut expected = vec![0.0; tokens * heads * head_dim];
                run(
                    &mut AlignedBuf::zeroed(pages.len() * layout.bytes()).unwrap(),
                    &mut expected,
                );
                let mut cache = Guarded::copy(&vec![[0u64; 8]; pages.len() * layout.bytes() / 64]);
                let mut out = Guarded::copy(&vec![f32::NAN; expected.len()]);
                run(bytemuck::cast_slice_mut(cache.get()), out.get());
                assert_eq!(
                    out.get(),
                    expected,
                    "{dtype:?} {kv_heads}x{group}x{head_dim} {tokens} {}",
                    kernels.tier()
                );
            }
        }
    }
}
