//! Notifications: what others did on a kernel and with a notebook's cells since an actor was last
//! notified, and which of the actor's own edits others' saves wiped out.
//!
//! They are read from the journal, from the actor's cursor on (`delivered`). **A cursor moves after the
//! printing** ([`Notifications::delivered`]), so that a command that is killed earlier loses none.
//! Notebooks that share a kernel share its events, but not those of their cells. An actor's own events
//! are not notifications.

mod delivered;
mod entries;
mod overwritten;

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

use self::delivered::{Cursor, DeliveredNotifications, cells_of};
use self::entries::{endings, lines, summaries};
use crate::activity::actor::Actor;
use crate::activity::zone;
use crate::project::event::{Event, EventKind, Events, OverwrittenEdit, Position, actor_id};
use crate::project::{Project, State};

pub use self::delivered::{PendingNotices, is_new, noticed};
pub use self::entries::ActivityEntry;
pub use self::overwritten::words as overwritten_words;

/// How many bytes of the journal are read at most. After a long time an actor gets only the last
/// events.
const JOURNAL_LIMIT: u64 = 2 << 20;

/// How many events before the cursor are searched for the beginnings of executions that have ended
/// since.
const BEGINNINGS: usize = 1000;

/// Commands within this time count as one: most commands of a series need not write a cursor.
const SAME_SERIES: SignedDuration = SignedDuration::from_secs(30);

/// What is new to a name on one notebook and its kernel.
#[derive(Clone, Debug, Default, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Notifications {
    /// What others did.
    pub since: Vec<ActivityEntry>,
    /// Edits of the name that others' saves wiped out.
    pub overwritten: Vec<OverwrittenEdit>,
    /// The cursors of the kernel and of the notebook's cells, as they are after delivery.
    #[serde(skip)]
    cursors: Option<(Cursor, [String; 2])>,
}

impl Notifications {
    /// Returns the notifications of an actor about a notebook. On its first visit an actor gets
    /// nothing about others.
    ///
    /// Events that cannot be read are left out: no command fails because of them.
    pub fn of(project: &Project, state: &State, key: &str, name: &str) -> Self {
        let owner = state.owner_key(key);
        let session = state.session(&owner);
        let events = project.events_of(&[&owner, key]).within(JOURNAL_LIMIT);
        let now = Cursor {
            at: Timestamp::now(),
            position: events.end(),
            generation: session.map_or(0, |session| session.generation),
        };
        let delivered = DeliveredNotifications::read(project, name);
        let keys = [owner.clone(), cells_of(key)];
        let cursors = keys.each_ref().map(|key| delivered.cursors.get(key));
        if cursors
            .iter()
            .all(|it| it.is_some_and(|it| it.is_just(&now)))
        {
            return Self::default();
        }
        let [kernel, cells] = cursors;
        let start = |cursor: Option<&Cursor>| match cursor {
            // If the journal is shorter than it was, it is a new one.
            Some(cursor) if cursor.position > now.position => Position::default(),
            Some(cursor) => cursor.position,
            None => now.position,
        };
        let unread = Unread {
            owner: &owner,
            key,
            name,
            kernel: start(kernel),
            cells: start(cells),
            // Even on its first visit an actor is notified that its edits were wiped out.
            overwritten: cells.map_or_else(Position::default, |cells| start(Some(cells))),
        };
        let part = unread.read(events);
        let at = cursors.into_iter().flatten().map(|cursor| cursor.at).min();
        let since = at.map_or_else(Vec::new, |at| {
            let generation = kernel.unwrap_or(&now).generation;
            let others = summaries(
                &part.new_events,
                &part.earlier,
                generation,
                now.generation,
                name,
            );
            match others.is_empty() {
                true => Vec::new(),
                false => lines(others, at, &zone::here()),
            }
        });
        Self {
            since,
            overwritten: part.overwritten,
            cursors: Some((now, keys)),
        }
    }

    /// Moves the cursors once everything is printed. If that fails, it is printed again.
    pub fn delivered(&self, project: &Project, name: &str) {
        let Some((cursor, keys)) = &self.cursors else {
            return;
        };
        let end = project.events_of(&[]).end();
        let result = DeliveredNotifications::update(project, name, |delivered| {
            for key in keys {
                delivered.advance(key, cursor, end);
            }
        });
        let _ = result.inspect_err(|error| tracing::warn!(%error, "the cursors of notifications cannot be stored: they will be printed again"));
    }
}

/// Returns when an actor was last notified of what others did on a notebook; `None` if it never was, or
/// the cursor was removed.
pub fn last_notified(project: &Project, key: &str, name: &str) -> Option<Timestamp> {
    let owner = project.state().ok()?.owner_key(key);
    let cursors = DeliveredNotifications::read(project, name).cursors;
    let cursor = cursors.get(&owner).or_else(|| cursors.get(&cells_of(key)));
    Some(cursor?.at)
}

impl Cursor {
    /// Returns whether nothing has happened since and the stored cursor is recent enough.
    fn is_just(&self, now: &Self) -> bool {
        let age = now.at.duration_since(self.at);
        (self.position, self.generation) == (now.position, now.generation)
            && !age.is_negative()
            && age < SAME_SERIES
    }
}

/// The positions of the first new events of a kernel and of a notebook's cells.
struct Unread<'a> {
    owner: &'a str,
    key: &'a str,
    name: &'a str,
    kernel: Position,
    cells: Position,
    overwritten: Position,
}

/// The part of the journal that a notification needs.
#[derive(Default)]
struct JournalPart {
    /// The new events, oldest first.
    new_events: Vec<Event>,
    /// Earlier events with the beginnings of executions that end in the new ones.
    earlier: Vec<Event>,
    overwritten: Vec<OverwrittenEdit>,
}

impl Unread<'_> {
    fn read(&self, mut events: Events) -> JournalPart {
        let mut part = JournalPart::default();
        let mut open: Option<Vec<String>> = None;
        let mut older_events = 0;
        while let Some(event) = events.next() {
            let at = events.position();
            let of_cells = event.change().is_some();
            if of_cells && at >= self.overwritten && event.session == self.key {
                self.take_overwritten(&event, &mut part.overwritten);
            }
            let (session, start) = match of_cells {
                true => (self.key, self.cells),
                false => (self.owner, self.kernel),
            };
            if at >= start && event.session == session {
                part.new_events.push(event);
                continue;
            }
            if at >= self.kernel {
                continue;
            }
            // `done` events whose `requested` event is older than the cursor.
            let open = open.get_or_insert_with(|| endings(&part.new_events));
            older_events += 1;
            if open.is_empty() || older_events > BEGINNINGS {
                if at < self.cells.min(self.overwritten) {
                    break;
                }
                continue;
            }
            if of_cells || event.session != session || event.msg_id().is_none() {
                continue;
            }
            // The sender's event has more details than an observer's.
            if let Some(start) = event.request() {
                open.retain(|waiting| *waiting != start.msg_id);
            }
            part.earlier.push(event);
        }
        part.new_events.reverse();
        part.overwritten.reverse();
        part
    }

    /// Adds the actor's edits that a save wiped out, last one first. The actor's own saves are left out.
    fn take_overwritten(&self, event: &Event, overwritten: &mut Vec<OverwrittenEdit>) {
        let EventKind::Saved(change) = &event.kind else {
            return;
        };
        let own = Actor::from(self.name);
        let is_own = |id: String| own.has_done(&id.as_str().into());
        if event.actor().is_some_and(is_own) {
            return;
        }
        let edits = change.overwritten.iter().rev();
        for edit in edits.filter(|edit| is_own(actor_id(&edit.by, edit.by_session.as_deref()))) {
            if !overwritten.contains(edit) {
                overwritten.push(edit.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::entries::tests::{changed, done, entry};
    use super::*;
    use crate::project::{Backend, Session};

    /// Notifies an actor of what others did, and moves its cursors.
    fn notifications(project: &Project, key: &str, name: &str) -> Vec<ActivityEntry> {
        let notifications = Notifications::of(project, &project.state().unwrap(), key, name);
        notifications.delivered(project, name);
        notifications.since
    }

    #[test]
    fn what_was_not_printed_is_told_again() {
        let temp = tempfile::tempdir().unwrap();
        let project = Project::for_notebook(&temp.path().join("a.ipynb")).unwrap();
        assert_eq!(notifications(&project, "a.ipynb", "claude"), []);
        project.record(&[entry("interrupted", "", "bob")]);
        // A command is killed before it prints anything.
        let killed = Notifications::of(&project, &project.state().unwrap(), "a.ipynb", "claude");
        assert_eq!(killed.since.len(), 1);
        assert_eq!(notifications(&project, "a.ipynb", "claude").len(), 1);
        assert_eq!(notifications(&project, "a.ipynb", "claude"), []);
        // Its late delivery hides no events since then.
        project.record(&[entry("interrupted", "", "bob")]);
        assert_eq!(notifications(&project, "a.ipynb", "claude").len(), 1);
        killed.delivered(&project, "claude");
        assert_eq!(notifications(&project, "a.ipynb", "claude"), []);
    }

    #[test]
    fn notebooks_that_share_a_kernel_do_not_share_their_cells() {
        let temp = tempfile::tempdir().unwrap();
        let project = Project::for_notebook(&temp.path().join("a.ipynb")).unwrap();
        let mut sharing = Session::local(project.notebook("b.ipynb"));
        sharing.backend = Backend::shared_with("a.ipynb");
        let add = |state: &mut State| {
            let own = Session::local(project.notebook("a.ipynb"));
            state.sessions.insert("a.ipynb".to_owned(), own);
            state.sessions.insert("b.ipynb".to_owned(), sharing);
        };
        project.update(add).unwrap();
        let mut journal = project.journal().unwrap();
        let mut write = |key: &str, mut entry: Event| {
            entry.session = key.to_owned();
            entry.at = Timestamp::now();
            journal.append(&entry).unwrap();
        };
        let notifications = |key: &str| -> Vec<_> {
            let notifications = notifications(&project, key, "claude").into_iter();
            notifications
                .map(|notifications| notifications.text.split_once(" · ").unwrap().1.to_owned())
                .collect()
        };
        assert_eq!(
            (
                notifications("a.ipynb").len(),
                notifications("b.ipynb").len(),
                notifications("c.ipynb").len()
            ),
            (0, 0, 0)
        );
        write("a.ipynb", changed("edited", Some("ada"), "edited:a"));
        write("b.ipynb", changed("edited", Some("ada"), "edited:b"));
        write("c.ipynb", changed("edited", Some("ada"), "edited:c"));
        write("a.ipynb", entry("interrupted", "", "ada"));
        let b = notifications("b.ipynb");
        assert!(
            b[0].starts_with("ada edited b, interrupted the kernel "),
            "{b:?}"
        );
        // The kernel's events were delivered; those of the other notebook's cells were not.
        assert_eq!(notifications("a.ipynb"), ["ada edited a"]);
        // A notebook without a kernel.
        assert_eq!(notifications("c.ipynb"), ["ada edited c"]);
        assert_eq!(notifications("c.ipynb"), [""; 0]);
    }

    #[test]
    fn each_name_is_told_once_and_nothing_at_first() {
        let temp = tempfile::tempdir().unwrap();
        let project = Project::for_notebook(&temp.path().join("a.ipynb")).unwrap();
        let mut journal = project.journal().unwrap();
        journal.append(&entry("requested", "1", "bob")).unwrap();
        let count = |name| notifications(&project, "a.ipynb", name).len();
        assert_eq!((count("claude"), count("codex")), (0, 0));
        assert_eq!(count("claude"), 0);
        // An execution that began before and ends now.
        journal.append(&done("1", "bob", "ok")).unwrap();
        let new = notifications(&project, "a.ipynb", "claude");
        assert!(new[0].text.ends_with("bob ran \"code 1\" ok"), "{new:?}");
        assert_eq!(count("claude"), 0);
        assert_eq!(count("codex"), 1);
        assert_eq!(notifications(&project, "b.ipynb", "codex").len(), 0);
        // A damaged or truncated file is replaced.
        std::fs::write(project.name_file("codex"), "{").unwrap();
        assert_eq!(count("codex"), 0);
        journal.append(&entry("interrupted", "", "bob")).unwrap();
        assert_eq!(count("codex"), 1);
        std::fs::write(project.journal_file(), "").unwrap();
        journal.append(&entry("interrupted", "", "bob")).unwrap();
        assert_eq!(count("codex"), 1);
    }
}
