//! What stands in a prompt for a picture.

use super::{Plan, Role};
use crate::{Error, ErrorKind};
use serde::{Deserialize, Serialize};

/// The text of a picture: `start`, its views, `end`. A view is its mark and as many times `token` as it has tokens. The text is made
/// before the prompt becomes tokens, because some tokenizers join the line breaks of neighbors.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Marks {
    /// What a chat template writes for a picture; empty where that is the token.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub written: String,
    /// A token that is replaced by a row of the encoder.
    pub token: String,
    /// Before everything.
    #[serde(default)]
    pub start: String,
    /// Behind everything.
    #[serde(default)]
    pub end: String,
    /// Before the view of a picture that has no other.
    #[serde(default)]
    pub only: String,
    /// Before a tile. `{row}` and `{column}` are where it is, counted from 1.
    #[serde(default)]
    pub tile: String,
    /// Behind each row of tiles.
    #[serde(default)]
    pub row_end: String,
    /// Before the whole picture in small, behind its tiles.
    #[serde(default)]
    pub whole: String,
}

/// Most bytes of a mark.
const MAX_BYTES: usize = 256;

impl Marks {
    pub(super) fn check(&self) -> Result<(), Error> {
        let Marks {
            written,
            token,
            start,
            end,
            only,
            tile,
            row_end,
            whole,
        } = self;
        let all = [written, token, start, end, only, tile, row_end, whole];
        match all.into_iter().find(|mark| mark.len() > MAX_BYTES) {
            None => Ok(()),
            Some(mark) => Err(Error::new(
                ErrorKind::InvalidRecord,
                format!(
                    "the picture record has a mark of {} bytes; expected at most {MAX_BYTES}",
                    mark.len()
                ),
            )),
        }
    }

    /// What a chat template writes for a picture.
    #[must_use]
    pub fn written(&self) -> &str {
        match self.written.is_empty() {
            true => &self.token,
            false => &self.written,
        }
    }

    /// The text of a picture with this plan.
    pub fn text(&self, plan: &Plan) -> String {
        let mut text = self.start.clone();
        let columns = plan.tiles.map_or(0, |grid| grid.columns);
        for view in &plan.views {
            match view.role {
                Role::Only => text += &self.only,
                Role::Whole => text += &self.whole,
                Role::Tile { row, column } => {
                    text += &self
                        .tile
                        .replace("{row}", &(row + 1).to_string())
                        .replace("{column}", &(column + 1).to_string());
                }
            }
            for _ in 0..view.tokens {
                text += &self.token;
            }
            if matches!(view.role, Role::Tile { column, .. } if column + 1 == columns) {
                text += &self.row_end;
            }
        }
        text + &self.end
    }
}
