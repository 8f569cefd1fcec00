//! Charts as a line: their marks, sizes and titles.

use std::sync::LazyLock;

use regex::Regex;
use serde_json::{Map, Value};

use super::joined;
use crate::notebook::size;

/// How many traces or marks of a chart are named.
const NAMED: usize = 8;

/// How many characters of a title or a name are kept.
const LONGEST_LABEL: usize = 60;

/// Returns a chart of plotly, Vega, Vega-Lite or Bokeh as a line; `None` if the output is none.
pub(super) fn chart(data: &Map<String, Value>) -> Option<String> {
    data.iter().find_map(|(mime, value)| {
        let kind = mime.strip_prefix("application/vnd.")?.split('.').next()?;
        let bytes = || match value {
            Value::String(text) => text.len(),
            other => other.to_string().len(),
        };
        match kind {
            "plotly" => Some(line(
                "plotly",
                title(value.pointer("/layout/title")),
                plotly(value),
                bytes(),
            )),
            "vega" | "vegalite" => {
                let name = if kind == "vega" { "vega" } else { "vega-lite" };
                Some(line(name, title(value.get("title")), vega(value), bytes()))
            }
            "bokehjs_exec" => {
                let script = data
                    .get("application/javascript")
                    .map(joined)
                    .unwrap_or_default();
                Some(line("bokeh", None, bokeh(&script), script.len()))
            }
            "bokehjs_load" => Some("[bokeh: its scripts]".to_owned()),
            _ => None,
        }
    })
}

fn line(library: &str, title: Option<String>, parts: Vec<String>, bytes: usize) -> String {
    let title = title
        .map(|title| format!(" \"{title}\""))
        .unwrap_or_default();
    let more = parts.len().saturating_sub(NAMED);
    let mut parts: Vec<_> = parts.into_iter().take(NAMED).collect();
    if more > 0 {
        parts.push(format!("{more} more"));
    }
    let parts = match parts.is_empty() {
        true => String::new(),
        false => format!(": {}", parts.join(", ")),
    };
    format!("[{library}{title}{parts}; {}]", size(bytes as u64))
}

/// Returns a title, which is a text, a list of lines, or an object with one.
fn title(value: Option<&Value>) -> Option<String> {
    let value = value?;
    let text = value.get("text").unwrap_or(value);
    let text = match text {
        Value::String(_) | Value::Array(_) => joined(text),
        _ => return None,
    };
    label(&text)
}

fn label(text: &str) -> Option<String> {
    let words: Vec<_> = text.split_whitespace().collect();
    let text: String = words.join(" ").chars().take(LONGEST_LABEL).collect();
    (!text.is_empty()).then_some(text)
}

/// Returns each trace as its type, name and number of points.
fn plotly(figure: &Value) -> Vec<String> {
    let traces = figure.get("data").and_then(Value::as_array);
    let traces = traces.into_iter().flatten().map(|trace| {
        let kind = trace.get("type").and_then(Value::as_str).and_then(label);
        let name = trace.get("name").and_then(Value::as_str).and_then(label);
        let name = name.map(|name| format!(" {name:?}")).unwrap_or_default();
        let points = ["x", "y", "z", "values", "lat", "r", "labels"].iter();
        let points = points.filter_map(|axis| points_of(trace.get(axis)?)).max();
        let points = points.map(|count| format!(" ({count} points)"));
        let kind = kind.unwrap_or_else(|| "scatter".to_owned());
        format!("{kind}{name}{}", points.unwrap_or_default())
    });
    traces.collect()
}

/// Returns how many numbers an axis has: a list, or an array that plotly has encoded.
fn points_of(axis: &Value) -> Option<usize> {
    if let Value::Array(points) = axis {
        return Some(points.len());
    }
    let bytes = axis.get("bdata")?.as_str()?.trim_end_matches('=').len() * 3 / 4;
    let width = axis.get("dtype")?.as_str()?.chars().last()?.to_digit(10)?;
    bytes.checked_div(width as usize)
}

/// Returns each mark of a Vega-Lite chart with its fields, or the types of a Vega chart's marks, and the
/// number of rows of data.
fn vega(chart: &Value) -> Vec<String> {
    let mut parts = Vec::new();
    add_marks(chart, 0, &mut parts);
    let inline = chart.pointer("/data/values").into_iter();
    let named = chart.get("datasets").and_then(Value::as_object);
    let rows = inline.chain(named.into_iter().flat_map(Map::values));
    let rows: usize = rows.filter_map(Value::as_array).map(Vec::len).sum();
    if rows > 0 {
        parts.push(format!("{rows} rows"));
    }
    parts
}

/// How deep charts may be nested.
const DEEPEST: usize = 8;

fn add_marks(chart: &Value, depth: usize, parts: &mut Vec<String>) {
    let kind = |mark: &Value| {
        let kind = mark.get("type").unwrap_or(mark).as_str();
        kind.and_then(label)
    };
    if let Some(mark) = chart.get("mark").and_then(kind) {
        let fields = ["x", "y", "color", "size", "shape", "row", "column"].iter();
        let fields = fields.filter_map(|channel| {
            let encoded = chart.get("encoding")?.get(channel)?;
            let field = encoded.get("field").or_else(|| encoded.get("aggregate"))?;
            Some(format!(" {channel}={}", label(field.as_str()?)?))
        });
        parts.push(format!("{mark}{}", fields.collect::<String>()));
    }
    let marks = chart.get("marks").and_then(Value::as_array);
    parts.extend(marks.into_iter().flatten().filter_map(kind));
    if depth < DEEPEST {
        let lists = ["layer", "concat", "hconcat", "vconcat"].iter();
        let lists = lists.filter_map(|name| chart.get(name)?.as_array());
        for inner in lists.flatten().chain(chart.get("spec")) {
            add_marks(inner, depth + 1, parts);
        }
    }
}

/// Returns the types of the glyphs in the script of a Bokeh figure.
fn bokeh(script: &str) -> Vec<String> {
    static GLYPH: LazyLock<Regex> = LazyLock::new(|| {
        let glyph = r#""glyph":\{"type":"object","name":"([A-Za-z]{1,40})""#;
        Regex::new(glyph).expect("the expression is valid")
    });
    let glyphs = GLYPH.captures_iter(script).map(|found| found[1].to_owned());
    glyphs.collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_chart_is_a_line_with_its_marks_and_sizes() {
        let plotly = json!({
            "data": [
                {"type": "scatter", "name": "loss", "x": [1, 2, 3], "y": [1, 2, 3]},
                {"type": "bar", "y": {"dtype": "f8", "bdata": "AAAAAAAA8D8AAAAAAAAAQA=="}},
                {"z": [[1], [2]]},
            ],
            "layout": {"title": {"text": "Runs\nof today"}},
        });
        let vega_lite = json!({
            "title": "Cars", "data": {"name": "d"}, "datasets": {"d": [{"a": 1}, {"a": 2}]},
            "layer": [
                {"mark": {"type": "point"}, "encoding": {"x": {"field": "a"}, "y": {"aggregate": "count"}}},
                {"mark": "line"},
            ],
        });
        let vega = json!({"marks": [{"type": "rect"}, {"type": "text"}]});
        let script = r#"[{"glyph":{"type":"object","name":"Line"}},{"glyph":{"type":"object","name":"Scatter"}}]"#;
        for (data, text) in [
            (
                json!({"application/vnd.plotly.v1+json": plotly}),
                "[plotly \"Runs of today\": scatter \"loss\" (3 points), bar (2 points), \
                 scatter (2 points); 197 bytes]",
            ),
            (
                json!({"application/vnd.vegalite.v5+json": vega_lite}),
                "[vega-lite \"Cars\": point x=a y=count, line, 2 rows; 180 bytes]",
            ),
            (
                json!({"application/vnd.vega.v5+json": vega}),
                "[vega: rect, text; 43 bytes]",
            ),
            (
                json!({"application/vnd.bokehjs_exec.v0+json": "", "application/javascript": script}),
                "[bokeh: Line, Scatter; 88 bytes]",
            ),
            (
                json!({"application/vnd.bokehjs_load.v0+json": ""}),
                "[bokeh: its scripts]",
            ),
        ] {
            assert_eq!(chart(data.as_object().unwrap()).as_deref(), Some(text));
        }
        assert_eq!(chart(json!({"text/plain": "x"}).as_object().unwrap()), None);
    }

    #[test]
    fn many_traces_are_counted_and_odd_charts_are_no_error() {
        let many = json!({"data": vec![json!({"type": "pie"}); 20]});
        let data = json!({"application/vnd.plotly.v1+json": many});
        let line = chart(data.as_object().unwrap()).unwrap();
        assert!(line.contains("pie, 12 more; "), "{line}");
        for odd in [
            json!(null),
            json!("x"),
            json!({"data": 3}),
            json!({"data": [[], 3]}),
        ] {
            for mime in ["plotly.v1+json", "vegalite.v5+json", "vega.v5+json"] {
                let data = json!({format!("application/vnd.{mime}"): odd});
                assert!(chart(data.as_object().unwrap()).is_some(), "{data}");
            }
        }
        let mut nested = json!({"mark": "bar"});
        for _ in 0..100 {
            nested = json!({"layer": [nested]});
        }
        assert_eq!(vega(&nested), Vec::<String>::new());
    }
}
