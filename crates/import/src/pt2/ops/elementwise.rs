//! Functions of one element at a time.

use super::{Row, unsupported};
use crate::Result;
use crate::pt2::arguments::Call;
use crate::pt2::importer::Importer;
use cactus_ir::{BinaryFn, CompareFn, Dim, UnaryFn, ValueId};
use cactus_tensor::DType;

macro_rules! unary_rows {
    ($($name:literal => $f:ident),* $(,)?) => { [$(($name, (|im, call| float_unary(im, call, UnaryFn::$f)) as Row)),*] };
}

const FUNCTIONS: [(&str, Row); 17] = unary_rows![
    "exp" => Exp, "log" => Log, "sqrt" => Sqrt, "rsqrt" => Rsqrt, "sin" => Sin, "cos" => Cos, "tanh" => Tanh, "erf" => Erf,
    "sigmoid" => Sigmoid, "relu" => Relu, "silu" => Silu, "floor" => Floor, "ceil" => Ceil, "round" => Round,
    "neg" => Neg, "abs" => Abs, "sign" => Sign,
];

const OTHERS: &[(&str, Row)] = &[
    ("gelu", gelu),
    ("erfinv", |im, c| with(im, c, erf_inverse)),
    ("glu", |im, c| {
        let x = c.tensor("self")?;
        let axis = im.axis(c.integer("dim", Some(-1))?, im.rank(x))?;
        let Some(half) = im.shape(x)[axis].as_known().map(|n| n / 2) else {
            return unsupported("a gated unit over an axis that varies");
        };
        let a = im.slice(x, axis, Dim::known(0), Dim::known(half))?;
        let b = im.slice(x, axis, Dim::known(half), Dim::known(2 * half))?;
        let gate = im.unary(UnaryFn::Sigmoid, b)?;
        one(im.binary(BinaryFn::Mul, a, gate))
    }),
    ("reciprocal", |im, c| {
        with(im, c, |im, x| {
            let one = im.scalar(1.0)?;
            im.binary(BinaryFn::Div, one, x)
        })
    }),
    ("square", |im, c| with(im, c, |im, x| im.binary(BinaryFn::Mul, x, x))),
    ("exp2", |im, c| {
        with(im, c, |im, x| {
            let x = scaled(im, x, std::f64::consts::LN_2)?;
            im.unary(UnaryFn::Exp, x)
        })
    }),
    ("log2", |im, c| {
        with(im, c, |im, x| {
            let y = im.unary(UnaryFn::Log, x)?;
            scaled(im, y, std::f64::consts::LOG2_E)
        })
    }),
    ("log10", |im, c| {
        with(im, c, |im, x| {
            let y = im.unary(UnaryFn::Log, x)?;
            scaled(im, y, std::f64::consts::LOG10_E)
        })
    }),
    ("log1p", |im, c| {
        with(im, c, |im, x| {
            let y = shifted(im, x, 1.0)?;
            im.unary(UnaryFn::Log, y)
        })
    }),
    ("expm1", |im, c| {
        with(im, c, |im, x| {
            let y = im.unary(UnaryFn::Exp, x)?;
            shifted(im, y, -1.0)
        })
    }),
    ("tan", |im, c| {
        with(im, c, |im, x| {
            let (s, c) = (im.unary(UnaryFn::Sin, x)?, im.unary(UnaryFn::Cos, x)?);
            im.binary(BinaryFn::Div, s, c)
        })
    }),
    ("trunc", |im, c| with(im, c, truncated)),
    ("isnan", |im, c| with(im, c, |im, x| im.compare(CompareFn::Ne, x, x))),
    ("relu6", |im, c| with(im, c, |im, x| clamped(im, x, 0.0, 6.0))),
    ("hardtanh", |im, c| {
        let (low, high) = (c.float("min_val", Some(-1.0))?, c.float("max_val", Some(1.0))?);
        with(im, c, |im, x| clamped(im, x, low, high))
    }),
    ("hardsigmoid", |im, c| with(im, c, hard_sigmoid)),
    ("hardswish", |im, c| {
        with(im, c, |im, x| {
            let y = hard_sigmoid(im, x)?;
            im.binary(BinaryFn::Mul, x, y)
        })
    }),
    ("leaky_relu", |im, c| {
        let slope = c.float("negative_slope", Some(0.01))?;
        with(im, c, |im, x| {
            let y = scaled(im, x, slope)?;
            where_positive(im, x, x, y)
        })
    }),
    ("prelu", prelu),
    ("elu", |im, c| {
        let (alpha, scale) = (c.float("alpha", Some(1.0))?, c.float("scale", Some(1.0))?);
        let input = c.float("input_scale", Some(1.0))?;
        with(im, c, |im, x| elu(im, x, alpha, scale, input))
    }),
    ("selu", |im, c| {
        with(im, c, |im, x| elu(im, x, 1.6732632423543772, 1.0507009873554805, 1.0))
    }),
    ("celu", |im, c| {
        let alpha = c.float("alpha", Some(1.0))?;
        with(im, c, |im, x| elu(im, x, alpha, 1.0, 1.0 / alpha))
    }),
    ("softplus", |im, c| {
        let (beta, threshold) = (c.float("beta", Some(1.0))?, c.float("threshold", Some(20.0))?);
        with(im, c, |im, x| softplus(im, x, beta, threshold))
    }),
    ("mish", |im, c| {
        with(im, c, |im, x| {
            let y = softplus(im, x, 1.0, 20.0)?;
            let y = im.unary(UnaryFn::Tanh, y)?;
            im.binary(BinaryFn::Mul, x, y)
        })
    }),
    ("log_sigmoid", |im, c| {
        with(im, c, |im, x| {
            // -softplus(-x)
            let y = im.unary(UnaryFn::Neg, x)?;
            let y = softplus(im, y, 1.0, 60.0)?;
            im.unary(UnaryFn::Neg, y)
        })
    }),
    ("threshold", |im, c| {
        let (threshold, value) = (c.float("threshold", None)?, c.float("value", None)?);
        with(im, c, |im, x| {
            let (t, v) = (im.scalar(threshold)?, im.scalar(value)?);
            let above = im.compare(CompareFn::Gt, x, t)?;
            im.select(above, x, v)
        })
    }),
    ("logical_not", |im, c| {
        let x = c.tensor("self")?;
        let x = im.cast(x, DType::Bool)?;
        one(im.unary(UnaryFn::Not, x))
    }),
    ("bitwise_not", |im, c| {
        let x = c.tensor("self")?;
        match im.dtype(x) {
            DType::Bool => one(im.unary(UnaryFn::Not, x)),
            _ => {
                // Two's complement: -x - 1.
                let (x, minus) = (im.unary(UnaryFn::Neg, x)?, im.scalar_of(-1.0, DType::I64)?);
                one(im.binary(BinaryFn::Add, x, minus))
            }
        }
    }),
    ("add.Tensor", |im, c| sum(im, c, BinaryFn::Add)),
    ("add.Scalar", |im, c| sum(im, c, BinaryFn::Add)),
    ("sub.Tensor", |im, c| sum(im, c, BinaryFn::Sub)),
    ("sub.Scalar", |im, c| sum(im, c, BinaryFn::Sub)),
    ("rsub.Scalar", |im, c| reversed_difference(im, c)),
    ("rsub.Tensor", |im, c| reversed_difference(im, c)),
    ("mul.Tensor", |im, c| numbers(im, c, BinaryFn::Mul)),
    ("mul.Scalar", |im, c| numbers(im, c, BinaryFn::Mul)),
    ("multiply.Tensor", |im, c| numbers(im, c, BinaryFn::Mul)),
    ("div.Tensor", divide),
    ("div.Scalar", divide),
    ("true_divide.Tensor", divide),
    ("div.Tensor_mode", divide),
    ("div.Scalar_mode", divide),
    ("floor_divide", |im, c| numbers(im, c, BinaryFn::FloorDiv)),
    ("floor_divide.Scalar", |im, c| numbers(im, c, BinaryFn::FloorDiv)),
    ("remainder.Tensor", |im, c| numbers(im, c, BinaryFn::Mod)),
    ("remainder.Scalar", |im, c| numbers(im, c, BinaryFn::Mod)),
    ("fmod.Tensor", truncated_remainder),
    ("fmod.Scalar", truncated_remainder),
    ("maximum", |im, c| numbers(im, c, BinaryFn::Max)),
    ("minimum", |im, c| numbers(im, c, BinaryFn::Min)),
    ("max.other", |im, c| numbers(im, c, BinaryFn::Max)),
    ("min.other", |im, c| numbers(im, c, BinaryFn::Min)),
    ("pow.Tensor_Scalar", power),
    ("pow.Tensor_Tensor", power),
    ("pow.Scalar", power),
    ("eq.Tensor", |im, c| comparison(im, c, CompareFn::Eq)),
    ("eq.Scalar", |im, c| comparison(im, c, CompareFn::Eq)),
    ("ne.Tensor", |im, c| comparison(im, c, CompareFn::Ne)),
    ("ne.Scalar", |im, c| comparison(im, c, CompareFn::Ne)),
    ("lt.Tensor", |im, c| comparison(im, c, CompareFn::Lt)),
    ("lt.Scalar", |im, c| comparison(im, c, CompareFn::Lt)),
    ("le.Tensor", |im, c| comparison(im, c, CompareFn::Le)),
    ("le.Scalar", |im, c| comparison(im, c, CompareFn::Le)),
    ("gt.Tensor", |im, c| comparison(im, c, CompareFn::Gt)),
    ("gt.Scalar", |im, c| comparison(im, c, CompareFn::Gt)),
    ("ge.Tensor", |im, c| comparison(im, c, CompareFn::Ge)),
    ("ge.Scalar", |im, c| comparison(im, c, CompareFn::Ge)),
    ("logical_and", |im, c| logical(im, c, BinaryFn::And)),
    ("logical_or", |im, c| logical(im, c, BinaryFn::Or)),
    ("bitwise_and.Tensor", |im, c| bitwise(im, c, BinaryFn::BitAnd)),
    ("bitwise_and.Scalar", |im, c| bitwise(im, c, BinaryFn::BitAnd)),
    ("bitwise_or.Tensor", |im, c| bitwise(im, c, BinaryFn::BitOr)),
    ("bitwise_or.Scalar", |im, c| bitwise(im, c, BinaryFn::BitOr)),
    ("bitwise_xor.Tensor", |im, c| bitwise(im, c, BinaryFn::BitXor)),
    ("bitwise_xor.Scalar", |im, c| bitwise(im, c, BinaryFn::BitXor)),
    ("bitwise_left_shift.Tensor", |im, c| bitwise(im, c, BinaryFn::Shl)),
    ("bitwise_left_shift.Tensor_Scalar", |im, c| {
        bitwise(im, c, BinaryFn::Shl)
    }),
    ("bitwise_right_shift.Tensor", |im, c| bitwise(im, c, BinaryFn::Shr)),
    ("bitwise_right_shift.Tensor_Scalar", |im, c| {
        bitwise(im, c, BinaryFn::Shr)
    }),
    ("__and__.Tensor", |im, c| bitwise(im, c, BinaryFn::BitAnd)),
    ("__and__.Scalar", |im, c| bitwise(im, c, BinaryFn::BitAnd)),
    ("__or__.Tensor", |im, c| bitwise(im, c, BinaryFn::BitOr)),
    ("__or__.Scalar", |im, c| bitwise(im, c, BinaryFn::BitOr)),
    ("__xor__.Tensor", |im, c| bitwise(im, c, BinaryFn::BitXor)),
    ("__xor__.Scalar", |im, c| bitwise(im, c, BinaryFn::BitXor)),
    ("__lshift__.Tensor", |im, c| bitwise(im, c, BinaryFn::Shl)),
    ("__lshift__.Scalar", |im, c| bitwise(im, c, BinaryFn::Shl)),
    ("__rshift__.Tensor", |im, c| bitwise(im, c, BinaryFn::Shr)),
    ("__rshift__.Scalar", |im, c| bitwise(im, c, BinaryFn::Shr)),
    ("logical_xor", |im, c| comparison_of_flags(im, c)),
    ("clamp", clamp),
    ("clamp.Tensor", clamp),
    ("clamp_min", clamp),
    ("clamp_max", clamp),
    ("addcmul", |im, c| add_scaled(im, c, BinaryFn::Mul)),
    ("addcdiv", |im, c| add_scaled(im, c, BinaryFn::Div)),
    ("lerp.Scalar", lerp),
    ("lerp.Tensor", lerp),
    ("to.dtype", convert),
    ("to.device", convert),
    ("to.dtype_layout", convert),
    ("_to_copy", convert),
    ("type_as", |im, c| {
        let (x, like) = (c.tensor("self")?, c.tensor("other")?);
        let dtype = im.dtype(like);
        one(im.cast(x, dtype))
    }),
    ("where.self", choose),
    ("where.ScalarOther", choose),
    ("where.ScalarSelf", choose),
    ("where.Scalar", choose),
    ("masked_fill.Scalar", masked_fill),
    ("masked_fill.Tensor", masked_fill),
    ("nan_to_num", nan_to_num),
];

pub(super) const ROWS: &[(&str, Row)] = {
    const N: usize = FUNCTIONS.len() + OTHERS.len();
    const fn joined() -> [(&'static str, Row); N] {
        let mut all = [FUNCTIONS[0]; N];
        let mut i = 0;
        while i < N {
            all[i] = if i < FUNCTIONS.len() {
                FUNCTIONS[i]
            } else {
                OTHERS[i - FUNCTIONS.len()]
            };
            i += 1;
        }
        all
    }
    &joined()
};

pub(super) fn one(v: Result<ValueId>) -> Result<Vec<ValueId>> {
    Ok(vec![v?])
}

/// A function of the floats of `self`.
pub(super) fn with(
    im: &mut Importer<'_>,
    call: &Call,
    f: impl FnOnce(&mut Importer<'_>, ValueId) -> Result<ValueId>,
) -> Result<Vec<ValueId>> {
    let x = call.tensor("self")?;
    let x = im.float(x)?;
    one(f(im, x))
}

fn float_unary(im: &mut Importer<'_>, call: &Call, f: UnaryFn) -> Result<Vec<ValueId>> {
    let x = call.tensor("self")?;
    let of_integers = matches!(f, UnaryFn::Neg | UnaryFn::Abs | UnaryFn::Sign) && im.dtype(x) == DType::I64;
    if matches!(f, UnaryFn::Floor | UnaryFn::Ceil | UnaryFn::Round) && im.dtype(x) == DType::I64 {
        return Ok(vec![x]);
    }
    if f == UnaryFn::Relu && im.dtype(x) == DType::I64 {
        let zero = im.scalar_of(0.0, DType::I64)?;
        return one(im.binary(BinaryFn::Max, x, zero));
    }
    let x = if of_integers { x } else { im.float(x)? };
    one(im.unary(f, x))
}

fn gelu(im: &mut Importer<'_>, call: &Call) -> Result<Vec<ValueId>> {
    let f = match call.text("approximate", "none")? {
        "none" => UnaryFn::GeluErf,
        "tanh" => UnaryFn::GeluTanh,
        other => return unsupported(format!("the approximation `{other}` of GELU is unknown")),
    };
    with(im, call, |im, x| im.unary(f, x))
}

pub(super) fn scaled(im: &mut Importer<'_>, x: ValueId, by: f64) -> Result<ValueId> {
    let by = im.scalar(by)?;
    im.binary(BinaryFn::Mul, x, by)
}

pub(super) fn shifted(im: &mut Importer<'_>, x: ValueId, by: f64) -> Result<ValueId> {
    let by = im.scalar(by)?;
    im.binary(BinaryFn::Add, x, by)
}

fn clamped(im: &mut Importer<'_>, x: ValueId, low: f64, high: f64) -> Result<ValueId> {
    let (low, high) = (im.scalar(low)?, im.scalar(high)?);
    let x = im.binary(BinaryFn::Max, x, low)?;
    im.binary(BinaryFn::Min, x, high)
}

fn where_positive(im: &mut Importer<'_>, x: ValueId, a: ValueId, b: ValueId) -> Result<ValueId> {
    let zero = im.scalar(0.0)?;
    let positive = im.compare(CompareFn::Gt, x, zero)?;
    im.select(positive, a, b)
}

fn hard_sigmoid(im: &mut Importer<'_>, x: ValueId) -> Result<ValueId> {
    let x = shifted(im, x, 3.0)?;
    let x = clamped(im, x, 0.0, 6.0)?;
    scaled(im, x, 1.0 / 6.0)
}

fn elu(im: &mut Importer<'_>, x: ValueId, alpha: f64, scale: f64, input: f64) -> Result<ValueId> {
    let above = scaled(im, x, scale)?;
    let below = scaled(im, x, input)?;
    let below = im.unary(UnaryFn::Exp, below)?;
    let below = shifted(im, below, -1.0)?;
    let below = scaled(im, below, alpha * scale)?;
    where_positive(im, x, above, below)
}

/// `log(1 + e^(beta x)) / beta`; above the threshold, `x`.
fn softplus(im: &mut Importer<'_>, x: ValueId, beta: f64, threshold: f64) -> Result<ValueId> {
    let scaled_x = if beta == 1.0 { x } else { scaled(im, x, beta)? };
    let y = im.unary(UnaryFn::Softplus, scaled_x)?;
    let y = if beta == 1.0 { y } else { scaled(im, y, 1.0 / beta)? };
    // From here on the two are the same number.
    if threshold >= 20.0 {
        return Ok(y);
    }
    let limit = im.scalar(threshold)?;
    let above = im.compare(CompareFn::Gt, scaled_x, limit)?;
    im.select(above, x, y)
}

fn prelu(im: &mut Importer<'_>, call: &Call) -> Result<Vec<ValueId>> {
    let (x, w) = (call.tensor("self")?, call.tensor("weight")?);
    let slope = match im.rank(x) {
        rank if rank >= 2 => {
            let mut shape = vec![cactus_ir::Dim::known(1); rank - 1];
            shape[0] = im.shape(w)[0].clone();
            im.reshape(w, shape)?
        }
        _ => w,
    };
    let y = im.binary(BinaryFn::Mul, x, slope)?;
    one(where_positive(im, x, x, y))
}

/// Two numbers: truth values count as 0 and 1.
fn numbers(im: &mut Importer<'_>, call: &Call, f: BinaryFn) -> Result<Vec<ValueId>> {
    let (a, b) = im.pair(call)?;
    if im.dtype(a) == DType::Bool {
        if f == BinaryFn::Mul {
            return one(im.binary(BinaryFn::And, a, b));
        }
        return unsupported("arithmetic of truth values is not supported; cast them first");
    }
    one(im.binary(f, a, b))
}

fn sum(im: &mut Importer<'_>, call: &Call, f: BinaryFn) -> Result<Vec<ValueId>> {
    let a = call.tensor("self")?;
    let b = im.tensor_or_number(call, "other")?;
    let (a, mut b) = im.promoted(a, b)?;
    if im.dtype(a) == DType::Bool {
        if f == BinaryFn::Add {
            call.ignore(&["alpha"]);
            return one(im.binary(BinaryFn::Or, a, b));
        }
        return unsupported("a difference of truth values");
    }
    let alpha = call.float("alpha", Some(1.0))?;
    if alpha != 1.0 {
        let dtype = im.dtype(b);
        let factor = im.scalar_of(alpha, dtype)?;
        b = im.binary(BinaryFn::Mul, b, factor)?;
    }
    one(im.binary(f, a, b))
}

fn reversed_difference(im: &mut Importer<'_>, call: &Call) -> Result<Vec<ValueId>> {
    let (a, b) = im.pair(call)?;
    if call.float("alpha", Some(1.0))? != 1.0 {
        return unsupported("a factor `alpha` other than 1");
    }
    one(im.binary(BinaryFn::Sub, b, a))
}

pub(super) fn truncated(im: &mut Importer<'_>, x: ValueId) -> Result<ValueId> {
    let (down, up) = (im.unary(UnaryFn::Floor, x)?, im.unary(UnaryFn::Ceil, x)?);
    where_positive(im, x, down, up)
}

fn divide(im: &mut Importer<'_>, call: &Call) -> Result<Vec<ValueId>> {
    let (a, b) = im.pair(call)?;
    match call.text("rounding_mode", "")? {
        "" => {
            let (a, b) = (im.float(a)?, im.float(b)?);
            one(im.binary(BinaryFn::Div, a, b))
        }
        "floor" => one(im.binary(BinaryFn::FloorDiv, a, b)),
        "trunc" if im.dtype(a) == DType::I64 => one(im.binary(BinaryFn::Div, a, b)),
        "trunc" => {
            let y = im.binary(BinaryFn::Div, a, b)?;
            one(truncated(im, y))
        }
        other => unsupported(format!("the rounding `{other}` is unknown")),
    }
}

/// The remainder with the sign of the first operand.
fn truncated_remainder(im: &mut Importer<'_>, call: &Call) -> Result<Vec<ValueId>> {
    let (a, b) = im.pair(call)?;
    let quotient = im.binary(BinaryFn::Div, a, b)?;
    let quotient = if im.dtype(a) == DType::F32 {
        truncated(im, quotient)?
    } else {
        quotient
    };
    let whole = im.binary(BinaryFn::Mul, quotient, b)?;
    one(im.binary(BinaryFn::Sub, a, whole))
}

fn power(im: &mut Importer<'_>, call: &Call) -> Result<Vec<ValueId>> {
    let base = im.tensor_or_number(call, "self")?;
    let exponent = im.tensor_or_number(call, "exponent")?;
    let (a, b) = im.promoted(base, exponent)?;
    one(im.binary(BinaryFn::Pow, a, b))
}

fn comparison(im: &mut Importer<'_>, call: &Call, f: CompareFn) -> Result<Vec<ValueId>> {
    let (a, b) = im.pair(call)?;
    one(im.compare(f, a, b))
}

fn flags(im: &mut Importer<'_>, call: &Call) -> Result<(ValueId, ValueId)> {
    let (a, b) = (call.tensor("self")?, call.tensor("other")?);
    Ok((im.cast(a, DType::Bool)?, im.cast(b, DType::Bool)?))
}

fn comparison_of_flags(im: &mut Importer<'_>, call: &Call) -> Result<Vec<ValueId>> {
    let (a, b) = flags(im, call)?;
    one(im.compare(CompareFn::Ne, a, b))
}

fn logical(im: &mut Importer<'_>, call: &Call, f: BinaryFn) -> Result<Vec<ValueId>> {
    let (a, b) = flags(im, call)?;
    one(im.binary(f, a, b))
}

fn bitwise(im: &mut Importer<'_>, call: &Call, f: BinaryFn) -> Result<Vec<ValueId>> {
    let (a, b) = im.pair(call)?;
    let logical = match f {
        BinaryFn::BitAnd => Some(BinaryFn::And),
        BinaryFn::BitOr => Some(BinaryFn::Or),
        _ => None,
    };
    match (im.dtype(a), logical) {
        (DType::I64, _) => one(im.binary(f, a, b)),
        (DType::Bool, Some(logical)) => one(im.binary(logical, a, b)),
        (DType::Bool, None) if f == BinaryFn::BitXor => one(im.compare(CompareFn::Ne, a, b)),
        _ => unsupported(format!("the bits of {} and {}", im.ty(a), im.ty(b))),
    }
}

fn clamp(im: &mut Importer<'_>, call: &Call) -> Result<Vec<ValueId>> {
    let mut x = call.tensor("self")?;
    for (name, f) in [("min", BinaryFn::Max), ("max", BinaryFn::Min)] {
        let bound = match call.is_tensor(name) {
            true => call.optional(name)?,
            false => match call.optional_number(name)? {
                Some(n) => Some(im.number(&n)?),
                None => None,
            },
        };
        if let Some(bound) = bound {
            let (a, b) = im.promoted(x, bound)?;
            x = im.binary(f, a, b)?;
        }
    }
    Ok(vec![x])
}

/// `self + value * f(tensor1, tensor2)`
fn add_scaled(im: &mut Importer<'_>, call: &Call, f: BinaryFn) -> Result<Vec<ValueId>> {
    let (x, a, b) = (call.tensor("self")?, call.tensor("tensor1")?, call.tensor("tensor2")?);
    let value = call.float("value", Some(1.0))?;
    let y = im.binary(f, a, b)?;
    let y = if value == 1.0 { y } else { scaled(im, y, value)? };
    one(im.binary(BinaryFn::Add, x, y))
}

fn lerp(im: &mut Importer<'_>, call: &Call) -> Result<Vec<ValueId>> {
    let (x, end) = (call.tensor("self")?, call.tensor("end")?);
    let weight = im.tensor_or_number(call, "weight")?;
    let weight = im.float(weight)?;
    let way = im.binary(BinaryFn::Sub, end, x)?;
    let part = im.binary(BinaryFn::Mul, way, weight)?;
    one(im.binary(BinaryFn::Add, x, part))
}

fn convert(im: &mut Importer<'_>, call: &Call) -> Result<Vec<ValueId>> {
    let x = call.tensor("self")?;
    // Integers are 64 bits wide here: what does not fit is wrapped.
    let narrow = match call.dtype_code("dtype") {
        Some(1) => Some((8, false)),
        Some(2) => Some((8, true)),
        Some(3) => Some((16, true)),
        _ => None,
    };
    match (call.dtype("dtype")?, narrow) {
        (None, _) => Ok(vec![x]),
        (Some(_), Some((bits, signed))) if im.dtype(x) != DType::Bool => {
            one(super::inverse::wrapped(im, x, bits, signed))
        }
        (Some(dtype), _) => one(im.cast(x, dtype)),
    }
}

fn choose(im: &mut Importer<'_>, call: &Call) -> Result<Vec<ValueId>> {
    let cond = call.tensor("condition")?;
    let a = im.tensor_or_number(call, "self")?;
    let b = im.tensor_or_number(call, "other")?;
    let (a, b) = im.promoted(a, b)?;
    let cond = im.cast(cond, DType::Bool)?;
    one(im.select(cond, a, b))
}

fn masked_fill(im: &mut Importer<'_>, call: &Call) -> Result<Vec<ValueId>> {
    let (x, mask) = (call.tensor("self")?, call.tensor("mask")?);
    let value = im.tensor_or_number(call, "value")?;
    let dtype = im.dtype(x);
    let value = im.cast(value, dtype)?;
    // The result has the shape of `self`, which the mask is broadcast to.
    one(im.select(mask, value, x))
}

fn nan_to_num(im: &mut Importer<'_>, call: &Call) -> Result<Vec<ValueId>> {
    let nan = call.float("nan", Some(0.0))?;
    let (high, low) = (
        call.float("posinf", Some(f64::from(f32::MAX)))?,
        call.float("neginf", Some(f64::from(f32::MIN)))?,
    );
    with(im, call, |im, x| {
        let bad = im.compare(CompareFn::Ne, x, x)?;
        let nan = im.scalar(nan)?;
        let mut y = im.select(bad, nan, x)?;
        for (infinity, by) in [(f64::INFINITY, high), (f64::NEG_INFINITY, low)] {
            let (infinity, by) = (im.scalar(infinity)?, im.scalar(by)?);
            let is = im.compare(CompareFn::Eq, y, infinity)?;
            y = im.select(is, by, y)?;
        }
        Ok(y)
    })
}

/// Approximation in single precision of Giles 2010: polynomials in `-log(1 - x²)`, one for the middle and one for the ends.
fn erf_inverse(im: &mut Importer<'_>, x: ValueId) -> Result<ValueId> {
    const MIDDLE: [f64; 9] = [
        2.81022636e-08,
        3.43273939e-07,
        -3.5233877e-06,
        -4.39150654e-06,
        2.1858087e-04,
        -1.25372503e-03,
        -4.17768164e-03,
        0.246640727,
        1.50140941,
    ];
    const ENDS: [f64; 9] = [
        -2.00214257e-04,
        1.00950558e-04,
        1.34934322e-03,
        -3.67342844e-03,
        5.73950773e-03,
        -7.6224613e-03,
        9.43887047e-03,
        1.00167406,
        2.83297682,
    ];
    let minus = scaled(im, x, -1.0)?;
    let (below, above) = (shifted(im, minus, 1.0)?, shifted(im, x, 1.0)?);
    let rest = im.binary(BinaryFn::Mul, below, above)?;
    let log = im.unary(UnaryFn::Log, rest)?;
    let w = im.unary(UnaryFn::Neg, log)?;
    let root = im.unary(UnaryFn::Sqrt, w)?;
    let polynomial = |im: &mut Importer<'_>, at: ValueId, coefficients: &[f64; 9]| {
        let mut sum = im.scalar(coefficients[0])?;
        for &c in &coefficients[1..] {
            sum = im.binary(BinaryFn::Mul, sum, at)?;
            sum = shifted(im, sum, c)?;
        }
        Ok::<_, crate::Error>(sum)
    };
    let (near, far) = (shifted(im, w, -2.5)?, shifted(im, root, -3.0)?);
    let (middle, ends) = (polynomial(im, near, &MIDDLE)?, polynomial(im, far, &ENDS)?);
    let five = im.scalar(5.0)?;
    let in_middle = im.compare(CompareFn::Lt, w, five)?;
    let factor = im.select(in_middle, middle, ends)?;
    im.binary(BinaryFn::Mul, factor, x)
}
