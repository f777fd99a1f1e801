//! Holds `docs/reference/ops.md` to the code: every operation, attribute and function, and the types of its examples.

use cactus_ir::{Dim, Op, TensorType, infer};
use cactus_tensor::DType;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// Cells of every table row of the page, by the heading they stand under.
fn rows() -> Vec<(String, Vec<String>)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/ops.md");
    let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let mut heading = String::new();
    let mut rows = Vec::new();
    for line in text.lines() {
        if let Some(h) = line.strip_prefix("## ") {
            heading = h.to_owned();
        } else if let Some(cells) = line.strip_prefix("| ").and_then(|l| l.strip_suffix('|')) {
            let cells: Vec<String> = cells.split('|').map(|c| c.trim().to_owned()).collect();
            rows.push((heading.clone(), cells));
        }
    }
    rows
}

/// The words in back quotes of a cell.
fn quoted(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

/// What serde would have accepted where it met a stranger.
fn expected_instead(value: Value) -> BTreeSet<String> {
    let e = serde_json::from_value::<Op>(value).unwrap_err().to_string();
    let list = e.split_once("expected").expect(&e).1;
    quoted(list).into_iter().map(str::to_owned).collect()
}

/// The attributes of each operation as the page has them; `?` marks those that may be absent.
fn documented() -> BTreeMap<String, Vec<String>> {
    let mut out = BTreeMap::new();
    for (heading, cells) in rows() {
        let described = heading.starts_with("Primitive") || heading == "Fused";
        if described && cells.len() == 4 && cells[0] != "`op`" {
            let attributes = quoted(&cells[1]).into_iter().map(str::to_owned).collect();
            let name = quoted(&cells[0])[0].to_owned();
            assert!(out.insert(name, attributes).is_none(), "{}", cells[0]);
        }
    }
    out
}

#[test]
fn operations_are_those_of_the_type() {
    let page: BTreeSet<String> = documented().into_keys().collect();
    assert_eq!(page, expected_instead(json!({"op": "?"})));
}

#[test]
fn functions_are_those_of_the_type() {
    let page: BTreeMap<String, BTreeSet<String>> = rows()
        .iter()
        .filter(|(heading, cells)| heading == "Primitive: elementwise" && cells.len() == 2 && cells[0] != "Function of")
        .map(|(_, cells)| {
            let functions = quoted(&cells[1]).into_iter().map(str::to_owned).collect();
            (quoted(&cells[0])[0].to_owned(), functions)
        })
        .collect();
    assert_eq!(page.len(), 4);
    for (op, functions) in page {
        let type_has = expected_instead(json!({"op": op, "f": "?", "axes": [], "keepdim": true}));
        assert_eq!(functions, type_has, "{op}");
    }
    let gated = rows()
        .into_iter()
        .find(|(_, c)| c[0] == "`gated`" && c.len() == 4)
        .unwrap()
        .1;
    let activations: BTreeSet<String> = quoted(&gated[3]).into_iter().skip(1).map(str::to_owned).collect();
    assert_eq!(activations, expected_instead(json!({"op": "gated", "activation": "?"})));
}

fn parse_type(text: &str) -> TensorType {
    let (dtype, shape) = text.strip_suffix(']').and_then(|t| t.split_once('[')).expect(text);
    let dims = shape.split(',').map(str::trim).filter(|d| !d.is_empty());
    let dims: Vec<Dim> = dims.map(|d| d.parse().expect(text)).collect();
    TensorType::new(DType::from_name(dtype).expect(text), dims)
}

#[test]
fn attributes_and_types_are_those_of_the_examples() {
    let documented = documented();
    // Some attributes of an operation exclude each other, so its examples show all of them together.
    let mut shown: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let examples = rows()
        .into_iter()
        .filter(|(heading, cells)| heading == "Types by example" && cells[0] != "`op`");
    for (_, cells) in examples {
        let row = cells.join(" | ");
        let name = quoted(&cells[0])[0];
        let attributes: Map<String, Value> = serde_json::from_str(quoted(&cells[1])[0]).expect(&row);
        let given: Vec<&str> = attributes.keys().map(String::as_str).collect();
        let page: Vec<&str> = documented[name].iter().map(|a| a.trim_end_matches('?')).collect();
        let in_order: Vec<&str> = page.into_iter().filter(|a| attributes.contains_key(*a)).collect();
        assert_eq!(given, in_order, "attributes of the page, in its order: {row}");

        let read = |attributes: &Map<String, Value>| {
            let mut all = attributes.clone();
            all.insert("op".to_owned(), name.into());
            serde_json::from_value::<Op>(Value::Object(all))
        };
        let op = read(&attributes).expect(&row);
        for attribute in &documented[name] {
            let name = attribute.trim_end_matches('?');
            if !attributes.contains_key(name) {
                assert!(attribute.ends_with('?'), "{attribute}: {row}");
                continue;
            }
            let mut fewer = attributes.clone();
            fewer.remove(name);
            assert_eq!(read(&fewer).is_ok(), attribute.ends_with('?'), "{attribute}: {row}");
        }
        // Everything the type has is on the page.
        let Value::Object(written) = serde_json::to_value(&op).unwrap() else {
            panic!("an operation is an object");
        };
        assert_eq!(written.len(), given.len() + 1, "{written:?}");

        let operands: Vec<TensorType> = quoted(&cells[2]).into_iter().map(parse_type).collect();
        let operands: Vec<&TensorType> = operands.iter().collect();
        let result = infer(&op, &operands).expect(&row);
        assert_eq!(result.to_string(), quoted(&cells[3])[0], "{row}");
        shown
            .entry(name.to_owned())
            .or_default()
            .extend(given.into_iter().map(str::to_owned));
    }
    let all = documented.into_iter().map(|(name, attributes)| {
        let attributes = attributes.iter().map(|a| a.trim_end_matches('?').to_owned());
        (name, attributes.collect())
    });
    assert_eq!(
        shown,
        all.collect(),
        "examples show every operation and every attribute"
    );
}
