//! Manners towards an open editor: when not to write a notebook.
//!
//! A write while a front end runs a cell meets an editor that the cell's outputs make dirty: VS
//! Code then neither takes the change nor saves over it, and its tab stands in conflict until the
//! person decides. So writes wait for the end of a front end's own cell.

use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime};

use jiff::Timestamp;

use super::company::whose;
use super::page::Page;
use super::status;
use crate::project::Status;
use crate::project::joined::Joined;
use crate::project::journal::Entry;
use crate::project::past::Cell;

/// How long a write waits at most.
const WAIT: Duration = Duration::from_secs(60);

/// How long after a cell's end VS Code may take to save by itself: its `files.autoSaveDelay` is a
/// second.
const AUTO_SAVE: Duration = Duration::from_secs(2);

/// How often is looked whether the cell has ended.
const LOOK: Duration = Duration::from_millis(100);

/// Waits while a front end's own cell runs in this notebook, and until VS Code had time to save
/// its outputs; returns how long that was. `tell` is told once what is waited for.
///
/// Nothing is waited for where no front end is joined to the notebook, or with `now`.
pub fn wait_for_front_end(page: &Page, now: bool, tell: &dyn Fn(&str)) -> Duration {
    let begun = Instant::now();
    let mut told = false;
    while !now && let Some(held) = held(page) {
        let what = match &held {
            Held::By(cell) => format!("{} to end", whose(cell)),
            Held::MaySave => "VS Code to save".to_owned(),
        };
        if begun.elapsed() >= WAIT {
            let whole = WAIT.as_secs();
            tell(&format!("not waiting any longer than {whole} s for {what}"));
            break;
        }
        if !told && matches!(held, Held::By(_)) {
            let whole = WAIT.as_secs();
            tell(&format!(
                "waiting for {what} before writing, {whole} s at most (--now does not)"
            ));
            told = true;
        }
        sleep(LOOK);
    }
    begun.elapsed()
}

/// Why a notebook is not written just now.
enum Held {
    /// A front end's cell runs.
    By(Cell),
    /// One has just ended, and VS Code may be about to save.
    MaySave,
}

fn held(page: &Page) -> Option<Held> {
    let joined = joined(page);
    // Costs a listing of a folder; whoever works alone reads no journal for it.
    if joined.is_empty() {
        return None;
    }
    let state = page.project.state().ok()?;
    let owner = state.owner_key(&page.key);
    let session = state.session(&owner)?;
    if session.status != Status::Live {
        return None;
    }
    let running = page.project.present(&owner, session.generation).running;
    if let Some(cell) = running.filter(|cell| is_of(&joined, cell.by.as_deref(), cell.since)) {
        return Some(Held::By(cell));
    }
    let now = Timestamp::now();
    let past = page.project.past(&owner).map(|placed| placed.entry);
    let mut lately = past.take_while(|entry| age(entry.at, now) < AUTO_SAVE);
    let ended = lately.find(|entry| entry.event == "done" && entry.store_history)?;
    (may_save(&joined, &ended) && !saved_since(page, ended.at)).then_some(Held::MaySave)
}

/// The front ends that have this notebook open.
pub(super) fn joined(page: &Page) -> Vec<Joined> {
    let of_this = |joined: &Joined| joined.session.as_ref() == Some(&page.key);
    let mut joined = status::joined(&page.project);
    joined.retain(of_this);
    joined
}

/// Whether one of them asked for it. What an earlier front end of the same name asked for ended
/// with it, or was handed on: nobody waits for the dead.
fn is_of(joined: &[Joined], by: Option<&str>, since: Timestamp) -> bool {
    joined
        .iter()
        .any(|joined| by == Some(&joined.by()) && joined.since <= since)
}

fn may_save(joined: &[Joined], ended: &Entry) -> bool {
    let mut vs_code = joined.iter().filter(|joined| is_vs_code(joined));
    vs_code.any(|joined| ended.by == Some(joined.by()))
}

/// Whether this front end is VS Code, or made of it.
pub(super) fn is_vs_code(joined: &Joined) -> bool {
    joined.front_end == "VS Code"
}

/// Whether the file was saved after a moment.
fn saved_since(page: &Page, moment: Timestamp) -> bool {
    let modified = std::fs::metadata(&page.real).and_then(|found| found.modified());
    modified.is_ok_and(|modified| modified > SystemTime::from(moment))
}

fn age(at: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(now.duration_since(at)).unwrap_or_default()
}
