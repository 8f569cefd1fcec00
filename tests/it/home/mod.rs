//! The proxy as the home of a front end's notebooks: the right kernel, restarts, deaths, goodbyes.

mod batch;
mod naming;
mod restarts;
mod revival;

const SHARED: &str = "nb-shared";
