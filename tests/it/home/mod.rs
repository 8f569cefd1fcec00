//! The proxy as the home of a front end's notebooks: the right kernel, restarts, deaths, goodbyes.

mod naming;
mod restarts;
mod revival;

const SHARED: &str = "nb-shared";
