//! A model whose decoder is told by its prompt what to write, and what it writes of a window.

use crate::alignment::{Alignment, Reading};
use crate::cut::{Piece, cut};
use crate::decoder::{Recording, Surroundings};
use crate::hotwords::Along;
use crate::hypotheses::Hypotheses;
use crate::phantoms;
use crate::prompt::Prompts;
use crate::prompted::{DRAWS, Window, Written, confidence};
use crate::rules::{Chances, Rules};
use crate::words;
use crate::{LanguageChance, Result, Segment, TranscribeOptions};
use cactus_bundle::{Bundle, Prompted};
use cactus_runtime::{KvDType, Options, Program};
use cactus_tensor::Tensor;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Tokens of a prompt that are read at once. Most prompts have four; more of them would only take memory.
const CHUNK_TOKENS: usize = 64;

/// Sound at the end of a window, in seconds, of which what is written may change when more comes.
const OPEN_S: f64 = 0.5;
/// How far a token may look back behind others, in seconds; further is no speech but a text that repeats itself.
const BACK_S: f64 = 4.0;

/// A loaded decoder of this kind.
#[derive(Debug)]
pub(crate) struct Scribe {
    pub(crate) prompted: Prompted,
    pub(crate) hypotheses: Hypotheses,
    /// Loaded when words are first asked for.
    alignment: Option<Alignment>,
    /// What the encoder gave of the window, where words are found in it.
    states: Option<Tensor>,
}

impl Scribe {
    pub(crate) fn load(bundle: &Arc<Bundle>, prompted: &Prompted, threads: usize) -> Result<Scribe> {
        let context_tokens = bundle.manifest().context_tokens;
        let options = Options {
            context_tokens,
            chunk_tokens: CHUNK_TOKENS.min(context_tokens),
            kv_dtype: KvDType::F16,
            ..Options::default()
        };
        let program = Program::new(Arc::clone(bundle), "decoder", &options)?;
        Ok(Scribe {
            prompted: prompted.clone(),
            hypotheses: Hypotheses::new(Arc::new(program), DRAWS, threads)?,
            alignment: None,
            states: None,
        })
    }

    /// Bytes of memory beside the mapped weights.
    pub(crate) fn memory_bytes(&self) -> usize {
        let memory = self.hypotheses.program().memory();
        memory.arena_bytes + memory.state_bytes + memory.logits_bytes
    }

    /// Makes room for what `options` ask for. `states` is what the encoder gives.
    pub(crate) fn reserve(&mut self, bundle: &Arc<Bundle>, states: &str, options: &TranscribeOptions) -> Result<()> {
        self.hypotheses.reserve(options.beams)?;
        match options.finds_words() {
            true => self.align(bundle, states),
            false => Ok(()),
        }
    }

    /// Loads what says which sound a token was written of.
    pub(crate) fn align(&mut self, bundle: &Arc<Bundle>, states: &str) -> Result<()> {
        if self.alignment.is_none() {
            self.alignment = Some(Alignment::load(bundle, states)?);
        }
        Ok(())
    }

    /// How many of `tokens`, which follow `prompt`, were written of sound that lies before the end of the window (AlignAtt, Papi et al. 2023,
    /// arXiv 2305.11408): up to one that looks at its last half second, or far back.
    pub(crate) fn settled(
        &self,
        surroundings: Surroundings<'_>,
        prompt: &[u32],
        tokens: &[u32],
        frames: usize,
    ) -> Result<usize> {
        let (Some(alignment), Some(states), false) = (&self.alignment, &self.states, tokens.is_empty()) else {
            return Ok(0);
        };
        let Some(frames_each) = surroundings.ear.position_frames() else {
            return Ok(0);
        };
        let reading = Reading {
            prompt,
            segments: &[tokens],
            probabilities: &[],
            end: self.prompted.end,
            language: None,
            states,
            heard: frames / frames_each,
            step_s: surroundings.ear.seconds(frames_each),
        };
        let (pool, threads) = self.hypotheses.pool();
        let peaks = alignment.peaks(pool, threads, &reading)?;
        let positions = |seconds: f64| (seconds / reading.step_s).round() as usize;
        let limit = reading.heard.saturating_sub(positions(OPEN_S));
        Ok(settled(&peaks, limit, positions(BACK_S)))
    }

    /// Forgets the window.
    pub(crate) fn forget(&mut self) -> Result<()> {
        self.states = None;
        self.hypotheses.forget()
    }

    /// Takes what the encoder gave of a window.
    pub(crate) fn hear(&mut self, states: BTreeMap<String, Tensor>, words: bool) -> Result<()> {
        self.hypotheses.hear(&states)?;
        self.states = states.into_values().next().filter(|_| words);
        Ok(())
    }

    /// Most tokens of the text of so many seconds.
    pub(crate) fn most_tokens(&self, seconds: f64) -> usize {
        let context = self.hypotheses.program().context_tokens();
        let most = match self.prompted.tokens_per_second {
            Some(limit) => (context - 1).min((f64::from(limit) * seconds).ceil() as usize),
            None => (context / 2).saturating_sub(1),
        };
        most.max(1)
    }

    /// Whether a text that looks wrong is written again, at higher temperatures. The others have a limit to their length alone.
    pub(crate) fn tries_again(&self) -> bool {
        self.prompted.tokens_per_second.is_none()
    }

    /// Adds what is said in the window that was heard last, with sound in so many frames, and says up to which second of it.
    pub(crate) fn window(
        &mut self,
        surroundings: Surroundings<'_>,
        prompts: &mut Prompts,
        recording: &mut Recording<'_>,
        (begin_s, frames): (f64, usize),
    ) -> Result<f64> {
        let Recording { options, cancel, .. } = *recording;
        let transcript = &mut recording.transcript;
        let length_s = surroundings.ear.seconds(frames);
        let rules = Rules::of(&self.prompted);
        if transcript.language.is_none() && !self.prompted.languages.is_empty() {
            transcript.language = self.language()?;
        }
        let language = transcript.language.clone();
        let before = prompts.before();
        let written = Window {
            most_tokens: self.most_tokens(length_s),
            tries_again: self.tries_again(),
            hypotheses: &mut self.hypotheses,
            tokenizer: surroundings.tokenizer,
            rules: &rules,
            hotwords: prompts.tree(),
            along: Along::default(),
            start: before.len(),
            prompt: &[before, prompts.start(language.as_deref())].concat(),
            draft: &[],
            no_speech: self.prompted.no_speech,
            beams: options.beams,
            temperature: options.temperature,
            cancel,
        }
        .write()?;
        if written.is_silent() {
            prompts.add(&[], written.temperature);
            return Ok(length_s);
        }
        let cut = cut(&written.tokens, &rules, length_s);
        let pieces = cut.pieces.iter();
        let mut segments: Vec<Segment> = pieces
            .map(|piece| segment(surroundings, piece, begin_s, &written, &rules))
            .collect();
        let mut until_s = cut.until_s;
        if options.finds_words() {
            let prompt = prompts.start_without_times(language.as_deref());
            let kept = cut.pieces.iter().flat_map(|piece| piece.tokens.clone());
            let kept = kept.filter(|&i| !rules.is_stamp(written.tokens[i]));
            let probabilities: Vec<f64> = kept.map(|i| libm::exp(written.logprobs[i])).collect();
            let words = self.words(
                surroundings,
                &prompt,
                language.as_deref(),
                &segments,
                &probabilities,
                frames,
            )?;
            let spoken_s = recording.spoken_s;
            recording.spoken_s = words::place(&mut segments, words, begin_s, recording.spoken_s);
            if rules.stamps.is_none() {
                // Words may have no length, a piece has one.
                let none = segments.iter_mut().filter(|segment| segment.end_s <= segment.start_s);
                none.for_each(|segment| stretch(segment, [begin_s, begin_s + length_s]));
            }
            let last = segments.iter().rev().find_map(|s| s.words.last());
            // What follows the last word is read again, unless the model has said that nothing does, or the sound was cut in a pause.
            until_s = match last.map(|word| word.end_s - begin_s) {
                Some(end_s) if end_s > 0.0 && !cut.closed && rules.stamps.is_some() => end_s,
                _ => until_s,
            };
            let around = phantoms::Around {
                begin_s,
                length_s,
                window_s: surroundings.ear.seconds(surroundings.ear.most_frames()),
                duration_s: transcript.duration_s,
                spoken_s,
            };
            let phantom = options
                .hallucination_silence_s
                .and_then(|silence_s| phantoms::find(&segments, &around, silence_s));
            if let Some(phantom) = phantom {
                segments.truncate(phantom.kept);
                let last = segments.iter().rev().find(|segment| !segment.words.is_empty());
                recording.spoken_s = last.map_or(spoken_s, |segment| segment.end_s);
                until_s = phantom.until_s;
                if segments.is_empty() {
                    // It is no example for what follows.
                    return Ok(until_s);
                }
            }
            if !options.words {
                segments.iter_mut().for_each(|segment| segment.words.clear());
            }
        }
        let known = transcript.segments.len();
        transcript.add(segments);
        let new = &transcript.segments[known..];
        prompts.add(new, written.temperature);
        Ok(until_s)
    }

    /// The likeliest language of the window.
    pub(crate) fn language(&mut self) -> Result<Option<String>> {
        let best = self.language_chances()?.into_iter();
        let best = best.max_by(|a, b| a.probability.total_cmp(&b.probability));
        Ok(best.map(|chance| chance.code))
    }

    /// How likely each language is in the window.
    pub(crate) fn language_chances(&mut self) -> Result<Vec<LanguageChance>> {
        let prompted = &self.prompted;
        let mut found = Vec::new();
        self.hypotheses.read(&[prompted.start], 0, &mut |_, logits| {
            let chances = Chances::of(&logits);
            let largest = prompted.languages.values().map(|&token| chances.logprob(token));
            let largest = largest.fold(f64::NEG_INFINITY, f64::max);
            let each = prompted.languages.iter().map(|(code, &token)| LanguageChance {
                code: code.clone(),
                token,
                probability: libm::exp(chances.logprob(token) - largest),
            });
            found = each.collect::<Vec<_>>();
        })?;
        let sum: f64 = found.iter().map(|chance| chance.probability).sum();
        found.iter_mut().for_each(|chance| chance.probability /= sum);
        Ok(found)
    }

    /// The words of a window of so many frames, in seconds from its beginning.
    pub(crate) fn words(
        &self,
        surroundings: Surroundings<'_>,
        prompt: &[u32],
        language: Option<&str>,
        segments: &[Segment],
        probabilities: &[f64],
        frames: usize,
    ) -> Result<Vec<words::Timed>> {
        let (Some(alignment), Some(states)) = (&self.alignment, &self.states) else {
            return Ok(Vec::new());
        };
        let Some(frames_each) = surroundings.ear.position_frames() else {
            return Ok(Vec::new());
        };
        let segments: Vec<&[u32]> = segments.iter().map(|segment| &segment.tokens[..]).collect();
        let reading = Reading {
            prompt,
            segments: &segments,
            probabilities,
            end: self.prompted.end,
            language,
            states,
            heard: frames / frames_each,
            step_s: surroundings.ear.seconds(frames_each),
        };
        let (pool, threads) = self.hypotheses.pool();
        alignment.words(pool, threads, &|tokens| surroundings.text(&[], tokens), &reading)
    }
}

/// How many tokens come before one that looks at `limit` or behind it, or further back than `back` positions before the furthest.
fn settled(peaks: &[usize], limit: usize, back: usize) -> usize {
    let mut furthest = 0;
    let settled = peaks.iter().take_while(|&&at| {
        let goes_on = at < limit && at + back >= furthest;
        furthest = furthest.max(at);
        goes_on
    });
    settled.count()
}

/// Lets a segment last from one time to another, and its words with it.
fn stretch(segment: &mut Segment, [start_s, end_s]: [f64; 2]) {
    (segment.start_s, segment.end_s) = (start_s, end_s);
    if let Some(first) = segment.words.first_mut() {
        first.start_s = start_s;
    }
    if let Some(last) = segment.words.last_mut() {
        last.end_s = end_s;
    }
}

fn segment(surroundings: Surroundings<'_>, piece: &Piece, begin_s: f64, written: &Written, rules: &Rules) -> Segment {
    let own = piece.tokens.clone().filter(|&i| !rules.is_stamp(written.tokens[i]));
    let tokens: Vec<u32> = own.clone().map(|i| written.tokens[i]).collect();
    Segment {
        id: 0,
        start_s: begin_s + piece.start_s,
        end_s: begin_s + piece.end_s,
        text: surroundings.text(&[], &tokens),
        tokens,
        mean_logprob: written.mean_logprob,
        confidence: confidence(own.map(|i| written.logprobs[i]), written.compression),
        no_speech: written.no_speech,
        temperature: written.temperature,
        compression: written.compression,
        window_s: begin_s,
        words: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_looks_at_the_end_or_far_back_is_not_settled() {
        for (peaks, settled_tokens) in [
            (&[][..], 0),
            (&[3, 9, 24], 3),
            (&[3, 9, 25, 4], 2),
            (&[30], 0),
            (&[3, 24, 4, 5], 4),
            (&[3, 24, 3, 5], 2),
        ] {
            assert_eq!(settled(peaks, 25, 20), settled_tokens, "{peaks:?}");
        }
    }
}
