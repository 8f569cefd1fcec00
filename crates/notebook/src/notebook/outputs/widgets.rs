//! The state of widgets in `metadata.widgets`, by which front ends show them without a kernel.
//!
//! Kernels send the state of a model in comm messages. As in nbclient and in front ends, while an output
//! widget has the message id of a request, the outputs of that request are the widget's.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::accumulator::OutputAccumulator;
use crate::notebook::document::Document;
use crate::notebook::json::{Json, string_at, value_at};

/// The MIME type of the state, which is its key in `metadata.widgets`.
pub(in crate::notebook) const WIDGET_STATE: &str = "application/vnd.jupyter.widget-state+json";

/// The widgets whose state a kernel has sent.
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
    /// The outputs that it captured in earlier jobs.
    before: Vec<Json>,
    /// Whether the kernel has not been sent the captured outputs yet.
    has_unsent_update: bool,
    closed: bool,
}

impl Widgets {
    /// Makes an empty collection, whose output widgets keep as much output as this accumulator.
    pub fn bounded(empty: OutputAccumulator) -> Self {
        Self {
            empty,
            ..Self::default()
        }
    }

    /// Begins another request.
    pub fn begin(&mut self) {
        self.capturing.clear();
    }

    /// Adds an iopub message by its type, its content and its buffers. Returns whether it was for a widget
    /// and so is not an output of the cell.
    pub fn take(&mut self, msg_type: &str, content: &[u8], buffers: &[impl AsRef<[u8]>]) -> bool {
        if msg_type.starts_with("comm_") {
            self.update(content, buffers);
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

    /// Says whether the kernel has sent no state.
    pub fn is_empty(&self) -> bool {
        self.models.is_empty()
    }

    /// Returns the id of the output widget that a `comm_msg` sets to capture outputs, if the widget was
    /// created before the first message here: [`Widgets::load`] adds it.
    pub fn unknown_output_widget(&self, content: &[u8]) -> Option<String> {
        let id = comm(content).filter(|id| !self.models.contains_key(id))?;
        let request = value_at(content, &["data", "state", "msg_id"])?;
        let has_target = request.as_string().is_some_and(|it| !it.is_empty());
        has_target.then_some(id)
    }

    /// Adds an output widget that was created earlier, with its state in the notebook.
    pub fn load(&mut self, id: &str, document: Option<&Document>) {
        let stored = document.and_then(|it| stored_models(it).remove(id));
        let model = stored.as_ref().map(Model::stored).unwrap_or_default();
        self.models.insert(id.to_owned(), model);
    }

    /// Returns the contents of the comm messages that send captured outputs to the kernel, for the output
    /// widgets that captured some since the last call. A front end that connects later asks the kernel for
    /// them.
    pub fn unsent_updates(&mut self) -> Vec<Json> {
        let models = self.models.iter_mut();
        let changed = models.filter(|(_, model)| !model.closed && model.has_unsent_update);
        let contents = changed.map(|(id, model)| {
            model.has_unsent_update = false;
            let (no_paths, outputs) = (Json::list([]), model.outputs());
            let state = Json::object([("outputs", outputs.as_ref().unwrap_or(&no_paths))]);
            let data = Json::object([
                ("method", &Json::string("update")),
                ("state", &state),
                ("buffer_paths", &no_paths),
            ]);
            Json::object([("comm_id", &Json::string(id)), ("data", &data)])
        });
        contents.collect()
    }

    fn update(&mut self, content: &[u8], buffers: &[impl AsRef<[u8]>]) {
        let content = String::from_utf8_lossy(content);
        let content = content.as_bytes();
        let id = string_at(content, &["comm_id"]);
        let state = value_at(content, &["data", "state"]);
        // Comms of other libraries, and custom messages of widgets, have no state.
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
        let paths = paths.iter().flat_map(Json::items);
        for (path, buffer) in paths.zip(buffers) {
            let path = Json::list(&path.items().collect::<Vec<_>>());
            let path = path.text().into_owned();
            model.buffers.insert(path, STANDARD.encode(buffer));
        }
        // Only output widgets have a `msg_id`; the model name of one created earlier may not be known.
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

    /// Returns the models in the schema of widget state, by their ids. Of one that was made earlier only the changes
    /// are known: they are added to its stored state.
    pub(in crate::notebook) fn models_beside(
        &self,
        stored: &BTreeMap<String, Json>,
    ) -> impl Iterator<Item = (String, Json)> {
        self.models.iter().filter_map(|(id, model)| {
            // Other comms may have a state, too.
            if model.state.contains_key("_model_name") {
                return Some((id.clone(), model.to_json()));
            }
            let stored = Model::stored(stored.get(id)?);
            Some((id.clone(), stored.changed_by(model).to_json()))
        })
    }
}

/// Returns the stored models of a notebook, by their ids.
pub(in crate::notebook) fn stored_models(document: &Document) -> BTreeMap<String, Json> {
    let Some(stored) = document.metadata(&["widgets", WIDGET_STATE]) else {
        return BTreeMap::new();
    };
    let models = stored.get("state").unwrap_or(stored);
    let keys = models.keys().into_iter();
    let models = keys.filter_map(|id| models.get(&id).map(|model| (id, model)));
    models
        .filter(|(id, _)| id != "version_major" && id != "version_minor")
        .collect()
}

/// Returns the comm id in a message's content.
fn comm(content: &[u8]) -> Option<String> {
    string_at(content, &["comm_id"])
}

impl Model {
    /// Reads a model in the schema of widget state.
    fn stored(stored: &Json) -> Self {
        let mut model = Self::default();
        let state = stored.get("state");
        for key in state.iter().flat_map(Json::keys) {
            if let Some(value) = state.as_ref().and_then(|it| it.get(&key)) {
                model.state.insert(key, value);
            }
        }
        if let Some(outputs) = model.state.get("outputs") {
            model.before = outputs.items().collect();
        }
        for buffer in stored.get("buffers").iter().flat_map(Json::items) {
            let data = buffer.get("data").and_then(|data| data.as_string());
            if let (Some(path), Some(data)) = (buffer.get("path"), data) {
                let path = Json::list(&path.items().collect::<Vec<_>>());
                model.buffers.insert(path.text().into_owned(), data);
            }
        }
        model
    }

    fn changed_by(mut self, changes: &Self) -> Self {
        if changes.state.contains_key("outputs") {
            self.before.clear();
        }
        self.state.extend(changes.state.clone());
        self.buffers.extend(changes.buffers.clone());
        self.taken.clone_from(&changes.taken);
        self
    }

    fn text(&self, key: &str) -> Option<String> {
        self.state.get(key)?.as_string()
    }

    /// Returns the outputs that an output widget captured; `None` if it captured nothing.
    fn outputs(&self) -> Option<Json> {
        let taken = self.taken.as_ref()?.outputs();
        Some(Json::list(self.before.iter().chain(&taken)))
    }

    /// Returns the model in the schema of widget state.
    pub(in crate::notebook) fn to_json(&self) -> Json {
        let taken = self.outputs();
        let state = self.state.iter().map(|(key, value)| (key.as_str(), value));
        let state = state.filter(|(key, _)| taken.is_none() || *key != "outputs");
        let state = Json::object(state.chain(taken.iter().map(|taken| ("outputs", taken))));
        let buffers = self.buffers.iter().map(|(path, data)| {
            Json::object([
                ("data", &Json::string(data)),
                ("encoding", &Json::string("base64")),
                ("path", &Json::of_valid(path.as_bytes())),
            ])
        });
        let buffers = Json::list(&buffers.collect::<Vec<_>>());
        let buffers = (!self.buffers.is_empty()).then_some(("buffers", &buffers));
        let null = Json::of_valid(b"null");
        let names = ["model_module", "model_module_version", "model_name"];
        let names = names.map(|name| {
            let value = self.state.get(&format!("_{name}"));
            (name, value.unwrap_or(&null))
        });
        Json::object(buffers.into_iter().chain(names).chain([("state", &state)]))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn take(widgets: &mut Widgets, msg_type: &str, content: &Value, buffers: &[&[u8]]) -> bool {
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
    fn the_last_update_of_a_state_counts() {
        let mut widgets = Widgets::default();
        assert!(take(
            &mut widgets,
            "comm_open",
            &json!({"comm_id": "x", "data": {"id": 1}}),
            &[]
        ));
        assert_eq!(
            notebook(&json!({}), &json!([])).put_widgets(&widgets),
            Ok(false)
        );
        take(&mut widgets, "comm_open", &open("a", "IntModel"), &[]);
        let update = json!({"comm_id": "a", "data": {
            "method": "update", "state": {"value": 2, "b": {}}, "buffer_paths": [["b", "c"]],
        }});
        take(&mut widgets, "comm_msg", &update, &[b"hi"]);
        let custom = json!({"comm_id": "a", "data": {"method": "custom", "content": {}}});
        take(&mut widgets, "comm_msg", &custom, &[]);
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
    fn an_output_widget_captures_outputs() {
        let mut widgets = Widgets::default();
        let stream = |text: &str| json!({"name": "stdout", "text": text});
        let request = |id: &str| json!({"comm_id": "o", "data": {"state": {"msg_id": id}}});
        take(&mut widgets, "comm_open", &open("o", "OutputModel"), &[]);
        assert!(!take(&mut widgets, "stream", &stream("before"), &[]));
        take(&mut widgets, "comm_msg", &request("r"), &[]);
        assert!(take(&mut widgets, "stream", &stream("a"), &[]));
        assert!(take(&mut widgets, "stream", &stream("b"), &[]));
        assert!(!take(&mut widgets, "update_display_data", &json!({}), &[]));
        take(&mut widgets, "comm_msg", &request(""), &[]);
        assert!(!take(&mut widgets, "stream", &stream("after"), &[]));
        let mut document = notebook(&json!({}), &json!([]));
        document.put_widgets(&widgets).unwrap();
        let output = json!([{"output_type": "stream", "name": "stdout", "text": "ab"}]);
        assert_eq!(state(&document)["state"]["o"]["state"]["outputs"], output);
        // A request that ended while capturing has no effect on the next one.
        take(&mut widgets, "comm_msg", &request("r"), &[]);
        widgets.begin();
        assert!(!take(&mut widgets, "stream", &stream("another"), &[]));
    }

    #[test]
    fn an_output_widget_is_bounded_as_a_cell_is() {
        let mut widgets = Widgets::bounded(OutputAccumulator::bounded(10_000, "more"));
        let request = json!({"comm_id": "o", "data": {"state": {"msg_id": "r"}}});
        take(&mut widgets, "comm_open", &open("o", "OutputModel"), &[]);
        take(&mut widgets, "comm_msg", &request, &[]);
        for line in 0..10_000 {
            let stream = json!({"name": "stdout", "text": format!("line {line}\n")});
            assert!(take(&mut widgets, "stream", &stream, &[]));
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
    fn the_kernel_gets_the_outputs_that_a_widget_captured() {
        let stream = |text: &str| json!({"name": "stdout", "text": text});
        let request = |id: &str| json!({"comm_id": "o", "data": {"state": {"msg_id": id}}});
        let updates = |widgets: &mut Widgets| -> Vec<Value> {
            let sent = widgets.unsent_updates().into_iter();
            sent.map(|it| serde_json::from_str(&it.text()).unwrap())
                .collect()
        };
        let mut widgets = Widgets::default();
        take(&mut widgets, "comm_open", &open("o", "OutputModel"), &[]);
        assert_eq!(
            widgets.unknown_output_widget(request("r").to_string().as_bytes()),
            None
        );
        take(&mut widgets, "comm_msg", &request("r"), &[]);
        assert_eq!(updates(&mut widgets), [json!(null); 0]);
        take(&mut widgets, "stream", &stream("a"), &[]);
        let first = json!({"output_type": "stream", "name": "stdout", "text": "a"});
        let sent = updates(&mut widgets);
        assert_eq!(sent[0]["comm_id"], "o");
        assert_eq!(sent[0]["data"]["method"], "update");
        assert_eq!(sent[0]["data"]["state"], json!({"outputs": [first]}));
        assert_eq!(updates(&mut widgets), [json!(null); 0]);

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
        take(&mut later, "comm_msg", &request("q"), &[]);
        assert!(take(&mut later, "stream", &stream("b"), &[]));
        let second = json!({"output_type": "stream", "name": "stdout", "text": "b"});
        let outputs = json!({"outputs": [first, second]});
        assert_eq!(updates(&mut later)[0]["data"]["state"], outputs);
        document.put_widgets(&later).unwrap();
        let kept = &state(&document)["state"]["o"]["state"]["outputs"];
        assert_eq!(*kept, outputs["outputs"]);
        take(&mut later, "clear_output", &json!({"wait": false}), &[]);
        take(&mut later, "stream", &stream("b"), &[]);
        assert_eq!(
            updates(&mut later)[0]["data"]["state"],
            json!({"outputs": [second]})
        );
        take(&mut later, "stream", &stream("c"), &[]);
        take(
            &mut later,
            "comm_close",
            &json!({"comm_id": "o", "data": {}}),
            &[],
        );
        assert_eq!(updates(&mut later), [json!(null); 0]);

        // An output widget that is not in the notebook captures outputs, too.
        let mut unknown = Widgets::default();
        unknown.load("o", None);
        take(&mut unknown, "comm_msg", &request("q"), &[]);
        assert!(take(&mut unknown, "stream", &stream("b"), &[]));
        assert_eq!(updates(&mut unknown).len(), 1);
        assert_eq!(
            notebook(&json!({}), &json!([])).put_widgets(&unknown),
            Ok(false)
        );
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
        take(&mut widgets, "comm_open", &open("new", "IntModel"), &[]);
        document.put_widgets(&widgets).unwrap();
        let state = state(&document)["state"].clone();
        let ids: Vec<_> = state.as_object().unwrap().keys().collect();
        assert_eq!(ids, ["new", "part", "shown"]);
        assert_eq!(state["new"]["model_name"], "IntModel");
    }

    #[test]
    fn a_widget_that_another_job_advances_keeps_its_stored_state() {
        let buffer = |data: &str| json!([{"data": data, "encoding": "base64", "path": ["b", "c"]}]);
        let bar = json!({"model_name": "FloatProgressModel", "model_module": "m", "buffers": buffer("aGk="),
            "state": {"_model_name": "FloatProgressModel", "value": 0, "max": 9}});
        let metadata = json!({"widgets": {"other": 1, WIDGET_STATE: {"state": {"bar": bar}}}});
        let outputs =
            json!([{"output_type": "display_data", "metadata": {}, "data": {"x": "bar"}}]);
        let mut document = notebook(&metadata, &outputs);
        let mut widgets = Widgets::default();
        let update = |value: u64| json!({"comm_id": "bar", "data": {"method": "update", "state": {"value": value}, "buffer_paths": [["b", "c"]]}});
        take(&mut widgets, "comm_msg", &update(5), &[b"yo"]);
        take(
            &mut widgets,
            "comm_msg",
            &json!({"comm_id": "y", "data": {"state": {"a": 1}}}),
            &[],
        );
        assert!(!widgets.is_empty());
        assert_eq!(document.put_widgets(&widgets), Ok(true));
        let stored = state(&document)["state"].clone();
        assert_eq!(stored["bar"]["state"]["value"], 5);
        assert_eq!(stored["bar"]["state"]["max"], 9);
        assert_eq!(stored["bar"]["buffers"], buffer("eW8="));
        assert_eq!(stored.get("y"), None);
        assert_eq!(
            document.metadata(&["widgets", "other"]).unwrap().text(),
            "1"
        );
        assert_eq!(document.put_widgets(&widgets), Ok(false));
    }

    #[test]
    fn models_that_colab_stored_without_a_level_are_kept() {
        let metadata = json!({"widgets": {WIDGET_STATE: {"dead": {"state": {"layout": "IPY_MODEL_part"}}, "part": {}}}});
        let outputs =
            json!([{"output_type": "display_data", "metadata": {}, "data": {"x": "dead"}}]);
        let mut document = notebook(&metadata, &outputs);
        let before = document.widget_state().unwrap();
        let before: Value = serde_json::from_str(&before.text()).unwrap();
        assert_eq!(before["state"]["dead"]["state"]["layout"], "IPY_MODEL_part");
        let mut widgets = Widgets::default();
        take(&mut widgets, "comm_open", &open("new", "IntModel"), &[]);
        document.put_widgets(&widgets).unwrap();
        let state = state(&document)["state"].clone();
        let ids: Vec<_> = state.as_object().unwrap().keys().collect();
        assert_eq!(ids, ["dead", "new", "part"]);
    }
}
