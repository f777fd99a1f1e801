//! Hands libFuzzer's bytes to the bodies of `cactus-fuzzing`, which the stable toolchain tests too.
#![forbid(unsafe_code)]

/// Runs the target called `name` on `data`.
///
/// # Panics
/// Where the target fails, or there is none of that name.
pub fn run(name: &str, data: &[u8]) {
    let target = cactus_fuzzing::target(name).expect("a program for each target");
    // Whether it is accepted does not matter here.
    let _ = (target.run)(data);
}

#[cfg(test)]
mod tests {
    /// Writes the seeds to `corpus/`, for `fuzz.sh`.
    #[test]
    #[ignore = "writes files"]
    fn write_seeds() {
        for target in cactus_fuzzing::TARGETS {
            let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
                .join("corpus")
                .join(target.name);
            std::fs::create_dir_all(&folder).unwrap();
            for (i, seed) in (target.seeds)().iter().enumerate() {
                std::fs::write(folder.join(format!("seed-{i:02}")), seed).unwrap();
            }
        }
    }
}
