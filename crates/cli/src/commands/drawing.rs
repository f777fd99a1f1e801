//! Graphs as pictures: DOT for Graphviz, and SVG laid out here so that nothing need be installed.

use cactus_ir::{Def, Graph, NodeId, ValueId};
use std::collections::HashMap;
use std::fmt::Write;

const BOX_WIDTH: usize = 220;
const BOX_HEIGHT: usize = 34;
const COLUMN: usize = 250;
const ROW: usize = 58;
const MARGIN: usize = 24;
/// Height of the title of one of several graphs.
const TITLE: usize = 32;

/// A color for each kind of operation, so that the shape of a model shows from afar.
fn color(mnemonic: &str) -> &'static str {
    match mnemonic {
        "linear" | "matmul" => "#cfe2ff",
        "attention" => "#ffd6a5",
        "rms_norm" | "layer_norm" => "#d8f3dc",
        "rope" => "#fde2e4",
        "gated" | "silu" | "gelu_tanh" | "gelu_erf" => "#e9d8fd",
        "short_conv" | "conv1d" => "#fff3b0",
        "embedding" => "#cdeac0",
        "reshape" | "slice" | "permute" | "expand" | "concat" => "#f1f3f5",
        _ => "#ffffff",
    }
}

/// Weights and constants that a node reads, in short.
fn parameters(graph: &Graph, inputs: &[ValueId]) -> String {
    let names: Vec<String> = inputs
        .iter()
        .filter_map(|&v| {
            let value = graph.value(v);
            match &value.def {
                Def::Weight(_) => {
                    let dims: Vec<String> = value.ty.shape.iter().map(ToString::to_string).collect();
                    Some(format!("[{}]", dims.join("x")))
                }
                Def::Literal(l) if l.len() == 1 => graph.scalar(v).map(|x| format!("{x}")),
                _ => None,
            }
        })
        .collect();
    names.join(" ")
}

fn label(graph: &Graph, id: NodeId) -> (String, String) {
    let node = graph.node(id);
    let parameters = parameters(graph, &node.inputs);
    let title = match parameters.is_empty() {
        true => node.op.mnemonic(),
        false => format!("{} {parameters}", node.op.mnemonic()),
    };
    (title, format!("{} · {}", node.path, graph.ty(node.outputs[0])))
}

/// DOT, for Graphviz.
pub(super) fn dot(graph: &Graph) -> String {
    let escape = |s: &str| s.replace('\\', "\\\\").replace('"', "\\\"");
    let mut out = format!(
        "digraph \"{}\" {{\n  node [shape=box, style=\"filled,rounded\", fontname=\"Helvetica\"];\n",
        escape(&graph.name)
    );
    let mut names: HashMap<ValueId, String> = HashMap::new();
    for (i, &v) in graph.inputs().iter().enumerate() {
        let name = format!("in{i}");
        // Writing to a String cannot fail, here and below.
        let _ = writeln!(
            out,
            "  {name} [label=\"{}\", shape=ellipse];",
            escape(&graph.value(v).name)
        );
        names.insert(v, name);
    }
    for (i, (id, node)) in graph.nodes().enumerate() {
        let (title, detail) = label(graph, id);
        let fill = color(&node.op.mnemonic());
        let _ = writeln!(
            out,
            "  n{i} [label=\"{}\\n{}\", fillcolor=\"{fill}\"];",
            escape(&title),
            escape(&detail)
        );
        for v in &node.inputs {
            if let Some(from) = names.get(v) {
                let _ = writeln!(out, "  {from} -> n{i};");
            }
        }
        names.insert(node.outputs[0], format!("n{i}"));
    }
    for (i, (name, v)) in graph.outputs().iter().enumerate() {
        let _ = writeln!(out, "  out{i} [label=\"{}\", shape=ellipse];", escape(name));
        if let Some(from) = names.get(v) {
            let _ = writeln!(out, "  {from} -> out{i};");
        }
    }
    out.push_str("}\n");
    out
}

/// SVG: graphs side by side, each under its title, its operations in rows by their distance from the inputs.
pub(super) fn svg(graphs: &[(&str, &Graph)]) -> String {
    let mut body = String::new();
    let (mut width, mut height) = (0, 0);
    for (title, graph) in graphs {
        let top = if title.is_empty() { 0 } else { TITLE };
        let left = width;
        let mut drawn = String::new();
        let (w, h) = draw(graph, &mut drawn);
        let _ = writeln!(body, "<g transform=\"translate({left} {top})\">\n{drawn}</g>");
        if top > 0 {
            let _ = writeln!(
                body,
                "<text x=\"{}\" y=\"{MARGIN}\" font-size=\"16\">{} ({} operations)</text>",
                left + MARGIN,
                escape(title),
                graph.order().len()
            );
        }
        width += w;
        height = height.max(h + top);
    }
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         font-family=\"Helvetica, Arial, sans-serif\">\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n{body}</svg>\n"
    )
}

fn escape(s: &str) -> String {
    s.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// A box of a drawing.
struct Item {
    title: String,
    detail: String,
    fill: &'static str,
    from: Vec<usize>,
    row: usize,
}

fn items(graph: &Graph) -> Vec<Item> {
    let mut items: Vec<Item> = Vec::new();
    let mut index: HashMap<ValueId, usize> = HashMap::new();
    for &v in graph.inputs() {
        index.insert(v, items.len());
        items.push(Item {
            title: graph.value(v).name.clone(),
            detail: graph.ty(v).to_string(),
            fill: "#dee2e6",
            from: Vec::new(),
            row: 0,
        });
    }
    for (id, node) in graph.nodes() {
        let from: Vec<usize> = node.inputs.iter().filter_map(|v| index.get(v).copied()).collect();
        let row = from.iter().map(|&i| items[i].row + 1).max().unwrap_or(0);
        let (title, detail) = label(graph, id);
        index.insert(node.outputs[0], items.len());
        items.push(Item {
            title,
            detail,
            fill: color(&node.op.mnemonic()),
            from,
            row,
        });
    }
    items
}

/// Draws one graph; gives its width and height.
fn draw(graph: &Graph, out: &mut String) -> (usize, usize) {
    let items = items(graph);
    let mut used: HashMap<usize, usize> = HashMap::new();
    let places: Vec<(usize, usize)> = items
        .iter()
        .map(|item| {
            let column = used.entry(item.row).or_default();
            let place = (MARGIN + *column * COLUMN, MARGIN + item.row * ROW);
            *column += 1;
            place
        })
        .collect();
    let width = places.iter().map(|p| p.0).max().unwrap_or(0) + BOX_WIDTH + MARGIN;
    let height = places.iter().map(|p| p.1).max().unwrap_or(0) + BOX_HEIGHT + MARGIN;
    for (item, &(x, y)) in items.iter().zip(&places) {
        for &from in &item.from {
            let (fx, fy) = places[from];
            let (x1, y1, x2, y2) = (fx + BOX_WIDTH / 2, fy + BOX_HEIGHT, x + BOX_WIDTH / 2, y);
            let middle = y1.midpoint(y2);
            let _ = writeln!(
                out,
                "<path d=\"M{x1} {y1} C{x1} {middle} {x2} {middle} {x2} {y2}\" fill=\"none\" stroke=\"#868e96\"/>"
            );
        }
    }
    for (item, &(x, y)) in items.iter().zip(&places) {
        let _ = writeln!(
            out,
            "<g><title>{} {}</title><rect x=\"{x}\" y=\"{y}\" width=\"{BOX_WIDTH}\" height=\"{BOX_HEIGHT}\" rx=\"6\" \
             fill=\"{}\" stroke=\"#495057\"/><text x=\"{}\" y=\"{}\" font-size=\"12\">{}</text><text x=\"{}\" y=\"{}\" \
             font-size=\"9\" fill=\"#495057\">{}</text></g>",
            escape(&item.title),
            escape(&item.detail),
            item.fill,
            x + 8,
            y + 15,
            escape(&clip(&item.title, 32)),
            x + 8,
            y + 27,
            escape(&clip(&item.detail, 44)),
        );
    }
    (width, height)
}

fn clip(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    text.chars().take(most - 1).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use cactus_ir::{Dim, GraphBuilder, TensorType};
    use cactus_tensor::DType;

    #[test]
    fn drawings_name_every_operation_and_escape() {
        let mut b = GraphBuilder::new("a<b");
        let x = b.input("x", TensorType::new(DType::F32, [Dim::symbol("seq"), Dim::known(4)]));
        let w = b.weight("fc.weight", &[2, 4]);
        let y = b.linear(x, w, None).unwrap();
        let z = b.scale(y, 0.5).unwrap();
        b.output("z", z);
        let graph = b.finish().unwrap();
        let both = svg(&[("before", &graph), ("after", &graph)]);
        assert_eq!(both.matches("<rect x=").count(), 6);
        assert!(
            both.contains("before (2 operations)") && both.contains("translate(268 32)"),
            "{both}"
        );
        let svg = svg(&[("", &graph)]);
        assert_eq!(svg.matches("<rect x=").count(), 3);
        assert!(svg.contains("linear [2x4]") && svg.contains("mul 0.5"));
        let dot = dot(&graph);
        assert!(dot.contains("n0 -> n1") && dot.contains("in0 -> n0"));
    }
}
