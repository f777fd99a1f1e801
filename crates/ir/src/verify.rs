//! The invariants of a graph. What a verified graph computes is not judged here.

use crate::{Def, Error, Graph, Literal, Node, Op, Result, State, StateKind, TensorType, WeightExpr, infer};
use std::collections::{HashMap, HashSet};

impl Graph {
    /// Checks every invariant a stage may rely on: each value is defined before it is used, types are those of
    /// [`infer`] and have at most [`TensorType::MAX_RANK`] axes, numbers in attributes are finite, names of inputs,
    /// weights, states and outputs are unique, every stateful operation fits its state, and no state is changed twice or read by
    /// another operation than those with the keys and values that were appended to it.
    ///
    /// # Errors
    /// The first violation, placed at its node.
    pub fn verify(&self) -> Result<()> {
        let mut names = HashSet::new();
        for v in &self.values {
            if v.ty.shape.len() > TensorType::MAX_RANK {
                let what = format!(
                    "a value has {} axes, at most {} are allowed",
                    v.ty.shape.len(),
                    TensorType::MAX_RANK
                );
                return Err(Error::structure(what));
            }
            match &v.def {
                Def::Input | Def::Weight(_) if v.name.is_empty() => {
                    return Err(Error::structure("an input or weight has no name"));
                }
                Def::Input | Def::Weight(_) if !names.insert(&v.name) => {
                    return Err(Error::structure(format!("`{}` is declared twice", v.name)));
                }
                Def::Weight(_) if v.ty.known_shape().is_none() => {
                    return Err(Error::structure(format!(
                        "weight `{}` has a symbolic shape {}",
                        v.name, v.ty
                    )));
                }
                Def::Weight(expr) if !expr_is_finite(expr) => {
                    let what = format!("weight `{}` is made with a number that is not finite", v.name);
                    return Err(Error::structure(what));
                }
                Def::Literal(lit) => self.verify_literal(&v.ty, lit)?,
                _ => {}
            }
        }
        let mut states = HashMap::new();
        for s in &self.states {
            if states.insert(s.name.as_str(), s).is_some() {
                return Err(Error::structure(format!("state `{}` is declared twice", s.name)));
            }
        }
        if let Some(s) = self.states.iter().find(|s| !s.kind.is_bounded()) {
            let what = format!("state `{}` ({:?}) has no sensible size", s.name, s.kind);
            return Err(Error::structure(what));
        }
        let mut defined: Vec<bool> = self.values.iter().map(|v| !matches!(v.def, Def::Node { .. })).collect();
        let mut changed: HashMap<&str, &Node> = HashMap::new();
        for (id, node) in self.nodes() {
            let place = || format!("{}/{}", node.path, node.op.mnemonic());
            for v in &node.inputs {
                if !defined.get(v.index()).copied().unwrap_or(false) {
                    let what = format!("operand %{} is used before it is defined", v.0);
                    return Err(Error::structure(what).at(place()));
                }
            }
            if !attributes_are_finite(&node.op) {
                return Err(Error::structure("an attribute is not a finite number").at(place()));
            }
            let types: Vec<&TensorType> = node.inputs.iter().map(|&v| self.ty(v)).collect();
            let ty = infer(&node.op, &types).map_err(|e| e.at(place()))?;
            let [out] = node.outputs[..] else {
                return Err(Error::structure("a node must have one result").at(place()));
            };
            let made_here = self
                .values
                .get(out.index())
                .is_some_and(|v| v.def == Def::Node { node: id, output: 0 });
            if !made_here || defined[out.index()] {
                return Err(Error::structure("the result is defined elsewhere too").at(place()));
            }
            if *self.ty(out) != ty {
                let what = format!("the result is declared {}, but is {ty}", self.ty(out));
                return Err(Error::ty(what).at(place()));
            }
            defined[out.index()] = true;
            if let Some(name) = node.op.state() {
                let before = changed.get(name);
                if node.op.changes_state() {
                    if before.is_some() {
                        return Err(Error::structure(format!("state `{name}` is used twice")).at(place()));
                    }
                    changed.insert(name, node);
                } else if before.is_none_or(|b| b.inputs[1..3] != node.inputs[1..3]) {
                    let what = format!("no operation before appends the same keys and values to state `{name}`");
                    return Err(Error::structure(what).at(place()));
                }
                let state = states.get(name).copied();
                verify_state(&node.op, name, state, &types).map_err(|e| e.at(place()))?;
            }
        }
        let mut output_names = HashSet::new();
        for (name, v) in &self.outputs {
            if !output_names.insert(name) {
                return Err(Error::structure(format!("output `{name}` is declared twice")));
            }
            if !defined.get(v.index()).copied().unwrap_or(false) {
                return Err(Error::structure(format!("output `{name}` is never defined")));
            }
        }
        if self.outputs.is_empty() {
            return Err(Error::structure("the graph has no output"));
        }
        Ok(())
    }

    fn verify_literal(&self, ty: &TensorType, lit: &Literal) -> Result<()> {
        let count = ty.known_shape().and_then(|s| cactus_tensor::element_count(&s).ok());
        if count != Some(lit.len()) || ty.dtype != lit.dtype() || lit.len() > Literal::MAX_ELEMS {
            return Err(Error::structure(format!(
                "a literal of {} {} elements is declared {ty}",
                lit.len(),
                lit.dtype()
            )));
        }
        Ok(())
    }
}

fn verify_state(op: &Op, name: &str, state: Option<&State>, types: &[&TensorType]) -> Result<()> {
    let state = state.ok_or_else(|| Error::structure(format!("state `{name}` is not declared")))?;
    let fits = match (op, &state.kind) {
        (
            Op::Attention(a),
            StateKind::Kv {
                kv_heads,
                head_dim,
                window,
            },
        ) => {
            let k = types[1];
            k.shape[2].is(*kv_heads)
                && k.shape[3].is(*head_dim)
                && a.causal
                && match (a.span(), window) {
                    (_, None) => true,
                    (Some(used), Some(kept)) => used <= *kept,
                    (None, Some(_)) => false,
                }
        }
        (Op::ShortConv { .. }, StateKind::Conv { channels, rows }) => {
            types[1].shape[0].is(*channels) && rows.checked_add(1).is_some_and(|kernel| types[1].shape[1].is(kernel))
        }
        (Op::GatedDelta { .. }, StateKind::Recurrent { shape }) => {
            let (q, v) = (types[0], types[2]);
            matches!(shape[..], [heads, keys, values]
                if v.shape[2].is(heads) && q.shape[3].is(keys) && v.shape[3].is(values))
        }
        _ => false,
    };
    if !fits {
        return Err(Error::ty(format!(
            "state `{name}` ({:?}) does not fit the operation",
            state.kind
        )));
    }
    Ok(())
}

/// Elements of a state (for the KV cache: of a position) beyond which its size in bytes might overflow somewhere.
const MAX_STATE_ELEMS: usize = 1 << if usize::BITS > 32 { 40 } else { 22 };

impl StateKind {
    fn is_bounded(&self) -> bool {
        let elems = match self {
            StateKind::Kv { kv_heads, head_dim, .. } => kv_heads.checked_mul(*head_dim),
            StateKind::Conv { channels, rows } => channels.checked_mul(*rows),
            StateKind::Recurrent { shape } => cactus_tensor::element_count(shape).ok(),
        };
        elems.is_some_and(|n| n <= MAX_STATE_ELEMS)
    }
}

fn attributes_are_finite(op: &Op) -> bool {
    match op {
        Op::RmsNorm { eps } | Op::LayerNorm { eps } | Op::NormAdd { eps } | Op::NormGate { eps, .. } => eps.is_finite(),
        Op::Gated { above, .. } => above.is_none_or(f32::is_finite),
        Op::NormRope { eps, scale } => eps.is_finite() && scale.is_finite(),
        Op::RoutedExperts { route, .. } => route.normalize.is_none_or(f32::is_finite),
        Op::Rope { scale, .. } => scale.is_finite(),
        Op::Attention(a) => a.scale.is_finite() && a.softcap.is_none_or(f32::is_finite),
        _ => true,
    }
}

fn expr_is_finite(expr: &WeightExpr) -> bool {
    match expr {
        WeightExpr::Source(_) => true,
        WeightExpr::Concat { parts, .. } => parts.iter().all(expr_is_finite),
        WeightExpr::AddScalar { x, value } | WeightExpr::MulScalar { x, value } => {
            value.is_finite() && expr_is_finite(x)
        }
        WeightExpr::Add { x, y } | WeightExpr::Mul { x, y } => expr_is_finite(x) && expr_is_finite(y),
        WeightExpr::Rsqrt { x }
        | WeightExpr::Exp { x }
        | WeightExpr::Reshape { x, .. }
        | WeightExpr::Permute { x, .. } => expr_is_finite(x),
    }
}
