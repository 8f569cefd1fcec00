//! Stores the state of widgets in the notebook's metadata.

use std::collections::BTreeMap;

use super::error::DocumentEditError;
use crate::notebook::document::Document;
use crate::notebook::json::Json;
use crate::notebook::outputs::{WIDGET_STATE, Widgets, stored_models};

impl Document {
    /// Returns the stored state of widgets, as the schema has it; `None` if there is none. Colab stores the models
    /// without the level `state`.
    pub fn widget_state(&self) -> Option<Json> {
        let stored = self.metadata(&["widgets", WIDGET_STATE])?;
        if stored.get("state").is_some() {
            return Some(stored);
        }
        let models = stored_models(self);
        Some(state(&models))
    }

    /// Stores the state of widgets in the notebook's metadata, and returns whether that changed it. Changes of a
    /// widget that an earlier job made go into its stored state. The state of other widgets stays as long as an output
    /// or another widget refers to them.
    ///
    /// # Errors
    /// The format is read-only.
    pub fn put_widgets(&mut self, widgets: &Widgets) -> Result<bool, DocumentEditError> {
        let mut old = stored_models(self);
        let mut models: BTreeMap<String, Json> = widgets.models_beside(&old).collect();
        if models.is_empty() {
            return Ok(false);
        }
        let mut texts: Vec<String> = self
            .cells()
            .iter()
            .filter_map(|cell| Some(String::from_utf8_lossy(cell.raw("outputs")?).into_owned()))
            .collect();
        texts.extend(models.values().map(|it| it.text().into_owned()));
        old.retain(|id, _| !models.contains_key(id));
        while let Some(text) = texts.pop() {
            let referenced: Vec<_> = old
                .extract_if(.., |id, _| text.contains(id.as_str()))
                .collect();
            texts.extend(
                referenced
                    .iter()
                    .map(|(_, model)| model.text().into_owned()),
            );
            models.extend(referenced);
        }
        self.set_notebook_metadata(&["widgets", WIDGET_STATE], &state(&models))
    }
}

/// Returns models in the schema of widget state.
fn state(models: &BTreeMap<String, Json>) -> Json {
    let models = Json::object(models.iter().map(|(id, model)| (id.as_str(), model)));
    Json::object([
        ("state", &models),
        ("version_major", &Json::from(2_u64)),
        ("version_minor", &Json::from(0_u64)),
    ])
}
