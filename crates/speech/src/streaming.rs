//! Sound that goes on through an encoder that sees little ahead: block after block goes through its layers, which keep what they need of
//! those before. So what is heard while somebody speaks is computed once, but for the end of it, which may still change.

use crate::local::{COUNT, FIRST, MANY, MEMORY, NEXT_MEMORY, call, fits, view};
use crate::{Error, Result};
use cactus_base::Pool;
use cactus_bundle::{Bundle, Streaming as About};
use cactus_runtime::Function;
use cactus_tensor::{Elements, Tensor, TensorView};
use std::sync::Arc;

/// The component.
const NAME: &str = "streaming_encoder";

/// The component, loaded.
#[derive(Debug)]
pub(crate) struct Streaming {
    about: About,
    /// Samples of a position.
    position: usize,
    /// Names of what the encoder takes and gives.
    ports: [String; 2],
    function: Function,
    /// Rows of the memory, and their width.
    memory: [usize; 2],
    /// Numbers of a state.
    width: usize,
}

impl Streaming {
    /// Loads what `about` says that the bundle has, for positions of so many samples and an encoder with these ports.
    ///
    /// # Errors
    /// A component that is missing or does not fit.
    pub(crate) fn load(bundle: &Arc<Bundle>, about: About, position: usize, ports: &[String; 2]) -> Result<Streaming> {
        let declared = bundle.manifest().components.iter().find(|c| c.name == NAME);
        let port = |given: bool, name: &str| {
            let all = declared.map(|c| if given { &c.outputs } else { &c.inputs });
            let port = all.and_then(|ports| ports.iter().find(|port| port.name == name));
            port.and_then(|port| port.ty.known_shape())
        };
        let positions = about.block_samples as usize / position.max(1);
        let shapes = (port(false, &ports[0]), port(false, MEMORY), port(true, &ports[1]));
        let (Some([1, samples]), Some(&[1, rows, kept]), Some(&[1, given, width])) =
            (shapes.0.as_deref(), shapes.1.as_deref(), shapes.2.as_deref())
        else {
            return Err(Error::Model(format!(
                "its component `{NAME}` should take `{}` and `{MEMORY}` and give `{}`, each of a fixed size",
                ports[0], ports[1]
            )));
        };
        fits(NAME, *samples, about.block_samples as usize)?;
        fits(NAME, given, positions)?;
        Ok(Streaming {
            function: Function::new(Arc::clone(bundle), NAME, None)?,
            about,
            position,
            ports: ports.clone(),
            memory: [rows, kept],
            width,
        })
    }

    /// What the encoder gives of `samples`, `[1, positions, width]`: they are those that `passage` has heard, and more; or others, which are heard
    /// from their beginning. There is nothing of samples that make no position.
    pub(crate) fn hear(
        &self,
        threads: (&Pool, usize),
        passage: &mut Passage,
        samples: &[f32],
    ) -> Result<Option<Tensor>> {
        let (block, late) = (self.about.block_samples as usize, self.about.late as usize);
        let each = block / self.position;
        let Some(rest) = samples.len().checked_sub(self.about.position_least as usize) else {
            return Ok(None);
        };
        let count = rest / self.position + 1;
        if passage.memory.is_empty() || passage.taken * self.position > samples.len() {
            *passage = Passage {
                memory: vec![0.0; self.memory.iter().product()],
                ..Passage::default()
            };
        }
        while (passage.taken + each) * self.position <= samples.len() {
            let first = passage.taken * self.position;
            self.go_on(threads, passage, &samples[first..first + block], MANY)?;
        }
        // The end as if nothing came behind it, which is forgotten again.
        let mut end = passage.clone();
        let mut padded = vec![0.0; block];
        while end.taken < count + late {
            let rest = samples.get(end.taken * self.position..).unwrap_or_default();
            let rest = &rest[..rest.len().min(block)];
            padded[..rest.len()].copy_from_slice(rest);
            padded[rest.len()..].fill(0.0);
            self.go_on(threads, &mut end, &padded, count as i64)?;
        }
        end.states.truncate(count * self.width);
        let states = Tensor::from_f32([1, count, self.width], end.states);
        Ok(Some(states.map_err(|e| Error::Model(e.to_string()))?))
    }

    /// Takes a block of a sound with so many positions.
    fn go_on(&self, (pool, threads): (&Pool, usize), passage: &mut Passage, block: &[f32], count: i64) -> Result<()> {
        let late = self.about.late as usize;
        let shapes = ([1, block.len()], [1, self.memory[0], self.memory[1]]);
        let (first, count) = ([passage.taken as i64], [count]);
        let number = |n| TensorView::new(&[1], Elements::I64(n)).map_err(|e| Error::Model(e.to_string()));
        let inputs = [
            (self.ports[0].as_str(), view(&shapes.0, block)?),
            (MEMORY, view(&shapes.1, &passage.memory)?),
            (FIRST, number(&first)?),
            (COUNT, number(&count)?),
        ];
        let (mut states, mut memory) = (Vec::new(), Vec::new());
        call(&self.function, (pool, threads), &inputs, &mut |name, _, values| {
            if name == NEXT_MEMORY {
                memory.extend_from_slice(values);
            } else if name == self.ports[1] {
                states.extend_from_slice(values);
            }
        })?;
        let each = block.len() / self.position;
        fits(NAME, states.len(), each * self.width)?;
        fits(NAME, memory.len(), passage.memory.len())?;
        passage.memory = memory;
        // Before the first position there is nothing.
        let begin = late.saturating_sub(passage.taken).min(each);
        passage.states.extend_from_slice(&states[begin * self.width..]);
        passage.taken += each;
        Ok(())
    }
}

/// A sound on its way.
#[derive(Clone, Debug, Default)]
pub(crate) struct Passage {
    memory: Vec<f32>,
    /// Positions that were taken.
    taken: usize,
    /// States of the positions that will not change.
    states: Vec<f32>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use cactus_import::{ConvertOptions, convert};
    use cactus_passes::{Bits, Policy};
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use std::path::Path;

    const MODELS: [&str; 2] = ["moonshine_streaming", "moonshine_streaming_wide"];
    const PORTS: [&str; 2] = ["input_values", "encoder_hidden_states"];

    fn bundle(folder: &Path, name: &str) -> Arc<Bundle> {
        let source = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../golden/speech")
            .join(name);
        let options = ConvertOptions {
            policy: Policy::uniform(Bits::ThirtyTwo),
            ..ConvertOptions::default()
        };
        convert(&source, &folder.join(name), &options, &mut |_, _| {}).unwrap();
        Arc::new(Bundle::open(&folder.join(name)).unwrap())
    }

    fn loaded(bundle: &Arc<Bundle>) -> Streaming {
        let speech = bundle.speech().unwrap().unwrap();
        let cactus_bundle::FrontEnd::Samples(samples) = speech.front_end else {
            panic!("{speech:?}")
        };
        let position = samples.position_samples.unwrap() as usize;
        let ports = PORTS.map(str::to_owned);
        Streaming::load(bundle, speech.streaming.unwrap(), position, &ports).unwrap()
    }

    fn sound(n: usize) -> Vec<f32> {
        (0..n)
            .map(|i| (0.5 * (i as f64 * i as f64 * 1e-5).sin()) as f32)
            .collect()
    }

    fn heard(streaming: &Streaming, threads: usize, passage: &mut Passage, samples: &[f32]) -> Option<Tensor> {
        streaming
            .hear((&Pool::new(threads), threads), passage, samples)
            .unwrap()
    }

    #[test]
    fn states_are_those_of_the_encoder_at_any_moment() {
        let folder = tempfile::tempdir().unwrap();
        for name in MODELS {
            let bundle = bundle(folder.path(), name);
            let (streaming, encoder) = (
                loaded(&bundle),
                Function::new(Arc::clone(&bundle), "encoder", None).unwrap(),
            );
            let least = streaming.about.position_least as usize;
            let (position, block) = (streaming.position, streaming.about.block_samples as usize);
            let mut passage = Passage::default();
            let most = bundle.manifest().context_tokens.min(60) * position;
            let ends = [1, least - 1, least, position, position + least - 1, position + least];
            let ends = ends
                .into_iter()
                .chain([block - 1, block, block + 1, 2 * block + 7, most - 1]);
            let samples = sound(most);
            for end in ends {
                let found = heard(&streaming, 1, &mut passage, &samples[..end]);
                if end < least {
                    assert!(found.is_none(), "{name}, {end}");
                    continue;
                }
                let input = Tensor::from_f32([1, end], samples[..end].to_vec()).unwrap();
                let inputs = BTreeMap::from([(PORTS[0].to_owned(), input)]);
                let wanted = encoder.run(&Pool::new(1), 1, &inputs).unwrap();
                let (found, wanted) = (found.unwrap(), &wanted[0].1);
                assert_eq!(found.shape(), wanted.shape(), "{name}, {end}");
                let pairs = found.as_f32().unwrap().iter().zip(wanted.as_f32().unwrap());
                let worst = pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
                assert!(worst < 1e-5, "{name}, {end}: {worst}");
            }
            assert!(passage.taken > 0, "{name}: something was heard for good");
        }
    }

    #[test]
    fn weights_are_stored_once() {
        let folder = tempfile::tempdir().unwrap();
        for name in MODELS {
            let bundle = bundle(folder.path(), name);
            let of = |component: &str| -> Vec<String> {
                let (_, weights) = bundle.graph(component).unwrap();
                weights.into_values().collect()
            };
            let encoder = of("encoder");
            let own: Vec<_> = of(NAME).into_iter().filter(|name| !encoder.contains(name)).collect();
            assert!(own.is_empty(), "{name}: {own:?}");
        }
    }

    #[test]
    fn other_sound_is_heard_from_its_beginning() {
        let folder = tempfile::tempdir().unwrap();
        let bundle = bundle(folder.path(), MODELS[0]);
        let streaming = loaded(&bundle);
        let samples = sound(3 * streaming.about.block_samples as usize);
        let mut passage = Passage::default();
        heard(&streaming, 1, &mut passage, &samples);
        let shorter = &samples[..streaming.about.block_samples as usize + 1];
        let found = heard(&streaming, 1, &mut passage, shorter).unwrap();
        let alone = heard(&streaming, 1, &mut Passage::default(), shorter).unwrap();
        assert_eq!(found.as_f32().unwrap(), alone.as_f32().unwrap());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(8))]
        #[test]
        fn states_are_the_same_bits_however_sound_grows(
            steps in prop::collection::vec(1usize..9000, 1..5),
            threads in 1usize..4,
        ) {
            let folder = tempfile::tempdir().unwrap();
            let bundle = bundle(folder.path(), MODELS[0]);
            let streaming = loaded(&bundle);
            let samples = sound(steps.iter().sum::<usize>().min(20_000));
            let (mut passage, mut end, mut last) = (Passage::default(), 0, None);
            for step in steps {
                end = (end + step).min(samples.len());
                last = heard(&streaming, threads, &mut passage, &samples[..end]);
            }
            let bits = |states: &Option<Tensor>| {
                let states = states.as_ref().map(|s| s.as_f32().unwrap().iter().map(|x| x.to_bits()).collect::<Vec<_>>());
                states.unwrap_or_default()
            };
            let whole = heard(&streaming, 1, &mut Passage::default(), &samples);
            prop_assert_eq!(bits(&last), bits(&whole));
        }
    }
}
