//! The state of widgets, put into the notebook's metadata.

use std::collections::BTreeMap;

use super::error::EditError;
use crate::notebook::document::Document;
use crate::notebook::json::Json;
use crate::notebook::outputs::{WIDGET_STATE, Widgets};

impl Document {
    /// Puts the state of widgets into the notebook's metadata, and says whether that changed it. What
    /// is there of others stays as long as an output or another widget names it.
    ///
    /// # Errors
    /// The format is only read.
    pub fn put_widgets(&mut self, widgets: &Widgets) -> Result<bool, EditError> {
        let new = widgets.shown().map(|(id, it)| (id.clone(), it.to_json()));
        let mut models: BTreeMap<String, Json> = new.collect();
        let mut old: BTreeMap<String, Json> = BTreeMap::new();
        if let Some(state) = self.metadata(&["widgets", WIDGET_STATE, "state"]) {
            let keys = state.keys().into_iter();
            old.extend(keys.filter_map(|id| Some((id.clone(), state.get(&id)?))));
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
        let models: Vec<_> = models
            .iter()
            .map(|(id, model)| format!("{}:{}", Json::string(id).text(), model.text()))
            .collect();
        let state = format!(
            "{{\"{WIDGET_STATE}\":{{\"state\":{{{}}},\"version_major\":2,\"version_minor\":0}}}}",
            models.join(",")
        );
        self.set_notebook_metadata(&["widgets"], &Json::of_valid(state.as_bytes()))
    }
}
