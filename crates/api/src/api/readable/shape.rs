//! JSON values in short.

use std::fmt::Write as _;

use serde_json::Value;

/// The longest JSON that is shown as it is, in bytes.
const SHORT: usize = 600;

/// How many fields of an object are named.
const FIELDS: usize = 20;

/// How deep a shape goes.
const DEEPEST: usize = 4;

/// How many characters of a field's name are kept.
const NAME: usize = 40;

/// Returns a JSON value as text: a long one as its shape.
pub(super) fn json(value: &Value) -> String {
    let text = value.to_string();
    if text.len() <= SHORT {
        return text;
    }
    let mut shape = String::new();
    add_shape(value, 0, &mut shape);
    shape
}

/// Appends the shape of a value: `{"total": number, "items": 120 × {"id": number}}`.
fn add_shape(value: &Value, depth: usize, out: &mut String) {
    // Writing to a string cannot fail.
    let _ = match value {
        Value::Null => write!(out, "null"),
        Value::Bool(_) => write!(out, "boolean"),
        Value::Number(_) => write!(out, "number"),
        Value::String(text) if text.chars().count() > NAME => {
            write!(out, "string of {}", text.chars().count())
        }
        Value::String(_) => write!(out, "string"),
        Value::Array(items) => {
            let _ = write!(out, "{} × ", items.len());
            match items.first() {
                Some(first) if depth < DEEPEST => add_shape(first, depth + 1, out),
                Some(_) => out.push('…'),
                None => out.push_str("nothing"),
            }
            Ok(())
        }
        Value::Object(fields) if depth >= DEEPEST => write!(out, "{{{} fields}}", fields.len()),
        Value::Object(fields) => {
            out.push('{');
            for (at, (name, value)) in fields.iter().take(FIELDS).enumerate() {
                let name: String = name.chars().take(NAME).collect();
                let _ = write!(out, "{}{name:?}: ", if at > 0 { ", " } else { "" });
                add_shape(value, depth + 1, out);
            }
            if fields.len() > FIELDS {
                let _ = write!(out, ", {} more fields", fields.len() - FIELDS);
            }
            write!(out, "}}")
        }
    };
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn short_values_are_whole_and_long_ones_are_shapes() {
        assert_eq!(json(&json!({"a": [1, "x"]})), r#"{"a":[1,"x"]}"#);
        let items = vec![json!({"id": 1, "tags": ["x"], "deep": {"a": {"b": {"c": 1}}}}); 120];
        let long = json!({"total": 3.5, "items": items, "text": "x".repeat(900), "none": null, "empty": []});
        assert_eq!(
            json(&long),
            r#"{"total": number, "items": 120 × {"id": number, "tags": 1 × string, "deep": {"a": {1 fields}}}, "text": string of 900, "none": null, "empty": 0 × nothing}"#
        );
        let wide: Value = (0..100)
            .map(|at| (format!("field {at}"), json!(at)))
            .collect::<serde_json::Map<_, _>>()
            .into();
        assert!(
            json(&wide).ends_with(", 80 more fields}"),
            "{}",
            json(&wide)
        );
    }
}
