//! Notebooks and work on them, made of a fuzzer's bytes: well-formed outside, odd inside.

pub mod peers;

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use nb::notebook::{CellSelector, Document, Json, Operation};

/// A notebook.
#[derive(Arbitrary, Debug)]
pub struct Page<'a> {
    cells: Vec<PageCell<'a>>,
    metadata: Value<'a>,
    minor: u8,
    /// How it is written: the bits choose.
    style: u8,
}

/// A cell of it.
#[derive(Arbitrary, Debug)]
struct PageCell<'a> {
    id: u8,
    kind: u8,
    source: Value<'a>,
    metadata: Value<'a>,
    outputs: Vec<Value<'a>>,
    /// Which fields it has, and in which order.
    fields: u8,
}

/// Any JSON.
#[derive(Arbitrary, Debug)]
enum Value<'a> {
    /// One of the odd ones.
    Odd(u8),
    Text(&'a str),
    Lines(Vec<&'a str>),
    Object(Vec<(&'a str, Value<'a>)>),
    List(Vec<Value<'a>>),
}

const ODD: [&str; 16] = [
    "null",
    "{}",
    "[]",
    "\"\"",
    "NaN",
    "-Infinity",
    "1e-05",
    "123456789012345678901234567890",
    "1.0",
    "\"\\ud800\"",
    "\"a\tb\\u0000\u{1}\"",
    "{\"a\":1,\"a\":2}",
    "[[[[{\"a\":[]}]]]]",
    "{\"execution\":{\"iopub.status.idle\":\"2026-01-01T00:00:00+02:00\"}}",
    "{\"output_type\":\"stream\",\"name\":\"stdout\",\"text\":[\"a\\r\",\"b\\n\"]}",
    "{\"output_type\":\"display_data\",\"data\":{\"image/png\":\"iVBORw0KGgo=\",\"text/plain\":3}}",
];

impl Value<'_> {
    fn write(&self, out: &mut String) {
        let string = |text: &str| serde_json::to_string(text).expect("a string is JSON");
        let list = |out: &mut String, parts: Vec<String>, ends: [char; 2]| {
            out.push(ends[0]);
            out.push_str(&parts.join(","));
            out.push(ends[1]);
        };
        match self {
            Self::Odd(which) => out.push_str(ODD[usize::from(*which) % ODD.len()]),
            Self::Text(text) => out.push_str(&string(text)),
            Self::Lines(lines) => list(
                out,
                lines.iter().map(|line| string(line)).collect(),
                ['[', ']'],
            ),
            Self::Object(fields) => {
                let field =
                    |(key, value): &(&str, Self)| format!("{}:{}", string(key), value.text());
                list(out, fields.iter().map(field).collect(), ['{', '}']);
            }
            Self::List(values) => list(out, values.iter().map(Self::text).collect(), ['[', ']']),
        }
    }

    fn text(&self) -> String {
        let mut out = String::new();
        self.write(&mut out);
        out
    }
}

impl Page<'_> {
    /// Returns the file's bytes.
    pub fn text(&self) -> String {
        let bit = |bit: u8| self.style & bit != 0;
        let gap = match (bit(1), bit(2)) {
            (true, true) => "\r\n\t",
            (true, false) => "\n ",
            _ => "",
        };
        let colon = if bit(4) { ": " } else { ":" };
        let cells: Vec<_> = self
            .cells
            .iter()
            .map(|cell| cell.text(gap, colon))
            .collect();
        let mut fields = vec![
            format!("\"cells\"{colon}[{}]", cells.join(&format!(",{gap}"))),
            format!("\"metadata\"{colon}{}", self.metadata.text()),
            format!("\"nbformat\"{colon}4"),
            format!("\"nbformat_minor\"{colon}{}", self.minor % 7),
        ];
        if bit(8) {
            fields.rotate_left(1);
        }
        if bit(16) {
            fields.pop();
        }
        let mark = if bit(32) { "\u{feff}" } else { "" };
        format!("{mark}{{{gap}{}{gap}}}", fields.join(&format!(",{gap}")))
    }
}

impl PageCell<'_> {
    fn text(&self, gap: &str, colon: &str) -> String {
        let bit = |bit: u8| self.fields & bit != 0;
        let kind = ["code", "code", "markdown", "raw", "heading"][usize::from(self.kind) % 5];
        let mut fields = vec![
            format!("\"cell_type\"{colon}\"{kind}\""),
            format!("\"metadata\"{colon}{}", self.metadata.text()),
            format!("\"source\"{colon}{}", self.source.text()),
        ];
        let outputs: Vec<_> = self.outputs.iter().map(Value::text).collect();
        if bit(1) {
            fields.push(format!("\"outputs\"{colon}[{}]", outputs.join(",")));
            fields.push(format!("\"execution_count\"{colon}{}", self.kind));
        }
        if bit(2) {
            fields.push(format!("\"id\"{colon}\"cell-{}\"", self.id % 16));
        }
        if bit(4) {
            fields.rotate_left(2);
        }
        if bit(8) {
            fields.pop();
        }
        if bit(16) {
            fields.push(format!("\"\\u0069d\"{colon}{}", self.metadata.text()));
        }
        format!("{{{gap}{}{gap}}}", fields.join(&format!(",{gap}")))
    }
}

/// What an operation is made of.
#[derive(Arbitrary, Debug)]
pub struct Step<'a> {
    kind: u8,
    cell: u8,
    other: u8,
    text: &'a str,
    value: Value<'a>,
}

impl Step<'_> {
    /// Returns the operation.
    pub fn operation(&self) -> Operation {
        let select = |number: u8| match number {
            0..128 => CellSelector::Index(i64::from(number % 12) - 2),
            128..192 => CellSelector::Id(format!("cell-{}", number % 16)),
            192..224 => CellSelector::Count(u64::from(number % 16)),
            _ => CellSelector::Range {
                start: Some(i64::from(number % 4) - 1),
                end: (!number.is_multiple_of(3)).then_some(i64::from(number % 5)),
                inclusive: number.is_multiple_of(2),
            },
        };
        let (cell, other) = (select(self.cell), select(self.other));
        let source = self.text.to_owned();
        let value = Json::parse(&self.value.text()).expect("JSON was written");
        let types = ["code", "markdown", "raw"];
        let cell_type = types[usize::from(self.other) % 3].parse().expect("a type");
        match self.kind % 9 {
            0 => Operation::Insert {
                after: (self.kind > 128).then(|| cell.clone()),
                before: (self.kind < 64).then_some(other),
                at: None,
                id: self.kind.is_multiple_of(2).then(|| self.text.to_owned()),
                cell_type: Some(cell_type),
                source,
                metadata: self.cell.is_multiple_of(2).then_some(value),
            },
            1 => Operation::Edit {
                cell,
                if_rev: None,
                source: Some(source),
                cell_type: self.kind.is_multiple_of(2).then_some(cell_type),
                metadata: vec![(vec![self.text.to_owned()], value)],
            },
            2 => Operation::Replace {
                cell,
                if_rev: None,
                old: source,
                new: self.value.text(),
                all: self.kind.is_multiple_of(2),
            },
            3 => Operation::Remove {
                cells: vec![cell, other],
                if_rev: None,
            },
            4 => Operation::Move {
                cell,
                if_rev: None,
                after: (self.kind < 64).then(|| other.clone()),
                before: (self.kind > 128).then_some(other),
                to: Some(i64::from(self.kind % 4) - 1).filter(|_| (64..=128).contains(&self.kind)),
            },
            5 => Operation::Clear {
                cells: [cell, other]
                    .into_iter()
                    .take(usize::from(self.kind % 3))
                    .collect(),
            },
            6 => Operation::Split {
                cell,
                if_rev: None,
                line: usize::from(self.other % 4),
                id: None,
            },
            7 => Operation::Join {
                cells: [cell, other]
                    .into_iter()
                    .take(1 + usize::from(self.kind % 2))
                    .collect(),
            },
            _ => Operation::Edit {
                cell,
                if_rev: None,
                source: Some(self.value.text()),
                cell_type: None,
                metadata: Vec::new(),
            },
        }
    }
}

/// Does what of the steps can be done.
pub fn worked(document: &Document, steps: &[Step<'_>], side: &str) -> Document {
    let mut now = document.clone();
    let mut number = 0;
    for step in steps {
        let mut fresh = || {
            number += 1;
            format!("{side}{number}")
        };
        match now.applied(&[step.operation()], &mut fresh) {
            Ok((after, _)) => now = after,
            Err(error) => drop(error.to_string()),
        }
    }
    now
}

/// Makes sure that a document's bytes open to the same document.
pub fn assert_whole(document: &Document) {
    let bytes = document.to_bytes();
    let again = Document::parse(bytes.clone())
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&bytes)));
    assert_eq!(again.to_bytes(), bytes);
    let revisions = |document: &Document| {
        let cells = document.cells().iter();
        cells.map(nb::notebook::Cell::revision).collect::<Vec<_>>()
    };
    assert_eq!(revisions(&again), revisions(document));
    // A cell without an id in the file gets one when the file is read, which depends on the cells before it.
    let has_id = |cell: &nb::notebook::Cell| {
        let id = cell.json().get("id");
        id.is_some_and(|id| id.as_string().as_deref() == Some(cell.id()))
    };
    if !document.cells().iter().all(has_id) {
        return;
    }
    assert_eq!(again.revision(), document.revision());
    let ids = |document: &Document| {
        document
            .cells()
            .iter()
            .map(|cell| cell.id().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(ids(&again), ids(document));
}
