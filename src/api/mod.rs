//! The use cases, one async function a command: what every adapter calls.
//!
//! A function takes the [`Caller`](caller::Caller) and a request, and returns an answer or a
//! [`Problem`](problem::Problem). It prints nothing. What may wait for a disk or a lock runs on tokio's
//! threads for such work. A function may be dropped before it ends: work on files that has begun is done
//! to its end, as of one who has left. An answer in its [`Envelope`](envelope::Envelope) is the JSON that
//! `--json` prints.

pub mod caller;
mod doctor;
pub mod envelope;
pub mod log;
pub mod problem;
pub mod time;

pub use self::doctor::{DoctorAnswer, DoctorRequest, doctor};
