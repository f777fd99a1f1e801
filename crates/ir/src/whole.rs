//! A stateful graph as the function of whole sequences that it continues: nothing is held yet, and nothing is kept.

use crate::{Constraint, Dim, Graph, Op, PAST, Result};

impl Graph {
    /// The same graph without states: a call computes a sequence from its first position on. A graph that has none is
    /// unchanged.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Type`] where a node cannot do without its state.
    pub fn of_whole_sequences(&self) -> Result<Graph> {
        let mut g = self.clone();
        if g.states.is_empty() {
            return Ok(g);
        }
        let none = Dim::known(0);
        for id in self.order().to_vec() {
            let node = self.node(id);
            let mut op = node.op.clone();
            match &mut op {
                Op::Attention(a) => (a.state, a.appended) = (None, false),
                Op::ShortConv { state, .. } | Op::GatedDelta { state, .. } => *state = None,
                Op::Slice { start, end, .. } => {
                    (*start, *end) = (start.substitute(PAST, &none)?, end.substitute(PAST, &none)?);
                }
                Op::Iota { start, len } => {
                    (*start, *len) = (start.substitute(PAST, &none)?, len.substitute(PAST, &none)?);
                }
                Op::Reshape { shape } | Op::Expand { shape } => {
                    for d in shape {
                        *d = d.substitute(PAST, &none)?;
                    }
                }
                _ => continue,
            }
            g.replace(id, op, &node.inputs)?;
        }
        g.states.clear();
        let mut constraints = Vec::new();
        for c in self.constraints() {
            let dim = c.dim.substitute(PAST, &none)?;
            constraints.push(Constraint { dim, ..c.clone() });
        }
        g.set_constraints(constraints);
        Ok(g)
    }
}
