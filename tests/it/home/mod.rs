//! The proxy behind a front end's notebooks: the right kernel, restarts, deaths, leaving.

mod batch;
mod naming;
mod restarts;
mod revival;
mod waiting;

const SHARED: &str = "nb-shared";
