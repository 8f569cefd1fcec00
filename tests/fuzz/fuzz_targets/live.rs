//! Any reports of an editor, in any order: `nb live` asks for a limited number of changes, and does not panic.

#![no_main]

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use nb::live::protocol::{EditorCell, EditorEvent, Keep, OpenedDocument};
use nb::live::{FileSnapshot, LiveDocument};
use nb::notebook::{CellType, Document};

const NAMES: [&str; 6] = ["a", "b", "c", "d", "new-0", ""];
const TEXTS: [&str; 8] = ["", "x", "x\ny", "y\nx", "\n\n", "x\r\n", "\u{0}", "é"];

/// A cell: its name, its id, its text.
type CellBytes = (u8, u8, u8);

/// What an editor and a file begin with, and what happens then.
#[derive(Arbitrary, Debug)]
struct Case<'a> {
    file: Vec<(u8, u8)>,
    earlier: Vec<(u8, u8)>,
    opened: Opened,
    messages: Vec<Message<'a>>,
}

/// The cells of a document, whether it has unsaved changes and is in a room, and the last version that it had.
#[derive(Arbitrary, Debug)]
struct Opened(Vec<CellBytes>, bool, bool, Option<u8>);

/// One message, or another version of the file.
#[derive(Arbitrary, Debug)]
enum Message<'a> {
    Open(Opened),
    Text(u8, u8),
    Cells(Vec<u8>, Vec<CellBytes>),
    Saving,
    Saved(Vec<u8>),
    Applied(u8),
    Refused(u8, Option<u8>),
    Choose(u8, u8, u8),
    File(Vec<(u8, u8)>),
    Propose(Vec<(u8, u8)>),
    TryAgain,
    GiveUpSave,
    Line(&'a str),
}

fn pick<'a, T: ?Sized>(of: &[&'a T], at: u8) -> &'a T {
    of[usize::from(at) % of.len()]
}

fn cells(cells: &[CellBytes]) -> Vec<EditorCell> {
    let cells = cells.iter();
    cells
        .map(|(name, id, text)| EditorCell {
            cell: pick(&NAMES, *name).to_owned(),
            id: (id % 8 < 6).then(|| pick(&NAMES, *id).to_owned()),
            cell_type: [CellType::Code, CellType::Markdown, CellType::Raw][usize::from(id % 3)],
            source: pick(&TEXTS, *text).to_owned(),
        })
        .collect()
}

fn opened(Opened(all, dirty, room, synced): &Opened) -> OpenedDocument {
    OpenedDocument {
        cells: cells(all),
        dirty: *dirty,
        room: *room,
        synced: synced.map(|it| it.to_string()),
        revision: None,
    }
}

fn names(all: &[u8]) -> Vec<String> {
    all.iter().map(|it| pick(&NAMES, *it).to_owned()).collect()
}

fn file(cells: &[(u8, u8)], number: usize) -> FileSnapshot {
    let cells = cells.iter().map(|(id, text)| {
        let (id, text) = (pick(&NAMES, *id), serde_json::json!(pick(&TEXTS, *text)));
        format!(r#"{{"cell_type":"code","id":"{id}","source":{text},"metadata":{{}},"outputs":[],"execution_count":null}}"#)
    });
    let cells: Vec<_> = cells.collect();
    let text = format!(
        r#"{{"cells":[{}],"metadata":{{}},"nbformat":4,"nbformat_minor":5}}"#,
        cells.join(",")
    );
    FileSnapshot {
        document: Document::parse(text).expect("it is a notebook"),
        stamp: number.to_string(),
        by: "an agent".to_owned(),
        removed: NAMES.iter().skip(number % 2 * NAMES.len()).map(|it| (*it).to_owned()).collect(),
    }
}

fuzz_target!(|case: Case<'_>| {
    let before = file(&case.file, 0);
    let earlier = case.earlier.iter().map(|(id, text)| (pick(&NAMES, *id), pick(&TEXTS, *text)));
    let earlier = earlier.map(|(id, text)| (id.to_owned(), text.to_owned())).collect();
    let Ok(mut live) = LiveDocument::open(&opened(&case.opened), before, &earlier, true) else {
        return;
    };
    for (number, message) in case.messages.iter().enumerate() {
        let event = match message {
            Message::Open(document) => EditorEvent::Open(opened(document)),
            Message::Text(cell, text) => EditorEvent::Text {
                cell: pick(&NAMES, *cell).to_owned(),
                source: pick(&TEXTS, *text).to_owned(),
            },
            Message::Cells(order, new) => EditorEvent::Cells {
                order: names(order),
                new: cells(new),
            },
            Message::Saving => EditorEvent::Saving,
            Message::Saved(order) => EditorEvent::Saved {
                order: names(order),
            },
            Message::Applied(seq) => EditorEvent::Applied {
                seq: u64::from(*seq),
            },
            Message::Refused(seq, text) => EditorEvent::Refused {
                seq: u64::from(*seq),
                source: text.map(|it| pick(&TEXTS, it).to_owned()),
            },
            Message::Choose(cell, keep, theirs) => EditorEvent::Choose {
                cell: pick(&NAMES, *cell).to_owned(),
                keep: [Keep::Mine, Keep::Theirs, Keep::Both][usize::from(keep % 3)],
                theirs: pick(&TEXTS, *theirs).to_owned(),
            },
            Message::File(all) => {
                live.file(file(all, number + 1));
                EditorEvent::Applied { seq: u64::MAX }
            }
            Message::Propose(all) => {
                live.propose(file(all, number + 1));
                EditorEvent::Applied { seq: u64::MAX }
            }
            Message::TryAgain => {
                live.try_again();
                continue;
            }
            Message::GiveUpSave => {
                live.give_up_save();
                continue;
            }
            Message::Line(line) => match serde_json::from_str(line) {
                Ok(event) => event,
                Err(_) => continue,
            },
        };
        live.event(event);
        let asked = std::iter::from_fn(|| live.poll()).take(1000).count();
        assert!(asked < 1000, "it asks for ever");
        live.unsaved();
    }
});
