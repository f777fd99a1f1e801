//! Sound of any length through an encoder whose attention sees some positions on each side: block after block of positions goes through
//! its layers, each of which keeps what it needs of those before. So memory does not grow with the sound.

use crate::{Error, Result};
use cactus_base::Pool;
use cactus_bundle::{Bundle, Local as About};
use cactus_runtime::Function;
use cactus_tensor::{Elements, Tensor, TensorView};
use std::sync::Arc;

/// Names of the components, and of what they take and give.
const INPUT: &str = "local_input";
const LAYER: &str = "local_layer_";
const OUTPUT: &str = "local_output";
const FEATURES: &str = "features";
const STATES: &str = "states";
const NEXT_STATES: &str = "next_states";
const DISTANCES: &str = "distances";
const ALL_DISTANCES: &str = "local_distances";
pub(crate) const MEMORY: &str = "memory";
pub(crate) const NEXT_MEMORY: &str = "next_memory";
pub(crate) const FIRST: &str = "first";
pub(crate) const COUNT: &str = "count";

/// How many frames or positions there are, as long as nobody knows.
pub(crate) const MANY: i64 = 1 << 40;
/// Blocks that a layer computes one after the other where there are so many, as its memory is taken anew for each turn.
const TURN: usize = 4;

/// The components, loaded.
#[derive(Debug)]
pub(crate) struct Local {
    about: About,
    /// Frames that become a position.
    position_frames: usize,
    bands: usize,
    width: usize,
    /// Numbers of what a layer keeps.
    memory: usize,
    distances: Function,
    input: Function,
    layers: Vec<Function>,
    output: Function,
}

impl Local {
    /// Loads what `about` says that the bundle has.
    ///
    /// # Errors
    /// Components that are missing or do not fit.
    pub(crate) fn load(bundle: &Arc<Bundle>, about: About) -> Result<Local> {
        let (context, edge) = (about.context as usize, about.edge_frames as usize);
        let shape = |component: &str, input: &str| {
            let declared = bundle.manifest().components.iter().find(|c| c.name == component);
            let port = declared.and_then(|c| c.inputs.iter().find(|port| port.name == input));
            match port.and_then(|port| port.ty.known_shape()).as_deref() {
                Some(&[1, rows, width]) if width > 0 => Ok([rows, width]),
                _ => Err(Error::Model(format!(
                    "its component `{component}` should take `{input}`, `[1, rows, width]` of fixed sizes"
                ))),
            }
        };
        let [frames, bands] = shape(INPUT, FEATURES)?;
        let inner = frames
            .checked_sub(2 * edge)
            .filter(|inner| *inner > 0 && inner.is_multiple_of(context));
        let Some(inner) = inner else {
            return Err(Error::Model(format!(
                "its component `{INPUT}` should take the frames of {context} positions and {edge} on each side, found {frames}"
            )));
        };
        let first = format!("{LAYER}0");
        let ([rows, width], [kept, _]) = (shape(&first, STATES)?, shape(&first, MEMORY)?);
        if rows != context {
            return Err(Error::Model(format!(
                "its component `{first}` should take {context} positions, found {rows}"
            )));
        }
        let function = |name: &str| Function::new(Arc::clone(bundle), name, None);
        let layers = (0..about.layers).map(|layer| function(&format!("{LAYER}{layer}")));
        Ok(Local {
            about,
            position_frames: inner / context,
            bands,
            width,
            memory: kept * width,
            distances: function(ALL_DISTANCES)?,
            input: function(INPUT)?,
            layers: layers.collect::<std::result::Result<_, _>>()?,
            output: function(OUTPUT)?,
        })
    }

    /// Positions of a block.
    fn context(&self) -> usize {
        self.about.context as usize
    }

    /// Samples of a block of positions, each of which has so many.
    pub(crate) fn block(&self, position_samples: usize) -> usize {
        self.context() * position_samples
    }

    /// The beginning of a sound.
    pub(crate) fn begin(&self) -> Passage {
        let lane = || Lane {
            memory: vec![0.0; self.memory],
            ..Lane::default()
        };
        Passage {
            frames: vec![0.0; self.about.edge_frames as usize * self.bands],
            taken_frames: 0,
            end: None,
            taken: 0,
            distances: Vec::new(),
            lanes: self.layers.iter().map(|_| lane()).collect(),
            made: Vec::new(),
            given: 0,
        }
    }
}

/// A sound on its way.
#[derive(Debug)]
pub(crate) struct Passage {
    /// Frames that a block still needs, from so many before it on.
    frames: Vec<f32>,
    taken_frames: usize,
    /// Frames and positions of the sound, once they are known.
    end: Option<[usize; 2]>,
    /// Positions that were made of frames.
    taken: usize,
    /// Of each layer.
    distances: Vec<Tensor>,
    lanes: Vec<Lane>,
    /// What the last layer gave, and nobody got.
    made: Vec<f32>,
    /// Positions that were given.
    given: usize,
}

/// A layer on its way.
#[derive(Debug, Default)]
struct Lane {
    memory: Vec<f32>,
    /// Positions that it has taken.
    taken: usize,
    /// Positions that it has not.
    waiting: Vec<f32>,
}

impl Passage {
    /// Takes normalized frames `[frames, bands]`, the last ones where there are no `more`. [`Passage::next`] gives what is known by them.
    pub(crate) fn push(
        &mut self,
        local: &Local,
        (pool, threads): (&Pool, usize),
        frames: &[f32],
        more: bool,
    ) -> Result<()> {
        self.frames.extend_from_slice(frames);
        self.taken_frames += frames.len() / local.bands;
        if !more {
            let positions = self.taken_frames.div_ceil(local.position_frames);
            self.end = Some([self.taken_frames, positions]);
        }
        let run = Run {
            local,
            pool,
            threads,
            end: self.end,
        };
        self.hear(&run)?;
        let waiting = |lane: &Lane| lane.waiting.len() / (local.width * local.context());
        if more && self.lanes.first().is_some_and(|lane| waiting(lane) < TURN) {
            return Ok(());
        }
        if self.distances.is_empty() {
            self.distances = run.distances()?;
        }
        for i in 0..self.lanes.len() {
            let mut new = std::mem::take(match self.lanes.get_mut(i + 1) {
                Some(next) => &mut next.waiting,
                None => &mut self.made,
            });
            self.lanes[i].go_on(&run, &local.layers[i], &self.distances[i], &mut new)?;
            match self.lanes.get_mut(i + 1) {
                Some(next) => next.waiting = new,
                None => self.made = new,
            }
        }
        Ok(())
    }

    /// Whether some of the sound was not given.
    pub(crate) fn goes_on(&self) -> bool {
        self.end.is_none_or(|[_, positions]| self.given < positions)
    }

    /// Makes positions of the frames that are there.
    fn hear(&mut self, run: &Run<'_>) -> Result<()> {
        let local = run.local;
        let (context, edge) = (local.context(), local.about.edge_frames as usize);
        let block = context * local.position_frames * local.bands;
        let needed = block + 2 * edge * local.bands;
        loop {
            let is_there = match self.end {
                Some([_, positions]) => self.taken < positions,
                None => self.frames.len() >= needed,
            };
            if !is_there {
                local.input.release();
                return Ok(());
            }
            if self.end.is_some() {
                self.frames.resize(self.frames.len().max(needed), 0.0);
            }
            let first = (self.taken * local.position_frames) as i64 - edge as i64;
            let shape = [1, needed / local.bands, local.bands];
            let inputs = [(FEATURES, view(&shape, &self.frames[..needed])?)];
            let mut states = Vec::new();
            run.function(&local.input, &inputs, [first, run.count(0)], &mut |name, _, values| {
                if name == NEXT_STATES {
                    states.extend_from_slice(values);
                }
            })?;
            fits(INPUT, states.len(), context * local.width)?;
            self.frames.drain(..block);
            self.taken += context;
            let to = self.lanes.first_mut().map_or(&mut self.made, |lane| &mut lane.waiting);
            to.append(&mut states);
        }
    }

    /// What the encoder gives of the next positions, `[1, positions, width]`: a block, or the rest of the sound.
    pub(crate) fn next(&mut self, local: &Local, (pool, threads): (&Pool, usize)) -> Result<Option<Tensor>> {
        let context = local.context();
        let block = context * local.width;
        let count = match self.end {
            Some([_, positions]) => context.min(positions - self.given),
            None => context,
        };
        if count == 0 || self.made.len() < count * local.width {
            return Ok(None);
        }
        self.made.resize(self.made.len().max(block), 0.0);
        let shape = [1, context, local.width];
        let inputs = [(STATES, view(&shape, &self.made[..block])?)];
        let mut made = None;
        call(&local.output, (pool, threads), &inputs, &mut |_, shape, values| {
            let width = shape.last().copied().unwrap_or_default();
            let rows = values.get(..count * width).unwrap_or_default().to_vec();
            made = Tensor::from_f32([1, count, width], rows).ok();
        })?;
        if made.is_none() {
            let what = format!("its component `{OUTPUT}` should give a row for each of {context} positions");
            return Err(Error::Model(what));
        }
        self.made.drain(..block);
        self.given += count;
        Ok(made)
    }
}

impl Lane {
    /// Takes the blocks that wait, and adds what they let the layer say to `made`.
    fn go_on(&mut self, run: &Run<'_>, layer: &Function, distances: &Tensor, made: &mut Vec<f32>) -> Result<()> {
        let (local, context) = (run.local, run.local.context());
        let (block, late) = (context * local.width, local.about.late as usize);
        loop {
            let end = run.end.map(|[_, positions]| positions);
            let is_there = match end {
                // What it says of the last ones comes with zeros behind them.
                Some(end) => self.taken < end + late,
                None => self.waiting.len() >= block,
            };
            if !is_there {
                layer.release();
                return Ok(());
            }
            self.waiting.resize(self.waiting.len().max(block), 0.0);
            let shapes = ([1, context, local.width], [1, local.memory / local.width, local.width]);
            let inputs = [
                (STATES, view(&shapes.0, &self.waiting[..block])?),
                (MEMORY, view(&shapes.1, &self.memory)?),
                (DISTANCES, distances.view()),
            ];
            let first = self.taken as i64;
            let (mut states, mut memory) = (Vec::new(), Vec::new());
            run.function(
                layer,
                &inputs,
                [first, run.count(1)],
                &mut |name, _, values| match name {
                    NEXT_STATES => states.extend_from_slice(values),
                    NEXT_MEMORY => memory.extend_from_slice(values),
                    _ => {}
                },
            )?;
            fits(LAYER, states.len(), block)?;
            fits(LAYER, memory.len(), local.memory)?;
            self.memory = memory;
            self.waiting.drain(..block);
            // Before the first position and behind the last there is nothing.
            let end = end.map_or(context, |end| (end + late).saturating_sub(self.taken).min(context));
            let begin = late.saturating_sub(self.taken).min(end);
            made.extend_from_slice(&states[begin * local.width..end * local.width]);
            self.taken += context;
        }
    }
}

/// What computes.
struct Run<'a> {
    local: &'a Local,
    pool: &'a Pool,
    threads: usize,
    end: Option<[usize; 2]>,
}

/// Gets the name, the shape and the elements of an output.
pub(crate) type Read<'a> = dyn FnMut(&str, &[usize], &[f32]) + 'a;

impl Run<'_> {
    /// What each layer makes of the distances.
    fn distances(&self) -> Result<Vec<Tensor>> {
        let mut found: Vec<Option<Tensor>> = self.local.layers.iter().map(|_| None).collect();
        let component = &self.local.distances;
        call(component, (self.pool, self.threads), &[], &mut |name, shape, values| {
            let layer = name
                .strip_prefix(DISTANCES)
                .and_then(|rest| rest.strip_prefix('_')?.parse::<usize>().ok());
            if let Some(to) = layer.and_then(|layer| found.get_mut(layer)) {
                *to = Tensor::from_f32(shape, values.to_vec()).ok();
            }
        })?;
        component.release();
        let all = found.into_iter().collect::<Option<Vec<Tensor>>>();
        all.ok_or_else(|| {
            Error::Model(format!(
                "its component `{ALL_DISTANCES}` should give the distances of each layer"
            ))
        })
    }

    /// How many frames (0) or positions (1) there are.
    fn count(&self, of: usize) -> i64 {
        self.end.map_or(MANY, |end| end[of] as i64)
    }

    /// As [`call`], of rows from the first of `first` and `count` on.
    fn function(
        &self,
        function: &Function,
        inputs: &[(&str, TensorView<'_>)],
        [first, count]: [i64; 2],
        read: &mut Read<'_>,
    ) -> Result<()> {
        let (first, count) = ([first], [count]);
        let number = |n| TensorView::new(&[1], Elements::I64(n)).map_err(|e| Error::Model(e.to_string()));
        let numbers = [(FIRST, number(&first)?), (COUNT, number(&count)?)];
        call(function, (self.pool, self.threads), &[inputs, &numbers].concat(), read)
    }
}

/// Runs a component on so many threads.
pub(crate) fn call(
    function: &Function,
    (pool, threads): (&Pool, usize),
    inputs: &[(&str, TensorView<'_>)],
    read: &mut Read<'_>,
) -> Result<()> {
    function.run_reading(pool, threads, inputs, &mut |name, view| {
        if let Elements::F32(values) = view.elements() {
            read(name, view.shape(), values);
        }
    })?;
    Ok(())
}

pub(crate) fn view<'a>(shape: &'a [usize], values: &'a [f32]) -> Result<TensorView<'a>> {
    TensorView::new(shape, Elements::F32(values)).map_err(|e| Error::Model(e.to_string()))
}

pub(crate) fn fits(component: &str, found: usize, expected: usize) -> Result<()> {
    match found == expected {
        true => Ok(()),
        false => Err(Error::Model(format!(
            "its component `{component}` should give as many numbers as it takes, {expected}; found {found}"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cactus_import::{ConvertOptions, convert};
    use cactus_passes::{Bits, Policy};
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use std::path::{Path, PathBuf};

    const MODELS: [&str; 3] = ["parakeet_ctc", "parakeet_tdt", "parakeet_rnnt"];

    fn golden(name: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../golden/speech")
            .join(name)
    }

    fn bundle(folder: &Path, name: &str, context: Option<usize>) -> Arc<Bundle> {
        let path = folder.join(format!("{name}-{}", context.unwrap_or_default()));
        let options = ConvertOptions {
            policy: Policy::uniform(Bits::ThirtyTwo),
            attention_context: context,
            ..ConvertOptions::default()
        };
        convert(&golden(name), &path, &options, &mut |_, _| {}).unwrap();
        Arc::new(Bundle::open(&path).unwrap())
    }

    /// A tensor that torch computed, `[rows, width]`.
    fn expected(name: &str, file: &str, tensor: &str) -> (usize, Vec<f32>) {
        let bytes = std::fs::read(golden(name).join(file)).unwrap();
        let file = safetensors::SafeTensors::deserialize(&bytes).unwrap();
        let found = file.tensor(tensor).unwrap();
        let values = found
            .data()
            .chunks_exact(4)
            .map(|b| f32::from_le_bytes(b.try_into().unwrap()));
        (found.shape()[1], values.collect())
    }

    /// What is given of `frames`, which come in parts of these sizes by turns.
    fn passed(local: &Local, threads: usize, frames: &[f32], sizes: &[usize]) -> Vec<f32> {
        let pool = Pool::new(threads);
        let (mut passage, mut rest, mut found) = (local.begin(), frames, Vec::new());
        let mut sizes = sizes.iter().cycle();
        while !rest.is_empty() {
            let (now, later) = rest.split_at(rest.len().min(sizes.next().unwrap() * local.bands));
            rest = later;
            passage.push(local, (&pool, threads), now, !rest.is_empty()).unwrap();
            while let Some(states) = passage.next(local, (&pool, threads)).unwrap() {
                found.extend_from_slice(states.as_f32().unwrap());
            }
        }
        assert!(!passage.goes_on());
        found
    }

    fn assert_near(what: &str, found: &[f32], wanted: &[f32], tolerance: f32) {
        let most = wanted.iter().fold(0.0f32, |most, x| most.max(x.abs()));
        let worst = found.iter().zip(wanted).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert_eq!(found.len(), wanted.len(), "{what}");
        assert!(worst <= tolerance * most, "{what}: {worst} of {most}");
    }

    #[test]
    fn states_are_those_of_attention_under_a_band() {
        let folder = tempfile::tempdir().unwrap();
        for name in MODELS {
            let (_, frames) = expected(name, "expected.safetensors", "features.38400");
            for context in [2, 3, 8] {
                let bundle = bundle(folder.path(), name, Some(context));
                let local = Local::load(&bundle, bundle.speech().unwrap().unwrap().local.unwrap()).unwrap();
                let (_, wanted) = expected(name, "local.safetensors", &format!("states.{context}"));
                let found = passed(&local, 1, &frames, &[240]);
                assert_near(&format!("{name}, {context}"), &found, &wanted, 1e-4);
            }
        }
    }

    #[test]
    fn sound_that_is_seen_as_a_whole_is_that_of_the_encoder() {
        let folder = tempfile::tempdir().unwrap();
        for name in MODELS {
            let bundle = bundle(folder.path(), name, Some(64));
            let local = Local::load(&bundle, bundle.speech().unwrap().unwrap().local.unwrap()).unwrap();
            let encoder = Function::new(Arc::clone(&bundle), "encoder", None).unwrap();
            for samples in [38_400, 25_599, 480, 320] {
                let (bands, frames) = expected(name, "expected.safetensors", &format!("features.{samples}"));
                let features = Tensor::from_f32([1, frames.len() / bands, bands], frames.clone()).unwrap();
                let inputs = BTreeMap::from([(FEATURES.to_owned(), features)]);
                let wanted = encoder.run(&Pool::new(1), 1, &inputs).unwrap();
                let found = passed(&local, 1, &frames, &[100]);
                assert_near(name, &found, wanted[0].1.as_f32().unwrap(), 1e-5);
            }
        }
    }

    #[test]
    fn weights_are_stored_once() {
        let folder = tempfile::tempdir().unwrap();
        for name in MODELS {
            let names = |context| -> Vec<String> {
                let bundle = bundle(folder.path(), name, context);
                bundle.weights().keys().cloned().collect()
            };
            assert_eq!(names(None), names(Some(4)), "{name}");
        }
    }

    #[test]
    fn local_attention_that_cannot_be_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        for (name, context, said) in [
            ("whisper", 256, "local attention is for Parakeet"),
            ("moonshine", 256, "local attention is for Parakeet"),
            ("parakeet_ctc", 0, "attention_context"),
            ("parakeet_ctc", 1025, "attention_context"),
        ] {
            let options = ConvertOptions {
                attention_context: Some(context),
                ..ConvertOptions::default()
            };
            let error = convert(&golden(name), &folder.path().join("m"), &options, &mut |_, _| {}).unwrap_err();
            assert!(error.to_string().contains(said), "{name}, {context}: {error}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(8))]
        #[test]
        fn states_are_the_same_bits_for_any_parts_and_threads(
            sizes in prop::collection::vec(1usize..90, 1..4),
            threads in 1usize..4,
            frames in 1usize..240,
        ) {
            let folder = tempfile::tempdir().unwrap();
            let bundle = bundle(folder.path(), "parakeet_tdt", Some(3));
            let local = Local::load(&bundle, bundle.speech().unwrap().unwrap().local.unwrap()).unwrap();
            let (bands, all) = expected("parakeet_tdt", "expected.safetensors", "features.38400");
            let all = &all[..frames * bands];
            let bits = |found: Vec<f32>| found.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
            let whole = bits(passed(&local, 1, all, &[frames]));
            prop_assert_eq!(bits(passed(&local, threads, all, &sizes)), whole);
        }
    }
}
