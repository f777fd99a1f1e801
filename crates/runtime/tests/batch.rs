//! Sequences computed together: each row's logits are those of its sequence computed alone, bit for bit, whatever else the
//! call holds, and whether the sequence began anew or with what another left behind.

use cactus_base::Pool;
use cactus_bundle::Bundle;
use cactus_import::pt2::{Task, TranspileOptions, transpile};
use cactus_import::{ConvertOptions, convert};
use cactus_kernels::Kernels;
use cactus_passes::{Bits, Policy};
use cactus_runtime::{BLOCK, Block, SequenceId, Snapshot, Wanted};
use cactus_runtime::{Batch, Capacity, Error, ErrorKind, Execution, Head, KvDType, Logits, Options, Part, Program};
use cactus_tensor::{DType, Tensor};
use safetensors::SafeTensors;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Rows of a call.
const CHUNK: usize = 40;
/// Longest sequence: past two pages, and past the windows of the tiny models.
const LONGEST: usize = 150;

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden")
}

fn options(kv_dtype: KvDType, kernels: Option<&'static Kernels>) -> Options {
    Options {
        context_tokens: LONGEST,
        chunk_tokens: CHUNK,
        rows_together: 0,
        kv_dtype,
        kernels,
    }
}

/// A model of `golden/models` with 8-bit weights.
fn native(folder: &Path, case: &str) -> Arc<Bundle> {
    let path = folder.join(case);
    let options = ConvertOptions {
        policy: Policy::uniform(Bits::from_number(8).unwrap()),
        ..ConvertOptions::default()
    };
    convert(&golden().join("models").join(case), &path, &options, &mut |_, _| {}).unwrap();
    Arc::new(Bundle::open(&path).unwrap())
}

/// A program of `golden/pt2`.
fn captured(folder: &Path, case: &str) -> Arc<Bundle> {
    let path = folder.join(format!("captured-{case}"));
    let options = TranspileOptions {
        task: Task::CausalLm,
        ..TranspileOptions::default()
    };
    let source = golden().join("pt2").join(format!("{case}.pt2"));
    transpile(&source, &path, &options, &mut |_, _| {}).unwrap_or_else(|e| panic!("{case}: {e}"));
    Arc::new(Bundle::open(&path).unwrap())
}

/// What `whisper_decoder` reads beside token ids: frames of two lengths.
fn frames(call: usize) -> BTreeMap<String, Tensor> {
    let bytes = std::fs::read(golden().join("pt2/whisper_decoder.safetensors")).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let view = file.tensor(&format!("{call}.input.encoder_hidden_states")).unwrap();
    let tensor = Tensor::from_le_bytes(view.shape(), DType::F32, view.data()).unwrap();
    BTreeMap::from([("encoder_hidden_states".to_owned(), tensor)])
}

/// A fixed sequence of numbers that look random (Steele and Vigna's splitmix64).
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((x ^ (x >> 31)) % n as u64) as usize
    }
}

/// A sequence under way, with the bits it has to have at every position.
struct Live {
    id: SequenceId,
    ids: Vec<u32>,
    expected: Vec<Vec<u32>>,
}

fn bits(logits: &[f32]) -> Vec<u32> {
    logits.iter().map(|x| x.to_bits()).collect()
}

/// What an earlier sequence left behind.
struct Left {
    ids: Vec<u32>,
    snapshot: Snapshot,
    blocks: Vec<Block>,
}

impl Left {
    fn of(batch: &mut Batch, s: &Live) -> Left {
        let held = batch.len(s.id);
        let blocks = match batch.program().remembers_in_blocks() {
            true => held / BLOCK,
            false => 0,
        };
        Left {
            ids: s.ids[..held].to_vec(),
            snapshot: batch.snapshot(s.id).unwrap(),
            blocks: (0..blocks).map(|i| batch.block(s.id, i).unwrap()).collect(),
        }
    }

    fn release(self, batch: &mut Batch) {
        batch.release(self.snapshot);
        for block in self.blocks {
            batch.release_block(block);
        }
    }
}

/// Begins a sequence: anew, or where an earlier one was.
fn begin(batch: &mut Batch, pool: &Pool, random: &mut Random, left: &[Left]) -> Live {
    let program = Arc::clone(batch.program());
    let length = 1 + random.below(program.context_tokens());
    let most = program.vocab_size().min(60);
    let mut ids: Vec<u32> = (0..length).map(|_| random.below(most) as u32).collect();
    if !left.is_empty() && random.below(3) > 0 {
        let left = &left[random.below(left.len())];
        let id = batch.open().unwrap();
        let keep = left.ids.len() - random.below(3).min(left.ids.len());
        if random.below(2) == 0 && !left.blocks.is_empty() {
            let keep = random.below(left.blocks.len() * BLOCK + 1);
            let blocks: Vec<&Block> = left.blocks[..keep.div_ceil(BLOCK)].iter().collect();
            batch.begin_with(id, &blocks, keep).unwrap();
        } else {
            // As it is, or by way of a file.
            let mut bytes = Vec::new();
            batch.write_snapshot(&left.snapshot, &mut bytes).unwrap();
            match batch.read_snapshot(&mut bytes.as_slice()) {
                Ok(read) => {
                    batch.restore(id, &read, keep).unwrap();
                    batch.release(read);
                }
                Err(e) => {
                    assert_eq!(e.kind(), ErrorKind::Busy, "{e}");
                    batch.restore(id, &left.snapshot, keep).unwrap();
                }
            }
            let cut = bytes.len() - 1 - random.below(bytes.len());
            assert!(batch.read_snapshot(&mut &bytes[..cut]).is_err());
        }
        let held = batch.len(id);
        ids.resize(length.max(held + 1).min(program.context_tokens()), 1);
        ids[..held].copy_from_slice(&left.ids[..held]);
        let expected = expected(&program, pool, &ids, None);
        return Live { id, ids, expected };
    }
    let id = batch.open().unwrap();
    let given = (!program.given_inputs().is_empty()).then(|| frames(random.below(2)));
    if let Some(frames) = &given {
        batch.give(id, pool, 1, frames).unwrap();
    }
    let expected = expected(&program, pool, &ids, given.as_ref());
    Live { id, ids, expected }
}

/// The logits of every position of `ids` alone, in bits.
fn expected(
    program: &Arc<Program>,
    pool: &Pool,
    ids: &[u32],
    given: Option<&BTreeMap<String, Tensor>>,
) -> Vec<Vec<u32>> {
    let mut alone = Execution::new(Arc::clone(program)).unwrap();
    if let Some(given) = given {
        alone.give(pool, 1, given).unwrap();
    }
    let mut expected = Vec::new();
    for chunk in ids.chunks(CHUNK) {
        let mut each = |_: usize, row: Logits<'_>| expected.push(bits(&row));
        alone.run(pool, 1, chunk, Head::From(0, &mut each)).unwrap();
    }
    expected
}

/// Keeps several sequences under way at once, of which each call continues some by some rows.
fn load(name: &str, program: &Arc<Program>, threads: usize, calls: usize, seed: u64) {
    let pool = Pool::new(threads);
    let mut random = Random(seed);
    let capacity = Capacity {
        sequences: 6,
        tokens: 6 * LONGEST.next_multiple_of(64) + 8 * 64 * 3,
        snapshots: 4,
    };
    let mut batch = Batch::new(Arc::clone(program), capacity).unwrap();
    let free = batch.free_tokens();
    let mut live: Vec<Live> = Vec::new();
    let mut left: Vec<Left> = Vec::new();
    for call in 0..calls {
        while live.len() < 6 {
            live.push(begin(&mut batch, &pool, &mut random, &left));
        }
        // What one has computed so far is left for others, who go on beside it. Of what was given, nothing is known here.
        if random.below(3) == 0 && program.given_inputs().is_empty() {
            if left.len() == 4 {
                left.remove(random.below(4)).release(&mut batch);
            }
            let s = &live[random.below(live.len())];
            left.push(Left::of(&mut batch, s));
        }
        let mut room = CHUNK;
        let mut parts = Vec::new();
        for s in &live {
            let held = batch.len(s.id);
            // Most continue by a token, as answers do; some by a piece of a prompt.
            let rows = match random.below(4) {
                0 => 0,
                1 => 1 + random.below(CHUNK),
                _ => 1,
            };
            let rows = rows.min(room).min(s.ids.len() - held);
            room -= rows;
            let wanted = match random.below(4) {
                0 => Wanted::Nothing,
                1 => Wanted::From(random.below(rows + 1)),
                _ => Wanted::Last,
            };
            if rows > 0 {
                let ids = &s.ids[held..held + rows];
                parts.push((
                    s,
                    held,
                    Part {
                        sequence: s.id,
                        ids,
                        wanted,
                        media: &[],
                    },
                ));
            }
        }
        if parts.is_empty() {
            continue;
        }
        let mut wanted = Vec::new();
        for (s, held, part) in &parts {
            let first = match part.wanted {
                Wanted::Nothing => part.ids.len(),
                Wanted::Last => part.ids.len() - 1,
                Wanted::From(first) => first,
            };
            wanted.extend((first..part.ids.len()).map(|i| (s.id, held + i, &s.expected[held + i])));
        }
        let parts: Vec<Part<'_>> = parts.iter().map(|(_, _, part)| *part).collect();
        let mut found = Vec::new();
        if random.below(2) == 0 {
            let mut each = |_: usize, row: Logits<'_>| found.push(bits(&row));
            batch.run(&pool, threads, &parts, Some(&mut each)).unwrap();
        } else {
            batch.run(&pool, threads, &parts, None).unwrap();
            found.extend((0..wanted.len()).map(|i| bits(&batch.logits(i))));
        }
        assert_eq!(found.len(), wanted.len(), "{name}");
        for (found, (id, position, expected)) in found.iter().zip(wanted) {
            assert!(
                found == expected,
                "{name}, call {call}: {id:?} at {position} of {threads} threads"
            );
        }
        // Now and then one goes back a little, and those that are through make room for others.
        if random.below(3) == 0 {
            let s = &live[random.below(live.len())];
            let held = batch.len(s.id);
            let keep = held.saturating_sub(random.below(CHUNK));
            let done = batch.truncate(s.id, keep);
            assert_eq!(batch.len(s.id), if done { keep } else { held }, "{name}");
        }
        live.retain(|s| {
            let through = batch.len(s.id) == s.ids.len();
            if through {
                batch.close(s.id);
            }
            !through
        });
    }
    for s in live {
        batch.close(s.id);
    }
    for left in left {
        left.release(&mut batch);
    }
    assert_eq!(batch.free_tokens(), free, "{name}: pages were lost");
}

#[test]
fn rows_of_several_sequences_have_the_bits_of_each_alone() {
    let folder = tempfile::tempdir().unwrap();
    for (case, dtype) in [
        ("llama", KvDType::I8G32),
        ("qwen2", KvDType::I8G32),
        ("gemma3_text", KvDType::I8G32),
        ("gemma3_text", KvDType::F16),
        ("lfm2", KvDType::I8G32),
        ("gemma3n_text", KvDType::I8G32),
        ("gemma4_text", KvDType::I8G32),
        ("gemma4_moe", KvDType::F16),
    ] {
        let folder = tempfile::tempdir_in(&folder).unwrap();
        let bundle = native(folder.path(), case);
        for kernels in [None, Kernels::available().next()] {
            let program = Arc::new(program_of(&bundle, dtype, kernels));
            for threads in [1, 3] {
                load(case, &program, threads, 60, threads as u64);
            }
        }
    }
}

fn program_of(bundle: &Arc<Bundle>, dtype: KvDType, kernels: Option<&'static Kernels>) -> Program {
    Program::new(Arc::clone(bundle), "decoder", &options(dtype, kernels)).unwrap()
}

#[test]
fn rows_of_captured_models_with_islands_recurrences_and_given_inputs_have_the_bits_of_each_alone() {
    let folder = tempfile::tempdir().unwrap();
    let plain = ["gpt2", "qwen3_moe", "qwen3_5", "lfm2_moe", "gemma4", "whisper_decoder"];
    let attention = ["gpt_oss", "bloom", "llama4"];
    for case in plain.into_iter().chain(attention) {
        let bundle = captured(folder.path(), case);
        let program = Arc::new(program_of(&bundle, KvDType::F16, None));
        load(case, &program, 2, 40, 7);
    }
}

#[test]
fn what_does_not_fit_is_refused_and_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let bundle = native(folder.path(), "gemma3_text");
    let program = Arc::new(program_of(&bundle, KvDType::I8G32, None));
    let pool = Pool::new(1);
    let capacity = Capacity {
        sequences: 2,
        tokens: 128,
        snapshots: 0,
    };
    let mut batch = Batch::new(Arc::clone(&program), capacity).unwrap();
    let (a, b) = (batch.open().unwrap(), batch.open().unwrap());
    let none = batch.open().unwrap_err();
    assert_eq!(none.kind(), ErrorKind::Busy, "{none}");
    let part = |sequence, ids| Part {
        sequence,
        ids,
        wanted: Wanted::Last,
        media: &[],
    };
    for _ in 0..3 {
        batch.run(&pool, 1, &[part(a, &[1; 30])], None).unwrap();
    }
    // Both pages are held by the first.
    let full = batch.run(&pool, 1, &[part(b, &[1])], None).unwrap_err();
    assert!(matches!(full, Error::Busy { free: 0, wanted: 1, .. }), "{full}");
    assert_eq!((batch.len(a), batch.len(b), batch.free_tokens()), (90, 0, 0));
    let cases: [(&[Part<'_>], ErrorKind); 6] = [
        (&[], ErrorKind::Argument),
        (&[part(a, &[])], ErrorKind::Argument),
        (&[part(a, &[1; 20]), part(b, &[1; 21])], ErrorKind::Argument),
        (&[part(a, &[1]), part(a, &[1])], ErrorKind::Argument),
        (&[part(a, &[u32::MAX])], ErrorKind::Kernel),
        (&[part(a, &[1; 39]), part(b, &[1])], ErrorKind::Busy),
    ];
    for (parts, kind) in cases {
        let e = batch.run(&pool, 1, parts, None).unwrap_err();
        assert_eq!(e.kind(), kind, "{e}");
        assert_eq!((batch.len(a), batch.len(b)), (90, 0), "{e}");
    }
    batch.close(a);
    let closed = batch.run(&pool, 1, &[part(a, &[1])], None).unwrap_err();
    assert_eq!(closed.kind(), ErrorKind::Argument, "{closed}");
    batch.run(&pool, 1, &[part(b, &[1; 40])], None).unwrap();
    assert_eq!(batch.free_tokens(), 64);
}
