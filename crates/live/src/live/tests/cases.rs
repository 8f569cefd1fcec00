//! Single cases: what a front end sees.

use std::collections::HashMap;

use super::world::{cells_of, clean, edited, notebook, put_data, version};
use crate::live::LiveDocument;
use crate::live::protocol::{EditorCell, EditorEvent, EditorRequest, Keep, OpenedDocument};
use crate::notebook::{CellType, Document, NewCell};
use crate::project::live_editor::StoredInRoom;

fn requests(live: &mut LiveDocument) -> Vec<EditorRequest> {
    std::iter::from_fn(|| live.poll()).collect()
}

/// Opens a notebook in an editor without changes.
fn opened(file: &Document) -> LiveDocument {
    let mut live = LiveDocument::open(
        &clean(cells_of(file, "e")),
        version(file, 0),
        &HashMap::new(),
        true,
    )
    .unwrap();
    assert_eq!(requests(&mut live), [synced("0")]);
    live
}

fn in_room(cells: Vec<EditorCell>) -> OpenedDocument {
    OpenedDocument {
        room: true,
        ..edited(cells)
    }
}

fn synced(stamp: &str) -> EditorRequest {
    EditorRequest::Synced {
        stamp: stamp.to_owned(),
        modified: None,
        revision: None,
    }
}

fn typed(live: &mut LiveDocument, cell: &str, source: &str) {
    live.event(EditorEvent::Text {
        cell: cell.to_owned(),
        source: source.to_owned(),
    });
}

fn with_text(file: &Document, at: usize, source: &str) -> Document {
    let mut file = file.clone();
    file.set_source(at, source).unwrap();
    file
}

#[test]
fn what_others_write_becomes_one_set_of_that_cell() {
    let file = notebook(&["a\nb", "c"]);
    let mut live = opened(&file);
    live.file(version(&with_text(&file, 0, "a\nb\nagent"), 1));
    let set = EditorRequest::Set {
        seq: 1,
        cell: "e-c0".to_owned(),
        was: "a\nb".to_owned(),
        source: "a\nb\nagent".to_owned(),
        base: None,
        by: "claude".to_owned(),
    };
    assert_eq!(requests(&mut live), [set]);
    live.event(EditorEvent::Applied { seq: 1 });
    assert_eq!(requests(&mut live), [synced("1")]);
    assert_eq!(live.unsaved(), []);
}

#[test]
fn a_set_that_is_done_after_the_document_was_opened_anew_is_not_overlooked() {
    let file = notebook(&["a"]);
    let mut live = opened(&file);
    live.file(version(&with_text(&file, 0, "agent"), 1));
    assert_eq!(requests(&mut live).len(), 1);
    // Both were under way at the same time.
    live.event(EditorEvent::Open(edited(cells_of(&file, "e"))));
    let again = requests(&mut live);
    assert!(
        matches!(again[..], [EditorRequest::Set { seq: 2, .. }]),
        "{again:?}"
    );
    live.event(EditorEvent::Applied { seq: 1 });
    assert_eq!(requests(&mut live), [EditorRequest::Reopen]);
    live.event(EditorEvent::Open(edited(cells_of(
        &with_text(&file, 0, "agent"),
        "e",
    ))));
    assert_eq!(requests(&mut live), [synced("1")]);
    assert_eq!(live.unsaved(), []);
}

#[test]
fn a_change_that_is_not_written_is_taken_back_before_the_editor_may_save_it() {
    let file = notebook(&["a"]);
    let mut live = opened(&file);
    live.propose(version(&with_text(&file, 0, "agent"), 1));
    assert_eq!(requests(&mut live).len(), 1);
    live.file(version(&file, 0));
    live.event(EditorEvent::Applied { seq: 1 });
    let sent = requests(&mut live);
    let [
        EditorRequest::Set {
            seq: 2,
            was,
            source,
            ..
        },
    ] = &sent[..]
    else {
        panic!("{sent:?}");
    };
    assert_eq!((&**was, &**source), ("agent", "a"));
    live.event(EditorEvent::Applied { seq: 2 });
    assert_eq!(requests(&mut live), [synced("0")]);
}

#[test]
fn what_an_editor_loads_while_it_is_asked_for_the_same_is_not_taken_for_the_persons() {
    for is_known_before in [false, true] {
        loads_between_two_versions(is_known_before);
    }
}

/// The file is another one and then the first one again, as git switches twice. `nb` knows that before or after the editor tells
/// that it has loaded the other one.
fn loads_between_two_versions(is_known_before: bool) {
    let file = notebook(&["a", "b"]);
    let mut live = opened(&file);
    let mut other = with_text(&file, 0, "other");
    let new = NewCell {
        id: "new".to_owned(),
        cell_type: CellType::Code,
        source: "new".to_owned(),
        metadata: None,
    };
    other.insert(2, &new).unwrap();
    other.remove(1).unwrap();
    live.file(version(&other, 1));
    let sent = requests(&mut live);
    assert_eq!(sent.len(), 3, "{sent:?}");
    // It loads the file: its cells have other names then, and it refuses what is to be done with those before.
    for request in sent {
        match request {
            EditorRequest::Insert { seq, .. } => live.event(EditorEvent::Applied { seq }),
            EditorRequest::Set { seq, .. } | EditorRequest::Remove { seq, .. } => {
                live.event(EditorEvent::Refused { seq, source: None });
            }
            other => panic!("{other:?}"),
        }
    }
    if is_known_before {
        live.file(version(&file, 2));
    }
    let mut cells = cells_of(&other, "loaded");
    cells.truncate(1);
    live.event(EditorEvent::Cells {
        order: vec!["loaded-c0".to_owned(), "new".to_owned()],
        new: cells,
    });
    if !is_known_before {
        assert_eq!(live.unsaved(), []);
        live.file(version(&file, 2));
    }
    let sent = requests(&mut live);
    assert_eq!(sent.len(), 3, "{sent:?}");
    for seq in 4..=6 {
        live.event(EditorEvent::Applied { seq });
    }
    assert_eq!(requests(&mut live), [synced("2")]);
    assert_eq!(live.texts(), ["a", "b"]);
}

#[test]
fn a_refused_set_is_merged_with_what_the_person_typed() {
    let file = notebook(&["a\nb\nc"]);
    let mut live = opened(&file);
    live.file(version(&with_text(&file, 0, "a\nb\nc\nagent"), 1));
    assert_eq!(requests(&mut live).len(), 1);
    live.event(EditorEvent::Refused {
        seq: 1,
        source: Some("person\na\nb\nc".to_owned()),
    });
    let sent = requests(&mut live);
    let [EditorRequest::Set { was, source, .. }] = &sent[..] else {
        panic!("{sent:?}");
    };
    assert_eq!(
        (&**was, &**source),
        ("person\na\nb\nc", "person\na\nb\nc\nagent")
    );
    let [unsaved] = &live.unsaved()[..] else {
        panic!("{:?}", live.unsaved());
    };
    assert_eq!((&*unsaved.id, &*unsaved.source), ("c0", "person\na\nb\nc"));
}

#[test]
fn a_conflict_stands_until_the_person_chooses() {
    let file = notebook(&["x = 1"]);
    let mut live = opened(&file);
    typed(&mut live, "e-c0", "x = 2");
    live.file(version(&with_text(&file, 0, "x = 3"), 1));
    let conflict = EditorRequest::Conflict {
        cell: "e-c0".to_owned(),
        by: "claude".to_owned(),
        base: Some("x = 1".to_owned()),
        mine: "x = 2".to_owned(),
        theirs: "x = 3".to_owned(),
    };
    assert_eq!(requests(&mut live), [conflict]);
    // Another notice of the same file does not settle it, and does not show it again.
    live.file(version(&with_text(&file, 0, "x = 3"), 1));
    assert_eq!(requests(&mut live), []);
    let choose = |keep, theirs: &str| EditorEvent::Choose {
        cell: "e-c0".to_owned(),
        keep,
        theirs: theirs.to_owned(),
    };
    live.event(choose(Keep::Theirs, "x = 0"));
    assert_eq!(
        requests(&mut live),
        [],
        "the person chose against another text"
    );
    live.event(choose(Keep::Both, "x = 3"));
    let sent = requests(&mut live);
    let [
        EditorRequest::Settled { .. },
        EditorRequest::Set { source, seq, .. },
    ] = &sent[..]
    else {
        panic!("{sent:?}");
    };
    assert_eq!(source, "x = 2\nx = 3");
    live.event(EditorEvent::Applied { seq: *seq });
    assert_eq!(requests(&mut live), [synced("1")]);
}

#[test]
fn a_write_just_after_the_save_of_a_chosen_text_is_no_conflict() {
    let file = notebook(&["x = 1"]);
    let mut live = opened(&file);
    typed(&mut live, "e-c0", "x = 2");
    let theirs = with_text(&file, 0, "x = 3");
    live.file(version(&theirs, 1));
    assert_eq!(requests(&mut live).len(), 1);
    live.event(EditorEvent::Choose {
        cell: "e-c0".to_owned(),
        keep: Keep::Mine,
        theirs: "x = 3".to_owned(),
    });
    let settled = EditorRequest::Settled {
        cell: "e-c0".to_owned(),
    };
    assert_eq!(requests(&mut live), [settled, synced("1")]);
    // The editor takes that for the answer, and has saved before nb reads the file; by then it is another one.
    live.event(EditorEvent::Saving);
    live.file(version(&file, 2));
    assert_eq!(requests(&mut live).len(), 1);
    live.event(EditorEvent::Saved {
        order: vec!["e-c0".to_owned()],
    });
    live.file(version(&file, 2));
    let [
        EditorRequest::Settled { .. },
        EditorRequest::Set { source, .. },
    ] = &requests(&mut live)[..]
    else {
        panic!("{live:?}");
    };
    assert_eq!(source, "x = 1");
}

/// Returns a notebook with another execution and another tag of a cell.
fn with_data(file: &Document, at: usize, number: u64) -> Document {
    let mut file = file.clone();
    put_data(&mut file, at, Some(number), Some(number));
    file
}

/// A cell in which the person has typed `x = 2`, and others have written `x = 3`.
fn in_conflict() -> (Document, LiveDocument) {
    let file = notebook(&["x = 1"]);
    let mut live = opened(&file);
    typed(&mut live, "e-c0", "x = 2");
    live.file(version(&with_text(&file, 0, "x = 3"), 1));
    assert_eq!(requests(&mut live).len(), 1);
    (file, live)
}

/// Saves while another program writes `version`, which the save replaces, and which is read before.
fn saved_over(live: &mut LiveDocument, other: &Document, saved: &Document) -> Vec<EditorRequest> {
    live.event(EditorEvent::Saving);
    live.file(version(live.document(), 0));
    assert_eq!(requests(live), [synced("0")]);
    live.file(version(other, 1));
    assert_eq!(requests(live), []);
    live.event(EditorEvent::Saved {
        order: vec!["e-c0".to_owned(), "e-c1".to_owned()],
    });
    live.file(version(saved, 2));
    requests(live)
}

#[test]
fn what_others_write_while_the_editor_saves_over_it_comes_into_the_editor() {
    let file = notebook(&["x = 1", "y = 1"]);
    let mut live = opened(&file);
    let sent = saved_over(&mut live, &with_text(&file, 1, "y = 2"), &file);
    let [EditorRequest::Set { seq, source, .. }] = &sent[..] else {
        panic!("{sent:?}");
    };
    assert_eq!(source, "y = 2");
    live.event(EditorEvent::Applied { seq: *seq });
    assert_eq!(requests(&mut live), [synced("2")]);
    assert_eq!(live.unsaved().len(), 1, "it is still to be saved");
}

#[test]
fn a_cell_that_an_agent_removes_while_the_editor_saves_over_it_is_removed_there_too() {
    let file = notebook(&["x = 1", "y = 1"]);
    let mut without = file.clone();
    without.remove(1).unwrap();
    let cells = ["e-c0", "e-c1"].map(str::to_owned);
    for is_by_nb in [true, false] {
        let mut live = opened(&file);
        live.event(EditorEvent::Saving);
        live.file(version(&file, 0));
        assert_eq!(requests(&mut live), [synced("0")]);
        // The editor has its texts by now; the command does not wait for it any longer.
        match is_by_nb {
            true => {
                live.propose(version(&without, 1));
                live.written();
            }
            // Another program, or an earlier save of the editor.
            false => live.file(version(&without, 1)),
        }
        assert_eq!(requests(&mut live), []);
        live.event(EditorEvent::Saved {
            order: cells.to_vec(),
        });
        live.file(version(&file, 2));
        let sent = requests(&mut live);
        let is_removed =
            |it: &EditorRequest| matches!(it, EditorRequest::Remove { cell, .. } if cell == "e-c1");
        assert_eq!(sent.iter().any(is_removed), is_by_nb, "{sent:?}");
    }
}

#[test]
fn a_cell_that_others_have_run_and_tagged_is_removed_when_they_remove_it() {
    let file = with_data(&notebook(&["x = 1", "y = 1"]), 1, 1);
    let mut live = opened(&file);
    let other = with_data(&file, 1, 2);
    live.file(version(&other, 1));
    for request in requests(&mut live) {
        if let EditorRequest::Metadata { seq, .. } | EditorRequest::Outputs { seq, .. } = request {
            live.event(EditorEvent::Applied { seq });
        }
    }
    assert_eq!(requests(&mut live), [synced("1")]);
    let mut without = other;
    without.remove(1).unwrap();
    live.file(version(&without, 2));
    let sent = requests(&mut live);
    assert!(
        matches!(&sent[..], [EditorRequest::Remove { cell, .. }] if cell == "e-c1"),
        "{sent:?}"
    );
}

#[test]
fn what_the_file_still_has_after_a_save_was_not_replaced() {
    let file = notebook(&["x = 1", "y = 1"]);
    let mut live = opened(&file);
    let other = with_text(&file, 1, "y = 2");
    let sent = saved_over(&mut live, &other, &with_text(&other, 0, "x = 2"));
    let sets = sent.iter().filter_map(|it| match it {
        EditorRequest::Set { source, .. } => Some(&**source),
        _ => None,
    });
    assert_eq!(sets.collect::<Vec<_>>(), ["x = 2", "y = 2"]);
}

#[test]
fn a_save_that_is_read_before_the_editor_tells_of_it_offers_what_it_replaced() {
    let (file, mut live) = in_conflict();
    live.file(version(&with_text(&file, 0, "x = 2"), 2));
    let offered = |sent: &[EditorRequest]| {
        let is_offer = |it: &&EditorRequest| matches!(it, EditorRequest::Overwritten { .. });
        sent.iter().filter(is_offer).count()
    };
    assert_eq!(offered(&requests(&mut live)), 1);
    live.event(EditorEvent::Saving);
    live.event(EditorEvent::Saved {
        order: vec!["e-c0".to_owned()],
    });
    live.file(version(&with_text(&file, 0, "x = 2"), 2));
    assert_eq!(offered(&requests(&mut live)), 0);
}

#[test]
fn a_command_that_writes_the_persons_text_has_saved_over_nothing() {
    let (file, mut live) = in_conflict();
    live.propose(version(&with_text(&file, 0, "x = 2"), 2));
    let cell = "e-c0".to_owned();
    assert_eq!(requests(&mut live), [EditorRequest::Settled { cell }]);
}

#[test]
fn a_text_over_which_the_person_saved_is_offered_once() {
    let (file, mut live) = in_conflict();
    // The editor asks, and the person overwrites.
    live.event(EditorEvent::Saved {
        order: vec!["e-c0".to_owned()],
    });
    let saved = with_text(&file, 0, "x = 2");
    live.file(version(&saved, 2));
    let cell = || "e-c0".to_owned();
    let theirs = "x = 3".to_owned();
    assert_eq!(
        requests(&mut live),
        [
            EditorRequest::Overwritten {
                cell: cell(),
                theirs: theirs.clone()
            },
            EditorRequest::Settled { cell: cell() },
            synced("2"),
        ]
    );
    let both = || EditorEvent::Choose {
        cell: cell(),
        keep: Keep::Both,
        theirs: theirs.clone(),
    };
    live.event(both());
    let sent = requests(&mut live);
    let [EditorRequest::Set { seq, source, .. }] = &sent[..] else {
        panic!("{sent:?}");
    };
    assert_eq!(source, "x = 2\nx = 3");
    live.event(EditorEvent::Applied { seq: *seq });
    assert_eq!(requests(&mut live), [synced("2")]);
    live.event(both());
    assert_eq!(requests(&mut live), [], "it was brought back already");
}

#[test]
fn an_editor_s_own_save_is_no_change_by_others() {
    let file = notebook(&["a"]);
    let mut live = opened(&file);
    typed(&mut live, "e-c0", "ab");
    live.event(EditorEvent::Saving);
    assert!(live.needs_file());
    live.file(version(&file, 0));
    assert_eq!(requests(&mut live), [synced("0")]);
    assert!(live.is_saving());
    // Which of the texts is saved is not known.
    typed(&mut live, "e-c0", "abc");
    typed(&mut live, "e-c0", "abcd");
    live.event(EditorEvent::Saved {
        order: vec!["e-c0".to_owned()],
    });
    live.file(version(&with_text(&file, 0, "abc"), 1));
    assert_eq!(requests(&mut live), [synced("1")]);
    let [unsaved] = &live.unsaved()[..] else {
        panic!("{:?}", live.unsaved());
    };
    assert_eq!(unsaved.source, "abcd");
}

#[test]
fn nothing_is_asked_between_the_answer_to_saving_and_saved() {
    let file = notebook(&["a", "b"]);
    let mut live = opened(&file);
    live.event(EditorEvent::Saving);
    live.file(version(&file, 0));
    assert_eq!(requests(&mut live), [synced("0")]);
    live.file(version(&with_text(&file, 1, "agent"), 1));
    assert_eq!(requests(&mut live), []);
    live.give_up_save();
    assert_eq!(requests(&mut live).len(), 1);
}

#[test]
fn the_unsaved_text_of_a_tab_that_was_restored_is_a_conflict() {
    let file = notebook(&["x = 1", "y = 1"]);
    let mut cells = cells_of(&file, "e");
    cells[0].source = "x = 2".to_owned();
    let mut live =
        LiveDocument::open(&edited(cells), version(&file, 0), &HashMap::new(), true).unwrap();
    let sent = requests(&mut live);
    let [
        EditorRequest::Conflict {
            base, mine, theirs, ..
        },
    ] = &sent[..]
    else {
        panic!("{sent:?}");
    };
    assert_eq!((base, &**mine, &**theirs), (&None, "x = 2", "x = 1"));
}

#[test]
fn the_unsaved_text_of_a_tab_that_has_the_file_s_last_version_is_the_persons() {
    let file = notebook(&["x = 1", "y = 1", "z = 1"]);
    let mut cells = cells_of(&file, "e");
    cells[0].source = "x = 2".to_owned();
    // The person has also deleted a cell.
    cells.remove(1);
    let mut opened = OpenedDocument {
        synced: Some("0".to_owned()),
        ..edited(cells)
    };
    let mut live = LiveDocument::open(&opened, version(&file, 0), &HashMap::new(), true).unwrap();
    assert_eq!(requests(&mut live), [synced("0")]);
    let unsaved = live.unsaved();
    assert_eq!(unsaved.len(), 1);
    assert_eq!(unsaved[0].source, "x = 2");
    // VS Code says of a notebook that it has restored that it has no unsaved changes.
    opened.dirty = false;
    let mut live = LiveDocument::open(&opened, version(&file, 0), &HashMap::new(), true).unwrap();
    assert_eq!(requests(&mut live), [synced("0")]);
    assert_eq!(live.unsaved(), unsaved);
    opened.dirty = true;
    // If the file has changed since, it is not known which text is newer.
    opened.synced = Some("7".to_owned());
    let mut live = LiveDocument::open(&opened, version(&file, 0), &HashMap::new(), true).unwrap();
    let sent = requests(&mut live);
    let is_conflict = |it: &EditorRequest| matches!(it, EditorRequest::Conflict { .. });
    assert!(sent.iter().any(is_conflict), "{sent:?}");
}

#[test]
fn what_others_have_changed_while_nb_was_not_there_is_known_by_the_notebook_s_history() {
    let before = notebook(&["x = 1", "y = 1", "z = 1", "u = 1"]);
    let mut cells = cells_of(&before, "e");
    cells[1].source = "y = 1 # mine".to_owned();
    // The person has also deleted a cell, and typed where others did.
    cells.remove(2);
    cells[2].source = "u = 3".to_owned();
    let opened = OpenedDocument {
        synced: Some("7".to_owned()),
        ..edited(cells)
    };
    let texts = before.cells().iter();
    let earlier = texts.map(|cell| (cell.id().to_owned(), cell.source().into_owned()));
    let now = with_text(&with_text(&before, 0, "agent = 1"), 3, "u = 2");
    let mut live = LiveDocument::open(&opened, version(&now, 0), &earlier.collect(), true).unwrap();
    let sent = requests(&mut live);
    let [
        EditorRequest::Conflict {
            mine, theirs, base, ..
        },
        EditorRequest::Set { cell, source, .. },
    ] = &sent[..]
    else {
        panic!("{sent:?}");
    };
    assert_eq!((&**cell, &**source), ("e-c0", "agent = 1"));
    assert_eq!(
        (base.as_deref(), &**mine, &**theirs),
        (Some("u = 1"), "u = 3", "u = 2")
    );
    let unsaved: Vec<_> = live.unsaved().into_iter().map(|it| it.source).collect();
    assert_eq!(unsaved, ["y = 1 # mine", "u = 3"]);
}

#[test]
fn cells_without_ids_are_found_by_text_and_place() {
    let old = r#"{"cells":[{"cell_type":"code","source":"a","outputs":[],"execution_count":null,"metadata":{}},{"cell_type":"code","source":"b","outputs":[],"execution_count":null,"metadata":{}}],"metadata":{},"nbformat":4,"nbformat_minor":4}"#;
    let file = Document::parse(old).unwrap();
    let cell = |name: &str, source: &str| EditorCell {
        cell: name.to_owned(),
        id: None,
        cell_type: CellType::Code,
        source: source.to_owned(),
    };
    let cells = vec![cell("1", "a"), cell("2", "b")];
    let mut live =
        LiveDocument::open(&clean(cells), version(&file, 0), &HashMap::new(), true).unwrap();
    assert_eq!(requests(&mut live), [synced("0")]);
    live.file(version(&with_text(&file, 1, "b2"), 1));
    let sent = requests(&mut live);
    assert!(
        matches!(&sent[..], [EditorRequest::Set { cell, .. }] if cell == "2"),
        "{sent:?}"
    );
}

#[test]
fn what_an_editor_has_loaded_is_not_taken_for_typed() {
    let file = notebook(&["a", "b"]);
    let cells = cells_of(&file, "e");
    let mut live =
        LiveDocument::open(&clean(cells), version(&file, 0), &HashMap::new(), false).unwrap();
    typed(&mut live, "e-c1", "typed");
    let first = with_text(&file, 0, "agent 1");
    live.file(version(&first, 1));
    // The editor shows it, as one does that loads a file in which only this cell differs.
    typed(&mut live, "e-c0", "agent 1");
    requests(&mut live);
    live.file(version(&with_text(&first, 0, "agent 2"), 2));
    requests(&mut live);
    let unsaved: Vec<_> = live.unsaved().into_iter().map(|it| it.id).collect();
    assert_eq!(unsaved, ["c1"]);
}

#[test]
fn an_editor_that_can_change_nothing_is_asked_for_nothing() {
    let file = notebook(&["a"]);
    let cells = cells_of(&file, "e");
    let mut live =
        LiveDocument::open(&clean(cells), version(&file, 0), &HashMap::new(), false).unwrap();
    typed(&mut live, "e-c0", "typed");
    live.file(version(&with_text(&file, 0, "agent"), 1));
    let asks = |it: &EditorRequest| !matches!(it, EditorRequest::Synced { .. });
    assert!(!requests(&mut live).iter().any(asks));
    assert_eq!(live.unsaved().len(), 1);
}

/// In a room the server writes the file, with what the editor has had before; the editor gets what a command proposes.
#[test]
fn in_a_room_the_editor_gets_only_what_is_proposed_and_has_it_stored() {
    let file = notebook(&["a", "b"]);
    let cells = cells_of(&file, "e");
    let mut live =
        LiveDocument::open(&in_room(cells), version(&file, 0), &HashMap::new(), true).unwrap();
    assert_eq!(requests(&mut live), [synced("0")]);
    typed(&mut live, "e-c0", "a person");
    let saved = with_text(&file, 0, "a per");
    live.file(version(&saved, 1));
    // The person types on.
    assert_eq!(requests(&mut live), [synced("1")]);
    assert_eq!(live.unsaved()[0].source, "a person");

    live.propose(version(&with_text(&saved, 1, "agent"), 2));
    let set = EditorRequest::Set {
        seq: 1,
        cell: "e-c1".to_owned(),
        was: "b".to_owned(),
        source: "agent".to_owned(),
        base: None,
        by: "claude".to_owned(),
    };
    assert_eq!(requests(&mut live), [set]);
    live.event(EditorEvent::Applied { seq: 1 });
    assert!(!live.has_version(), "the file does not have it");
    assert_eq!(requests(&mut live), [EditorRequest::Store { seq: 2 }]);
    typed(&mut live, "e-c0", "a person types");
    assert_eq!(requests(&mut live), []);
    live.event(EditorEvent::Applied { seq: 2 });
    assert_eq!(requests(&mut live), []);
    assert!(live.has_version());
    assert_eq!(*live.stored(), StoredInRoom::default());
    live.file(version(
        &with_text(&with_text(&file, 0, "a person types"), 1, "agent"),
        3,
    ));
    assert_eq!(requests(&mut live), [synced("3")]);
    assert_eq!(live.unsaved(), []);
}

#[test]
fn in_a_room_a_text_of_the_person_stands_over_what_is_proposed_and_a_failed_store_is_asked_for_again()
 {
    let file = notebook(&["a"]);
    let cells = cells_of(&file, "e");
    let mut live =
        LiveDocument::open(&in_room(cells), version(&file, 0), &HashMap::new(), true).unwrap();
    requests(&mut live);
    typed(&mut live, "e-c0", "mine");
    live.propose(version(&with_text(&file, 0, "agent"), 1));
    assert_eq!(requests(&mut live), [EditorRequest::Store { seq: 1 }]);
    assert_eq!(live.stored().refused, ["c0"]);
    live.event(EditorEvent::Refused {
        seq: 1,
        source: None,
    });
    assert!(live.is_refused());
    live.try_again();
    assert_eq!(requests(&mut live), [EditorRequest::Store { seq: 2 }]);
    live.event(EditorEvent::Applied { seq: 2 });
    live.file(version(&with_text(&file, 0, "mine"), 2));
    assert_eq!(requests(&mut live), [synced("2")]);
}

#[test]
fn a_writer_in_a_room_learns_which_text_of_the_person_its_own_was_merged_with() {
    let file = notebook(&["a\nb"]);
    let cells = cells_of(&file, "e");
    let mut live =
        LiveDocument::open(&in_room(cells), version(&file, 0), &HashMap::new(), true).unwrap();
    requests(&mut live);
    typed(&mut live, "e-c0", "a\nb\ntyped");
    live.propose(version(&with_text(&file, 0, "agent\nb"), 1));
    let [EditorRequest::Set { seq, source, .. }] = &requests(&mut live)[..] else {
        panic!("one set");
    };
    assert_eq!(source, "agent\nb\ntyped");
    live.event(EditorEvent::Applied { seq: *seq });
    requests(&mut live);
    assert_eq!(live.stored().replaced["c0"], "a\nb\ntyped");
    assert!(live.stored().refused.is_empty());
}

/// Opens a notebook in an editor that takes texts alone.
fn opened_for_texts(file: &Document) -> LiveDocument {
    let mut live = opened(file);
    live.take_only_texts();
    live
}

fn base_of(source: &str) -> EditorRequest {
    EditorRequest::Base {
        cell: "e-c0".to_owned(),
        source: source.to_owned(),
    }
}

#[test]
fn a_save_by_a_command_is_no_conflict_with_what_is_typed_after_it() {
    let file = notebook(&["a"]);
    let mut live = opened_for_texts(&file);
    typed(&mut live, "e-c0", "ab");
    typed(&mut live, "e-c0", "abc");
    live.propose(version(&with_text(&file, 0, "ab"), 1));
    assert_eq!(requests(&mut live), [base_of("ab")]);
    assert!(live.has_version());
    live.written();
    assert_eq!(requests(&mut live), [synced("1")]);
    assert_eq!(live.unsaved()[0].source, "abc");
}

#[test]
fn a_save_that_was_merged_with_lines_of_others_is_no_conflict_with_what_is_typed_after_it() {
    let file = notebook(&["a\nb\nc"]);
    let mut live = opened_for_texts(&file);
    typed(&mut live, "e-c0", "a1\nb\nc");
    typed(&mut live, "e-c0", "a12\nb\nc");
    live.propose(version(&with_text(&file, 0, "a1\nb\nagent"), 1));
    let [
        EditorRequest::Set {
            seq, source, base, ..
        },
    ] = &requests(&mut live)[..]
    else {
        panic!("one set");
    };
    assert_eq!(source, "a12\nb\nagent");
    assert_eq!(base.as_deref(), Some("a1\nb\nagent"));
    live.event(EditorEvent::Applied { seq: *seq });
    live.written();
    assert_eq!(requests(&mut live), [base_of("a1\nb\nagent"), synced("1")]);
    // A text that others have not kept is no save.
    typed(&mut live, "e-c0", "a123\nb\nagent");
    live.file(version(&with_text(&file, 0, "other\nb\nagent"), 2));
    let conflict = requests(&mut live);
    assert!(
        matches!(conflict[..], [EditorRequest::Conflict { .. }]),
        "{conflict:?}"
    );
}

#[test]
fn a_set_has_the_text_of_the_file_where_lines_are_unsaved() {
    let file = notebook(&["a\nb", "c"]);
    let mut live = opened_for_texts(&file);
    typed(&mut live, "e-c0", "typed\nb");
    let agents = with_text(&with_text(&file, 0, "a\nagent"), 1, "agent");
    live.propose(version(&agents, 1));
    let sets = requests(&mut live)
        .into_iter()
        .map(|request| match request {
            EditorRequest::Set { source, base, .. } => (source, base),
            other => panic!("{other:?}"),
        });
    let sets: Vec<_> = sets.collect();
    let merged = ("typed\nagent".to_owned(), Some("a\nagent".to_owned()));
    assert_eq!(sets, [merged, ("agent".to_owned(), None)]);
}

#[test]
fn an_editor_that_takes_texts_alone_is_not_asked_for_outputs_and_metadata() {
    let file = notebook(&["a", "c"]);
    let mut live = opened_for_texts(&file);
    let mut changed = with_text(&file, 1, "agent");
    put_data(&mut changed, 0, Some(7), Some(7));
    live.file(version(&changed, 1));
    let sent = requests(&mut live);
    assert!(matches!(sent[..], [EditorRequest::Set { .. }]), "{sent:?}");
}
