//! A fused multiply-add has one rounding on every tier, also where it is made of other operations: sums that lie at, or next to,
//! the middle between two floats, and any bits at all.

use cactus_simd::{Isa, Op, Simd};

/// `a * b + c` and `c - a * b` of 16 lanes.
struct Fused<'a>([&'a [f32; 16]; 3]);

impl Op for Fused<'_> {
    type Output = [[f32; 16]; 2];

    #[inline(always)]
    fn eval<S: Simd>(self, s: S) -> Self::Output {
        let [a, b, c] = self.0.map(|x| s.load(x));
        let mut out = [[0.0; 16]; 2];
        s.store(s.fma(a, b, c), &mut out[0]);
        s.store(s.fnma(a, b, c), &mut out[1]);
        out
    }
}

struct Random(u64);

impl Random {
    fn bits(&mut self) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 32) as u32
    }
    fn sign(&mut self) -> f32 {
        if self.bits() & 1 == 0 { 1.0 } else { -1.0 }
    }
    fn power(&mut self, from: i32, to: i32) -> f32 {
        let exponent = from + (self.bits() % (to - from + 1) as u32) as i32;
        2f32.powi(exponent / 2) * 2f32.powi(exponent - exponent / 2)
    }

    /// A product of 25 bits, which is halfway between two floats, and a term far below its last bit.
    fn halfway(&mut self) -> [f32; 3] {
        let (a, b) = ((self.bits() % 2048) | 2049, (self.bits() % 4096) | 4097);
        let (x, y) = (self.power(-60, 40), self.power(-10, 10));
        let small = self.sign() * self.power(-60, 0);
        let near = self.power(-62, -20);
        let sign = self.sign();
        [sign * a as f32 * x, b as f32 * y, small * near * x * y]
    }

    /// A term that leaves of the product the part that a rounding dropped, or one float more or less.
    fn cancelled(&mut self) -> [f32; 3] {
        let (a, b) = (
            f32::from_bits(self.bits() & 0x3fff_ffff),
            self.sign() * self.power(-20, 20) * 1.000_000_1,
        );
        let c = -(a * b);
        let next = (self.bits() % 3).wrapping_sub(1);
        [a, b, f32::from_bits(c.to_bits().wrapping_add(next))]
    }

    /// Sums among the subnormal floats and around the smallest ones.
    fn subnormal(&mut self) -> [f32; 3] {
        let c = f32::from_bits(self.bits() & 0x80ff_ffff);
        let a = self.sign() * (self.bits() & 0xff_ffff) as f32 * self.power(-90, -80);
        [a, (self.bits() & 0xfff) as f32 * self.power(-90, -70), c]
    }

    fn any(&mut self) -> [f32; 3] {
        [(); 3].map(|()| f32::from_bits(self.bits()))
    }

    /// Few bits, zeros of both signs among them.
    fn plain(&mut self) -> [f32; 3] {
        [(); 3].map(|()| self.sign() * (self.bits() % 5) as f32 * self.power(-3, 3))
    }
}

fn check(cases: &[[f32; 3]; 16], what: &str) {
    let of = |i: usize| cases.map(|case| case[i]);
    let (a, b, c) = (of(0), of(1), of(2));
    for isa in Isa::available() {
        let found = isa.dispatch(Fused([&a, &b, &c]));
        for (i, &[a, b, c]) in cases.iter().enumerate() {
            for (found, want) in [(found[0][i], a.mul_add(b, c)), (found[1][i], (-a).mul_add(b, c))] {
                let same = found.to_bits() == want.to_bits() || (found.is_nan() && want.is_nan());
                let tier = isa.tier();
                assert!(same, "{what}, {tier}: {a:e} {b:e} {c:e} gives {found:e}, not {want:e}");
            }
        }
    }
}

#[test]
fn fused_sums_have_one_rounding() {
    let mut random = Random(0x5eed_0f0f_1234_5678);
    let rounds = if cfg!(debug_assertions) { 20_000 } else { 400_000 };
    for _ in 0..rounds {
        let halfway = [(); 16].map(|()| random.halfway());
        check(&halfway, "halfway");
        let cancelled = [(); 16].map(|()| random.cancelled());
        check(&cancelled, "cancelled");
        let subnormal = [(); 16].map(|()| random.subnormal());
        check(&subnormal, "subnormal");
        let any = [(); 16].map(|()| random.any());
        check(&any, "any");
        let plain = [(); 16].map(|()| random.plain());
        check(&plain, "plain");
    }
}

/// The cases test something: rounding twice gives other bits in many of them.
#[test]
fn halfway_cases_are_those_that_two_roundings_get_wrong() {
    let mut random = Random(7);
    let wrong = (0..1000)
        .map(|_| random.halfway())
        .filter(|&[a, b, c]| (f64::from(a) * f64::from(b) + f64::from(c)) as f32 != a.mul_add(b, c))
        .count();
    assert!(wrong > 300, "{wrong} of 1000");
}

#[test]
fn infinite_and_overflowing_sums_are_those_of_the_definition() {
    let values = [
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::NAN,
        f32::MAX,
        f32::MIN,
        f32::MIN_POSITIVE,
        1e-45,
        -0.0,
        0.0,
        1.0,
        -1.0,
        f32::from_bits(0x7f7f_fffe),
    ];
    let mut cases = Vec::new();
    for a in values {
        for b in values {
            cases.extend(values.map(|c| [a, b, c]));
        }
    }
    for chunk in cases.as_chunks().0 {
        check(chunk, "special");
    }
    // The largest sum that is still rounded down to a float, and the smallest that is not.
    let halfway = [4095.0 * 2f32.powi(110), 4097.0 * 2f32.powi(-6), 0.0];
    check(&[halfway; 16], "overflow");
}
