//! Jupyter's messages on ZMTP: parsed, verified, re-signed, routed, and moved over sockets.
//!
//! | module | holds | imports |
//! |---|---|---|
//! | [`wire`] | Jupyter messages as bytes: frames, signing keys, lazily read headers, connection files. Pure | – |
//! | [`zmtp`] | the ZMTP 3.x state machine and its limits. Pure | – |
//! | [`route`] | who gets what: clients, outstanding requests, the execution queue, synthetic messages. Pure, with its own clock | wire |
//! | [`socket`] | ZMTP over TCP and Unix sockets: bind, connect, outboxes | wire, zmtp |
//!
//! Pure modules do no I/O and never read the clock: their callers pass bytes and times, and carry out the actions that
//! they return. No message is dropped without a report of it, and each queue has a limit. Nothing here knows of kernels'
//! processes, of notebooks' files or of `nb`'s own folder.

pub mod route;
pub mod socket;
pub mod wire;
pub mod zmtp;
