//! What others did on a kernel, and with a notebook's cells, since somebody last looked.
//!
//! For each name and each kernel `.nb/looked.json` remembers how far in the journal that name has
//! been told, and which of the session's kernels it knew; and for each notebook the same of its
//! cells. Notebooks that share a kernel share what happens on it, not their cells. What one did
//! oneself is never told.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};

use super::company::{self, label};
use super::history::Recorded;
use crate::notebook::Change;
use crate::project::journal::Entry;
use crate::project::past::{Past, Placed};
use crate::project::{Lock, Project, save};

/// At most this many lines are told.
const LINES: usize = 3;

/// So many cells are named for each thing that was done.
const CELLS: usize = 4;

/// The words for what is done to cells, in the order in which they are told.
const VERBS: [(Change, &str); 5] = [
    (Change::Edited, "edited"),
    (Change::Inserted, "inserted"),
    (Change::Removed, "removed"),
    (Change::Moved, "moved"),
    (Change::Outputs, "cleared"),
];

/// How much of the journal is read at most. Whoever looks after weeks gets the end of it.
const NEWS: u64 = 2 << 20;

/// How far before the news the beginnings of cells are looked for that have ended meanwhile.
const BEGINNINGS: u64 = 256 << 10;

/// What is remembered of a name that has not looked for so long is forgotten.
const FORGOTTEN_HOURS: i64 = 24 * 180;

/// What one other did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Doings {
    /// Who; none for the kernel itself.
    pub by: Option<String>,
    /// When the one who is told looked last.
    pub since: Timestamp,
    /// Whether variables are gone by it.
    pub variables_gone: bool,
    /// All of it, as one line for a reader.
    pub text: String,
}

/// How far somebody has been told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Looked {
    at: Timestamp,
    /// Where in the journal the news begins.
    position: u64,
    generation: u64,
}

/// The content of `looked.json`: by name, then by the session's key, or [`cells`] of a notebook.
type Memory = BTreeMap<String, BTreeMap<String, Looked>>;

/// Returns what others did on a notebook's kernel and with its cells since `name` last looked, and
/// remembers that it has been told. Nothing on the first time.
///
/// What cannot be read or written is as if there were nothing to tell: no command fails by it.
pub fn look(project: &Project, key: &str, name: &str) -> Vec<Doings> {
    look_at(project, key, name).unwrap_or_else(|error| {
        tracing::warn!(%error, "who did what cannot be told");
        Vec::new()
    })
}

/// Returns when a name looked last at what others did on a session's kernel; none where it never
/// did, or that is forgotten.
pub fn looked_last(project: &Project, key: &str, name: &str) -> Option<Timestamp> {
    let key = project.state().ok()?.owner_key(key);
    let bytes = std::fs::read(project.dir().join("looked.json")).ok()?;
    let memory: Memory = serde_json::from_slice(&bytes).ok()?;
    Some(memory.get(name)?.get(&key)?.at)
}

fn look_at(project: &Project, key: &str, name: &str) -> io::Result<Vec<Doings>> {
    let state = project.state().map_err(io::Error::other)?;
    let owner = state.owner_key(key);
    let generation = state
        .session(&owner)
        .map_or(0, |session| session.generation);
    let file = project.dir().join("looked.json");
    let lock = Lock::wait(&project.dir().join("looked.lock"))?;
    // A damaged one costs a line that is not told, no more.
    let mut memory: Memory = std::fs::read(&file)
        .ok()
        .and_then(|bytes| serde_json::from_slice(&bytes).ok())
        .unwrap_or_default();
    let past = project.past_of(&[&owner, key]);
    let looked = Looked {
        at: Timestamp::now(),
        position: past.end(),
        generation,
    };
    let of_name = memory.entry(name.to_owned()).or_default();
    let cells = of_name.insert(cells(key), looked.clone());
    let kernel = of_name.insert(owner.clone(), looked.clone());
    let young = jiff::Span::new().hours(FORGOTTEN_HOURS);
    let oldest = Timestamp::now()
        .checked_sub(young)
        .unwrap_or(Timestamp::MIN);
    for kernels in memory.values_mut() {
        kernels.retain(|_, looked| looked.at > oldest);
    }
    memory.retain(|_, kernels| !kernels.is_empty());
    save::replace_unsynced(&file, &serde_json::to_vec(&memory)?)?;
    drop(lock);
    // Who looks at one of them for the first time is told nothing of that.
    let Some(at) = kernel.iter().chain(&cells).map(|looked| looked.at).min() else {
        return Ok(Vec::new());
    };
    let kernel = kernel.unwrap_or_else(|| looked.clone());
    let told = Told {
        owner: &owner,
        key,
        kernel: place(&past, kernel.position),
        cells: place(&past, cells.map_or(looked.position, |cells| cells.position)),
    };
    let (news, earlier) = told.news(past);
    let others = gathered(&news, &earlier, &kernel, generation, name);
    if others.is_empty() {
        // The system's zone takes longer to find than all the rest.
        return Ok(Vec::new());
    }
    Ok(lines(others, at, &TimeZone::system()))
}

/// Returns under what a notebook's cells are known in [`Memory`]: no session has such a key.
fn cells(key: &str) -> String {
    format!("cells of {key}")
}

/// Returns where in the journal the news begins for whoever was told up to `position`.
fn place(past: &Past, position: u64) -> u64 {
    // A journal that is shorter than it was is another one.
    let position = if position > past.end() { 0 } else { position };
    position.max(past.end().saturating_sub(NEWS))
}

/// How far one has been told of a kernel and of a notebook's cells.
struct Told<'a> {
    owner: &'a str,
    key: &'a str,
    kernel: u64,
    cells: u64,
}

impl Told<'_> {
    /// Returns the entries that are new, oldest first, and those before them that tell how what has
    /// ended in them began.
    fn news(&self, past: Past) -> (Vec<Entry>, Vec<Entry>) {
        let mut news: Vec<Entry> = Vec::new();
        let mut earlier = Vec::new();
        let mut open: Option<Vec<String>> = None;
        for Placed { at, entry } in past {
            let of_cells = matches!(entry.event.as_str(), "edited" | "saved");
            let (session, place) = match of_cells {
                true => (self.key, self.cells),
                false => (self.owner, self.kernel),
            };
            if at >= place && entry.session == session {
                news.push(entry);
                continue;
            }
            if at >= self.kernel {
                continue;
            }
            // Ends without their beginning.
            let open = open.get_or_insert_with(|| endings(&news));
            if open.is_empty() || at + BEGINNINGS < self.kernel {
                if at < self.cells {
                    break;
                }
                continue;
            }
            if of_cells || entry.session != session {
                continue;
            }
            let Some(id) = &entry.msg_id else { continue };
            // Whoever asked knows more of it than who has seen it begin.
            if entry.event == "asked" {
                open.retain(|waiting| waiting != id);
            }
            earlier.push(entry);
        }
        news.reverse();
        (news, earlier)
    }
}

/// The requests that end in these entries and began before them.
fn endings(news: &[Entry]) -> Vec<String> {
    let (beginnings, ends) = index(news, &[]);
    ends.into_keys()
        .filter(|id| beginnings.get(id).is_none_or(|it| it.event != "asked"))
        .map(str::to_owned)
        .collect()
}

/// What one other did, as it is gathered.
#[derive(Default)]
struct Gathered {
    /// Who; none for the kernel itself.
    by: Option<String>,
    last: Timestamp,
    /// What ran to its end, and how that was.
    ran: Vec<(String, Option<String>)>,
    runs: Option<(String, Timestamp)>,
    /// What was done to which cells, in short; each cell once.
    cells: Vec<(Change, String)>,
    /// Each kind of event with how often it happened and when last.
    events: Vec<(&'static str, usize, Timestamp)>,
    variables_gone: bool,
}

/// The rule: what of the news is told to `name`, who looked `before`.
fn gathered(
    news: &[Entry],
    earlier: &[Entry],
    before: &Looked,
    generation: u64,
    name: &str,
) -> Vec<Gathered> {
    let mut others: Vec<Gathered> = Vec::new();
    // Several tell of the same end; what has been told with the first is not told again.
    let ended_before = earlier.iter().filter(|entry| entry.event == "done");
    let mut executions: HashSet<&str> = ended_before
        .filter_map(|entry| entry.msg_id.as_deref())
        .collect();
    let mut replaced = false;
    let (beginnings, ends) = index(news, earlier);
    for entry in news {
        let id = entry.msg_id.as_deref();
        let began = id.and_then(|id| beginnings.get(id).copied());
        let gone = matches!(entry.event.as_str(), "opened" | "restarted")
            && entry.generation.is_some_and(|of| of > before.generation);
        replaced |= gone;
        let by = began
            .and_then(|it| it.by.as_deref())
            .or(entry.by.as_deref());
        let by = match entry.event.as_str() {
            "died" => None,
            // By a program that has joined no kernel; or by one of several that have.
            "saved" => Some(by.unwrap_or("somebody")),
            _ => Some(company::name(by)),
        };
        if by.is_some_and(|by| company::is_same(by, name)) {
            continue;
        }
        let mut one = Gathered {
            by: by.map(str::to_owned),
            last: entry.at,
            variables_gone: gone || entry.event == "died",
            ..Gathered::default()
        };
        match (entry.event.as_str(), id) {
            ("asked" | "seen" | "done", Some(id)) => {
                if !executions.insert(id) || began.is_some_and(|it| !it.store_history) {
                    continue;
                }
                let label = began.map_or_else(|| "a cell".to_owned(), label);
                match ends.get(id).map(|end| end.status.clone()) {
                    Some(Some(status)) if status == "aborted" => continue,
                    Some(status) => one.ran.push((label, status)),
                    None => one.runs = Some((label, entry.at)),
                }
            }
            ("interrupted", _) if entry.other.get("withdrawn").is_none_or(|it| *it == 0) => {
                one.events.push(("interrupted the kernel", 1, entry.at));
            }
            ("edited" | "saved", _) => one.cells = cells_of(entry),
            ("opened", _) => one.events.push(("started the kernel", 1, entry.at)),
            ("restarted", _) => one.events.push(("restarted the kernel", 1, entry.at)),
            ("stopped", _) => one.events.push(("shut the kernel down", 1, entry.at)),
            ("died", _) => one.events.push(("the kernel died", 1, entry.at)),
            _ => continue,
        }
        if matches!(entry.event.as_str(), "edited" | "saved") && one.cells.is_empty() {
            continue;
        }
        match others.iter_mut().find(|other| other.by == one.by) {
            Some(other) => other.add(one),
            None => others.push(one),
        }
    }
    let is_end = |entry: &&Entry| {
        let event = entry.event.as_str();
        matches!(event, "opened" | "restarted" | "stopped" | "died")
    };
    // With its kernel a cell ends too, told or not.
    if let Some(end) = news.iter().rfind(is_end) {
        for other in &mut others {
            if let Some((label, _)) = other.runs.take_if(|(_, since)| *since <= end.at) {
                other.ran.push((label, None));
            }
        }
    }
    if generation > before.generation && !replaced {
        // By a program that writes no journal, or one that could not.
        others.push(Gathered {
            last: Timestamp::now(),
            events: vec![("the kernel was replaced", 1, Timestamp::now())],
            variables_gone: true,
            ..Gathered::default()
        });
    }
    others
}

type ById<'a> = HashMap<&'a str, &'a Entry>;

/// Returns for each request the entries that tell best how it began and how it ended.
fn index<'a>(news: &'a [Entry], earlier: &'a [Entry]) -> (ById<'a>, ById<'a>) {
    let (mut beginnings, mut ends) = (ById::new(), ById::new());
    for entry in news.iter().chain(earlier) {
        let Some(id) = entry.msg_id.as_deref() else {
            continue;
        };
        match entry.event.as_str() {
            // Whoever asked knows more than who has seen it.
            "asked" => {
                beginnings.insert(id, entry);
            }
            "seen" => {
                beginnings.entry(id).or_insert(entry);
            }
            "done" => {
                let known = ends.entry(id).or_insert(entry);
                if known.status.as_deref().is_none_or(is_seen) {
                    *known = entry;
                }
            }
            _ => {}
        }
    }
    (beginnings, ends)
}

/// Whether it is how an observer tells of an end: it has seen no reply.
fn is_seen(status: &str) -> bool {
    matches!(status, "seen" | "unseen")
}

/// Returns what an entry tells of a notebook's cells.
fn cells_of(entry: &Entry) -> Vec<(Change, String)> {
    let changes = Recorded::of(entry).map(|recorded| recorded.changes);
    let mut cells = Vec::new();
    for step in changes.unwrap_or_default() {
        add_cell(&mut cells, step.what, step.cell);
    }
    cells
}

/// Adds what was done to a cell to what was done to cells before: a cell is told once.
fn add_cell(cells: &mut Vec<(Change, String)>, what: Change, cell: String) {
    let Some(at) = cells.iter().position(|(_, known)| *known == cell) else {
        cells.push((what, cell));
        return;
    };
    let Some((known, _)) = cells.get_mut(at) else {
        return;
    };
    match (*known, what) {
        // It came and went.
        (Change::Inserted, Change::Removed) => drop(cells.remove(at)),
        (Change::Removed, Change::Inserted) => *known = Change::Edited,
        (Change::Inserted, _) | (Change::Edited, Change::Moved | Change::Outputs) => {}
        _ => *known = what,
    }
}

impl Gathered {
    fn add(&mut self, more: Self) {
        self.last = more.last;
        self.ran.extend(more.ran);
        for (what, cell) in more.cells {
            add_cell(&mut self.cells, what, cell);
        }
        self.runs = more.runs.or(self.runs.take());
        for (what, _, at) in more.events {
            match self.events.iter_mut().find(|(known, ..)| *known == what) {
                Some((_, count, last)) => (*count, *last) = (*count + 1, at),
                None => self.events.push((what, 1, at)),
            }
        }
        self.variables_gone |= more.variables_gone;
    }

    fn text(&self, zone: &TimeZone) -> String {
        let mut parts = Vec::new();
        if let Some(((label, status), rest)) = self.ran.split_last() {
            parts.push(match status.as_deref() {
                Some("ok") => format!("ran {label} ok"),
                Some("error") => format!("ran {label}: it failed"),
                Some("interrupted") => format!("ran {label}: it was interrupted"),
                _ => format!("ran {label}"),
            });
            let failed = |(_, status): &&(_, Option<String>)| status.as_deref() == Some("error");
            match (rest.len(), rest.iter().filter(failed).count()) {
                (0, _) => {}
                (more, 0) => parts.push(format!("ran {more} more")),
                (more, failed) => parts.push(format!("ran {more} more ({failed} failed)")),
            }
        }
        if let Some((label, at)) = &self.runs {
            parts.push(format!("runs {label} since {}", clock(*at, zone)));
        }
        for (what, verb) in VERBS {
            let cells = self.cells.iter().filter(|(known, _)| *known == what);
            let cells: Vec<_> = cells.map(|(_, cell)| company::cell(cell)).collect();
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
        for (what, count, at) in &self.events {
            let at = clock(*at, zone);
            parts.push(match count {
                1 => format!("{what} {at}"),
                _ => format!("{what} {count} times, last {at}"),
            });
        }
        let gone = if self.variables_gone {
            ": variables are gone"
        } else {
            ""
        };
        let who = self.by.as_deref().map(|by| format!("{by} "));
        format!("{}{}{gone}", who.unwrap_or_default(), parts.join(", "))
    }
}

fn lines(mut others: Vec<Gathered>, since: Timestamp, zone: &TimeZone) -> Vec<Doings> {
    let moment = clock(since, zone);
    others.sort_by_key(|other| std::cmp::Reverse(other.last));
    let rest = if others.len() > LINES {
        others.split_off(LINES - 1)
    } else {
        Vec::new()
    };
    let mut told: Vec<_> = others
        .into_iter()
        .map(|other| Doings {
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
        told.push(Doings {
            by: None,
            since,
            variables_gone: rest.iter().any(|other| other.variables_gone),
            text: format!("since {moment} · {} were here too", names.join(", ")),
        });
    }
    told
}

/// Shows a moment: today as a time, else with its date.
pub(super) fn clock(at: Timestamp, zone: &TimeZone) -> String {
    let at = at.to_zoned(zone.clone());
    let format = if at.date() == Timestamp::now().to_zoned(zone.clone()).date() {
        "%H:%M"
    } else {
        "%Y-%m-%d %H:%M"
    };
    at.strftime(format).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(event: &str, id: &str, by: &str) -> Entry {
        let mut entry = Entry::now(event, "a.ipynb");
        entry.at = "2026-01-02T14:05:00Z".parse().unwrap();
        entry.generation = Some(1);
        entry.msg_id = Some(id.to_owned()).filter(|id| !id.is_empty());
        entry.by = Some(by.to_owned());
        entry.code = Some(format!("code {id}"));
        entry
    }

    fn done(id: &str, by: &str, status: &str) -> Entry {
        let mut entry = entry("done", id, by);
        entry.code = None;
        entry.status = Some(status.to_owned());
        entry
    }

    fn later(mut entry: Entry) -> Entry {
        entry.at = "2026-01-02T14:06:00Z".parse().unwrap();
        entry
    }

    fn restarted(by: &str) -> Entry {
        let mut entry = entry("restarted", "", by);
        entry.generation = Some(2);
        entry
    }

    fn tell(news: &[Entry], earlier: &[Entry], generation: u64) -> Vec<String> {
        let before = Looked {
            at: "2026-01-02T14:02:00Z".parse().unwrap(),
            position: 0,
            generation: 1,
        };
        let others = gathered(news, earlier, &before, generation, "claude");
        lines(others, before.at, &TimeZone::UTC)
            .into_iter()
            .map(|doings| doings.text.replace("2026-01-02 ", ""))
            .collect()
    }

    const HUMAN: &str = "human (VS Code)";

    #[test]
    fn what_others_did_is_told_in_a_line_each() {
        let mut named = entry("asked", "3", HUMAN);
        named.cell = Some("3f2c9a1e".to_owned());
        let news = [
            entry("asked", "1", HUMAN),
            done("1", HUMAN, "ok"),
            entry("asked", "2", HUMAN),
            done("2", HUMAN, "error"),
            named,
            // A proxy that is none of the asker's knows less of it.
            entry("seen", "3", "username"),
            done("3", HUMAN, "ok"),
            restarted(HUMAN),
            later(entry("asked", "4", "codex")),
        ];
        assert_eq!(
            tell(&news, &[], 2),
            [
                "since 14:02 · codex runs \"code 4\" since 14:06",
                "since 14:02 · human (VS Code) ran 3f2c ok, ran 2 more (1 failed), \
                 restarted the kernel 14:05: variables are gone",
            ]
        );
    }

    fn changed(event: &str, by: Option<&str>, changes: &str) -> Entry {
        let mut entry = entry(event, "", "");
        entry.by = by.map(str::to_owned);
        entry.generation = None;
        let steps = changes.split(' ').map(|change| {
            let (what, cell) = change.split_once(':').unwrap();
            serde_json::json!({"cell": cell, "what": what, "index": 0})
        });
        entry.other.insert("changes".to_owned(), steps.collect());
        for name in ["before", "after"] {
            entry.other.insert(name.to_owned(), "0123456789".into());
        }
        entry
    }

    #[test]
    fn what_was_done_to_cells_is_told_a_cell_once() {
        let news = [
            entry("asked", "1", HUMAN),
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
            tell(&news, &[], 1),
            [
                "since 14:02 · human (VS Code) ran \"code 1\" ok, edited 77de, 1, 2, 3 and 1 more, \
                 removed c, moved m, cleared o",
                "since 14:02 · codex inserted n",
            ]
        );
        let somebody = [changed("saved", None, "edited:x")];
        assert_eq!(tell(&somebody, &[], 1), ["since 14:02 · somebody edited x"]);
    }

    #[test]
    fn notebooks_that_share_a_kernel_do_not_share_their_cells() {
        let temp = tempfile::tempdir().unwrap();
        let project = Project::for_notebook(&temp.path().join("a.ipynb")).unwrap();
        let session = |owner: Option<&str>| serde_json::json!({"notebook": "x.ipynb", "connection_file": "x.json", "kernel_of": owner});
        let sessions =
            serde_json::json!({"a.ipynb": session(None), "b.ipynb": session(Some("a.ipynb"))});
        let state = serde_json::json!({"version": 1, "sessions": sessions});
        std::fs::write(project.state_file(), state.to_string()).unwrap();
        let mut journal = project.journal().unwrap();
        let mut write = |key: &str, mut entry: Entry| {
            entry.session = key.to_owned();
            entry.at = Timestamp::now();
            journal.append(&entry).unwrap();
        };
        let told = |key: &str| -> Vec<_> {
            let told = look(&project, key, "claude").into_iter();
            told.map(|told| told.text.split_once(" · ").unwrap().1.to_owned())
                .collect()
        };
        assert_eq!(
            (
                told("a.ipynb").len(),
                told("b.ipynb").len(),
                told("c.ipynb").len()
            ),
            (0, 0, 0)
        );
        write("a.ipynb", changed("edited", Some("ada"), "edited:a"));
        write("b.ipynb", changed("edited", Some("ada"), "edited:b"));
        write("c.ipynb", changed("edited", Some("ada"), "edited:c"));
        write("a.ipynb", entry("interrupted", "", "ada"));
        let b = told("b.ipynb");
        assert!(
            b[0].starts_with("ada edited b, interrupted the kernel "),
            "{b:?}"
        );
        // The kernel has been told; the cells of the other have not.
        assert_eq!(told("a.ipynb"), ["ada edited a"]);
        // One that has no kernel at all.
        assert_eq!(told("c.ipynb"), ["ada edited c"]);
        assert_eq!(told("c.ipynb"), [""; 0]);
    }

    #[test]
    fn ones_own_doings_and_those_of_front_ends_themselves_are_not_told() {
        let mut startup = entry("asked", "1", HUMAN);
        startup.store_history = false;
        let mut withdrawn = entry("interrupted", "", HUMAN);
        withdrawn.other.insert("withdrawn".to_owned(), 2.into());
        let news = [
            startup,
            done("1", HUMAN, "ok"),
            entry("asked", "2", HUMAN),
            done("2", HUMAN, "aborted"),
            entry("asked", "3", "claude"),
            entry("seen", "3", "username"),
            done("3", "claude", "ok"),
            withdrawn,
            restarted("claude"),
        ];
        assert_eq!(tell(&news, &[], 2), [""; 0]);
        assert_eq!(tell(&[], &[], 1), [""; 0]);
    }

    #[test]
    fn an_end_is_told_with_what_is_known_of_its_beginning() {
        let began = [entry("asked", "1", HUMAN)];
        let told = tell(&[done("1", HUMAN, "ok")], &began, 1);
        assert_eq!(told, ["since 14:02 · human (VS Code) ran \"code 1\" ok"]);
        let told = tell(&[done("9", HUMAN, "interrupted")], &[], 1);
        assert_eq!(
            told,
            ["since 14:02 · human (VS Code) ran a cell: it was interrupted"]
        );
        let mine = [entry("asked", "1", "claude")];
        assert_eq!(tell(&[done("1", "", "seen")], &mine, 1), [""; 0]);
        // Its observer was quicker than its asker, and this name looked in between.
        let ended = [entry("asked", "1", HUMAN), done("1", HUMAN, "seen")];
        assert_eq!(tell(&[done("1", HUMAN, "ok")], &ended, 1), [""; 0]);
    }

    #[test]
    fn a_kernel_that_died_or_was_replaced_is_told_whoever_did_it() {
        let mut died = entry("died", "", "");
        died.by = None;
        assert_eq!(
            tell(&[died.clone()], &[], 1),
            ["since 14:02 · the kernel died 14:05: variables are gone"]
        );
        let mut opened = restarted("claude");
        opened.event = "opened".to_owned();
        assert_eq!(tell(&[died, opened], &[], 2).len(), 1);
        let told = tell(&[], &[], 2);
        assert!(
            matches!(&told[..], [one] if one.contains("replaced") && one.ends_with(": variables are gone")),
            "{told:?}"
        );
    }

    #[test]
    fn a_cell_does_not_outlast_its_kernel() {
        let news = [entry("asked", "1", "codex"), restarted(HUMAN)];
        let told = tell(&news, &[], 2);
        assert!(
            told.iter()
                .any(|line| line.ends_with("codex ran \"code 1\"")),
            "{told:?}"
        );
    }

    #[test]
    fn there_are_three_lines_at_most() {
        let news = ["a", "b", "c", "d"].map(|name| entry("interrupted", "", name));
        let twice: Vec<_> = news.iter().chain(&news).cloned().collect();
        let told = tell(&twice, &[], 1);
        assert_eq!(told.len(), LINES);
        assert!(told[0].ends_with("interrupted the kernel 2 times, last 14:05"));
        assert!(told[2].ends_with("were here too"), "{told:?}");
    }

    #[test]
    fn each_name_is_told_once_and_nothing_at_first() {
        let temp = tempfile::tempdir().unwrap();
        let project = Project::for_notebook(&temp.path().join("a.ipynb")).unwrap();
        let mut journal = project.journal().unwrap();
        journal.append(&entry("asked", "1", "bob")).unwrap();
        let count = |name| look(&project, "a.ipynb", name).len();
        assert_eq!((count("claude"), count("codex")), (0, 0));
        assert_eq!(count("claude"), 0);
        // It began before, and ends now.
        journal.append(&done("1", "bob", "ok")).unwrap();
        let told = look(&project, "a.ipynb", "claude");
        assert!(told[0].text.ends_with("bob ran \"code 1\" ok"), "{told:?}");
        assert_eq!(count("claude"), 0);
        assert_eq!(count("codex"), 1);
        assert_eq!(look(&project, "b.ipynb", "codex").len(), 0);
        // What was damaged or cut short is begun anew.
        std::fs::write(project.dir().join("looked.json"), "{").unwrap();
        assert_eq!(count("codex"), 0);
        journal.append(&entry("interrupted", "", "bob")).unwrap();
        assert_eq!(count("codex"), 1);
        std::fs::write(project.journal_file(), "").unwrap();
        journal.append(&entry("interrupted", "", "bob")).unwrap();
        assert_eq!(count("codex"), 1);
    }
}
