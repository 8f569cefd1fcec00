//! The state of widgets, as notebooks keep it in `metadata.widgets`: so they show without a kernel.
//!
//! Models are what kernels tell of in comms. As nbclient does, and front ends too: while an output
//! widget has the message id of a request, the outputs of that request are the widget's.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::accumulator::OutputAccumulator;
use crate::notebook::document::Document;
use crate::notebook::json::{Json, items, string_at, value_at};

/// The type of the state, which is its key in `metadata.widgets`.
pub(in crate::notebook) const WIDGET_STATE: &str = "application/vnd.jupyter.widget-state+json";

/// The widgets that a kernel told of.
#[derive(Clone, Debug, Default)]
pub struct Widgets {
    models: BTreeMap<String, Model>,
    /// The output widgets that capture the request's outputs; the last one gets them.
    capturing: Vec<String>,
    /// The empty accumulator of an output widget, with its limit.
    empty: OutputAccumulator,
}

#[derive(Clone, Debug, Default)]
pub(in crate::notebook) struct Model {
    state: BTreeMap<String, Json>,
    /// The binary parts of the state in base64, by their paths.
    buffers: BTreeMap<String, String>,
    /// The outputs that an output widget captured since the kernel set its outputs.
    taken: Option<OutputAccumulator>,
    /// The outputs that it captured before, in other jobs.
    before: Vec<Json>,
    /// Whether the kernel has not been sent the captured outputs yet.
    has_unsent_update: bool,
    closed: bool,
}

impl Widgets {
    /// Returns none, of which output widgets will keep about as much as a cell of this bound.
    pub fn bounded(empty: OutputAccumulator) -> Self {
        Self {
            empty,
            ..Self::default()
        }
    }

    /// Begins with another request.
    pub fn begin(&mut self) {
        self.capturing.clear();
    }

    /// Takes a message of iopub by its type, its content and its buffers, and says whether it was
    /// for a widget: then it is no output of the cell.
    pub fn take(&mut self, msg_type: &str, content: &[u8], buffers: &[impl AsRef<[u8]>]) -> bool {
        if msg_type.starts_with("comm_") {
            self.tell(content, buffers);
            if msg_type == "comm_close"
                && let Some(model) = comm(content).and_then(|id| self.models.get_mut(&id))
            {
                model.closed = true;
            }
            return true;
        }
        let is_output = matches!(
            msg_type,
            "stream" | "display_data" | "execute_result" | "error" | "clear_output"
        );
        let taker = self.capturing.last().filter(|_| is_output);
        let Some(model) = taker.and_then(|id| self.models.get_mut(id)) else {
            return false;
        };
        if msg_type == "clear_output" {
            model.before.clear();
        }
        let taken = model.taken.get_or_insert_with(|| self.empty.clone());
        taken.take(msg_type, content);
        model.has_unsent_update = true;
        true
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.shown().next().is_none()
    }

    /// Returns the output widget that is about to take outputs and was made before these were told of,
    /// if the content of a `comm_msg` says so: [`Widgets::load`] is for it.
    pub fn unknown_output_widget(&self, content: &[u8]) -> Option<String> {
        let id = comm(content).filter(|id| !self.models.contains_key(id))?;
        let request = value_at(content, &["data", "state", "msg_id"])?;
        let takes = request.as_string().is_some_and(|it| !it.is_empty());
        takes.then_some(id)
    }

    /// Adds an output widget that was made earlier, with its state in the notebook.
    pub fn load(&mut self, id: &str, document: Option<&Document>) {
        let path = ["widgets", WIDGET_STATE, "state", id, "state"];
        let state = document.and_then(|it| it.metadata(&path));
        let mut model = Model::default();
        for key in state.iter().flat_map(Json::keys) {
            if let Some(value) = state.as_ref().and_then(|it| it.get(&key)) {
                model.state.insert(key, value);
            }
        }
        if let Some(outputs) = model.state.get("outputs") {
            let bytes = outputs.bytes();
            let all = items(bytes).into_iter();
            model.before = all.map(|it| Json::of_valid(it.of(bytes))).collect();
        }
        self.models.insert(id.to_owned(), model);
    }

    /// Returns the output widgets, by their comms, that took outputs since they were asked for last,
    /// with the content of the message that tells the kernel: a front end that comes later asks there
    /// what they hold.
    pub fn unsent_updates(&mut self) -> Vec<Json> {
        let models = self.models.iter_mut();
        let changed = models.filter(|(_, model)| !model.closed && model.has_unsent_update);
        let told = changed.map(|(id, model)| {
            model.has_unsent_update = false;
            let id = Json::string(id);
            let outputs = model.outputs();
            let outputs = outputs.as_ref().map_or_else(|| "[]".into(), Json::text);
            let content = format!(
                "{{\"comm_id\":{},\"data\":{{\"method\":\"update\",\"state\":{{\"outputs\":{outputs}}},\"buffer_paths\":[]}}}}",
                id.text()
            );
            Json::of_valid(content.as_bytes())
        });
        told.collect()
    }

    fn tell(&mut self, content: &[u8], buffers: &[impl AsRef<[u8]>]) {
        let content = String::from_utf8_lossy(content);
        let content = content.as_bytes();
        let id = string_at(content, &["comm_id"]);
        let state = value_at(content, &["data", "state"]);
        // Others' comms, and widgets' own messages, have none.
        let (Some(id), Some(state)) = (id, state) else {
            return;
        };
        let model = self.models.entry(id.clone()).or_default();
        for key in state.keys() {
            if key == "outputs" {
                model.taken = None;
                model.before.clear();
            }
            if let Some(value) = state.get(&key) {
                model.state.insert(key, value);
            }
        }
        let paths = value_at(content, &["data", "buffer_paths"]);
        let paths = paths.as_ref().map_or(&b"[]"[..], Json::bytes);
        for (path, buffer) in items(paths).into_iter().zip(buffers) {
            let path = Json::of_valid(path.of(paths)).text().into_owned();
            model.buffers.insert(path, STANDARD.encode(buffer));
        }
        // No other model has a request's id; of one that was made before, the name may not be known.
        let name = model.text("_model_name");
        if name.as_deref().is_none_or(|name| name == "OutputModel")
            && let Some(request) = state.get("msg_id").and_then(|it| it.as_string())
        {
            match request.is_empty() {
                true => self.capturing.retain(|taker| *taker != id),
                false => self.capturing.push(id),
            }
        }
    }

    /// Returns the models, by their ids.
    pub(in crate::notebook) fn shown(&self) -> impl Iterator<Item = (&String, &Model)> {
        let models = self.models.iter();
        // Any other comm may have a state, too.
        models.filter(|(_, model)| model.state.contains_key("_model_name"))
    }
}

/// Returns which comm a message is of.
fn comm(content: &[u8]) -> Option<String> {
    string_at(content, &["comm_id"])
}

impl Model {
    fn text(&self, key: &str) -> Option<String> {
        self.state.get(key)?.as_string()
    }

    /// Returns what an output widget took; none where it took nothing.
    fn outputs(&self) -> Option<Json> {
        let taken = self.taken.as_ref()?.outputs();
        let outputs = self.before.iter().chain(&taken);
        let outputs: Vec<_> = outputs.map(Json::text).collect();
        Some(Json::of_valid(
            format!("[{}]", outputs.join(",")).as_bytes(),
        ))
    }

    /// Returns it as the schema of widgets' state has it.
    pub(in crate::notebook) fn to_json(&self) -> Json {
        let taken = self.outputs();
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
        let state = document.metadata(&["widgets", WIDGET_STATE]).unwrap();
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
    fn an_output_widget_is_bounded_as_a_cell_is() {
        let mut widgets = Widgets::bounded(OutputAccumulator::bounded(10_000, "more"));
        let request = json!({"comm_id": "o", "data": {"state": {"msg_id": "r"}}});
        tell(&mut widgets, "comm_open", &open("o", "OutputModel"), &[]);
        tell(&mut widgets, "comm_msg", &request, &[]);
        for line in 0..10_000 {
            let says = json!({"name": "stdout", "text": format!("line {line}\n")});
            assert!(tell(&mut widgets, "stream", &says, &[]));
        }
        let mut document = notebook(&json!({}), &json!([]));
        document.put_widgets(&widgets).unwrap();
        let outputs = state(&document)["state"]["o"]["state"]["outputs"].to_string();
        assert!(outputs.len() < 15_000, "{}", outputs.len());
        for kept in ["line 0\\n", "left out here; more", "line 9999\\n"] {
            assert!(outputs.contains(kept), "{outputs}");
        }
    }

    #[test]
    fn the_kernel_is_told_what_an_output_widget_took() {
        let says = |text: &str| json!({"name": "stdout", "text": text});
        let request = |id: &str| json!({"comm_id": "o", "data": {"state": {"msg_id": id}}});
        let untold = |widgets: &mut Widgets| -> Vec<Value> {
            let told = widgets.unsent_updates().into_iter();
            told.map(|it| serde_json::from_str(&it.text()).unwrap())
                .collect()
        };
        let mut widgets = Widgets::default();
        tell(&mut widgets, "comm_open", &open("o", "OutputModel"), &[]);
        assert_eq!(
            widgets.unknown_output_widget(request("r").to_string().as_bytes()),
            None
        );
        tell(&mut widgets, "comm_msg", &request("r"), &[]);
        assert_eq!(untold(&mut widgets), [json!(null); 0]);
        tell(&mut widgets, "stream", &says("a"), &[]);
        let first = json!({"output_type": "stream", "name": "stdout", "text": "a"});
        let told = untold(&mut widgets);
        assert_eq!(told[0]["comm_id"], "o");
        assert_eq!(told[0]["data"]["method"], "update");
        assert_eq!(told[0]["data"]["state"], json!({"outputs": [first]}));
        assert_eq!(untold(&mut widgets), [json!(null); 0]);

        // Another job, later.
        let mut document = notebook(&json!({}), &json!([]));
        document.put_widgets(&widgets).unwrap();
        let mut later = Widgets::default();
        let asked = request("q").to_string();
        assert_eq!(
            later.unknown_output_widget(asked.as_bytes()).as_deref(),
            Some("o")
        );
        assert_eq!(
            later.unknown_output_widget(request("").to_string().as_bytes()),
            None
        );
        later.load("o", Some(&document));
        tell(&mut later, "comm_msg", &request("q"), &[]);
        assert!(tell(&mut later, "stream", &says("b"), &[]));
        let second = json!({"output_type": "stream", "name": "stdout", "text": "b"});
        let outputs = json!({"outputs": [first, second]});
        assert_eq!(untold(&mut later)[0]["data"]["state"], outputs);
        document.put_widgets(&later).unwrap();
        let kept = &state(&document)["state"]["o"]["state"]["outputs"];
        assert_eq!(*kept, outputs["outputs"]);
        tell(&mut later, "clear_output", &json!({"wait": false}), &[]);
        tell(&mut later, "stream", &says("b"), &[]);
        assert_eq!(
            untold(&mut later)[0]["data"]["state"],
            json!({"outputs": [second]})
        );
        tell(&mut later, "stream", &says("c"), &[]);
        tell(
            &mut later,
            "comm_close",
            &json!({"comm_id": "o", "data": {}}),
            &[],
        );
        assert_eq!(untold(&mut later), [json!(null); 0]);

        // One that no notebook knows takes its outputs, too.
        let mut unknown = Widgets::default();
        unknown.load("o", None);
        tell(&mut unknown, "comm_msg", &request("q"), &[]);
        assert!(tell(&mut unknown, "stream", &says("b"), &[]));
        assert_eq!(untold(&mut unknown).len(), 1);
        assert!(unknown.is_empty());
    }

    #[test]
    fn others_widgets_stay_as_long_as_something_shows_them() {
        let models = json!({
            "shown": {"state": {"layout": "IPY_MODEL_part"}}, "part": {}, "gone": {}, "new": {"old": 1},
        });
        let metadata = json!({"widgets": {WIDGET_STATE: {"state": models}}});
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
