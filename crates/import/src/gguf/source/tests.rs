use super::*;
use crate::ErrorKind;
use crate::gguf::writer::{Tensor as Written, Writer};
use std::sync::Arc;

/// The head of a file of `arch`.
pub(crate) fn of_arch(arch: &str) -> Writer {
    Writer::new().text("general.architecture", arch)
}

fn source(writer: &Writer) -> Result<GgufSource> {
    GgufSource::new(Path::new("m.gguf"), Arc::new(writer.bytes()))
}

fn refusal(writer: &Writer) -> Error {
    let error = source(writer).err().expect("refused");
    assert_eq!(error.file(), Some(Path::new("m.gguf")));
    error
}

fn counting(n: usize) -> Vec<f32> {
    (0..n).map(|i| i as f32).collect()
}

#[test]
fn read_of_llama_query_undoes_the_row_order() {
    // Two heads of four rows, one column. Stored row 2i + p is row p * 2 + i.
    let writer = of_arch("llama")
        .count("llama.attention.head_count", 2)
        .count("llama.attention.head_count_kv", 1)
        .f32("blk.0.attn_q.weight", &[8, 1], &counting(8))
        .f32("blk.0.attn_k.weight", &[4, 2], &counting(8))
        .f32("blk.0.attn_k.bias", &[4], &counting(4))
        .f32("blk.0.attn_v.weight", &[4, 1], &counting(4));
    let source = source(&writer).unwrap();
    let read = |name: &str| {
        let tensor = source.read(&format!("model.layers.0.self_attn.{name}")).unwrap();
        tensor.as_f32().unwrap().to_vec()
    };
    assert_eq!(read("q_proj.weight"), [0.0, 2.0, 1.0, 3.0, 4.0, 6.0, 5.0, 7.0]);
    assert_eq!(read("k_proj.weight"), [0.0, 1.0, 4.0, 5.0, 2.0, 3.0, 6.0, 7.0]);
    assert_eq!(read("k_proj.bias"), [0.0, 2.0, 1.0, 3.0]);
    assert_eq!(read("v_proj.weight"), counting(4));
}

#[test]
fn read_of_gemma_norm_and_lfm2_taps_follows_hugging_face() {
    let gemma = of_arch("gemma3").f32("output_norm.weight", &[2], &[1.5, 0.0]);
    let norm = source(&gemma).unwrap().read("model.norm.weight").unwrap();
    assert_eq!(norm.as_f32().unwrap(), [0.5, -1.0]);

    for shape in [&[4, 3][..], &[4, 1, 3]] {
        let lfm2 = of_arch("lfm2").f32("blk.1.shortconv.conv.weight", shape, &counting(12));
        let source = source(&lfm2).unwrap();
        let name = "model.layers.1.conv.conv.weight";
        assert_eq!(source.shape(name), Some(vec![4, 1, 3]));
        let taps = source.read(name).unwrap();
        assert_eq!(taps.shape(), [4, 1, 3]);
        assert_eq!(taps.as_f32().unwrap(), counting(12));
    }
}

#[test]
fn rows_of_gemma3n_are_those_of_hugging_face() {
    let table = [&counting(6)[..], &[0.0; 4]].concat();
    let file = of_arch("gemma3n")
        .f32("altup_proj.weight", &[3, 2, 2], &counting(12))
        .f32("per_layer_token_embd.weight", &[5, 2], &table)
        .f32("token_embd.weight", &[5, 1], &counting(5));
    let read = |source: &GgufSource, name: &str| {
        let tensor = source.read(name).unwrap();
        assert_eq!(Some(tensor.shape()), source.shape(name).as_deref());
        tensor.as_f32().unwrap().to_vec()
    };
    let whole = source(&file).unwrap();
    for (i, first) in [0.0, 4.0, 8.0].into_iter().enumerate() {
        let name = format!("model.altup_projections.{i}.weight");
        assert_eq!(read(&whole, &name), [first, first + 1.0, first + 2.0, first + 3.0]);
        let last = whole.read_rows(&name, 1..2).unwrap().unwrap();
        assert_eq!(last.as_f32().unwrap(), [first + 2.0, first + 3.0]);
        assert!(whole.read_rows(&name, 1..3).is_none());
    }
    // Converters fill the table up to the number of tokens.
    let inputs = "model.embed_tokens_per_layer.weight";
    assert_eq!(whole.shape(inputs), Some(vec![3, 2]));
    assert_eq!(read(&whole, inputs), counting(6));
    for (shape, values) in [(&[5, 2][..], &[0.0; 10][..]), (&[4, 2], &table[..8])] {
        let other = of_arch("gemma3n")
            .f32("per_layer_token_embd.weight", shape, values)
            .f32("token_embd.weight", &[5, 1], &counting(5));
        let rows = source(&other).unwrap().shape(inputs).unwrap()[0];
        assert_eq!(rows as u64, shape[0], "nothing was filled up");
    }
    let error = refusal(&of_arch("gemma3n").f32("altup_proj.weight", &[3, 4], &counting(12)));
    assert_eq!(error.kind(), ErrorKind::Malformed);
    assert_eq!(error.tensor(), Some("model.altup_projections.weight"));
}

#[test]
fn describe_counts_types() {
    let mut writer = of_arch("qwen2").f32("output_norm.weight", &[1], &[1.0]);
    writer.tensors.push(Written {
        name: "token_embd.weight".into(),
        dims: vec![32, 2],
        ty: 8,
        data: vec![0; 68],
        offset: None,
    });
    let source = source(&writer).unwrap();
    assert_eq!(source.describe(), "GGUF version 3, 2 tensors (F32 1, Q8_0 1)");
    assert_eq!(source.stored_type("model.embed_tokens.weight"), Some("Q8_0"));
    assert_eq!(source.names(), ["model.embed_tokens.weight", "model.norm.weight"]);
    assert_eq!(source.read("lm_head.weight").unwrap_err().kind(), ErrorKind::Missing);
}

#[test]
fn new_of_unknown_architecture_or_tensor_is_unsupported() {
    let error = refusal(&of_arch("mamba"));
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    let error = refusal(&of_arch("llama").f32("blk.0.ffn_gate_inp.weight", &[1], &[0.0]));
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert_eq!(error.tensor(), Some("blk.0.ffn_gate_inp.weight"));
    assert_eq!(refusal(&Writer::new()).kind(), ErrorKind::Missing);
}

#[test]
fn new_with_unfitting_tensor_names_it() {
    let q = "blk.0.attn_q.weight";
    let heads = |n| of_arch("llama").count("llama.attention.head_count", n);
    let cases = [
        (heads(3).f32(q, &[8, 1], &counting(8)), q, ErrorKind::Malformed),
        (heads(8).f32(q, &[8, 1], &counting(8)), q, ErrorKind::Malformed),
        (heads(0).f32(q, &[8, 1], &counting(8)), q, ErrorKind::Malformed),
        (of_arch("llama").f32(q, &[8, 1], &counting(8)), q, ErrorKind::Missing),
        (
            of_arch("lfm2").f32("blk.0.shortconv.conv.weight", &[4], &counting(4)),
            "blk.0.shortconv.conv.weight",
            ErrorKind::Malformed,
        ),
        (
            of_arch("lfm2")
                .f32("token_embd_norm.weight", &[1], &[0.0])
                .f32("output_norm.weight", &[1], &[0.0]),
            "output_norm.weight",
            ErrorKind::Malformed,
        ),
    ];
    for (writer, tensor, kind) in cases {
        let error = refusal(&writer);
        assert_eq!((error.kind(), error.tensor()), (kind, Some(tensor)), "{error}");
    }
}

#[test]
fn rope_factors_are_not_a_weight() {
    let writer = of_arch("llama").f32("rope_freqs.weight", &[2], &[1.0, 8.0]);
    let source = source(&writer).unwrap();
    assert!(source.names().is_empty());
    assert_eq!(source.rope_factors().unwrap(), Some(vec![1.0, 8.0]));
}

#[test]
fn open_file_of_split_model_reads_every_part() {
    let folder = tempfile::tempdir().unwrap();
    let path = |part: u32| folder.path().join(format!("m-{part:05}-of-00002.gguf"));
    let head = crate::gguf::config::tests::llama()
        .count("split.count", 2)
        .count("split.no", 0);
    let tail = Writer::new()
        .count("split.count", 2)
        .count("split.no", 1)
        .f32("output_norm.weight", &[4], &counting(4));
    std::fs::write(path(1), head.bytes()).unwrap();
    let error = open_file(&path(1)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Missing);
    assert_eq!(error.file(), Some(&*path(2)));

    std::fs::write(path(2), tail.bytes()).unwrap();
    let model = open_file(&path(1)).unwrap();
    assert_eq!(model.tensors.files(), [path(1), path(2)]);
    let norm = model.tensors.read("model.norm.weight").unwrap();
    assert_eq!(norm.as_f32().unwrap(), counting(4));

    let error = open_file(&path(2)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("first part"), "{error}");
}

#[test]
fn open_of_flipped_file_is_ok_or_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.gguf");
    let bytes = crate::gguf::config::tests::llama().bytes();
    std::fs::write(&path, &bytes).unwrap();
    crate::open(&path).unwrap();
    for at in 0..bytes.len() {
        for flip in [1, 0x40, 0xff] {
            let mut bytes = bytes.clone();
            bytes[at] ^= flip;
            let path = Path::new("m.gguf");
            let Ok(source) = GgufSource::new(path, Arc::new(bytes)) else {
                continue;
            };
            for name in source.names() {
                source.read(name).unwrap();
            }
            let _ = config::config(&source);
            let _ = config::generation_config(&source.file().metadata);
            let _ = tokenizer::tokenizer(&source.file().metadata);
        }
    }
}

#[test]
fn numbers_before_the_softplus_are_of_numbers_above_zero() {
    let want = [-3.5f32, 0.0, 0.25, 20.0];
    let stored = want.map(|x| f64::from(x).exp().ln_1p() as f32);
    for (found, want) in before_softplus(&stored).unwrap().iter().zip(want) {
        assert!((found - want).abs() <= 1e-6 * want.abs().max(1.0), "{found} {want}");
    }
    for bad in [0.0, -1.0, f32::NAN, f32::INFINITY] {
        let error = before_softplus(&[1.0, bad]).unwrap_err();
        assert!(error.to_string().contains("above 0"), "{error}");
    }
}
