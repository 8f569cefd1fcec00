//! Properties of every notebook and every edit, tested on generated ones.

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use crate::notebook::json::Layout;
use crate::notebook::*;

/// A notebook's meaning, and its text in some style.
#[derive(Clone)]
pub(in crate::notebook) struct Written {
    pub value: Value,
    pub text: Vec<u8>,
}

impl std::fmt::Debug for Written {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.text))
    }
}

pub(in crate::notebook) fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => "[a-c \n]{0,12}",
        1 => "[aé😀\u{2028}\"\\\\\n\r\t\u{1}/]{0,8}",
    ]
}

fn source() -> impl Strategy<Value = Value> {
    (text(), any::<bool>()).prop_map(|(text, list)| match list {
        true => json!(text.split_inclusive('\n').collect::<Vec<_>>()),
        false => json!(text),
    })
}

fn cell() -> impl Strategy<Value = Value> {
    let metadata = prop_oneof![
        Just(json!({})),
        Just(json!({"tags": ["a"], "execution": {"iopub.status.busy": "2026"}})),
        Just(json!({"z": {"y": {"x": 1.5}}, "a": null})),
    ];
    (
        0..4_usize,
        source(),
        metadata,
        proptest::option::of(0..50_u32),
    )
        .prop_map(|(kind, source, metadata, count)| {
            let word = ["code", "code", "markdown", "raw"][kind];
            let mut cell = json!({"cell_type": word, "metadata": metadata, "source": source});
            if word == "code" {
                cell["execution_count"] = json!(count);
                cell["outputs"] = match count {
                    Some(_) => {
                        json!([{"output_type": "stream", "name": "stdout", "text": ["x\n"]}])
                    }
                    None => json!([]),
                };
            }
            cell
        })
}

/// A notebook of format 4.5 in which every cell has an id, or of 4.4 in which none has one.
pub(in crate::notebook) fn notebook(ids: bool) -> impl Strategy<Value = Written> {
    (
        proptest::collection::vec(cell(), 0..6),
        style(),
        any::<bool>(),
    )
        .prop_map(move |(mut cells, (layout, trailing, bom), first)| {
            for (index, cell) in cells.iter_mut().enumerate().filter(|_| ids) {
                cell["id"] = json!(format!("id-{index:03}"));
            }
            let mut value = json!({"metadata": {"kernelspec": {"name": "python3"}}, "nbformat": 4});
            value["nbformat_minor"] = json!(if ids { 5 } else { 4 });
            value["cells"] = Value::Array(cells);
            if first {
                // Jupyter sorts the keys; other writers put the cells last.
                let mut sorted = Map::new();
                sorted.insert("cells".into(), value["cells"].take());
                sorted.extend(
                    value
                        .as_object()
                        .unwrap()
                        .clone()
                        .into_iter()
                        .filter(|(key, _)| key != "cells"),
                );
                value = Value::Object(sorted);
            }
            written(value, &layout, trailing, bom)
        })
}

pub(in crate::notebook) fn style() -> impl Strategy<Value = (Layout, &'static str, bool)> {
    let indent = prop_oneof![Just(""), Just(" "), Just("  "), Just("\t"), Just("    ")];
    let newline = prop_oneof![Just(""), Just("\n"), Just("\n"), Just("\r\n")];
    let colon = prop_oneof![Just(": "), Just(":"), Just(" : ")];
    let trailing = prop_oneof![Just("\n"), Just(""), Just(" \r\n")];
    (
        indent,
        newline,
        colon,
        any::<bool>(),
        trailing,
        any::<bool>(),
    )
        .prop_map(|(unit, newline, colon, ascii, trailing, bom)| {
            let layout = Layout {
                lead: newline.into(),
                unit: unit.into(),
                colon: colon.into(),
                ascii,
            };
            (layout, trailing, bom)
        })
}

pub(in crate::notebook) fn written(
    value: Value,
    layout: &Layout,
    trailing: &str,
    bom: bool,
) -> Written {
    let mut text = if bom {
        b"\xef\xbb\xbf".to_vec()
    } else {
        Vec::new()
    };
    text.extend(layout.value(value.to_string().as_bytes()));
    text.extend(trailing.as_bytes());
    Written { value, text }
}

pub(in crate::notebook) fn open(text: &[u8]) -> Document {
    Document::parse(text.to_vec()).unwrap()
}

pub(in crate::notebook) fn meaning(document: &Document) -> Value {
    let text = document.to_bytes();
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&text);
    serde_json::from_slice(text)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(text)))
}

/// Returns a cell's source, for the same edit on JSON values.
fn source_of(cell: &Value) -> String {
    match &cell["source"] {
        Value::Array(lines) => lines.iter().filter_map(Value::as_str).collect(),
        other => other.as_str().unwrap_or_default().to_owned(),
    }
}

/// Makes sources single strings, so that their form does not matter.
pub(in crate::notebook) fn plain(mut notebook: Value) -> Value {
    for cell in notebook["cells"].as_array_mut().unwrap() {
        cell["source"] = json!(source_of(cell));
    }
    notebook
}

/// Checks that everything is unchanged except the bytes of the cells that an edit touched.
fn assert_rest_is_untouched(before: &Document, after: &Document, touched: &[usize]) {
    for (index, (old, new)) in before.cells.iter().zip(&after.cells).enumerate() {
        assert_eq!(old.before, new.before);
        if !touched.contains(&index) {
            assert_eq!(old.text, new.text);
        }
    }
    assert_eq!(before.close, after.close);
    assert_eq!(before.frame.text, after.frame.text);
}

/// Checks that a document reads back from its bytes to the same parts.
pub(in crate::notebook) fn assert_whole(document: &Document) {
    let again = open(&document.to_bytes());
    assert_eq!(again.cells.len(), document.cells.len());
    for (a, b) in again.cells.iter().zip(&document.cells) {
        assert_eq!(
            (&a.text, &a.before, &a.object, a.own_id),
            (&b.text, &b.before, &b.object, b.own_id)
        );
        assert!(!b.id.is_empty() && (!b.own_id || a.id == b.id));
    }
    assert_eq!(again.close, document.close);
    assert_eq!(again.frame.text, document.frame.text);
    assert_eq!(again.nbformat, document.nbformat);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn what_is_not_edited_keeps_its_bytes(written in any::<bool>().prop_flat_map(notebook)) {
        let document = open(&written.text);
        prop_assert_eq!(document.to_bytes(), &written.text[..]);
        for (cell, value) in document.cells().iter().zip(written.value["cells"].as_array().unwrap()) {
            prop_assert_eq!(cell.source(), source_of(value));
            prop_assert_eq!(cell.cell_type().name(), &value["cell_type"]);
            prop_assert_eq!(json!(cell.execution_count()), value.get("execution_count").cloned().unwrap_or_default());
        }
    }

    #[test]
    fn a_new_source_touches_its_cell_alone(written in any::<bool>().prop_flat_map(notebook), at in 0..6_usize, text in text()) {
        let before = open(&written.text);
        let mut after = before.clone();
        let Ok(changed) = after.set_source(at, &text) else {
            prop_assert!(at >= before.cells().len());
            return Ok(());
        };
        let mut value = written.value.clone();
        let same = source_of(&value["cells"][at]) == text;
        prop_assert_eq!(changed.kind == ChangeKind::Nothing, same);
        prop_assert_eq!(changed.before == changed.after, same);
        value["cells"][at]["source"] = json!(text);
        prop_assert_eq!(plain(meaning(&after)), plain(value));
        assert_rest_is_untouched(&before, &after, &[at]);
        assert_whole(&after);
        if text.is_ascii() && written.text.is_ascii() {
            prop_assert!(after.to_bytes().is_ascii());
        }
    }

    #[test]
    fn metadata_and_type_touch_their_cell_alone(
        written in any::<bool>().prop_flat_map(notebook), at in 0..6_usize, kind in 0..3_usize, key in "[a-z]|tags|execution",
    ) {
        let before = open(&written.text);
        let Some(at) = at.checked_rem(before.cells().len()) else {
            return Ok(());
        };
        let mut after = before.clone();
        after.set_metadata(at, &["z", &key], &Json::parse("[1e-05]").unwrap()).unwrap();
        let mut value = written.value;
        let metadata = &mut value["cells"][at]["metadata"];
        if !metadata["z"].is_object() {
            metadata["z"] = json!({});
        }
        metadata["z"][&key] = json!([1e-05]);
        prop_assert_eq!(meaning(&after), value.clone());
        after.remove_metadata(at, &["z"]).unwrap();
        after.remove_metadata(at, &[&key]).unwrap();
        let metadata = value["cells"][at]["metadata"].as_object_mut().unwrap();
        metadata.shift_remove("z");
        metadata.shift_remove(&key);
        prop_assert_eq!(meaning(&after), value.clone());
        let word = ["code", "markdown", "raw"][kind];
        after.set_type(at, word.parse().unwrap()).unwrap();
        let cell = &mut value["cells"][at];
        let was_code = cell["cell_type"] == "code";
        cell["cell_type"] = json!(word);
        if kind == 0 && !was_code {
            cell["outputs"] = json!([]);
            cell["execution_count"] = Value::Null;
        } else if kind != 0 {
            let cell = cell.as_object_mut().unwrap();
            cell.shift_remove("outputs");
            cell.shift_remove("execution_count");
            if was_code {
                cell["metadata"].as_object_mut().unwrap().shift_remove("execution");
            }
        }
        prop_assert_eq!(meaning(&after), value);
        assert_rest_is_untouched(&before, &after, &[at]);
        assert_whole(&after);
    }

    #[test]
    fn cells_come_go_and_move_as_in_a_list(
        written in any::<bool>().prop_flat_map(notebook),
        steps in proptest::collection::vec((0..3, 0..7_usize, 0..7_usize, text()), 1..8),
    ) {
        let mut document = open(&written.text);
        let mut value = written.value.clone();
        let holds_ids = value["nbformat_minor"] == 5;
        let mut edited = false;
        for (number, (kind, at, to, text)) in steps.iter().enumerate() {
            let cells = value["cells"].as_array_mut().unwrap();
            match kind {
                0 if *at <= cells.len() => {
                    let id = format!("new-{number}");
                    let new = NewCell { id: id.clone(), cell_type: CellType::Code, source: text.clone(), metadata: None };
                    document.insert(*at, &new).unwrap();
                    let mut cell = json!({
                        "cell_type": "code", "id": id, "metadata": {}, "source": text,
                        "outputs": [], "execution_count": null,
                    });
                    if !holds_ids {
                        cell.as_object_mut().unwrap().shift_remove("id");
                    }
                    cells.insert(*at, cell);
                    edited = true;
                }
                1 if *at < cells.len() => {
                    document.remove(*at).unwrap();
                    cells.remove(*at);
                    edited = true;
                }
                2 if *at < cells.len() && *to < cells.len() => {
                    document.move_cell(*at, *to).unwrap();
                    let cell = cells.remove(*at);
                    cells.insert(*to, cell);
                    edited |= at != to;
                }
                _ => prop_assert!(document.remove(100).is_err()),
            }
            assert_whole(&document);
        }
        if edited {
            prop_assert_eq!(plain(meaning(&document)), plain(value));
        } else {
            prop_assert_eq!(document.to_bytes(), &written.text[..]);
        }
    }

    #[test]
    fn outputs_come_and_go(written in any::<bool>().prop_flat_map(notebook), at in 0..6_usize, text in text()) {
        let before = open(&written.text);
        let Some(at) = at.checked_rem(before.cells().len()) else {
            return Ok(());
        };
        let mut after = before.clone();
        let output = json!({"text": text, "output_type": "stream", "name": "stdout"});
        let execution = CellExecution {
            outputs: vec![Json::from(&output)],
            execution_count: Some(7),
            times: Some(Json::parse("{\"a\":\"b\"}").unwrap()),
        };
        let mut value = written.value;
        let cell = &mut value["cells"][at];
        if cell["cell_type"] != "code" {
            prop_assert!(after.set_execution(at, &execution).is_err());
            return Ok(());
        }
        let changed = after.set_execution(at, &execution).unwrap();
        prop_assert_eq!((changed.kind, changed.before), (ChangeKind::Outputs, changed.after));
        cell["execution_count"] = json!(7);
        cell["metadata"]["execution"] = json!({"a": "b"});
        let mut new = meaning(&after);
        let written_text = &new["cells"][at]["outputs"][0]["text"];
        let joined = match written_text.as_array() {
            Some(lines) => lines.iter().filter_map(Value::as_str).collect(),
            None => written_text.as_str().unwrap().to_owned(),
        };
        prop_assert_eq!(&joined, &text);
        new["cells"][at]["outputs"][0]["text"] = json!(text);
        cell["outputs"] = json!([output]);
        prop_assert_eq!(new, value.clone());
        prop_assert_eq!(after.set_execution(at, &execution).unwrap().kind, ChangeKind::Nothing);
        assert_rest_is_untouched(&before, &after, &[at]);
        after.clear_outputs(at).unwrap();
        let cell = &mut value["cells"][at];
        cell["outputs"] = json!([]);
        cell["execution_count"] = Value::Null;
        cell["metadata"].as_object_mut().unwrap().shift_remove("execution");
        prop_assert_eq!(meaning(&after), value);
        assert_whole(&after);
    }

    #[test]
    fn any_bytes_open_or_are_refused(text in proptest::collection::vec(0..255_u8, 0..40)) {
        let _ = Document::parse(text);
    }

    #[test]
    fn damaged_notebooks_open_or_are_refused(
        written in any::<bool>().prop_flat_map(notebook), at in 0..2000_usize, byte: u8, cut: bool,
    ) {
        let mut text = written.text;
        if at < text.len() {
            if cut {
                text.truncate(at);
            } else {
                text[at] = byte;
            }
        }
        if let Ok(document) = Document::parse(text.clone()) {
            prop_assert_eq!(document.to_bytes(), text);
            if document.is_read_only() {
                return Ok(());
            }
            let mut edited = document;
            for at in 0..edited.cells().len() {
                edited.set_source(at, "new").unwrap();
                edited.set_metadata(at, &["new"], &Json::from(1)).unwrap();
                let _ = edited.clear_outputs(at);
            }
            edited.set_notebook_metadata(&["new"], &Json::from(1)).unwrap();
            assert_whole(&edited);
        }
    }
}
