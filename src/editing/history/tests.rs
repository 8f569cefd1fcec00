//! The history of a real file, by `nb`'s own edits and a stranger's saves.

use std::path::Path;

use super::*;
use crate::activity::notification::{Notifications, overwritten_words};
use crate::editing::edit::{self, Done, EditError, Editor};
use crate::editing::notebook_file::NotebookFile;
use crate::editing::view;
use crate::notebook::{CellSelector, ChangeKind, Document, Operation, new_notebook};
use crate::project::event::{Event, EventKind};

/// A notebook in a project of its own.
struct Desk {
    _temp: tempfile::TempDir,
    page: NotebookFile,
}

impl Desk {
    /// With cells `id:source`.
    fn new(cells: &str) -> Self {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("a.ipynb");
        std::fs::write(&path, new_notebook("python3", "Python 3", "python")).unwrap();
        let page = NotebookFile::of(&path).unwrap();
        let desk = Self { _temp: temp, page };
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
        &self.page.real
    }

    fn text(&self) -> Vec<u8> {
        std::fs::read(self.file()).unwrap()
    }

    /// Saves as a program does that knows nothing of `nb`.
    fn save(&self, change: impl FnOnce(&Document) -> Document) {
        let document = Document::parse(self.text()).unwrap();
        std::fs::write(self.file(), change(&document).to_bytes()).unwrap();
    }

    fn save_operations(&self, operations: &str) {
        self.save(|document| applied(document, operations));
    }

    fn edit(&self, by: &str, operations: &str) -> Result<Done, EditError> {
        let operations = Operation::read_list(operations).unwrap();
        let editor = Editor {
            by: by.to_owned(),
            force: false,
            now: true,
            must_have_seen: true,
            tell: |_| {},
        };
        edit::apply(&self.page, &operations, &editor)
    }

    /// Reads all cells under a name.
    fn read(&self, by: &str) -> Document {
        let view = view::open(&self.page, by).unwrap();
        view.document
            .cells()
            .iter()
            .for_each(|cell| view.shown(cell));
        view.remember();
        view.document
    }

    fn entries(&self) -> Vec<Event> {
        self.page.project.all_events()
    }

    /// The journal in short: event, by and what was done to which cell.
    fn journal(&self) -> Vec<String> {
        let entries = self.entries();
        let said = entries.iter().map(|entry| {
            let recorded = entry.change().unwrap();
            let changes = recorded.changes.iter().map(|step| {
                let what = format!("{:?}", step.what).to_lowercase();
                format!(" {what} {}", step.cell)
            });
            let by = entry.by.as_deref().unwrap_or("-");
            let kind = match entry.kind {
                EventKind::Edited(_) => "edited",
                _ => "saved",
            };
            format!("{kind} {by}{}", changes.collect::<String>())
        });
        said.collect()
    }

    fn lost(&self, by: &str) -> Vec<(String, String)> {
        let new = Notifications::of(&self.page.project, &self.page.key, by);
        new.delivered(&self.page.project, by);
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
fn what_nb_and_others_did_is_told_apart() {
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
    assert_eq!(recorded.deed.as_deref(), Some("apply"));
    let document = desk.read("codex");
    assert_eq!(desk.entries().len(), 3, "reading it has changed nothing");
    let step = recorded
        .changes
        .iter()
        .find(|step| step.what == ChangeKind::Edited);
    assert_eq!(step.unwrap().before, Some(a));
    assert_eq!(version_source(&desk.page, a).as_deref(), Some("1"));
    // A cell that a stranger removed is kept as it was.
    assert_eq!(version_source(&desk.page, c).as_deref(), Some("3"));
    let now = document.revision();
    assert_eq!(
        manifest_at(&desk.page, now),
        Some(steps::manifest(&document))
    );
    let first = manifest_at(&desk.page, recorded.before).unwrap();
    let ids: Vec<_> = first.iter().map(|(id, _)| &**id).collect();
    assert_eq!(ids, ["a", "b", "c"]);
    assert_eq!(first[0].1, a);
    assert_eq!(manifest_at(&desk.page, a), None);
}

#[test]
fn an_edit_that_a_save_wiped_out_is_told_to_whoever_made_it_once() {
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
        let ledger = |name: &str| desk.page.project.dir().join("notebooks").join(name);
        let name = std::fs::read_dir(ledger("")).unwrap().flatten();
        let name = name.map(|entry| entry.file_name().into_string().unwrap());
        let name = name.filter(|name| name.ends_with(".json")).last().unwrap();
        let before = desk.read("claude");
        let intended = applied(&before, r#"[{"op":"edit","cell":0,"source":"one"}]"#);
        let deed = Deed {
            op: "edit".to_owned(),
            ..Deed::default()
        };
        // Killed before the exchange, and one that was killed after it.
        let mut recording = Recording::edit(&desk.page, "claude");
        recording.intend(&before, &intended, &[], &deed);
        drop(recording);
        desk.read("codex");
        assert_eq!(desk.journal(), [""; 0]);
        let mut recording = Recording::edit(&desk.page, "claude");
        recording.intend(&before, &intended, &[], &deed);
        drop(recording);
        if journalled {
            // It got as far as the journal.
            let meant = std::fs::read(ledger(&name)).unwrap();
            std::fs::write(desk.file(), intended.to_bytes()).unwrap();
            desk.read("codex");
            std::fs::write(ledger(&name), meant).unwrap();
        }
        let human =
            r#"[{"op":"insert","id":"h","source":"h"},{"op":"edit","cell":1,"source":"3"}]"#;
        std::fs::write(desk.file(), applied(&intended, human).to_bytes()).unwrap();
        let document = desk.read("codex");
        let told = ["edited claude edited a", "saved - edited b inserted h"];
        assert_eq!(desk.journal(), told);
        desk.read("codex");
        assert_eq!(desk.journal(), told);
        let past = manifest_at(&desk.page, before.revision());
        assert_eq!(past, Some(steps::manifest(&before)));
        assert_eq!(
            manifest_at(&desk.page, document.revision()),
            Some(steps::manifest(&document))
        );
        assert_eq!(desk.lost("claude"), []);
        std::fs::write(desk.file(), before.to_bytes()).unwrap();
        desk.read("codex");
        assert_eq!(desk.lost("claude").len(), 1);
    }
}

#[test]
fn what_is_merged_into_a_save_is_told_apart_from_it() {
    let desk = Desk::new("a:1 b:2");
    let before = desk.read("claude");
    let mut saved = false;
    let editor = Editor {
        by: "claude".to_owned(),
        force: false,
        now: true,
        must_have_seen: true,
        tell: |_| {},
    };
    let deed = Deed {
        op: "edit".to_owned(),
        ..Deed::default()
    };
    let operations = r#"[{"op":"edit","cell":0,"source":"one"},{"op":"remove","cell":1}]"#;
    let operations = Operation::read_list(operations).unwrap();
    let done = edit::change(&desk.page, &editor, &deed, &[], |document| {
        if !std::mem::replace(&mut saved, true) {
            // Between the look and the exchange.
            desk.save_operations(r#"[{"op":"insert","at":0,"id":"h","source":"h"}]"#);
        }
        Ok(document.applied(&operations, &mut String::new)?)
    });
    let done = done.unwrap();
    assert_eq!(
        desk.journal(),
        ["saved - inserted h", "edited claude edited a removed b"]
    );
    assert_eq!(
        manifest_at(&desk.page, before.revision()),
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
            step.what,
            step.kept.as_ref().and_then(|name| kept(&desk.page, name)),
        )
    };
    let cell = |index: usize| Some(document.cells()[index].json());
    assert_eq!(kept("a"), (ChangeKind::Outputs, cell(0)));
    assert_eq!(kept("b"), (ChangeKind::Edited, None));
    assert_eq!(kept("c"), (ChangeKind::Removed, cell(2)));
}

#[test]
fn what_a_name_has_not_seen_it_does_not_change() {
    let desk = Desk::new("a:1 b:2");
    desk.read("claude");
    let human = r#"[{"op":"edit","cell":0,"source":"human"}]"#;
    desk.save_operations(human);
    let edit = r#"[{"op":"edit","cell":0,"source":"agent"}]"#;
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
    // Now it was shown.
    desk.edit("claude", edit).unwrap();
    // One's own text was seen; a cell that is new is one's own; a move asks for nothing.
    let more = r#"[{"op":"edit","cell":0,"source":"x"},{"op":"insert","id":"n"},
        {"op":"edit","cell":-1,"source":"y"},{"op":"move","cell":1,"to":0}]"#;
    desk.edit("claude", more).unwrap();
    assert!(matches!(
        desk.edit("codex", edit),
        Err(EditError::Unseen { .. })
    ));
    let revision = desk.read("nobody").cells()[1].revision();
    let said = format!(r#"[{{"op":"remove","cell":1,"if_rev":"{revision}"}}]"#);
    desk.edit("third", &said).unwrap();
}

#[test]
fn who_saved_is_the_one_whose_front_end_is_joined() {
    let desk = Desk::new("a:1");
    desk.read("claude");
    let join = |file: &str, front_end: &str, session: &str| {
        // One process stands for all of them.
        let own = crate::kernel::process::Process::current();
        let joined = serde_json::json!({
            "pid": own.pid, "start_time": own.start_time, "boot_id": own.boot_id,
            "session": session, "front_end": front_end, "since": jiff::Timestamp::now(),
        });
        let folder = desk.page.project.make_folder("proxies").unwrap();
        std::fs::write(folder.join(file), joined.to_string()).unwrap();
    };
    let save = |source: &str| {
        let edit = format!(r#"[{{"op":"edit","cell":0,"source":"{source}"}}]"#);
        desk.save_operations(&edit);
        desk.read("claude");
        desk.entries().pop().unwrap().by
    };
    join("1.json", "VS Code", "a.ipynb");
    join("2.json", "JupyterLab", "b.ipynb");
    assert_eq!(save("2").as_deref(), Some("human (VS Code)"));
    join("3.json", "VS Code", "a.ipynb");
    assert_eq!(save("3").as_deref(), Some("human (VS Code)"));
    join("4.json", "JupyterLab", "a.ipynb");
    assert_eq!(save("4"), None);
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
            // As by a merge of `nb`'s, into another file.
            let other = desk.file().with_extension("tmp");
            std::fs::write(&other, deleted).unwrap();
            std::fs::rename(other, desk.file()).unwrap();
        }
        desk.read("codex");
        assert_eq!(desk.lost("claude").len(), usize::from(!in_place));
    }
}

#[test]
fn where_no_code_is_kept_an_overwritten_edit_is_told_and_nothing_promised() {
    let desk = Desk::new("a:1");
    let config = desk.page.project.dir().join("config.toml");
    std::fs::write(config, "journal.code = false").unwrap();
    desk.read("claude");
    let old = desk.text();
    let edit = r#"[{"op":"edit","cell":0,"source":"secret"}]"#;
    desk.edit("claude", edit).unwrap();
    std::fs::write(desk.file(), old).unwrap();
    desk.read("codex");
    let lost = Notifications::of(&desk.page.project, &desk.page.key, "claude").overwritten;
    assert_eq!((lost.len(), lost[0].revision), (1, None));
    assert!(
        !overwritten_words(&lost)[0].contains("nb restore"),
        "{lost:?}"
    );
    assert!(!desk.page.project.dir().join("objects").exists());
    let journal = std::fs::read_to_string(desk.page.project.journal_file()).unwrap();
    assert!(!journal.contains("secret"), "{journal}");
}

/// A notebook of format 4.4, as an older Jupyter wrote it: no cell has an id in the file.
const OLD: &str = "{\n \"cells\": [\n  {\n   \"cell_type\": \"code\",\n   \"execution_count\": 3,\n   \"metadata\": {},\n   \"outputs\": [],\n   \"source\": [\n    \"lr = 0.1\"\n   ]\n  },\n  {\n   \"cell_type\": \"markdown\",\n   \"metadata\": {},\n   \"source\": \"# Title\"\n  },\n  {\n   \"cell_type\": \"code\",\n   \"execution_count\": 4,\n   \"metadata\": {},\n   \"outputs\": [\n    {\n     \"name\": \"stdout\",\n     \"output_type\": \"stream\",\n     \"text\": [\n      \"hi\\n\"\n     ]\n    }\n   ],\n   \"source\": [\n    \"print('hi')\"\n   ]\n  }\n ],\n \"metadata\": {},\n \"nbformat\": 4,\n \"nbformat_minor\": 4\n}\n";

impl Desk {
    fn old() -> Self {
        let desk = Self::new("a:1");
        let _ = std::fs::remove_dir_all(desk.page.project.dir().join("notebooks"));
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
        undo(&self.page, op, &editor("claude"))
    }
}

fn editor(by: &str) -> Editor {
    Editor {
        by: by.to_owned(),
        force: false,
        now: true,
        must_have_seen: true,
        tell: |_| {},
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
    // Somebody saves who knows nothing of the names: a cell more, one edited, another style.
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
    // An edit goes by the name.
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
            // And again.
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
    // The edit takes its outputs along, so that the version is kept with them.
    desk.edit(
        "claude",
        r#"[{"op":"clear","cells":["2"]},{"op":"edit","cell":2,"source":"other"}]"#,
    )
    .unwrap();
    let id = desk.ids()[2].clone();
    let selector = CellSelector::Id(id);
    let restored = restore(
        &desk.page,
        &selector,
        Some(&first.to_string()),
        &editor("claude"),
    );
    restored.unwrap();
    assert_eq!(desk.read("claude").cells()[2].outputs().count(), 1);
    // A person changes the cell's metadata meanwhile, so that its bytes are others.
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
fn what_somebodys_save_has_dropped_is_named_before_anything_else_is_touched() {
    let desk = Desk::new("a:1 b:2");
    desk.read("claude");
    let first = desk
        .edit("claude", r#"[{"op":"edit","cell":"0","source":"first"}]"#)
        .unwrap();
    let opened = desk.text();
    let second = desk
        .edit("claude", r#"[{"op":"edit","cell":"1","source":"second"}]"#)
        .unwrap();
    // The editor had it open from before.
    std::fs::write(desk.file(), &opened).unwrap();
    let error = desk.undo(None).unwrap_err();
    let UndoError::Gone { gone, next, .. } = error else {
        panic!("{error}");
    };
    assert_eq!(
        gone.iter()
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
fn no_edit_leaves_the_size_of_the_file_as_it_was() {
    let desk = Desk::old();
    desk.read("claude");
    let mut sizes = vec![desk.text().len()];
    for (old, new) in [("0.1", "0.5"), ("0.5", "0.9"), ("0.9", "0.1")] {
        let operation = format!(r#"[{{"op":"replace","cell":0,"old":"{old}","new":"{new}"}}]"#);
        desk.edit("claude", &operation).unwrap();
        let size = desk.text().len();
        assert!(!sizes.contains(&size), "{size} {sizes:?}");
        sizes.push(size);
    }
    // Only the line differs, and no text of the user's has a space more.
    let before: Vec<_> = OLD.lines().collect();
    let after = desk.string();
    let after: Vec<_> = after.lines().collect();
    let other = before.iter().zip(&after).filter(|(a, b)| a != b).count();
    assert_eq!((after.len(), other), (before.len(), 1));
    assert_eq!(desk.read("claude").cells()[0].source(), "lr = 0.1");
    for _ in 0..3 {
        desk.undo(None).unwrap();
    }
    assert_eq!(desk.string(), OLD);
}
