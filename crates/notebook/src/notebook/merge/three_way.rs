//! The three-way merge of a notebook: the base, the file now, and the base with a writer's edits.
//!
//! The result is the file's bytes with the writer's changes in them. Insertions of both sides stay, the
//! file's first. An edit wins over a deletion, and so do new outputs in the file. Moves are kept; if both
//! sides moved a cell, the file's position holds. Sources are merged by lines; if that is not possible, the
//! file's source stays and the writer gets a conflict.

use super::align::out_of_order;
use super::cell::{has_new_outputs, merge_cell, name_in_merged, outputs_lost, with_source};
use super::fields::merge_objects;
use super::split_join::SplitsAndJoins;
use super::three_versions::{ThreeVersions, position};
use crate::notebook::document::ids;
use crate::notebook::document::{Cell, Document, record_id, write_id};
use crate::notebook::edit::Conflict;
use std::collections::{HashMap, HashSet};

/// The result of a merge.
#[derive(Clone, Debug)]
pub struct MergedNotebook {
    /// The notebook to write: the file's bytes with the writer's changes.
    pub document: Document,
    /// The writer's changes that are not in the result.
    pub conflicts: Vec<Conflict>,
}

/// One cell of the result, and the index of the item after it.
struct Item {
    from: From,
    next: Option<usize>,
}

#[derive(Clone, Copy)]
enum From {
    /// Before the first cell.
    Begin,
    /// A cell of the file, which may also be in the writer's version.
    File(usize),
    /// A cell that only the writer has.
    Writer(usize),
}

/// Merges the writer's changes of `base` into the file.
///
/// `writer` is `base` after edits by this crate; `file` is the file now, which any program may have
/// written.
///
/// `runs` says for a cell's id whether the writer runs that cell: then outputs, count and times are the
/// writer's. Otherwise those of the later execution stay.
pub fn merge(
    base: &Document,
    file: &Document,
    writer: &Document,
    runs: &dyn Fn(&str) -> bool,
) -> MergedNotebook {
    let whole = |document: &Document| MergedNotebook {
        document: document.clone(),
        conflicts: Vec::new(),
    };
    if base.has_same_bytes(writer) || file.has_same_bytes(writer) {
        return whole(file);
    }
    if file.is_read_only() {
        let format = |(major, minor)| Some(format!("{major}.{minor}"));
        let conflicts = vec![Conflict {
            field: "nbformat".into(),
            base: format(base.nbformat),
            yours: format(writer.nbformat),
            theirs: format(file.nbformat),
            ..Conflict::default()
        }];
        return MergedNotebook {
            document: file.clone(),
            conflicts,
        };
    }
    if base.has_same_bytes(file) {
        return whole(writer);
    }
    ThreeVersions::of(base, file, writer).run(runs)
}

impl ThreeVersions<'_> {
    pub(super) fn run(&self, runs: &dyn Fn(&str) -> bool) -> MergedNotebook {
        let mut conflicts = Vec::new();
        let mut split_joined = self.splits_and_joins();
        let order = self.order(&split_joined, &mut conflicts);
        conflicts.append(&mut split_joined.conflicts);
        let item_layout = self.file.item_layout();
        let same_style = item_layout == self.writer.item_layout();
        let mut cells: Vec<Cell> = Vec::with_capacity(order.len());
        // The ids of cells that have none in the file.
        let mut names: Vec<Option<String>> = Vec::with_capacity(order.len());
        let mut unnamed: Vec<usize> = Vec::new();
        for from in order {
            let mut cell = match from {
                From::Begin => continue,
                From::Writer(at) => match self.writer.cells.get(at) {
                    Some(cell) => match split_joined.of_writer.get(&at) {
                        Some(Some(source)) => with_source(cell, source, &self.writer.style),
                        _ => cell.clone(),
                    },
                    None => continue,
                },
                From::File(at) => {
                    let Some(file) = self.file.cells.get(at) else {
                        continue;
                    };
                    let (base, writer) = self.counterparts_of_file(at);
                    match writer.and_then(|at| self.writer.cells.get(at)) {
                        Some(writer) => {
                            let base = base.and_then(|at| self.base.cells.get(at));
                            let style = &self.file.style;
                            let source = split_joined.of_file.get(&at);
                            merge_cell(base, file, writer, source, style, runs, &mut conflicts)
                        }
                        None => file.clone(),
                    }
                }
            };
            if matches!(from, From::Writer(_)) {
                if !same_style {
                    cell.rewrite(item_layout.value(&cell.text));
                }
                let id = cell.id.clone();
                match self.file.holds_ids() {
                    true if cell.own_id || !self.writer.holds_ids() => {
                        write_id(&mut cell, &id, &item_layout.deeper());
                    }
                    true => {}
                    false => record_id(&mut cell, &id),
                }
            }
            let of_base = match from {
                From::File(at) => position(&self.of_file, at),
                _ => None,
            };
            let of_base = of_base.and_then(|at| self.base.cells.get(at));
            if matches!(from, From::File(_)) && of_base.is_none() {
                unnamed.push(cells.len());
            }
            names.push(Some(
                of_base.map_or_else(|| cell.id.clone(), |base| base.id.clone()),
            ));
            // White space belongs to the position.
            let from_first = match from {
                From::File(at) => Some(at == 0),
                _ => None,
            };
            let first = cells.is_empty();
            if from_first != Some(first) {
                cell.before = match (first, self.file.cells.first()) {
                    (true, Some(first)) => first.before.clone(),
                    (true, None) => item_layout.lead.clone().into(),
                    (false, _) => self.file.between(),
                };
            }
            cells.push(cell);
        }
        let mut document = self.file.clone();
        document.close = match (cells.is_empty(), self.file.cells.is_empty()) {
            (true, false) => bytes::Bytes::new(),
            (false, true) => item_layout.close().to_owned().into(),
            _ => self.file.close.clone(),
        };
        document.cells = cells;
        // Names of the file's own new cells are assigned last, since so far they are guesses. None of them
        // gets the name of a removed cell of the base, which a conflict may mention.
        let in_base: HashSet<&str> = self.base.cells.iter().map(Cell::id).collect();
        let cells_recorded: Vec<bool> =
            document.cells.iter().map(|cell| cell.recorded_id).collect();
        let named: HashSet<String> = names
            .iter()
            .enumerate()
            .filter(|(at, _)| !unnamed.contains(at))
            .filter_map(|(_, name)| name.clone())
            .collect();
        for at in unnamed {
            if let Some(slot) = names.get_mut(at) {
                let guess = cells_recorded.get(at) == Some(&false);
                let is_free = |name: &String| {
                    !(named.contains(name) || guess && in_base.contains(name.as_str()))
                };
                *slot = slot.take().filter(is_free);
            }
        }
        let reserved = in_base.iter().map(|id| (*id).to_owned());
        let named = named.into_iter().chain(reserved).collect();
        ids::read(&mut document.cells);
        ids::name(&mut document.cells, names, named);
        self.merge_frame(&mut document, &mut conflicts);
        // The writer has raised the notebook to the format that has ids.
        if self.writer.nbformat.1 > self.file.nbformat.1.max(self.base.nbformat.1) {
            document.settle();
        }
        let revisions: HashMap<_, _> = document
            .cells()
            .iter()
            .map(|cell| (cell.id(), cell.revision()))
            .collect();
        for conflict in &mut conflicts {
            let revision = conflict
                .cell
                .as_deref()
                .and_then(|cell| revisions.get(cell));
            conflict.revision = revision.copied();
        }
        MergedNotebook {
            document,
            conflicts,
        }
    }

    /// Returns the cells of the result in their order.
    fn order(&self, split_joined: &SplitsAndJoins, conflicts: &mut Vec<Conflict>) -> Vec<From> {
        let moved_by_writer = out_of_order(&self.in_writer);
        let moved_by_file = out_of_order(&self.in_file);
        let is = |list: &[bool], at: usize| list.get(at) == Some(&true);
        let mut items = vec![Item {
            from: From::Begin,
            next: None,
        }];
        // For each of the writer's cells, the index of its item.
        let mut items_of_writer: Vec<Option<usize>> = vec![None; self.writer.cells.len()];
        let mut set = |writer: Option<usize>, item: usize| {
            if let Some(slot) = writer.and_then(|at| items_of_writer.get_mut(at)) {
                *slot = Some(item);
            }
        };
        for (at, file) in self.file.cells.iter().enumerate() {
            let (base, writer) = self.counterparts_of_file(at);
            if let Some(base) = base {
                if writer.is_some() && is(&moved_by_writer, base) && !is(&moved_by_file, base) {
                    continue;
                }
                if writer.is_none() && split_joined.joined.contains(&at) {
                    continue;
                }
                if writer.is_none() {
                    let old = self.base.cells.get(base);
                    let unchanged = old.is_some_and(|old| {
                        old.revision() == file.revision() && !has_new_outputs(old, file)
                    });
                    if unchanged && !split_joined.kept.contains(&at) {
                        continue;
                    }
                    conflicts.extend((!unchanged).then(|| Conflict {
                        cell: Some(name_in_merged(old, file).to_owned()),
                        field: "deleted".into(),
                        base: old.map(|old| old.source().into_owned()),
                        theirs: Some(file.source().into_owned()),
                        ..Conflict::default()
                    }));
                }
            }
            let item = items.len();
            if let Some(last) = items.last_mut() {
                last.next = Some(item);
            }
            items.push(Item {
                from: From::File(at),
                next: None,
            });
            set(writer, item);
        }
        let mut after = 0;
        for (at, cell) in self.writer.cells.iter().enumerate() {
            if let Some(item) = items_of_writer.get(at).copied().flatten() {
                after = item;
                continue;
            }
            if split_joined.of_writer.get(&at) == Some(&None) {
                continue;
            }
            let base = position(&self.of_writer, at);
            let file = base.and_then(|base| position(&self.in_file, base));
            let from = match (base, file) {
                (_, Some(file)) => From::File(file),
                (Some(base), None) => {
                    // The file removed the cell. That holds, unless the writer has changed it.
                    let old = self.base.cells.get(base);
                    if old.is_some_and(|old| old.revision() == cell.revision()) {
                        conflicts.extend(old.and_then(|old| outputs_lost(old, cell)));
                        continue;
                    }
                    From::Writer(at)
                }
                (None, None) => From::Writer(at),
            };
            // The file's own new cells at this position come first.
            let is_new = |item: usize| match items.get(item).map(|item| item.from) {
                Some(From::File(at)) => {
                    self.of_file.get(at) == Some(&None) && !self.inserted_by_both.contains_key(&at)
                }
                _ => false,
            };
            while let Some(next) = items
                .get(after)
                .and_then(|item| item.next)
                .filter(|next| is_new(*next))
            {
                after = next;
            }
            let item = items.len();
            let next = items
                .get_mut(after)
                .and_then(|before| before.next.replace(item));
            items.push(Item { from, next });
            after = item;
        }
        let mut order = Vec::with_capacity(items.len());
        let mut at = Some(0);
        while let Some(item) = at.and_then(|at| items.get(at)) {
            order.push(item.from);
            at = item.next;
        }
        order
    }

    /// Merges the notebook's own metadata by its keys; no other part of the frame is ever edited.
    fn merge_frame(&self, document: &mut Document, conflicts: &mut Vec<Conflict>) {
        let [base, file, writer] = [&self.base.frame, &self.file.frame, &self.writer.frame];
        let layout = document.style.top.deeper();
        let raws = [base, file, writer].map(|frame| frame.raw("metadata").unwrap_or(b"{}"));
        let (new, lost) = merge_objects(raws, "metadata", &[], &layout);
        document.set_frame_metadata(new.as_deref());
        conflicts.extend(lost);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::notebook::CellExecution;
    use crate::notebook::CellType;
    use crate::notebook::Json;
    use crate::notebook::NewCell;
    use crate::notebook::tests::fixtures::{cells, in_words};
    use serde_json::json;

    /// A notebook of cells `id:source`.
    fn merged(base: &str, file: &str, writer: &str) -> (String, Vec<(String, String)>) {
        let [base, file, writer] = [base, file, writer].map(cells);
        let merged = merge(&base, &file, &writer, &|_| false);
        let conflicts = merged.conflicts.into_iter();
        let conflicts =
            conflicts.map(|conflict| (conflict.cell.unwrap_or_default(), conflict.field));
        (in_words(&merged.document), conflicts.collect())
    }

    #[test]
    fn both_sides_changes_are_kept() {
        for (base, file, writer, want) in [
            ("a:1 b:2", "a:1 h:h b:2", "a:1 w:w b:2", "a:1 h:h w:w b:2"),
            (
                "a:1",
                "h:h a:1 i:i",
                "w:w a:1 v:v x:x",
                "h:h w:w a:1 i:i v:v x:x",
            ),
            (
                "a:1 b:2 c:3",
                "c:3 a:1 b:2",
                "a:1 B:x b:2 c:3",
                "c:3 a:1 B:x b:2",
            ),
            ("a:1 b:2 c:3", "a:1 b:2 c:4", "c:3 a:1 b:2", "c:4 a:1 b:2"),
            // Both sides moved it: the file's position holds.
            (
                "a:1 b:2 c:3 d:4",
                "d:4 a:1 b:2 c:3",
                "a:1 d:4 b:2 c:3",
                "d:4 a:1 b:2 c:3",
            ),
            ("a:1 b:2 c:3", "a:1 c:3", "b:2 c:3", "c:3"),
            ("a:x|y", "a:X|y", "a:x|Y", "a:X|Y"),
            ("a:1 b:2", "a:1 b:2 h:h", "b:2", "b:2 h:h"),
            ("a:1", "", "a:1 w:w", "w:w"),
            // An edit wins over a deletion.
            ("a:1 b:2", "a:1", "a:1 b:3", "a:1 b:3"),
        ] {
            assert_eq!(
                merged(base, file, writer),
                (want.into(), vec![]),
                "{base} / {file} / {writer}"
            );
        }
    }

    #[test]
    fn the_files_text_stays_and_the_writer_gets_a_conflict() {
        let conflict = |cell: &str, field: &str| vec![(cell.to_owned(), field.to_owned())];
        assert_eq!(
            merged("a:1 b:2", "a:h b:2", "a:w b:3"),
            ("a:h b:3".into(), conflict("a", "source"))
        );
        assert_eq!(
            merged("a:1 b:2", "a:h b:2", "b:2"),
            ("a:h b:2".into(), conflict("a", "deleted"))
        );
        assert_eq!(
            merged("", "n:h", "n:w"),
            ("n:h".into(), conflict("n", "source"))
        );
        let [base, file, writer] = ["a:1 b:2", "a:h b:2", "b:2"].map(cells);
        let merged = merge(&base, &file, &writer, &|_| false);
        let texts = (&merged.conflicts[0].base, &merged.conflicts[0].theirs);
        assert_eq!(texts, (&Some("1".into()), &Some("h".into())));
        let [base, file, writer] = ["a:1", "a:h", "a:w"].map(cells);
        let merged = merge(&base, &file, &writer, &|_| false);
        let text = |word: &str| Some(word.to_owned());
        let want = Conflict {
            cell: text("a"),
            field: "source".into(),
            base: text("1"),
            yours: text("w"),
            theirs: text("h"),
            revision: Some(file.cells()[0].revision()),
        };
        assert_eq!(merged.conflicts, [want]);
        assert_eq!(merged.document.to_bytes(), file.to_bytes());
    }

    #[test]
    fn types_metadata_and_unknown_fields_merge_apart() {
        let base = cells("a:1 b:2");
        let (mut file, mut writer) = (base.clone(), base.clone());
        file.set_metadata(0, &["tags"], &Json::parse("[1]").unwrap())
            .unwrap();
        file.set_source(0, "new").unwrap();
        file.set_notebook_metadata(&["human"], &Json::from(1))
            .unwrap();
        writer.set_type(0, CellType::Markdown).unwrap();
        writer
            .set_metadata(0, &["name"], &Json::string("n"))
            .unwrap();
        writer.set_metadata(1, &["x", "y"], &Json::from(1)).unwrap();
        writer
            .set_notebook_metadata(&["agent"], &Json::from(2))
            .unwrap();
        let merged = merge(&base, &file, &writer, &|_| false);
        assert_eq!(merged.conflicts, []);
        let cell = &merged.document.cells()[0];
        assert_eq!(
            (cell.cell_type(), &*cell.source()),
            (CellType::Markdown, "new")
        );
        assert_eq!(
            cell.metadata(&[]),
            Json::parse("{\"name\": \"n\", \"tags\": [1]}").ok()
        );
        assert_eq!(cell.outputs().count(), 0);
        assert_eq!(
            merged.document.cells()[1].metadata(&["x", "y"]),
            Some(Json::from(1))
        );
        assert_eq!(merged.document.metadata(&["human"]), Some(Json::from(1)));
        assert_eq!(merged.document.metadata(&["agent"]), Some(Json::from(2)));
        file.set_type(0, CellType::Raw).unwrap();
        file.set_metadata(0, &["name"], &Json::string("m")).unwrap();
        file.set_notebook_metadata(&["agent"], &Json::from(3))
            .unwrap();
        let merged = merge(&base, &file, &writer, &|_| false);
        let fields: Vec<_> = merged
            .conflicts
            .iter()
            .map(|conflict| &*conflict.field)
            .collect();
        assert_eq!(fields, ["cell_type", "metadata.name", "metadata.agent"]);
        assert_eq!(merged.conflicts[2].cell, None);
        assert_eq!(merged.document.metadata(&["agent"]), Some(Json::from(3)));
        assert_eq!(merged.document.cells()[0].cell_type(), CellType::Raw);
    }

    #[test]
    fn outputs_are_those_of_the_later_execution() {
        let ran = |document: &Document, count, time: &str| {
            let mut new = document.clone();
            let text = format!(
                "{{\"output_type\": \"stream\", \"name\": \"stdout\", \"text\": \"{time}{count}\"}}"
            );
            let execution = CellExecution {
                outputs: vec![Json::parse(&text).unwrap()],
                execution_count: Some(count),
                times: (!time.is_empty()).then(|| {
                    Json::parse(&format!("{{\"iopub.status.idle\": \"{time}\"}}")).unwrap()
                }),
            };
            new.set_execution(0, &execution).unwrap();
            new
        };
        let base = cells("a:1");
        let gone = merge(&base, &cells(""), &ran(&base, 3, "t"), &|_| true);
        assert_eq!(gone.document.cells().len(), 0);
        assert_eq!(gone.conflicts[0].field, "outputs");
        assert_eq!(gone.conflicts[0].yours.as_deref(), Some("stdout: t3"));
        for (file, writer, runs, count) in [
            (ran(&base, 3, ""), base.clone(), true, 3),
            (base.clone(), ran(&base, 4, ""), false, 4),
            (ran(&base, 3, ""), ran(&base, 4, ""), false, 4),
            (ran(&base, 5, ""), ran(&base, 4, ""), false, 5),
            (ran(&base, 5, ""), ran(&base, 4, ""), true, 4),
            // Two executions that ended at the same time.
            (
                ran(&base, 3, "2026-01-01T10"),
                ran(&base, 4, "2026-01-01T10"),
                false,
                4,
            ),
            // A restarted kernel counts from 1 again.
            (
                ran(&base, 50, "2026-01-01T10"),
                ran(&base, 1, "2026-01-01T11"),
                false,
                1,
            ),
            (
                ran(&base, 1, "2026-01-01T11"),
                ran(&base, 50, "2026-01-01T10"),
                false,
                1,
            ),
        ] {
            let writer_count = writer.cells()[0].execution_count().unwrap_or(count);
            let versions = [&file, &writer].map(|version| &version.cells()[0]);
            let later = versions.map(|cell| cell.execution_count() == Some(count));
            let times = versions[usize::from(later[1])].metadata(&["execution"]);
            // The human has edited the source, so that the cells are merged field by field.
            let mut file = file;
            file.set_source(0, "human").unwrap();
            let merged = merge(&base, &file, &writer, &|id| runs && id == "a");
            let cell = &merged.document.cells()[0];
            assert_eq!(
                (cell.execution_count(), &*cell.source()),
                (Some(count), "human")
            );
            assert_eq!(cell.metadata(&["execution"]), times);
            let fields = merged.conflicts.iter().map(|conflict| &*conflict.field);
            let lost = (writer_count != count).then_some("outputs");
            assert_eq!(fields.collect::<Vec<_>>(), Vec::from_iter(lost));
            let output = cell.read_outputs().next().unwrap();
            assert!(output.text.ends_with(&count.to_string()));
        }
    }

    #[test]
    fn of_two_executions_with_the_same_count_the_files_stays_and_the_writers_is_reported() {
        let ran = |document: &Document, text: &str| {
            let mut new = document.clone();
            let output = json!({"output_type": "stream", "name": "stdout", "text": text});
            let execution = CellExecution {
                outputs: vec![Json::from(&output)],
                execution_count: Some(1),
                times: None,
            };
            new.set_execution(0, &execution).unwrap();
            new
        };
        let base = ran(&cells("a:1"), "old");
        let (file, writer) = (ran(&base, "file"), ran(&base, "writer"));
        let merged = merge(&base, &file, &writer, &|_| false);
        assert_eq!(merged.document.to_bytes(), file.to_bytes());
        let text = |word: &str| Some(format!("stdout: {word}"));
        let want = Conflict {
            cell: Some("a".into()),
            field: "outputs".into(),
            base: text("old"),
            yours: text("writer"),
            theirs: text("file"),
            revision: Some(file.cells()[0].revision()),
        };
        assert_eq!(merged.conflicts, [want]);
        // Outputs that were there before keep no cell that the writer has deleted.
        let (mut edited, mut without) = (base.clone(), base.clone());
        edited
            .set_notebook_metadata(&["k"], &Json::from(1))
            .unwrap();
        without.remove(0).unwrap();
        let merged = merge(&base, &edited, &without, &|_| false);
        assert_eq!(
            (merged.document.cells().len(), merged.conflicts),
            (0, vec![])
        );
    }

    #[test]
    fn a_merge_that_is_repeated_takes_the_writers_cell_for_no_other_one_of_the_same_text() {
        let mut base = without_ids(&["x", "y"], 4);
        base.recall_ids(&[], &|_| None);
        let mut writer = base.clone();
        let new = NewCell {
            id: "w".into(),
            cell_type: CellType::Code,
            source: "x".into(),
            metadata: None,
        };
        writer.insert(1, &new).unwrap();
        // The first merge is in the file. `nb fmt` has written the ids, and a human has deleted the first cell.
        let mut file = writer.formatted().unwrap();
        file.remove(0).unwrap();
        let merged = merge(&base, &file, &writer, &|_| false);
        assert_eq!(in_words(&merged.document), in_words(&file));
        assert_eq!(merged.conflicts, []);
        // An editor that does not know ids has dropped them.
        let [base, writer, known] = ["a:x b:y", "a:x w:x b:y", "w:x b:y"].map(cells);
        let mut file = without_ids(&["x", "y"], 4);
        file.adopt_ids(&known);
        let merged = merge(&base, &file, &writer, &|_| false);
        assert_eq!(in_words(&merged.document), in_words(&file));
        assert_eq!(merged.conflicts, []);
    }

    #[test]
    fn the_writers_run_of_a_cell_is_known_by_its_name_in_a_file_that_has_no_ids() {
        let base = without_ids(&["x", "y"], 4);
        let ran = |document: &Document, at, count| {
            let mut new = document.clone();
            let execution = CellExecution {
                execution_count: Some(count),
                ..CellExecution::default()
            };
            new.set_execution(at, &execution).unwrap();
            new
        };
        let file = ran(&without_ids(&["theirs", "x", "y"], 4), 2, 9);
        let writer = ran(&base, 1, 1);
        let id = base.cells()[1].id();
        for (runs, count) in [(true, 1), (false, 9)] {
            let merged = merge(&base, &file, &writer, &|cell| runs && cell == id);
            let cell = merged.document.cell_by_id(id).unwrap();
            assert_eq!(cell.execution_count(), Some(count));
        }
    }

    #[test]
    fn an_image_that_came_into_a_text_stays_although_the_writer_makes_it_code() {
        let mut base = cells("a:1");
        base.set_type(0, CellType::Markdown).unwrap();
        let mut writer = base.clone();
        writer.set_type(0, CellType::Code).unwrap();
        let text = String::from_utf8(base.to_bytes()).unwrap();
        let image = r#""attachments": {"a.png": {"image/png": "AA=="}}, "id""#;
        let file = Document::parse(text.replace(r#""id""#, image)).unwrap();
        let merged = merge(&base, &file, &writer, &|_| false);
        assert_eq!(merged.document.to_bytes(), file.to_bytes());
        assert_eq!(merged.conflicts.len(), 1);
        assert_eq!(merged.conflicts[0].field, "cell_type");
    }

    #[test]
    fn a_text_that_both_sides_wrote_is_no_conflict_where_the_file_has_more() {
        let [base, writer] = ["", "n:1"].map(cells);
        let mut file = writer.clone();
        file.set_metadata(0, &["x"], &Json::from(1)).unwrap();
        let merged = merge(&base, &file, &writer, &|_| false);
        assert_eq!(merged.conflicts, []);
        assert_eq!(merged.document.to_bytes(), file.to_bytes());
    }

    #[test]
    fn fields_of_a_cell_that_no_format_has_are_merged_each_as_a_whole() {
        let with = |fields: &str, source: &str| {
            let text = String::from_utf8(cells(&format!("a:{source}")).to_bytes()).unwrap();
            Document::parse(text.replace(r#""id""#, &format!(r#"{fields} "id""#))).unwrap()
        };
        let base = with(r#""p": 1, "q": 1, "r": 1, "s": 1, "t": 1,"#, "1");
        // The file has changed s and t, added v, and written another source.
        let file = with(r#""p": 1, "q": 1, "r": 1, "s": 2, "t": 2, "v": 2,"#, "h");
        // The writer has changed p, removed q, and added u; of s and v it has the file's values, of t another.
        let writer = with(r#""p": 3, "r": 1, "s": 2, "t": 3, "u": 3, "v": 2,"#, "1");
        let merged = merge(&base, &file, &writer, &|_| false);
        let value: serde_json::Value = serde_json::from_slice(&merged.document.to_bytes()).unwrap();
        let cell = &value["cells"][0];
        let fields =
            ["p", "q", "r", "s", "t", "u", "v", "source"].map(|name| cell[name].to_string());
        assert_eq!(fields, ["3", "null", "1", "2", "2", "3", "2", "\"h\""]);
        let text = |word: &str| Some(word.to_owned());
        let want = Conflict {
            cell: text("a"),
            field: "t".into(),
            base: text("1"),
            yours: text("3"),
            theirs: text("2"),
            revision: Some(file.cells()[0].revision()),
        };
        assert_eq!(merged.conflicts, [want]);
    }

    #[test]
    fn a_persons_run_in_between_stays() {
        let base = cells("a:1 b:2");
        let output = r#"{"output_type": "stream", "name": "stdout", "text": "human"}"#;
        let execution = CellExecution {
            outputs: vec![Json::parse(output).unwrap()],
            execution_count: Some(1),
            times: None,
        };
        let mut ran = base.clone();
        ran.set_execution(1, &execution).unwrap();
        let fields = |merged: MergedNotebook| -> Vec<_> {
            let conflicts = merged.conflicts.into_iter();
            conflicts.map(|conflict| conflict.field).collect()
        };
        // A join is refused as a whole.
        let [mut removed, mut joined, mut text] = [(); 3].map(|()| base.clone());
        removed.remove(1).unwrap();
        joined.join(0, 2).unwrap();
        text.set_type(1, CellType::Markdown).unwrap();
        for (writer, want) in [
            (&removed, vec!["deleted"]),
            (&joined, vec!["deleted", "source"]),
            (&text, vec!["cell_type"]),
        ] {
            let merged = merge(&base, &ran, writer, &|_| false);
            let cell = &merged.document.cells()[1];
            assert_eq!(cell.outputs_line(80), "stdout: human");
            assert_eq!(cell.source(), "2");
            assert_eq!(merged.document.cells()[0].source(), "1");
            assert_eq!(fields(merged), want);
        }
        // The other way round, the human's version of the cell stays, and the writer gets a conflict.
        for file in [&removed, &text] {
            let merged = merge(&base, file, &ran, &|_| true);
            assert_eq!(in_words(&merged.document), in_words(file));
            assert_eq!(fields(merged), ["outputs"]);
        }
        // Outputs that existed before do not keep a removed cell.
        let mut cleared = ran.clone();
        cleared.clear_outputs(1).unwrap();
        let mut removed = ran.clone();
        removed.remove(1).unwrap();
        for file in [&ran, &cleared] {
            let merged = merge(&ran, file, &removed, &|_| false);
            assert_eq!(in_words(&merged.document), "a:1");
            assert_eq!(fields(merged), [""; 0]);
        }
    }

    #[test]
    fn cells_of_a_file_without_ids_keep_what_they_are_called() {
        let plain = |sources: &[&str], minor: u8| {
            let cell = |source: &&str| {
                format!(
                    "{{\"cell_type\":\"code\",\"source\":\"{source}\",\"outputs\":[],\"metadata\":{{}}}}"
                )
            };
            let cells: Vec<_> = sources.iter().map(cell).collect();
            let text = format!(
                "{{\"cells\":[{}],\"metadata\":{{}},\"nbformat\":4,\"nbformat_minor\":{minor}}}",
                cells.join(",")
            );
            Document::parse(text).unwrap()
        };
        let ids = |document: &Document| -> Vec<_> {
            let cells = document.cells().iter();
            cells.map(|cell| cell.id().to_owned()).collect()
        };
        let new = NewCell {
            id: "new".into(),
            cell_type: CellType::Code,
            source: "z".into(),
            metadata: None,
        };
        let base = plain(&["x", "y"], 2);
        let mut writer = base.clone();
        writer.set_source(1, "y2").unwrap();
        writer.insert(2, &new).unwrap();
        let file = plain(&["theirs", "x", "y"], 2);
        let merged = merge(&base, &file, &writer, &|_| false).document;
        assert_eq!(ids(&merged)[1..], ids(&writer));
        assert!(merged.cells().iter().all(|cell| !cell.has_own_id()));
        assert_eq!(merged.nbformat(), (4, 2));
        assert!(
            !String::from_utf8(merged.to_bytes())
                .unwrap()
                .contains("\"id\"")
        );
        let sources: Vec<_> = merged
            .cells()
            .iter()
            .map(|cell| cell.source().into_owned())
            .collect();
        assert_eq!(sources, ["theirs", "x", "y2", "z"]);
        // If somebody has raised the file's format meanwhile, the new cell is inserted with its id; in an
        // older format without.
        let newer = plain(&["x", "y"], 5).formatted().unwrap();
        let merged = merge(&base, &newer, &writer, &|_| false).document;
        assert_eq!(merged.nbformat(), (4, 5));
        assert!(merged.cells()[2].has_own_id() && merged.cells()[2].id() == "new");
        let base = plain(&["x", "y"], 5).formatted().unwrap();
        let mut writer = base.clone();
        writer.insert(2, &new).unwrap();
        let merged = merge(&base, &plain(&["x", "y3"], 4), &writer, &|_| false).document;
        assert_eq!(ids(&merged), ids(&writer));
        assert!(merged.cells().iter().all(|cell| !cell.has_own_id()));
    }

    #[test]
    fn a_writers_cells_take_the_files_style() {
        let base = cells("a:1");
        let mut writer = base.clone();
        let cell = NewCell {
            id: "w".into(),
            cell_type: CellType::Code,
            source: "x".into(),
            metadata: None,
        };
        writer.insert(1, &cell).unwrap();
        let file = "{\"cells\":[{\"cell_type\":\"code\",\"id\":\"a\",\"metadata\":{},\"source\":\"2\"}],\"nbformat\":4,\"nbformat_minor\":5}";
        let merged = merge(&base, &Document::parse(file).unwrap(), &writer, &|_| false);
        let text = String::from_utf8(merged.document.to_bytes()).unwrap();
        let new = ",{\"cell_type\":\"code\",\"execution_count\":null,\"id\":\"w\",\"metadata\":{},\"outputs\":[],\"source\":\"x\"}]";
        assert_eq!(text, file.replace(']', new));
    }

    #[test]
    fn a_conflict_names_the_cell_as_the_merged_notebook_does() {
        let plain = |sources: &[&str]| {
            let cell = |source: &&str| format!(r#"{{"cell_type":"code","source":"{source}"}}"#);
            let cells: Vec<_> = sources.iter().map(cell).collect();
            Document::parse(format!(r#"{{"cells":[{}]}}"#, cells.join(","))).unwrap()
        };
        // Without ids, and with a new cell that shifts the others.
        let base = plain(&["x", "a", "y"]);
        let file = plain(&["new", "x", "h", "y"]);
        let mut writer = base.clone();
        writer.set_source(1, "w").unwrap();
        let merged = merge(&base, &file, &writer, &|_| false);
        let cells = merged.document.cells().iter();
        let named = cells.filter(|cell| Some(cell.id()) == merged.conflicts[0].cell.as_deref());
        let sources: Vec<_> = named.map(Cell::source).collect();
        assert_eq!(sources, ["h"]);
        // Another program has given the cells ids of its own.
        let file = plain(&["x", "h", "y"]);
        let mut text = String::from_utf8(file.to_bytes()).unwrap();
        for id in ["one", "two", "three"] {
            let own = format!(r#"{{"id":"{id}","cell_type":"code""#);
            text = text.replacen(r#"{"cell_type":"code""#, &own, 1);
        }
        let file = Document::parse(text).unwrap();
        let merged = merge(&base, &file, &writer, &|_| false);
        assert_eq!(merged.conflicts[0].cell.as_deref(), Some("two"));
    }

    /// A notebook of code cells without ids.
    fn without_ids(sources: &[&str], minor: u8) -> Document {
        let cell = |source: &&str| {
            format!(
                r#"{{"cell_type":"code","source":"{source}","outputs":[],"metadata":{{}},"execution_count":null}}"#
            )
        };
        let cells: Vec<_> = sources.iter().map(cell).collect();
        let cells = cells.join(",");
        let rest = format!(r#""metadata":{{}},"nbformat":4,"nbformat_minor":{minor}"#);
        Document::parse(format!(r#"{{"cells":[{cells}],{rest}}}"#)).unwrap()
    }

    #[test]
    fn a_writer_that_changed_nothing_has_no_conflict_with_a_file_of_a_later_format() {
        let base = cells("a:1");
        let text = String::from_utf8(base.to_bytes()).unwrap();
        let file = Document::parse(text.replace("\"nbformat\": 4", "\"nbformat\": 5")).unwrap();
        assert!(file.is_read_only());
        let merged = merge(&base, &file, &base, &|_| false);
        assert_eq!(merged.conflicts, []);
        assert_eq!(merged.document.to_bytes(), file.to_bytes());
        let merged = merge(&base, &file, &cells("a:2"), &|_| false);
        assert_eq!(merged.conflicts[0].field, "nbformat");
    }

    #[test]
    fn the_space_between_the_files_cells_stays() {
        let base = cells("a:1 b:2 c:3");
        let text = String::from_utf8(base.to_bytes()).unwrap();
        let (rest, last) = text.rsplit_once("},\n  {").unwrap();
        let spaced = format!("{rest}}}  ,\n\n{{{}", last.replace("}\n ]", "}\n\n\t]"));
        assert_ne!(spaced, text);
        let file = Document::parse(spaced.clone()).unwrap();
        let merged = merge(&base, &file, &cells("a:1 b:x c:3"), &|_| false);
        let edited = spaced.replace("\"2\"", "\"x\"");
        assert_eq!(String::from_utf8(merged.document.to_bytes()), Ok(edited));
        // A list that becomes empty has no space, and one that was empty gets that of the style.
        let merged_in = |base: &Document, writer: &Document| {
            let mut file = base.clone();
            file.set_notebook_metadata(&["x"], &Json::from(1)).unwrap();
            let merged = merge(base, &file, writer, &|_| false).document;
            String::from_utf8(merged.to_bytes()).unwrap()
        };
        let mut emptied = cells("a:1");
        let cell = emptied.take_cell(0);
        assert!(merged_in(&cells("a:1"), &emptied).contains("\"cells\": [],"));
        let text = String::from_utf8(cells("").to_bytes()).unwrap();
        let empty = Document::parse(text.replace("[\n ]", "[]")).unwrap();
        let mut filled = empty.clone();
        filled.put_cell(0, cell);
        assert!(merged_in(&empty, &filled).contains("}\n ],"));
    }

    #[test]
    fn a_writer_that_gives_cells_ids_raises_the_format_of_a_file_that_changed_meanwhile() {
        for minor in [4, 5] {
            let base = without_ids(&["x", "y"], minor);
            let writer = base.formatted().unwrap();
            let file = without_ids(&["theirs", "x", "y2"], minor);
            let merged = merge(&base, &file, &writer, &|_| false);
            assert_eq!(merged.conflicts, []);
            let merged = merged.document;
            assert_eq!(merged.nbformat(), (4, 5));
            let ids = |document: &Document| -> Vec<_> {
                let cells = document.cells().iter();
                cells
                    .map(|cell| (cell.id().to_owned(), cell.has_own_id()))
                    .collect()
            };
            assert_eq!(ids(&merged)[1..], ids(&writer));
            let again = Document::parse(merged.to_bytes()).unwrap();
            assert_eq!(again.nbformat(), (4, 5));
            assert_eq!(ids(&again)[1..], ids(&writer));
            // A file of the format that has ids may lack them, an older one must not have any.
            assert_eq!(again.cells()[0].has_own_id(), minor == 4);
        }
    }

    #[test]
    fn a_new_cell_of_the_file_does_not_get_the_name_of_a_removed_cell_that_a_conflict_mentions() {
        let base = without_ids(&["x", "a"], 4);
        let mut writer = base.clone();
        let output = r#"{"output_type": "stream", "name": "stdout", "text": "1"}"#;
        let execution = CellExecution {
            outputs: vec![Json::parse(output).unwrap()],
            execution_count: Some(1),
            times: None,
        };
        writer.set_execution(1, &execution).unwrap();
        let file = without_ids(&["n", "new", "x"], 4);
        let merged = merge(&base, &file, &writer, &|_| false);
        let removed = base.cells()[1].id();
        let fields: Vec<_> = merged
            .conflicts
            .iter()
            .map(|conflict| (conflict.cell.as_deref(), &*conflict.field))
            .collect();
        assert_eq!(fields, [(Some(removed), "outputs")]);
        assert_eq!(merged.conflicts[0].revision, None);
        assert!(merged.document.cell_by_id(removed).is_none());
    }
}
