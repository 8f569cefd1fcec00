//! The tools: their names, descriptions, schemas and hints.

use std::sync::Arc;

use rmcp::model::{JsonObject, Tool, ToolAnnotations};
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Value, json};

use super::arguments;

/// A tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ToolName {
    Notebooks,
    OpenNotebook,
    GetNotebookState,
    ReadCell,
    CreateCell,
    UpdateCell,
    DeleteCell,
    ApplyEdits,
    RunCell,
    GetRunStatus,
    AnswerInput,
    Kernel,
    Variables,
    History,
}

use ToolName::{
    AnswerInput, ApplyEdits, CreateCell, DeleteCell, GetNotebookState, GetRunStatus, History,
    Kernel, Notebooks, OpenNotebook, ReadCell, RunCell, UpdateCell, Variables,
};

/// What a tool may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effect {
    /// It changes nothing.
    Reads,
    /// It reads, and some of its actions change something.
    Mixed,
    /// It adds.
    Adds,
    /// It changes or removes what is there, which history brings back.
    Changes,
    /// It runs code.
    Runs,
}

/// A tool as it is listed.
struct Entry {
    tool: ToolName,
    name: &'static str,
    /// Names of the same tool at other servers, separated by spaces.
    aliases: &'static str,
    effect: Effect,
    description: &'static str,
    schema: fn() -> JsonObject,
}

/// The tools.
const TOOLS: [Entry; 14] = [
    Entry {
        tool: Notebooks,
        name: "notebooks",
        aliases: "list_notebooks",
        effect: Effect::Reads,
        description: "List the notebooks below the root, and their kernels.",
        schema: schema::<arguments::Notebooks>,
    },
    Entry {
        tool: OpenNotebook,
        name: "open_notebook",
        aliases: "use_notebook connect_notebook start_kernel create_notebook",
        effect: Effect::Adds,
        description: "Open a notebook: create it if there is none, start its kernel if none runs. \
                      People in VS Code or JupyterLab share it.",
        schema: schema::<arguments::OpenNotebook>,
    },
    Entry {
        tool: GetNotebookState,
        name: "get_notebook_state",
        aliases: "list_cells read_notebook get_notebook",
        effect: Effect::Reads,
        description: "List the cells, one line each: index, id, type, state, first line, outputs in \
                      short.",
        schema: schema::<arguments::GetNotebookState>,
    },
    Entry {
        tool: ReadCell,
        name: "read_cell",
        aliases: "read_cells get_cell read_cell_output",
        effect: Effect::Reads,
        description: "Show cells whole: source, outputs, images.",
        schema: schema::<arguments::ReadCell>,
    },
    Entry {
        tool: CreateCell,
        name: "create_cell",
        aliases: "insert_cell add_cell append_cell insert_execute_code_cell append_execute_code_cell add_code_cell \
                  add_markdown_cell insert_markdown_cell append_markdown_cell",
        effect: Effect::Adds,
        description: "Add a cell, by default at the end.",
        schema: schema::<arguments::CreateCell>,
    },
    Entry {
        tool: UpdateCell,
        name: "update_cell",
        aliases: "edit_cell overwrite_cell_source modify_cell set_cell edit_cell_source",
        effect: Effect::Changes,
        description: "Change a cell's text or type. Others' changes of other lines are kept. If others changed the \
                      same lines, error 409 shows that; nothing is written.",
        schema: schema::<arguments::UpdateCell>,
    },
    Entry {
        tool: DeleteCell,
        name: "delete_cell",
        aliases: "remove_cell delete_cells",
        effect: Effect::Changes,
        description: "Delete cells. history brings them back.",
        schema: schema::<arguments::DeleteCell>,
    },
    Entry {
        tool: ApplyEdits,
        name: "apply_edits",
        aliases: "batch_edit",
        effect: Effect::Changes,
        description: "Apply several edits: all or none.",
        schema: schema::<arguments::ApplyEdits>,
    },
    Entry {
        tool: RunCell,
        name: "run_cell",
        aliases: "execute_cell run_cells execute_code execute_cell_with_progress run_code",
        effect: Effect::Runs,
        description: "Run cells, their outputs go into the notebook, or code outside of it. After timeout_s \
                      the answer has status \"timeout\" and a run_id; the run goes on.",
        schema: schema::<arguments::RunCell>,
    },
    Entry {
        tool: GetRunStatus,
        name: "get_run_status",
        aliases: "get_execution_status wait_run get_run",
        effect: Effect::Reads,
        description: "Get a run's new output and state, or wait for its end.",
        schema: schema::<arguments::GetRunStatus>,
    },
    Entry {
        tool: AnswerInput,
        name: "answer_input",
        aliases: "reply_input send_input",
        effect: Effect::Runs,
        description: "Answer an input() of running code.",
        schema: schema::<arguments::AnswerInput>,
    },
    Entry {
        tool: Kernel,
        name: "kernel",
        aliases: "manage_kernel restart_notebook",
        effect: Effect::Mixed,
        description: "Look at the kernel, interrupt it, restart it (variables are lost), \
                      shut it down, list, add or remove packages.",
        schema: schema::<arguments::Kernel>,
    },
    Entry {
        tool: Variables,
        name: "variables",
        aliases: "list_variables inspect_variable",
        effect: Effect::Reads,
        description: "List the kernel's variables, or one in detail. Runs no code.",
        schema: schema::<arguments::Variables>,
    },
    Entry {
        tool: History,
        name: "history",
        aliases: "undo notebook_history",
        effect: Effect::Mixed,
        description: "log: who did what. versions: of a cell. diff: what changed since you saw it, or since a \
                      revision. undo: take your last edit back. restore: a version of a cell, or a deleted cell.",
        schema: schema::<arguments::History>,
    },
];

impl ToolName {
    /// Returns the notebook, as the client names it, at which a call has to wait for its turn: it edits or runs.
    pub(super) fn turn_at(self, arguments: &JsonObject) -> Option<&str> {
        let text = |name: &str| arguments.get(name).and_then(Value::as_str);
        let is_action = |names: &[&str]| text("action").is_some_and(|it| names.contains(&it));
        let has_turn = match self {
            // A fresh kernel disturbs nobody.
            RunCell => arguments.get("verify") != Some(&Value::from(true)),
            OpenNotebook | CreateCell | UpdateCell | DeleteCell | ApplyEdits => true,
            Kernel => is_action(&["restart", "shutdown"]),
            History => is_action(&["undo", "restore"]),
            Notebooks | GetNotebookState | ReadCell | GetRunStatus | AnswerInput | Variables => {
                false
            }
        };
        let names = ["notebook", "path", "notebook_path", "file_path"];
        names.into_iter().find_map(text).filter(|_| has_turn)
    }

    /// Adds the arguments that another server's name of a tool stands for.
    pub(super) fn add_defaults(self, name: &str, arguments: &mut JsonObject) {
        if self != CreateCell {
            return;
        }
        let defaults = [
            ("execute", ["run", "execute"], Value::from(true)),
            ("markdown", ["type", "cell_type"], Value::from("markdown")),
        ];
        for (word, arguments_of_it, value) in defaults {
            let is_given = arguments_of_it.iter().any(|it| arguments.contains_key(*it));
            if name.contains(word) && !is_given {
                arguments.insert(arguments_of_it[0].to_owned(), value);
            }
        }
    }

    /// Returns the tool's name.
    pub(super) fn name(self) -> &'static str {
        let entry = TOOLS.iter().find(|entry| entry.tool == self);
        entry.map_or("", |entry| entry.name)
    }
}

/// Which tools a client may call.
#[derive(Clone, Debug, Default)]
pub(super) struct Allowed {
    /// Whether nothing may be changed or run.
    pub(super) read_only: bool,
    /// Only these tools; an empty list allows all.
    pub(super) tools: Vec<String>,
}

impl Allowed {
    fn allows(&self, entry: &Entry) -> bool {
        let reads = matches!(entry.effect, Effect::Reads | Effect::Mixed);
        let is_named = self.tools.is_empty() || self.tools.iter().any(|it| it == entry.name);
        is_named && (reads || !self.read_only)
    }

    /// Returns the first of the named tools that does not exist.
    pub(super) fn unknown(&self) -> Option<&str> {
        let mut named = self.tools.iter();
        let unknown = named.find(|name| TOOLS.iter().all(|entry| entry.name != *name));
        unknown.map(String::as_str)
    }

    /// Returns the tool with a name, or with a name that other servers use for it.
    pub(super) fn find(&self, name: &str) -> Option<ToolName> {
        let entry = TOOLS.iter().find(|entry| {
            entry.name == name || entry.aliases.split(' ').any(|alias| alias == name)
        })?;
        self.allows(entry).then_some(entry.tool)
    }

    /// Returns the names of the tools.
    pub(super) fn names(&self) -> Vec<&'static str> {
        let allowed = TOOLS.iter().filter(|entry| self.allows(entry));
        allowed.map(|entry| entry.name).collect()
    }

    /// Returns the list of tools for clients. `has_fields` says whether answers have structured content.
    pub(super) fn list(&self, has_fields: bool) -> Vec<Tool> {
        let allowed = TOOLS.iter().filter(|entry| self.allows(entry));
        let tools = allowed.map(|entry| entry.tool(self.read_only));
        match has_fields {
            true => tools
                .map(|tool| tool.with_raw_output_schema(Arc::new(output())))
                .collect(),
            false => tools.collect(),
        }
    }
}

impl Entry {
    fn tool(&self, read_only: bool) -> Tool {
        let hints = ToolAnnotations::new();
        let mut schema = (self.schema)();
        let (mut effect, mut description) = (self.effect, self.description);
        if read_only && effect == Effect::Mixed {
            effect = Effect::Reads;
            description = match self.tool {
                Kernel => "Look at a notebook's kernel.",
                _ => description.split(" undo: ").next().unwrap_or_default(),
            };
            without_changes(&mut schema);
        }
        let tool = Tool::new(self.name, description, schema);
        // What is not said has the protocol's default: a tool that destroys, in an open world.
        match effect {
            Effect::Reads => tool.with_annotations(hints.read_only(true).open_world(false)),
            Effect::Adds => tool.with_annotations(hints.destructive(false).open_world(false)),
            Effect::Changes | Effect::Mixed => tool.with_annotations(hints.open_world(false)),
            Effect::Runs => tool,
        }
    }
}

/// Removes the actions that change something, and their arguments, from a tool's schema.
fn without_changes(schema: &mut JsonObject) {
    let Some(Value::Object(properties)) = schema.get_mut("properties") else {
        return;
    };
    for name in ["run_id", "op", "force", "add", "remove"] {
        properties.remove(name);
    }
    let actions = properties.get_mut("action");
    let actions = actions.and_then(|action| action.get_mut("enum")?.as_array_mut());
    if let Some(actions) = actions {
        actions.retain(|it| {
            it.as_str()
                .is_some_and(|it| ["status", "log", "versions", "diff"].contains(&it))
        });
    }
}

/// Returns the schema of every tool's structured content. The fields of each answer are those of the
/// command's `--json`, which `docs/json` describes.
fn output() -> JsonObject {
    let schema = json!({
        "type": "object",
        "properties": {
            "error": {"type": "object"},
            "status": {"type": "string"},
            "run_id": {"type": "string"},
        },
    });
    match schema {
        Value::Object(schema) => schema,
        _ => JsonObject::new(),
    }
}

/// Returns the schema of arguments, without what clients do not need.
fn schema<T: JsonSchema>() -> JsonObject {
    let settings = SchemaSettings::draft2020_12().with(|settings| settings.meta_schema = None);
    let schema = SchemaGenerator::new(settings).into_root_schema_for::<T>();
    let mut schema = schema.to_value();
    shorten(&mut schema, true);
    match schema {
        Value::Object(mut schema) => {
            // The tool's own description says more.
            schema.remove("description");
            schema
        }
        _ => JsonObject::new(),
    }
}

/// Removes titles, formats and defaults from a schema, and the null of optional values: a client leaves
/// them out. What there is no argument for is passed over.
fn shorten(schema: &mut Value, is_schema: bool) {
    match schema {
        Value::Object(object) => {
            if is_schema {
                for key in [
                    "title",
                    "format",
                    "default",
                    "minimum",
                    "additionalProperties",
                ] {
                    object.remove(key);
                }
                if let Some(Value::Array(types)) = object.get_mut("type") {
                    types.retain(|it| it != "null");
                    if let [only] = types.as_slice() {
                        let only = only.clone();
                        object.insert("type".to_owned(), only);
                    }
                }
                if let Some(Value::Array(all)) = object.get_mut("anyOf") {
                    all.retain(|it| *it != json!({"type": "null"}));
                    if let [Value::Object(only)] = all.as_mut_slice() {
                        let only = std::mem::take(only);
                        object.remove("anyOf");
                        object.extend(only);
                    }
                }
                if let Some(Value::Array(values)) = object.get_mut("enum") {
                    values.retain(|it| !it.is_null());
                }
                if let Some(Value::String(text)) = object.get_mut("description") {
                    *text = text.replace('\n', " ");
                }
            }
            for (key, value) in object {
                shorten(value, key != "properties");
            }
        }
        Value::Array(values) => values.iter_mut().for_each(|it| shorten(it, is_schema)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use rmcp::model::{ListToolsResult, RequestId, ServerJsonRpcMessage, ServerResult};

    use super::*;

    #[test]
    fn the_list_is_short() {
        let tools = Allowed::default().list(false);
        assert_eq!(tools.len(), 14);
        let list = ServerResult::ListToolsResult(ListToolsResult::with_all_items(tools.clone()));
        let answer = ServerJsonRpcMessage::response(list, RequestId::Number(1));
        let text = serde_json::to_string(&answer).unwrap();
        assert!(text.len() < 8_000, "{}", text.len());
        assert!(!text.contains("outputSchema"));
        for tool in &tools {
            let schema = tool.schema_as_json_value();
            assert!(!schema.to_string().contains("null"), "{schema}");
            // Some clients refuse lists of types.
            assert!(!schema.to_string().contains("\"type\":["), "{schema}");
            if tool.name != "notebooks" {
                let required = schema["required"].as_array().unwrap();
                assert!(required.contains(&"notebook".into()), "{}", tool.name);
            }
        }
    }

    #[test]
    fn names_of_other_servers_lead_to_the_tools() {
        let all = Allowed::default();
        for (name, tool) in [
            ("run_cell", RunCell),
            ("execute_cell", RunCell),
            ("insert_cell", CreateCell),
            ("overwrite_cell_source", UpdateCell),
            ("use_notebook", OpenNotebook),
        ] {
            assert_eq!(all.find(name), Some(tool), "{name}");
        }
        assert_eq!(all.find("format_disk"), None);
        let names = TOOLS.iter().flat_map(|entry| {
            let aliases = entry.aliases.split(' ');
            aliases.chain([entry.name])
        });
        let names: Vec<_> = names.collect();
        let set: std::collections::HashSet<_> = names.iter().collect();
        assert_eq!(set.len(), names.len());
    }

    #[test]
    fn another_servers_name_stands_for_arguments_too() {
        let all = Allowed::default();
        for (name, arguments, expected) in [
            ("append_execute_code_cell", json!({}), json!({"run": true})),
            (
                "insert_execute_code_cell",
                json!({"execute": false}),
                json!({"execute": false}),
            ),
            (
                "append_markdown_cell",
                json!({}),
                json!({"type": "markdown"}),
            ),
            ("create_cell", json!({}), json!({})),
            ("execute_cell", json!({}), json!({})),
        ] {
            let mut arguments = arguments.as_object().unwrap().clone();
            let tool = all.find(name).unwrap();
            tool.add_defaults(name, &mut arguments);
            assert_eq!(Value::Object(arguments), expected, "{name}");
        }
    }

    #[test]
    fn what_is_not_allowed_is_not_listed_and_not_found() {
        let read_only = Allowed {
            read_only: true,
            ..Allowed::default()
        };
        assert_eq!(read_only.find("update_cell"), None);
        assert_eq!(read_only.find("edit_cell"), None);
        assert_eq!(read_only.find("run_code"), None);
        assert_eq!(read_only.find("read_cell"), Some(ReadCell));
        assert!(!read_only.names().contains(&"delete_cell"));
        let listed = serde_json::to_string(&read_only.list(false)).unwrap();
        for change in [
            "interrupt",
            "restart",
            "shutdown",
            "undo",
            "restore",
            "force",
        ] {
            assert!(!listed.contains(&format!("\"{change}\"")), "{listed}");
        }
        let kernel = read_only
            .list(false)
            .into_iter()
            .find(|it| it.name == "kernel");
        let kernel = kernel.unwrap().schema_as_json_value();
        assert_eq!(kernel["properties"]["action"]["enum"], json!(["status"]));
        let one = Allowed {
            tools: vec!["read_cell".to_owned()],
            ..Allowed::default()
        };
        assert_eq!(one.names(), ["read_cell"]);
        assert_eq!(one.find("get_cell"), Some(ReadCell));
        assert_eq!(one.find("kernel"), None);
        assert_eq!(one.unknown(), None);
    }
}
