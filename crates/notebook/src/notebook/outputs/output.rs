//! Outputs as text for readers, and their other data.

use anstream::adapter::strip_str;
use memchr::memchr2;

use super::mime::{MimeBytes, MimeData, old_mime};
use crate::notebook::document::{Cell, joined_strings, one_line, one_line_of};
use crate::notebook::json::{Json, Object, Scanner, decode, lossy};

/// One output of a cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// The kind.
    pub kind: OutputKind,
    /// The text of a stream, the plain text of data, or the traceback of an error, without colours. Of a
    /// line that was overwritten with `\r`, only the last state is kept.
    pub text: String,
    /// The forms of the output's data, including plain text; empty for streams and errors.
    pub data: Vec<MimeData>,
}

/// The kinds of outputs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OutputKind {
    /// Text on a stream: its name, `stdout` or `stderr`.
    Stream(String),
    /// The value of the cell's last line.
    Result,
    /// A display.
    Display,
    /// An error.
    Error {
        /// The exception's name.
        ename: String,
        /// Its message.
        evalue: String,
    },
    /// A type that no version of the format has.
    Unknown(String),
}

impl Output {
    /// Reads one of [`Cell::outputs`].
    pub fn read(output: &Json) -> Self {
        Self::of(output.bytes())
    }

    pub(in crate::notebook) fn of(raw: &[u8]) -> Self {
        Self::of_fields(raw, &Object::read(raw).unwrap_or_default())
    }

    /// Reads the output whose fields are at these positions of a text.
    fn of_fields(raw: &[u8], fields: &Object) -> Self {
        let field = |name| fields.get(raw, name).map(|span| span.of(raw));
        let string_field = |name| field(name).map_or_else(String::new, text_of);
        let output_type = field("output_type").map(joined_strings).unwrap_or_default();
        let (kind, text, data) = match &*output_type {
            b"stream" => {
                let name = field("name").or_else(|| field("stream")).map(text_of);
                (
                    OutputKind::Stream(name.unwrap_or_default()),
                    string_field("text"),
                    Vec::new(),
                )
            }
            b"error" | b"pyerr" => {
                let (ename, evalue) = (string_field("ename"), string_field("evalue"));
                let mut text = traceback(field("traceback").unwrap_or_default());
                if text.is_empty() {
                    // Kernels of SQL, bash and C send no traceback.
                    text = format!("{ename}: {evalue}");
                }
                (OutputKind::Error { ename, evalue }, text, Vec::new())
            }
            b"execute_result" | b"display_data" | b"pyout" => {
                let kind = match &*output_type {
                    b"display_data" => OutputKind::Display,
                    _ => OutputKind::Result,
                };
                let (text, data) = match field("data") {
                    Some(data) => bundle(data, str::to_owned),
                    // In format 3 the forms were fields of the output, with short names.
                    None => bundle(fields.span.of(raw), |key| old_mime(key).to_owned()),
                };
                (kind, text, data)
            }
            _ => {
                let kind = OutputKind::Unknown(lossy(output_type).into_owned());
                (kind, String::new(), Vec::new())
            }
        };
        Self {
            kind,
            text: readable(text),
            data,
        }
    }

    /// Returns the bytes of one form of an output's data; `None` if the output, one of
    /// [`Cell::outputs`](crate::notebook::Cell::outputs), does not have that form.
    pub fn form(output: &Json, mime: &str) -> Option<MimeBytes> {
        Some(MimeBytes::of(form(output.bytes(), mime)?, mime))
    }

    /// Returns the output as one line of at most `limit` characters: an error's name and message, an
    /// image's type and size, else the last line of a stream or the first of a value.
    pub fn summary(&self, limit: usize) -> String {
        let mut lines = self.text.lines().filter(|line| !line.trim().is_empty());
        let line = match &self.kind {
            OutputKind::Error { ename, evalue } => format!("{ename}: {evalue}"),
            OutputKind::Stream(name) => {
                let last = lines.next_back();
                match (lines.count() + usize::from(last.is_some()), last) {
                    (_, None) => name.clone(),
                    (1, Some(line)) => [name, ": ", line].concat(),
                    (count, Some(last)) => {
                        [name, ", ", &count.to_string(), " lines: ", last].concat()
                    }
                }
            }
            OutputKind::Unknown(name) => name.clone(),
            OutputKind::Result | OutputKind::Display => {
                let image = self
                    .data
                    .iter()
                    .find(|data| data.mime.starts_with("image/"));
                match (image, lines.next()) {
                    (
                        Some(MimeData {
                            mime,
                            pixels: Some((width, height)),
                            ..
                        }),
                        _,
                    ) => {
                        format!("{mime} {width}x{height}")
                    }
                    (Some(image), _) => image.to_string(),
                    (None, Some(line)) => match lines.next_back().and_then(shape_of_table) {
                        Some(shape) => shape.to_owned(),
                        None => line.to_owned(),
                    },
                    (None, None) => match self.data.first() {
                        Some(data) => data.to_string(),
                        None => "no data".to_owned(),
                    },
                }
            }
        };
        one_line_of(line, limit)
    }
}

impl Cell {
    /// Returns the cell's attachments: each name with the forms of its data.
    pub fn attachments(&self) -> Vec<(String, Vec<MimeData>)> {
        let raw = self.raw("attachments").unwrap_or_default();
        let fields = Object::read(raw).unwrap_or_default().fields;
        let named = fields.iter().map(|field| {
            let (_, data) = bundle(field.value().of(raw), str::to_owned);
            (lossy(decode(field.key().of(raw))).into_owned(), data)
        });
        named.collect()
    }

    /// Returns the cell's outputs as text for readers.
    pub fn read_outputs(&self) -> impl Iterator<Item = Output> {
        self.raw_outputs().into_iter().map(Output::of)
    }

    /// Returns the cell's outputs as one line of at most `limit` characters; an error has precedence.
    pub fn outputs_line(&self, limit: usize) -> String {
        self.outputs_summary(limit).text
    }

    /// Returns the summary of the cell's outputs for a list of cells. Only the output that is shown is
    /// decoded.
    pub fn outputs_summary(&self, limit: usize) -> OutputsSummary {
        let raw = self.raw("outputs").unwrap_or_default();
        let (mut count, mut shown, mut failed) = (0, None, false);
        // A value that is not a list has no outputs, so the scanner's error does not matter.
        let _ = Scanner::new(raw, 0).array(|scanner| {
            count += 1;
            let fields = match scanner.next() {
                Some(b'{') if !failed => Object::scan(scanner)?,
                _ => {
                    scanner.value()?;
                    Object::default()
                }
            };
            if !failed {
                failed = is_error(raw, &fields);
                shown = Some(fields);
            }
            Ok(())
        });
        let text = match shown.map(|fields| Output::of_fields(raw, &fields)) {
            None => String::new(),
            Some(shown) if count == 1 => shown.summary(limit),
            Some(shown) => {
                let shown = shown.summary(limit.saturating_sub(20));
                one_line(&format!("{shown}, {} more", count - 1), limit)
            }
        };
        OutputsSummary {
            count,
            text,
            failed,
        }
    }
}

/// A cell's outputs as a list of cells shows them.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct OutputsSummary {
    /// The number of outputs.
    pub count: usize,
    /// One output as one line: the error, else the last output.
    pub text: String,
    /// Whether one of them is an error.
    pub failed: bool,
}

fn is_error(raw: &[u8], fields: &Object) -> bool {
    let output_type = fields.get(raw, "output_type").map(|span| span.of(raw));
    output_type.is_some_and(|output_type| {
        crate::notebook::json::is(output_type, "error")
            || crate::notebook::json::is(output_type, "pyerr")
    })
}

/// Returns the shape that pandas prints below a table: `1460 rows x 7 columns`.
fn shape_of_table(last_line: &str) -> Option<&str> {
    let shape = last_line.strip_prefix('[')?.strip_suffix(" columns]")?;
    let (rows, _) = shape.split_once(" rows x ")?;
    let is_count = !rows.is_empty() && rows.bytes().all(|byte| byte.is_ascii_digit());
    last_line.get(1..last_line.len() - 1).filter(|_| is_count)
}

/// Removes terminal escapes, and the overwritten parts of each line.
fn readable(text: String) -> String {
    // Most text has neither.
    if memchr2(b'\x1b', b'\r', text.as_bytes()).is_none() {
        return text;
    }
    let plain = strip_str(&text).to_string();
    if !plain.contains('\r') {
        return plain;
    }
    let last_state = |line: &str| {
        let line = line.trim_end_matches('\r');
        line.rsplit('\r').next().unwrap_or_default().to_owned()
    };
    plain
        .split('\n')
        .map(last_state)
        .collect::<Vec<_>>()
        .join("\n")
}

fn text_of(raw: &[u8]) -> String {
    lossy(joined_strings(raw)).into_owned()
}

/// Joins a traceback, which is a list of lines without newlines, or from some kernels one text.
fn traceback(raw: &[u8]) -> String {
    if raw.starts_with(b"\"") {
        return text_of(raw);
    }
    let lines = crate::notebook::json::items(raw);
    let lines = lines.into_iter().map(|line| text_of(line.of(raw)));
    lines.collect::<Vec<_>>().join("\n")
}

/// Reads the forms of data, and the plain text among them.
fn bundle(raw: &[u8], mime: impl Fn(&str) -> String) -> (String, Vec<MimeData>) {
    let mut text = String::new();
    let mut data = Vec::new();
    for field in Object::read(raw).unwrap_or_default().fields {
        let mime = mime(&lossy(decode(field.key().of(raw))));
        if !mime.contains('/') {
            continue;
        }
        let value = field.value().of(raw);
        if mime == "text/plain" {
            text = text_of(value);
        }
        data.push(MimeData::of(mime, value));
    }
    (text, data)
}

/// Returns the JSON of one form of an output's data.
fn form<'a>(output: &'a [u8], mime: &str) -> Option<&'a [u8]> {
    let fields = Object::read(output)?;
    if let Some(data) = fields.get(output, "data") {
        let data = data.of(output);
        return Some(Object::read(data)?.get(data, mime)?.of(data));
    }
    let mut from_end = fields.fields.iter().rev();
    let found = from_end.find(|field| old_mime(&lossy(decode(field.key().of(output)))) == mime)?;
    Some(found.value().of(output))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Output {
        Output::read(&Json::parse(json).unwrap())
    }

    #[test]
    fn each_kind_reads_as_one_line() {
        for (json, line) in [
            (
                r#"{"output_type":"stream","name":"stdout","text":["a\n","\u001b[31mb\u001b[0m\n"]}"#,
                "stdout, 2 lines: b",
            ),
            (
                r#"{"output_type":"stream","name":"stderr","text":"10%\r20%\r\n"}"#,
                "stderr: 20%",
            ),
            (
                r#"{"output_type":"error","ename":"E","evalue":"a\nb","traceback":["\u001b[0;31mE\u001b[0m","at"]}"#,
                "E: a b",
            ),
            (
                r#"{"output_type":"execute_result","execution_count":1,"data":{"text/plain":["[1,\n"," 2]"]},"metadata":{}}"#,
                "[1,",
            ),
            (
                r#"{"output_type":"execute_result","data":{"text/plain":"   a  b\n0  1  2\n\n[100 rows x 2 columns]"}}"#,
                "100 rows x 2 columns",
            ),
            (
                r#"{"output_type":"display_data","data":{"text/html":"<b>"}}"#,
                "text/html, 3 bytes",
            ),
            (
                r#"{"output_type":"display_data","data":{"text/plain":"<Figure>","image/png":"iVBORw0KGgoAAAANSUhEUgAAAoAAAAHgCAYAAAA10dzkAAAA\n"}}"#,
                "image/png 640x480",
            ),
            (
                r#"{"output_type":"display_data","data":{"image/gif":"R0lGODlhAQACAIAAAAUEBAAAACwAAAAAAQABAAACAkQBADs="}}"#,
                "image/gif 1x2",
            ),
            (
                r#"{"output_type":"display_data","data":{"image/png":"!!"}}"#,
                "image/png, 1 byte",
            ),
            (
                r#"{"output_type":"pyout","prompt_number":3,"text":"42"}"#,
                "42",
            ),
            (
                r#"{"output_type":"pyerr","ename":"E","evalue":"x","traceback":[]}"#,
                "E: x",
            ),
            (r#"{"output_type":"new"}"#, "new"),
            (r#"{"output_type":"display_data"}"#, "no data"),
            ("3", ""),
        ] {
            assert_eq!(read(json).summary(80), line, "{json}");
        }
        let error = read(
            r#"{"output_type":"error","ename":"E","evalue":"x","traceback":["\u001b[0;31ma\u001b[0m","b"]}"#,
        );
        assert_eq!(error.text, "a\nb");
    }

    #[test]
    fn an_error_without_a_traceback_says_its_message_and_one_text_is_a_traceback() {
        for (traceback, text) in [
            ("[]", "SQLError: no such table"),
            ("null", "SQLError: no such table"),
            (r#""Error in f()\n1. f()""#, "Error in f()\n1. f()"),
        ] {
            let error = format!(
                r#"{{"output_type":"error","ename":"SQLError","evalue":"no such table","traceback":{traceback}}}"#
            );
            assert_eq!(read(&error).text, text);
        }
    }
}
