//! What has been told once of a notebook's editors, and is not told again.

use std::collections::BTreeMap;

use super::super::notebook_file::NotebookFile;
use super::super::write_policy;
use crate::project::beneath;

/// Says whether `name` has not been told yet of the VS Codes that have the notebook open now, and
/// remembers that it has been. What cannot be remembered is told again.
pub(super) fn is_news(page: &NotebookFile, name: &str) -> bool {
    let joined = write_policy::joined(page);
    let editors: Vec<String> = joined
        .iter()
        .filter(|joined| write_policy::is_vs_code(joined))
        .map(|joined| format!("{} {}", joined.pid, joined.start_time))
        .collect();
    let file = page.project.dir().join("told.json");
    let mut told: BTreeMap<String, BTreeMap<String, Vec<String>>> =
        beneath::read(&file, beneath::SMALL)
            .ok()
            .and_then(|bytes| serde_json::from_slice(&bytes).ok())
            .unwrap_or_default();
    let of_name = told.entry(page.key.clone()).or_default();
    if of_name.get(name) == Some(&editors) {
        return false;
    }
    of_name.insert(name.to_owned(), editors);
    let written = serde_json::to_vec(&told).map(|text| beneath::replace_unsynced(&file, &text));
    if let Err(error) = written.map_err(Into::into).flatten() {
        tracing::warn!(%error, "cannot remember what was told");
    }
    true
}
