//! Selects the new events of which an actor is notified, and puts them into words.

use std::collections::{HashMap, HashSet};

use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::Serialize;

use crate::activity::actor::Actor;
use crate::activity::labels::{self, label};
use crate::activity::zone::clock;
use crate::notebook::ChangeKind;
use crate::project::event::{CellEnd, Event, EventKind, ExecutionEnd, ExecutionStart};

/// The most lines of one notification.
const LINES: usize = 3;

/// The most cells that are named for each kind of change.
const CELLS: usize = 4;

/// The verbs for changes of cells, in the order in which they are printed.
const VERBS: [(ChangeKind, &str); 5] = [
    (ChangeKind::Edited, "edited"),
    (ChangeKind::Inserted, "inserted"),
    (ChangeKind::Removed, "removed"),
    (ChangeKind::Moved, "moved"),
    (ChangeKind::Outputs, "cleared"),
];

/// What one other actor did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ActivityEntry {
    /// The actor; none for the kernel itself.
    pub by: Option<String>,
    /// The time of the reader's last notification.
    pub since: Timestamp,
    /// Whether variables were lost.
    pub variables_gone: bool,
    /// All of it, as one line for a reader.
    pub text: String,
}

/// A summary of one other actor's events.
#[derive(Default)]
pub(super) struct ActorSummary {
    /// The actor; `None` for the kernel itself.
    by: Option<String>,
    last: Timestamp,
    /// The executions that have ended, and their outcomes.
    ran: Vec<(String, Option<CellEnd>)>,
    runs: Option<(String, Timestamp)>,
    /// The cell that waits at a front end's proxy.
    waits: Option<(String, Timestamp)>,
    /// The changes of cells, one for each cell.
    cells: Vec<(ChangeKind, String)>,
    /// The kinds of other events, each with its count and its last time.
    events: Vec<(&'static str, usize, Timestamp)>,
    variables_gone: bool,
    /// The front ends that were joined when an unknown actor saved.
    joined: Vec<String>,
}

/// Sums up the new events by others, for the actor `name`. Its last notification was about the kernel of generation
/// `known_generation`.
pub(super) fn summaries(
    new_events: &[Event],
    earlier: &[Event],
    known_generation: u64,
    generation: u64,
    name: &str,
) -> Vec<ActorSummary> {
    let own = Actor::from(name);
    let mut others: Vec<ActorSummary> = Vec::new();
    // Several processes may report the same end; only the first report counts.
    let earlier_ends = earlier.iter().filter_map(Event::end);
    let mut executions: HashSet<&str> = earlier_ends.map(|end| end.msg_id.as_str()).collect();
    let mut replaced = false;
    let (beginnings, ends) = index(new_events, earlier);
    let is_end = |event: &Event| {
        matches!(
            event.kind,
            EventKind::Opened | EventKind::Restarted | EventKind::Stopped | EventKind::Died { .. }
        )
    };
    for event in new_events {
        if is_end(event) {
            // A running cell has ended with its kernel, even if its end is not in the journal.
            for other in &mut others {
                other.waits = None;
                let ended = other.runs.take();
                other.ran.extend(ended.map(|(label, _)| (label, None)));
            }
        }
        let beginning = event.msg_id().and_then(|id| beginnings.get(id));
        let is_replacement = matches!(event.kind, EventKind::Opened | EventKind::Restarted)
            && event.generation.is_some_and(|of| of > known_generation);
        replaced |= is_replacement;
        let id = beginning.and_then(|beginning| beginning.actor.clone());
        let id = id.or_else(|| event.actor());
        let actor = match beginning {
            Some(beginning) if !beginning.is_from_sender => Actor::of_username(id.as_deref()),
            _ => Actor::parse(id.as_deref()),
        };
        let by = match event.kind {
            EventKind::Died { .. } => None,
            _ if own.has_done(&actor) => continue,
            // The program has joined no kernel, or is one of several that have.
            EventKind::Saved(_) if event.by.is_none() => Some("somebody".to_owned()),
            _ => Some(actor.name()),
        };
        let mut summary = ActorSummary {
            by,
            last: event.at,
            variables_gone: is_replacement || matches!(event.kind, EventKind::Died { .. }),
            ..ActorSummary::default()
        };
        let kernel = match &event.kind {
            EventKind::Requested(ExecutionStart { msg_id, .. })
            | EventKind::BegunOutside(ExecutionStart { msg_id, .. })
            | EventKind::Done(ExecutionEnd { msg_id, .. }) => {
                let is_own = beginning.is_some_and(|beginning| !beginning.start.store_history);
                if !executions.insert(msg_id) || is_own {
                    continue;
                }
                let label = beginning
                    .map_or_else(|| "a cell".to_owned(), |beginning| label(beginning.start));
                match ends.get(msg_id.as_str()) {
                    Some(status) if !status.has_begun() => continue,
                    Some(status) => summary.ran.push((label, Some(status.shown()))),
                    None => summary.runs = Some((label, event.at)),
                }
                None
            }
            EventKind::Queued(start) => {
                let id = start.msg_id.as_str();
                if beginning.is_some() || ends.contains_key(id) {
                    continue;
                }
                summary.waits = Some((label(start), event.at));
                None
            }
            EventKind::Edited(change) | EventKind::Saved(change) => {
                summary.joined.clone_from(&change.joined);
                for change in &change.changes {
                    add_cell(&mut summary.cells, change.kind, change.cell.clone());
                }
                if summary.cells.is_empty() {
                    continue;
                }
                None
            }
            EventKind::Interrupted => Some("interrupted the kernel"),
            EventKind::Opened => Some("started the kernel"),
            EventKind::Restarted => Some("restarted the kernel"),
            EventKind::Stopped => Some("shut the kernel down"),
            EventKind::Died { .. } => Some("the kernel died"),
            EventKind::Moved { .. } => Some("moved the notebook"),
            EventKind::Withdrew { .. }
            | EventKind::Peeked { .. }
            | EventKind::Called(_)
            | EventKind::Messaged(_)
            | EventKind::Prompted { .. }
            | EventKind::Answered { .. } => {
                continue;
            }
        };
        summary
            .events
            .extend(kernel.map(|kind| (kind, 1, event.at)));
        match others.iter_mut().find(|other| other.by == summary.by) {
            Some(other) => other.add(summary),
            None => others.push(summary),
        }
    }
    // An actor that was there before the notebook had a kernel misses no variables.
    if known_generation > 0 && generation > known_generation && !replaced {
        // A program that writes no journal replaced it, or one that could not write it.
        others.push(ActorSummary {
            last: Timestamp::now(),
            events: vec![("the kernel was replaced", 1, Timestamp::now())],
            variables_gone: true,
            ..ActorSummary::default()
        });
    }
    others
}

/// The beginning of an execution.
struct Beginning<'a> {
    actor: Option<String>,
    start: &'a ExecutionStart,
    /// Whether the sender's event is the source, which has more details than an observer's.
    is_from_sender: bool,
}

type Beginnings<'a> = HashMap<&'a str, Beginning<'a>>;
type CellEnds<'a> = HashMap<&'a str, CellEnd>;

/// Returns each request's beginning and end, from the event with the most details.
fn index<'a>(new_events: &'a [Event], earlier: &'a [Event]) -> (Beginnings<'a>, CellEnds<'a>) {
    let (mut beginnings, mut ends) = (Beginnings::new(), CellEnds::new());
    for event in new_events.iter().chain(earlier) {
        if let Some(start) = event.start() {
            let is_from_sender = event.request().is_some();
            let beginning = Beginning {
                actor: event.actor(),
                start,
                is_from_sender,
            };
            if is_from_sender || !beginnings.contains_key(start.msg_id.as_str()) {
                beginnings.insert(&start.msg_id, beginning);
            }
        }
        if let Some(end) = event.end() {
            let previous = ends.entry(&end.msg_id).or_insert(end.status);
            if !previous.is_certain() {
                *previous = end.status;
            }
        }
    }
    (beginnings, ends)
}

/// Adds a change of a cell to the earlier ones, so that each cell appears once.
fn add_cell(cells: &mut Vec<(ChangeKind, String)>, kind: ChangeKind, cell: String) {
    let Some(at) = cells.iter().position(|(_, previous)| *previous == cell) else {
        cells.push((kind, cell));
        return;
    };
    let Some((previous, _)) = cells.get_mut(at) else {
        return;
    };
    match (*previous, kind) {
        // The cell was inserted and then removed.
        (ChangeKind::Inserted, ChangeKind::Removed) => drop(cells.remove(at)),
        (ChangeKind::Removed, ChangeKind::Inserted) => *previous = ChangeKind::Edited,
        (ChangeKind::Inserted, _)
        | (ChangeKind::Edited, ChangeKind::Moved | ChangeKind::Outputs) => {}
        _ => *previous = kind,
    }
}

impl ActorSummary {
    fn add(&mut self, later: Self) {
        self.last = later.last;
        self.ran.extend(later.ran);
        for (kind, cell) in later.cells {
            add_cell(&mut self.cells, kind, cell);
        }
        self.runs = later.runs.or(self.runs.take());
        // The oldest one: those after it wait for it, too.
        self.waits = self.waits.take().or(later.waits);
        for (kind, _, at) in later.events {
            match self
                .events
                .iter_mut()
                .find(|(previous, ..)| *previous == kind)
            {
                Some((_, count, last)) => (*count, *last) = (*count + 1, at),
                None => self.events.push((kind, 1, at)),
            }
        }
        self.variables_gone |= later.variables_gone;
        self.joined.extend(later.joined);
        self.joined.sort();
        self.joined.dedup();
    }

    fn text(&self, zone: &TimeZone) -> String {
        let mut parts = Vec::new();
        if let Some(((label, status), rest)) = self.ran.split_last() {
            parts.push(match status {
                Some(CellEnd::Ok) => format!("ran {label} ok"),
                Some(CellEnd::Error) => format!("ran {label}: it failed"),
                Some(CellEnd::Interrupted) => format!("ran {label}: it was interrupted"),
                _ => format!("ran {label}"),
            });
            let failed = |(_, status): &&(_, Option<CellEnd>)| *status == Some(CellEnd::Error);
            match (rest.len(), rest.iter().filter(failed).count()) {
                (0, _) => {}
                (more, 0) => parts.push(format!("ran {more} more")),
                (more, failed) => parts.push(format!("ran {more} more ({failed} failed)")),
            }
        }
        if let Some((label, at)) = &self.runs {
            parts.push(format!("runs {label} since {}", clock(*at, zone)));
        }
        if let Some((label, at)) = &self.waits {
            let at = clock(*at, zone);
            parts.push(format!("waits for the kernel with {label} since {at}"));
        }
        for (kind, verb) in VERBS {
            let cells = self.cells.iter().filter(|(previous, _)| *previous == kind);
            let cells: Vec<_> = cells.map(|(_, cell)| labels::cell(cell)).collect();
            let rest = cells.len().saturating_sub(CELLS);
            let shown = cells
                .iter()
                .take(CELLS)
                .map(String::as_str)
                .collect::<Vec<_>>();
            match rest {
                _ if cells.is_empty() => {}
                0 => parts.push(format!("{verb} {}", shown.join(", "))),
                _ => parts.push(format!("{verb} {} and {rest} more", shown.join(", "))),
            }
        }
        for (kind, count, at) in &self.events {
            let at = clock(*at, zone);
            parts.push(match count {
                1 => format!("{kind} {at}"),
                _ => format!("{kind} {count} times, last {at}"),
            });
        }
        let variables = if self.variables_gone {
            ": variables are gone"
        } else {
            ""
        };
        let actor = self.by.as_deref().map(|by| format!("{by} "));
        let joined = match &*self.joined {
            [] => String::new(),
            [one] => format!("({one} was joined) "),
            several => format!("({} were joined) ", several.join(", ")),
        };
        format!(
            "{}{joined}{}{variables}",
            actor.unwrap_or_default(),
            parts.join(", ")
        )
    }
}

pub(super) fn lines(
    mut others: Vec<ActorSummary>,
    since: Timestamp,
    zone: &TimeZone,
) -> Vec<ActivityEntry> {
    let moment = clock(since, zone);
    others.sort_by_key(|other| std::cmp::Reverse(other.last));
    let rest = if others.len() > LINES {
        others.split_off(LINES - 1)
    } else {
        Vec::new()
    };
    let mut entries: Vec<_> = others
        .into_iter()
        .map(|other| ActivityEntry {
            text: format!("since {moment} · {}", other.text(zone)),
            by: other.by,
            since,
            variables_gone: other.variables_gone,
        })
        .collect();
    if !rest.is_empty() {
        let names: Vec<_> = rest
            .iter()
            .filter_map(|other| other.by.as_deref())
            .collect();
        entries.push(ActivityEntry {
            by: None,
            since,
            variables_gone: rest.iter().any(|other| other.variables_gone),
            text: format!("since {moment} · {} were here too", names.join(", ")),
        });
    }
    entries
}

/// Returns the requests that end in these events and began before them.
pub(super) fn endings(new_events: &[Event]) -> Vec<String> {
    let (beginnings, ends) = index(new_events, &[]);
    ends.into_keys()
        .filter(|id| {
            beginnings
                .get(id)
                .is_none_or(|beginning| !beginning.is_from_sender)
        })
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::json;

    use super::*;
    use crate::project::event::fixtures;

    pub(in crate::activity::notification) fn entry(event: &str, id: &str, by: &str) -> Event {
        fixtures::event(json!({
            "at": "2026-01-02T14:05:00Z", "event": event, "generation": 1, "msg_id": id, "by": by,
            "code": format!("code {id}"), "reason": "",
        }))
    }

    pub(in crate::activity::notification) fn done(id: &str, by: &str, status: &str) -> Event {
        fixtures::event(json!({
            "at": "2026-01-02T14:05:00Z", "event": "done", "generation": 1, "msg_id": id, "by": by,
            "status": status,
        }))
    }

    fn later(mut event: Event) -> Event {
        event.at = "2026-01-02T14:06:00Z".parse().unwrap();
        event
    }

    fn restarted(by: &str) -> Event {
        let mut event = entry("restarted", "", by);
        event.generation = Some(2);
        event
    }

    fn entry_texts(new_events: &[Event], earlier: &[Event], generation: u64) -> Vec<String> {
        let at = "2026-01-02T14:02:00Z".parse().unwrap();
        let others = summaries(new_events, earlier, 1, generation, "claude");
        lines(others, at, &TimeZone::UTC)
            .into_iter()
            .map(|entry| entry.text.replace("2026-01-02 ", ""))
            .collect()
    }

    const HUMAN: &str = "human (VS Code)";

    fn asked_with(id: &str, field: &str, value: serde_json::Value) -> Event {
        let mut asked = serde_json::to_value(entry("requested", id, HUMAN)).unwrap();
        asked[field] = value;
        fixtures::event(asked)
    }

    pub(in crate::activity::notification) fn changed(
        event: &str,
        by: Option<&str>,
        changes: &str,
    ) -> Event {
        let changes = changes.split(' ').map(|change| {
            let (kind, cell) = change.split_once(':').unwrap();
            json!({"cell": cell, "what": kind, "index": 0})
        });
        fixtures::event(json!({
            "at": "2026-01-02T14:05:00Z", "event": event, "by": by, "before": "0123456789",
            "after": "0123456789", "changes": changes.collect::<Vec<_>>(),
        }))
    }

    #[test]
    fn what_others_did_is_told_in_a_line_each() {
        let named = asked_with("3", "cell", "3f2c9a1e".into());
        let new_events = [
            entry("requested", "1", HUMAN),
            done("1", HUMAN, "ok"),
            entry("requested", "2", HUMAN),
            done("2", HUMAN, "error"),
            named,
            // A proxy of another front end has fewer details than the sender.
            entry("begun_outside", "3", "username"),
            done("3", HUMAN, "ok"),
            restarted(HUMAN),
            later(entry("requested", "4", "codex")),
        ];
        assert_eq!(
            entry_texts(&new_events, &[], 2),
            [
                "since 14:02 · codex runs \"code 4\" since 14:06",
                "since 14:02 · human (VS Code) ran 3f2c ok, ran 2 more (1 failed), \
                 restarted the kernel 14:05: variables are gone",
            ]
        );
    }

    #[test]
    fn what_was_done_to_cells_is_told_a_cell_once() {
        let new_events = [
            entry("requested", "1", HUMAN),
            done("1", HUMAN, "ok"),
            changed(
                "saved",
                Some(HUMAN),
                "edited:77de0a1b inserted:load removed:c",
            ),
            changed(
                "saved",
                Some(HUMAN),
                "edited:77de0a1b edited:load moved:m outputs:o",
            ),
            changed(
                "saved",
                Some(HUMAN),
                "removed:load edited:1 edited:2 edited:3 edited:4",
            ),
            changed("edited", Some("claude"), "edited:x"),
            changed("edited", Some("codex"), "inserted:n"),
            changed("edited", Some("codex"), "edited:n"),
        ];
        assert_eq!(
            entry_texts(&new_events, &[], 1),
            [
                "since 14:02 · human (VS Code) ran \"code 1\" ok, edited 77de, 1, 2, 3 and 1 more, \
                 removed c, moved m, cleared o",
                "since 14:02 · codex inserted n",
            ]
        );
        let mut unknown = changed("saved", None, "edited:x");
        assert_eq!(
            entry_texts(&[unknown.clone()], &[], 1),
            ["since 14:02 · somebody edited x"]
        );
        if let EventKind::Saved(change) = &mut unknown.kind {
            change.joined = vec!["JupyterLab".to_owned()];
        }
        assert_eq!(
            entry_texts(&[unknown], &[], 1),
            ["since 14:02 · somebody (JupyterLab was joined) edited x"]
        );
    }

    #[test]
    fn a_cell_that_waits_is_named_until_it_is_sent_or_withdrawn() {
        let mut events = vec![entry("queued", "1", HUMAN), entry("queued", "2", HUMAN)];
        let waits = |events: &[Event]| entry_texts(events, &[], 1).concat();
        assert!(
            waits(&events).contains("human (VS Code) waits for the kernel with "),
            "{}",
            waits(&events)
        );
        events.push(done("2", HUMAN, "withdrawn"));
        assert!(waits(&events).contains("waits for"), "{}", waits(&events));
        events.push(entry("requested", "1", HUMAN));
        assert!(!waits(&events).contains("waits for"), "{}", waits(&events));
        // The end of the kernel ends the wait.
        let mut ended = vec![entry("queued", "1", HUMAN)];
        ended.push(entry("stopped", "", "bob"));
        assert!(!waits(&ended).contains("waits for"), "{}", waits(&ended));
    }

    #[test]
    fn ones_own_doings_what_did_not_run_and_what_front_ends_run_for_themselves_are_not_told() {
        let startup = asked_with("1", "store_history", false.into());
        let mut withdrawn = entry("interrupted", "", HUMAN);
        withdrawn.kind = EventKind::Withdrew {
            cells: 2,
            msg_ids: vec!["4".to_owned(), "5".to_owned()],
        };
        let new_events = [
            startup,
            done("1", HUMAN, "ok"),
            entry("requested", "2", HUMAN),
            done("2", HUMAN, "aborted"),
            entry("requested", "4", HUMAN),
            done("4", HUMAN, "withdrawn"),
            entry("requested", "3", "claude"),
            entry("begun_outside", "3", "username"),
            done("3", "claude", "ok"),
            withdrawn,
            restarted("claude"),
        ];
        assert_eq!(entry_texts(&new_events, &[], 2), [""; 0]);
        assert_eq!(entry_texts(&[], &[], 1), [""; 0]);
    }

    #[test]
    fn what_another_session_of_ones_agent_did_is_told_by_its_name() {
        let run = |id: &str, session: &str| {
            let mut asked = entry("requested", id, "claude");
            asked.by_session = Some(session.to_owned());
            asked
        };
        let new_events = [run("1", "00000001"), run("2", "00000002")];
        let others = summaries(&new_events, &[], 1, 1, "claude#00000001");
        let texts = lines(others, new_events[0].at, &TimeZone::UTC);
        assert_eq!(texts.len(), 1);
        assert!(
            texts[0].text.contains(" · claude runs \"code 2\""),
            "{texts:?}"
        );
    }

    #[test]
    fn an_end_is_told_with_what_is_known_of_its_beginning() {
        let beginning = [entry("requested", "1", HUMAN)];
        let texts = entry_texts(&[done("1", HUMAN, "ok")], &beginning, 1);
        assert_eq!(texts, ["since 14:02 · human (VS Code) ran \"code 1\" ok"]);
        let texts = entry_texts(&[done("9", HUMAN, "interrupted")], &[], 1);
        assert_eq!(
            texts,
            ["since 14:02 · human (VS Code) ran a cell: it was interrupted"]
        );
        let mine = [entry("requested", "1", "claude")];
        assert_eq!(
            entry_texts(&[done("1", "", "observed_ok")], &mine, 1),
            [""; 0]
        );
        // The observer wrote the end before the sender did, and the actor was notified in between.
        let ended = [
            entry("requested", "1", HUMAN),
            done("1", HUMAN, "observed_ok"),
        ];
        assert_eq!(entry_texts(&[done("1", HUMAN, "ok")], &ended, 1), [""; 0]);
    }

    #[test]
    fn a_kernel_that_died_or_was_replaced_is_told_whoever_did_it() {
        let mut died = entry("died", "", "");
        died.by = None;
        assert_eq!(
            entry_texts(&[died.clone()], &[], 1),
            ["since 14:02 · the kernel died 14:05: variables are gone"]
        );
        let mut opened = restarted("claude");
        opened.kind = EventKind::Opened;
        assert_eq!(entry_texts(&[died, opened], &[], 2).len(), 1);
        let texts = entry_texts(&[], &[], 2);
        assert!(
            matches!(&texts[..], [only] if only.contains("replaced") && only.ends_with(": variables are gone")),
            "{texts:?}"
        );
    }

    #[test]
    fn a_cell_does_not_outlast_its_kernel() {
        let new_events = [entry("requested", "1", "codex"), restarted(HUMAN)];
        let texts = entry_texts(&new_events, &[], 2);
        assert!(
            texts
                .iter()
                .any(|line| line.ends_with("codex ran \"code 1\"")),
            "{texts:?}"
        );
    }

    #[test]
    fn who_was_there_before_any_kernel_misses_no_variables() {
        assert_eq!(summaries(&[], &[], 0, 1, "claude").len(), 0);
        assert_eq!(summaries(&[], &[], 1, 2, "claude").len(), 1);
    }

    #[test]
    fn there_are_three_lines_at_most() {
        let new_events = ["a", "b", "c", "d"].map(|name| entry("interrupted", "", name));
        let twice: Vec<_> = new_events.iter().chain(&new_events).cloned().collect();
        let texts = entry_texts(&twice, &[], 1);
        assert_eq!(texts.len(), LINES);
        assert!(texts[0].ends_with("interrupted the kernel 2 times, last 14:05"));
        assert!(texts[2].ends_with("were here too"), "{texts:?}");
    }
}
