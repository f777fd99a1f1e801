//! A bundle whose `graph.cactus` was written by another version is lowered again from its saved IR.
//!
//! `golden/bundles/old_graph` is such a bundle: the classifier of `golden/pt2`, its graph file with a header of a version
//! that nobody reads and a payload that nobody can. It is kept as it is. `CACTUS_UPDATE_GOLDEN=1` writes it anew, which a
//! change of the bundle's own version may need.

mod support;

use cactus_base::Pool;
use cactus_bundle::Bundle;
use cactus_import::pt2::{Task, TranspileOptions, transpile};
use cactus_runtime::Function;
use cactus_tensor::Tensor;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use support::{of_another_version, put};

const SAVED: &str = "components/model/optimized_ir.json";

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden")
}

fn made(destination: &Path) {
    let options = TranspileOptions {
        task: Task::Function,
        replace: true,
        ..TranspileOptions::default()
    };
    transpile(
        &golden().join("pt2/classifier.pt2"),
        destination,
        &options,
        &mut |_, _| {},
    )
    .unwrap();
}

fn classes(root: &Path) -> Tensor {
    let bundle = Arc::new(Bundle::open(root).unwrap());
    let function = Function::new(bundle, "model", None).unwrap();
    let ids = Tensor::from_i64([1, 5], vec![3, 40, 7, 7, 12]).unwrap();
    let inputs = BTreeMap::from([("input_ids".to_owned(), ids)]);
    let pool = Pool::new(1);
    function.run(&pool, 1, &inputs).unwrap().remove(0).1
}

#[test]
fn bundle_with_a_graph_of_another_version_runs_from_its_saved_ir() {
    let old = golden().join("bundles/old_graph");
    if std::env::var_os("CACTUS_UPDATE_GOLDEN").is_some_and(|v| v == "1") {
        made(&old);
        of_another_version(&old, "model");
    }
    let folder = tempfile::tempdir().unwrap();
    let new = folder.path().join("new");
    made(&new);
    assert_eq!(classes(&old), classes(&new));
}

#[test]
fn saved_ir_that_cannot_be_read_either_is_an_error_that_says_both() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("bundle");
    made(&root);
    of_another_version(&root, "model");
    assert!(Bundle::open(&root).unwrap().graph("model").is_ok());
    put(&root, SAVED, b"{\"version\": 99}");
    let e = Bundle::open(&root).unwrap().graph("model").unwrap_err().to_string();
    assert!(
        e.contains("format version 77") && e.contains("not readable either"),
        "{e}"
    );
}
