//! Functions of one element at a time.

use crate::shape::{expand, unknown_data};
use crate::{Error, ErrorKind, Result};
use cactus_ir::{Activation, BinaryFn, CompareFn, UnaryFn};
use cactus_tensor::{DType, Data, Tensor, broadcast_shapes};
use half::{bf16, f16};
use std::f64::consts::{FRAC_1_SQRT_2, PI};

/// `f(x)`, computed in `f64`; `None` where `f` is not a function of a number.
fn number(f: UnaryFn, x: f64) -> Option<f64> {
    Some(match f {
        UnaryFn::Neg => -x,
        UnaryFn::Abs => x.abs(),
        UnaryFn::Exp => x.exp(),
        UnaryFn::Log => x.ln(),
        UnaryFn::Sqrt => x.sqrt(),
        UnaryFn::Rsqrt => 1.0 / x.sqrt(),
        UnaryFn::Sin => x.sin(),
        UnaryFn::Cos => x.cos(),
        UnaryFn::Tanh => x.tanh(),
        UnaryFn::Erf => libm::erf(x),
        UnaryFn::Sigmoid => sigmoid(x),
        UnaryFn::Floor => x.floor(),
        UnaryFn::Ceil => x.ceil(),
        UnaryFn::Round => x.round_ties_even(),
        UnaryFn::Sign if x == 0.0 || x.is_nan() => x,
        UnaryFn::Sign => x.signum(),
        UnaryFn::Relu => activation(Activation::Relu, x)?,
        UnaryFn::Silu => activation(Activation::Silu, x)?,
        UnaryFn::GeluErf => activation(Activation::GeluErf, x)?,
        UnaryFn::GeluTanh => activation(Activation::GeluTanh, x)?,
        UnaryFn::Softplus => x.max(0.0) + (-x.abs()).exp().ln_1p(),
        UnaryFn::HardSigmoid => hard_sigmoid(x),
        UnaryFn::HardSwish => x * hard_sigmoid(x),
        _ => return None,
    })
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

fn hard_sigmoid(x: f64) -> f64 {
    (x + 3.0).clamp(0.0, 6.0) / 6.0
}

/// The activation at `x`; `None` for one that is unknown here.
pub(crate) fn activation(f: Activation, x: f64) -> Option<f64> {
    Some(match f {
        Activation::Silu => x * sigmoid(x),
        Activation::Relu if x.is_nan() => x,
        Activation::Relu => x.max(0.0),
        Activation::GeluErf => 0.5 * x * (1.0 + libm::erf(x * FRAC_1_SQRT_2)),
        Activation::GeluTanh => 0.5 * x * (1.0 + ((2.0 / PI).sqrt() * (x + 0.044715 * x * x * x)).tanh()),
        _ => return None,
    })
}

/// A gated unit: the activation of `gate` times `up`; `None` for one that is unknown here.
pub(crate) fn gated(f: Activation, gate: f64, up: f64) -> Option<f64> {
    if f == Activation::ClampedSwish {
        let (gate, up) = (gate.min(7.0), up.clamp(-7.0, 7.0));
        return Some((up + 1.0) * gate * sigmoid(1.702 * gate));
    }
    Some(activation(f, gate)? * up)
}

/// `f(x)`.
pub(crate) fn unary(f: UnaryFn, x: &Tensor) -> Result<Tensor> {
    let unknown = || unsupported(format!("{f:?}"));
    if f == UnaryFn::Not {
        let v = x.as_bool()?.iter().map(|b| !b).collect();
        return Ok(Tensor::new(x.shape(), Data::Bool(v))?);
    }
    if let Data::I64(v) = x.data() {
        let one = |&v: &i64| match f {
            UnaryFn::Neg => v.checked_neg(),
            UnaryFn::Abs => v.checked_abs(),
            UnaryFn::Sign => Some(v.signum()),
            _ => None,
        };
        let v: Option<Vec<i64>> = v.iter().map(one).collect();
        return Ok(Tensor::from_i64(x.shape(), v.ok_or_else(unknown)?)?);
    }
    let v: Option<Vec<f32>> = x
        .as_f32()?
        .iter()
        .map(|&v| number(f, v.into()).map(|y| y as f32))
        .collect();
    Ok(Tensor::from_f32(x.shape(), v.ok_or_else(unknown)?)?)
}

/// `f(a, b)`, broadcast.
pub(crate) fn binary(f: BinaryFn, a: &Tensor, b: &Tensor) -> Result<Tensor> {
    let shape = broadcast_shapes(a.shape(), b.shape())?;
    let (a, b) = (expand(a, &shape)?, expand(b, &shape)?);
    let unknown = || unsupported(format!("{f:?} of {}", a.dtype()));
    let data = match (a.data(), b.data()) {
        (Data::F32(a), Data::F32(b)) => {
            let pairs = a.iter().zip(b);
            let v: Option<_> = pairs.map(|(&a, &b)| floats(f, a, b)).collect();
            Data::F32(v.ok_or_else(unknown)?)
        }
        (Data::I64(a), Data::I64(b)) => {
            let pairs = a.iter().zip(b);
            let v: Result<_> = pairs.map(|(&a, &b)| integers(f, a, b)).collect();
            Data::I64(v?)
        }
        (Data::Bool(a), Data::Bool(b)) => {
            let pairs = a.iter().zip(b);
            let v: Option<_> = pairs.map(|(&a, &b)| booleans(f, a, b)).collect();
            Data::Bool(v.ok_or_else(unknown)?)
        }
        _ => return Err(unknown()),
    };
    Ok(Tensor::new(shape, data)?)
}

fn floats(f: BinaryFn, a: f32, b: f32) -> Option<f32> {
    let nan = a.is_nan() || b.is_nan();
    Some(match f {
        BinaryFn::Add => a + b,
        BinaryFn::Sub => a - b,
        BinaryFn::Mul => a * b,
        BinaryFn::Div => a / b,
        BinaryFn::Pow => f64::from(a).powf(b.into()) as f32,
        BinaryFn::Max | BinaryFn::Min if nan => f32::NAN,
        BinaryFn::Max => a.max(b),
        BinaryFn::Min => a.min(b),
        BinaryFn::FloorDiv => (a / b).floor(),
        BinaryFn::Mod => (f64::from(a) - (f64::from(a) / f64::from(b)).floor() * f64::from(b)) as f32,
        _ => return None,
    })
}

fn integers(f: BinaryFn, a: i64, b: i64) -> Result<i64> {
    let power = || u32::try_from(b).ok().and_then(|b| a.checked_pow(b));
    let value = match f {
        BinaryFn::Add => a.checked_add(b),
        BinaryFn::Sub => a.checked_sub(b),
        BinaryFn::Mul => a.checked_mul(b),
        BinaryFn::Div => a.checked_div(b),
        BinaryFn::Pow => power(),
        BinaryFn::Max => Some(a.max(b)),
        BinaryFn::Min => Some(a.min(b)),
        BinaryFn::FloorDiv => floor_div(a, b),
        BinaryFn::Mod => floor_div(a, b).and_then(|q| a.checked_sub(q.checked_mul(b)?)),
        _ if f.is_bitwise() => f.bits(a, b),
        _ => return Err(unsupported(format!("{f:?} of integers"))),
    };
    value.ok_or_else(|| {
        let what = format!("{f:?} of {a} and {b} is not a 64-bit integer");
        Error::new(ErrorKind::Value, what)
    })
}

fn floor_div(a: i64, b: i64) -> Option<i64> {
    let quotient = a.checked_div(b)?;
    let inexact = quotient.checked_mul(b)? != a;
    Some(quotient - i64::from(inexact && (a < 0) != (b < 0)))
}

fn booleans(f: BinaryFn, a: bool, b: bool) -> Option<bool> {
    match f {
        BinaryFn::And => Some(a && b),
        BinaryFn::Or => Some(a || b),
        _ => None,
    }
}

/// `f(a, b)` as `bool`, broadcast.
pub(crate) fn compare(f: CompareFn, a: &Tensor, b: &Tensor) -> Result<Tensor> {
    fn apply<T: PartialOrd + Copy>(f: CompareFn, a: &[T], b: &[T]) -> Option<Vec<bool>> {
        let one = |(a, b): (&T, &T)| {
            Some(match f {
                CompareFn::Eq => a == b,
                CompareFn::Ne => a != b,
                CompareFn::Lt => a < b,
                CompareFn::Le => a <= b,
                CompareFn::Gt => a > b,
                CompareFn::Ge => a >= b,
                _ => return None,
            })
        };
        a.iter().zip(b).map(one).collect()
    }
    let shape = broadcast_shapes(a.shape(), b.shape())?;
    let (a, b) = (expand(a, &shape)?, expand(b, &shape)?);
    let v = match (a.data(), b.data()) {
        (Data::F32(a), Data::F32(b)) => apply(f, a, b),
        (Data::I64(a), Data::I64(b)) => apply(f, a, b),
        (Data::Bool(a), Data::Bool(b)) => apply(f, a, b),
        _ => None,
    };
    let v = v.ok_or_else(|| unsupported(format!("{f:?} of {} and {}", a.dtype(), b.dtype())))?;
    Ok(Tensor::new(shape, Data::Bool(v))?)
}

/// `cond ? a : b`, broadcast.
pub(crate) fn select(cond: &Tensor, a: &Tensor, b: &Tensor) -> Result<Tensor> {
    fn pick<T: Copy>(c: &[bool], a: &[T], b: &[T]) -> Vec<T> {
        let values = a.iter().zip(b);
        c.iter()
            .zip(values)
            .map(|(&c, (&a, &b))| if c { a } else { b })
            .collect()
    }
    let shape = broadcast_shapes(cond.shape(), &broadcast_shapes(a.shape(), b.shape())?)?;
    let (cond, a, b) = (expand(cond, &shape)?, expand(a, &shape)?, expand(b, &shape)?);
    let c = cond.as_bool()?;
    let data = match (a.data(), b.data()) {
        (Data::F32(a), Data::F32(b)) => Data::F32(pick(c, a, b)),
        (Data::I64(a), Data::I64(b)) => Data::I64(pick(c, a, b)),
        (Data::Bool(a), Data::Bool(b)) => Data::Bool(pick(c, a, b)),
        _ => return Err(unknown_data(&a)),
    };
    Ok(Tensor::new(shape, data)?)
}

/// Conversion to `dtype`: half types round to nearest even, float to integer truncates toward zero and saturates,
/// integer to narrower integer wraps, anything to `bool` asks whether it is not zero.
pub(crate) fn cast(x: &Tensor, dtype: DType) -> Result<Tensor> {
    let data = match (x.data(), dtype) {
        (_, d) if d == x.dtype() => x.data().clone(),
        (Data::F32(v), d) => match d {
            DType::F16 => map_f32(v, |&v| f16::from_f32(v).to_f32()),
            DType::BF16 => map_f32(v, |&v| bf16::from_f32(v).to_f32()),
            DType::I8 => map_i64(v, |&v| (v as i8).into()),
            DType::U8 => map_i64(v, |&v| (v as u8).into()),
            DType::I32 => map_i64(v, |&v| (v as i32).into()),
            DType::I64 => map_i64(v, |&v| v as i64),
            DType::Bool => Data::Bool(v.iter().map(|&v| v != 0.0).collect()),
            _ => return Err(unsupported(format!("cast to {d}"))),
        },
        (Data::I64(v), d) => match d {
            DType::F32 => map_f32(v, |&v| v as f32),
            DType::F16 => map_f32(v, |&v| f16::from_f32(v as f32).to_f32()),
            DType::BF16 => map_f32(v, |&v| bf16::from_f32(v as f32).to_f32()),
            DType::I8 => map_i64(v, |&v| (v as i8).into()),
            DType::U8 => map_i64(v, |&v| (v as u8).into()),
            DType::I32 => map_i64(v, |&v| (v as i32).into()),
            DType::Bool => Data::Bool(v.iter().map(|&v| v != 0).collect()),
            _ => return Err(unsupported(format!("cast to {d}"))),
        },
        (Data::Bool(v), d) if d.is_float() => map_f32(v, |&v| v.into()),
        (Data::Bool(v), _) => map_i64(v, |&v| v.into()),
        _ => return Err(unknown_data(x)),
    };
    Ok(Tensor::new(x.shape(), data)?)
}

fn map_f32<T>(v: &[T], f: impl Fn(&T) -> f32) -> Data {
    Data::F32(v.iter().map(f).collect())
}

fn map_i64<T>(v: &[T], f: impl Fn(&T) -> i64) -> Data {
    Data::I64(v.iter().map(f).collect())
}

fn unsupported(what: String) -> Error {
    Error::new(ErrorKind::Unsupported, format!("{what} is not supported"))
}
