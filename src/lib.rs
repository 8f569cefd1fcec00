//! One live Jupyter kernel and one notebook, for people and AI agents at once.
//!
//! The map, lowest first. A module imports only from those its row names; `tests/it/layers.rs`
//! keeps that true.
//!
//! | module | holds | imports |
//! |---|---|---|
//! | [`wire`] | Jupyter messages as bytes: frames, signing keys, lazily read headers, connection files. Pure | – |
//! | [`zmtp`] | the ZMTP 3.x state machine and its limits. Pure | – |
//! | [`notebook`] | `.ipynb` files as data: a lossless document, edits, three-way merge, differences, folding of outputs. Pure | – |
//! | [`project`] | `.nb/`: its root, `state.json`, locks, the journal, versions of cells, jobs, who is joined, the user's settings | – |
//! | [`route`] | who gets what: clients, outstanding requests, turns, synthetic replies. Pure, with its own clock | wire |
//! | [`socket`] | ZMTP over TCP and Unix sockets: bind, connect, outboxes | wire, zmtp |
//! | [`kernel`] | kernelspecs, environments, launch, the keeper, process identity, signals, the sandbox | wire, project |
//! | [`client`] | a kernel's client over the `zeromq` crate; one execute request as a pure state machine | wire |
//! | [`ops`] | the use cases, each once: open, share, serve, status, restart, who may end what; read, edit, undo a notebook; run, record, follow | wire, notebook, project, kernel, client |
//! | [`proxy`] | the I/O shell round `route` | wire, route, socket, kernel, project, ops |
//! | [`cmd`] | the `nb` command line, one file a command; printing lives only here | ops, and types of wire, notebook, kernel, project |
//!
//! Adapters (`proxy`, `cmd`) never import each other.

pub mod client;
pub mod cmd;
pub mod kernel;
pub mod notebook;
pub mod ops;
pub mod project;
pub mod proxy;
pub mod route;
pub mod socket;
pub mod wire;
pub mod zmtp;
