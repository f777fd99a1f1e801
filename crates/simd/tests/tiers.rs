//! Every operation on every tier of this CPU gives the bits of the scalar tier.

use cactus_simd::{Isa, Op, Scalar, Simd};

/// A small deterministic generator (xorshift), so that the crate needs no dependency for its tests.
struct Random(u64);

impl Random {
    fn bits(&mut self) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 32) as u32
    }
    fn byte(&mut self, min: i8, max: i8) -> i8 {
        let span = (i16::from(max) - i16::from(min) + 1) as u32;
        (i16::from(min) + (self.bits() % span) as i16) as i8
    }
    /// Floats of all magnitudes and signs, with zeros, subnormal numbers, infinities and ties now and then.
    fn float(&mut self) -> f32 {
        match self.bits() % 16 {
            0 => 0.0,
            1 => -0.0,
            2 => f32::from_bits(self.bits() & 0x807f_ffff),
            3 => f32::INFINITY,
            4 => f32::NEG_INFINITY,
            5 => (self.bits() % 64) as f32 + 0.5,
            6..=9 => (self.bits() % 2_000_001) as f32 / 1000.0 - 1000.0,
            _ => loop {
                let value = f32::from_bits(self.bits());
                if value.is_finite() {
                    break value;
                }
            },
        }
    }
}

#[derive(Clone)]
struct Inputs {
    a: [f32; 16],
    b: [f32; 16],
    c: [f32; 16],
    small: [f32; 16],
    i: [i32; 16],
    j: [i32; 16],
    halves: [u16; 16],
    bytes: [i8; 16],
    quads: [i8; 64],
    quads_plain: [i8; 64],
    signed: [[i8; 4]; 3],
    unsigned: [u8; 4],
    planes: [[i32; 16]; 4],
    book: [i8; 64],
    carries: [i8; 16],
    indices: [[u8; 64]; 6],
    from: usize,
    to: usize,
}

/// Line `line` of packed indices looked up, and multiplied by bytes so that all values show.
#[inline(always)]
fn looked_up<S: Simd, const BITS: usize>(s: S, x: &Inputs, line: usize) -> S::I {
    let chunk = x.indices.first_chunk::<BITS>().unwrap();
    let by = x.signed[0];
    let start = s.dot_start(by.iter().map(|&x| i32::from(x)).sum());
    // What the line before carries, moved on by one byte, as at the beginning of a group.
    let (_, carry) = s.lookup_quads(&x.book, &x.carries, chunk, (line + 7) % 8, s.no_bytes());
    let (_, carry) = s.lookup_quads(&x.book, &x.carries, chunk, line, s.next_bytes(carry));
    let (quads, _) = s.lookup_quads(&x.book, &x.carries, chunk, line, s.next_bytes(carry));
    s.dot(start, quads, i32::from_ne_bytes(by.map(i8::cast_unsigned)))
}

/// Results as bits; NaN as one value, since payloads are unspecified.
type Results = Vec<(&'static str, Vec<u32>)>;

impl Op for &Inputs {
    type Output = Results;

    #[inline(always)]
    fn eval<S: Simd>(self, s: S) -> Results {
        let floats = |v: S::F| {
            let mut out = [0.0; 16];
            s.store(v, &mut out);
            out.map(|x| if x.is_nan() { 0x7fc0_0000 } else { x.to_bits() }).to_vec()
        };
        let ints = |v: S::I| {
            let mut out = [0; 16];
            s.store_i(v, &mut out);
            out.map(i32::cast_unsigned).to_vec()
        };
        let scalar = |x: f32| vec![if x.is_nan() { 0x7fc0_0000 } else { x.to_bits() }];
        let (a, b, c) = (s.load(&self.a), s.load(&self.b), s.load(&self.c));
        let small = s.load(&self.small);
        let (i, j) = (s.load_i(&self.i), s.load_i(&self.j));
        let one_zero = |m: S::M| floats(s.select(m, s.splat(1.0), s.zero()));
        let mut partial = [9.0; 16];
        s.store_partial(a, &mut partial[..self.from]);
        let mut half_bits = [0; 16];
        s.store_f16(a, &mut half_bits);
        let half_nan = |h: u16| if h & 0x7fff > 0x7c00 { 0x7e00 } else { h };
        let mut low_bytes = [0; 16];
        s.store_i8(i, &mut low_bytes);
        let quads = s.load_quads(&self.quads);
        let sum = self.signed.as_flattened().iter().map(|&x| i32::from(x)).sum();
        let mut dot = s.dot_start(sum);
        for x in self.signed {
            dot = s.dot(dot, quads, i32::from_ne_bytes(x.map(i8::cast_unsigned)));
        }
        let plain = s.dot_plain(
            i,
            s.load_quads_plain(&self.quads_plain),
            i32::from_ne_bytes(self.unsigned),
        );
        let fours = self.fours(s);
        let (mut high, mut low) = ([0; 64], [0; 64]);
        s.store_planes(self.planes.map(|p| s.load_i(&p)), &mut high, &mut low);
        let mut narrowed = [0; 64];
        // Small values, under high halves that count for nothing.
        let words = self.planes.map(|p| {
            let byte = s.sub_i(s.and_i(s.load_i(&p), s.splat_i(255)), s.splat_i(128));
            s.add_i(byte, s.shl_i::<16>(i))
        });
        s.store_bytes(words, &mut narrowed);
        let mut lookups = Vec::new();
        for line in 0..8 {
            lookups.extend(ints(looked_up::<S, 1>(s, self, line)));
            lookups.extend(ints(looked_up::<S, 2>(s, self, line)));
            lookups.extend(ints(looked_up::<S, 3>(s, self, line)));
            lookups.extend(ints(looked_up::<S, 4>(s, self, line)));
            lookups.extend(ints(looked_up::<S, 5>(s, self, line)));
            lookups.extend(ints(looked_up::<S, 6>(s, self, line)));
        }
        vec![
            ("lookup_quads", lookups),
            ("hadamard_lanes", floats(s.hadamard_lanes(a))),
            (
                "transpose_quarters",
                s.transpose_quarters([a, b, c, small])
                    .into_iter()
                    .flat_map(floats)
                    .collect(),
            ),
            (
                "transpose",
                s.transpose([a, b, c, small, b, c, a, a, c, small, small, b, a, c, b, a])
                    .into_iter()
                    .flat_map(floats)
                    .collect(),
            ),
            (
                "transpose_fours",
                s.transpose_fours([a, b, c, small])
                    .into_iter()
                    .flat_map(floats)
                    .collect(),
            ),
            ("hadamard_lanes of finite", floats(s.hadamard_lanes(small))),
            ("load_partial", floats(s.load_partial(&self.a[..self.from]))),
            ("store_partial", partial.map(f32::to_bits).to_vec()),
            ("add", floats(s.add(a, b))),
            ("sub", floats(s.sub(a, b))),
            ("mul", floats(s.mul(a, b))),
            ("div", floats(s.div(a, b))),
            ("fma", floats(s.fma(a, b, c))),
            ("fnma", floats(s.fnma(a, b, c))),
            ("sqrt", floats(s.sqrt(a))),
            ("min", floats(s.min(a, b))),
            ("max", floats(s.max(a, b))),
            ("round", floats(s.round(a))),
            ("abs", floats(s.abs(a))),
            ("neg", floats(s.neg(a))),
            ("lt", one_zero(s.lt(a, b))),
            ("le", one_zero(s.le(a, b))),
            ("eq", one_zero(s.eq(a, a))),
            ("lanes", one_zero(s.lanes(self.from, self.to))),
            ("reduce_sum", scalar(s.reduce_sum(a))),
            ("reduce_max", scalar(s.reduce_max(small))),
            ("reduce_sums of one", floats(s.reduce_sums([a]))[..1].to_vec()),
            ("reduce_sums of three", floats(s.reduce_sums([a, b, c]))[..3].to_vec()),
            (
                "reduce_sums",
                floats(s.reduce_sums([a, b, c, small, s.add(small, small), s.mul(a, b), s.neg(small), b]))[..8]
                    .to_vec(),
            ),
            (
                "reduce_maxima of five",
                floats(s.reduce_maxima([small, s.neg(small), s.abs(small), s.zero(), small]))[..5].to_vec(),
            ),
            ("to_int", ints(s.to_int(small))),
            ("to_float", floats(s.to_float(i))),
            ("bits", ints(s.bits(small))),
            ("floats", floats(s.floats(i))),
            ("add_i", ints(s.add_i(i, j))),
            ("sub_i", ints(s.sub_i(i, j))),
            ("and_i", ints(s.and_i(i, j))),
            ("or_i", ints(s.or_i(i, j))),
            ("xor_i", ints(s.xor_i(i, j))),
            ("shl_i", ints(s.shl_i::<23>(i))),
            ("shr_i", ints(s.shr_i::<5>(i))),
            ("reduce_sum_i", vec![s.reduce_sum_i(i).cast_unsigned()]),
            ("load_f16", floats(s.load_f16(&self.halves))),
            ("store_f16", half_bits.map(|h| u32::from(half_nan(h))).to_vec()),
            ("load_i8", ints(s.load_i8(&self.bytes))),
            ("store_i8", low_bytes.map(|x| u32::from(x.cast_unsigned())).to_vec()),
            (
                "store_bytes",
                narrowed.iter().map(|&x| u32::from(x.cast_unsigned())).collect(),
            ),
            ("dot", ints(dot)),
            ("dot_plain", ints(plain)),
            ("dot_fours", fours[0].iter().flat_map(|&v| ints(v)).collect()),
            ("dot_runs", fours[1].iter().flat_map(|&v| ints(v)).collect()),
            ("dot_runs, plain", fours[2].iter().flat_map(|&v| ints(v)).collect()),
            ("store_planes", high.iter().chain(&low).map(|&x| u32::from(x)).collect()),
        ]
    }
}

impl Inputs {
    /// Four quads at a time, and runs of them, in two times three times two chains, whose inputs differ.
    #[inline(always)]
    fn fours<S: Simd>(&self, s: S) -> [[S::I; 12]; 3] {
        let inputs: [[i32; 4]; 6] = std::array::from_fn(|at| {
            std::array::from_fn(|i| {
                let mut bytes = self.signed[(at + i) % 3];
                bytes.rotate_left((at / 3 + i / 3) % 4);
                i32::from_ne_bytes(bytes.map(i8::cast_unsigned))
            })
        });
        let plain: [[i32; 4]; 6] = std::array::from_fn(|at| {
            std::array::from_fn(|i| {
                let mut bytes = self.unsigned.map(|byte| byte >> (at % 3));
                bytes.rotate_left(i);
                i32::from_ne_bytes(bytes) & if at > 2 { 0x7f7f_0000 } else { -1 }
            })
        });
        let quads = [
            [&self.quads, &self.quads_plain, &self.book, &self.quads],
            [&self.book, &self.quads, &self.quads, &self.quads_plain],
        ];
        let quads_plain = [
            [&self.quads_plain, &self.book, &self.book, &self.quads_plain],
            [&self.book, &self.quads_plain, &self.book, &self.book],
        ];
        let mut dots = [[[s.splat_i(0); 2]; 3]; 2];
        for p in 0..2 {
            for r in 0..3 {
                let bytes = inputs[3 * p + r].iter().flat_map(|x| x.to_ne_bytes());
                dots[p][r] = [s.dot_start(bytes.map(|x| i32::from(x.cast_signed())).sum()); 2];
            }
        }
        let [a, b, c, d, e, f] = inputs.each_ref();
        let mut runs = dots;
        s.dot_fours(&mut dots, quads, [[a, b, c], [d, e, f]]);
        // The same lines, every third of those there are, and then once more.
        let apart = |fours: [[&[i8; 64]; 4]; 2]| {
            fours.map(|four| std::array::from_fn::<_, 22, _>(|i| if i % 3 == 0 { *four[i / 3 % 4] } else { [7; 64] }))
        };
        let twice = |inputs: &[[i32; 4]; 6]| inputs.map(|x| [x, x].as_flattened().to_vec());
        let [first, second] = apart(quads);
        let all = twice(&inputs);
        let [a, b, c, d, e, f] = all.each_ref().map(|x| &x[..]);
        s.dot_runs::<false, _, _, _>(&mut runs, 4, [&first, &second], 3, [[a, b, c], [d, e, f]]);
        s.dot_runs::<false, _, _, _>(&mut runs, 0, [&[], &[]], usize::MAX, [[&[]; 3]; 2]);
        let mut sums = [[[s.load_i(&self.i); 2]; 3]; 2];
        let [first, second] = apart(quads_plain);
        let all = twice(&plain);
        let [a, b, c, d, e, f] = all.each_ref().map(|x| &x[..]);
        s.dot_runs::<true, _, _, _>(&mut sums, 8, [&first, &second], 3, [[a, b, c], [d, e, f]]);
        [dots, runs, sums].map(|chains| {
            let mut flat = [chains[0][0][0]; 12];
            for (at, chain) in chains.as_flattened().as_flattened().iter().enumerate() {
                flat[at] = *chain;
            }
            flat
        })
    }
}

fn inputs(random: &mut Random) -> Inputs {
    Inputs {
        a: std::array::from_fn(|_| random.float()),
        b: std::array::from_fn(|_| random.float()),
        c: std::array::from_fn(|_| random.float()),
        small: std::array::from_fn(|_| (random.bits() % 4_000_000) as f32 / 4.0 - 500_000.0),
        i: std::array::from_fn(|_| random.bits().cast_signed()),
        j: std::array::from_fn(|_| random.bits().cast_signed()),
        halves: std::array::from_fn(|_| random.bits() as u16),
        bytes: std::array::from_fn(|_| random.byte(-128, 127)),
        quads: std::array::from_fn(|_| {
            if random.bits().is_multiple_of(4) {
                -128
            } else {
                random.byte(-128, 127)
            }
        }),
        quads_plain: std::array::from_fn(|_| {
            if random.bits().is_multiple_of(4) {
                -127
            } else {
                random.byte(-127, 127)
            }
        }),
        signed: std::array::from_fn(|_| {
            std::array::from_fn(|_| {
                if random.bits().is_multiple_of(4) {
                    -127
                } else {
                    random.byte(-127, 127)
                }
            })
        }),
        unsigned: std::array::from_fn(|_| {
            if random.bits().is_multiple_of(4) {
                127
            } else {
                (random.bits() % 128) as u8
            }
        }),
        planes: std::array::from_fn(|_| std::array::from_fn(|_| (random.bits() & 0xffff_3fff).cast_signed())),
        book: std::array::from_fn(|_| random.byte(-64, 64)),
        carries: std::array::from_fn(|_| random.byte(-63, 63)),
        indices: std::array::from_fn(|_| std::array::from_fn(|_| random.bits() as u8)),
        from: (random.bits() % 17) as usize,
        to: (random.bits() % 19) as usize,
    }
}

#[test]
fn operations_on_every_tier_equal_scalar_bits() {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for round in 0..2000 {
        let inputs = inputs(&mut random);
        let expected = Scalar.vectorize(&inputs);
        for isa in Isa::available() {
            for (found, expected) in isa.dispatch(&inputs).iter().zip(&expected) {
                assert_eq!(found, expected, "round {round} tier {}", isa.tier());
            }
        }
    }
}

#[test]
fn scalar_dots_and_conversions_match_their_definition() {
    let mut random = Random(42);
    let s = Scalar;
    for _ in 0..200 {
        let x = inputs(&mut random);
        let dot = s.dot(
            s.dot_start(0),
            s.load_quads(&x.quads),
            i32::from_ne_bytes(x.signed[0].map(i8::cast_unsigned)),
        );
        for (lane, &found) in dot.iter().enumerate() {
            let expected: i32 = (0..4)
                .map(|j| i32::from(x.quads[4 * lane + j]) * i32::from(x.signed[0][j]))
                .sum();
            assert_eq!(found, expected);
        }
        for (value, bits) in s.load_f16(&x.halves).into_iter().zip(x.halves) {
            let expected = half::f16::from_bits(bits).to_f64();
            assert!(f64::from(value) == expected || expected.is_nan());
        }
    }
    let lanes: [f32; 16] = std::array::from_fn(|i| i as f32);
    // Entry (row, column) of the Hadamard matrix is -1 to the number of ones that both have in common.
    let transformed = s.hadamard_lanes(lanes);
    for (row, found) in transformed.iter().enumerate() {
        let expected: f32 = (0..16usize)
            .map(|i| {
                if (row & i).count_ones() % 2 == 0 {
                    i as f32
                } else {
                    -(i as f32)
                }
            })
            .sum();
        assert_eq!(*found, expected);
    }
    let columns = s.transpose_fours([0, 16, 32, 48].map(|first| lanes.map(|lane| lane + first as f32)));
    for (j, column) in columns.iter().enumerate() {
        for (lane, found) in column.iter().enumerate() {
            assert_eq!(*found, (lane % 4 * 16 + lane / 4 * 4 + j) as f32);
        }
    }
    let rows: [[f32; 16]; 16] = std::array::from_fn(|i| lanes.map(|lane| lane + 16.0 * i as f32));
    for (j, column) in s.transpose(rows).iter().enumerate() {
        for (i, found) in column.iter().enumerate() {
            assert_eq!(*found, (16 * i + j) as f32);
        }
    }
    assert_eq!(s.reduce_sum(lanes), 120.0);
    assert_eq!(s.reduce_max(lanes), 15.0);
    assert_eq!(s.reduce_sums([lanes, [1.0; 16]])[..2], [120.0, 16.0]);
    assert_eq!(s.reduce_maxima([lanes, [1.0; 16], [-2.0; 16]])[..3], [15.0, 1.0, -2.0]);
    assert_eq!(
        s.to_int([
            0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 3.4, 3.6, 0., 0., 0., 0., 0., 0., 0., 0.
        ])[..8],
        [0, 2, 2, 0, -2, -2, 3, 4]
    );
}

/// Those of an emulated CPU, which whatever starts the test knows; a tier that is silently not there would not be tested.
#[test]
fn tiers_are_those_that_are_expected() {
    if let Ok(expected) = std::env::var("CACTUS_TEST_TIERS") {
        let found: Vec<&str> = Isa::available().skip(1).map(|isa| isa.tier().name()).collect();
        assert_eq!(found.join(", "), expected);
    }
}

struct RunOf {
    count: usize,
    quads: usize,
    step: usize,
    inputs: usize,
}

impl Op for RunOf {
    type Output = ();

    fn eval<S: Simd>(self, s: S) {
        let (quads, inputs) = (vec![[1; 64]; self.quads], vec![1; self.inputs]);
        s.dot_runs::<false, _, _, _>(&mut [[[s.splat_i(0)]]], self.count, [&quads], self.step, [[&inputs]]);
    }
}

#[test]
fn runs_of_quads_that_are_not_there_panic() {
    for isa in Isa::available() {
        for (count, quads, step, inputs) in [
            (2, 4, 1, 4),
            (4, 3, 1, 4),
            (4, 9, 3, 4),
            (4, 4, 1, 3),
            (4, 1, usize::MAX / 3 + 1, 4),
        ] {
            let run = RunOf {
                count,
                quads,
                step,
                inputs,
            };
            let outcome = std::panic::catch_unwind(|| isa.dispatch(run));
            assert!(
                outcome.is_err(),
                "{isa:?}: {count} of {quads} quads, {step} apart, and {inputs} inputs"
            );
        }
    }
}
