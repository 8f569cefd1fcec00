//! `nb live` as the extension of an editor uses it.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sha2::Digest;

use super::{Output, json_lines, nb, until};
use crate::world::{World, succeed};

/// How long a message is awaited.
const LONG: Duration = Duration::from_secs(60);

/// An editor with one notebook open.
struct Editor {
    live: Child,
    stdin: ChildStdin,
    messages: mpsc::Receiver<Value>,
    notebook: PathBuf,
}

impl Drop for Editor {
    fn drop(&mut self) {
        let _ = self.live.kill();
        let _ = self.live.wait();
    }
}

impl Editor {
    /// Starts `nb live` and opens the notebook, without unsaved changes.
    fn open(world: &World, can: &[&str]) -> Self {
        let notebook = notebook(world);
        let mut editor = Self::start(world, can, notebook);
        editor.opens();
        assert_eq!(editor.next()["type"], "synced");
        editor
    }

    /// Starts `nb live`, without an open notebook.
    fn start(world: &World, can: &[&str], notebook: PathBuf) -> Self {
        let mut command = world.nb();
        command.args(["live", "--stdio"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut live = command.spawn().expect("start nb live");
        let stdin = live.stdin.take().expect("it has a stdin");
        let stdout = live.stdout.take().expect("it has a stdout");
        let messages = json_lines(stdout);
        let mut editor = Self {
            live,
            stdin,
            messages,
            notebook,
        };
        editor.send(&json!({"type": "initialize", "editor": "VS Code", "can": can}));
        let initialized = editor.next();
        assert_eq!(initialized["type"], "initialized");
        assert_eq!(initialized["protocol"], 1);
        editor
    }

    /// Starts `nb live` and opens the notebook in a room of jupyter-collaboration.
    fn in_room(world: &World) -> Self {
        let mut editor = Self::start(world, &["change"], notebook(world));
        let mut open = editor.first();
        open["dirty"] = json!(true);
        open["room"] = json!(true);
        editor.event(open);
        assert_eq!(editor.next()["type"], "synced");
        editor
    }

    /// Opens the notebook as it was at first, without unsaved changes.
    fn opens(&mut self) {
        self.event(self.first());
    }

    fn first(&self) -> Value {
        let cells = json!([
            {"cell": "e1", "id": "aaaa", "cell_type": "code", "source": "aaaa = 1"},
            {"cell": "e2", "id": "bbbb", "cell_type": "code", "source": "bbbb = 1"},
        ]);
        json!({"type": "open", "notebook": self.notebook, "cells": cells, "dirty": false})
    }

    fn send(&mut self, message: &Value) {
        writeln!(self.stdin, "{message}").expect("nb live reads");
    }

    fn event(&mut self, mut event: Value) {
        event["doc"] = json!("d");
        self.send(&event);
    }

    fn types(&mut self, cell: &str, source: &str) {
        self.event(json!({"type": "text", "cell": cell, "source": source}));
    }

    fn next(&self) -> Value {
        self.messages.recv_timeout(LONG).expect("nb live answers")
    }

    /// Waits for a request to replace a text, and does it.
    fn does_set(&mut self, was: &str, source: &str) {
        let set = self.next();
        assert_eq!((&set["was"], &set["source"]), (&json!(was), &json!(source)));
        self.event(json!({"type": "applied", "seq": set["seq"]}));
    }

    /// Waits until the record says that these texts are unsaved.
    fn recorded(&self, sources: &[&str]) {
        until("the record has what is unsaved", || {
            let record = self.record()?;
            let cells = record["notebooks"][0]["cells"].as_array()?.clone();
            let found: Vec<_> = cells
                .iter()
                .filter_map(|cell| cell["source"].as_str())
                .collect();
            (found == sources).then_some(())
        });
    }

    fn record(&self) -> Option<Value> {
        let folder = self.notebook.parent().expect("it has a folder");
        let file = folder.join(format!(".nb/live/{}.json", self.live.id()));
        serde_json::from_slice(&std::fs::read(file).ok()?).ok()
    }
}

/// Writes a notebook with the cells `aaaa` and `bbbb`, which the agent has seen.
fn notebook(world: &World) -> PathBuf {
    let path = world.project().join("t.ipynb");
    let cell = |id: &str| json!({"cell_type": "code", "execution_count": null, "id": id, "metadata": {}, "outputs": [], "source": format!("{id} = 1")});
    let text = json!({"cells": [cell("aaaa"), cell("bbbb")], "metadata": {}, "nbformat": 4, "nbformat_minor": 5});
    std::fs::write(&path, text.to_string()).expect("write the notebook");
    nb(world, ["cell", "t.ipynb", "aaaa", "bbbb"]).ended(0);
    path
}

fn edit(world: &World, cell: &str, source: &str) -> Output {
    nb(world, ["--as", "claude", "edit", "t.ipynb", cell, source])
}

#[test]
fn text_that_was_just_typed_is_not_overwritten() {
    let world = World::new();
    let mut editor = Editor::open(&world, &[]);
    editor.types("e1", "aaaa = 1\ntyped = 1");
    editor.recorded(&["aaaa = 1\ntyped = 1"]);
    edit(&world, "aaaa", "agent = 1")
        .ended(5)
        .with("VS Code has unsaved text of the cell (since ")
        .with("typed = 1");
    edit(&world, "bbbb", "agent = 1").ended(0);
    // The person takes it back.
    editor.types("e1", "aaaa = 1");
    editor.recorded(&[]);
    edit(&world, "aaaa", "agent = 2").ended(0);
}

#[test]
fn an_editor_that_was_killed_does_not_prevent_an_edit() {
    let world = World::new();
    let mut editor = Editor::open(&world, &[]);
    editor.types("e1", "typed = 1");
    editor.recorded(&["typed = 1"]);
    editor.live.kill().expect("it runs");
    editor.live.wait().expect("it has ended");
    assert!(editor.record().is_some());
    edit(&world, "aaaa", "agent = 1").ended(0);
    nb(&world, ["gc"]).ended(0);
    assert!(editor.record().is_none());
}

#[test]
fn an_edit_by_an_agent_becomes_a_set_that_names_the_agent() {
    let world = World::new();
    let mut editor = Editor::start(&world, &["change"], notebook(&world));
    edit(&world, "bbbb", "agent = 1").ended(0);
    // The tab has read the file before.
    editor.opens();
    let set = editor.next();
    let expected = json!({
        "doc": "d", "type": "set", "seq": 1, "cell": "e2", "was": "bbbb = 1", "source": "agent = 1", "by": "claude",
    });
    assert_eq!(set, expected);
    // The person was faster: the texts are merged.
    editor.event(json!({"type": "refused", "seq": 1, "source": "bbbb = 1\ntyped = 1"}));
    let set = editor.next();
    assert_eq!(set["was"], "bbbb = 1\ntyped = 1");
    assert_eq!(set["source"], "agent = 1\ntyped = 1");
    editor.event(json!({"type": "applied", "seq": set["seq"]}));
    assert_eq!(editor.next()["type"], "synced");
    editor.recorded(&["agent = 1\ntyped = 1"]);
}

#[test]
fn a_save_is_answered_with_what_the_tab_has_not_seen() {
    let world = World::new();
    let mut editor = Editor::open(&world, &["change"]);
    editor.types("e1", "typed = 1");
    editor.recorded(&["typed = 1"]);
    editor.event(json!({"type": "saving"}));
    assert_eq!(editor.next()["type"], "synced");
    let text = std::fs::read_to_string(&editor.notebook).expect("read the notebook");
    std::fs::write(&editor.notebook, text.replace("aaaa = 1", "typed = 1")).expect("save it");
    editor.event(json!({"type": "saved", "order": ["e1", "e2"]}));
    editor.recorded(&[]);
    // What the editor itself has saved is not sent to it.
    assert_eq!(editor.next()["type"], "synced");
    edit(&world, "bbbb", "agent = 1").ended(0);
    assert_eq!(editor.next()["cell"], "e2");
}

#[test]
fn nonsense_is_answered_and_ends_nothing() {
    let world = World::new();
    let mut editor = Editor::open(&world, &["change"]);
    for line in [
        "",
        "[]",
        "{\"type\":\"text\"}",
        "{\"type\":\"text\",\"doc\":\"other\",\"cell\":\"e1\",\"source\":\"x\"}",
    ] {
        writeln!(editor.stdin, "{line}").expect("nb live reads");
        assert_eq!(editor.next()["type"], "problem", "{line}");
    }
    editor.send(&json!({"type": "of a later version", "doc": "d"}));
    editor.types("no such cell", "x");
    assert_eq!(editor.next()["type"], "reopen");
    editor.event(json!({"type": "open", "dirty": true, "cells": [
        {"cell": "e1", "id": "aaaa", "cell_type": "code", "source": "typed = 1"},
        {"cell": "e2", "id": "bbbb", "cell_type": "code", "source": "bbbb = 1"},
    ]}));
    editor.recorded(&["typed = 1"]);
    drop(editor);
    nb(&world, ["live"]).ended(2);
}

/// Starts an agent's edit of a cell.
fn begin_edit(world: &World, cell: &str, source: &str) -> Child {
    let mut command = world.nb();
    command.args(["--as", "claude", "edit", "t.ipynb", cell, source]);
    command
        .stdout(Stdio::null())
        .spawn()
        .expect("start nb edit")
}

fn text(editor: &Editor) -> String {
    std::fs::read_to_string(&editor.notebook).expect("read the notebook")
}

#[test]
fn an_editor_gets_an_edit_before_the_file() {
    let world = World::new();
    let mut editor = Editor::open(&world, &["change"]);
    let before = text(&editor);
    let mut agent = begin_edit(&world, "bbbb", "agent = 1");
    let set = editor.next();
    let expected = json!({
        "doc": "d", "type": "set", "seq": 1, "cell": "e2", "was": "bbbb = 1", "source": "agent = 1", "by": "claude",
    });
    assert_eq!(set, expected);
    assert_eq!(text(&editor), before);
    assert!(agent.try_wait().expect("look at nb edit").is_none());
    editor.event(json!({"type": "applied", "seq": 1}));
    // The editor may save once the file has what it has.
    let synced = editor.next();
    assert_eq!(synced["type"], "synced");
    assert!(text(&editor).contains("agent = 1"));
    let digest = sha2::Sha256::digest(text(&editor));
    assert_eq!(synced["stamp"], hex::encode(digest));
    assert!(agent.wait().expect("nb edit ends").success());
}

#[test]
fn an_edit_that_is_not_written_is_taken_back_in_the_editor() {
    let world = World::new();
    let mut editor = Editor::open(&world, &["change"]);
    let mut agent = begin_edit(&world, "bbbb", "agent = 1");
    assert_eq!(editor.next()["source"], "agent = 1");
    agent.kill().expect("it waits for the editor");
    agent.wait().expect("it has ended");
    editor.event(json!({"type": "applied", "seq": 1}));
    let mut set = editor.next();
    // `nb live` may hear of the editor before it hears of the agent's end.
    if set["type"] == "synced" {
        set = editor.next();
    }
    assert_eq!(
        (&set["was"], &set["source"]),
        (&json!("agent = 1"), &json!("bbbb = 1"))
    );
    editor.event(json!({"type": "applied", "seq": set["seq"]}));
    assert_eq!(editor.next()["type"], "synced");
    assert!(!text(&editor).contains("agent"));
}

#[test]
fn an_editor_that_does_not_answer_is_not_waited_for_again() {
    let world = World::new();
    let mut editor = Editor::open(&world, &["change"]);
    edit(&world, "bbbb", "agent = 1").ended(0);
    assert_eq!(editor.next()["source"], "agent = 1");
    // This one is not even offered: the first one is not answered yet.
    edit(&world, "bbbb", "agent = 2").ended(0);
    editor.event(json!({"type": "applied", "seq": 1}));
    editor.does_set("agent = 1", "agent = 2");
    assert_eq!(editor.next()["type"], "synced");
    editor.recorded(&[]);
}

#[test]
fn an_editor_that_a_signal_has_stopped_is_not_waited_for() {
    let world = World::new();
    let mut editor = Editor::open(&world, &["change"]);
    let signal = |signal: &str| {
        let mut kill = Command::new("kill");
        succeed(kill.args([signal, &editor.live.id().to_string()]));
    };
    signal("-STOP");
    let begun = Instant::now();
    edit(&world, "bbbb", "agent = 1").ended(0);
    // A writer waits for an answer for eight seconds.
    assert!(begun.elapsed() < Duration::from_secs(6));
    signal("-CONT");
    editor.does_set("bbbb = 1", "agent = 1");
    assert_eq!(editor.next()["type"], "synced");
}

#[test]
fn an_edit_waits_for_the_end_of_a_save() {
    let world = World::new();
    let mut editor = Editor::open(&world, &["change"]);
    editor.types("e1", "typed = 1");
    editor.recorded(&["typed = 1"]);
    editor.event(json!({"type": "saving"}));
    assert_eq!(editor.next()["type"], "synced");
    let mut agent = begin_edit(&world, "bbbb", "agent = 1");
    std::fs::write(
        &editor.notebook,
        text(&editor).replace("aaaa = 1", "typed = 1"),
    )
    .expect("save it");
    editor.event(json!({"type": "saved", "order": ["e1", "e2"]}));
    let messages = [editor.next(), editor.next()];
    let set = messages
        .iter()
        .find(|it| it["type"] == "set")
        .expect("the agent's text");
    editor.event(json!({"type": "applied", "seq": set["seq"]}));
    assert!(agent.wait().expect("nb edit ends").success());
    assert!(text(&editor).contains("typed = 1") && text(&editor).contains("agent = 1"));
}

#[test]
fn outputs_and_metadata_reach_the_editor_too() {
    let world = World::new();
    let path = notebook(&world);
    let stream = r#"[{"name":"stdout","output_type":"stream","text":["1"]}]"#;
    let text = std::fs::read_to_string(&path).expect("read the notebook");
    std::fs::write(&path, text.replacen("[]", stream, 2)).expect("write the notebook");
    let mut editor = Editor::start(&world, &["change"], path);
    editor.opens();
    assert_eq!(editor.next()["type"], "synced");
    let expect = |editor: &mut Editor, words: &[&str], expected: Value| {
        let mut command = world.nb();
        let mut agent = command
            .args(["--as", "claude"])
            .args(words)
            .spawn()
            .expect("start nb");
        let mut message = editor.next();
        let seq = message.as_object_mut().and_then(|it| it.remove("seq"));
        assert_eq!(message, expected);
        editor.event(json!({"type": "applied", "seq": seq}));
        assert!(agent.wait().expect("nb ends").success());
        assert_eq!(editor.next()["type"], "synced");
    };
    let clear = ["clear", "t.ipynb", "bbbb"];
    let none = json!({
        "doc": "d", "type": "outputs", "cell": "e2", "outputs": [], "execution_count": null, "by": "claude",
    });
    expect(&mut editor, &clear, none);
    let tag = ["edit", "t.ipynb", "bbbb", "--meta", "tags=[\"slow\"]"];
    let tags = json!({
        "doc": "d", "type": "metadata", "cell": "e2", "was": {}, "metadata": {"tags": ["slow"]}, "by": "claude",
    });
    expect(&mut editor, &tag, tags);
}

#[test]
fn the_outputs_of_a_run_reach_the_editor_once_at_its_end() {
    let world = World::opened();
    let code = "import time\nfor number in range(3):\n    print(number)\n    time.sleep(0.4)";
    nb(&world, ["--as", "claude", "insert", "t.ipynb", code]).ended(0);
    let path = world.project().join("t.ipynb");
    let before: Value =
        serde_json::from_slice(&std::fs::read(&path).expect("read it")).expect("it is JSON");
    let mut editor = Editor::start(&world, &["change"], path);
    let id = &before["cells"][0]["id"];
    let cells = json!([{"cell": "e1", "id": id, "cell_type": "code", "source": code}]);
    editor.event(json!({
        "type": "open", "notebook": editor.notebook, "cells": cells, "dirty": false,
    }));
    assert_eq!(editor.next()["type"], "synced");
    let mut command = world.nb();
    command.args(["--as", "claude", "exec", "t.ipynb", "0"]);
    let mut agent = command
        .stdout(Stdio::null())
        .spawn()
        .expect("start nb exec");
    let mut outputs = Vec::new();
    loop {
        let message = editor.next();
        if message["type"] == "synced" {
            break;
        }
        editor.event(json!({"type": "applied", "seq": message["seq"]}));
        if message["type"] == "outputs" {
            assert!(
                !text(&editor).contains("stdout"),
                "the file has them already"
            );
            outputs.push(message);
        }
    }
    assert!(agent.wait().expect("nb exec ends").success());
    let [outputs] = &outputs[..] else {
        panic!("{outputs:?}");
    };
    assert_eq!(outputs["execution_count"], 1);
    assert_eq!(outputs["outputs"][0]["text"], json!(["0\n", "1\n", "2\n"]));
    assert!(text(&editor).contains("stdout"));
}

/// Proposes a change as a command of nb does, and prints whether it is listened to.
const PROPOSES: &str = r#"
import hashlib, json, pathlib, socket, sys
pid, notebook = sys.argv[1:]
before = pathlib.Path(notebook).read_bytes()
after = before.replace(b"bbbb = 1", b"attack = 1")
folder = pathlib.Path("/tmp") / f"nb-{pathlib.Path(notebook).stat().st_uid}"
stream = socket.socket(socket.AF_UNIX)
stream.connect(str(folder / f"live-{pid}"))
line = {"notebook": notebook, "before": hashlib.sha256(before).hexdigest(), "bytes": len(after), "by": "human"}
try:
    stream.sendall(json.dumps(line).encode() + b"\n" + after)
    print("listened to" if stream.recv(100) else "refused")
except (BrokenPipeError, ConnectionResetError):
    print("refused")
"#;

/// Such a process may reach the socket if it may use the network, and cannot write each notebook that is open.
#[test]
#[cfg(target_os = "linux")]
fn a_process_in_a_sandbox_changes_nothing_in_an_editor() {
    let world = World::new();
    let mut editor = Editor::open(&world, &["change"]);
    let real = editor.notebook.canonicalize().expect("it is there");
    let python = crate::python::interpreter();
    let proposes = |mut command: Command| {
        command
            .args(["-c", PROPOSES])
            .arg(editor.live.id().to_string());
        succeed(command.arg(&real)).trim().to_owned()
    };
    let mut confined = world.command(Path::new("setpriv"));
    confined.arg("--no-new-privs").arg(python);
    assert_eq!(proposes(confined), "refused");
    // One of this user's own processes is waited for.
    assert_eq!(proposes(world.command(python)), "listened to");
    assert_eq!(editor.next()["source"], "attack = 1");
    editor.event(json!({"type": "applied", "seq": 1}));
    // It does not write what it proposed.
    let set = editor.next();
    assert_eq!(
        (&set["seq"], &set["source"]),
        (&json!(2), &json!("bbbb = 1"))
    );
}

#[test]
fn what_is_saved_in_an_editor_is_its_persons_in_the_journal() {
    let world = World::new();
    let mut editor = Editor::open(&world, &[]);
    let saves = |editor: &mut Editor, was: &str, source: &str| {
        editor.types("e1", source);
        editor.recorded(&[source]);
        editor.event(json!({"type": "saving"}));
        editor.event(json!({"type": "saved", "order": ["e1", "e2"]}));
        std::fs::write(&editor.notebook, text(editor).replace(was, source)).expect("save it");
        editor.recorded(&[]);
    };
    saves(&mut editor, "aaaa = 1", "typed = 1");
    nb(&world, ["cells", "t.ipynb"]).ended(0);
    let log = || nb(&world, ["log", "t.ipynb"]).ended(0).stdout;
    assert!(
        log().contains("human (VS Code) saved: edited aaaa"),
        "{}",
        log()
    );
    // It is known of a save right before the end, too.
    saves(&mut editor, "typed = 1", "typed = 2");
    editor.event(json!({"type": "closed"}));
    until("the document is closed", || {
        let record = editor.record();
        record
            .is_none_or(|it| it["notebooks"] == json!([]))
            .then_some(())
    });
    assert_eq!(
        log().matches("human (VS Code) saved: edited aaaa").count(),
        2,
        "{}",
        log()
    );
    // Another program's change is nobody's.
    std::fs::write(
        &editor.notebook,
        text(&editor).replace("typed = 2", "script = 1"),
    )
    .expect("write it");
    nb(&world, ["cells", "t.ipynb"]).ended(0);
    assert!(log().contains("somebody saved: edited aaaa"), "{}", log());
}

#[test]
fn an_edit_in_a_room_is_written_by_its_server_once_the_editor_has_it() {
    let world = World::new();
    let mut editor = Editor::in_room(&world);
    // Another program's change is the room's to take in.
    let before = text(&editor).replace("aaaa = 1", "other = 1");
    std::fs::write(&editor.notebook, &before).expect("write it");
    assert_eq!(editor.next()["type"], "synced");
    editor.types("e1", "other = 1");
    let mut agent = begin_edit(&world, "bbbb", "agent = 1");
    editor.does_set("bbbb = 1", "agent = 1");
    let store = editor.next();
    assert_eq!(store["type"], "store");
    assert_eq!(text(&editor), before);
    // What a person types meanwhile is stored with it.
    editor.types("e1", "typed = 1");
    editor.event(json!({"type": "applied", "seq": store["seq"]}));
    assert!(agent.try_wait().expect("look at nb edit").is_none());
    let stored: Value = serde_json::from_str(
        &before
            .replace("other = 1", "typed = 1")
            .replace("bbbb = 1", "agent = 1"),
    )
    .expect("it is JSON");
    let stored = serde_json::to_string_pretty(&stored).expect("it is JSON");
    std::fs::write(&editor.notebook, &stored).expect("write it");
    assert!(agent.wait().expect("nb edit ends").success());
    assert_eq!(text(&editor), stored, "nb has not written it");
    let log = nb(&world, ["log", "t.ipynb"]).ended(0).stdout;
    assert!(log.contains("claude edited bbbb"), "{log}");
}

#[test]
fn an_edit_in_a_room_waits_for_a_slow_page_and_is_refused_beside_a_silent_one() {
    let world = World::new();
    let mut editor = Editor::in_room(&world);
    let before = text(&editor);
    let words = ["--as", "claude", "edit", "t.ipynb", "bbbb", "agent = 1"];
    let refused = nb(&world, words).ended(5).with("does not answer");
    let error = refused.with("repeat it in a moment").stderr;
    assert!(!error.contains("nb serve"), "{error}");
    assert_eq!(text(&editor), before);
    let set = editor.next();
    assert_eq!(set["source"], "agent = 1");
    // It is waited for again, for longer than an editor that is in no room.
    let mut agent = begin_edit(&world, "bbbb", "agent = 1");
    let late = Duration::from_millis(1500);
    assert!(editor.messages.recv_timeout(late).is_err());
    editor.event(json!({"type": "applied", "seq": set["seq"]}));
    let store = editor.next();
    assert_eq!(store["type"], "store");
    editor.event(json!({"type": "applied", "seq": store["seq"]}));
    let stored = before.replace("bbbb = 1", "agent = 1");
    std::fs::write(&editor.notebook, &stored).expect("write it");
    assert!(agent.wait().expect("nb edit ends").success());
}
