//! The JSON of an exported program as types. Unknown keys are passed over, as the schema's minor versions add some;
//! unknown kinds of arguments are errors.

use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};
use std::collections::BTreeMap;

/// The schema's major version that is read.
pub(crate) const SCHEMA_MAJOR: i64 = 8;

#[derive(Debug, Deserialize)]
pub(crate) struct Version {
    pub(crate) major: i64,
    pub(crate) minor: i64,
}

/// The head of the document, read before the rest.
#[derive(Debug, Deserialize)]
pub(crate) struct Head {
    pub(crate) schema_version: Version,
    #[serde(default)]
    pub(crate) torch_version: String,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Program {
    pub(crate) graph_module: GraphModule,
    #[serde(default)]
    pub(crate) range_constraints: BTreeMap<String, Range>,
    #[serde(default)]
    pub(crate) guards_code: Vec<String>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Range {
    pub(crate) min_val: Option<i64>,
    pub(crate) max_val: Option<i64>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct GraphModule {
    pub(crate) graph: Graph,
    pub(crate) signature: Signature,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Graph {
    /// Of a graph within a graph; the program's own are in its signature.
    #[serde(default)]
    pub(crate) inputs: Vec<Argument>,
    pub(crate) outputs: Vec<Argument>,
    pub(crate) nodes: Vec<Node>,
    pub(crate) tensor_values: BTreeMap<String, TensorMeta>,
    #[serde(default)]
    pub(crate) sym_int_values: BTreeMap<String, SymInt>,
    #[serde(default)]
    pub(crate) custom_obj_values: BTreeMap<String, serde_json::Value>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Node {
    pub(crate) target: String,
    pub(crate) inputs: Vec<NamedArgument>,
    pub(crate) outputs: Vec<Argument>,
    #[serde(default)]
    pub(crate) metadata: BTreeMap<String, String>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct NamedArgument {
    pub(crate) name: String,
    pub(crate) arg: Argument,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Name {
    pub(crate) name: String,
}

/// A value of a call, by its kind.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(clippy::enum_variant_names, reason = "the names of the schema")]
pub(crate) enum Argument {
    AsTensor(Name),
    AsTensors(Vec<Name>),
    AsOptionalTensor(OptionalTensor),
    AsOptionalTensors(Vec<OptionalTensor>),
    AsInt(i64),
    AsInts(Vec<i64>),
    AsSymInt(SymArgument),
    AsSymInts(Vec<SymArgument>),
    AsFloat(Float),
    AsFloats(Vec<Float>),
    AsSymFloat(IgnoredAny),
    AsSymFloats(IgnoredAny),
    AsBool(bool),
    AsBools(IgnoredAny),
    AsSymBool(IgnoredAny),
    AsSymBools(IgnoredAny),
    AsString(String),
    AsStrings(IgnoredAny),
    AsNone(IgnoredAny),
    AsScalarType(i64),
    AsDevice(IgnoredAny),
    AsLayout(IgnoredAny),
    AsMemoryFormat(IgnoredAny),
    AsGraph(Box<SubGraph>),
}

/// A graph that an operation runs.
#[derive(Debug, Deserialize)]
pub(crate) struct SubGraph {
    pub(crate) name: String,
    pub(crate) graph: Graph,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum OptionalTensor {
    AsTensor(Name),
    AsNone(IgnoredAny),
}

/// An integer, or the name of one that the graph computes.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SymArgument {
    AsName(String),
    AsInt(i64),
}

/// An integer, or an expression over symbols.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SymInt {
    AsInt(i64),
    AsExpr(Expr),
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Expr {
    pub(crate) expr_str: String,
}

/// A float; JSON has no infinities, so these come as words.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Float(pub(crate) f64);

impl<'de> Deserialize<'de> for Float {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Form {
            Number(f64),
            Word(String),
        }
        match Form::deserialize(d)? {
            Form::Number(v) => Ok(Float(v)),
            Form::Word(w) => match w.as_str() {
                "Infinity" => Ok(Float(f64::INFINITY)),
                "-Infinity" => Ok(Float(f64::NEG_INFINITY)),
                "NaN" => Ok(Float(f64::NAN)),
                _ => Err(serde::de::Error::custom(format!("`{w}` is not a float"))),
            },
        }
    }
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct TensorMeta {
    pub(crate) dtype: i64,
    pub(crate) sizes: Vec<SymInt>,
    #[serde(default)]
    pub(crate) strides: Vec<SymInt>,
    pub(crate) storage_offset: SymInt,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Signature {
    pub(crate) input_specs: Vec<InputSpec>,
    pub(crate) output_specs: Vec<OutputSpec>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum InputSpec {
    UserInput { arg: Argument },
    Parameter { arg: Name, parameter_name: String },
    Buffer { arg: Name, buffer_name: String },
    TensorConstant { arg: Name, tensor_constant_name: String },
    ConstantInput { name: String, value: serde_json::Value },
    CustomObj(IgnoredAny),
    Token(IgnoredAny),
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum OutputSpec {
    UserOutput { arg: Argument },
    LossOutput(IgnoredAny),
    BufferMutation(IgnoredAny),
    ParameterMutation(IgnoredAny),
    GradientToParameter(IgnoredAny),
    GradientToUserInput(IgnoredAny),
    UserInputMutation(IgnoredAny),
    Token(IgnoredAny),
}

/// `model_weights_config.json` and `model_constants_config.json`.
#[derive(Debug, Deserialize)]
pub(crate) struct Payloads {
    pub(crate) config: BTreeMap<String, Payload>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Payload {
    pub(crate) path_name: String,
    #[serde(default)]
    pub(crate) use_pickle: bool,
    pub(crate) tensor_meta: Option<TensorMeta>,
}
