//! The sets of kernels that this CPU has, and the table of their names.

use cactus_kernels::registry::{rows, tier_rows};
use cactus_kernels::{ErrorKind, Kernels};
use cactus_simd::{Isa, Op, Simd, Tier};

#[test]
fn tier_rows_are_those_of_the_tokens() {
    struct TileRows;
    impl Op for TileRows {
        type Output = usize;
        fn eval<S: Simd>(self, _: S) -> usize {
            S::TILE_ROWS
        }
    }
    for isa in Isa::available() {
        assert_eq!(isa.dispatch(TileRows), tier_rows(isa.tier()), "{}", isa.tier());
    }
}

#[test]
fn names_follow_the_grammar_and_are_unique() {
    let types = [
        "f32", "f16", "i8g32", "q8r", "q8h", "cq1g128", "cq2g128", "cq3g128", "cq4g128", "cq5g128", "cq6g128",
        "tcq2g128", "tcq3g128", "tcq4g128", "tcq5g128", "tcq6g128", "q15", "i8", "b1", "u32",
    ];
    let mut names = Vec::new();
    for row in rows() {
        let operands = [Some(row.out), Some(row.lhs), row.rhs];
        assert!(operands.into_iter().flatten().all(|t| types.contains(&t)), "{row:?}");
        assert!(row.op.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'), "{row:?}");
        names.extend(Tier::ALL.map(|tier| row.name(tier)));
    }
    assert!(
        names.contains(&"attention_f32_f32_i8g32_8x64_avx512_vnni".to_owned()),
        "{names:?}"
    );
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
}

#[test]
fn choose_unknown_tier_says_what_exists() {
    let error = Kernels::choose("sse9").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnsupportedTier);
    assert!(
        error.to_string().contains("scalar") && error.to_string().contains("sse9"),
        "{error}"
    );
    for kernels in Kernels::available() {
        assert_eq!(Kernels::choose(kernels.tier().name()).unwrap().tier(), kernels.tier());
    }
    assert_eq!(
        Kernels::choose("auto").unwrap().tier(),
        Kernels::available().last().unwrap().tier()
    );
}
