//! The assistant of `nb web`: with scripted models, with a stand-in for providers that others wrote, and with a coding
//! agent.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::model::{ModelServer, Part, Scripted};
use crate::nb::nb;
use crate::ports::free_port;
use crate::web::WebServer;
use crate::world::{World, is_thorough, succeed};
use crate::{chat, python};

/// The key of all tests: it must appear nowhere.
const KEY: &str = "sk-test-4711-secret";

const CHAT: &str = "/api/notebooks/t.ipynb/chat";

/// A world with a notebook of one cell and its kernel.
fn world() -> World {
    let world = World::opened();
    succeed(world.nb().args([
        "insert", "t.ipynb", "--source", "x = 20", "--id", "cell0001",
    ]));
    world
}

fn web(world: &World, model: &ModelServer, more: &[&str]) -> WebServer {
    let mut command = world.nb();
    command.args(["web", "--port", "0"]).args(more);
    WebServer::of(
        command
            .env("ANTHROPIC_API_KEY", KEY)
            .env("ANTHROPIC_BASE_URL", &model.base),
    )
}

/// The events of a turn, as they come.
struct Turn(BufReader<TcpStream>);

type Event = (String, Value);

impl Turn {
    fn of(server: &WebServer, method: &str, path: &str, headers: &str, body: &str) -> Self {
        let mut stream = server.connect();
        // Of this version no answer is cut into chunks.
        let head = format!(
            "{method} {path} HTTP/1.0\r\nHost: {}\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n{headers}\r\n{body}",
            server.host(),
            server.token,
            body.len()
        );
        stream.write_all(head.as_bytes()).expect("send a request");
        let mut reader = BufReader::new(stream);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert_ne!(reader.read_line(&mut head).expect("read the head"), 0);
        }
        assert!(head.starts_with("HTTP/1.0 200 "), "{head}");
        assert!(head.contains("text/event-stream"), "{head}");
        Self(reader)
    }

    fn ask(server: &WebServer, message: &str) -> Self {
        let body = json!({"message": message}).to_string();
        Self::of(server, "POST", CHAT, "", &body)
    }

    /// Returns the next event with its number; `None` at the end.
    fn next(&mut self) -> Option<(u64, String, Value)> {
        let (mut number, mut name) = (0, String::new());
        loop {
            let mut line = String::new();
            if self.0.read_line(&mut line).expect("read the stream") == 0 {
                return None;
            }
            let Some((field, value)) = line.trim_end().split_once(": ") else {
                continue;
            };
            match field {
                "id" => number = value.parse().expect("a number"),
                "event" => value.clone_into(&mut name),
                "data" => {
                    let value = serde_json::from_str(value).expect("it is JSON");
                    // The number comes after the data.
                    let mut line = String::new();
                    self.0.read_line(&mut line).expect("read the stream");
                    if let Some(value) = line.trim_end().strip_prefix("id: ") {
                        number = value.parse().expect("a number");
                    }
                    return Some((number, name, value));
                }
                _ => {}
            }
        }
    }

    /// Returns the events until one of this name, with it.
    #[track_caller]
    fn until(&mut self, wanted: &str) -> Vec<Event> {
        let mut all = Vec::new();
        while let Some((_, name, value)) = self.next() {
            let is_it = name == wanted;
            all.push((name, value));
            if is_it {
                return all;
            }
        }
        panic!("{wanted} does not come: {all:#?}");
    }

    fn all(mut self) -> Vec<Event> {
        let all = self.until("done");
        assert!(self.next().is_none(), "done is the last event");
        all
    }
}

fn names(events: &[Event]) -> Vec<&str> {
    let names = events.iter().map(|(name, _)| name.as_str());
    names.filter(|name| *name != "usage").collect()
}

fn text(events: &[Event]) -> String {
    let texts = events.iter().filter(|(name, _)| name == "text_delta");
    texts
        .map(|(_, value)| value["text"].as_str().expect("a text"))
        .collect()
}

#[track_caller]
fn only<'a>(events: &'a [Event], name: &str) -> &'a Value {
    let found: Vec<_> = events.iter().filter(|(known, _)| known == name).collect();
    assert_eq!(found.len(), 1, "{name}: {events:#?}");
    &found[0].1
}

fn reason(events: &[Event]) -> &str {
    only(events, "done")["reason"].as_str().expect("a reason")
}

#[test]
fn a_model_looks_edits_runs_and_says_what_it_did() {
    let world = world();
    let model = ModelServer::start(vec![
        Scripted::anthropic(&[
            Part::Text("I look. "),
            Part::Call("c1", "get_notebook_state", json!({"notebook": "t.ipynb"})),
        ]),
        Scripted::calls(
            "c2",
            "update_cell",
            json!({"notebook": "t.ipynb", "cell": "cell0001", "old_string": "20", "new_string": "21\nprint(x * 2)", "run": true}),
        ),
        Scripted::text("It is **42**."),
    ]);
    let server = web(&world, &model, &["--price", "3/15"]);
    let events = Turn::ask(&server, "Double it").all();
    assert_eq!(
        names(&events),
        [
            "text_delta",
            "tool_start",
            "tool_result",
            "tool_start",
            "tool_result",
            "text_delta",
            "done"
        ]
    );
    assert_eq!(text(&events), "I look. It is **42**.");
    assert_eq!(reason(&events), "end_turn");
    let usage = &events
        .iter()
        .rfind(|(name, _)| name == "usage")
        .expect("usage")
        .1;
    assert_eq!(usage["input_tokens"], 300);
    assert_eq!(usage["output_tokens"], 30);
    assert!(
        (usage["cost"][0].as_f64().expect("a price") - 0.00135).abs() < 1e-9,
        "{usage}"
    );

    let first = model.asked();
    let head = first.head.to_lowercase();
    assert!(head.starts_with("post /v1/messages "), "{head}");
    assert!(
        head.contains(&format!("x-api-key: {KEY}"))
            && head.contains("anthropic-version: 2023-06-01")
    );
    let system = first.body["system"][0]["text"].as_str().expect("a prompt");
    assert!(system.contains("The notebook is \"t.ipynb\""), "{system}");
    let tools = first.body["tools"].as_array().expect("tools");
    assert_eq!(tools.len(), 14);
    assert!(
        tools
            .iter()
            .all(|tool| tool["input_schema"]["type"] == "object")
    );
    assert!(model.asked().results()[0].contains("x = 20"));
    let last = model.asked().results();
    assert!(last[0].contains("42"), "{last:?}");

    let of = |wanted: &str| {
        let mut found = events
            .iter()
            .filter(|(name, value)| name == wanted && value["id"] == "c2");
        &found
            .next()
            .unwrap_or_else(|| panic!("{wanted}: {events:#?}"))
            .1
    };
    let edit = of("tool_start");
    assert_eq!(edit["title"], "change cell 0 · cell: text, and run that");
    assert_eq!(edit["kind"], "execute");
    assert_eq!(edit["content"][1]["old"], "x = 20");
    let result = of("tool_result");
    assert_eq!(
        (&result["failed"], &result["status"]),
        (&json!(false), &json!("ok"))
    );

    let shown = succeed(world.nb().args(["cell", "t.ipynb", "cell0001"]));
    assert!(shown.contains("x = 21") && shown.contains("42"), "{shown}");
    let log = succeed(world.nb().args(["log", "t.ipynb"]));
    assert!(
        log.contains("assistant") && log.contains("Double it"),
        "{log}"
    );
    let audit = succeed(world.nb().args(["log", "t.ipynb", "--audit"]));
    assert!(audit.contains("update_cell"), "{audit}");

    // Undo in place: the page has a name for the edit.
    let op = result["op"].as_str().expect("the edit has a name");
    server
        .post("/api/notebooks/t.ipynb/undo", json!({"op": op}))
        .is(200);
    let shown = succeed(world.nb().args(["cell", "t.ipynb", "cell0001"]));
    assert!(shown.contains("x = 20"), "{shown}");
}

#[test]
fn a_conversation_is_kept_and_a_stream_that_broke_off_goes_on() {
    let world = world();
    let model = ModelServer::start(vec![
        Scripted::text("One two three."),
        Scripted::text("Again.").hangs_before_last(2),
        Scripted::text("I remember."),
    ]);
    let server = web(&world, &model, &[]);
    Turn::ask(&server, "first").all();
    let asked = model.asked();
    assert_eq!(asked.body["model"], "claude-sonnet-4-5");

    // The client goes in mid-stream; the turn goes on, and another client gets the rest.
    let mut broken = Turn::ask(&server, "second");
    let (number, name, _) = broken.next().expect("an event");
    assert_eq!((number, name.as_str()), (1, "text_delta"));
    drop(broken);
    let now = server.get(CHAT).is(200).json();
    let id = now["running"].as_str().expect("it goes on").to_owned();
    assert_eq!(now["turns"][1]["id"], id.as_str());
    assert_eq!(now["turns"][1]["message"], "second");
    let busy = server.post(CHAT, json!({"message": "third"})).is(409);
    assert!(busy.body.contains("is at work"), "{busy:?}");
    server.rest("DELETE", CHAT, None, None).is(409);
    let path = format!("{CHAT}/{id}");
    let rest = Turn::of(&server, "GET", &path, "Last-Event-ID: 1\r\n", "");
    let whole = Turn::of(&server, "GET", &path, "", "");
    let stopped = server
        .post(&format!("{CHAT}/stop"), json!({}))
        .is(200)
        .json();
    assert_eq!(stopped["stopped"], true);
    let rest = rest.all();
    assert!(!names(&rest).contains(&"text_delta"), "{rest:?}");
    assert_eq!(reason(&rest), "stopped");
    assert_eq!(text(&whole.all()), "Again.");
    server.get(&format!("{CHAT}/nothing")).is(404);

    // Another server knows it, and so does the model; one without a key in between costs nothing.
    drop(server);
    let keyless = WebServer::start(&world);
    let events = Turn::ask(&keyless, "without a key").all();
    assert_eq!(reason(&events), "error");
    drop(keyless);
    let server = web(&world, &model, &["--model", "another"]);
    let before = server.get(CHAT).json();
    assert_eq!(before["turns"].as_array().expect("turns").len(), 3);
    assert_eq!(before["running"], Value::Null);
    model.asked();
    let body = json!({"message": "third", "model": "a-third"}).to_string();
    let events = Turn::of(&server, "POST", CHAT, "", &body).all();
    assert_eq!(text(&events), "I remember.");
    let asked = model.asked().body;
    assert_eq!(asked["model"], "a-third");
    let messages = asked["messages"].to_string();
    for text in ["first", "One two three.", "second", "Again.", "third"] {
        assert!(messages.contains(text), "{messages}");
    }
    server.rest("DELETE", CHAT, None, None).is(200);
    assert_eq!(server.get(CHAT).json()["turns"], json!([]));
    Turn::ask(&server, "fourth").all();
    let asked = model.asked().body;
    assert_eq!(
        asked["messages"].as_array().expect("messages").len(),
        1,
        "{asked}"
    );
}

#[test]
fn a_key_is_in_no_file_and_in_no_answer() {
    let world = world();
    let model = ModelServer::start(vec![
        Scripted::calls(
            "c1",
            "run_cell",
            json!({"notebook": "t.ipynb", "code": "import os; print(os.environ.get('ANTHROPIC_API_KEY'))"}),
        ),
        Scripted::calls("c2", "open_notebook", json!({"notebook": "new.ipynb"})),
        Scripted::calls(
            "c3",
            "run_cell",
            json!({"notebook": "new.ipynb", "code": "import os; print('the key:', os.environ.get('ANTHROPIC_API_KEY'))"}),
        ),
        Scripted::fails(401, "invalid x-api-key"),
    ]);
    let server = web(&world, &model, &[]);
    let events = Turn::ask(&server, "Which key?").all();
    let error = only(&events, "error");
    let message = error["message"].as_str().expect("a text");
    assert!(
        message.contains("refuses the key in ANTHROPIC_API_KEY: invalid x-api-key"),
        "{message}"
    );
    assert_eq!(reason(&events), "error");
    let shown = format!("{events:?}");
    assert!(
        shown.contains("the key: None") && !shown.contains(KEY),
        "{shown}"
    );
    let found = Command::new("grep")
        .args(["-r", "-l", KEY])
        .arg(world.project().join(".."))
        .output();
    let found = found.expect("run grep");
    assert_eq!(String::from_utf8_lossy(&found.stdout), "");
    assert!(!server.get(CHAT).body.contains(KEY));
}

#[test]
fn a_failure_of_a_model_is_reported_and_the_next_message_works() {
    let world = world();
    let broken = Scripted::calls(
        "c1",
        "run_cell",
        json!({"notebook": "t.ipynb", "code": "broken = 1"}),
    );
    let bad = |arguments: &str| {
        Scripted::events(&[
            json!({"type": "content_block_start", "index": 0, "content_block": {"type": "tool_use", "id": "b", "name": "run_cell", "input": {}}}),
            json!({"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": arguments}}),
            json!({"type": "content_block_stop", "index": 0}),
            json!({"type": "message_stop"}),
        ])
    };
    let begun = json!({"type": "message_start", "message": {"usage": {"input_tokens": 1, "output_tokens": 1}}});
    let overloaded =
        json!({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}});
    let model = ModelServer::start(vec![
        Scripted::fails(404, "model: nothing"),
        Scripted::fails(429, "slow down").header("Retry-After", "0"),
        Scripted::fails(529, "overloaded").header("Retry-After", "0"),
        // Its beginning, which has only what the request costs, is not an answer yet.
        Scripted::events(&[begun, overloaded]),
        Scripted::text("After all."),
        Scripted::raw(200, vec!["data: {nonsense\n\n".to_owned()]),
        Scripted::raw(200, vec!["<html>".to_owned()]),
        Scripted::raw(200, vec!["<html>".to_owned()]).header("Content-Type", "text/html"),
        Scripted::raw(404, vec!["404 page not found".to_owned()]),
        // It breaks off in the middle of a call, which must not be made.
        broken.without_last(3),
        bad("{\"code\": "),
        Scripted::calls("c2", "format_disk", json!({})),
        Scripted::calls(
            "c3",
            "delete_cells",
            json!({"notebook": "t.ipynb", "cell": "cell0001"}),
        ),
        Scripted::text("None of it worked."),
    ]);
    let server = web(&world, &model, &[]);
    let fails = |text: &str| {
        let events = Turn::ask(&server, "go").all();
        let message = only(&events, "error")["message"]
            .as_str()
            .expect("a text")
            .to_owned();
        assert!(message.contains(text), "{message}");
        assert_eq!(reason(&events), "error");
    };
    fails("has no model \"claude-sonnet-4-5\": model: nothing");
    let events = Turn::ask(&server, "go").all();
    assert_eq!(text(&events), "After all.");
    let notes = events.iter().filter(|(name, _)| name == "note");
    assert_eq!(notes.count(), 3, "{events:?}");
    fails("broke off");
    fails("the stream ended before the answer");
    fails("/v1/messages is not where models answer: it answers with text/html");
    fails("/v1/messages is not where models answer: 404, 404 page not found");
    fails("the stream ended before the answer");
    let events = Turn::ask(&server, "go").all();
    assert_eq!(text(&events), "None of it worked.");
    let results: Vec<_> = events
        .iter()
        .filter(|(name, _)| name == "tool_result")
        .collect();
    let results: Vec<_> = results
        .iter()
        .map(|(_, value)| {
            assert_eq!(value["failed"], true);
            value["content"][0]["text"].as_str().expect("a text")
        })
        .collect();
    assert!(results[0].contains("are no JSON"), "{results:?}");
    assert_eq!(results[1], "there is no tool \"format_disk\"");
    // Names of other servers would pass by the approval.
    assert_eq!(results[2], "there is no tool \"delete_cells\"");
    let vars = succeed(world.nb().args(["vars", "t.ipynb"]));
    assert!(!vars.contains("broken"), "{vars}");
}

#[test]
fn a_model_that_goes_round_in_circles_ends() {
    let world = world();
    let model = ModelServer::start(vec![Scripted::calls("c", "format_disk", json!({}))]);
    let server = web(&world, &model, &[]);
    let events = Turn::ask(&server, "go").all();
    let message = only(&events, "error")["message"].as_str().expect("a text");
    assert!(message.contains("has sent 50 requests"), "{message}");
}

#[test]
fn a_call_beyond_the_limit_of_a_minute_waits() {
    let world = world();
    let call = json!({"notebook": "t.ipynb"});
    let model = ModelServer::start(vec![Scripted::calls("c", "get_notebook_state", call)]);
    let server = web(&world, &model, &[]);
    let mut turn = Turn::ask(&server, "go");
    let events = turn.until("tool_update");
    let (_, waits) = events.last().expect("an event");
    let waits = waits.to_string();
    assert!(
        waits.contains("this server takes 20 calls a minute"),
        "{waits}"
    );
    let made = events.iter().filter(|(name, _)| name == "tool_result");
    assert_eq!(made.count(), 20);
    server.post(&format!("{CHAT}/stop"), json!({})).is(200);
    assert_eq!(reason(&turn.all()), "stopped");
    for _ in 0..21 {
        model.asked();
    }
    assert!(!model.was_asked());
}

#[test]
fn a_stop_interrupts_the_cell_at_once() {
    let world = world();
    let code = "import time\nprint('begun', flush=True)\ntime.sleep(600)";
    let model = ModelServer::start(vec![
        Scripted::anthropic(&[
            Part::Call(
                "c1",
                "create_cell",
                json!({"notebook": "t.ipynb", "source": code, "run": true}),
            ),
            Part::Call(
                "c2",
                "run_cell",
                json!({"notebook": "t.ipynb", "code": "second = 1"}),
            ),
        ]),
        Scripted::text("Stopped, as you say."),
    ]);
    let server = web(&world, &model, &[]);
    let mut turn = Turn::ask(&server, "Wait");
    // The cell runs for more than five seconds by then.
    let events = turn.until("tool_update");
    assert!(
        events
            .last()
            .expect("an event")
            .1
            .to_string()
            .contains("begun"),
        "{events:?}"
    );
    let begun = Instant::now();
    server.post(&format!("{CHAT}/stop"), json!({})).is(200);
    let events = turn.all();
    let took = begun.elapsed();
    eprintln!("stopped in {took:?}");
    // A second is promised; a busy machine may take longer.
    assert!(took < Duration::from_secs(10), "{took:?}");
    assert_eq!(reason(&events), "stopped");
    // The outputs come with the end of the cell, which is later than the end of the turn.
    let limit = Instant::now() + Duration::from_secs(60);
    while !succeed(world.nb().args(["cells", "t.ipynb"])).contains("KeyboardInterrupt") {
        assert!(Instant::now() < limit, "the cell is not interrupted");
    }
    let vars = succeed(world.nb().args(["vars", "t.ipynb"]));
    assert!(!vars.contains("second"), "{vars}");
    // The conversation goes on: each call has its result.
    let events = Turn::ask(&server, "What was that?").all();
    assert_eq!(text(&events), "Stopped, as you say.");
    model.asked();
    let messages = model.asked().body["messages"].clone();
    let results = messages[2]["content"].as_array().expect("results");
    assert_eq!(results.len(), 2, "{messages:#}");
    assert!(results[1].to_string().contains("not begun"), "{messages:#}");
}

/// A turn whose calls are asked for.
struct Asked<'a> {
    server: &'a WebServer,
    turn: Turn,
}

impl Asked<'_> {
    /// Waits for the next question and answers it. Returns the question, and the content of the step that was shown
    /// last.
    fn answer(&mut self, answer: &str) -> (String, String) {
        let events = self.turn.until("question");
        let question = &events.last().expect("a question").1;
        let mut shown = events
            .iter()
            .rev()
            .filter(|(name, _)| ["tool_start", "tool_update"].contains(&name.as_str()));
        let shown = shown.next().expect("a step").1["content"].to_string();
        let body = json!({"id": question["id"], "text": answer});
        let path = format!("{CHAT}/answer");
        self.server
            .post(&path, json!({"id": 99, "text": answer}))
            .is(409);
        self.server.post(&path, body.clone()).is(200);
        self.server.post(&path, body).is(409);
        (question["text"].as_str().expect("a text").to_owned(), shown)
    }
}

fn in_one_answer(calls: &[(&str, Value)]) -> Scripted {
    let ids: Vec<_> = (0..calls.len()).map(|at| format!("c{at}")).collect();
    let parts = calls.iter().zip(&ids).map(|((tool, arguments), id)| {
        let mut arguments = arguments.clone();
        arguments["notebook"] = json!("t.ipynb");
        Part::Call(id, tool, arguments)
    });
    Scripted::anthropic(&parts.collect::<Vec<_>>())
}

/// By each name of an argument, and also where the code is in the notebook already.
#[test]
fn each_call_that_writes_undoes_or_runs_is_asked_for_with_its_code() {
    let world = world();
    let inserted = succeed(world.nb().args([
        "insert",
        "t.ipynb",
        "--source",
        "%%sh\ntouch ran",
        "--id",
        "dddd0004",
        "--json",
    ]));
    let inserted: Value = serde_json::from_str(&inserted).expect("it is JSON");
    let run_a_program = "import subprocess\nsubprocess.run(['touch', 'ran'])";
    let asked_for = [
        (
            "create_cell",
            json!({"content": run_a_program, "execute": true}),
            vec!["insert a code cell at 2, and run that", "subprocess.run"],
        ),
        (
            "update_cell",
            json!({"cell_id": "cell0001", "old": "20", "new": "open('ran', 'w')", "run": true}),
            vec![
                "change cell 0 · cell: text, and run that",
                "x = 20",
                "x = open('ran', 'w')",
            ],
        ),
        (
            "update_cell",
            json!({"cell": 0, "new_source": ["!touch", " ran"]}),
            vec!["change cell 0 · cell: text", "!touch\\n ran"],
        ),
        (
            "run_cell",
            json!({"cell_id": "dddd0004"}),
            vec!["run cell 1 · dddd", "touch ran"],
        ),
        (
            "run_cell",
            json!({"all": true}),
            vec!["run cell 0 · cell, and 1 more", "x = 20", "touch ran"],
        ),
        (
            "run_cell",
            json!({"stale": true}),
            vec!["run cell", "touch ran"],
        ),
        (
            "run_cell",
            json!({"code": "!touch ran"}),
            vec!["run code outside", "!touch ran"],
        ),
        (
            "apply_edits",
            json!({"edits": [{"op": "append", "cell": "cell0001", "source": "y = 1"}]}),
            vec!["change cell 0 · cell: text", "x = 20\\ny = 1"],
        ),
        (
            "delete_cell",
            json!({"cells": ["dddd0004"]}),
            vec!["remove cell 1 · dddd", "touch ran"],
        ),
        (
            "history",
            json!({"action": "undo", "op": inserted["op"]}),
            vec!["undo ", "insert", "remove cell 1 · dddd", "touch ran"],
        ),
        (
            "answer_input",
            json!({"answer": "yes please"}),
            vec!["answer a question", "yes please"],
        ),
        (
            "kernel",
            json!({"action": "interrupt"}),
            vec!["interrupt what the kernel runs"],
        ),
        (
            "kernel",
            json!({"action": "restart"}),
            vec!["restart the kernel"],
        ),
        (
            "open_notebook",
            json!({"python": "/tmp/python"}),
            vec!["open t.ipynb", "/tmp/python"],
        ),
    ];
    let reads = [
        ("get_notebook_state", json!({})),
        ("read_cell", json!({"cell": "cell0001"})),
        ("kernel", json!({"action": "status"})),
        ("history", json!({"action": "log"})),
    ];
    let calls = asked_for
        .iter()
        .map(|(tool, arguments, _)| (*tool, arguments.clone()));
    let calls: Vec<_> = reads.iter().cloned().chain(calls).collect();
    let model = ModelServer::start(vec![in_one_answer(&calls), Scripted::text("Nothing.")]);
    let server = web(&world, &model, &["--approve"]);
    let before = std::fs::read(world.project().join("t.ipynb")).expect("read the notebook");
    let turn = Turn::ask(&server, "Tidy up");
    let mut asked = Asked {
        server: &server,
        turn,
    };
    for (tool, arguments, expected) in asked_for {
        let (question, shown) = asked.answer("b");
        for text in expected {
            let is_shown = question.contains(text) || shown.contains(text);
            assert!(
                is_shown,
                "{text:?} of {tool} {arguments}: {question}\n{shown}"
            );
        }
    }
    assert_eq!(text(&asked.turn.all()), "Nothing.");
    model.asked();
    let results = model.asked().results();
    assert_eq!(results.len(), calls.len());
    let refused = results
        .iter()
        .filter(|it| *it == "the person does not allow this");
    assert_eq!(refused.count(), calls.len() - reads.len(), "{results:#?}");
    let after = std::fs::read(world.project().join("t.ipynb")).expect("read the notebook");
    assert!(before == after && !world.project().join("ran").exists());
}

#[test]
fn an_approval_holds_for_what_was_shown_or_for_the_turn() {
    let world = world();
    let run = |code: &str| ("run_cell", json!({"code": code}));
    let model = ModelServer::start(vec![
        in_one_answer(&[
            ("run_cell", json!({"cell": "cell0001"})),
            run("y = 1"),
            run("z = 2"),
        ]),
        Scripted::text("Done."),
        in_one_answer(&[run("w = 3")]),
        Scripted::text("No."),
    ]);
    let server = web(&world, &model, &["--approve"]);
    let turn = Turn::ask(&server, "Run it");
    let mut asked = Asked {
        server: &server,
        turn,
    };
    let events = asked.turn.until("question");
    let question = events.last().expect("a question").1.clone();
    succeed(
        world
            .nb()
            .args(["edit", "t.ipynb", "cell0001", "--source", "x = 'theirs'"]),
    );
    server
        .post(
            &format!("{CHAT}/answer"),
            json!({"id": question["id"], "text": "a"}),
        )
        .is(200);
    let (question, shown) = asked.answer("a");
    assert!(
        question.contains("it is no longer what you have allowed"),
        "{question}"
    );
    assert!(shown.contains("x = 'theirs'"), "{shown}");
    let (question, _) = asked.answer("c");
    assert!(
        question.contains("c  Allow everything (until the end of this turn)"),
        "{question}"
    );
    // The third call is not asked for; the next turn's first one is.
    let events = asked.turn.all();
    assert!(!names(&events).contains(&"question"), "{events:#?}");
    let vars = succeed(world.nb().args(["vars", "t.ipynb"]));
    assert!(vars.contains("theirs") && vars.contains('z'), "{vars}");
    let turn = Turn::ask(&server, "Once more");
    let mut asked = Asked {
        server: &server,
        turn,
    };
    asked.answer("b");
    assert_eq!(text(&asked.turn.all()), "No.");
}

#[test]
fn what_the_person_changes_under_it_is_read_again() {
    let world = world();
    let update = |id, source| {
        let arguments = json!({"notebook": "t.ipynb", "cell": "cell0001", "source": source});
        Scripted::calls(id, "update_cell", arguments)
    };
    let read = json!({"notebook": "t.ipynb", "cell": "cell0001"});
    let model = ModelServer::start(vec![
        Scripted::calls("c1", "read_cell", read),
        update("c2", "x = 22"),
        update("c3", "x = 22  # theirs: 21"),
        Scripted::text("Merged."),
    ]);
    let server = web(&world, &model, &[]);
    let mut turn = Turn::ask(&server, "Make it 22");
    turn.until("tool_result");
    let changed = server.rest(
        "PUT",
        "/api/notebooks/t.ipynb/cells/cell0001",
        Some("*"),
        Some(json!({"source": "x = 21"})),
    );
    // The model is as fast as it can be: the person's edit must come before its own.
    let events = turn.all();
    changed.is(200);
    model.asked();
    model.asked();
    let second = model.asked().results();
    let was_first = !second[0].contains("theirs");
    if was_first {
        // Then it was the person who changed a text that the assistant had written.
        assert!(second[0].contains("edited"), "{second:?}");
    } else {
        assert!(second[0].contains("x = 21"), "{second:?}");
    }
    assert_eq!(text(&events), "Merged.");
}

/// The cell runs longer than the assistant waits: six seconds, or as long as it ever does.
#[test]
fn a_cell_that_runs_for_long_is_asked_for_again() {
    let world = world();
    let (runs, timeout, updates) = if is_thorough() {
        (32, 500, 5)
    } else {
        (9, 6, 1)
    };
    let code = format!("import time\ntime.sleep({runs})\nprint('slow')");
    let model = ModelServer::start(vec![
        Scripted::calls(
            "c1",
            "run_cell",
            json!({"notebook": "t.ipynb", "code": code, "timeout_s": timeout}),
        ),
        Scripted::calls(
            "c2",
            "get_run_status",
            json!({"notebook": "t.ipynb", "timeout_s": 20}),
        ),
        Scripted::text("It took a while."),
    ]);
    let server = web(&world, &model, &[]);
    let events = Turn::ask(&server, "Wait").all();
    let results: Vec<_> = events
        .iter()
        .filter(|(name, _)| name == "tool_result")
        .collect();
    assert_eq!(results[0].1["status"], "timeout", "{results:#?}");
    assert_eq!(results[1].1["status"], "ok", "{results:#?}");
    assert!(results[1].1.to_string().contains("slow"));
    let updated = events.iter().filter(|(name, _)| name == "tool_update");
    assert!(updated.count() >= updates, "{events:#?}");
}

#[test]
fn an_assistant_that_is_named_and_cannot_be_used_is_reported_at_the_start() {
    let world = World::new();
    let start = |name: &str| nb(&world, ["web", "--port", "0", "--assistant", name]);
    start("nobodys-agent --acp")
        .ended(2)
        .with("the program of nobodys-agent is not there: nobodys-agent");
    start("anthropic")
        .ended(1)
        .with("no assistant is set up")
        .with("ANTHROPIC_API_KEY");
}

#[test]
fn without_a_key_the_page_says_what_to_do() {
    let world = world();
    let server = WebServer::start(&world);
    let events = Turn::ask(&server, "Hello").all();
    let error = only(&events, "error");
    assert_eq!(error["message"], "no assistant is set up");
    assert!(
        error["hints"][0]
            .as_str()
            .expect("a hint")
            .contains("ANTHROPIC_API_KEY"),
        "{error}"
    );
    server.post(CHAT, json!({"message": " "})).is(400);
    server
        .post(CHAT, json!({"message": "x", "more": 1}))
        .is(400);
    server
        .post("/api/notebooks/no.ipynb/chat", json!({"message": "x"}))
        .is(400);
    server.get("/api/notebooks/..%2Fx.ipynb/chat").is(403);
}

/// A process of a test, until it is dropped.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// fakellm answers by rules, in both interfaces.
#[test]
fn a_third_partys_stand_in_is_understood_in_both_interfaces() {
    let world = world();
    let python = python::with_mcp();
    let rules = "version: 1\nrules:\n\
        - name: says\n  when:\n    tool_result_contains: '42'\n  respond:\n    content: It is forty two .\n\
        - name: runs\n  when:\n    messages_contain: compute\n  respond:\n    tool_calls:\n\
        \x20   - name: run_cell\n      arguments: {notebook: t.ipynb, code: 'x * 2 + 2'}\n";
    let config = world.project().join("../fakellm.yaml");
    std::fs::write(&config, rules).expect("write the rules");
    succeed(world.nb().args(["exec", "t.ipynb", "--all"]));
    let port = free_port();
    let mut command = world.command(python);
    command.args([
        "-m",
        "uvicorn",
        "fakellm.server:app",
        "--port",
        &port.to_string(),
    ]);
    command
        .env("FAKELLM_CONFIG", &config)
        .stderr(Stdio::piped())
        .stdout(Stdio::null());
    let mut process = Process(command.spawn().expect("start fakellm"));
    let stderr = BufReader::new(process.0.stderr.take().expect("it has a stderr"));
    let mut lines = stderr.lines().map_while(Result::ok);
    assert!(
        lines.any(|line| line.contains("running on")),
        "fakellm starts"
    );
    // It writes more.
    std::thread::spawn(move || lines.count());
    let base = format!("http://127.0.0.1:{port}");
    for (word, key, base_name, base) in [
        (
            "anthropic",
            "ANTHROPIC_API_KEY",
            "ANTHROPIC_BASE_URL",
            base.clone(),
        ),
        (
            "openai",
            "OPENAI_API_KEY",
            "OPENAI_BASE_URL",
            format!("{base}/v1"),
        ),
    ] {
        let mut command = world.nb();
        command.args([
            "web",
            "--port",
            "0",
            "--assistant",
            word,
            "--model",
            "gpt-4o-mini",
        ]);
        let server = WebServer::of(command.env(key, KEY).env(base_name, base));
        server.rest("DELETE", CHAT, None, None).is(200);
        let events = Turn::ask(&server, &format!("Please compute, {word}")).all();
        assert_eq!(text(&events), "It is forty two .", "{word}: {events:#?}");
        assert_eq!(only(&events, "tool_result")["status"], "ok");
        assert_eq!(reason(&events), "end_turn");
    }
}

/// gemini-cli with recorded answers of its model.
#[test]
fn a_coding_agent_is_the_assistant() {
    let world = world();
    let cell = json!({"notebook": "t.ipynb", "cell": "cell0001", "source": "x = 21\nx * 2"});
    let run = json!({"notebook": "t.ipynb", "cell": "cell0001"});
    let answers = vec![
        chat::gemini_calls("mcp_nb_read_cell", &run),
        chat::gemini_calls("mcp_nb_update_cell", &cell),
        chat::gemini_calls("mcp_nb_run_cell", &run),
        chat::gemini_text("The cell gives 42."),
    ];
    let Some(agent) = chat::gemini(&world, answers) else {
        return;
    };
    let agent = agent.strip_prefix("!start-agent ").expect("a command");
    let mut command = world.nb();
    let server = WebServer::of(command.args(["web", "--port", "0", "--assistant", agent]));
    let mut turn = Turn::ask(&server, "Correct the notebook");
    let mut all = Vec::new();
    while let Some((_, name, value)) = turn.next() {
        if name == "question" {
            let answer = json!({"id": value["id"], "text": "a"});
            server.post(&format!("{CHAT}/answer"), answer).is(200);
        }
        all.push((name, value));
    }
    assert_eq!(reason(&all), "end_turn", "{all:#?}");
    assert!(text(&all).contains("The cell gives 42."), "{all:#?}");
    assert!(names(&all).contains(&"question") && names(&all).contains(&"tool_result"));
    let shown = succeed(world.nb().args(["cell", "t.ipynb", "cell0001"]));
    assert!(shown.contains("x = 21") && shown.contains("42"), "{shown}");
    let log = succeed(world.nb().args(["log", "t.ipynb"]));
    assert!(log.contains("gemini"), "{log}");
}
