//! The history of a real file, by `nb`'s own edits and a stranger's saves.

use std::path::Path;

use super::*;
use crate::notebook::{Change, Document, Operation, new_notebook};
use crate::ops::edit::{self, Done, EditError, Editor};
use crate::ops::page::Page;
use crate::ops::view;
use crate::project::journal::Entry;

/// A notebook in a project of its own.
struct Desk {
    _temp: tempfile::TempDir,
    page: Page,
}

impl Desk {
    /// With cells `id:source`.
    fn new(cells: &str) -> Self {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("a.ipynb");
        std::fs::write(&path, new_notebook("python3", "Python 3", "python")).unwrap();
        let page = Page::of(&path).unwrap();
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

    fn path(&self) -> &Path {
        &self.page.real
    }

    fn text(&self) -> Vec<u8> {
        std::fs::read(self.path()).unwrap()
    }

    /// Saves as a program does that knows nothing of `nb`.
    fn save(&self, change: impl FnOnce(&Document) -> Document) {
        let document = Document::parse(self.text()).unwrap();
        std::fs::write(self.path(), change(&document).to_bytes()).unwrap();
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

    fn entries(&self) -> Vec<Entry> {
        self.page.project.journal_entries().unwrap()
    }

    /// The journal in short: event, by and what was done to which cell.
    fn journal(&self) -> Vec<String> {
        let entries = self.entries();
        let said = entries.iter().map(|entry| {
            let recorded = Recorded::of(entry).unwrap();
            let changes = recorded.changes.iter().map(|step| {
                let what = format!("{:?}", step.what).to_lowercase();
                format!(" {what} {}", step.cell)
            });
            let by = entry.by.as_deref().unwrap_or("-");
            format!("{} {by}{}", entry.event, changes.collect::<String>())
        });
        said.collect()
    }

    fn lost(&self, by: &str) -> Vec<(String, String)> {
        let lost = overwritten(&self.page.project, &self.page.key, by);
        lost.into_iter().map(|one| (one.cell, one.op)).collect()
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
    let recorded = Recorded::of(&desk.entries()[0]).unwrap();
    assert_eq!(recorded.op, done.op);
    assert_eq!(recorded.deed.as_deref(), Some("apply"));
    let document = desk.read("codex");
    assert_eq!(desk.entries().len(), 3, "reading it has changed nothing");
    let step = recorded
        .changes
        .iter()
        .find(|step| step.what == Change::Edited);
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
    std::fs::write(desk.path(), old).unwrap();
    desk.read("codex");
    assert_eq!(desk.lost("codex"), []);
    let lost = [("a", edited), ("mine", inserted), ("b", removed)];
    let lost = lost.map(|(cell, op)| (cell.to_owned(), op));
    assert_eq!(desk.lost("claude"), lost);
    assert_eq!(desk.lost("claude"), []);
    desk.read("claude");
    assert_eq!(desk.lost("claude"), []);
}
