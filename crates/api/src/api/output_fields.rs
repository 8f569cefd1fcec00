//! The outputs of a piece of code as fields of a JSON answer, and when it ran.

use jiff::{Timestamp, Unit};
use serde::Serialize;
use serde_json::Value;

use super::outputs::{self, cut};
use crate::execution::fold::NotebookOutput;
use crate::execution::run::{KernelException, OutputMessage};
use crate::project::jobs::JobCell;

/// The outputs of a piece of code, each kind in its own field.
#[derive(Clone, Debug, Default, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OutputFields {
    /// What it wrote to stdout, shortened.
    pub stdout: String,
    /// What it wrote to stderr, shortened.
    pub stderr: String,
    /// What it displayed and the value of its last expression, in order, each shortened. An error that was only
    /// shown is among them.
    pub display_data: Vec<NotebookOutput>,
    /// The error that ended it: what it raised, or how its kernel ended.
    pub error: Option<KernelException>,
}

impl OutputFields {
    /// Sorts outputs into the fields. `failed` says whether an error ended the code: the last one then.
    pub(super) fn of(
        outputs: Vec<OutputMessage>,
        failed: bool,
        limit: Option<usize>,
        more: &str,
        note: impl FnMut(&str, &Value) -> String,
    ) -> Self {
        let mut fields = Self::default();
        let mut shown = Vec::new();
        for output in outputs {
            match output {
                OutputMessage::Stream(it) if it.name == "stderr" => fields.stderr += &it.text,
                OutputMessage::Stream(it) => fields.stdout += &it.text,
                other => shown.push(other),
            }
        }
        if let Some(limit) = limit {
            for text in [&mut fields.stdout, &mut fields.stderr] {
                *text = cut(text, limit, more).into_owned();
            }
        }
        outputs::for_json(&mut shown, limit, more, note);
        let is_error = |it: &OutputMessage| matches!(it, OutputMessage::Error(_));
        let last = shown.iter().rposition(is_error).filter(|_| failed);
        if let Some(OutputMessage::Error(raised)) = last.map(|at| shown.remove(at)) {
            fields.error = Some(raised);
        }
        fields.display_data = shown.into_iter().filter_map(NotebookOutput::of).collect();
        fields
    }
}

/// When the kernel ran a piece of code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Timing {
    /// When the kernel began with it.
    pub started: Timestamp,
    /// When the kernel went idle after it; none before that, and if no client received that message.
    pub completed: Option<Timestamp>,
    /// The time between the two, in milliseconds.
    pub duration_ms: Option<u64>,
}

impl Timing {
    /// Returns when a cell of a job ran; `None` if the kernel has not begun with it.
    pub(super) fn of(cell: &JobCell) -> Option<Self> {
        let rounded = |at: Timestamp| at.round(Unit::Millisecond).unwrap_or(at);
        let started = rounded(cell.begun_at?);
        let completed = cell.idle_at.map(rounded);
        let duration = completed.map(|completed| completed.duration_since(started));
        Some(Self {
            started,
            completed,
            // A clock that was set back gives no negative duration.
            duration_ms: duration.map(|it| u64::try_from(it.as_millis()).unwrap_or_default()),
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::execution::run::{DisplayContent, StreamText};

    fn stream(name: &str, text: &str) -> OutputMessage {
        OutputMessage::Stream(StreamText {
            name: name.to_owned(),
            text: text.to_owned(),
        })
    }

    fn raised(ename: &str) -> OutputMessage {
        OutputMessage::Error(KernelException {
            ename: ename.to_owned(),
            traceback: vec!["\u{1b}[31mred\u{1b}[0m".to_owned()],
            ..KernelException::default()
        })
    }

    fn shown(text: &str) -> OutputMessage {
        let content = json!({ "data": { "text/plain": text } });
        let content: DisplayContent = serde_json::from_value(content).expect("a display");
        OutputMessage::Display(content)
    }

    fn fields(outputs: Vec<OutputMessage>, failed: bool, limit: Option<usize>) -> OutputFields {
        OutputFields::of(outputs, failed, limit, "more", outputs::note)
    }

    #[test]
    fn each_kind_of_output_has_its_field() {
        let outputs = vec![
            stream("stdout", "a\n"),
            stream("stderr", "b\n"),
            raised("Shown"),
            stream("stdout", "c\n"),
            shown("d"),
            raised("Last"),
            stream("stderr", "e\n"),
        ];
        let failed = fields(outputs.clone(), true, Some(6000));
        assert_eq!((&*failed.stdout, &*failed.stderr), ("a\nc\n", "b\ne\n"));
        let error = failed.error.expect("an error");
        assert_eq!(
            (&*error.ename, &*error.traceback),
            ("Last", &["red".to_owned()][..])
        );
        let kinds = |fields: &OutputFields| {
            let outputs = fields.display_data.iter();
            let kinds = outputs.map(|it| json!(it)["output_type"].clone());
            kinds.collect::<Vec<_>>()
        };
        let failed = fields(outputs.clone(), true, None);
        assert_eq!(kinds(&failed), ["error", "display_data"]);
        let fine = fields(outputs, false, None);
        assert!(
            fine.error.is_none(),
            "an error was shown, and raised by none"
        );
        assert_eq!(kinds(&fine), ["error", "display_data", "error"]);
        assert!(fields(Vec::new(), true, None).error.is_none());
    }

    #[test]
    fn a_stream_in_many_pieces_has_one_limit() {
        let pieces = (0..1000).flat_map(|at| {
            [
                stream("stdout", &format!("line {at}\n")),
                stream("stderr", "x\n"),
            ]
        });
        let fields = fields(pieces.collect(), false, Some(300));
        assert!(fields.stdout.starts_with("line 0\n"), "{}", fields.stdout);
        assert!(fields.stdout.ends_with("line 999\n"), "{}", fields.stdout);
        assert!(
            fields.stdout.contains("left out; more"),
            "{}",
            fields.stdout
        );
        assert!(fields.stdout.len() < 400 && fields.stderr.len() < 400);
    }

    #[test]
    fn a_time_has_milliseconds_and_a_duration_is_never_negative() {
        let at = |text: &str| Some(text.parse::<Timestamp>().expect("a time"));
        let mut cell = JobCell::default();
        assert_eq!(Timing::of(&cell), None);
        cell.begun_at = at("2026-01-02T03:04:05.1234567Z");
        let running = json!(Timing::of(&cell));
        let started = "2026-01-02T03:04:05.123Z";
        let none = json!({ "started": started, "completed": null, "duration_ms": null });
        assert_eq!(running, none);
        cell.idle_at = at("2026-01-02T03:04:06.5Z");
        let over = json!(Timing::of(&cell));
        assert_eq!(over["completed"], "2026-01-02T03:04:06.5Z");
        assert_eq!(over["duration_ms"], 1377);
        cell.idle_at = at("2026-01-02T03:04:01Z");
        assert_eq!(json!(Timing::of(&cell))["duration_ms"], 0);
    }
}
