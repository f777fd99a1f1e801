//! Policies of models: who else may answer, what may leave, and for how much.
//!
//! Purpose: the one place that knows whether this build can hand off. With the feature `cloud` a policy is read as the command
//! line reads one, and requests of its model go by `routed`. Without it nothing below this crate can send, and a policy gets an
//! error that says so.

use crate::failure::{Failure, Result};
use crate::hearer::HEARERS;
use crate::loaded::MODELS;
use crate::types::cactus_model;
use crate::{guard, input};
use std::ffi::{c_char, c_int};
use std::sync::Arc;

/// Gives a model a policy for its requests from now on: what the model should not answer may be handed to a target. `model` may be one that
/// writes down what is said, too: then targets that do hear again what is doubtful of recordings (`cactus_transcribe`), and `target` may be
/// the address of such a one. `policy_toml`
/// is the text of a policy file (docs/reference/policy.md), or NULL. `options_json` is NULL or an object, which comes after the
/// text: `target` (a name of the policy or of the table of targets, or an address with a model, as
/// `http://127.0.0.1:8081/v1#name`), `key` (that target's key) and `keys` (an object of keys by names of targets), which come
/// before what the policy says of keys, are sent to no other host, and are kept in memory alone until no request has the policy
/// any more, `handoff` (`auto`, `never`, `always`), `budget` (the most that a session may cost, in dollars as text), `consent`
/// (an array of what may leave without a question: `text`, `tool_result`, `image`, `audio`, `document`) and `state` (the folder
/// of budget, record and keys; that of the command line where it is not given). With both NULL the model answers alone again.
/// Requests under way stay as they are. What is wrong changes nothing. A library that was built without the cloud gives
/// `CACTUS_CODE_NOT_IN_BUILD`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cactus_model_set_policy(
    model: *mut cactus_model,
    policy_toml: *const c_char,
    options_json: *const c_char,
) -> c_int {
    guard::code(|| {
        // SAFETY: the header's contract of strings.
        let (text, options) = unsafe {
            (
                input::optional_text(policy_toml, "policy_toml")?,
                input::optional_text(options_json, "options_json")?,
            )
        };
        let policy = |about: For<'_>| -> Result<Option<Arc<Policy>>> {
            if text.is_none() && options.is_none() {
                return Ok(None);
            }
            let options = input::object(options, "options_json")?;
            Ok(Some(Arc::new(Policy::new(about, text, &options)?)))
        };
        match (MODELS.get(model.cast()), HEARERS.get(model.cast())) {
            (Err(_), Ok(hearer)) => {
                if !hearer.writes() {
                    return Err(Failure::unsupported(
                        "the model finds speech, which is handed to nobody; give the policy to the one that writes it down",
                    ));
                }
                hearer.set_policy(policy(For::Recordings)?);
            }
            (model, _) => {
                let model = model?;
                model.set_policy(policy(For::Text(&model))?);
            }
        }
        Ok(())
    })
}

/// What a policy is for.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(not(feature = "cloud"), allow(dead_code, reason = "nobody else answers"))]
pub(crate) enum For<'a> {
    /// Requests of a model that writes text.
    Text(&'a Arc<crate::loaded::Loaded>),
    /// Recordings.
    Recordings,
}

#[cfg(feature = "cloud")]
pub(crate) use crate::routed::Policy;

#[cfg(not(feature = "cloud"))]
pub(crate) use crate::absent::policy::Policy;
