use super::*;
use crate::ErrorKind;

/// Tensors by name, of which rows can be read alone or not.
pub(crate) struct Given {
    pub(crate) tensors: BTreeMap<String, Tensor>,
    pub(crate) by_rows: bool,
}

impl TensorSource for Given {
    fn names(&self) -> Vec<&str> {
        self.tensors.keys().map(String::as_str).collect()
    }

    fn shape(&self, name: &str) -> Option<Vec<usize>> {
        Some(self.tensors.get(name)?.shape().to_vec())
    }

    fn stored_type(&self, name: &str) -> Option<&'static str> {
        self.tensors.get(name).map(|_| "F32")
    }

    fn read(&self, name: &str) -> Result<Tensor> {
        let missing = || Error::missing("there is no such tensor").of_tensor(name);
        self.tensors.get(name).cloned().ok_or_else(missing)
    }

    fn read_rows(&self, name: &str, rows: Range<usize>) -> Option<Result<Tensor>> {
        let tensor = self.tensors.get(name).filter(|_| self.by_rows)?;
        let k = *tensor.shape().last()?;
        let values = &tensor.as_f32().ok()?[rows.start * k..rows.end * k];
        Some(Ok(Tensor::from_f32([rows.len(), k], values.to_vec()).unwrap()))
    }

    fn describe(&self) -> String {
        String::new()
    }

    fn files(&self) -> Vec<PathBuf> {
        Vec::new()
    }
}

/// A tensor whose values count from `first`.
fn counted(shape: &[usize], first: usize) -> Tensor {
    let n: usize = shape.iter().product();
    Tensor::from_f32(shape.to_vec(), (first..first + n).map(|v| v as f32).collect()).unwrap()
}

fn stacked(tensors: &[(&str, Tensor)], by_rows: bool) -> Result<Box<dyn TensorSource>> {
    let tensors = tensors
        .iter()
        .map(|(name, t)| ((*name).to_owned(), t.clone()))
        .collect();
    with_stacked(Box::new(Given { tensors, by_rows }))
}

/// Two experts of width 2 and rows of 3: gate 0.., gated 100.., back 200..; those of the second expert from 50 on.
fn of_each(names: [&str; 3]) -> Vec<(String, Tensor)> {
    let mut all = vec![("m.gate.weight".to_owned(), counted(&[2, 3], 900))];
    for expert in 0..2 {
        for (role, name) in names.iter().enumerate() {
            let shape = if role == 2 { [3, 2] } else { [2, 3] };
            let name = format!("m.experts.{expert}.{name}.weight");
            all.push((name, counted(&shape, 100 * role + 50 * expert)));
        }
    }
    all
}

fn named(all: &[(String, Tensor)]) -> Vec<(&str, Tensor)> {
    all.iter().map(|(name, t)| (name.as_str(), t.clone())).collect()
}

#[test]
fn experts_in_tensors_of_their_own_and_of_all_are_one_tensor() {
    let want: Vec<f32> = [0, 100, 50, 150]
        .iter()
        .flat_map(|&first| (first..first + 6).map(|v| v as f32))
        .collect();
    let down: Vec<f32> = [200, 250].iter().flat_map(|&f| (f..f + 6).map(|v| v as f32)).collect();
    let values = |firsts: [usize; 2], shape: [usize; 2]| {
        let both = firsts.map(|first| counted(&shape, first).as_f32().unwrap().to_vec());
        Tensor::from_f32([2, shape[0], shape[1]], both.concat()).unwrap()
    };
    let of_all = vec![
        ("m.experts.gate_proj.weight".to_owned(), values([0, 50], [2, 3])),
        ("m.experts.up_proj.weight".to_owned(), values([100, 150], [2, 3])),
        ("m.experts.down_proj.weight".to_owned(), values([200, 250], [3, 2])),
        ("m.gate.weight".to_owned(), counted(&[2, 3], 900)),
    ];
    let joined = vec![
        (
            "m.experts.gate_up_proj.weight".to_owned(),
            Tensor::from_f32([2, 4, 3], want.clone()).unwrap(),
        ),
        ("m.experts.down_proj.weight".to_owned(), values([200, 250], [3, 2])),
        ("m.gate.weight".to_owned(), counted(&[2, 3], 900)),
    ];
    let forms = [
        of_each(["gate_proj", "up_proj", "down_proj"]),
        of_each(["w1", "w3", "w2"]),
        of_all,
        joined,
    ];
    for (form, by_rows) in forms.iter().flat_map(|form| [(form, true), (form, false)]) {
        let source = stacked(&named(form), by_rows).unwrap();
        assert_eq!(
            source.names(),
            ["m.experts.down_proj", "m.experts.gate_up_proj", "m.gate.weight"]
        );
        assert_eq!(source.shape("m.experts.gate_up_proj"), Some(vec![2, 4, 3]));
        assert_eq!(source.shape("m.experts.down_proj"), Some(vec![2, 3, 2]));
        assert_eq!(source.stored_type("m.experts.down_proj"), Some("F32"));
        let gate_up = source.read("m.experts.gate_up_proj").unwrap();
        assert_eq!(
            (gate_up.shape(), gate_up.as_f32().unwrap()),
            (&[2, 4, 3][..], &want[..])
        );
        assert_eq!(source.read("m.experts.down_proj").unwrap().as_f32().unwrap(), down);
        assert_eq!(source.read("m.gate.weight").unwrap().as_f32().unwrap()[0], 900.0);
        // Rows across experts and roles, where the source can.
        for rows in [0..8, 1..3, 3..6, 7..8, 4..4] {
            let found = source.read_rows("m.experts.gate_up_proj", rows.clone());
            let Some(found) = found else {
                assert!(!by_rows && !rows.is_empty());
                continue;
            };
            let found = found.unwrap();
            assert_eq!(found.as_f32().unwrap(), &want[rows.start * 3..rows.end * 3], "{rows:?}");
        }
        assert!(source.read_rows("m.experts.gate_up_proj", 7..9).is_none());
    }
}

#[test]
fn what_has_no_experts_or_has_them_stacked_stays_as_it_is() {
    let tensors = [
        ("m.experts.down_proj", counted(&[2, 3, 2], 0)),
        ("m.experts.gate_up_proj", counted(&[2, 4, 3], 0)),
        ("m.experts.mlp.w1", counted(&[4, 3], 0)),
        ("m.experts.01.w1.weight", counted(&[2, 3], 0)),
        ("m.w1.weight", counted(&[2, 3], 0)),
    ];
    let source = stacked(&tensors, true).unwrap();
    let mut names: Vec<&str> = tensors.iter().map(|(name, _)| *name).collect();
    names.sort_unstable();
    assert_eq!(source.names(), names);
}

#[test]
fn experts_that_do_not_fit_each_other_are_an_error() {
    let whole = of_each(["gate_proj", "up_proj", "down_proj"]);
    let without = |name: &str| -> Vec<(String, Tensor)> { whole.iter().filter(|(n, _)| n != name).cloned().collect() };
    let and = |name: &str, shape: &[usize]| {
        let mut all = without(name);
        all.push((name.to_owned(), counted(shape, 0)));
        all
    };
    let cases = [
        (
            without("m.experts.1.up_proj.weight"),
            "the Up projection of expert 1 is missing",
        ),
        (
            without("m.experts.0.down_proj.weight"),
            "Down projection of expert 0 is missing",
        ),
        (and("m.experts.7.down_proj.weight", &[3, 2]), "expert 2 is missing"),
        (and("m.experts.1.w1.weight", &[2, 3]), "the same experts as"),
        (
            and("m.experts.1.up_proj.weight", &[3, 3]),
            "expected the shape [2, 3] of the others",
        ),
        (
            and("m.experts.down_proj.weight", &[2, 3, 2]),
            "expected 1 tensors of experts, found 3",
        ),
        (and("m.experts.down_proj", &[2, 3, 2]), "tensors of their own, too"),
        (
            vec![("m.experts.down_proj.weight".into(), counted(&[3, 2], 0))],
            "expected 3 axes",
        ),
        (
            vec![("m.experts.0.down_proj.weight".into(), counted(&[3, 2, 1], 0))],
            "expected 2 axes",
        ),
        (
            vec![("m.experts.down_proj.weight".into(), counted(&[1 << 40, 0, 2], 0))],
            "no rows",
        ),
    ];
    for (tensors, text) in cases {
        let error = stacked(&named(&tensors), true).err().expect(text);
        assert_eq!(error.kind(), ErrorKind::Malformed, "{error}");
        assert!(error.to_string().contains(text), "{error} does not say {text}");
        assert!(error.tensor().is_some(), "{error}");
    }
}

#[test]
fn experts_with_rows_and_columns_exchanged_are_turned() {
    let turned = [
        ("m.experts.gate_up_proj", counted(&[2, 3, 4], 0)),
        ("m.experts.down_proj", counted(&[2, 2, 3], 100)),
        ("m.gate.weight", counted(&[2, 3], 900)),
    ];
    let want = |name: &str, n: usize, k: usize| -> Vec<f32> {
        let stored = turned
            .iter()
            .find(|t| t.0 == name)
            .unwrap()
            .1
            .as_f32()
            .unwrap()
            .to_vec();
        let at = |e: usize, row: usize, column: usize| stored[e * n * k + column * n + row];
        let rows = (0..2).flat_map(|e| (0..n).map(move |row| (e, row)));
        rows.flat_map(|(e, row)| (0..k).map(move |column| (e, row, column)))
            .map(|(e, row, column)| at(e, row, column))
            .collect()
    };
    for by_rows in [false, true] {
        let source = stacked(&turned, by_rows).unwrap();
        for (name, n, k) in [("m.experts.gate_up_proj", 4, 3), ("m.experts.down_proj", 3, 2)] {
            let want = want(name, n, k);
            assert_eq!(source.shape(name).unwrap(), [2, n, k]);
            let found = source.read(name).unwrap();
            assert_eq!((found.shape(), found.as_f32().unwrap()), (&[2, n, k][..], &want[..]));
            for (start, end) in [(0, 2 * n), (1, n + 1), (n, n), (2 * n - 1, 2 * n)] {
                let rows = source.read_rows(name, start..end);
                assert_eq!(rows.is_some(), by_rows || start == end, "{name} {start}..{end}");
                if let Some(rows) = rows {
                    let rows = rows.unwrap();
                    assert_eq!(
                        rows.as_f32().unwrap(),
                        &want[start * k..end * k],
                        "{name} {start}..{end}"
                    );
                }
            }
            assert!(source.read_rows(name, 0..2 * n + 1).is_none());
        }
    }
    // As families want them, they stay as they are; so do those that do not belong together.
    for (gate_up, down) in [
        ([2, 4, 3], [2, 3, 2]),
        ([2, 3, 4], [1, 2, 3]),
        ([2, 3, 4], [2, 2, 5]),
        ([2, 3, 0], [2, 0, 3]),
    ] {
        let source = stacked(
            &[
                ("m.experts.gate_up_proj", counted(&gate_up, 0)),
                ("m.experts.down_proj", counted(&down, 0)),
            ],
            true,
        );
        let source = source.unwrap();
        assert_eq!(source.shape("m.experts.gate_up_proj").unwrap(), gate_up);
        assert_eq!(source.shape("m.experts.down_proj").unwrap(), down);
    }
}

#[test]
fn gates_that_take_turns_with_what_they_gate_come_first() {
    let tensors = [
        ("m.experts.gate_up_proj", counted(&[2, 4, 3], 0)),
        ("m.experts.gate_up_proj_bias", counted(&[2, 4], 100)),
        ("m.experts.down_proj", counted(&[2, 3, 2], 200)),
    ];
    for by_rows in [false, true] {
        let source = with_gates_first(stacked(&tensors, by_rows).unwrap());
        let (name, row) = ("m.experts.gate_up_proj", |i: usize| {
            (3 * i..3 * i + 3).map(|v| v as f32)
        });
        let want: Vec<f32> = [0, 2, 1, 3, 4, 6, 5, 7].into_iter().flat_map(row).collect();
        let found = source.read(name).unwrap();
        assert_eq!((found.shape(), found.as_f32().unwrap()), (&[2, 4, 3][..], &want[..]));
        for (start, end) in [(0, 8), (1, 3), (2, 7), (5, 5), (7, 8)] {
            let rows = source.read_rows(name, start..end);
            assert_eq!(rows.is_some(), by_rows || start == end, "{start}..{end}");
            if let Some(rows) = rows {
                assert_eq!(
                    rows.unwrap().as_f32().unwrap(),
                    &want[3 * start..3 * end],
                    "{start}..{end}"
                );
            }
        }
        assert!(source.read_rows(name, 0..9).is_none());
        let bias = source.read("m.experts.gate_up_proj_bias").unwrap();
        let want = [100.0, 102.0, 101.0, 103.0, 104.0, 106.0, 105.0, 107.0];
        assert_eq!((bias.shape(), bias.as_f32().unwrap()), (&[2, 4][..], &want[..]));
        let other = source.read("m.experts.down_proj").unwrap();
        assert_eq!(other.as_f32().unwrap(), counted(&[2, 3, 2], 200).as_f32().unwrap());
    }
}

#[test]
fn biases_of_experts_are_one_tensor() {
    let want = [0, 50, 2, 52].map(|first| [first as f32, first as f32 + 1.0]).concat();
    let of_all = [
        ("m.experts.gate_proj.bias", counted(&[2, 2], 0)),
        ("m.experts.up_proj.bias", counted(&[2, 2], 50)),
        ("m.experts.down_proj.bias", counted(&[2, 3], 100)),
    ];
    let of_each = [
        ("m.experts.0.gate_proj.bias", counted(&[2], 0)),
        ("m.experts.0.up_proj.bias", counted(&[2], 50)),
        ("m.experts.1.gate_proj.bias", counted(&[2], 2)),
        ("m.experts.1.up_proj.bias", counted(&[2], 52)),
        ("m.experts.0.down_proj.bias", counted(&[3], 100)),
        ("m.experts.1.down_proj.bias", counted(&[3], 103)),
    ];
    for (tensors, by_rows) in [(&of_all[..], false), (&of_all, true), (&of_each, true)] {
        let source = stacked(tensors, by_rows).unwrap();
        assert_eq!(
            source.names(),
            ["m.experts.down_proj_bias", "m.experts.gate_up_proj_bias"]
        );
        let found = source.read("m.experts.gate_up_proj_bias").unwrap();
        assert_eq!((found.shape(), found.as_f32().unwrap()), (&[2, 4][..], &want[..]));
        let down = source.read("m.experts.down_proj_bias").unwrap();
        assert_eq!(down.as_f32().unwrap(), counted(&[2, 3], 100).as_f32().unwrap());
        assert!(source.read_rows("m.experts.gate_up_proj_bias", 0..1).is_none());
    }
    let wrong = stacked(&[("m.experts.down_proj.bias", counted(&[2, 3, 1], 0))], false);
    let error = wrong.err().unwrap().to_string();
    assert!(error.contains("expected 2 axes"), "{error}");
}
