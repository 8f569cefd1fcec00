//! Answers and problems as results of tools.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rmcp::model::{CallToolResult, ClientCapabilities, ContentBlock};
use serde_json::{Map, Value, json};

use super::commands::{as_tools, problem_lines};
use crate::api::caller::Caller;
use crate::api::envelope::{Answer, Envelope, Meanwhile, ProblemAnswer};
use crate::api::image_within;
use crate::api::outputs::{Image, plain};
use crate::api::problem::{Problem, ProblemKind};
use crate::hint;
use crate::text;
use crate::text::Part;

/// The largest image in an answer, in bytes. Clients refuse larger ones.
const LARGEST_IMAGE: usize = 3 << 20;

/// The longest side of an image, in pixels, unless the call names another one: models look at no more.
const IMAGE_SIDE: u32 = 1568;

/// What the answers to a client contain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AnswerForm {
    /// Text and images. Models get this: some clients give a model the structured content in place of all else.
    #[default]
    Text,
    /// Images, and as structured content the object that the command prints with `--json`.
    Structured,
    /// All of these.
    Both,
}

impl AnswerForm {
    /// Returns the form that a client's experimental capability `nb` asks for.
    pub(super) fn wished(capabilities: &ClientCapabilities) -> Option<Self> {
        match capabilities
            .experimental
            .as_ref()?
            .get("nb")?
            .get("answers")?
            .as_str()?
        {
            "text" => Some(Self::Text),
            "structured" => Some(Self::Structured),
            "both" => Some(Self::Both),
            _ => None,
        }
    }

    pub(super) fn has_fields(self) -> bool {
        self != Self::Text
    }

    /// Leaves in a result what the form has.
    pub(super) fn apply(self, result: &mut CallToolResult) {
        match self {
            Self::Text => result.structured_content = None,
            Self::Structured => result
                .content
                .retain(|it| !matches!(it, ContentBlock::Text(_))),
            Self::Both => {}
        }
    }
}

/// What a tool answers.
#[derive(Debug, Default)]
pub(super) struct ToolAnswer {
    /// The answer as text.
    pub(super) parts: Vec<Part>,
    pub(super) images: Vec<Image>,
    /// The longest side that an image may have, in pixels; `None` for [`IMAGE_SIDE`].
    pub(super) image_size: Option<u32>,
    /// The answer's own fields.
    pub(super) fields: Map<String, Value>,
    /// The edit that was made.
    pub(super) op: Option<String>,
    /// The code that was run.
    pub(super) code: Vec<String>,
    /// Whether the tool did not do what it was asked for.
    pub(super) is_error: bool,
    meanwhile: Meanwhile,
}

impl ToolAnswer {
    /// Puts an answer together with its text and what happened meanwhile.
    pub(super) async fn of(caller: &Caller, answer: &impl Answer, parts: Vec<Part>) -> Self {
        let meanwhile = meanwhile(caller).await;
        Self {
            parts,
            fields: fields(answer, &meanwhile),
            meanwhile,
            ..Self::default()
        }
    }

    /// Puts a problem together with what happened meanwhile.
    async fn of_problem(caller: Option<&Caller>, problem: Problem) -> Self {
        let problem = problem.worded(as_tools);
        let meanwhile = match caller {
            Some(caller) => meanwhile(caller).await,
            None => Meanwhile::default(),
        };
        let mut fields = fields(&ProblemAnswer { error: &problem }, &meanwhile);
        if let Some(error) = fields.get_mut("error").and_then(Value::as_object_mut) {
            error.insert("code".to_owned(), code(problem.kind).into());
        }
        let mut lines = problem_lines(&problem);
        if let (ProblemKind::Conflict, Some(first)) = (problem.kind, lines.first_mut()) {
            // The tools' descriptions name this code.
            first.insert_str(0, &format!("{} conflict: ", code(problem.kind)));
        }
        Self {
            parts: lines.into_iter().map(Part::Row).collect(),
            fields,
            is_error: problem.kind != ProblemKind::StillRunning,
            meanwhile,
            ..Self::default()
        }
    }

    /// Returns the status of the run, or `ok`.
    pub(super) fn status(&self) -> String {
        let status = self.fields.get("status").and_then(Value::as_str);
        let other = if self.is_error { "failed" } else { "ok" };
        status.unwrap_or(other).to_owned()
    }

    /// Scales the images down to [`ToolAnswer::image_size`]. The text says how many were left out.
    async fn prepare_images(&mut self) {
        let images = std::mem::take(&mut self.images);
        let (count, size) = (images.len(), self.image_size.unwrap_or(IMAGE_SIDE));
        if count == 0 {
            return;
        }
        let work = tokio::task::spawn_blocking(move || {
            let images = images.into_iter().filter_map(|image| {
                let bytes = STANDARD.decode(&image.base64).ok()?;
                let bytes = image_within(&bytes, &image.mime, Some(size), LARGEST_IMAGE)?;
                let base64 = STANDARD.encode(bytes);
                Some(Image { base64, ..image })
            });
            images.collect()
        });
        self.images = work.await.unwrap_or_default();
        let left_out = count - self.images.len();
        if left_out > 0 {
            self.parts.push(Part::Own(format!(
                "[{left_out} of {count} images cannot be shown: damaged, or too large]"
            )));
        }
    }

    /// Adds a field to the answer.
    pub(super) fn field(&mut self, name: &str, value: impl Into<Value>) {
        self.fields.insert(name.to_owned(), value.into());
    }

    fn into_result(self) -> CallToolResult {
        let mut content: Vec<_> = blocks(&self.parts)
            .into_iter()
            .map(ContentBlock::text)
            .collect();
        let images = self.images.into_iter();
        content.extend(images.map(|image| ContentBlock::image(image.base64, image.mime)));
        let mut result = match self.is_error {
            true => CallToolResult::error(content),
            false => CallToolResult::success(content),
        };
        result.structured_content = Some(Value::Object(self.fields));
        result
    }
}

/// Returns the result of a tool. What is in it counts as seen by the client, unless it has cancelled the
/// call.
pub(super) async fn result(
    caller: Option<&Caller>,
    outcome: Result<ToolAnswer, Problem>,
    is_cancelled: impl Fn() -> bool,
) -> CallToolResult {
    let mut answer = match outcome {
        Ok(answer) => answer,
        Err(problem) => ToolAnswer::of_problem(caller, problem).await,
    };
    answer.prepare_images().await;
    let meanwhile = std::mem::take(&mut answer.meanwhile);
    let lines = meanwhile_lines(&meanwhile, &answer.parts);
    answer.parts.extend(lines.into_iter().map(Part::Own));
    if let Some(caller) = caller.filter(|_| !is_cancelled()) {
        let caller = caller.clone();
        let delivered = tokio::task::spawn_blocking(move || caller.delivered(&meanwhile)).await;
        if let Err(error) = delivered {
            tracing::warn!(%error, "what the client has seen could not be recorded");
        }
    }
    answer.into_result()
}

/// Returns the result of a call that was not begun.
pub(super) async fn rejected(problem: Problem) -> CallToolResult {
    result(None, Err(problem), || false).await
}

/// Returns the texts of the blocks of an answer. Lines of `nb` and texts of others are in blocks of their own.
fn blocks(parts: &[Part]) -> Vec<String> {
    let is_of_others = |part: &Part| matches!(part, Part::Others(_));
    let groups = parts.chunk_by(|one, next| is_of_others(one) == is_of_others(next));
    let texts = groups.map(|group| group.iter().map(Part::text).collect());
    let mut texts: Vec<String> = texts.filter(|text: &String| !text.is_empty()).collect();
    if texts.is_empty() {
        texts.push(String::new());
    }
    texts
}

/// Returns the lines about what others have done that the answer does not have.
fn meanwhile_lines(meanwhile: &Meanwhile, parts: &[Part]) -> Vec<String> {
    let death = meanwhile.notebook.as_ref();
    let death = death.and_then(|notebook| notebook.kernel_ended.as_ref());
    let is_shown = |text: &str| {
        let mut lines = parts.iter().filter_map(|part| match part {
            Part::Own(line) | Part::Row(line) => Some(line),
            Part::Others(_) => None,
        });
        lines.any(|line| line.contains(text))
    };
    let death = death.filter(|death| !is_shown(&death.text));
    let death = death.map(|death| {
        let text = format!("{} next: ", death.text);
        hint![text, death.next.clone()]
    });
    let lines = text::meanwhile::lines(meanwhile);
    death.iter().chain(&lines).map(as_tools).collect()
}

/// Returns what happened beside a request, until now.
pub(super) async fn meanwhile(caller: &Caller) -> Meanwhile {
    let caller = caller.clone();
    let meanwhile = tokio::task::spawn_blocking(move || caller.meanwhile()).await;
    meanwhile.unwrap_or_default()
}

fn fields(answer: &impl Answer, meanwhile: &Meanwhile) -> Map<String, Value> {
    match serde_json::to_value(Envelope::of(answer, meanwhile)) {
        Ok(Value::Object(mut fields)) => {
            fields.values_mut().for_each(without_escapes);
            fields
        }
        Ok(other) => Map::from_iter([("answer".to_owned(), other)]),
        Err(error) => Map::from_iter([("error".to_owned(), json!({"message": error.to_string()}))]),
    }
}

/// Removes colours and other escape sequences from all texts.
fn without_escapes(value: &mut Value) {
    match value {
        Value::String(text) if text.contains('\u{1b}') => *text = plain(text),
        Value::Array(values) => values.iter_mut().for_each(without_escapes),
        Value::Object(fields) => fields.values_mut().for_each(without_escapes),
        _ => {}
    }
}

/// Returns a problem's code: the HTTP status that means the same.
fn code(kind: ProblemKind) -> u16 {
    match kind {
        ProblemKind::Failed => 500,
        ProblemKind::Usage => 400,
        ProblemKind::StillRunning => 202,
        ProblemKind::Refused => 403,
        ProblemKind::Conflict => 409,
        ProblemKind::NoKernel => 503,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_others_are_blocks_of_their_own() {
        let own = |line: &str| Part::Own(line.to_owned());
        let of_others = |text: &str| Part::Others(text.to_owned());
        for (parts, expected) in [
            (vec![], vec![""]),
            (vec![of_others("")], vec![""]),
            (
                vec![
                    own("cell 1\n‣ 2"),
                    Part::Row("row\n3".to_owned()),
                    of_others(""),
                    own("source"),
                    of_others("x = 1"),
                    of_others("2\n"),
                    own("next: x"),
                ],
                vec![
                    "‣ cell 1␊<U+2023> 2\nrow␊3\n",
                    "‣ source\n",
                    "x = 1\n2\n",
                    "‣ next: x\n",
                ],
            ),
        ] {
            assert_eq!(blocks(&parts), expected);
        }
    }
}
