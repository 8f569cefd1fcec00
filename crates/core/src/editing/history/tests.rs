//! Tests of the history on a real file, with `nb`'s own edits and another program's saves.

use std::path::Path;

use super::*;
use crate::activity::notification::{Notifications, PendingNotices, overwritten_words};
use crate::editing::edit::{self, EditError, EditOutcome, Editor};
use crate::editing::notebook_file::NotebookFile;
use crate::editing::unseen::EditBasis;
use crate::editing::view::{self, PendingCells};
use crate::notebook::{CellSelector, ChangeKind, Document, Operation, new_notebook};
use crate::project::event::{Event, EventKind};

/// A notebook in a project of its own.
struct Desk {
    _temp: tempfile::TempDir,
    notebook: NotebookFile,
}

impl Desk {
    /// Makes a notebook with cells `id:source`.
    fn new(cells: &str) -> Self {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("a.ipynb");
        std::fs::write(&path, new_notebook("python3", "Python 3", "python")).unwrap();
        let notebook = NotebookFile::of(&path).unwrap();
        let desk = Self {
            _temp: temp,
            notebook,
        };
        desk.save(|document| {
            let mut document = document.clone();
            for (index, cell) in cells.split_whitespace().enumerate() {
                let (id, source) = cell.split_once(':').unwrap();
                let operation =
                    format!(r#"[{{"op":"insert","id":"{id}","at":{index},"source":"{source}"}}]"#);
                document = applied(&document, &operation);
            }
            document
        });
        desk
    }

    fn file(&self) -> &Path {
        &self.notebook.real
    }

    fn text(&self) -> Vec<u8> {
        std::fs::read(self.file()).unwrap()
    }

    /// Saves like a program that does not know `nb`.
    fn save(&self, change: impl FnOnce(&Document) -> Document) {
        let document = Document::parse(self.text()).unwrap();
        std::fs::write(self.file(), change(&document).to_bytes()).unwrap();
    }

    fn save_operations(&self, operations: &str) {
        self.save(|document| applied(document, operations));
    }

    /// Edits, and gets the answer printed.
    fn edit(&self, by: &str, operations: &str) -> Result<EditOutcome, EditError> {
        let editor = editor(by);
        let done = self.edit_unprinted(&editor, operations);
        editor.shown.delivered();
        done
    }

    fn edit_unprinted(&self, editor: &Editor, operations: &str) -> Result<EditOutcome, EditError> {
        let operations = Operation::read_list(operations).unwrap();
        edit::apply(&self.notebook, &operations, editor)
    }

    /// Reads all cells under a name.
    fn read(&self, by: &str) -> Document {
        let view = view::open(&self.notebook, by).unwrap();
        view.document
            .cells()
            .iter()
            .for_each(|cell| view.shown(cell));
        let document = view.document.clone();
        view.into_shown().remember();
        document
    }

    fn entries(&self) -> Vec<Event> {
        self.notebook.project.all_events()
    }

    /// Returns the journal in short: event, actor, and the change of each cell.
    fn journal(&self) -> Vec<String> {
        let entries = self.entries();
        let texts = entries.iter().map(|entry| {
            let recorded = entry.change().unwrap();
            let changes = recorded.changes.iter().map(|step| {
                let kind = format!("{:?}", step.kind).to_lowercase();
                format!(" {kind} {}", step.cell)
            });
            let by = entry.by.as_deref().unwrap_or("-");
            let kind = match entry.kind {
                EventKind::Edited(_) => "edited",
                _ => "saved",
            };
            format!("{kind} {by}{}", changes.collect::<String>())
        });
        texts.collect()
    }

    fn lost(&self, by: &str) -> Vec<(String, String)> {
        let state = self.notebook.project.state().unwrap();
        let new = Notifications::of(&self.notebook.project, &state, &self.notebook.key, by);
        new.delivered(&self.notebook.project, by);
        new.overwritten
            .into_iter()
            .map(|one| (one.cell, one.op))
            .collect()
    }
}

fn applied(document: &Document, operations: &str) -> Document {
    let operations = Operation::read_list(operations).unwrap();
    let fresh = &mut || "fresh".to_owned();
    document.applied(&operations, fresh).unwrap().0
}

#[test]
fn edits_and_other_programs_saves_are_distinguished() {
    let desk = Desk::new("a:1 b:2 c:3");
    desk.read("claude");
    assert_eq!(desk.journal(), [""; 0]);
    let done = desk.edit("claude", r#"[{"op":"edit","cell":"aaa","source":"x"}]"#);
    assert!(done.is_err());
    let at = |index: usize| desk.read("claude").cells()[index].revision();
    let (a, c) = (at(0), at(2));
    let done = desk
        .edit(
            "claude",
            r#"[{"op":"edit","cell":0,"source":"one"},{"op":"move","cell":0,"to":2}]"#,
        )
        .unwrap();
    desk.save_operations(
        r#"[{"op":"remove","cell":1},{"op":"insert","at":0,"id":"new","source":"h"}]"#,
    );
    desk.edit("codex", r#"[{"op":"insert","id":"mine","source":"w"}]"#)
        .unwrap();
    assert_eq!(
        desk.journal(),
        [
            "edited claude moved a edited a",
            "saved - removed c inserted new",
            "edited codex inserted mine",
        ]
    );
    let recorded = desk.entries()[0].change().unwrap().clone();
    assert_eq!(recorded.op, done.op);
    assert_eq!(recorded.command.as_deref(), Some("apply"));
    let document = desk.read("codex");
    assert_eq!(desk.entries().len(), 3, "reading it has changed nothing");
    let step = recorded
        .changes
        .iter()
        .find(|step| step.kind == ChangeKind::Edited);
    assert_eq!(step.unwrap().before, Some(a));
    assert_eq!(version_source(&desk.notebook, a).as_deref(), Some("1"));
    // A cell that another program removed is stored.
    assert_eq!(version_source(&desk.notebook, c).as_deref(), Some("3"));
    let now = document.revision();
    assert_eq!(
        manifest_at(&desk.notebook, now),
        Some(steps::manifest(&document))
    );
    let first = manifest_at(&desk.notebook, recorded.before).unwrap();
    let ids: Vec<_> = first.iter().map(|(id, _)| &**id).collect();
    assert_eq!(ids, ["a", "b", "c"]);
    assert_eq!(first[0].1, a);
    assert_eq!(manifest_at(&desk.notebook, a), None);
}

#[test]
fn an_overwritten_edit_is_reported_once_to_its_actor() {
    let desk = Desk::new("a:1 b:2 c:3");
    desk.read("claude");
    let old = desk.text();
    let op = |operations: &str| desk.edit("claude", operations).unwrap().op.unwrap();
    let edited = op(r#"[{"op":"edit","cell":0,"source":"one"}]"#);
    let inserted = op(r#"[{"op":"insert","id":"mine","source":"w"}]"#);
    let removed = op(r#"[{"op":"remove","cell":1}]"#);
    assert_eq!(desk.lost("claude"), []);
    std::fs::write(desk.file(), old).unwrap();
    desk.read("codex");
    assert_eq!(desk.lost("codex"), []);
    let lost = [("a", edited), ("mine", inserted), ("b", removed)];
    let lost = lost.map(|(cell, op)| (cell.to_owned(), op));
    assert_eq!(desk.lost("claude"), lost);
    assert_eq!(desk.lost("claude"), []);
    desk.read("claude");
    assert_eq!(desk.lost("claude"), []);
}

#[test]
fn an_edit_whose_process_was_killed_is_no_humans() {
    for journalled in [false, true] {
        let desk = Desk::new("a:1 b:2");
        desk.read("claude");
        let ledger = |name: &str| desk.notebook.project.dir().join("notebooks").join(name);
        let name = std::fs::read_dir(ledger("")).unwrap().flatten();
        let name = name.map(|entry| entry.file_name().into_string().unwrap());
        let name = name.filter(|name| name.ends_with(".json")).last().unwrap();
        let before = desk.read("claude");
        let intended = applied(&before, r#"[{"op":"edit","cell":0,"source":"one"}]"#);
        let command = EditCommand {
            name: "edit".to_owned(),
            ..EditCommand::default()
        };
        // One process is killed before the exchange, one after it.
        let mut recording = Recording::edit(&desk.notebook, "claude", &command);
        recording.intend(&before, &intended, &[]);
        drop(recording);
        desk.read("codex");
        assert_eq!(desk.journal(), [""; 0]);
        let mut recording = Recording::edit(&desk.notebook, "claude", &command);
        recording.intend(&before, &intended, &[]);
        drop(recording);
        if journalled {
            // The process has written to the journal, but not to the ledger.
            let meant = std::fs::read(ledger(&name)).unwrap();
            std::fs::write(desk.file(), intended.to_bytes()).unwrap();
            desk.read("codex");
            std::fs::write(ledger(&name), meant).unwrap();
        }
        let human =
            r#"[{"op":"insert","id":"h","source":"h"},{"op":"edit","cell":1,"source":"3"}]"#;
        std::fs::write(desk.file(), applied(&intended, human).to_bytes()).unwrap();
        let document = desk.read("codex");
        let expected = ["edited claude edited a", "saved - edited b inserted h"];
        assert_eq!(desk.journal(), expected);
        desk.read("codex");
        assert_eq!(desk.journal(), expected);
        let past = manifest_at(&desk.notebook, before.revision());
        assert_eq!(past, Some(steps::manifest(&before)));
        assert_eq!(
            manifest_at(&desk.notebook, document.revision()),
            Some(steps::manifest(&document))
        );
        assert_eq!(desk.lost("claude"), []);
        std::fs::write(desk.file(), before.to_bytes()).unwrap();
        desk.read("codex");
        assert_eq!(desk.lost("claude").len(), 1);
    }
}

#[test]
fn an_edit_merged_into_a_save_is_distinguished_from_it() {
    let desk = Desk::new("a:1 b:2");
    let before = desk.read("claude");
    let mut saved = false;
    let editor = editor("claude");
    let command = EditCommand {
        name: "edit".to_owned(),
        ..EditCommand::default()
    };
    let operations = r#"[{"op":"edit","cell":0,"source":"one"},{"op":"remove","cell":1}]"#;
    let operations = Operation::read_list(operations).unwrap();
    let done = edit::change(
        &desk.notebook,
        &editor,
        &command,
        &EditBasis::default(),
        |document| {
            if !std::mem::replace(&mut saved, true) {
                // A save between the read and the exchange.
                desk.save_operations(r#"[{"op":"insert","at":0,"id":"h","source":"h"}]"#);
            }
            Ok(document.applied(&operations, &mut String::new)?)
        },
    );
    let done = done.unwrap();
    assert_eq!(
        desk.journal(),
        ["saved - inserted h", "edited claude edited a removed b"]
    );
    assert_eq!(
        manifest_at(&desk.notebook, before.revision()),
        Some(steps::manifest(&before))
    );
    let document = desk.read("codex");
    assert_eq!(document.to_bytes(), done.document.to_bytes());
    assert_eq!(desk.journal().len(), 2);
}

#[test]
fn outputs_that_a_command_takes_away_are_kept() {
    let desk = Desk::new("a:1 b:2 c:3");
    let output = r#"{"output_type":"stream","name":"stdout","text":"out"}"#;
    let text = String::from_utf8(desk.text()).unwrap();
    let text = text.replace("\"outputs\": []", &format!("\"outputs\": [{output}]"));
    std::fs::write(desk.file(), text).unwrap();
    let document = desk.read("claude");
    let operations = r#"[{"op":"clear","cell":0},{"op":"edit","cell":1,"source":"two"},{"op":"remove","cell":2}]"#;
    desk.edit("claude", operations).unwrap();
    let recorded = desk.entries()[0].change().unwrap().clone();
    let kept = |cell: &str| {
        let mut steps = recorded.changes.iter().filter(|step| step.cell == cell);
        let step = steps.next().unwrap();
        (
            step.kind,
            step.kept
                .as_ref()
                .and_then(|name| kept(&desk.notebook, name)),
        )
    };
    let cell = |index: usize| Some(document.cells()[index].json());
    assert_eq!(kept("a"), (ChangeKind::Outputs, cell(0)));
    assert_eq!(kept("b"), (ChangeKind::Edited, None));
    assert_eq!(kept("c"), (ChangeKind::Removed, cell(2)));
}

/// The operation that sets the first cell's source.
fn set(source: &str) -> String {
    serde_json::json!([{"op": "edit", "cell": 0, "source": source}]).to_string()
}

#[test]
fn a_cell_that_no_other_actor_changed_need_not_be_seen() {
    let desk = Desk::new("a:1 b:2 c:3");
    desk.edit("claude", &set("one")).unwrap();
    desk.edit("claude", r#"[{"op":"remove","cell":1}]"#)
        .unwrap();
    // One's own edit was seen; another's was not.
    desk.edit("claude", &set("uno")).unwrap();
    desk.edit("codex", &set("eins")).unwrap_err();
    desk.edit("codex", r#"[{"op":"remove","cell":1}]"#).unwrap();
    assert_eq!(desk.read("codex").cells()[0].source(), "uno");
}

#[test]
fn others_changes_of_other_lines_are_merged_and_those_of_the_same_are_not() {
    let desk = Desk::new("a:1");
    let text = || desk.read("reader").cells()[0].source().into_owned();
    desk.edit("claude", &set("x = 1\ny = 2\nz = 3")).unwrap();
    desk.save_operations(&set("x = 10\ny = 2\nz = 3"));
    let done = desk.edit("claude", &set("x = 1\ny = 2\nz = 30")).unwrap();
    assert_eq!(text(), "x = 10\ny = 2\nz = 30");
    assert!(
        done.notes[0]
            .to_string()
            .contains("lines that others changed"),
        "{done:?}"
    );
    // The merged text was not shown: the next edit is of the actor's own text too.
    desk.edit("claude", &set("x = 1\ny = 2\nz = 31\nw"))
        .unwrap();
    assert_eq!(text(), "x = 10\ny = 2\nz = 31\nw");
    let Err(EditError::Unseen { conflicts }) =
        desk.edit("claude", &set("x = 11\ny = 2\nz = 31\nw"))
    else {
        panic!("both changed the first line")
    };
    assert_eq!(
        conflicts[0].base.as_deref(),
        Some("x = 1\ny = 2\nz = 31\nw")
    );
    // Now it was shown.
    desk.edit("claude", &set("x = 11\ny = 2\nz = 31\nw"))
        .unwrap();
    assert_eq!(text(), "x = 11\ny = 2\nz = 31\nw");
}

/// What a page or another front end writes from a text that it has shown before.
#[test]
fn a_text_that_is_rewritten_keeps_others_lines_and_is_refused_or_united_on_the_same_lines() {
    let desk = Desk::new("a:1");
    let text = || desk.read("reader").cells()[0].source().into_owned();
    let rewrite_from = |revision, source: &str, keeps_both| {
        let rewrite = edit::Rewrite {
            cell: CellSelector::Index(0),
            revision,
            base: "x = 1\ny = 2\nz = 3".to_owned(),
            source: source.to_owned(),
            keeps_both,
        };
        edit::rewrite(&desk.notebook, &rewrite, &editor("human"))
    };
    let rewrite = |source: &str, keeps_both| rewrite_from(None, source, keeps_both);
    desk.edit("claude", &set("x = 10\ny = 2\nz = 3")).unwrap();
    let done = rewrite("x = 1\ny = 2\nz = 30", false).unwrap();
    assert_eq!(text(), "x = 10\ny = 2\nz = 30");
    assert_eq!(done.changes.len(), 1, "{done:?}");
    let Err(EditError::Unseen { conflicts }) = rewrite("x = 11\ny = 2\nz = 3", false) else {
        panic!("both changed the first line")
    };
    assert_eq!(
        conflicts[0].theirs.as_deref(),
        Some("x = 10\ny = 2\nz = 30")
    );
    assert_eq!(
        conflicts[0].revision,
        desk.read("reader").cells()[0].revision().into()
    );
    assert_eq!(text(), "x = 10\ny = 2\nz = 30");
    rewrite("x = 11\ny = 2\nz = 3", true).unwrap();
    assert_eq!(text(), "x = 11\nx = 10\ny = 2\nz = 30");
    // An editor has only its own ends of lines: of a cell that nobody has changed its text is taken.
    desk.save_operations(&set("x = 1\r\ny = 2\r\nz = 3"));
    let revision = desk.read("reader").cells()[0].revision();
    rewrite_from(Some(revision), "x = 1\ny = 20\nz = 3", false).unwrap();
    assert_eq!(text(), "x = 1\ny = 20\nz = 3");
}

#[test]
fn an_edit_that_quotes_what_it_replaces_needs_no_look_at_the_rest() {
    let desk = Desk::new("a:1");
    desk.edit("claude", &set("x = 1\ny = 2\nz = 3")).unwrap();
    desk.save_operations(&set("x = 10\ny = 20\nz = 3"));
    let replace = |old: &str, new: &str| {
        let operation = serde_json::json!([{"op": "replace", "cell": 0, "old": old, "new": new}]);
        desk.edit("claude", &operation.to_string())
    };
    replace("z = 3", "z = 4").unwrap();
    replace("y = 2\n", "y = 3\n").unwrap_err();
    assert_eq!(
        desk.read("reader").cells()[0].source(),
        "x = 10\ny = 20\nz = 4"
    );
    // The rest was not seen.
    desk.edit("claude", &set("x = 2\ny = 2\nz = 4"))
        .unwrap_err();
}

#[test]
fn a_change_beside_the_text_shows_none_of_it() {
    for beside in [
        r#"[{"op":"edit","cell":0,"metadata":{"tags":["a"]}}]"#,
        r#"[{"op":"move","cell":1,"to":0},{"op":"move","cell":1,"to":0}]"#,
    ] {
        let desk = Desk::new("a:1 b:2");
        desk.read("claude");
        desk.save_operations(&set("human"));
        desk.edit("claude", beside).unwrap();
        desk.edit("claude", &set("agent")).unwrap_err();
        assert_eq!(desk.read("reader").cells()[0].source(), "human");
    }
}

#[test]
fn a_text_that_others_changed_is_not_split_unseen() {
    let desk = Desk::new("a:1");
    desk.edit("claude", &set("x = 1\ny = 2\nz = 3")).unwrap();
    desk.save_operations(&set("w = 0\nx = 1\ny = 2\nz = 3"));
    desk.edit("claude", r#"[{"op":"split","cell":0,"line":2}]"#)
        .unwrap_err();
    assert_eq!(desk.read("reader").cells().len(), 1);
}

#[test]
fn two_sessions_of_an_agent_are_two_who_see() {
    let desk = Desk::new("a:1");
    desk.edit("claude#00000001", &set("one")).unwrap();
    desk.edit("claude#00000002", &set("two")).unwrap_err();
    desk.edit("claude#00000002", &set("two")).unwrap();
    desk.edit("claude#00000001", &set("three")).unwrap_err();
}

#[test]
fn an_actor_does_not_change_a_cell_that_it_has_not_seen() {
    let desk = Desk::new("a:1 b:2");
    desk.read("claude");
    let human = r#"[{"op":"edit","cell":0,"source":"human"}]"#;
    desk.save_operations(human);
    let edit = r#"[{"op":"edit","cell":0,"source":"agent"}]"#;
    // A conflict that could not be printed has shown nothing.
    desk.edit_unprinted(&editor("claude"), edit).unwrap_err();
    let Err(EditError::Unseen { conflicts }) = desk.edit("claude", edit) else {
        panic!("it was not shown")
    };
    let [conflict] = &conflicts[..] else {
        panic!("{conflicts:?}")
    };
    let texts = [&conflict.base, &conflict.yours, &conflict.theirs];
    assert_eq!(
        texts.map(Option::as_deref),
        [Some("1"), Some("agent"), Some("human")]
    );
    let document = desk.read("nobody");
    assert_eq!(document.cells()[0].source(), "human");
    // The cell has now been shown.
    desk.edit("claude", edit).unwrap();
    // An actor's own text counts as seen, as does a new cell; a move needs nothing seen.
    let more = r#"[{"op":"edit","cell":0,"source":"x"},{"op":"insert","id":"n"},
        {"op":"edit","cell":-1,"source":"y"},{"op":"move","cell":1,"to":0}]"#;
    desk.edit("claude", more).unwrap();
    let others = r#"[{"op":"edit","cell":1,"source":"agent"}]"#;
    assert!(matches!(
        desk.edit("codex", others),
        Err(EditError::Unseen { .. })
    ));
    let revision = desk.read("nobody").cells()[1].revision();
    let operation = format!(r#"[{{"op":"remove","cell":1,"if_rev":"{revision}"}}]"#);
    desk.edit("third", &operation).unwrap();
}

#[test]
fn a_conflict_that_is_delivered_whole_counts_as_seen_however_long_it_is() {
    let desk = Desk::new("a:1");
    desk.read("codex");
    let long = "x = 1\\n".repeat(100);
    desk.save_operations(&format!(r#"[{{"op":"edit","cell":0,"source":"{long}"}}]"#));
    let edit = r#"[{"op":"edit","cell":0,"source":"agent"}]"#;
    for _ in 0..2 {
        let error = desk.edit("claude", edit).unwrap_err();
        assert_eq!(error.to_string(), "you have not seen the cell as it is now");
    }
    let editor = Editor {
        shows_whole: true,
        ..editor("claude")
    };
    desk.edit_unprinted(&editor, edit).unwrap_err();
    editor.shown.delivered();
    desk.edit("claude", edit).unwrap();
}

#[test]
fn a_joined_front_end_is_the_actor_of_a_save_only_with_evidence() {
    let desk = Desk::new("a:1");
    desk.read("claude");
    let join = |file: &str, front_end: &str, session: &str| {
        // This process stands for all front ends.
        let own = crate::kernel::process::Process::current();
        let joined = serde_json::json!({
            "pid": own.pid, "start_time": own.start_time, "boot_id": own.boot_id,
            "session": session, "front_end": front_end, "since": jiff::Timestamp::now(),
        });
        let folder = desk.notebook.project.make_folder("proxies").unwrap();
        std::fs::write(folder.join(file), joined.to_string()).unwrap();
    };
    let save = |source: &str| {
        let edit = format!(r#"[{{"op":"edit","cell":0,"source":"{source}"}}]"#);
        desk.save_operations(&edit);
        desk.read("claude");
        let event = desk.entries().pop().unwrap();
        let by = event.by.clone();
        (by, event.into_change().unwrap().joined)
    };
    let unknown = |joined: &[&str]| (None, joined.iter().map(|it| (*it).to_owned()).collect());
    let human = |via: &str| (Some(format!("human ({via})")), Vec::new());
    let ran = |by: &str, source: &str| {
        desk.notebook.project.record(&[crate::project::event::fixtures::event(
            serde_json::json!({"event": "requested", "msg_id": source, "by": by, "code": source}),
        )]);
    };
    join("1.json", "JupyterLab", "b.ipynb");
    assert_eq!(save("2"), unknown(&[]));
    join("2.json", "VS Code", "a.ipynb");
    // Any program may have written that: git, sed, a script.
    assert_eq!(save("3"), unknown(&["VS Code"]));
    // The front end has just run this text.
    ran("human (VS Code)", "4");
    assert_eq!(save("4"), human("VS Code"));
    // What it ran before the last change does not count, nor what others ran.
    ran("human (VS Code)", "5");
    desk.edit("claude", r#"[{"op":"edit","cell":0,"source":"6"}]"#)
        .unwrap();
    ran("claude", "5");
    assert_eq!(save("5"), unknown(&["VS Code"]));
    join("3.json", "JupyterLab", "a.ipynb");
    assert_eq!(save("7"), unknown(&["JupyterLab", "VS Code"]));
    ran("human (VS Code)", "8");
    assert_eq!(save("8"), human("VS Code"));
    // A person saved in JupyterLab, which has copied the file with its time.
    let checkpoint = desk.file().with_file_name(".ipynb_checkpoints");
    std::fs::create_dir(&checkpoint).unwrap();
    let checkpoint = checkpoint.join("a-checkpoint.ipynb");
    desk.save_operations(r#"[{"op":"edit","cell":0,"source":"9"}]"#);
    let time = std::fs::metadata(desk.file()).unwrap().modified().unwrap();
    std::fs::copy(desk.file(), &checkpoint).unwrap();
    let copy = std::fs::File::options().append(true).open(&checkpoint);
    copy.unwrap().set_modified(time).unwrap();
    desk.read("claude");
    let event = desk.entries().pop().unwrap();
    assert_eq!(event.by.as_deref(), Some("human (JupyterLab)"));
    // A later checkout of the same text is no save.
    desk.edit("claude", r#"[{"op":"edit","cell":0,"source":"0"}]"#)
        .unwrap();
    std::fs::copy(&checkpoint, desk.file()).unwrap();
    desk.read("claude");
    assert_eq!(desk.entries().pop().unwrap().by, None);
}

#[test]
fn a_move_of_gits_head_that_changed_the_file_is_named() {
    let desk = Desk::new("a:1");
    desk.read("claude");
    let logs = desk.file().with_file_name(".git").join("logs");
    std::fs::create_dir_all(&logs).unwrap();
    desk.save_operations(r#"[{"op":"edit","cell":0,"source":"2"}]"#);
    let now = jiff::Timestamp::now().as_second();
    let line = format!("0 1 Ada <a@b> {now} +0000\tcheckout: moving from main to dev\n");
    std::fs::write(logs.join("HEAD"), line).unwrap();
    desk.read("claude");
    let change = desk.entries().pop().unwrap().into_change().unwrap();
    assert_eq!(
        change.git.as_deref(),
        Some("checkout: moving from main to dev")
    );
}

#[test]
fn a_person_who_has_seen_a_later_edit_has_decided_about_an_earlier_one() {
    for in_place in [true, false] {
        let desk = Desk::new("a:1 b:2");
        desk.read("claude");
        let edit = |operations: &str| desk.edit("claude", operations).unwrap();
        edit(r#"[{"op":"insert","id":"mine","source":"w"}]"#);
        edit(r#"[{"op":"edit","cell":0,"source":"one"}]"#);
        let deleted = applied(&desk.read("x"), r#"[{"op":"remove","cell":2}]"#).to_bytes();
        if in_place {
            std::fs::write(desk.file(), deleted).unwrap();
        } else {
            // Like a merge of `nb`, into another file.
            let other = desk.file().with_extension("tmp");
            std::fs::write(&other, deleted).unwrap();
            std::fs::rename(other, desk.file()).unwrap();
        }
        desk.read("codex");
        assert_eq!(desk.lost("claude").len(), usize::from(!in_place));
    }
}

#[test]
fn without_stored_code_an_overwritten_edit_is_reported_without_a_version() {
    let desk = Desk::new("a:1");
    let config = desk.notebook.project.dir().join("config.toml");
    std::fs::write(config, "journal.code = false").unwrap();
    desk.read("claude");
    let old = desk.text();
    let edit = r#"[{"op":"edit","cell":0,"source":"secret"}]"#;
    desk.edit("claude", edit).unwrap();
    std::fs::write(desk.file(), old).unwrap();
    desk.read("codex");
    let (project, key) = (&desk.notebook.project, &desk.notebook.key);
    let new = Notifications::of(project, &project.state().unwrap(), key, "claude");
    let lost = new.overwritten;
    assert_eq!((lost.len(), lost[0].revision), (1, None));
    assert!(
        !overwritten_words(&lost)[0]
            .to_string()
            .contains("nb restore"),
        "{lost:?}"
    );
    assert!(!desk.notebook.project.dir().join("objects").exists());
    let journal = std::fs::read_to_string(desk.notebook.project.journal_file()).unwrap();
    assert!(!journal.contains("secret"), "{journal}");
}

/// A notebook of format 4.4, as an older Jupyter wrote it: no cell has an id in the file.
const OLD: &str = "{\n \"cells\": [\n  {\n   \"cell_type\": \"code\",\n   \"execution_count\": 3,\n   \"metadata\": {},\n   \"outputs\": [],\n   \"source\": [\n    \"lr = 0.1\"\n   ]\n  },\n  {\n   \"cell_type\": \"markdown\",\n   \"metadata\": {},\n   \"source\": \"# Title\"\n  },\n  {\n   \"cell_type\": \"code\",\n   \"execution_count\": 4,\n   \"metadata\": {},\n   \"outputs\": [\n    {\n     \"name\": \"stdout\",\n     \"output_type\": \"stream\",\n     \"text\": [\n      \"hi\\n\"\n     ]\n    }\n   ],\n   \"source\": [\n    \"print('hi')\"\n   ]\n  }\n ],\n \"metadata\": {},\n \"nbformat\": 4,\n \"nbformat_minor\": 4\n}\n";

impl Desk {
    fn old() -> Self {
        let desk = Self::new("a:1");
        let _ = std::fs::remove_dir_all(desk.notebook.project.dir().join("notebooks"));
        std::fs::write(desk.file(), OLD).unwrap();
        desk
    }

    fn string(&self) -> String {
        String::from_utf8(self.text()).unwrap()
    }

    fn ids(&self) -> Vec<String> {
        let document = self.read("claude");
        let cells = document.cells().iter();
        cells.map(|cell| cell.id().to_owned()).collect()
    }

    fn undo(&self, op: Option<&str>) -> Result<Undone, UndoError> {
        undo(&self.notebook, op, &editor("claude"))
    }
}

fn editor(by: &str) -> Editor {
    Editor {
        by: by.to_owned(),
        force: false,
        now: true,
        must_have_seen: true,
        progress: |_| {},
        notices: PendingNotices::default(),
        shown: PendingCells::default(),
        shows_whole: false,
    }
}

#[test]
fn an_older_notebook_keeps_its_format_and_its_cells_keep_their_names() {
    let desk = Desk::old();
    let ids = desk.ids();
    let edit = |operations: &str| desk.edit("claude", operations).unwrap();
    edit(r#"[{"op":"replace","cell":0,"old":"0.1","new":"0.25"}]"#);
    assert_eq!(desk.string(), OLD.replace("0.1", "0.25"));
    assert_eq!(desk.ids(), ids);
    edit(r#"[{"op":"insert","at":0,"id":"mine","source":"new"},{"op":"move","cell":3,"to":1}]"#);
    let order = ["mine", &ids[2], &ids[0], &ids[1]];
    assert_eq!(desk.ids(), order);
    assert!(!desk.string().contains("\"id\""), "{}", desk.string());
    assert!(desk.string().contains("\"nbformat_minor\": 4\n"));
    // A program that does not know the ids saves: one cell more, one edited, another style.
    let text = desk.string().replace("# Title", "# A title");
    let mut value: serde_json::Value = serde_json::from_str(&text).unwrap();
    let theirs = serde_json::json!({"cell_type": "raw", "metadata": {}, "source": "theirs"});
    value["cells"].as_array_mut().unwrap().insert(1, theirs);
    std::fs::write(desk.file(), serde_json::to_string(&value).unwrap()).unwrap();
    let now = desk.ids();
    assert_eq!([&now[0], &now[2], &now[3], &now[4]], order);
    assert!(!now[1].is_empty() && !order.contains(&&*now[1]));
    assert_eq!(desk.ids(), now);
    assert_eq!(
        desk.journal().last().unwrap(),
        &format!("saved - edited {} inserted {}", ids[1], now[1])
    );
    // An edit finds its cell by the id.
    let operation = format!(r#"[{{"op":"edit","cell":"{}","source":"x"}}]"#, ids[1]);
    edit(&operation);
    assert_eq!(desk.read("claude").cells()[4].source(), "x");
    assert_eq!(desk.ids(), now);
}

#[test]
fn an_undo_leaves_no_byte_of_an_edit() {
    for operation in [
        r#"[{"op":"edit","cell":1,"source":"x"}]"#,
        r#"[{"op":"edit","cell":2,"type":"markdown"}]"#,
        r#"[{"op":"edit","cell":1,"type":"code"}]"#,
        r#"[{"op":"replace","cell":0,"old":"0.1","new":"0.5"}]"#,
        r#"[{"op":"insert","source":"new"}]"#,
        r#"[{"op":"remove","cells":["0","1"]}]"#,
        r#"[{"op":"remove","cells":["0","1","2"]}]"#,
        r#"[{"op":"move","cell":0,"to":2}]"#,
        r#"[{"op":"clear"}]"#,
        r#"[{"op":"join","cells":["0","1","2"]}]"#,
        r#"[{"op":"join","cells":["1","2"]},{"op":"split","cell":1,"line":1}]"#,
    ] {
        // In the classic style, in one line, and with the fields in another order.
        let value: serde_json::Value = serde_json::from_str(OLD).unwrap();
        let line = serde_json::to_string(&value).unwrap();
        let odd = OLD.replace("\n   \"metadata\": {},", "").replace(
            "\n   \"cell_type\"",
            "\n   \"metadata\" :{  },\n   \"cell_type\"",
        );
        for text in [OLD, &line, &odd] {
            let desk = Desk::old();
            std::fs::write(desk.file(), text).unwrap();
            desk.read("claude");
            let Ok(done) = desk.edit("claude", operation) else {
                panic!("{operation}");
            };
            let edited = desk.text();
            assert_ne!(edited.len(), text.len(), "{operation}");
            desk.undo(done.op.as_deref()).unwrap();
            assert_eq!(desk.string(), text, "{operation}");
            // The undo is undone.
            let undo = desk.entries().last().unwrap().change().unwrap().op.clone();
            desk.undo(undo.as_deref()).unwrap();
            assert_eq!(desk.text(), edited, "{operation}");
        }
    }
}

#[test]
fn a_cleared_count_comes_back_and_no_other_edit_is_taken_back_for_it() {
    let desk = Desk::old();
    desk.read("claude");
    desk.edit("claude", r#"[{"op":"edit","cell":1,"source":"kept"}]"#)
        .unwrap();
    let before = desk.text();
    let cleared = desk
        .edit("claude", r#"[{"op":"clear","cells":["0"]}]"#)
        .unwrap();
    assert!(cleared.op.is_some());
    assert_eq!(desk.read("claude").cells()[0].execution_count(), None);
    let undone = desk.undo(None).unwrap();
    assert_eq!(Some(undone.op.op), cleared.op);
    assert_eq!(desk.text(), before);
}

#[test]
fn outputs_that_a_restore_has_brought_go_with_its_undo() {
    let desk = Desk::old();
    desk.read("claude");
    let first = desk.read("claude").cells()[2].revision();
    // The edit removes the outputs, so the version is stored with them.
    desk.edit(
        "claude",
        r#"[{"op":"clear","cells":["2"]},{"op":"edit","cell":2,"source":"other"}]"#,
    )
    .unwrap();
    let id = desk.ids()[2].clone();
    let selector = CellSelector::Id(id);
    let restored = restore(
        &desk.notebook,
        &selector,
        Some(&first.to_string()),
        &editor("claude"),
    );
    restored.unwrap();
    assert_eq!(desk.read("claude").cells()[2].outputs().count(), 1);
    // A person changes the cell's metadata in between, so that its bytes differ.
    let text = desk.string();
    let at = text.rfind("\"metadata\": {},").unwrap();
    let text = format!(
        "{}\"metadata\": {{\"k\": 1}},{}",
        &text[..at],
        &text[at + 15..]
    );
    std::fs::write(desk.file(), text).unwrap();
    desk.undo(None).unwrap();
    let cell = desk.read("claude").cells()[2].clone();
    assert_eq!(cell.source(), "other");
    assert_eq!((cell.outputs().count(), cell.execution_count()), (0, None));
}

#[test]
fn an_undo_names_the_edits_that_a_save_has_dropped() {
    let desk = Desk::new("a:1 b:2");
    desk.read("claude");
    let first = desk
        .edit("claude", r#"[{"op":"edit","cell":"0","source":"first"}]"#)
        .unwrap();
    let opened = desk.text();
    let second = desk
        .edit("claude", r#"[{"op":"edit","cell":"1","source":"second"}]"#)
        .unwrap();
    // The editor has had the notebook open since before the edit.
    std::fs::write(desk.file(), &opened).unwrap();
    let error = desk.undo(None).unwrap_err();
    let UndoError::Gone {
        operations, next, ..
    } = error
    else {
        panic!("{error}");
    };
    assert_eq!(
        operations
            .iter()
            .map(|op| Some(op.op.clone()))
            .collect::<Vec<_>>(),
        [second.op]
    );
    assert_eq!(next.map(|op| op.op), first.op);
    assert_eq!(desk.text(), opened);
    desk.undo(first.op.as_deref()).unwrap();
    assert_eq!(desk.read("claude").cells()[0].source(), "1");
}

#[test]
fn an_edit_that_was_undone_is_not_lost_by_a_later_save() {
    let desk = Desk::new("a:original b:2");
    desk.read("claude");
    let edit = r#"[{"op":"edit","cell":"0","source":"quite new"}]"#;
    let edited = desk.edit("claude", edit).unwrap();
    let undone = desk.undo(None).unwrap();
    desk.save_operations(r#"[{"op":"edit","cell":"0","source":"a persons text"}]"#);
    desk.read("claude");
    assert_eq!(desk.lost("claude"), []);
    // If the undo is undone, the edit counts again.
    desk.save_operations(r#"[{"op":"edit","cell":"0","source":"original"}]"#);
    desk.undo(undone.done.op.as_deref()).unwrap();
    assert_eq!(desk.read("claude").cells()[0].source(), "quite new");
    desk.save_operations(r#"[{"op":"edit","cell":"0","source":"original"}]"#);
    desk.read("claude");
    assert_eq!(desk.lost("claude"), [("a".to_owned(), edited.op.unwrap())]);
}

#[test]
fn formatting_adds_no_space_to_a_file_that_keeps_its_size() {
    let desk = Desk::new("a:1 b:2");
    let jupyters = desk.string();
    // The same style, but for the place of one space.
    let other = jupyters.replacen("\"cell_type\": ", "\"cell_type\" :", 1);
    assert_ne!(other, jupyters);
    std::fs::write(desk.file(), &other).unwrap();
    let (found, _) = crate::editing::format::write(&desk.notebook, &editor("claude")).unwrap();
    assert!(found.differs);
    assert_eq!(desk.string(), jupyters);
}

#[test]
fn no_edit_gives_the_file_a_size_that_it_had_before() {
    let desk = Desk::old();
    desk.read("claude");
    let mut sizes = vec![desk.text().len()];
    let edits = [
        ("0.1", "0.5"),
        ("0.5", "0.9"),
        ("0.9", "0.75"),
        ("0.75", "0.3"),
        ("0.3", "0.1"),
    ];
    for (old, new) in edits {
        let operation = format!(r#"[{{"op":"replace","cell":0,"old":"{old}","new":"{new}"}}]"#);
        desk.edit("claude", &operation).unwrap();
        let size = desk.text().len();
        assert!(!sizes.contains(&size), "{size} {sizes:?}");
        sizes.push(size);
    }
    // Only this line differs; nothing else in the text changed.
    let before: Vec<_> = OLD.lines().collect();
    let after = desk.string();
    let after: Vec<_> = after.lines().collect();
    let other = before.iter().zip(&after).filter(|(a, b)| a != b).count();
    assert_eq!((after.len(), other), (before.len(), 1));
    assert_eq!(desk.read("claude").cells()[0].source(), "lr = 0.1");
    for _ in edits {
        desk.undo(None).unwrap();
    }
    assert_eq!(desk.string(), OLD);
}
