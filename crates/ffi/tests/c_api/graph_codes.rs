//! Why a graph function failed, by the code of the last error.

use crate::support::*;
use cactus_ffi::*;
use std::ffi::c_void;

const FP32: i32 = 2;

struct Graph(*mut c_void);

impl Graph {
    fn new() -> Graph {
        Graph(unsafe { cactus_graph_create() })
    }

    fn input(&self, shape: &[usize]) -> u64 {
        let mut node = 0;
        let code = unsafe { cactus_graph_input(self.0, shape.as_ptr(), shape.len(), FP32, &raw mut node) };
        assert_eq!(code, 0, "{}", error().1);
        node
    }

    fn set(&self, node: u64, values: &[f32]) {
        let code = unsafe { cactus_graph_set_input(self.0, node, values.as_ptr().cast(), FP32) };
        assert_eq!(code, 0, "{}", error().1);
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        unsafe { cactus_graph_destroy(self.0) };
    }
}

#[test]
fn files_that_are_missing_damaged_or_unreadable_have_codes_of_their_own() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| c(folder.path().join(name).to_str().unwrap());
    let graph = Graph::new();
    let mut node = 0;
    let x = graph.input(&[2]);
    let whole = path("whole");
    assert_eq!(unsafe { cactus_graph_save(graph.0, whole.as_ptr()) }, 0);
    let bytes = std::fs::read(whole.to_str().unwrap()).unwrap();
    let write = |name: &str, bytes: &[u8]| std::fs::write(folder.path().join(name), bytes).unwrap();
    write("cut", &bytes[..bytes.len() / 2]);
    write(
        "text",
        b"this is a text, and long enough for a header of either of the two kinds of file that there are here",
    );
    let mut newer = bytes.clone();
    newer[8] = 99;
    write("newer", &newer);
    for (name, code) in [
        ("missing", Code::NotFound),
        ("cut", Code::Bundle),
        ("text", Code::Bundle),
    ] {
        let file = path(name);
        assert!(unsafe { cactus_graph_load(file.as_ptr()) }.is_null(), "{name}");
        assert_eq!(error().0, code as i32, "load {name}: {}", error().1);
        assert_eq!(
            unsafe { cactus_graph_mmap_weights(graph.0, file.as_ptr(), &raw mut node) },
            -1
        );
        assert_eq!(error().0, code as i32, "weights {name}: {}", error().1);
        assert_eq!(unsafe { cactus_graph_bind_mmap_weights(graph.0, x, file.as_ptr()) }, -1);
        assert_eq!(error().0, code as i32, "bind {name}: {}", error().1);
    }
    assert!(unsafe { cactus_graph_load(path("newer").as_ptr()) }.is_null());
    assert_eq!(error().0, Code::Bundle as i32, "{}", error().1);
    // A folder is there, and cannot be read.
    assert!(unsafe { cactus_graph_load(path("").as_ptr()) }.is_null());
    assert_eq!(error().0, Code::System as i32, "{}", error().1);
    // A file is no folder.
    assert_eq!(unsafe { cactus_graph_save(graph.0, path("whole/inside").as_ptr()) }, -1);
    assert_eq!(error().0, Code::System as i32, "{}", error().1);
}

#[test]
fn sampling_out_of_range_is_refused_with_what_was_found() {
    let graph = Graph::new();
    let (x, mut node) = (graph.input(&[1, 5]), 0);
    for (temperature, top_p, top_k, want) in [
        (f32::NAN, 1.0, 0, "`temperature`: expected a number from 0 to 100"),
        (-1.0, 1.0, 0, "found -1"),
        (f32::INFINITY, 1.0, 0, "found inf"),
        (1.0, 2.0, 0, "`top_p`: expected a number from 0 to 1"),
        (1.0, f32::NAN, 0, "found NaN"),
        (
            1.0,
            1.0,
            usize::MAX,
            "`top_k`: expected a whole number from 0 to 2147483647",
        ),
    ] {
        let code = unsafe { cactus_graph_sample(graph.0, x, temperature, top_p, top_k, &raw mut node) };
        let (kind, message) = error();
        assert_eq!((code, kind), (-1, Code::Argument as i32));
        assert!(message.starts_with("sample: ") && message.contains(want), "{message}");
    }
    for (temperature, top_p, top_k) in [(0.0, 0.0, 0), (100.0, 1.0, 5), (0.6, 0.95, 2_000_000)] {
        assert_eq!(
            unsafe { cactus_graph_sample(graph.0, x, temperature, top_p, top_k, &raw mut node) },
            0
        );
    }
}

/// A result of 4 GiB, in a process that may have less.
#[test]
#[cfg(target_os = "linux")]
fn execution_without_memory_is_refused_by_the_system() {
    if std::env::var_os("CACTUS_TEST_LITTLE_MEMORY").is_none() {
        let name = "graph_codes::execution_without_memory_is_refused_by_the_system";
        let child = std::process::Command::new("sh")
            .args(["-c", "ulimit -v 3000000 && exec \"$0\" --exact \"$1\" --nocapture"])
            .arg(std::env::current_exe().unwrap())
            .arg(name)
            .env("CACTUS_TEST_LITTLE_MEMORY", "1")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&child.stdout);
        let failed = String::from_utf8_lossy(&child.stderr);
        assert!(child.status.success() && said.contains("1 passed"), "{said}{failed}");
        return;
    }
    let n = 1 << 15;
    let graph = Graph::new();
    let (column, row) = (graph.input(&[n, 1]), graph.input(&[1, n]));
    let mut sum = 0;
    assert_eq!(unsafe { cactus_graph_add(graph.0, column, row, &raw mut sum) }, 0);
    for input in [column, row] {
        graph.set(input, &vec![1.0; n]);
    }
    assert_eq!(unsafe { cactus_graph_execute(graph.0) }, -1);
    let (code, message) = error();
    assert_eq!(code, Code::System as i32, "{message}");
    assert!(message.contains("4294967296 bytes"), "{message}");
}
