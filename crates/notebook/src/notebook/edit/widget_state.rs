//! Stores the state of widgets in the notebook's metadata.

use std::collections::BTreeMap;

use super::error::DocumentEditError;
use crate::notebook::document::Document;
use crate::notebook::json::Json;
use crate::notebook::outputs::{WIDGET_STATE, Widgets};

impl Document {
    /// Stores the state of widgets in the notebook's metadata, and returns whether that changed it. The
    /// state of other widgets stays as long as an output or another widget refers to them.
    ///
    /// # Errors
    /// The format is read-only.
    pub fn put_widgets(&mut self, widgets: &Widgets) -> Result<bool, DocumentEditError> {
        let new = widgets.shown().map(|(id, it)| (id.clone(), it.to_json()));
        let mut models: BTreeMap<String, Json> = new.collect();
        let mut old: BTreeMap<String, Json> = BTreeMap::new();
        if let Some(state) = self.metadata(&["widgets", WIDGET_STATE, "state"]) {
            let keys = state.keys().into_iter();
            old.extend(keys.filter_map(|id| state.get(&id).map(|model| (id, model))));
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
        let models = Json::object(models.iter().map(|(id, model)| (id.as_str(), model)));
        let state = Json::object([
            ("state", &models),
            ("version_major", &Json::from(2_u64)),
            ("version_minor", &Json::from(0_u64)),
        ]);
        let widgets = Json::object([(WIDGET_STATE, &state)]);
        self.set_notebook_metadata(&["widgets"], &widgets)
    }
}
