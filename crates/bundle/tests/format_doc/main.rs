//! Holds `docs/reference/format.md` to the code: header tables, codes, packings, versions, fields of documents.

mod embedding;
mod hearing;
mod speech;

use cactus_bundle::{
    BUNDLE_VERSION, BlockSums, Checksum, Component, FileEntry, GRAPH_VERSION, Manifest, OLDEST_BUNDLE_VERSION,
    PortDecl, Provenance, RECORD_HEADER_BYTES, RecordHeader, TENSOR_VERSION, TokenIds, WeightEntry, WeightsManifest,
    encode_graph,
};
use cactus_ir::{Graph, GraphBuilder, TensorType};
use cactus_quant::Packing;
use cactus_tensor::DType;
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

fn page() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/format.md");
    fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Cells of the first table after `mark`, without the two lines of its head.
fn table(mark: &str) -> Vec<Vec<String>> {
    let page = page();
    let (_, rest) = page
        .split_once(mark)
        .unwrap_or_else(|| panic!("the page has no {mark}"));
    rest.lines()
        .skip_while(|l| !l.starts_with('|'))
        .take_while(|l| l.starts_with('|'))
        .skip(2)
        .map(|l| {
            l.trim_matches('|')
                .split('|')
                .map(|c| c.trim().trim_matches('`').to_owned())
                .collect()
        })
        .collect()
}

/// Checks that the fields of a header's table follow one another without gaps, and reads each of them from `bytes`.
fn fields(mark: &str, bytes: &[u8]) -> BTreeMap<String, u64> {
    let mut next = 0;
    let mut out = BTreeMap::new();
    for row in table(mark) {
        let (offset, size): (usize, usize) = (row[0].parse().unwrap(), row[1].parse().unwrap());
        assert_eq!(offset, next, "{row:?}");
        next = offset + size;
        let mut word = [0; 8];
        word[..size].copy_from_slice(&bytes[offset..next]);
        out.insert(row[2].clone(), u64::from_le_bytes(word));
    }
    assert_eq!(next, bytes.len(), "{mark}");
    out
}

#[test]
fn record_header_table_is_the_encoding() {
    let header = RecordHeader {
        dims: vec![1001, 1002, 1003, 1004],
        packing: Packing::Int8G32,
        group_size: 1005,
        scales_offset: 1006,
        scales_bytes: 1007,
        data_offset: 1008,
        data_bytes: 1009,
        record_bytes: 1010,
        payload_checksum: Checksum(0x0123_4567_89ab_cdef),
    };
    let bytes = header.encode();
    let found = fields("<!-- header: tensor record -->", &bytes);
    let expected = [
        ("magic", u64::from(u32::from_le_bytes(*b"CACT"))),
        ("version", TENSOR_VERSION.into()),
        ("header_bytes", RECORD_HEADER_BYTES as u64),
        ("dtype", 0),
        ("packing", Packing::Int8G32.id().into()),
        ("group_size", 1005),
        ("rank", 4),
        ("reserved_0", 0),
        ("dim_0", 1001),
        ("dim_1", 1002),
        ("dim_2", 1003),
        ("dim_3", 1004),
        ("scales_offset", 1006),
        ("scales_bytes", 1007),
        ("data_offset", 1008),
        ("data_bytes", 1009),
        ("record_bytes", 1010),
        ("payload_checksum", 0x0123_4567_89ab_cdef),
        ("reserved_1", 0),
        ("header_checksum", Checksum::of(&bytes[..120]).0),
    ];
    let expected = expected.map(|(name, value)| (name.to_owned(), value));
    assert_eq!(found, BTreeMap::from(expected));
    assert_eq!(&bytes[..4], [0x43, 0x41, 0x43, 0x54]);
}

#[test]
fn record_header_example_is_the_encoding() {
    let page = page();
    let (_, rest) = page.split_once("<!-- example: tensor record -->").unwrap();
    let example = rest.split("```").nth(1).unwrap();
    let bytes: Vec<u8> = example
        .lines()
        .skip(1)
        .flat_map(|l| l.split_whitespace().skip(1))
        .map(|b| u8::from_str_radix(b, 16).unwrap())
        .collect();
    let (dims, packing) = ([49152, 576], Packing::Int8G32);
    let (scales, data) = packing.payload_bytes(&dims).unwrap();
    let mut header = RecordHeader::plan(Path::new("w"), &dims, packing, scales, data).unwrap();
    header.payload_checksum = Checksum(u64::from_le_bytes(bytes[104..112].try_into().unwrap()));
    assert_eq!(header.encode()[..], bytes);
}

fn graph() -> Graph {
    let mut b = GraphBuilder::new("g");
    let x = b.input("x", TensorType::new(DType::F32, [4.into()]));
    let y = b.add(x, x).unwrap();
    b.output("y", y);
    b.finish().unwrap()
}

#[test]
fn graph_header_table_is_the_encoding() {
    let bytes = encode_graph(&graph());
    let (header, payload) = bytes.split_at(32);
    let found = fields("<!-- header: graph -->", header);
    let expected = [
        ("magic", u64::from(u32::from_le_bytes(*b"CGRF"))),
        ("version", GRAPH_VERSION.into()),
        ("encoding", 1),
        ("reserved", 0),
        ("payload_bytes", payload.len() as u64),
        ("payload_checksum", Checksum::of(payload).0),
    ];
    let expected = expected.map(|(name, value)| (name.to_owned(), value));
    assert_eq!(found, BTreeMap::from(expected));
}

#[test]
fn packings_and_type_codes_are_those_of_the_code() {
    let codes: BTreeMap<String, u64> = table("<!-- dtypes -->")
        .into_iter()
        .map(|r| (r[1].clone(), r[0].parse().unwrap()))
        .collect();
    assert_eq!(codes.len(), DType::ALL.len());
    let rows = table("<!-- packings -->");
    assert_eq!(rows.len(), Packing::ALL.len());
    for (row, packing) in rows.iter().zip(Packing::ALL) {
        assert_eq!(row[0], packing.id().to_string());
        assert_eq!(row[1], packing.name());
        assert_eq!(row[2], packing.dtype().name());
        assert_eq!(row[3], packing.group_size().to_string());
        assert_eq!(row[4].starts_with("any rank"), packing.payload_bytes(&[3]).is_some());
        let dims = [32, 32];
        let (scales, data) = packing.payload_bytes(&dims).unwrap();
        assert_eq!(scales, 0, "the page says that the separate scales are empty");
        let header = RecordHeader::plan(Path::new("w"), &dims, packing, scales, data).unwrap();
        let coded = fields("<!-- header: tensor record -->", &header.encode());
        assert_eq!(coded["dtype"], codes[packing.dtype().name()], "{packing}");
        assert_eq!(coded["packing"], u64::from(packing.id()));
    }
}

#[test]
fn codebooks_and_signs_are_those_of_the_page() {
    use cactus_quant::cq::{Codebook, rotation};
    let rows = table("<!-- codebooks -->");
    assert_eq!(rows.len(), 18);
    for row in rows {
        let (bits, d) = (row[0].parse().unwrap(), row[1].parse().unwrap());
        let positive: Vec<i8> = row[2].split(' ').map(|x| x.parse().unwrap()).collect();
        let whole: Vec<i8> = positive.iter().rev().map(|x| -x).chain(positive.clone()).collect();
        assert_eq!(Codebook::of(bits, d).integers()[..1 << bits], whole, "{row:?}");
    }
    let rows = table("<!-- trellises -->");
    assert_eq!(rows.len(), 5);
    for (row, bits) in rows.iter().zip(2..) {
        assert_eq!(row[0], bits.to_string());
        let numbers = |text: &str| text.split(' ').map(|x| x.parse().unwrap()).collect::<Vec<i8>>();
        let (positive, carries) = (numbers(&row[1]), numbers(&row[2]));
        let whole: Vec<i8> = positive.iter().rev().map(|x| -x).chain(positive.clone()).collect();
        for d in [128, 64, 32] {
            let book = Codebook::of_trellis(bits, d);
            assert_eq!(book.integers()[..1 << bits], whole, "{row:?}");
            assert_eq!(book.carries().unwrap()[..], carries, "{row:?}");
            let largest = i32::from(whole[whole.len() - 1]) + i32::from(*carries.iter().max().unwrap());
            assert!(largest <= 127, "{row:?}");
        }
    }
    let page = page();
    let (_, rest) = page.split_once("<!-- cq signs -->").unwrap();
    let bits = u128::from_str_radix(rest.lines().nth(3).unwrap(), 16).unwrap();
    for (i, sign) in rotation::SIGNS.iter().enumerate() {
        assert_eq!(*sign < 0, bits >> i & 1 == 1, "sign {i}");
    }
}

/// A row decoded by nothing but the page's formulas.
#[test]
fn codebook_rows_decode_as_the_page_says() {
    let (n, k) = (19, 224);
    let rows: Vec<f32> = (0..n * k).map(|i| ((i * 37 % 101) as f32 - 50.0) / 100.0).collect();
    for packing in Packing::ALL {
        let Some(b) = packing.codebook_bits().map(|b| b as usize) else {
            continue;
        };
        let packed = cactus_quant::pack(packing, n, k, &rows).unwrap();
        // One pair of groups, 128 and 64, and one of 32 alone.
        let (groups, block_bytes) = ([(0, 128), (128, 64), (192, 32)], 2 * 64 + 2 * b * 224);
        assert_eq!(packed.data().len(), 2 * block_bytes);
        for o in [0, 15, 18] {
            let (block, r) = (&packed.data()[o / 16 * block_bytes..], o % 16);
            let mut found = vec![0.0; k];
            packed.view().decode_row(o, &mut found);
            for (g, (start, d)) in groups.into_iter().enumerate() {
                let pair = if g < 2 { 0 } else { 64 + 2 * b * 192 };
                let values = pair + 64 + if g == 1 { 2 * b * 128 } else { 0 };
                let at = pair + g % 2 * 32 + 2 * r;
                let scale = half::f16::from_le_bytes([block[at], block[at + 1]]).to_f64();
                let book = packing.codebook(d).unwrap();
                let indices: Vec<usize> = (0..d)
                    .map(|input| {
                        let (chunk, j, e) = (values + input / 32 * 64 * b, input % 32 / 4, 4 * r + input % 4);
                        let byte = |vector: usize| usize::from(block[chunk + 64 * vector + e]);
                        match b {
                            6 => (byte(j / 2) >> (4 * (j % 2)) & 15) + 16 * (byte(4 + j / 4) >> (2 * (j % 4)) & 3),
                            5 => (byte(j / 2) >> (4 * (j % 2)) & 15) + 16 * (byte(4) >> j & 1),
                            4 => byte(j / 2) >> (4 * (j % 2)) & 15,
                            3 => (byte(j / 4) >> (2 * (j % 4)) & 3) + 4 * (byte(2) >> j & 1),
                            2 => byte(j / 4) >> (2 * (j % 4)) & 3,
                            _ => byte(0) >> j & 1,
                        }
                    })
                    .collect();
                let path: Vec<usize> = (0..4).flat_map(|first| (first..d).step_by(4)).collect();
                let mut c = vec![0.0; d];
                for (place, &input) in path.iter().enumerate() {
                    let carry = match (book.carries(), place) {
                        (Some(carries), 1..) => carries[indices[path[place - 1]] % 4],
                        _ => 0,
                    };
                    c[input] = f64::from(book.integers()[indices[input]] + carry);
                }
                for i in 0..d {
                    let h: f64 = (0..d)
                        .map(|q| if (i & q).count_ones() % 2 == 0 { c[q] } else { -c[q] })
                        .sum();
                    let sign = if cactus_quant::cq::rotation::SIGNS[i] < 0 {
                        -1.0
                    } else {
                        1.0
                    };
                    let w = sign * h * scale / (64 * d) as f64;
                    let error = (w - f64::from(found[start + i])).abs();
                    assert!(error <= 1e-6 * w.abs(), "{packing}, output {o}, input {}", start + i);
                    // And it is near the weight that was stored.
                    assert!(b < 4 || (w - f64::from(rows[o * k + start + i])).abs() < 0.2);
                }
            }
        }
    }
}

/// The formulas of the section on packings, written out once more.
#[test]
fn packed_bytes_lie_where_the_page_says() {
    let (n, k) = (19, 70);
    // Integers up to 127 in every group, so the scale is 1 and the stored value is the number itself.
    let number = |o: usize, c: usize| {
        if c.is_multiple_of(32) {
            127
        } else {
            (o * 31 + c * 7) % 120
        }
    };
    let rows: Vec<f32> = (0..n * k).map(|i| number(i / k, i % k) as f32).collect();
    let int8 = cactus_quant::pack(Packing::Int8G32, n, k, &rows).unwrap();
    let f16 = cactus_quant::pack(Packing::F16N16, n, k, &rows).unwrap();
    let f32 = cactus_quant::pack(Packing::F32N16, n, k, &rows).unwrap();
    let groups = k.div_ceil(32);
    let block_bytes = 512 * groups + 64 * groups.div_ceil(2);
    let blocks = n.div_ceil(16);
    assert_eq!(int8.data().len(), blocks * block_bytes);
    assert_eq!(f16.data().len(), blocks * 32 * k);
    assert_eq!(f32.data().len(), blocks * 64 * k);
    for o in 0..blocks * 16 {
        let (block, r) = (o / 16, o % 16);
        for c in 0..groups * 32 {
            let inside = o < n && c < k;
            let value = if inside { number(o, c) } else { 0 };
            let (g, j, i) = (c / 32, c % 32 / 4, c % 4);
            let pair = block * block_bytes + g / 2 * (64 + 2 * 512);
            let at = pair + 64 + g % 2 * 512 + 64 * j + 4 * r + i;
            assert_eq!(usize::from(int8.data()[at]), value, "output {o} input {c}");
            let at = pair + g % 2 * 32 + 2 * r;
            let one: [u8; 2] = if o < n { [0x00, 0x3c] } else { [0, 0] };
            assert_eq!(int8.data()[at..at + 2], one, "scale of output {o} group {g}");
            if c < k {
                let at = block * 16 * k + 16 * c + r;
                let bits = half::f16::from_f32(value as f32).to_le_bytes();
                assert_eq!(f16.data()[2 * at..][..2], bits, "output {o} input {c}");
                assert_eq!(
                    f32.data()[4 * at..][..4],
                    (value as f32).to_le_bytes(),
                    "output {o} input {c}"
                );
            }
        }
    }
}

#[test]
fn versions_are_those_of_the_code() {
    let one_to_read = |newest: u32| (newest.to_string(), newest.to_string());
    let bundle = match OLDEST_BUNDLE_VERSION {
        BUNDLE_VERSION => one_to_read(BUNDLE_VERSION),
        oldest => (BUNDLE_VERSION.to_string(), format!("{oldest} to {BUNDLE_VERSION}")),
    };
    let expected = [
        ("bundle layout", bundle),
        ("tensor record", one_to_read(TENSOR_VERSION)),
        ("`graph.cactus` header", one_to_read(GRAPH_VERSION)),
        ("graph", one_to_read(cactus_ir::FORMAT_VERSION)),
    ];
    let rows = table("\n## Versions\n");
    assert_eq!(rows.len(), expected.len());
    for (row, (what, (written, read))) in rows.iter().zip(expected) {
        assert_eq!(row[0].trim_matches('`'), what.trim_start_matches('`'));
        assert_eq!((&row[2], &row[3]), (&written, &read), "{what}");
    }
    let history = page()
        .lines()
        .filter(|l| l.starts_with(&format!("| {BUNDLE_VERSION} | 0.")))
        .count();
    assert_eq!(history, 1, "rows of the history for version {BUNDLE_VERSION}");
}

#[track_caller]
fn assert_fields<T: Serialize>(name: &str, sample: &T) {
    let json = serde_json::to_string(sample).unwrap();
    let written = match serde_json::from_str(&json).unwrap() {
        Value::Object(fields) => fields.keys().cloned().collect::<Vec<_>>(),
        other => panic!("{name} is no object: {other}"),
    };
    let documented: Vec<String> = table(&format!("<!-- fields: {name} -->"))
        .into_iter()
        .flat_map(|r| r[0].split("`, `").map(str::to_owned).collect::<Vec<_>>())
        .collect();
    assert_eq!(documented, written, "fields of {name}, in the order of writing");
}

#[test]
fn fields_of_documents_are_those_of_the_code() {
    let g = graph();
    let port = PortDecl {
        name: "x".to_owned(),
        ty: g.ty(g.inputs()[0]).clone(),
    };
    let component = Component {
        name: "decoder".to_owned(),
        inputs: vec![port.clone()],
        outputs: vec![port],
        states: Vec::new(),
    };
    let tokens = TokenIds {
        bos: Some(1),
        eos: vec![2],
        pad: Some(3),
        add_bos: true,
    };
    let file = FileEntry {
        bytes: 1,
        xxh3: Checksum(1),
    };
    let manifest = Manifest {
        version: 1,
        name: String::new(),
        family: String::new(),
        task: String::new(),
        components: vec![component.clone()],
        context_tokens: 1,
        vocab_size: 1,
        tokens: tokens.clone(),
        files: BTreeMap::from([("a".to_owned(), file.clone())]),
        checksum: Checksum(0),
    };
    let weight = WeightEntry {
        file: "model.weights".to_owned(),
        offset: 0,
        bytes: 128,
        dims: vec![1],
        packing: "row_major".to_owned(),
    };
    let weights = WeightsManifest {
        version: 1,
        weights: BTreeMap::from([("w".to_owned(), weight.clone())]),
    };
    let blocks = BlockSums {
        version: 1,
        block_bytes: cactus_bundle::BLOCK_BYTES as u64,
        files: BTreeMap::from([("model.weights".to_owned(), vec![Checksum(1)])]),
    };
    let provenance = Provenance {
        license: Some("MIT".to_owned()),
        ..Provenance::default()
    };
    assert_fields("manifest", &manifest);
    assert_fields("component", &component);
    assert_fields("tokens", &tokens);
    assert_fields("file", &file);
    assert_fields("weights_manifest", &weights);
    assert_fields("weight", &weight);
    assert_fields("weights_checksums", &blocks);
    assert_fields("provenance", &provenance);
    assert_fields("graph", &g);

    let document: Value = serde_json::from_str(&g.to_json()).unwrap();
    let value = document["values"][0].clone();
    assert_eq!(value["def"], "input");
    assert_fields("value", &value);
    // An operation's attributes lie beside its name: the page has one row in their place.
    let node = document["nodes"][0].as_object().unwrap();
    let known = ["path", "op", "(attributes)", "inputs", "output"];
    let rows: Vec<String> = table("<!-- fields: node -->")
        .into_iter()
        .map(|r| r[0].clone())
        .collect();
    assert_eq!(rows, known);
    assert!(node.keys().all(|k| k == "f" || known.contains(&k.as_str())), "{node:?}");
    let manifest_checksum = serde_json::to_value(&manifest).unwrap()["checksum"].clone();
    assert_eq!(manifest_checksum, "0000000000000000");
}
