//! Kernels as processes, and a client of theirs.
//!
//! | module | holds | imports |
//! |---|---|---|
//! | [`kernel`] | kernelspecs (`spec`), environments (`environment`), processes and their supervisor (`process`), sandbox and container (`confine`) | wire, hint, project |
//! | [`client`] | a kernel's client over the `zeromq` crate; one execute request as a pure state machine | wire |
//! | [`task`] | processes of our own that outlive whoever started them | project, kernel |
//!
//! A process that is recorded is known again by its start time, never by its number alone. What confines a kernel is in place
//! before its program runs, or the kernel does not start. Nothing here knows which notebook has which kernel.

pub mod client;
pub mod kernel;
pub mod task;

use nb_project::{hint, project};
use nb_wire::wire;
