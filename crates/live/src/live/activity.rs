//! What others do in a notebook that is open in an editor: what its kernel runs, who waits for it, and which cells they
//! have run and changed lately.

use std::collections::{BTreeMap, HashMap};

use jiff::{SignedDuration, Timestamp};

use super::LiveDocument;
use super::protocol::{CellMark, CellRun, MarkKind};
use crate::activity::actor::Actor;
use crate::activity::labels::first_line;
use crate::execution::cell_lookup::{CellLookup, is_uri};
use crate::notebook::ChangeKind;
use crate::project::event::{Event, EventKind, NotebookChange, RunningExecution};

/// How long a cell stays marked.
pub const MARKED: SignedDuration = SignedDuration::from_mins(10);

/// How many runs are known until they end, and how many cells are marked at most. The oldest go first.
const MOST: usize = 1000;

/// The longest line of code in a message, in characters.
const LONGEST_LINE: usize = 80;

/// The marks of a notebook's cells, by their ids.
#[derive(Debug, Default)]
pub struct Marks {
    marks: BTreeMap<String, Mark>,
    /// The agents' cells that run or wait, by the ids of their requests.
    runs: HashMap<String, (String, String)>,
}

/// What an agent did to a cell.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Mark {
    by: String,
    what: MarkKind,
    at: Timestamp,
    edit: Option<String>,
    before: Option<String>,
}

impl Marks {
    /// Takes in an event of the project. `notebook` is the key of the notebook whose cells are marked.
    pub fn event(&mut self, event: &Event, notebook: &str, live: &LiveDocument) {
        if event.notebook() != notebook {
            return;
        }
        let actor = Actor::parse(event.by.as_deref());
        let agent = matches!(actor, Actor::Agent { .. }).then(|| actor.name());
        match &event.kind {
            EventKind::Queued(start)
            | EventKind::Requested(start)
            | EventKind::BegunOutside(start)
                if start.store_history =>
            {
                let Some(id) = cell_id(live, start.cell.as_deref(), start.code.as_deref()) else {
                    return;
                };
                match agent {
                    Some(agent) if self.runs.len() < MOST => {
                        self.runs.insert(start.msg_id.clone(), (id, agent));
                    }
                    Some(_) => {}
                    // The cell is the person's again.
                    None => {
                        self.marks.remove(&id);
                    }
                }
            }
            EventKind::Done(end) => {
                let run = self.runs.remove(&end.msg_id);
                if let Some((id, by)) = run.filter(|_| end.status.has_begun()) {
                    self.ran(id, by, event.at);
                }
            }
            EventKind::Edited(change) | EventKind::Saved(change) => {
                self.change(change, agent.as_deref(), event.at);
            }
            _ => {}
        }
    }

    fn ran(&mut self, id: String, by: String, at: Timestamp) {
        match self.marks.get_mut(&id) {
            // An edit says more than the run after it.
            Some(mark) if mark.what != MarkKind::Ran && mark.by == by => mark.at = at,
            _ => self.mark(
                id,
                Mark {
                    by,
                    what: MarkKind::Ran,
                    at,
                    edit: None,
                    before: None,
                },
            ),
        }
    }

    fn change(&mut self, change: &NotebookChange, agent: Option<&str>, at: Timestamp) {
        for step in &change.changes {
            let what = match step.kind {
                ChangeKind::Edited => MarkKind::Edited,
                ChangeKind::Inserted => MarkKind::Inserted,
                ChangeKind::Removed => {
                    self.marks.remove(&step.cell);
                    continue;
                }
                _ => continue,
            };
            match agent {
                Some(by) => self.mark(
                    step.cell.clone(),
                    Mark {
                        by: by.to_owned(),
                        what,
                        at,
                        edit: change.op.clone(),
                        before: step.before.map(|it| it.to_string()),
                    },
                ),
                None => {
                    self.marks.remove(&step.cell);
                }
            }
        }
    }

    fn mark(&mut self, id: String, mark: Mark) {
        self.marks.insert(id, mark);
        if self.marks.len() > MOST {
            let oldest = self.marks.iter().min_by_key(|(_, mark)| mark.at);
            let oldest = oldest.map(|(id, _)| id.clone());
            oldest.and_then(|id| self.marks.remove(&id));
        }
    }

    /// The person has changed a cell in the editor.
    pub fn typed(&mut self, id: &str) {
        self.marks.remove(id);
    }

    /// Returns the marks of the editor's cells that are not old yet.
    pub fn shown(&self, live: &LiveDocument, now: Timestamp) -> Vec<CellMark> {
        let marks = self.marks.iter().filter(|(_, mark)| now < mark.at + MARKED);
        marks
            .filter_map(|(id, mark)| {
                Some(CellMark {
                    cell: live.cell_name(id)?.to_owned(),
                    id: id.clone(),
                    by: mark.by.clone(),
                    what: mark.what,
                    at: mark.at,
                    edit: mark.edit.clone(),
                    before: mark.before.clone(),
                })
            })
            .collect()
    }

    /// Returns when the next mark is old.
    pub fn next_end(&self, now: Timestamp) -> Option<Timestamp> {
        let ends = self.marks.values().map(|mark| mark.at + MARKED);
        ends.filter(|end| *end > now).min()
    }
}

/// Returns what the kernel runs, or what waits for it, as an editor shows it.
pub fn cell_run(run: &RunningExecution, notebook: &str, live: &LiveDocument) -> CellRun {
    let is_here = run.notebook == notebook;
    let id = cell_id(live, run.cell.as_deref(), run.code.as_deref()).filter(|_| is_here);
    let actor = Actor::parse(run.by.as_deref());
    let line = run.code.as_deref().and_then(first_line);
    CellRun {
        run: run.msg_id.clone(),
        by: actor.name(),
        person: actor.is_human(),
        notebook: (!is_here).then(|| run.notebook.clone()),
        index: id
            .as_deref()
            .and_then(|id| live.document().position_by_id(id)),
        cell: id.and_then(|id| Some(live.cell_name(&id)?.to_owned())),
        line: line.map(|line| line.chars().take(LONGEST_LINE).collect()),
        since: run.since,
    }
}

/// Returns the id of the editor's cell that a client has sent under this name.
fn cell_id(live: &LiveDocument, name: Option<&str>, code: Option<&str>) -> Option<String> {
    let (document, name) = (live.document(), name?);
    if !is_uri(name) {
        return Some(document.cell_by_id(name)?.id().to_owned());
    }
    let lookup = CellLookup::of(document, code.map(|code| (name, code)).into_iter());
    let position = lookup.position(name)?;
    Some(document.cells().get(position)?.id().to_owned())
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use serde_json::{Value, json};

    use super::*;
    use crate::live::FileSnapshot;
    use crate::live::protocol::{EditorCell, OpenedDocument};
    use crate::notebook::{CellType, Document};

    const URI: &str = "vscode-notebook-cell:/t.ipynb#W1";

    /// Returns a notebook with the cells `c0` to `c2` and the texts `x = 0` to `x = 2`, which the editor calls `0` to `2`.
    fn live() -> LiveDocument {
        let cells = (0..3).map(|at| {
            json!({"cell_type": "code", "id": format!("c{at}"), "metadata": {}, "execution_count": null,
                "outputs": [], "source": format!("x = {at}")})
        });
        let text = json!({"cells": cells.collect::<Vec<_>>(), "metadata": {}, "nbformat": 4, "nbformat_minor": 5});
        let cells = (0..3).map(|at| EditorCell {
            cell: at.to_string(),
            id: Some(format!("c{at}")),
            cell_type: CellType::Code,
            source: format!("x = {at}"),
        });
        let file = FileSnapshot {
            document: Document::parse(text.to_string()).unwrap(),
            stamp: "1".to_owned(),
            by: "ada".to_owned(),
            removed: HashSet::new(),
        };
        let opened = OpenedDocument {
            cells: cells.collect(),
            ..OpenedDocument::default()
        };
        LiveDocument::open(&opened, file, &HashMap::new(), true).unwrap()
    }

    fn at(minute: i64) -> Timestamp {
        Timestamp::UNIX_EPOCH + SignedDuration::from_mins(minute)
    }

    fn event(minute: i64, by: &str, rest: &Value) -> Event {
        let mut event = json!({"at": at(minute), "session": "t.ipynb", "by": by});
        event
            .as_object_mut()
            .unwrap()
            .extend(rest.as_object().unwrap().clone());
        serde_json::from_value(event).unwrap()
    }

    fn requested(msg_id: &str, cell: &str, code: &str) -> Value {
        json!({"event": "requested", "msg_id": msg_id, "cell": cell, "code": code})
    }

    fn done(msg_id: &str, status: &str) -> Value {
        json!({"event": "done", "msg_id": msg_id, "status": status})
    }

    fn edited(cell: &str, what: &str) -> Value {
        json!({"event": "edited", "op": "8a7b", "before": "0000000000", "after": "1111111111",
            "changes": [{"cell": cell, "what": what, "index": 0, "before": "2222222222"}]})
    }

    /// Returns the marks after events in the minutes 0, 1, and so on.
    fn marks(events: &[(&str, Value)]) -> Marks {
        let (live, mut marks) = (live(), Marks::default());
        for (minute, (by, rest)) in events.iter().enumerate() {
            let event = event(i64::try_from(minute).unwrap(), by, rest);
            marks.event(&event, "t.ipynb", &live);
        }
        marks
    }

    fn shown(marks: &Marks, minute: i64) -> Vec<String> {
        let shown = marks.shown(&live(), at(minute));
        let shown = shown
            .iter()
            .map(|it| format!("{} {:?} {}", it.by, it.what, it.cell));
        shown.collect()
    }

    #[test]
    fn a_cell_that_an_agent_has_run_is_marked_until_the_person_runs_it() {
        let mut events = vec![
            ("claude", requested("1", "c1", "x = 1")),
            ("claude", done("1", "ok")),
            ("claude", requested("2", "c2", "x = 2")),
            ("claude", done("2", "withdrawn")),
        ];
        assert_eq!(shown(&marks(&events), 4), ["claude Ran 1"]);
        events.push(("human (VS Code)", requested("3", URI, "x = 1")));
        assert!(shown(&marks(&events), 5).is_empty());
    }

    #[test]
    fn a_mark_says_the_edit_and_stays_one_when_the_agent_runs_the_cell() {
        let marks = marks(&[
            ("claude", edited("c0", "edited")),
            ("claude", requested("1", "c0", "x = 0")),
            ("claude", done("1", "ok")),
        ]);
        let [mark] = &marks.shown(&live(), at(3))[..] else {
            panic!("{marks:?}");
        };
        assert_eq!(
            (mark.what, mark.at, &*mark.id),
            (MarkKind::Edited, at(2), "c0")
        );
        assert_eq!(mark.edit.as_deref(), Some("8a7b"));
        assert_eq!(mark.before.as_deref(), Some("2222222222"));
    }

    #[test]
    fn a_mark_ends_with_the_persons_edit_or_after_ten_minutes() {
        let inserted = ("claude", edited("c0", "inserted"));
        let one = marks(std::slice::from_ref(&inserted));
        assert_eq!(shown(&one, 9), ["claude Inserted 0"]);
        assert_eq!(one.next_end(at(0)), Some(at(10)));
        assert!(shown(&one, 10).is_empty() && one.next_end(at(10)).is_none());
        let saved = marks(&[inserted.clone(), ("human", edited("c0", "edited"))]);
        assert!(shown(&saved, 2).is_empty());
        let mut typed = marks(std::slice::from_ref(&inserted));
        typed.typed("c0");
        assert!(shown(&typed, 1).is_empty());
        let other = marks(&[inserted, ("human", edited("c1", "edited"))]);
        assert_eq!(shown(&other, 2), ["claude Inserted 0"]);
    }

    #[test]
    fn what_runs_is_named_by_its_cell_and_by_its_first_line() {
        let run = |notebook: &str, cell: &str, by: Option<&str>| {
            let run = RunningExecution {
                notebook: notebook.to_owned(),
                msg_id: "1".to_owned(),
                by: by.map(str::to_owned),
                cell: Some(cell.to_owned()),
                code: Some("\n  x = 1\nmore".to_owned()),
                job: None,
                store_history: true,
                since: at(0),
                prompt: None,
            };
            cell_run(&run, "t.ipynb", &live())
        };
        let here = run("t.ipynb", "c1", Some("claude#12345678"));
        assert_eq!((&*here.by, here.person), ("claude", false));
        assert_eq!((here.cell.as_deref(), here.index), (Some("1"), Some(1)));
        assert_eq!((here.line.as_deref(), here.notebook), (Some("x = 1"), None));
        let there = run("other.ipynb", "c1", None);
        assert_eq!((there.cell, there.index), (None, None));
        assert_eq!(there.notebook.as_deref(), Some("other.ipynb"));
        let uuid = run(
            "t.ipynb",
            "c1",
            Some("739085c8-1e43-4c37-be28-9e70b619cf8c"),
        );
        assert_eq!(uuid.by, "another client");
    }
}
