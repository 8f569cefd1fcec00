//! The state of widgets, as notebooks keep it in `metadata.widgets`: so they show without a kernel.
//!
//! Models are what kernels tell of in comms. As nbclient does, and front ends too: while an output
//! widget has the message id of a request, the outputs of that request are the widget's.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::document::Document;
use super::edit::EditError;
use super::folded::Folded;
use super::json::{Json, items};
use super::metadata;

/// The type of the state, which is its key in `metadata.widgets`.
const STATE: &str = "application/vnd.jupyter.widget-state+json";

/// The widgets that a kernel told of.
#[derive(Clone, Debug, Default)]
pub struct Widgets {
    models: BTreeMap<String, Model>,
    /// The output widgets that take what the request says, the last one first.
    takers: Vec<String>,
}

#[derive(Clone, Debug, Default)]
struct Model {
    state: BTreeMap<String, Json>,
    /// What is binary of the state, by its path.
    buffers: BTreeMap<String, String>,
    /// What an output widget took since the kernel set its outputs.
    taken: Option<Folded>,
}

impl Widgets {
    /// Begins with another request.
    pub fn begin(&mut self) {
        self.takers.clear();
    }

    /// Takes a message of iopub by its type, its content and its buffers, and says whether it was
    /// for a widget: then it is no output of the cell.
    pub fn take(&mut self, msg_type: &str, content: &[u8], buffers: &[impl AsRef<[u8]>]) -> bool {
        if msg_type.starts_with("comm_") {
            self.tell(content, buffers);
            return true;
        }
        let is_output = matches!(
            msg_type,
            "stream" | "display_data" | "execute_result" | "error" | "clear_output"
        );
        let taker = self.takers.last().filter(|_| is_output);
        let Some(model) = taker.and_then(|id| self.models.get_mut(id)) else {
            return false;
        };
        let taken = model.taken.get_or_insert_default();
        taken.take(msg_type, content);
        true
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.shown().next().is_none()
    }

    fn tell(&mut self, content: &[u8], buffers: &[impl AsRef<[u8]>]) {
        let content = String::from_utf8_lossy(content);
        let content = content.as_bytes();
        let id = metadata::at(content, &["comm_id"]).and_then(|id| id.as_string());
        let state = metadata::at(content, &["data", "state"]);
        // Others' comms, and widgets' own messages, have none.
        let (Some(id), Some(state)) = (id, state) else {
            return;
        };
        let model = self.models.entry(id.clone()).or_default();
        for key in state.keys() {
            if key == "outputs" {
                model.taken = None;
            }
            if let Some(value) = state.get(&key) {
                model.state.insert(key, value);
            }
        }
        let paths = metadata::at(content, &["data", "buffer_paths"]);
        let paths = paths.as_ref().map_or(&b"[]"[..], Json::bytes);
        for (path, buffer) in items(paths).into_iter().zip(buffers) {
            let path = Json::of_valid(path.of(paths)).text().into_owned();
            model.buffers.insert(path, STANDARD.encode(buffer));
        }
        if model.text("_model_name").as_deref() == Some("OutputModel")
            && let Some(request) = state.get("msg_id").and_then(|it| it.as_string())
        {
            match request.is_empty() {
                true => self.takers.retain(|taker| *taker != id),
                false => self.takers.push(id),
            }
        }
    }

    /// Returns the models, by their ids.
    fn shown(&self) -> impl Iterator<Item = (&String, &Model)> {
        let models = self.models.iter();
        // Any other comm may have a state, too.
        models.filter(|(_, model)| model.state.contains_key("_model_name"))
    }
}

impl Model {
    fn text(&self, key: &str) -> Option<String> {
        self.state.get(key)?.as_string()
    }

    /// Returns it as the schema of widgets' state has it.
    fn to_json(&self) -> Json {
        let taken = self.taken.as_ref().map(|taken| {
            let outputs = taken.outputs();
            let outputs: Vec<_> = outputs.iter().map(Json::text).collect();
            Json::of_valid(format!("[{}]", outputs.join(",")).as_bytes())
        });
        let outputs = "outputs".to_owned();
        let state = self.state.iter();
        let state = state.filter(|(key, _)| taken.is_none() || **key != outputs);
        let state = state.chain(taken.iter().map(|taken| (&outputs, taken)));
        let state: Vec<_> = state
            .map(|(key, value)| format!("{}:{}", Json::string(key).text(), value.text()))
            .collect();
        let mut fields = Vec::new();
        if !self.buffers.is_empty() {
            let buffers = self.buffers.iter().map(|(path, data)| {
                format!("{{\"data\":\"{data}\",\"encoding\":\"base64\",\"path\":{path}}}")
            });
            let buffers: Vec<_> = buffers.collect();
            fields.push(format!("\"buffers\":[{}]", buffers.join(",")));
        }
        for name in ["model_module", "model_module_version", "model_name"] {
            let value = self.state.get(&format!("_{name}"));
            let value = value.map_or_else(|| "null".into(), Json::text);
            fields.push(format!("\"{name}\":{value}"));
        }
        fields.push(format!("\"state\":{{{}}}", state.join(",")));
        Json::of_valid(format!("{{{}}}", fields.join(",")).as_bytes())
    }
}

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
        if let Some(state) = self.metadata(&["widgets", STATE, "state"]) {
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
            "{{\"{STATE}\":{{\"state\":{{{}}},\"version_major\":2,\"version_minor\":0}}}}",
            models.join(",")
        );
        self.set_notebook_metadata(&["widgets"], &Json::of_valid(state.as_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn tell(widgets: &mut Widgets, msg_type: &str, content: &Value, buffers: &[&[u8]]) -> bool {
        widgets.take(msg_type, content.to_string().as_bytes(), buffers)
    }

    fn open(id: &str, name: &str) -> Value {
        let state = json!({
            "_model_name": name, "_model_module": "m", "_model_module_version": "2.0.0", "value": 1,
        });
        json!({"comm_id": id, "target_name": "jupyter.widget", "data": {"state": state}})
    }

    fn state(document: &Document) -> Value {
        let state = document.metadata(&["widgets", STATE]).unwrap();
        serde_json::from_str(&state.text()).unwrap()
    }

    fn notebook(metadata: &Value, outputs: &Value) -> Document {
        let cell = json!({"cell_type": "code", "id": "aaaa", "source": "", "metadata": {}, "outputs": outputs});
        let notebook =
            json!({"cells": [cell], "metadata": metadata, "nbformat": 4, "nbformat_minor": 5});
        Document::parse(notebook.to_string()).unwrap()
    }

    #[test]
    fn the_state_is_what_was_told_of_it_last() {
        let mut widgets = Widgets::default();
        assert!(tell(
            &mut widgets,
            "comm_open",
            &json!({"comm_id": "x", "data": {"id": 1}}),
            &[]
        ));
        assert!(widgets.is_empty());
        tell(&mut widgets, "comm_open", &open("a", "IntModel"), &[]);
        let update = json!({"comm_id": "a", "data": {
            "method": "update", "state": {"value": 2, "b": {}}, "buffer_paths": [["b", "c"]],
        }});
        tell(&mut widgets, "comm_msg", &update, &[b"hi"]);
        let custom = json!({"comm_id": "a", "data": {"method": "custom", "content": {}}});
        tell(&mut widgets, "comm_msg", &custom, &[]);
        for nonsense in ["", "[]", "{\"comm_id\":\"a\",\"data\":{\"state\":7}}"] {
            assert!(widgets.take("comm_msg", nonsense.as_bytes(), &[b"x"]));
        }
        let mut document = notebook(&json!({}), &json!([]));
        assert_eq!(document.put_widgets(&widgets), Ok(true));
        assert_eq!(document.put_widgets(&widgets), Ok(false));
        assert_eq!(
            state(&document),
            json!({"version_major": 2, "version_minor": 0, "state": {"a": {
                "model_name": "IntModel", "model_module": "m", "model_module_version": "2.0.0",
                "buffers": [{"data": "aGk=", "encoding": "base64", "path": ["b", "c"]}],
                "state": {
                    "_model_name": "IntModel", "_model_module": "m",
                    "_model_module_version": "2.0.0", "value": 2, "b": {},
                },
            }}})
        );
    }

    #[test]
    fn an_output_widget_takes_what_is_said_meanwhile() {
        let mut widgets = Widgets::default();
        let says = |text: &str| json!({"name": "stdout", "text": text});
        let request = |id: &str| json!({"comm_id": "o", "data": {"state": {"msg_id": id}}});
        tell(&mut widgets, "comm_open", &open("o", "OutputModel"), &[]);
        assert!(!tell(&mut widgets, "stream", &says("before"), &[]));
        tell(&mut widgets, "comm_msg", &request("r"), &[]);
        assert!(tell(&mut widgets, "stream", &says("a"), &[]));
        assert!(tell(&mut widgets, "stream", &says("b"), &[]));
        assert!(!tell(&mut widgets, "update_display_data", &json!({}), &[]));
        tell(&mut widgets, "comm_msg", &request(""), &[]);
        assert!(!tell(&mut widgets, "stream", &says("after"), &[]));
        let mut document = notebook(&json!({}), &json!([]));
        document.put_widgets(&widgets).unwrap();
        let output = json!([{"output_type": "stream", "name": "stdout", "text": "ab"}]);
        assert_eq!(state(&document)["state"]["o"]["state"]["outputs"], output);
        // A request that ended in the midst of it says nothing of the next one.
        tell(&mut widgets, "comm_msg", &request("r"), &[]);
        widgets.begin();
        assert!(!tell(&mut widgets, "stream", &says("another"), &[]));
    }

    #[test]
    fn others_widgets_stay_as_long_as_something_shows_them() {
        let models = json!({
            "shown": {"state": {"layout": "IPY_MODEL_part"}}, "part": {}, "gone": {}, "new": {"old": 1},
        });
        let metadata = json!({"widgets": {STATE: {"state": models}}});
        let view = json!({"application/vnd.jupyter.widget-view+json": {"model_id": "shown"}});
        let outputs = json!([{"output_type": "display_data", "metadata": {}, "data": view}]);
        let mut document = notebook(&metadata, &outputs);
        let mut widgets = Widgets::default();
        tell(&mut widgets, "comm_open", &open("new", "IntModel"), &[]);
        document.put_widgets(&widgets).unwrap();
        let state = state(&document)["state"].clone();
        let ids: Vec<_> = state.as_object().unwrap().keys().collect();
        assert_eq!(ids, ["new", "part", "shown"]);
        assert_eq!(state["new"]["model_name"], "IntModel");
    }
}
