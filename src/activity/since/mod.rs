//! What others did on a kernel, and with a notebook's cells, since somebody last looked.
//!
//! For each name and each kernel `.nb/looked.json` remembers how far in the journal that name has
//! been told, and which of the session's kernels it knew; and for each notebook the same of its
//! cells. Notebooks that share a kernel share what happens on it, not their cells. What one did
//! oneself is never told.

mod gathered;

use std::collections::BTreeMap;
use std::io;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use self::gathered::{endings, gathered, lines};
use crate::activity::zone;
use crate::project::event::{Event, Events, Position};
use crate::project::{Lock, Project, beneath};

pub(crate) use self::gathered::clock;

/// How much of the journal is read at most. Whoever looks after weeks gets the end of it.
const NEWS: u64 = 2 << 20;

/// How many events before the news are searched for the beginnings of cells that have ended meanwhile.
const BEGINNINGS: usize = 1000;

/// Two looks within this time are one to whoever is told: commands come in rows, and most of them need
/// not write what they remember.
const SAME_MOMENT: SignedDuration = SignedDuration::from_secs(30);

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
    position: Position,
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

/// Returns when a name looked last at what others did there; none where it never
/// did, or that is forgotten.
pub fn looked_last(project: &Project, key: &str, name: &str) -> Option<Timestamp> {
    let owner = project.state().ok()?.owner_key(key);
    let bytes = beneath::read(&project.dir().join("looked.json"), beneath::SMALL).ok()?;
    let memory: Memory = serde_json::from_slice(&bytes).ok()?;
    let of_name = memory.get(name)?;
    let looked = of_name.get(&owner).or_else(|| of_name.get(&cells(key)));
    Some(looked?.at)
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
    let mut memory: Memory = beneath::read(&file, beneath::SMALL)
        .ok()
        .and_then(|bytes| serde_json::from_slice(&bytes).ok())
        .unwrap_or_default();
    let past = project.events_of(&[&owner, key]).within(NEWS);
    let looked = Looked {
        at: Timestamp::now(),
        position: past.end(),
        generation,
    };
    let of_name = memory.entry(name.to_owned()).or_default();
    if [&cells(key), &owner]
        .iter()
        .all(|its| of_name.get(*its).is_some_and(|it| it.is_just(&looked)))
    {
        return Ok(Vec::new());
    }
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
    beneath::replace_unsynced(&file, &serde_json::to_vec(&memory)?)?;
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
        return Ok(Vec::new());
    }
    Ok(lines(others, at, &zone::here()))
}

impl Looked {
    /// Whether nothing has happened since, and nothing needs to be remembered anew.
    fn is_just(&self, now: &Self) -> bool {
        let age = now.at.duration_since(self.at);
        (self.position, self.generation) == (now.position, now.generation)
            && !age.is_negative()
            && age < SAME_MOMENT
    }
}

/// Returns under what a notebook's cells are known in [`Memory`]: no session has such a key.
fn cells(key: &str) -> String {
    format!("cells of {key}")
}

/// Returns where in the journal the news begins for whoever was told up to `position`.
fn place(past: &Events, position: Position) -> Position {
    // A journal that is shorter than it was is another one.
    match position > past.end() {
        true => Position::default(),
        false => position,
    }
}

/// How far one has been told of a kernel and of a notebook's cells.
struct Told<'a> {
    owner: &'a str,
    key: &'a str,
    kernel: Position,
    cells: Position,
}

impl Told<'_> {
    /// Returns the entries that are new, oldest first, and those before them that tell how what has
    /// ended in them began.
    fn news(&self, mut past: Events) -> (Vec<Event>, Vec<Event>) {
        let mut news: Vec<Event> = Vec::new();
        let mut earlier = Vec::new();
        let mut open: Option<Vec<String>> = None;
        let mut before = 0;
        while let Some(event) = past.next() {
            let at = past.position();
            let of_cells = event.change().is_some();
            let (session, place) = match of_cells {
                true => (self.key, self.cells),
                false => (self.owner, self.kernel),
            };
            if at >= place && event.session == session {
                news.push(event);
                continue;
            }
            if at >= self.kernel {
                continue;
            }
            // `done` events whose `asked` event is older than the cursor.
            let open = open.get_or_insert_with(|| endings(&news));
            before += 1;
            if open.is_empty() || before > BEGINNINGS {
                if at < self.cells {
                    break;
                }
                continue;
            }
            if of_cells || event.session != session {
                continue;
            }
            if event.msg_id().is_none() {
                continue;
            }
            // The sender knows more of it than an observer.
            if let Some(start) = event.asked() {
                open.retain(|waiting| *waiting != start.msg_id);
            }
            earlier.push(event);
        }
        news.reverse();
        (news, earlier)
    }
}

#[cfg(test)]
mod tests {
    use super::gathered::tests::{changed, done, entry};
    use super::*;
    use crate::project::{Backend, Session, Status};

    #[test]
    fn notebooks_that_share_a_kernel_do_not_share_their_cells() {
        let temp = tempfile::tempdir().unwrap();
        let project = Project::for_notebook(&temp.path().join("a.ipynb")).unwrap();
        let owner = Session::local(project.notebook("a.ipynb"));
        let sharer = Session {
            backend: Backend::shared_with("a.ipynb"),
            status: Status::Live,
            ..Session::local(project.notebook("b.ipynb"))
        };
        let sessions = [("a.ipynb", owner), ("b.ipynb", sharer)];
        let sessions = sessions.map(|(key, session)| (key.to_owned(), session));
        project
            .update(|state| state.sessions.extend(sessions))
            .unwrap();
        let mut journal = project.journal().unwrap();
        let mut write = |key: &str, mut entry: Event| {
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
