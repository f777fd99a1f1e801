//! Swift reads the C header: its raw layer is a module map and a copy of the header.

use super::{Abi, Generated};

const FOLDER: &str = "sdks/swift/Sources/CCactus/include";
const MAP: &str = "module CCactus {\n    header \"cactus.h\"\n    export *\n}\n";

pub(super) fn files(_abi: &Abi) -> Vec<Generated> {
    let header = include_str!("../../../crates/ffi/include/cactus.h");
    vec![
        (format!("{FOLDER}/cactus.h"), header.to_owned()),
        (format!("{FOLDER}/module.modulemap"), MAP.to_owned()),
    ]
}
