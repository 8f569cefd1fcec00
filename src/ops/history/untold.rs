//! Edits that a save wiped out, until whoever made them has been told.

use std::io;

use super::recorded::Overwritten;
use crate::ops::company;
use crate::ops::page::Page;
use crate::project::{Project, save};

/// So many wait at most; the oldest are not told then, and are in the journal still.
const WAITING: usize = 1000;

/// Remembers edits to be told of, under the ledger's lock. Whoever saved knows it already.
pub(super) fn add(page: &Page, saver: Option<&str>, lost: Vec<Overwritten>) -> io::Result<()> {
    let is_saver = |name: &str| saver.is_some_and(|saver| company::is_same(saver, name));
    let lost: Vec<_> = lost.into_iter().filter(|one| !is_saver(&one.by)).collect();
    if lost.is_empty() {
        return Ok(());
    }
    let mut waiting = read(&page.project, &page.key);
    waiting.extend(lost);
    let too_many = waiting.len().saturating_sub(WAITING);
    waiting.drain(..too_many);
    write(&page.project, &page.key, &waiting)
}

/// Returns the edits of a name that saves of others wiped out, and remembers that it was told.
pub fn overwritten(project: &Project, key: &str, by: &str) -> Vec<Overwritten> {
    // Mostly there is nothing, and that is known without a lock.
    if !project.untold_file(key).exists() {
        return Vec::new();
    }
    let told = take(project, key, by);
    told.inspect_err(|error| tracing::warn!(%error, "overwritten edits cannot be told"))
        .unwrap_or_default()
}

fn take(project: &Project, key: &str, by: &str) -> io::Result<Vec<Overwritten>> {
    let _locked = project.ledger(key)?;
    let waiting = read(project, key).into_iter();
    let (own, others): (Vec<_>, Vec<_>) = waiting.partition(|lost| company::is_same(&lost.by, by));
    if own.is_empty() {
        return Ok(own);
    }
    if others.is_empty() {
        std::fs::remove_file(project.untold_file(key))?;
    } else {
        write(project, key, &others)?;
    }
    Ok(own)
}

fn read(project: &Project, key: &str) -> Vec<Overwritten> {
    let bytes = std::fs::read(project.untold_file(key)).ok();
    let read = bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok());
    read.unwrap_or_default()
}

fn write(project: &Project, key: &str, waiting: &[Overwritten]) -> io::Result<()> {
    save::replace_unsynced(&project.untold_file(key), &serde_json::to_vec(waiting)?)
}
