//! Properties of every merge, tested on generated notebooks with edits of both sides.

use std::collections::BTreeSet;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use regex::Regex;
use serde_json::{Value, json};

use super::cell::has_new_outputs;
use super::split_join::{lines_beyond, shares};
use crate::notebook::json::Layout;
use crate::notebook::tests::laws::{assert_whole, meaning, notebook, open, plain, text, written};
use crate::notebook::*;

/// Edits by one side, each of a kind that the other side may make too.
type Steps = Vec<(u8, usize, usize, String)>;

fn steps() -> impl Strategy<Value = Steps> {
    proptest::collection::vec((0..6_u8, 0..7_usize, 0..7_usize, text()), 0..6)
}

fn edited(document: &Document, steps: &Steps, side: &str) -> Document {
    let mut new = document.clone();
    for (number, (kind, at, to, text)) in steps.iter().enumerate() {
        // An edit that does not fit the notebook is skipped.
        let _ = match kind {
            0 => {
                let id = format!("{side}-{number}");
                let source = format!("{side} {number} {text}");
                let cell = NewCell {
                    id,
                    cell_type: CellType::Code,
                    source,
                    metadata: None,
                };
                new.insert((*at).min(new.cells().len()), &cell)
            }
            1 => new.remove(*at),
            2 => new.move_cell(*at, *to),
            3 => {
                let line = format!("{side} {number}\n{text}");
                match new.cells().get(*at).map(|cell| cell.source().into_owned()) {
                    Some(source) => new.set_source(*at, &format!("{line}\n{source}")),
                    None => continue,
                }
            }
            4 => new.set_metadata(*at, &[side, text], &Json::from(1)),
            _ => new.set_execution(
                *at,
                &CellExecution {
                    outputs: vec![Json::from(
                        &json!({"output_type": "stream", "name": side, "text": text}),
                    )],
                    execution_count: Some(100 + number as u64),
                    times: None,
                },
            ),
        };
    }
    new
}

/// A notebook's meaning, without its style.
fn in_words(document: &Document) -> Value {
    plain(meaning(document))
}

fn by_id(document: &Document) -> Vec<String> {
    let fields = in_words(document);
    let mut cells: Vec<_> = fields["cells"]
        .as_array()
        .unwrap()
        .iter()
        .map(Value::to_string)
        .collect();
    cells.sort();
    cells
}

/// A notebook as a command reads it: cells without an id in the file get one from the ledger.
fn read(text: &[u8]) -> Document {
    let mut document = open(text);
    document.recall_ids(&[], &|_| None);
    document
}

/// Returns the ids of the cells that a side may have joined a cell into: the side has deleted that cell,
/// and has written lines of it into these.
///
/// Joining two cells and then editing the result gives the same notebook as deleting one of them and then
/// writing one of its lines into the other. Ids do not show which it was. So the merge treats both as a
/// join, and does not promise that an edit of such a cell outlives the deletion: the edit goes into the
/// joined cell, or becomes a conflict.
fn joined_into<'a>(base: &Document, side: &'a Document, old: &Cell) -> Vec<&'a str> {
    if side.cells().iter().any(|cell| cell.id() == old.id()) {
        return Vec::new();
    }
    let lines = lines_beyond(old, None);
    let cells = side.cells().iter().filter(|cell| {
        let before = base.cells().iter().find(|other| other.id() == cell.id());
        before.is_some_and(|before| shares(&lines_beyond(cell, Some(before)), &lines))
    });
    cells.map(Cell::id).collect()
}

fn nobody(_: &str) -> bool {
    false
}

/// Merges without the shortcut for a side that changed nothing.
fn merged(base: &Document, file: &Document, writer: &Document) -> MergedNotebook {
    super::three_versions::ThreeVersions::of(base, file, writer).run(&nobody)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn merging_with_nothing_is_nothing(written in any::<bool>().prop_flat_map(notebook), steps in steps()) {
        let base = read(&written.text);
        let new = edited(&base, &steps, "x");
        prop_assert_eq!(merge(&base, &base, &new, &nobody).document.to_bytes(), new.to_bytes());
        prop_assert_eq!(merge(&base, &new, &base, &nobody).document.to_bytes(), new.to_bytes());
        prop_assert_eq!(merge(&base, &new, &new, &nobody).document.to_bytes(), new.to_bytes());
        for (file, writer) in [(&base, &new), (&new, &base), (&new, &new)] {
            let merged = merged(&base, file, writer);
            prop_assert_eq!(&merged.conflicts, &[]);
            prop_assert_eq!(in_words(&merged.document), in_words(&new));
            assert_whole(&merged.document);
        }
        // If the writer did nothing, the file's bytes stay.
        prop_assert_eq!(merged(&base, &new, &base).document.to_bytes(), new.to_bytes());
    }

    #[test]
    fn nothing_that_either_wrote_is_lost_without_a_word(
        written in any::<bool>().prop_flat_map(notebook), human in steps(), agent in steps(),
    ) {
        let base = read(&written.text);
        let (file, writer) = (edited(&base, &human, "human"), edited(&base, &agent, "agent"));
        let result = merged(&base, &file, &writer);
        assert_whole(&result.document);
        let find = |id: &str| result.document.cells().iter().find(|cell| cell.id() == id);
        let in_base = |id: &str| base.cells().iter().find(|cell| cell.id() == id);
        // A missing cell may be a part of a cell that the other side has joined it into.
        let sources = |id: &str, other: &Document| -> Vec<String> {
            let into = match (find(id), in_base(id)) {
                (None, Some(old)) => joined_into(&base, other, old),
                _ => vec![id],
            };
            let cells = into.into_iter().filter_map(&find);
            cells.map(|cell| cell.source().into_owned()).collect()
        };
        let holds = |sources: &[String], line: &str| {
            sources.iter().any(|source| source.split('\n').any(|other| other == line))
        };
        // Every cell that the human changed or added is there, with every line that the human wrote.
        for cell in file.cells() {
            let old = in_base(cell.id());
            if old.is_some_and(|old| old.revision() == cell.revision()) {
                continue;
            }
            let now = sources(cell.id(), &writer);
            prop_assert!(!now.is_empty(), "{} of the human's is lost", cell.id());
            for line in cell.source().split('\n').filter(|line| line.starts_with("human")) {
                prop_assert!(holds(&now, line), "{line:?} of {} in {now:?}", cell.id());
            }
            // A joined cell has no place for metadata, so a cell with changed metadata is not joined.
            if let Some(metadata) = cell.metadata(&["human"]) {
                prop_assert_eq!(find(cell.id()).and_then(|new| new.metadata(&["human"])), Some(metadata));
            }
        }
        // The same holds for every cell of the agent, or a conflict reports what was left out.
        let reported = |cell: &Cell| result.conflicts.iter().any(|conflict| {
            let same = conflict.cell.as_deref() == Some(cell.id());
            same && conflict.yours.as_deref() == Some(&*cell.source())
        });
        for cell in writer.cells() {
            let old = in_base(cell.id());
            if old.is_some_and(|old| old.revision() == cell.revision()) {
                continue;
            }
            let (reported, taken) = (reported(cell), sources(cell.id(), &file));
            prop_assert!(reported || !taken.is_empty(), "{} is neither there nor reported", cell.id());
            for line in cell.source().split('\n').filter(|line| line.starts_with("agent")) {
                prop_assert!(reported || holds(&taken, line), "{line:?} in {taken:?}");
            }
        }
        let changed = |side: &Document, old: &Cell| {
            side.cells().iter().any(|cell| cell.id() == old.id() && cell.revision() != old.revision())
        };
        // Cells that neither side touched keep their bytes. The writer's edit of a cell that the human
        // joined into another one touches that other cell.
        for cell in file.cells() {
            let (old, theirs) = (in_base(cell.id()), writer.cells().iter().find(|other| other.id() == cell.id()));
            let untouched = old.zip(theirs).is_some_and(|(old, theirs)| old.text == theirs.text);
            let joined = base.cells().iter().any(|old| {
                changed(&writer, old) && joined_into(&base, &file, old).contains(&cell.id())
            });
            if untouched && !joined {
                prop_assert_eq!(&find(cell.id()).unwrap().text, &cell.text);
            }
        }
        // A deletion holds unless the other side edited the cell, or the human ran it.
        for old in base.cells() {
            let gone = |side: &Document| side.cells().iter().all(|cell| cell.id() != old.id());
            let ran = file.cells().iter().any(|cell| cell.id() == old.id() && has_new_outputs(old, cell));
            if !gone(&file) && !gone(&writer) {
                continue;
            }
            let edited = changed(&file, old) || changed(&writer, old);
            match find(old.id()).is_some() {
                // The edit's lines are in the joined cell or reported, which is checked above.
                false if edited && !ran => {
                    let by_file = changed(&writer, old) && !joined_into(&base, &file, old).is_empty();
                    let by_writer = changed(&file, old) && !joined_into(&base, &writer, old).is_empty();
                    prop_assert!(by_file || by_writer, "{}", old.id());
                }
                // A join is refused as a whole, so the cells that it removed stay.
                true if !edited && !ran => {
                    let into = joined_into(&base, &writer, old);
                    let refused = writer.cells().iter().any(|cell| into.contains(&cell.id()) && reported(cell));
                    prop_assert!(refused, "{}", old.id());
                }
                stays => prop_assert_eq!(stays, edited || ran, "{}", old.id()),
            }
        }
        // Merging the same writer again changes nothing, except perhaps the order: of two cells that
        // changed places, either may count as moved.
        let again = merge(&base, &result.document, &writer, &nobody);
        prop_assert_eq!(by_id(&again.document), by_id(&result.document));
    }
}

#[test]
fn a_cell_that_the_file_joined_and_the_writer_changed_is_merged_once() {
    type Steps<'a> = &'a [(u8, usize, usize, &'a str)];
    let cases: [(&[&str], Steps<'_>, Steps<'_>); 2] = [
        (
            &["", "  ", "\na\nc"],
            &[(3, 1, 0, "\n\nc"), (1, 2, 0, "")],
            &[(3, 2, 0, "\n\n ")],
        ),
        // The line of the deleted cell is in another cell, where the writer put it.
        (
            &["", "", "", "a\nb", ""],
            &[(3, 0, 0, "a"), (1, 3, 0, "")],
            &[(3, 3, 0, ""), (1, 0, 0, ""), (3, 3, 0, " a\naa")],
        ),
    ];
    for (sources, human, agent) in cases {
        let cells = sources.iter().map(|source| {
            json!({"cell_type": "code", "metadata": {}, "source": source, "execution_count": null, "outputs": []})
        });
        let cells: Vec<_> = cells.collect();
        let value = json!({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 4});
        let base = read(&written(value, &Layout::default(), "\n", false).text);
        let edited = |steps: Steps<'_>, side| {
            let steps = steps.iter();
            let steps = steps.map(|(kind, at, to, text)| (*kind, *at, *to, (*text).to_owned()));
            edited(&base, &steps.collect(), side)
        };
        let (file, writer) = (edited(human, "human"), edited(agent, "agent"));
        let once = merged(&base, &file, &writer).document;
        let again = merge(&base, &once, &writer, &nobody).document;
        assert_eq!(by_id(&again), by_id(&once), "{sources:?}");
    }
}

/// How a human's editor wrote the notebook when it saved.
#[derive(Clone, Copy, Debug)]
enum Saved {
    /// Bytes that were not edited stay.
    AsItWas,
    /// The whole file in the editor's own style.
    Anew,
    /// Also without ids, as before format 4.5.
    WithoutIds,
    /// Also with new ids for cells that had none.
    WithIds,
    /// Also with new ids for every cell.
    WithOtherIds,
}

fn saved() -> impl Strategy<Value = Saved> {
    prop_oneof![
        Just(Saved::AsItWas),
        Just(Saved::Anew),
        Just(Saved::WithoutIds),
        Just(Saved::WithIds),
        Just(Saved::WithOtherIds),
    ]
}

fn save(document: &Document, base: &Document, how: Saved) -> Document {
    if matches!(how, Saved::AsItWas) {
        return document.clone();
    }
    let mut value = meaning(document);
    let had = |id: &Value| {
        base.cells()
            .iter()
            .any(|cell| cell.has_own_id() && cell.id() == id)
    };
    let minor = if matches!(how, Saved::WithoutIds) {
        4
    } else {
        5
    };
    for (number, cell) in value["cells"]
        .as_array_mut()
        .unwrap()
        .iter_mut()
        .enumerate()
    {
        match how {
            Saved::WithoutIds => drop(cell.as_object_mut().unwrap().shift_remove("id")),
            Saved::WithIds if had(&cell["id"]) => {}
            Saved::WithIds | Saved::WithOtherIds => cell["id"] = json!(format!("theirs{number}")),
            Saved::AsItWas | Saved::Anew => {}
        }
    }
    value["nbformat_minor"] = json!(minor);
    let layout = Layout {
        lead: "\n".into(),
        unit: " ".into(),
        ..Layout::default()
    };
    open(&written(value, &layout, "\n", false).text)
}

/// Makes edits that leave a unique word wherever they write: `human-3`, and `human-out-3` in outputs.
fn worked(document: &Document, steps: &[(u8, usize, usize)], side: &str) -> Document {
    let mut new = document.clone();
    for (number, (kind, at, to)) in steps.iter().enumerate() {
        let cells = new.cells().len();
        let at = *at % cells.max(1);
        let word = format!("{side}-{number}");
        let insert = |source: &str| NewCell {
            id: format!("{side}{number}"),
            cell_type: CellType::Code,
            source: source.to_owned(),
            metadata: None,
        };
        let source = new.cells().get(at).map(|cell| cell.source().into_owned());
        let source = source.unwrap_or_default();
        let mut lines: Vec<_> = source.split('\n').collect();
        let line = to % lines.len();
        // An edit that does not fit the notebook is skipped.
        let _ = match kind {
            0 | 1 => new.insert(*to % (cells + 1), &insert(&word)).map(drop),
            2 => new.remove(at).map(drop),
            3 => new.move_cell(at, to % cells.max(1)).map(drop),
            4 => {
                lines.insert(line, &word);
                new.set_source(at, &lines.join("\n")).map(drop)
            }
            5 => {
                lines[line] = &word;
                new.set_source(at, &lines.join("\n")).map(drop)
            }
            6 => {
                lines.push(&word);
                new.set_source(at, &lines.join("\n")).map(drop)
            }
            7 => {
                lines.remove(line);
                new.set_source(at, &lines.join("\n")).map(drop)
            }
            8 => new.set_source(at, &word).map(drop),
            9 => new
                .set_metadata(at, &["z", &word], &Json::from(1))
                .map(drop),
            10 => new
                .set_metadata(at, &["tags"], &Json::string(&word))
                .map(drop),
            11 => {
                let output = json!({"output_type": "stream", "name": "stdout", "text": format!("{side}-out-{number}")});
                let times = json!({"iopub.status.idle": format!("2026-01-01T{to:02}:00:00Z")});
                let execution = CellExecution {
                    outputs: vec![Json::from(&output)],
                    execution_count: Some(*to as u64),
                    times: (to % 2 == 0).then(|| Json::from(&times)),
                };
                new.set_execution(at, &execution).map(drop)
            }
            12 => new.clear_outputs(at).map(drop),
            13 => {
                let kind = [CellType::Code, CellType::Markdown, CellType::Raw][to % 3];
                new.set_type(at, kind).map(drop)
            }
            14 => new.split(at, line, &format!("{side}{number}")).map(drop),
            15 => new.join(at, 2).map(drop),
            16 => {
                // Cut, and pasted elsewhere.
                let cut = new.remove(at).map(drop);
                cut.and_then(|()| new.insert(to % cells, &insert(&source)).map(drop))
            }
            _ => new
                .set_notebook_metadata(&["m", &word], &Json::from(1))
                .map(drop),
        };
    }
    new
}

fn work() -> impl Strategy<Value = Vec<(u8, usize, usize)>> {
    proptest::collection::vec((0..18_u8, 0..7_usize, 0..7_usize), 0..7)
}

/// Returns the words of one side that occur in a text.
fn words(text: &[u8], side: &str) -> BTreeSet<String> {
    let pattern = Regex::new(&format!(r"{side}-(out-)?\d+")).unwrap();
    let text = String::from_utf8_lossy(text);
    let found = pattern.find_iter(&text);
    found.map(|word| word.as_str().to_owned()).collect()
}

proptest! {
    #[test]
    fn every_word_of_the_humans_stays_and_every_word_of_the_writers_is_there_or_reported(
        written in any::<bool>().prop_flat_map(notebook), human in work(), agent in work(), saved in saved(),
    ) {
        let base = open(&written.text);
        let file = save(&worked(&base, &human, "human"), &base, saved);
        let writer = worked(&base, &agent, "agent");
        let result = merge(&base, &file, &writer, &nobody);
        assert_whole(&result.document);
        let now = result.document.to_bytes();
        let is_output = |word: &String| word.contains("-out-");
        let (kept, taken) = (words(&now, "human"), words(&now, "agent"));
        let texts = result.conflicts.iter().map(|conflict| {
            format!("{} {}", conflict.field, conflict.yours.as_deref().unwrap_or_default())
        });
        let reported = words(texts.collect::<Vec<_>>().join(" ").as_bytes(), "agent");
        for word in words(&file.to_bytes(), "human") {
            // Of two executions, only the later one's outputs stay.
            let later = is_output(&word) && taken.iter().any(is_output);
            prop_assert!(kept.contains(&word) || later, "{word} is lost");
        }
        for word in words(&writer.to_bytes(), "agent") {
            let known = taken.contains(&word) || reported.contains(&word);
            prop_assert!(known, "{word} is neither there nor reported");
        }
        for conflict in &result.conflicts {
            let id = conflict.cell.as_deref();
            let cell = result.document.cells().iter().find(|cell| Some(cell.id()) == id);
            prop_assert_eq!(conflict.revision, cell.map(Cell::revision));
            if let ("source", Some(cell)) = (conflict.field.as_str(), cell) {
                prop_assert_eq!(conflict.theirs.as_deref(), Some(&*cell.source()));
            }
        }
    }
}

/// A property holds of nothing if the random edits never lead to what it is about.
#[test]
fn random_edits_lead_to_each_kind_of_conflict() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let notebooks = any::<bool>().prop_flat_map(notebook);
    let all = (notebooks, work(), work(), saved());
    let mut fields = BTreeSet::new();
    let mut merges_without_conflict = 0;
    for _ in 0..400 {
        let (written, human, agent, saved) = all.new_tree(&mut runner).unwrap().current();
        let base = open(&written.text);
        let file = save(&worked(&base, &human, "human"), &base, saved);
        let writer = worked(&base, &agent, "agent");
        let conflicts = merge(&base, &file, &writer, &nobody).conflicts;
        let both_changed = !human.is_empty() && !agent.is_empty();
        merges_without_conflict += usize::from(both_changed && conflicts.is_empty());
        let field = |conflict: Conflict| conflict.field.split('.').next().map(str::to_owned);
        fields.extend(conflicts.into_iter().filter_map(field));
    }
    let expected = ["cell_type", "deleted", "metadata", "outputs", "source"];
    assert_eq!(fields.iter().collect::<Vec<_>>(), expected);
    assert!(merges_without_conflict > 50, "{merges_without_conflict}");
}
