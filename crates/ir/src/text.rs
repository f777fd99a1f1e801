//! The text form: for people, snapshots and diffs. Not parsed back; [`Graph::to_json`] is the form that is.

use crate::infer::join;
use crate::{Def, Graph, Literal, Op, StateKind, TensorType, ValueId};
use std::fmt::{self, Write};

impl fmt::Display for TensorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[{}]", self.dtype, join(&self.shape))
    }
}

impl fmt::Display for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let g = self.compacted();
        writeln!(f, "graph {} {{", g.name)?;
        for &v in g.inputs() {
            writeln!(f, "  input %{}: {}", g.value(v).name, g.ty(v))?;
        }
        for c in g.constraints() {
            writeln!(f, "  where {c}")?;
        }
        for s in g.states() {
            writeln!(f, "  state {}: {}", s.name, state_text(&s.kind))?;
        }
        for (v, _) in g.weights() {
            writeln!(f, "  weight %{}: {}", g.value(v).name, g.ty(v))?;
        }
        let mut numbers = vec![0usize; g.values().len()];
        let mut path = "";
        for (i, (_, node)) in g.nodes().enumerate() {
            let out = node.outputs[0];
            numbers[out.index()] = i;
            if node.path != path {
                path = &node.path;
                writeln!(f, "  # {path}")?;
            }
            let args: Vec<String> = node.inputs.iter().map(|&v| operand_text(&g, &numbers, v)).collect();
            writeln!(
                f,
                "  %{i}: {} = {}({}){}",
                g.ty(out),
                node.op.mnemonic(),
                args.join(", "),
                attrs_text(&node.op)
            )?;
        }
        for (name, v) in g.outputs() {
            writeln!(f, "  output {name} = {}", operand_text(&g, &numbers, *v))?;
        }
        f.write_str("}\n")
    }
}

fn state_text(kind: &StateKind) -> String {
    match kind {
        StateKind::Kv {
            kv_heads,
            head_dim,
            window,
        } => {
            let window = window.map_or(String::new(), |w| format!(", window={w}"));
            format!("kv(kv_heads={kv_heads}, head_dim={head_dim}{window})")
        }
        StateKind::Conv { channels, rows } => format!("conv(rows={rows}, channels={channels})"),
        StateKind::Recurrent { shape } => format!("recurrent({shape:?})"),
    }
}

fn operand_text(g: &Graph, numbers: &[usize], v: ValueId) -> String {
    let value = g.value(v);
    match &value.def {
        Def::Node { .. } => format!("%{}", numbers[v.index()]),
        Def::Input | Def::Weight(_) => format!("%{}", value.name),
        Def::Literal(lit) => literal_text(&value.ty, lit),
    }
}

fn literal_text(ty: &TensorType, lit: &Literal) -> String {
    fn list<T: fmt::Debug>(v: &[T]) -> String {
        let mut s = String::new();
        for (i, x) in v.iter().take(4).enumerate() {
            let sep = if i == 0 { "" } else { ", " };
            // Writing to a String cannot fail.
            let _ = write!(s, "{sep}{x:?}");
        }
        if v.len() > 4 { s + ", …" } else { s }
    }
    let body = match lit {
        Literal::F32(v) => list(v),
        Literal::I64(v) => list(v),
        Literal::Bool(v) => list(v),
    };
    if ty.shape.is_empty() {
        body
    } else {
        format!("{ty}{{{body}}}")
    }
}

fn attrs_text(op: &Op) -> String {
    let Ok(serde_json::Value::Object(map)) = serde_json::to_value(op) else {
        return String::new();
    };
    let is_function = matches!(
        op,
        Op::Unary { .. }
            | Op::Binary { .. }
            | Op::Compare { .. }
            | Op::Reduce { .. }
            | Op::ArgReduce { .. }
            | Op::Pool(_)
    );
    let attrs: Vec<String> = map
        .iter()
        .filter(|(k, _)| *k != "op" && !(is_function && *k == "f"))
        .map(|(k, v)| match v {
            serde_json::Value::String(s) => format!("{k}={s}"),
            // An attribute is stored as f32; printed through f64 it would grow digits.
            serde_json::Value::Number(n) if n.is_f64() => {
                format!("{k}={}", n.as_f64().unwrap_or(f64::NAN) as f32)
            }
            v => format!("{k}={v}").replace('"', ""),
        })
        .collect();
    if attrs.is_empty() {
        String::new()
    } else {
        format!(" {{{}}}", attrs.join(", "))
    }
}
