//! The program, in a folder of its own.

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// A folder with a tiny model `m`, which by itself answers nothing of sense, and a place for budget, record and keys.
pub(crate) struct Cactus(pub(crate) tempfile::TempDir);

impl Cactus {
    pub(crate) fn new() -> Self {
        let cactus = Cactus(tempfile::tempdir().unwrap());
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden/models/qwen2_tied");
        cactus.ok(&["convert", source.to_str().unwrap(), "m"]);
        cactus
    }

    /// Writes a file into the folder, and folders for it.
    pub(crate) fn write(&self, name: &str, text: &str) {
        let path = self.0.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cactus"));
        command.args(args).current_dir(self.0.path());
        command
            .env("CACTUS_CACHE", self.0.path().join("cache"))
            .env("CACTUS_STATE", self.0.path().join("state"))
            .env("NO_COLOR", "1")
            .stdin(Stdio::null());
        command
    }

    pub(crate) fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    pub(crate) fn ok(&self, args: &[&str]) -> String {
        let out = self.run(args);
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success(), "{args:?}: {said}");
        String::from_utf8(out.stdout).unwrap()
    }

    /// The result of a prompt as JSON.
    pub(crate) fn asked(&self, args: &[&str]) -> Value {
        let fixed = ["run", "m", "--prompt", "Hello", "--temperature", "0", "--json"];
        serde_json::from_str(&self.ok(&[&fixed, args].concat())).unwrap()
    }
}
