//! A notebook in Jupyter's own style, as `nbformat.write` writes it.
//!
//! Such a file is indented by 1, has sorted keys, minimal escapes, texts as lists of lines, and a newline
//! at the end. Fields that Jupyter never stores (whether a cell is trusted, the original format) are
//! removed. Numbers keep their spelling, while Python would rewrite `1E5` as `100000.0`.

use super::error::DocumentEditError;
use super::jupyter_style::{is_in_lines, lines, mapped, string, text_of};
use crate::notebook::document::Document;
use crate::notebook::json::{Object, decode, is, items, list, sorted};
use crate::notebook::outputs::is_json;

impl Document {
    /// Returns the notebook as Jupyter writes it: the same bytes that `nbformat.write` writes after
    /// `nbformat.read`. Cells without ids get ids, and the format is raised to 4.5, the first one with ids.
    ///
    /// # Errors
    /// The format is read-only.
    pub fn formatted(&self) -> Result<Self, DocumentEditError> {
        self.check_writable()?;
        let mut settled = self.clone();
        settled.settle();
        let frame = &settled.frame;
        let mut text = Vec::with_capacity(frame.text.len());
        text.push(b'{');
        for field in &frame.top.fields {
            let (key, value) = (field.key().of(&frame.text), field.value().of(&frame.text));
            if is(key, "cells") {
                continue;
            }
            text.extend_from_slice(key);
            text.push(b':');
            if is(key, "metadata") {
                text.extend_from_slice(&without(value, &TRANSIENT));
            } else {
                text.extend_from_slice(value);
            }
            text.push(b',');
        }
        text.extend_from_slice(b"\"cells\":[");
        for (index, cell) in settled.cells.iter().enumerate() {
            if index > 0 {
                text.push(b',');
            }
            text.extend_from_slice(&in_lines(&cell.text));
        }
        text.extend_from_slice(b"]}");
        let written = sorted(&text);
        Ok(Self::parse(written).expect("the same values in another style are a notebook"))
    }
}

/// The fields that Jupyter removes from a notebook's metadata whenever it reads or writes a file.
const TRANSIENT: [&str; 3] = ["orig_nbformat", "orig_nbformat_minor", "signature"];

/// Returns a cell with its texts as Jupyter stores them: source and printed text as lists of lines.
fn in_lines(cell: &[u8]) -> Vec<u8> {
    let object = Object::read(cell).unwrap_or_default();
    let cell_type = object.get(cell, "cell_type").map(|span| span.of(cell));
    let code = cell_type.is_some_and(|name| is(name, "code"));
    mapped(cell, |key, value| match key {
        b"source" => lines(value),
        b"metadata" => without(value, &["trusted"]).into(),
        b"attachments" => mapped(value, |_, bundle| bundle_in_lines(bundle).into()).into(),
        b"outputs" if code && value.starts_with(b"[") => {
            let outputs = items(value).into_iter();
            list(outputs.map(|output| output_in_lines(output.of(value)))).into()
        }
        _ => value.into(),
    })
}

fn output_in_lines(output: &[u8]) -> Vec<u8> {
    let object = Object::read(output).unwrap_or_default();
    let output_type = object
        .get(output, "output_type")
        .map(|span| decode(span.of(output)));
    let output_type = output_type.unwrap_or_default();
    mapped(output, |key, value| match (key, &*output_type) {
        (b"data", b"execute_result" | b"display_data") => bundle_in_lines(value).into(),
        (b"text", b"stream") => lines(value),
        // nbformat joins the text of an unknown output type on reading, and never splits it again.
        (b"text", b"execute_result" | b"display_data" | b"") => value.into(),
        (b"text", _) => text_of(value).map_or(value.into(), |text| string(&text).into()),
        _ => value.into(),
    })
}

/// Returns the data of a MIME bundle as Jupyter stores it: text as lines, an image as one string, JSON
/// unchanged.
fn bundle_in_lines(bundle: &[u8]) -> Vec<u8> {
    mapped(bundle, |mime, value| {
        if is_in_lines(mime) {
            return lines(value);
        }
        if is_json(&String::from_utf8_lossy(mime)) || !value.starts_with(b"[") {
            return value.into();
        }
        text_of(value).map_or(value.into(), |text| string(&text).into())
    })
}

/// Returns an object without some of its fields.
fn without(object: &[u8], names: &[&str]) -> Vec<u8> {
    let mut rest = object.to_vec();
    for name in names {
        if let Some(fields) = Object::read(&rest)
            && fields.get(&rest, name).is_some()
        {
            rest = fields.remove(&rest, name);
        }
    }
    rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::notebook::tests::laws;

    fn formatted(text: &str) -> String {
        let document = Document::parse(text.to_owned()).unwrap();
        String::from_utf8(document.formatted().unwrap().to_bytes()).unwrap()
    }

    #[test]
    fn jupyters_format_stays_and_other_formats_become_it() {
        let jupyter = r#"{
 "cells": [
  {
   "attachments": {
    "a.png": {
     "image/png": "aGk="
    }
   },
   "cell_type": "markdown",
   "id": "m",
   "metadata": {},
   "source": [
    "é\n",
    "/\u0001"
   ]
  },
  {
   "cell_type": "code",
   "execution_count": 1,
   "id": "c",
   "metadata": {
    "n": [
     1e-05,
     NaN,
     12345678901234567890
    ]
   },
   "outputs": [
    {
     "data": {
      "application/json": [
       "a\n",
       "b"
      ],
      "image/png": "aGkK\naGk=\n",
      "image/svg+xml": [
       "<svg>\n",
       "</svg>"
      ],
      "text/plain": [
       "1\n",
       "2"
      ]
     },
     "metadata": {},
     "output_type": "display_data"
    },
    {
     "name": "stdout",
     "output_type": "stream",
     "text": [
      "a\r",
      "b\u2028"
     ]
    }
   ],
   "source": []
  }
 ],
 "metadata": {
  "Z": 1,
  "a": 2
 },
 "nbformat": 4,
 "nbformat_minor": 5
}
"#;
        let jupyter = &jupyter.replace("b\\u2028", "b\u{2028}");
        assert_eq!(formatted(jupyter), *jupyter);
        let other = "\u{feff}{\"nbformat_minor\": 5, \"nbformat\":4,\r\n \"metadata\":{\"a\":1,\"a\":2,\"Z\":1,\"orig_nbformat\":3},
            \"cells\":[{\"source\":\"\\u00e9\\n\\/\u{1}\",\"cell_type\":\"markdown\",\"metadata\":{\"trusted\":true},\"id\":\"m\",
              \"attachments\":{\"a.png\":{\"image/png\":[\"aG\",\"k=\"]}}},
            {\"id\":\"c\",\"metadata\":{\"n\":[1e-05,NaN,12345678901234567890]},\"source\":[],\"cell_type\":\"code\",\"execution_count\":1,
             \"outputs\":[{\"output_type\":\"display_data\",\"metadata\":{},\"data\":{\"text/plain\":\"1\\n2\",
               \"image/svg+xml\":\"<svg>\\n</svg>\",\"image/png\":[\"aGkK\\n\",\"aGk=\\n\"],\"application/json\":[\"a\\n\",\"b\"]}},
             {\"text\":\"a\\rb\\u2028\",\"output_type\":\"stream\",\"name\":\"stdout\"}]}]}";
        assert_eq!(formatted(other), *jupyter);
    }

    #[test]
    fn ids_are_added_and_revisions_stay() {
        let text = r#"{"cells":[{"cell_type":"raw","source":"x","metadata":{}}],"nbformat":4,"nbformat_minor":2,"metadata":{}}"#;
        let document = Document::parse(text).unwrap();
        let after = document.formatted().unwrap();
        assert_eq!(after.nbformat(), (4, 5));
        assert_eq!(after.revision(), document.revision());
        assert!(after.cells()[0].has_own_id());
        let old = Document::parse(r#"{"worksheets":[],"nbformat":3}"#).unwrap();
        assert_eq!(old.formatted().unwrap_err(), DocumentEditError::ReadOnly(3));
    }

    proptest::proptest! {
        #[test]
        fn style_is_no_meaning_and_once_is_enough(written in laws::notebook(true)) {
            let document = laws::open(&written.text);
            let after = document.formatted().unwrap();
            proptest::prop_assert_eq!(after.revision(), document.revision());
            let again = after.formatted().unwrap();
            proptest::prop_assert_eq!(again.to_bytes(), after.to_bytes());
            let (before, after) = (laws::meaning(&document), laws::meaning(&after));
            proptest::prop_assert_eq!(laws::plain(after), laws::plain(before));
        }
    }

    #[test]
    fn depth_is_no_danger() {
        let deep = |levels: usize| {
            let value = format!("{}1{}", "[".repeat(levels), "]".repeat(levels));
            let text = formatted(&format!("{{\"cells\":[],\"metadata\":{{\"d\":{value}}}}}"));
            let bare: String = text.split_whitespace().collect();
            assert!(bare.contains(&value));
            text
        };
        assert!(deep(900).contains(&format!("\n{}1\n", " ".repeat(902))));
        assert!(deep(100_000).len() < 3_000_000);
    }
}
