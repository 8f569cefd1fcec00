//! Which of `nb`'s edits a save of somebody else's has wiped out.
//!
//! An editor that has a notebook open writes what it holds: the file as it was when it was read,
//! with what its user did since. So a save that knows nothing of an edit takes it back.

use std::collections::HashMap;

use super::known::Watched;
use super::recorded::Overwritten;
use super::steps::Manifest;
use crate::notebook::{Change, Revision};

/// Judges what a save that led from `before` to `after` has left of the watched edits, and returns
/// those that it wiped out; these, and those that are over, are watched no more.
pub(super) fn judge(
    watched: &mut Vec<Watched>,
    before: &Manifest,
    after: &Manifest,
    _text: &dyn Fn(Revision) -> Option<String>,
) -> Vec<Overwritten> {
    let of = |cells: &Manifest| -> HashMap<String, Revision> { cells.iter().cloned().collect() };
    let (old, new) = (of(before), of(after));
    let mut earlier: HashMap<String, Vec<Revision>> = HashMap::new();
    let mut lost = Vec::new();
    watched.retain(|edit| {
        let (then, now) = (old.get(&edit.cell), new.get(&edit.cell));
        let chain = earlier.entry(edit.cell.clone()).or_default();
        chain.extend(edit.before);
        let gone = match edit.what {
            Change::Inserted => then.is_some() && now.is_none(),
            Change::Removed => then.is_none() && now.is_some(),
            _ => then.is_some() && then != now && now.is_some_and(|now| chain.contains(now)),
        };
        if gone {
            lost.push(Overwritten {
                cell: edit.cell.clone(),
                op: edit.op.clone(),
                by: edit.by.clone(),
                what: edit.what,
                revision: edit.after.or(now.copied()),
                at: edit.at,
            });
        }
        !gone
    });
    lost
}
