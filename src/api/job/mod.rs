//! Jobs: what is told while they are followed, and what came of them.

mod answer;
mod collected;
mod follow;
mod observer;
mod options;
mod until;
mod words;

pub use self::answer::{
    BegunJob, CellResult, FollowedState, HeardSummary, JobAnswer, JobResults, JobVerdict, LeftOut,
    RunAnswer, RunResult, UntilAnswer,
};
pub(super) use self::follow::{follow_job, patience};
pub use self::observer::{
    CellEvent, JobEnd, JobEvent, JobObserver, OutputEvent, StateEvent, Unobserved,
};
pub use self::options::{FollowOptions, OutputsAs};
pub use self::words::{describe, describe_code, describe_wait};
