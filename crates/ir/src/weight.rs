//! How the values of weights are made of tensors of a source model. What an expression gives is left to `reference`.

use serde::{Deserialize, Serialize};

/// Where a weight's values come from: a tensor of the source model, under constant changes that conversion folds in.
///
/// The runtime never sees one: conversion evaluates it and stores the result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum WeightExpr {
    /// The source tensor of this name, in the Hugging Face convention (linear weights are `[out, in]`).
    Source(String),
    /// Parts joined along `axis`.
    Concat {
        /// The axis joined.
        axis: usize,
        /// The parts, in order.
        parts: Vec<WeightExpr>,
    },
    /// `x + value`, elementwise (Gemma stores its norms less one).
    AddScalar {
        /// The operand.
        x: Box<WeightExpr>,
        /// What is added.
        value: f32,
    },
    /// `x * value`, elementwise.
    MulScalar {
        /// The operand.
        x: Box<WeightExpr>,
        /// The factor.
        value: f32,
    },
    /// `x + y`, elementwise; `y` is broadcast to the shape of `x`.
    Add {
        /// The operand.
        x: Box<WeightExpr>,
        /// What is added.
        y: Box<WeightExpr>,
    },
    /// `x * y`, elementwise; `y` is broadcast to the shape of `x` (a factor for each channel of a convolution).
    Mul {
        /// The operand.
        x: Box<WeightExpr>,
        /// The factors.
        y: Box<WeightExpr>,
    },
    /// `1 / sqrt(x)`, elementwise (a batch norm stores variances).
    Rsqrt {
        /// The operand.
        x: Box<WeightExpr>,
    },
    /// `e^x`, elementwise (speeds of a recurrence are stored as logarithms).
    Exp {
        /// The operand.
        x: Box<WeightExpr>,
    },
    /// The same elements under another shape.
    Reshape {
        /// The operand.
        x: Box<WeightExpr>,
        /// The new shape.
        shape: Vec<usize>,
    },
    /// Axes reordered: axis `i` of the result is axis `perm[i]` of `x`.
    Permute {
        /// The operand.
        x: Box<WeightExpr>,
        /// The order of axes.
        perm: Vec<usize>,
    },
}

impl WeightExpr {
    /// The source tensor `name` as it is.
    pub fn source(name: impl Into<String>) -> Self {
        WeightExpr::Source(name.into())
    }

    /// Every source tensor read, in order, with repeats.
    pub fn sources(&self) -> Vec<&str> {
        let mut out = Vec::new();
        self.visit(&mut out);
        out
    }

    fn visit<'a>(&'a self, out: &mut Vec<&'a str>) {
        match self {
            WeightExpr::Source(name) => out.push(name),
            WeightExpr::Concat { parts, .. } => parts.iter().for_each(|p| p.visit(out)),
            WeightExpr::Add { x, y } | WeightExpr::Mul { x, y } => {
                x.visit(out);
                y.visit(out);
            }
            WeightExpr::AddScalar { x, .. }
            | WeightExpr::MulScalar { x, .. }
            | WeightExpr::Rsqrt { x }
            | WeightExpr::Exp { x }
            | WeightExpr::Reshape { x, .. }
            | WeightExpr::Permute { x, .. } => x.visit(out),
        }
    }
}
