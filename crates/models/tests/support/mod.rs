//! Reading golden files.
#![allow(dead_code, reason = "not every test uses all of it")]

use cactus_tensor::Tensor;
use half::{bf16, f16};
use safetensors::{Dtype, SafeTensors};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

pub(crate) fn json(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

/// Every tensor of a safetensors file, as F32.
pub(crate) fn read(path: &Path) -> BTreeMap<String, Tensor> {
    let bytes = fs::read(path).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let pair = |c: &[u8]| [c[0], c[1]];
    file.tensors()
        .into_iter()
        .map(|(name, t)| {
            let values: Vec<f32> = match t.dtype() {
                Dtype::F32 => t
                    .data()
                    .chunks(4)
                    .map(|c| f32::from_le_bytes(c.try_into().unwrap()))
                    .collect(),
                Dtype::F16 => t
                    .data()
                    .chunks(2)
                    .map(|c| f16::from_le_bytes(pair(c)).to_f32())
                    .collect(),
                Dtype::BF16 => t
                    .data()
                    .chunks(2)
                    .map(|c| bf16::from_le_bytes(pair(c)).to_f32())
                    .collect(),
                // Counters of batch norms.
                Dtype::I64 => t
                    .data()
                    .chunks(8)
                    .map(|c| i64::from_le_bytes(c.try_into().unwrap()) as f32)
                    .collect(),
                other => panic!("{name} is {other:?}"),
            };
            (name, Tensor::from_f32(t.shape().to_vec(), values).unwrap())
        })
        .collect()
}

pub(crate) fn argmax(row: &[f32]) -> i64 {
    let best = (0..row.len()).max_by(|&a, &b| row[a].total_cmp(&row[b]));
    best.unwrap() as i64
}

/// Experts that have tensors of their own as one tensor, under the names that families have for it.
pub(crate) fn stack_experts(weights: &mut BTreeMap<String, Tensor>) {
    // Granite has all experts in one tensor, under other names.
    for (own, name) in [
        ("input_linear", "experts.gate_up_proj"),
        ("output_linear", "experts.down_proj"),
        ("router.layer", "router"),
    ] {
        let of_experts = |key: &String| key.contains("block_sparse_moe.") && key.ends_with(&format!(".{own}.weight"));
        let found: Vec<String> = weights.keys().filter(|key| of_experts(key)).cloned().collect();
        for key in found {
            let tensor = weights.remove(&key).unwrap();
            let whole = if name == "router" { "router.weight" } else { name };
            weights.insert(key.replace(&format!("{own}.weight"), whole), tensor);
        }
    }
    // gpt-oss has rows and columns exchanged, and gates take turns with what they gate.
    let interleaved: Vec<String> = weights
        .keys()
        .filter(|key| key.ends_with(".experts.gate_up_proj_bias"))
        .cloned()
        .collect();
    for bias in interleaved {
        let gate_up = bias.strip_suffix("_bias").unwrap().to_owned();
        let down = gate_up.replace("gate_up_proj", "down_proj");
        let sorted = |values: &[f32], count: usize, width: usize| -> Vec<f32> {
            let order = (0..count).step_by(2).chain((1..count).step_by(2));
            let at = |all: &[f32]| {
                order
                    .clone()
                    .flat_map(|i| all[i * width..(i + 1) * width].to_vec())
                    .collect::<Vec<_>>()
            };
            values.chunks(count * width).flat_map(at).collect()
        };
        let turned = |t: &Tensor| {
            let &[experts, columns, rows] = t.shape() else {
                panic!("{:?}", t.shape())
            };
            let stored = t.as_f32().unwrap();
            let at = |e: usize, row: usize, column: usize| stored[(e * columns + column) * rows + row];
            let values = (0..experts * rows * columns).map(|i| at(i / columns / rows, i / columns % rows, i % columns));
            ([experts, rows, columns], values.collect::<Vec<f32>>())
        };
        let (shape, values) = turned(&weights[&gate_up]);
        weights.insert(
            gate_up,
            Tensor::from_f32(shape, sorted(&values, shape[1], shape[2])).unwrap(),
        );
        let (shape, values) = turned(&weights[&down]);
        weights.insert(down, Tensor::from_f32(shape, values).unwrap());
        let of_bias = weights[&bias].clone();
        let values = sorted(of_bias.as_f32().unwrap(), of_bias.shape()[1], 1);
        weights.insert(bias, Tensor::from_f32(of_bias.shape(), values).unwrap());
    }
    let mut stacks: BTreeMap<String, Vec<(usize, usize, Tensor)>> = BTreeMap::new();
    weights.retain(|name, tensor| {
        let Some((prefix, rest)) = name.split_once(".experts.") else {
            return true;
        };
        let parts: Vec<&str> = rest.split('.').collect();
        let (Some(expert), &[_, own, "weight"]) = (parts[0].parse().ok(), &parts[..]) else {
            return true;
        };
        let (joined, place) = match own {
            "gate_proj" | "w1" => ("gate_up_proj", 0),
            "up_proj" | "w3" => ("gate_up_proj", 1),
            _ => ("down_proj", 0),
        };
        let stack = stacks.entry(format!("{prefix}.experts.{joined}")).or_default();
        stack.push((expert, place, tensor.clone()));
        false
    });
    for (name, mut parts) in stacks {
        parts.sort_by_key(|part| (part.0, part.1));
        let experts = parts.last().unwrap().0 + 1;
        let columns = parts[0].2.shape()[1];
        let values: Vec<f32> = parts
            .iter()
            .flat_map(|part| part.2.as_f32().unwrap().to_vec())
            .collect();
        let rows = values.len() / experts / columns;
        let shape = [experts, rows, columns];
        weights.insert(name, Tensor::from_f32(shape, values).unwrap());
    }
}
