use crate::{Error, ErrorKind, Result, elementwise, shape};
use cactus_ir::{BinaryFn, UnaryFn, WeightExpr};
use cactus_tensor::Tensor;

/// Tensors by name: those of a source model, or those of a bundle.
pub trait WeightSource {
    /// The tensor called `name`, widened to `f32`.
    ///
    /// # Errors
    /// [`ErrorKind::Weight`] where there is none or it cannot be read.
    fn tensor(&self, name: &str) -> Result<Tensor>;
}

impl<F: Fn(&str) -> Result<Tensor>> WeightSource for F {
    fn tensor(&self, name: &str) -> Result<Tensor> {
        self(name)
    }
}

/// `f` of two expressions, the second broadcast to the first.
fn of_two(f: BinaryFn, x: &WeightExpr, y: &WeightExpr, source: &dyn WeightSource) -> Result<Tensor> {
    let (x, y) = (eval_weight_expr(x, source)?, eval_weight_expr(y, source)?);
    let out = elementwise::binary(f, &x, &y)?;
    if out.shape() != x.shape() {
        let what = format!("{:?} does not broadcast to {:?}", y.shape(), x.shape());
        return Err(Error::new(ErrorKind::Weight, what));
    }
    Ok(out)
}

/// The weight that `expr` makes of the tensors of `source`. One weight at a time is in memory, with the parts it is
/// made of.
///
/// # Errors
/// Those of the source; [`ErrorKind::Weight`] where the parts do not fit the expression.
pub fn eval_weight_expr(expr: &WeightExpr, source: &dyn WeightSource) -> Result<Tensor> {
    let made = match expr {
        WeightExpr::Source(name) => return source.tensor(name).map_err(|e| e.at(name.clone())),
        WeightExpr::Concat { axis, parts } => {
            let parts: Result<Vec<Tensor>> = parts.iter().map(|p| eval_weight_expr(p, source)).collect();
            shape::concat(&parts?.iter().collect::<Vec<_>>(), *axis)
        }
        WeightExpr::AddScalar { x, value } => {
            let x = eval_weight_expr(x, source)?;
            elementwise::binary(BinaryFn::Add, &x, &Tensor::scalar(*value))
        }
        WeightExpr::MulScalar { x, value } => {
            let x = eval_weight_expr(x, source)?;
            elementwise::binary(BinaryFn::Mul, &x, &Tensor::scalar(*value))
        }
        WeightExpr::Add { x, y } => of_two(BinaryFn::Add, x, y, source),
        WeightExpr::Mul { x, y } => of_two(BinaryFn::Mul, x, y, source),
        WeightExpr::Exp { x } => elementwise::unary(UnaryFn::Exp, &eval_weight_expr(x, source)?),
        WeightExpr::Rsqrt { x } => elementwise::unary(UnaryFn::Rsqrt, &eval_weight_expr(x, source)?),
        WeightExpr::Reshape { x, shape } => eval_weight_expr(x, source)?
            .reshaped(shape.as_slice())
            .map_err(Error::from),
        WeightExpr::Permute { x, perm } => shape::permute(&eval_weight_expr(x, source)?, perm),
        other => {
            let what = format!("weight expression {other:?} is not supported");
            Err(Error::new(ErrorKind::Unsupported, what))
        }
    };
    made.map_err(|e| {
        let what = format!("a weight made of {:?}: {e}", expr.sources());
        Error::new(ErrorKind::Weight, what)
    })
}
