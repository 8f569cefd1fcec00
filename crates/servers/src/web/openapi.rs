//! The description of the REST interface, made from the types: `docs/openapi.json`.
//!
//! After a type has changed, this writes the file again:
//!
//! ```sh
//! NB_WRITE_DOCS=1 cargo test --lib web::openapi
//! ```

use std::path::Path;

use schemars::generate::{SchemaGenerator, SchemaSettings};
use schemars::{JsonSchema, Schema};
use serde_json::{Map, Value, json};

use super::cells::{
    CellBody, ClearBody, MoveBody, NewCellBody, RenameBody, RestoreBody, RunningCellAnswer,
    SourceDiffBody, UndoBody, WebCell, WebNotebook,
};
use super::chat::AssistantSetup;
use super::chat::conversation::ConversationAnswer;
use super::chat::routes::{AnswerBody, DoneAnswer, MessageBody, StopAnswer};
use super::chat::turn::TurnEvent;
use super::feed::PageMessage;
use super::kernel::{CodeBody, EndBody, InterruptBody, OpenBody, ReplyBody, RunBody};
use super::reply::NOTEBOOK;
use crate::api::envelope::ProblemAnswer;
use crate::api::job::RunAnswer;
use crate::api::{
    AttachmentsAnswer, CompleteAnswer, DeletedCellsAnswer, DocumentationAnswer, EditAnswer,
    ExecAnswer, GraphAnswer, InterruptAnswer, InterruptJobAnswer, JobsAnswer, LogAnswer,
    LossesAnswer, MoveAnswer, NotebooksAnswer, OpenAnswer, PlanAnswer, ReplyAnswer, RestartAnswer,
    RestoreAnswer, SearchAnswer, ShutdownAnswer, SourceDiffAnswer, StatusAnswer, UndoAnswer,
    VarsAnswer, WidgetsAnswer,
};

/// The answers to a run: of cells, of code.
#[derive(JsonSchema)]
#[serde(untagged)]
#[allow(dead_code, reason = "it is only a schema")]
enum BegunAnswer {
    Cells(Box<ExecAnswer>),
    Code(Box<RunAnswer>),
}

/// The answers to an interrupt: of the kernel, of a job.
#[derive(JsonSchema)]
#[serde(untagged)]
#[allow(dead_code, reason = "it is only a schema")]
enum InterruptedAnswer {
    Kernel(Box<InterruptAnswer>),
    Job(InterruptJobAnswer),
}

/// One method of a path.
struct RestMethod {
    method: &'static str,
    path: &'static str,
    summary: &'static str,
    status: u16,
    answer: fn(&mut SchemaGenerator) -> Schema,
    body: Option<fn(&mut SchemaGenerator) -> Schema>,
    /// Whether the request says which revision it is made from.
    has_if_match: bool,
    /// The type of the answer: JSON, HTML, or a stream of server-sent events.
    mime: &'static str,
    query: &'static [(&'static str, &'static str)],
}

fn schema<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

impl RestMethod {
    fn get<T: JsonSchema>(path: &'static str, summary: &'static str) -> Self {
        Self {
            method: "get",
            path,
            summary,
            status: 200,
            answer: schema::<T>,
            body: None,
            has_if_match: false,
            mime: "application/json",
            query: &[],
        }
    }

    fn post<B: JsonSchema, T: JsonSchema>(path: &'static str, summary: &'static str) -> Self {
        Self {
            method: "post",
            body: Some(schema::<B>),
            ..Self::get::<T>(path, summary)
        }
    }

    fn query(mut self, query: &'static [(&'static str, &'static str)]) -> Self {
        self.query = query;
        self
    }

    fn if_match(mut self) -> Self {
        self.has_if_match = true;
        self
    }

    fn stream(self) -> Self {
        self.mime("text/event-stream")
    }

    fn mime(mut self, mime: &'static str) -> Self {
        self.mime = mime;
        self
    }

    fn method(mut self, method: &'static str) -> Self {
        self.method = method;
        self
    }

    fn status(mut self, status: u16) -> Self {
        self.status = status;
        self
    }
}

fn methods() -> Vec<RestMethod> {
    const CELL: &str = "/api/notebooks/{id}/cells/{cell}";
    const CHAT: &str = "/api/notebooks/{id}/chat";
    vec![
        RestMethod::get::<NotebooksAnswer>("/api/notebooks", "List the notebooks, and the kernels"),
        RestMethod::get::<WebNotebook>(
            "/api/notebooks/{id}",
            "Read a notebook; its ETag is its revision",
        )
        .query(&[
            ("outputs", "`false` leaves the outputs out"),
            (
                "cells",
                "only the cells of these ids, with commas between them",
            ),
        ]),
        RestMethod::get::<WidgetsAnswer>(
            "/api/notebooks/{id}/widgets",
            "Read the state of widgets that a front end has saved",
        ),
        RestMethod::post::<NewCellBody, EditAnswer>("/api/notebooks/{id}/cells", "Insert a cell")
            .status(201),
        RestMethod::get::<WebCell>(CELL, "Read a cell; its ETag is its revision"),
        RestMethod::get::<RunningCellAnswer>(
            "/api/notebooks/{id}/cells/{cell}/running",
            "Read what a running cell has printed; the websocket reports what follows",
        ),
        RestMethod::get::<AttachmentsAnswer>(
            "/api/notebooks/{id}/cells/{cell}/attachments",
            "Read the files in a cell of Markdown",
        ),
        RestMethod::get::<String>(
            "/frames/{id}/{cell}/{output}",
            "Read the HTML of an output, as a document for a frame of the page",
        )
        .mime("text/html"),
        RestMethod::post::<CellBody, EditAnswer>(CELL, "Change the source or the type of a cell")
            .method("put")
            .if_match(),
        RestMethod::get::<EditAnswer>(CELL, "Delete a cell")
            .method("delete")
            .if_match(),
        RestMethod::post::<MoveBody, EditAnswer>(
            "/api/notebooks/{id}/cells/{cell}/move",
            "Move a cell",
        )
        .if_match(),
        RestMethod::post::<SourceDiffBody, SourceDiffAnswer>(
            "/api/notebooks/{id}/cells/{cell}/diff",
            "Compare two texts of a cell, which may be deleted",
        ),
        RestMethod::post::<ClearBody, EditAnswer>("/api/notebooks/{id}/clear", "Clear outputs"),
        RestMethod::get::<SearchAnswer>(
            "/api/notebooks/{id}/search",
            "Find a text in sources and outputs, whatever the case of letters",
        )
        .query(&[("text", "the text")]),
        RestMethod::post::<RenameBody, MoveAnswer>(
            "/api/notebooks/{id}/rename",
            "Move the notebook with its kernel and its history",
        ),
        RestMethod::get::<Value>(
            "/api/notebooks/{id}/file",
            "Read the notebook's file, as it is",
        )
        .mime(NOTEBOOK),
        RestMethod::post::<RestoreBody, RestoreAnswer>(
            "/api/notebooks/{id}/cells/{cell}/restore",
            "Bring a version of a cell back, or a deleted cell",
        ),
        RestMethod::post::<UndoBody, UndoAnswer>("/api/notebooks/{id}/undo", "Take an edit back"),
        RestMethod::get::<LogAnswer>(
            "/api/notebooks/{id}/log",
            "Read who did what, the newest last",
        )
        .query(&[
            ("count", "how many entries; 0 is all"),
            ("by", "only what this actor did"),
        ]),
        RestMethod::get::<DeletedCellsAnswer>(
            "/api/notebooks/{id}/deleted",
            "List the cells that were deleted and can be brought back",
        ),
        RestMethod::get::<StatusAnswer>(
            "/api/notebooks/{id}/kernel",
            "Read the state of the kernel",
        ),
        RestMethod::get::<LossesAnswer>(
            "/api/notebooks/{id}/losses",
            "Read what a restart or a shutdown of the kernel would end",
        ),
        RestMethod::get::<VarsAnswer>("/api/notebooks/{id}/variables", "List the variables")
            .query(&[("name", "one variable, in detail")]),
        RestMethod::get::<JobsAnswer>(
            "/api/notebooks/{id}/jobs",
            "List the jobs that run or wait, and the last ones that ended",
        ),
        RestMethod::get::<GraphAnswer>(
            "/api/notebooks/{id}/graph",
            "Read which cells depend on which, and which are out of date",
        )
        .query(&[(
            "cell",
            "only this cell, what it depends on, and what depends on it",
        )]),
        RestMethod::get::<PlanAnswer>(
            "/api/notebooks/{id}/plan",
            "Read which cells a run of those out of date would run, and why",
        )
        .query(&[("cell", "only what this cell needs")]),
        RestMethod::post::<OpenBody, OpenAnswer>(
            "/api/notebooks/{id}/open",
            "Start the kernel; create the notebook if there is none",
        ),
        RestMethod::post::<RunBody, BegunAnswer>(
            "/api/notebooks/{id}/run",
            "Begin to run cells or code; the websocket reports what comes of it",
        )
        .status(202),
        RestMethod::post::<CodeBody, CompleteAnswer>(
            "/api/notebooks/{id}/complete",
            "Ask the kernel what may follow in code; it also answers beside a running cell if it has subshells",
        ),
        RestMethod::post::<CodeBody, DocumentationAnswer>(
            "/api/notebooks/{id}/documentation",
            "Ask the kernel for the documentation of what stands at the cursor",
        ),
        RestMethod::post::<ReplyBody, ReplyAnswer>(
            "/api/notebooks/{id}/reply",
            "Answer a question of running code",
        ),
        RestMethod::post::<InterruptBody, InterruptedAnswer>(
            "/api/notebooks/{id}/interrupt",
            "Interrupt what the kernel runs, or a job",
        ),
        RestMethod::post::<EndBody, RestartAnswer>(
            "/api/notebooks/{id}/restart",
            "Replace the kernel by a new one",
        ),
        RestMethod::post::<EndBody, ShutdownAnswer>(
            "/api/notebooks/{id}/shutdown",
            "End the kernel",
        ),
        RestMethod::get::<AssistantSetup>(
            "/api/assistant",
            "Read who answers in conversations, or how that is set up; a command that prints the key is run",
        ),
        RestMethod::get::<ConversationAnswer>(CHAT, "Read the conversation with the assistant"),
        RestMethod::post::<MessageBody, TurnEvent>(
            CHAT,
            "Send the assistant a message; its turn comes as server-sent events",
        )
        .stream(),
        RestMethod::get::<DoneAnswer>(CHAT, "Forget the conversation").method("delete"),
        RestMethod::get::<TurnEvent>(
            "/api/notebooks/{id}/chat/{turn}",
            "Receive a turn from its beginning, or after the event that Last-Event-ID names",
        )
        .stream(),
        RestMethod::get::<StopAnswer>(
            "/api/notebooks/{id}/chat/stop",
            "Stop the turn, and interrupt its cell",
        )
        .method("post"),
        RestMethod::post::<AnswerBody, DoneAnswer>(
            "/api/notebooks/{id}/chat/answer",
            "Answer a question of the assistant",
        ),
    ]
}

fn parameter(name: &str, place: &str, description: &str) -> Value {
    json!({
        "name": name,
        "in": place,
        "required": place == "path",
        "description": description,
        "schema": { "type": "string" },
    })
}

/// Returns the description of a method, and adds the types that it uses.
fn described(
    method: &RestMethod,
    answers: &mut SchemaGenerator,
    bodies: &mut SchemaGenerator,
) -> Value {
    let mut parameters = Vec::new();
    for (name, description) in [
        (
            "id",
            "the notebook's path below the folder of the server; `/` is written `%2F`",
        ),
        (
            "cell",
            "the cell's id, or a beginning of it that no other has",
        ),
        ("turn", "the turn's id"),
        ("output", "which of the cell's outputs, from 0"),
    ] {
        if method.path.contains(&format!("{{{name}}}")) {
            parameters.push(parameter(name, "path", description));
        }
    }
    let query = method.query.iter();
    parameters.extend(query.map(|(name, description)| parameter(name, "query", description)));
    if method.has_if_match {
        let description = "the ETag of the cell as it was read, or `*` for any";
        let mut header = parameter("If-Match", "header", description);
        header["required"] = json!(true);
        parameters.push(header);
    }
    let content = |schema: Schema| json!({ "application/json": { "schema": schema } });
    let mut responses = Map::new();
    let description = match method.mime {
        "text/event-stream" => "the data of each event is such an object",
        _ => "it was done",
    };
    let done = json!({
        "description": description,
        "content": { method.mime: { "schema": (method.answer)(answers) } },
    });
    responses.insert(method.status.to_string(), done);
    let problem = content(schema::<ProblemAnswer<'_>>(answers));
    let mut refused = vec![
        ("400", "the request makes no sense"),
        (
            "401",
            "the secret is missing or is that of an earlier server",
        ),
        (
            "403",
            "it would end others' work, is outside of the folder, or comes from another page",
        ),
        ("404", "there is no such notebook or cell"),
        ("422", "it could not be done"),
        ("503", "there is no kernel, or it is busy"),
    ];
    if method.method != "get" {
        refused.push((
            "409",
            "others have changed the same: base, yours and theirs",
        ));
        refused.push(("413", "the request has more than 16 MiB"));
    }
    if method.has_if_match {
        refused.push(("428", "If-Match is missing"));
    }
    refused.sort_unstable();
    for (status, description) in refused {
        let is_text = matches!(status, "401" | "413");
        let response = match is_text {
            true => json!({ "description": description }),
            false => json!({ "description": description, "content": problem }),
        };
        responses.insert(status.to_owned(), response);
    }
    let mut object = Map::new();
    object.insert("summary".to_owned(), json!(method.summary));
    object.insert("parameters".to_owned(), json!(parameters));
    if let Some(body) = method.body {
        let body = json!({ "content": content(body(bodies)) });
        object.insert("requestBody".to_owned(), body);
    }
    object.insert("responses".to_owned(), Value::Object(responses));
    Value::Object(object)
}

fn openapi() -> String {
    let mut settings = SchemaSettings::draft2020_12();
    settings.definitions_path = "/components/schemas".into();
    settings.meta_schema = None;
    let mut answers = settings.clone().for_serialize().into_generator();
    let mut bodies = settings.for_deserialize().into_generator();
    let mut paths: Map<String, Value> = Map::new();
    for method in methods() {
        let described = described(&method, &mut answers, &mut bodies);
        let path = paths
            .entry(method.path.to_owned())
            .or_insert_with(|| json!({}));
        path[method.method] = described;
    }
    let message = schema::<PageMessage>(&mut answers);
    paths.insert(
        "/api/ws".to_owned(),
        json!({ "get": {
            "summary": "Receive what happens, over a websocket: numbered messages",
            "parameters": [
                parameter("run", "query", "the run of the server that the last message came from"),
                parameter("after", "query", "the number of the last message that was received"),
            ],
            "responses": { "101": {
                "description": "each message is a JSON object, which has a `number` unless its type is `hello` or `reload`",
                "content": { "application/json": { "schema": message } },
            } },
        } }),
    );
    let mut schemas = bodies.take_definitions(true);
    schemas.append(&mut answers.take_definitions(true));
    schemas.sort_keys();
    let description = json!({
        "openapi": "3.1.0",
        "info": {
            "title": "nb web",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "The notebooks and kernels of a folder. A client sends the token of the printed address: \
                            `Authorization: Bearer TOKEN`.",
        },
        "security": [{ "token": [] }],
        "paths": paths,
        "components": {
            "securitySchemes": { "token": { "type": "http", "scheme": "bearer" } },
            "schemas": schemas,
        },
    });
    let text = serde_json::to_string_pretty(&description).expect("it is JSON");
    format!("{text}\n")
}

#[test]
fn the_description_is_that_of_the_types() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/openapi.json");
    let current = openapi();
    if std::env::var_os("NB_WRITE_DOCS").is_some() {
        std::fs::write(&path, &current).expect("write the description");
    }
    let stored = std::fs::read_to_string(&path).expect("read the description");
    let command = "NB_WRITE_DOCS=1 cargo test --lib web::openapi writes it";
    assert!(
        stored == current,
        "docs/openapi.json is out of date; {command}"
    );
}
