//! Jobs: the events while they are followed, and their results.

mod answer;
mod collected;
mod description;
mod follow;
mod observer;
mod options;
mod until;

pub use self::answer::{
    BegunJob, BlockingJob, CellResult, FollowedState, JobAnswer, JobResults, JobVerdict, RunAnswer,
    RunResult, UntilAnswer,
};
pub use self::description::{describe, describe_code, describe_wait};
pub(super) use self::follow::{follow_job, job_timeout};
pub use self::observer::{
    CellEvent, JobEnd, JobEvent, JobObserver, OutputEvent, PromptAnswer, StateEvent, Unobserved,
};
pub use self::options::{FollowOptions, OutputsAs};
