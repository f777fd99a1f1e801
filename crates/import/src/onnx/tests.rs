use super::*;

/// A field of bytes.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let (mut out, mut len) = (vec![number << 3 | 2], bytes.len());
    while len >= 0x80 {
        out.push(len as u8 | 0x80);
        len >>= 7;
    }
    out.push(len as u8);
    [&out[..], bytes].concat()
}

fn node(op: &str, inputs: &[&str], outputs: &[&str], attributes: &[Vec<u8>]) -> Vec<u8> {
    let texts = |number, texts: &[&str]| {
        texts
            .iter()
            .flat_map(|t| field(number, t.as_bytes()))
            .collect::<Vec<u8>>()
    };
    let attributes = attributes.iter().flat_map(|a| field(5, a)).collect();
    field(
        1,
        &[texts(1, inputs), texts(2, outputs), field(4, op.as_bytes()), attributes].concat(),
    )
}

/// The attribute `axis` that is 0.
fn axis() -> Vec<u8> {
    [field(1, b"axis"), vec![3 << 3, 0]].concat()
}

/// Numbers of 32 bits with the values 0, 1, ….
fn floats(name: &str, shape: &[u8]) -> Vec<u8> {
    let elements: usize = shape.iter().map(|&n| usize::from(n)).product();
    let data: Vec<u8> = (0..elements).flat_map(|i| (i as f32).to_le_bytes()).collect();
    let dims = shape.iter().flat_map(|&n| [1 << 3, n]).collect();
    field(
        5,
        &[dims, vec![2 << 3, 1], field(8, name.as_bytes()), field(9, &data)].concat(),
    )
}

fn integers(name: &str, values: &[i64]) -> Vec<u8> {
    let data: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    field(
        5,
        &[
            vec![1 << 3, values.len() as u8, 2 << 3, 7],
            field(8, name.as_bytes()),
            field(9, &data),
        ]
        .concat(),
    )
}

fn program(parts: &[Vec<u8>]) -> (Vec<u8>, Program) {
    let bytes = field(7, &parts.concat());
    let program = Program::parse(&bytes).unwrap();
    (bytes, program)
}

/// What the last node gives, where it is made of constants.
fn last(parts: &[Vec<u8>]) -> Option<(Vec<usize>, Vec<f32>)> {
    let (bytes, program) = program(parts);
    let rows = program.rows(*program.nodes.last()?.outputs.first()?)?;
    let pieces = rows.pieces.iter().flat_map(|p| bytes[p.clone()].as_chunks::<4>().0);
    Some((rows.shape, pieces.map(|b| f32::from_le_bytes(*b)).collect()))
}

#[test]
fn rows_are_what_the_nodes_make_of_constants() {
    let constants = [
        floats("x", &[4, 2]),
        integers("one", &[1]),
        integers("three", &[3]),
        integers("far", &[i64::MAX]),
        integers("back", &[-1]),
        integers("zero", &[0]),
    ];
    let of = |nodes: &[Vec<u8>]| last(&[&constants[..], nodes].concat());
    let slice = |start, end| node("Slice", &["x", start, end, "zero"], &["y"], &[]);
    assert_eq!(
        of(&[slice("one", "three")]),
        Some((vec![2, 2], vec![2.0, 3.0, 4.0, 5.0]))
    );
    assert_eq!(of(&[slice("three", "far")]), Some((vec![1, 2], vec![6.0, 7.0])));
    let both = node("Concat", &["y", "x", "y"], &["z"], &[axis()]);
    let (shape, values) = of(&[slice("three", "far"), both.clone()]).unwrap();
    assert_eq!(
        (shape, values),
        (
            vec![6, 2],
            vec![6.0, 7.0, 0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 6.0, 7.0]
        )
    );
    let under = node("Unsqueeze", &["z", "zero"], &["u"], &[]);
    assert_eq!(of(&[slice("three", "far"), both, under]).unwrap().0, [1, 6, 2]);
    // What is no such part.
    for other in [
        slice("back", "far"),
        slice("three", "one"),
        node("Slice", &["x", "one", "three", "one"], &["y"], &[]),
        node("Concat", &["x", "one"], &["y"], &[axis()]),
        node("Concat", &["x", "x"], &["y"], &[]),
        node("Unsqueeze", &["x", "one"], &["y"], &[]),
        node("Relu", &["x"], &["y"], &[]),
        node("Identity", &["nothing"], &["y"], &[]),
    ] {
        assert_eq!(of(&[other]), None);
    }
}

/// A few nodes that say what would fill any memory.
#[test]
fn rows_that_are_put_together_again_and_again_are_given_up() {
    let mut parts = vec![floats("v0", &[2, 2])];
    for i in 0..200 {
        let (from, to) = (format!("v{i}"), format!("v{}", i + 1));
        parts.push(node("Concat", &[&from, &from, &from, &from], &[&to], &[axis()]));
    }
    assert_eq!(last(&parts), None);
    assert!(last(&parts[..3]).is_some());
}

#[test]
fn names_in_a_branch_hide_those_around_it() {
    let branch = |parts: &[Vec<u8>]| field(6, &[parts.concat(), field(12, &field(1, b"y"))].concat());
    let inner = branch(&[floats("x", &[1]), node("Relu", &["x"], &["y"], &[])]);
    let outer = branch(&[node("Neg", &["x"], &["y"], &[])]);
    let either = node("If", &["c"], &["z"], &[inner, outer]);
    let (_, program) = program(&[floats("x", &[3]), either, node("Exp", &["z"], &["w"], &[])]);
    let ops: Vec<&str> = program.nodes.iter().map(|n| n.op.as_str()).collect();
    assert_eq!(ops, ["Relu", "Neg", "If", "Exp"]);
    let shape = |node: usize| {
        program
            .constant(program.nodes[node].inputs[0].unwrap())
            .unwrap()
            .shape
            .clone()
    };
    assert_eq!((shape(0), shape(1)), (vec![1], vec![3]));
    // What is made of either goes on behind it.
    for node in [0, 1] {
        let next = program.next(&program.nodes[node].outputs, |n| n.op == "Exp");
        assert!(next.is_some());
    }
    let deep = (0..MAX_DEPTH + 1).fold(vec![], |inner, _| node("If", &[], &[], &[field(6, &inner)]));
    let error = Program::parse(&field(7, &deep)).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("too deep"), "{error}");
}

#[test]
fn constants_that_do_not_fit_are_refused_by_name() {
    let long = [1 << 3, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f];
    let tensor = |parts: &[&[u8]]| field(5, &[&parts.concat()[..], &field(8, b"w")].concat());
    for (bytes, says) in [
        (
            tensor(&[&[1 << 3, 3, 2 << 3, 1], &field(9, &[0; 8])]),
            "does not fit 8 bytes",
        ),
        (tensor(&[&long, &long, &[2 << 3, 1]]), "too many elements"),
        (
            tensor(&[&[1 << 3, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1]]),
            "negative",
        ),
        (tensor(&[&[1 << 3, 1, 2 << 3, 1], &field(13, b"")]), "another file"),
    ] {
        let error = Program::parse(&field(7, &bytes)).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains(says) && error.contains('w'), "{says}: {error}");
    }
}
