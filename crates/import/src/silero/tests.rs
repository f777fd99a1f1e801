use super::*;
use crate::{ConvertOptions, ErrorKind, convert, is_weights_file, open};
use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden/speech/silero_vad")
}

/// Shapes by name, and the file that has them, filled with zeros.
type Shapes = BTreeMap<&'static str, Vec<usize>>;

fn shapes() -> Shapes {
    BTreeMap::from([
        ("stft_conv.weight", vec![34, 1, 32]),
        ("conv1.weight", vec![12, 17, 3]),
        ("conv2.weight", vec![8, 12, 3]),
        ("conv3.weight", vec![8, 8, 3]),
        ("conv4.weight", vec![10, 8, 3]),
        ("lstm_cell.weight_hh", vec![80, 20]),
        ("final_conv.weight", vec![1, 20, 1]),
    ])
}

fn file(shapes: &Shapes) -> Vec<u8> {
    let (mut header, mut end) = (json!({}), 0);
    for (name, shape) in shapes {
        let start = end;
        end += 4 * shape.iter().product::<usize>();
        header[*name] = json!({"dtype": "F32", "shape": shape, "data_offsets": [start, end]});
    }
    let header = header.to_string();
    [
        &(header.len() as u64).to_le_bytes()[..],
        header.as_bytes(),
        &vec![0; end],
    ]
    .concat()
}

#[test]
fn the_file_its_folder_and_no_other_are_the_model() {
    let model = open(&golden()).unwrap();
    assert_eq!(model.format, "silero");
    assert_eq!(
        model.config,
        json!({"model_type": "silero_vad", "fft_samples": 32, "widths": [12, 8, 8, 10], "hidden_size": 20})
    );
    let path = golden().join(FILES[0]);
    assert!(open(&path).is_ok() && is_file(&path) && !is_weights_file(&path));
    let other = golden().join("expected.safetensors");
    assert!(!is_file(&other) && is_weights_file(&other));
    assert_eq!(open(&other).unwrap_err().kind(), ErrorKind::Unsupported);
}

#[test]
fn shapes_that_do_not_fit_are_refused_by_name() {
    let read = |shapes: &Shapes| read(Path::new("m.safetensors"), Arc::new(file(shapes))).map(|(config, _)| config);
    assert!(read(&shapes()).is_ok());
    for (name, shape) in [
        ("stft_conv.weight", vec![33, 1, 32]),
        ("stft_conv.weight", vec![34, 2, 32]),
        ("stft_conv.weight", vec![34, 32]),
        ("conv1.weight", vec![12, 16, 3]),
        ("conv3.weight", vec![8, 8, 5]),
        ("conv4.weight", vec![]),
        ("lstm_cell.weight_hh", vec![79, 20]),
        ("lstm_cell.weight_hh", vec![80]),
    ] {
        let mut changed = shapes();
        changed.insert(name, shape);
        let error = read(&changed).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains(name), "{error}");
        changed.remove(name);
        let error = read(&changed).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Missing);
        assert!(error.to_string().contains(name), "{error}");
    }
}

/// Whatever is cut off or missing: an error, and nothing where the bundle would be.
#[test]
fn damaged_files_are_refused_and_leave_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (path, to) = (folder.path().join(FILES[0]), folder.path().join("m"));
    let whole = fs::read(golden().join(FILES[0])).unwrap();
    // Biases are missing.
    let some = file(&shapes());
    for bytes in [
        &whole[..0],
        &whole[..7],
        &whole[..300],
        &whole[..whole.len() - 1],
        &some[..],
    ] {
        fs::write(&path, bytes).unwrap();
        assert!(convert(&path, &to, &ConvertOptions::default(), &mut |_, _| {}).is_err());
        assert!(!to.exists());
    }
    fs::write(&path, &whole).unwrap();
    convert(&path, &to, &ConvertOptions::default(), &mut |_, _| {}).unwrap();
}
