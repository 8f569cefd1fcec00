//! The folder `.nb` of a project, and the hints that name commands of `nb`.
//!
//! | module | holds | imports |
//! |---|---|---|
//! | [`hint`](mod@hint) | what a user can do next: sentences in which commands of `nb` are values. Pure | – |
//! | [`project`] | `.nb/`: its root, `state.json`, locks, the journal of typed events, versions of cells, jobs, who is joined, what editors have unsaved, the user's settings | wire, notebook |
//!
//! Whole files are replaced atomically, appended records are written whole under a lock, and no link inside the folder is
//! followed. What this version does not know is kept. Nothing here starts a process or knows whether one lives.

pub mod hint;
pub mod project;

use nb_notebook::notebook;
use nb_wire::wire;
