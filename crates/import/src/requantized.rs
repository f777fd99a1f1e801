//! What the user should know of a source whose weights are quantized already.

use crate::TensorSource;
use crate::convert::Planned;
use cactus_quant::gguf::GgmlType;
use std::collections::BTreeSet;

/// One note about all weights that the source stores in blocks and the bundle in groups; `None` where there are none.
pub(crate) fn note(source: &dyn TensorSource, weights: &[Planned<'_>]) -> Option<String> {
    let mut types = BTreeSet::new();
    let mut finer = BTreeSet::new();
    let mut group = 0;
    for (_, expr, _, packing) in weights.iter().filter(|(.., p)| p.group_size() > 0) {
        let stored = expr.sources().into_iter().filter_map(|name| source.stored_type(name));
        for ty in stored.filter_map(blocks_of) {
            types.insert(ty);
            if ty.group_elems() < packing.group_size() {
                finer.insert(ty);
                group = group.max(packing.group_size());
            }
        }
    }
    if types.is_empty() {
        return None;
    }
    let bits = |ty: &GgmlType| 8.0 * ty.block_bytes() as f64 / ty.block_elems() as f64;
    let all: Vec<String> = types.iter().map(|ty| format!("{ty}, {:.1} bits", bits(ty))).collect();
    let mut note = format!(
        "the source is quantized already ({}), and what that lost stays lost. Quality is measured against the decoded weights",
        all.join("; ")
    );
    if !finer.is_empty() {
        let finer: Vec<String> = finer.iter().map(|ty| format!("{ty} {}", ty.group_elems())).collect();
        note += &format!(
            ". Values are not kept exactly, because one scale stands for fewer weights in the source ({}) than here ({group})",
            finer.join(", ")
        );
    }
    Some(note)
}

/// The type of blocks called `name`.
fn blocks_of(name: &str) -> Option<GgmlType> {
    GgmlType::all().find(|ty| ty.name() == name && ty.block_elems() > 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Result;
    use cactus_ir::WeightExpr;
    use cactus_quant::Packing;
    use cactus_tensor::Tensor;
    use std::path::PathBuf;

    /// A source of which the names are the types.
    struct Named;

    impl TensorSource for Named {
        fn names(&self) -> Vec<&str> {
            Vec::new()
        }

        fn shape(&self, _: &str) -> Option<Vec<usize>> {
            None
        }

        fn stored_type(&self, name: &str) -> Option<&'static str> {
            ["Q4_K", "Q6_K", "Q8_0", "F16"].into_iter().find(|ty| *ty == name)
        }

        fn read(&self, _: &str) -> Result<Tensor> {
            Err(crate::Error::missing("nothing is read"))
        }

        fn describe(&self) -> String {
            String::new()
        }

        fn files(&self) -> Vec<PathBuf> {
            Vec::new()
        }
    }

    #[test]
    fn types_bits_and_finer_groups_are_named_once() {
        let exprs = ["Q4_K", "Q6_K", "Q8_0", "F16"].map(|name| WeightExpr::Source(name.into()));
        let found = |packing: Packing, of: &[usize]| {
            let planned: Vec<Planned<'_>> = of
                .iter()
                .chain(of)
                .map(|&i| (format!("w{i}"), &exprs[i], vec![1], packing))
                .collect();
            note(&Named, &planned)
        };
        let all = found(Packing::Cq4G128, &[0, 1, 3]).unwrap();
        assert!(all.contains("(Q4_K, 4.5 bits; Q6_K, 6.6 bits)"), "{all}");
        assert!(all.contains("(Q4_K 32, Q6_K 16) than here (128)"), "{all}");
        let none_finer = found(Packing::Int8G32, &[0, 2]).unwrap();
        assert!(
            none_finer.contains("Q8_0, 8.5 bits") && !none_finer.contains("fewer weights"),
            "{none_finer}"
        );
        assert!(
            found(Packing::Int8G32, &[1])
                .unwrap()
                .contains("(Q6_K 16) than here (32)")
        );
        assert_eq!(found(Packing::Cq4G128, &[3]), None);
        assert_eq!(found(Packing::F16N16, &[0]), None);
    }
}
