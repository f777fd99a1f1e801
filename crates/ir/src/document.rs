//! The JSON form: what bundles store. Reading verifies, so a graph in hand is always valid.

use crate::graph::NodeId;
use crate::{
    Constraint, Def, Error, ErrorKind, Graph, Literal, Node, Op, Result, State, TensorType, ValueId, WeightExpr,
};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Version of the serialized form that this crate writes, and the newest it reads.
pub const FORMAT_VERSION: u32 = 1;

/// Serialized graph. Value ids index `values`; a node defines the value of its `output`.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    version: u32,
    name: String,
    values: Vec<DocValue>,
    states: Vec<State>,
    nodes: Vec<DocNode>,
    outputs: Vec<DocOutput>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    constraints: Vec<Constraint>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct DocValue {
    #[serde(default, skip_serializing_if = "String::is_empty")]
    name: String,
    #[serde(rename = "type")]
    ty: TensorType,
    #[serde(default, skip_serializing_if = "DocDef::is_node")]
    def: DocDef,
}

#[derive(Serialize, Deserialize, Default)]
#[serde(rename_all = "snake_case")]
enum DocDef {
    #[default]
    Node,
    Input,
    Weight(WeightExpr),
    Literal(Literal),
}

impl DocDef {
    fn is_node(&self) -> bool {
        matches!(self, DocDef::Node)
    }
}

#[derive(Serialize, Deserialize)]
struct DocNode {
    #[serde(default, skip_serializing_if = "String::is_empty")]
    path: String,
    #[serde(flatten)]
    op: Op,
    inputs: Vec<u32>,
    output: u32,
    /// What was read beside the fields above: the attributes of `op`, and nothing else may be there.
    #[serde(flatten, skip_serializing)]
    attributes: BTreeMap<String, IgnoredAny>,
}

impl DocNode {
    /// An attribute of a newer version must not be ignored in silence: it may change what is computed.
    fn check_attributes(&self) -> Result<()> {
        let known = serde_json::to_value(&self.op).unwrap_or_default();
        match self.attributes.keys().find(|k| known.get(k).is_none()) {
            None => Ok(()),
            Some(unknown) => {
                let what = format!("{} has no attribute `{unknown}`", self.op.mnemonic());
                Err(Error::new(ErrorKind::Format, what).at(self.path.clone()))
            }
        }
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct DocOutput {
    name: String,
    value: u32,
}

impl Serialize for Graph {
    fn serialize<S: serde::Serializer>(&self, s: S) -> std::result::Result<S::Ok, S::Error> {
        Document::from_graph(&self.compacted()).serialize(s)
    }
}

impl<'de> Deserialize<'de> for Graph {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> std::result::Result<Self, D::Error> {
        Document::deserialize(d)?.into_graph().map_err(serde::de::Error::custom)
    }
}

impl Graph {
    /// The JSON form, indented.
    pub fn to_json(&self) -> String {
        let doc = Document::from_graph(&self.compacted());
        serde_json::to_string_pretty(&doc).expect("a document has string keys and finite structure")
    }

    /// Reads and verifies the JSON form.
    ///
    /// # Errors
    /// [`ErrorKind::Format`] with line and column, [`ErrorKind::Version`], or those of [`Graph::verify`].
    pub fn from_json(text: &str) -> Result<Graph> {
        let doc: Document = serde_json::from_str(text)
            .map_err(|e| Error::new(ErrorKind::Format, format!("the graph is not readable: {e}")))?;
        doc.into_graph()
    }
}

impl Document {
    fn from_graph(g: &Graph) -> Document {
        Document {
            version: FORMAT_VERSION,
            name: g.name.clone(),
            values: g
                .values()
                .iter()
                .map(|v| DocValue {
                    name: v.name.clone(),
                    ty: v.ty.clone(),
                    def: match &v.def {
                        Def::Input => DocDef::Input,
                        Def::Weight(e) => DocDef::Weight(e.clone()),
                        Def::Literal(l) => DocDef::Literal(l.clone()),
                        Def::Node { .. } => DocDef::Node,
                    },
                })
                .collect(),
            states: g.states.clone(),
            nodes: g
                .nodes()
                .map(|(_, n)| DocNode {
                    path: n.path.clone(),
                    op: n.op.clone(),
                    inputs: n.inputs.iter().map(|v| v.0).collect(),
                    output: n.outputs[0].0,
                    attributes: BTreeMap::new(),
                })
                .collect(),
            outputs: g
                .outputs
                .iter()
                .map(|(name, v)| DocOutput {
                    name: name.clone(),
                    value: v.0,
                })
                .collect(),
            constraints: g.constraints.clone(),
        }
    }

    fn into_graph(self) -> Result<Graph> {
        if self.version != FORMAT_VERSION {
            return Err(Error::new(
                ErrorKind::Version,
                format!(
                    "the graph has format version {}, this program reads version {FORMAT_VERSION}",
                    self.version
                ),
            ));
        }
        let mut g = Graph::new(self.name);
        let count = self.values.len();
        let check = |id: u32| {
            if (id as usize) < count {
                Ok(ValueId(id))
            } else {
                Err(Error::structure(format!("value %{id} does not exist ({count} values)")))
            }
        };
        let mut makers: Vec<Option<NodeId>> = vec![None; count];
        for (i, n) in self.nodes.into_iter().enumerate() {
            n.check_attributes()?;
            let id = NodeId(i as u32);
            let out = check(n.output).map_err(|e| e.at(n.path.clone()))?;
            if makers[out.index()].replace(id).is_some() {
                return Err(Error::structure(format!("value %{} is defined twice", out.0)).at(n.path));
            }
            let inputs: Result<Vec<ValueId>> = n.inputs.iter().map(|&v| check(v)).collect();
            g.nodes.push(Some(Node {
                inputs: inputs.map_err(|e| e.at(n.path.clone()))?,
                path: n.path,
                op: n.op,
                outputs: vec![out],
            }));
            g.order.push(id);
        }
        for (i, v) in self.values.into_iter().enumerate() {
            let def = match (v.def, makers[i]) {
                (DocDef::Node, Some(node)) => Def::Node { node, output: 0 },
                (DocDef::Node, None) => {
                    return Err(Error::structure(format!("no node defines value %{i}")));
                }
                (_, Some(_)) => {
                    return Err(Error::structure(format!(
                        "value %{i} is an input or constant, yet a node defines it"
                    )));
                }
                (DocDef::Input, None) => {
                    g.inputs.push(ValueId(i as u32));
                    Def::Input
                }
                (DocDef::Weight(e), None) => Def::Weight(e),
                (DocDef::Literal(l), None) => Def::Literal(l),
            };
            g.values.push(crate::Value {
                name: v.name,
                ty: v.ty,
                def,
            });
        }
        g.states = self.states;
        g.constraints = self.constraints;
        for o in self.outputs {
            let v = check(o.value)?;
            g.outputs.push((o.name, v));
        }
        g.verify()?;
        Ok(g)
    }
}
