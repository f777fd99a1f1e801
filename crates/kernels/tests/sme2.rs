//! Outer products in streaming mode: the same bits as the scalar tier for every number of rows and odd shape, and no trace
//! in what a program owns of that mode. `cargo xtask ci arm` runs this for several lengths of streaming vectors; where the
//! CPU has no SME2 there is nothing to test, and it says so.
#![cfg(all(target_arch = "aarch64", target_os = "linux"))]
#![allow(clippy::print_stderr, reason = "a skipped test must be seen")]

use cactus_base::{Pool, Step};
use cactus_kernels::{Activations, Epilogue, Exec, Kernels, QuantizedRows, RotatedRows};
use cactus_quant::{PackedView, Packing, pack};
use cactus_simd::{Isa, Tier};
use std::arch::asm;

/// The kernels of the tier, or none with a note.
fn kernels() -> Option<&'static Kernels> {
    let kernels = Kernels::for_tier(Tier::Sme2);
    if kernels.is_none() {
        eprintln!("SKIPPED: this CPU has no SME2");
    }
    kernels
}

/// Deterministic values in `-1..1`, some of them large.
fn noise(len: usize, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let value = (state >> 40) as f32 / (1 << 23) as f32 - 1.0;
        if state.is_multiple_of(61) { 100.0 * value } else { value }
    };
    (0..len).map(next).collect()
}

/// The product of `rows` rows by the kernels of one tier.
fn product(
    kernels: &'static Kernels,
    step: &Step<'_>,
    w: &PackedView<'_>,
    x: &[f32],
    rows: usize,
    bias: Option<&[f32]>,
) -> Vec<u32> {
    let (exec, k) = (Exec { kernels, step }, w.k());
    let mut memory = vec![0u32; RotatedRows::bytes(rows, k).max(QuantizedRows::bytes(rows, k)).unwrap() / 4];
    let memory: &mut [u8] = bytemuck::cast_slice_mut(&mut memory);
    let x = if w.packing() == Packing::Int8G32 {
        exec.quantize_rows(x, rows, k, &mut QuantizedRows::new(memory, rows, k));
        Activations::Q8(QuantizedRows::new(memory, rows, k))
    } else {
        exec.rotate_rows(x, rows, k, &mut RotatedRows::new(memory, rows, k));
        Activations::Rotated(RotatedRows::new(memory, rows, k))
    };
    let epilogue = Epilogue {
        bias,
        accumulate: bias.is_some(),
        ..Epilogue::default()
    };
    let mut out = noise(rows * w.n(), 5);
    exec.linear(w, x, rows, epilogue, &mut out);
    out.into_iter().map(f32::to_bits).collect()
}

fn check(kernels: &'static Kernels, packing: Packing, n: usize, k: usize, rows: impl IntoIterator<Item = usize>) {
    let scalar = Kernels::for_tier(Tier::Scalar).unwrap();
    let packed = pack(packing, n, k, &noise(n * k, (n + k) as u64)).unwrap();
    let pool = Pool::new(2);
    for rows in rows {
        let (x, bias) = (noise(rows * k, 7), noise(n, 8));
        let bias = (rows % 2 == 0).then_some(&bias[..]);
        let expected = product(scalar, &Step::inline(), &packed.view(), &x, rows, bias);
        for step in [Step::inline(), pool.step(2)] {
            let found = product(kernels, &step, &packed.view(), &x, rows, bias);
            let differs = found.iter().zip(&expected).position(|(a, b)| a != b);
            assert_eq!(differs, None, "{packing} {n}x{k}, {rows} rows, width {}", step.width());
        }
    }
}

#[test]
fn streaming_vectors_have_the_length_that_was_asked_for() {
    let expected = std::env::var("CACTUS_TEST_STREAMING_BYTES").ok();
    match (Isa::for_tier(Tier::Sme2), expected) {
        (Some(Isa::Sme2(token)), Some(expected)) => {
            assert_eq!((4 * token.streaming_lanes()).to_string(), expected);
        }
        (found, expected) => assert_eq!(expected, None, "{found:?}"),
    }
}

#[test]
fn linear_every_small_number_of_rows_equals_the_scalar_tier() {
    let Some(kernels) = kernels() else { return };
    for (n, k) in [(1, 1), (15, 31), (17, 33), (50, 64), (65, 300), (81, 545)] {
        check(kernels, Packing::Int8G32, n, k, 1..=17);
    }
    // Groups of 128, 64 and 32, and several sets of blocks.
    for (n, k) in [(17, 33), (81, 160), (150, 230)] {
        check(kernels, Packing::Tcq4G128, n, k, 1..=17);
    }
}

#[test]
fn linear_of_every_codebook_equals_the_scalar_tier() {
    let Some(kernels) = kernels() else { return };
    for packing in (1..=6).filter_map(Packing::of_codebook_bits) {
        // More rows than are looked up for at once.
        check(kernels, packing, 50, 220, [4, 70]);
    }
}

#[test]
fn linear_shapes_of_layers_equal_the_scalar_tier() {
    let Some(kernels) = kernels() else { return };
    for (n, k, rows) in [
        (576, 576, 33),
        (192, 576, 16),
        (576, 1536, 9),
        (1152, 640, 5),
        (896, 896, 20),
    ] {
        check(kernels, Packing::Int8G32, n, k, [rows]);
        check(kernels, Packing::Tcq4G128, n, k, [rows]);
    }
}

#[test]
fn linear_most_negative_weights_do_not_overflow() {
    let Some(kernels) = kernels() else { return };
    let scalar = Kernels::for_tier(Tier::Scalar).unwrap();
    // Scales that are rounded down leave weights of -128.
    let tiny = 127.0 * 5.96e-8 * 1.4;
    let packed = pack(Packing::Int8G32, 16, 64, &[-tiny; 16 * 64]).unwrap();
    for x in [[1.0; 8 * 64], [-1.0; 8 * 64]] {
        let [found, expected] =
            [kernels, scalar].map(|kernels| product(kernels, &Step::inline(), &packed.view(), &x, 8, None));
        assert_eq!(found, expected);
        assert!(found.iter().all(|&bits| f32::from_bits(bits) != 0.0));
    }
}

/// What a caller hands over that has values in ZA and lets others save it when they need ZA.
#[repr(C, align(16))]
struct SaveZa {
    buffer: *mut u8,
    slices: u16,
    reserved: [u8; 6],
}

/// Turns ZA on, fills `slices` vectors of it with their number, and announces `save`.
fn own_za(token: cactus_simd::Sme2, save: &SaveZa) {
    assert!(usize::from(save.slices) <= 4 * token.streaming_lanes());
    let mut memory = vec![0u8; 4 * token.streaming_lanes()];
    for slice in 0..save.slices {
        memory.fill(slice as u8 + 1);
        // SAFETY: the token proves the instructions. Reads a vector of `memory`; overwrites ZA, which nobody has.
        unsafe {
            asm!(".arch_extension sme", "smstart za", "ldr za[w12, 0], [{memory}]",
                memory = in(reg) memory.as_ptr(), in("w12") u32::from(slice));
        }
    }
    // SAFETY: names a block that outlives the product below, and whose buffer has room.
    unsafe { asm!("msr S3_3_C13_C0_5, {0}", in(reg) save) };
}

/// The address of the block of who owns ZA, and whether streaming mode or ZA is on.
fn za_state() -> (u64, u64) {
    let (block, state);
    // SAFETY: reads two registers that every thread has where there is SME.
    unsafe { asm!("mrs {0}, S3_3_C13_C0_5", "mrs {1}, S3_3_C4_C2_2", out(reg) block, out(reg) state) };
    (block, state)
}

#[test]
fn linear_saves_za_for_its_owner_and_leaves_it_off() {
    let Some(kernels) = kernels() else { return };
    let Isa::Sme2(token) = kernels.isa() else {
        panic!("{kernels:?}")
    };
    let (n, k, rows) = (64, 64, 16);
    let packed = pack(Packing::Int8G32, n, k, &noise(n * k, 1)).unwrap();
    let x = noise(rows * k, 2);
    let alone = product(kernels, &Step::inline(), &packed.view(), &x, rows, None);
    assert_eq!(za_state(), (0, 0));
    if token.streaming_lanes() > 16 {
        // Nothing enters streaming mode.
        return;
    }

    let bytes = 4 * token.streaming_lanes();
    let slices = bytes - 1;
    let mut buffer = vec![0u8; bytes * bytes];
    let save = SaveZa {
        buffer: buffer.as_mut_ptr(),
        slices: slices as u16,
        reserved: [0; 6],
    };
    own_za(token, &save);
    assert_eq!(za_state(), ((&raw const save).addr() as u64, 2));
    let found = product(kernels, &Step::inline(), &packed.view(), &x, rows, None);
    assert_eq!(za_state(), (0, 0));
    assert_eq!(found, alone);
    for (slice, bytes) in buffer.chunks(bytes).enumerate() {
        let expected = if slice < slices { slice as u8 + 1 } else { 0 };
        assert!(bytes.iter().all(|&byte| byte == expected), "slice {slice}");
    }
    assert_eq!(save.reserved, [0; 6]);
}
