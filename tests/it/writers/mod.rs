//! Writing a notebook that others write too: at the same moments, through crashes, and observed by
//! watchers.

#[cfg(target_os = "linux")]
mod faults;
#[cfg(target_os = "linux")]
mod replaced;
#[cfg(target_os = "linux")]
mod strace;
mod torture;
#[cfg(target_os = "linux")]
mod watched;

use std::path::Path;

use crate::world::World;

/// Returns a notebook with one cell for each writer and one that they share.
fn notebook(cells: &[(&str, &str)]) -> String {
    let cells = cells.iter().map(|(id, source)| {
        serde_json::json!({"cell_type": "raw", "id": id, "metadata": {}, "source": source})
    });
    let cells: Vec<_> = cells.collect();
    let whole = serde_json::json!({
        "cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5
    });
    serde_json::to_string_pretty(&whole).expect("it is JSON")
}

/// Returns the files that a save has left beside the notebook or in the project's folder.
fn left(project: &Path) -> Vec<String> {
    let names = |folder: &Path| -> Vec<String> {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        names.collect()
    };
    let beside = names(project);
    let beside = beside.into_iter().filter(|name| name.starts_with(".nb-"));
    beside
        .chain(names(&project.join(".nb/unfinished")))
        .collect()
}

/// Reads a notebook, and lets `nb` finish what was left.
fn look(world: &World) {
    crate::world::succeed(world.nb().args(["cells", "t.ipynb", "--as", "reader"]));
}
