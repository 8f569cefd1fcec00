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
        let mut names: Vec<String> = self
            .cells()
            .iter()
            .filter_map(|cell| Some(String::from_utf8_lossy(cell.raw("outputs")?).into_owned()))
            .collect();
        names.extend(models.values().map(|it| it.text().into_owned()));
        old.retain(|id, _| !models.contains_key(id));
        while let Some(named) = names.pop() {
            let kept: Vec<_> = old
                .extract_if(.., |id, _| named.contains(id.as_str()))
                .collect();
            names.extend(kept.iter().map(|(_, model)| model.text().into_owned()));
            models.extend(kept);
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
