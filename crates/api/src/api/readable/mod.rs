//! Outputs in short, for readers who cannot see them: agents, and people at a terminal.
//!
//! An output has the same data in several forms. The one that says most in few characters is chosen: a table
//! with some of its rows, a chart as its marks and sizes, HTML as text, long JSON as its shape.

mod chart;
mod html;
mod shape;
mod similar;
mod traceback;

use std::borrow::Cow;

use serde_json::{Map, Value};

use crate::notebook::is_media;

pub use similar::without_similar_lines;
pub use traceback::ShortTraceback;

/// Returns the data of an output as short text, by MIME type; an empty text if no form of it can be read.
pub fn readable(data: &Map<String, Value>) -> String {
    if let Some(chart) = chart::chart(data) {
        return chart;
    }
    let form = |mime: &str| data.get(mime).map(joined);
    let plain = plain_form(data);
    let html = form("text/html");
    if let Some(table) = html.as_deref().and_then(html::table) {
        // A wide table is broken into several blocks in its plain form.
        if plain.trim().is_empty() || table.chars().count() < plain.chars().count() {
            return table;
        }
    }
    if !is_name_of_object(&plain) && !plain.trim().is_empty() {
        return plain.into_owned();
    }
    let html = html.as_deref().and_then(html::text);
    if let Some(html) = html.filter(|html| !html.trim().is_empty()) {
        return html;
    }
    if let Some(json) = data.get("application/json") {
        return shape::json(json);
    }
    match data.keys().any(|mime| is_media(mime)) {
        true => String::new(),
        false => plain.into_owned(),
    }
}

/// Returns the plain form of an output's data, whole; an empty text if it has none.
pub fn plain_form(data: &Map<String, Value>) -> Cow<'_, str> {
    let form = |mime: &str| data.get(mime).map(joined);
    // The author chose Markdown; the plain form beside it is only the object's name.
    if let Some(markdown) = form("text/markdown") {
        return markdown;
    }
    let plain = form("text/plain").unwrap_or_default();
    match form("text/latex") {
        Some(latex) if plain.trim().is_empty() || is_name_of_object(&plain) => latex,
        _ => plain,
    }
}

/// Returns a form as one text; in notebook files it may be a list of texts.
pub fn joined(value: &Value) -> Cow<'_, str> {
    match value {
        Value::String(text) => Cow::Borrowed(text),
        Value::Array(lines) => lines.iter().filter_map(Value::as_str).collect(),
        other => Cow::Owned(other.to_string()),
    }
}

/// Says whether a plain form is only Python's name of an object: `<IPython.core.display.HTML object>`.
fn is_name_of_object(plain: &str) -> bool {
    let plain = plain.trim();
    plain.starts_with('<') && plain.ends_with('>') && !plain.contains('\n')
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(data: &Value) -> String {
        readable(data.as_object().unwrap())
    }

    #[test]
    fn the_most_informative_form_is_chosen() {
        for (data, text) in [
            (json!({}), ""),
            (json!({"text/plain": ["a\n", "b"]}), "a\nb"),
            (
                json!({"text/markdown": "**hi**", "text/plain": "<Markdown object>"}),
                "**hi**",
            ),
            (
                json!({"text/html": "<b>hi</b>", "text/plain": "<IPython.core.display.HTML object>"}),
                "hi",
            ),
            (
                json!({"text/html": "<b>hi</b>", "text/plain": "hi!"}),
                "hi!",
            ),
            (
                json!({"text/latex": "$x$", "text/plain": "<IPython.core.display.Math object>"}),
                "$x$",
            ),
            (
                json!({"application/json": {"a": 1}, "text/plain": "<IPython.core.display.JSON object>"}),
                r#"{"a":1}"#,
            ),
            (
                json!({"image/png": "aGk=", "text/plain": "<Figure size 640x480 with 1 Axes>"}),
                "",
            ),
            (
                json!({"application/vnd.jupyter.widget-view+json": {"model_id": "1"},
                       "text/plain": "IntSlider(value=3)"}),
                "IntSlider(value=3)",
            ),
        ] {
            assert_eq!(read(&data), text, "{data}");
        }
    }

    proptest::proptest! {
        /// Outputs come from notebooks that anybody may have written.
        #[test]
        fn any_data_is_read(
            html in proptest::collection::vec(proptest::sample::select(&[
                "<table class=\"dataframe\">", "</table>", "<tr>", "<td>", "</tr>", "...", "…", "<p>",
                "3 rows × 2 columns", "<pre>", "&amp", "<", "\u{1b}[31m", "é", "\n", "<script>", "<!--",
            ][..]), 0..60),
            chart in "\\PC{0,40}",
            lines in proptest::collection::vec("\\PC{0,20}", 0..60),
        ) {
            let html = html.concat();
            let _ = html::text(&html);
            let _ = html::table(&html);
            let spec = json!({"data": [{"type": chart, "x": [chart]}], "mark": chart, "marks": [chart]});
            for mime in ["plotly.v1+json", "vegalite.v5+json", "vega.v5+json", "bokehjs_exec.v0+json"] {
                let _ = readable(json!({format!("application/vnd.{mime}"): spec}).as_object().unwrap());
            }
            let _ = ShortTraceback { more: "more" }.of(&lines);
            let text = lines.join("\n");
            let short = without_similar_lines(&text, "more");
            proptest::prop_assert!(short.lines().count() <= text.lines().count());
        }
    }
}
