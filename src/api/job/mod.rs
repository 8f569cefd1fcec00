//! Jobs: the events while they are followed, and their results.

mod answer;
mod collected;
mod follow;
mod observer;
mod options;
mod until;
mod words;

pub use self::answer::{
    BegunJob, BlockingJob, CellResult, FollowedState, HeardSummary, JobAnswer, JobResults,
    JobVerdict, RunAnswer, RunResult, UntilAnswer,
};
pub(super) use self::follow::{follow_job, patience};
pub use self::observer::{
    CellEvent, JobEnd, JobEvent, JobObserver, OutputEvent, PromptAnswer, StateEvent, Unobserved,
};
pub use self::options::{FollowOptions, OutputsAs};
pub use self::words::{describe, describe_code, describe_wait};
