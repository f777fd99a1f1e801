//! Which of many tools a request is about: a model of vectors is asked where this server has one, and counts beside the words.

use super::App;
use crate::models::{Does, EmbeddingModel};
use crate::protocol::{ApiError, Job, Kind, Prompt};
use crate::stores::InTurn;
use cactus_engine::chat::ChatRequest;
use cactus_rag::Embed as _;
use cactus_text::tools::in_words;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Most tools that get vectors: more take longer than they are worth, and are chosen by words alone.
const MOST_TOOLS: usize = 1024;
/// Most tools whose vectors are kept.
const MOST_KNOWN: usize = 8192;

/// Vectors by the digest of the model that made them, and by what the tool says.
type Vectors = HashMap<(String, String), Arc<[f32]>>;

/// Vectors of tools: the same ones come with every message of a conversation.
#[derive(Debug, Default)]
pub(super) struct Known(Mutex<Vectors>);

impl Known {
    /// The vectors of these texts, of which those are made that are not known.
    fn of(&self, model: &InTurn, texts: Vec<String>) -> Result<Vec<Arc<[f32]>>, cactus_rag::EmbedError> {
        let key = |text: &String| (model.recipe().digest, text.clone());
        let mut known = self.inner();
        let mut missing: Vec<String> = texts.iter().filter(|t| !known.contains_key(&key(t))).cloned().collect();
        drop(known);
        missing.sort();
        missing.dedup();
        let mut made: HashMap<String, Arc<[f32]>> = HashMap::new();
        if !missing.is_empty() {
            let vectors = model.embed_documents(&missing)?;
            made.extend(missing.into_iter().zip(vectors.into_iter().map(Arc::from)));
        }
        known = self.inner();
        let found = texts.iter().map(|text| match made.get(text) {
            Some(vector) => Some(Arc::clone(vector)),
            None => known.get(&key(text)).cloned(),
        });
        let found: Option<Vec<_>> = found.collect();
        if known.len() + made.len() > MOST_KNOWN {
            known.clear();
        }
        known.extend(made.into_iter().map(|(text, vector)| (key(&text), vector)));
        found.ok_or_else(|| "the vectors of tools were forgotten meanwhile".into())
    }

    fn inner(&self) -> MutexGuard<'_, Vectors> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Tells each conversation of a job that may be told of some of its tools only how near they are to what is asked.
///
/// # Errors
/// The model of vectors, where the server was told of one.
pub(super) async fn rank(app: &Arc<App>, job: &mut Job) -> Result<(), ApiError> {
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
        chat.tool_nearness = Some(near(app, model, chat, question).await?);
    }
    Ok(())
}

/// The dot products of the question's vector with those of the tools.
async fn near(app: &Arc<App>, model: InTurn, chat: &ChatRequest, question: String) -> Result<Vec<f32>, ApiError> {
    let texts: Vec<String> = chat.tools.iter().map(in_words).collect();
    let app = Arc::clone(app);
    let work = tokio::task::spawn_blocking(move || {
        let tools = app.tools.of(&model, texts)?;
        let asked = model.embed_query(&question)?;
        let near = |tool: &Arc<[f32]>| tool.iter().zip(&asked).map(|(a, b)| a * b).sum();
        Ok::<Vec<f32>, cactus_rag::EmbedError>(tools.iter().map(near).collect())
    });
    let failed = |what: String| ApiError::new(Kind::Server, format!("tools cannot be chosen: {what}"));
    let found = work.await.map_err(|e| failed(e.to_string()))?;
    found.map_err(|e| failed(e.to_string()))
}
