//! Which of many tools a request is about: a model of vectors is asked where this server has one, and counts beside the words.

use super::App;
use super::files::in_background;
use crate::models::{Does, EmbeddingModel};
use crate::protocol::{ApiError, Job, Kind, Prompt};
use crate::stores::InTurn;
use cactus_rag::{Embed as _, EmbedError};
use cactus_text::tools::in_words;
use sha2::{Digest as _, Sha256};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Most tools that get vectors: more take longer than they are worth, and are chosen by words alone.
const MOST_TOOLS: usize = 1024;
/// Most tools whose vectors are kept.
const MOST_KNOWN: usize = 8192;
/// Tools that get their vectors in one turn with the model.
const TOOLS_OF_A_TURN: usize = 16;

/// Of whose they are, of the model, and of what a tool says.
type Key = [u8; 32];

/// Vectors of tools: the same ones come with every message of a conversation. A tenant has those of no other, as the time of an answer
/// would tell which tools others have.
#[derive(Debug, Default)]
pub(super) struct Known(Mutex<HashMap<Key, Arc<[f32]>>>);

impl Known {
    /// The vectors of these texts, of which those are made that are not known.
    fn of(&self, tenant: u64, model: &InTurn, texts: &[String]) -> Result<Vec<Arc<[f32]>>, EmbedError> {
        let whose = [&tenant.to_le_bytes()[..], model.recipe().digest.as_bytes()].concat();
        let keys: Vec<Key> = texts
            .iter()
            .map(|text| Sha256::digest([&whose[..], b"\0", text.as_bytes()].concat()).into())
            .collect();
        let mut found: HashMap<Key, Arc<[f32]>> = {
            let known = self.inner();
            let of = |key: &Key| Some((*key, Arc::clone(known.get(key)?)));
            keys.iter().filter_map(of).collect()
        };
        let missing: Vec<usize> = (0..texts.len()).filter(|&i| !found.contains_key(&keys[i])).collect();
        for some in missing.chunks(TOOLS_OF_A_TURN) {
            let texts: Vec<String> = some.iter().map(|&i| texts[i].clone()).collect();
            let made = model.embed_documents(&texts)?.into_iter().map(Arc::from);
            found.extend(some.iter().map(|&i| keys[i]).zip(made));
        }
        if !missing.is_empty() {
            let mut known = self.inner();
            if known.len() + missing.len() > MOST_KNOWN {
                known.clear();
            }
            known.extend(
                missing
                    .iter()
                    .filter_map(|&i| Some((keys[i], Arc::clone(found.get(&keys[i])?)))),
            );
        }
        let all = keys.iter().map(|key| found.get(key).cloned());
        all.collect::<Option<_>>()
            .ok_or_else(|| "the model gave too few vectors".into())
    }

    fn inner(&self) -> MutexGuard<'_, HashMap<Key, Arc<[f32]>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Tells each conversation of a job that may be told of some of its tools only how near they are to what is asked.
///
/// # Errors
/// The model of vectors, where it cannot be loaded or does not know what to do.
pub(super) async fn rank(app: &Arc<App>, job: &mut Job, tenant: u64) -> Result<(), ApiError> {
    for prompt in &mut job.prompts {
        let Prompt::Chat(chat) = prompt else { continue };
        let Some(question) = chat.chooses_tools_for().filter(|_| chat.tools.len() <= MOST_TOOLS) else {
            continue;
        };
        let named = app.options.embedder.as_deref();
        if named.is_none() && app.models.first(Does::Embeds).await.is_err() {
            return Ok(());
        }
        let lease = app
            .models
            .acquire_as::<EmbeddingModel>(named.unwrap_or_default())
            .await?;
        let model = InTurn::of(lease).await;
        let texts: Vec<String> = chat.tools.iter().map(in_words).collect();
        let app = Arc::clone(app);
        let work = move || {
            let near = || {
                let tools = app.tools.of(tenant, &model, &texts)?;
                let asked = model.embed_query(&question)?;
                let near = |tool: &Arc<[f32]>| tool.iter().zip(&asked).map(|(a, b)| a * b).sum();
                Ok(tools.iter().map(near).collect())
            };
            near().map_err(|e: EmbedError| ApiError::new(Kind::Server, format!("tools cannot be chosen: {e}")))
        };
        chat.tool_nearness = Some(in_background(work).await?);
    }
    Ok(())
}
