//! The rules of the queue in which jobs wait for a kernel. Pure: a recorder asks them with the records that it has read.
//!
//! A job runs only on the kernel for which it was requested. An actor's jobs run in the order in which they were
//! requested.

use std::borrow::Borrow;

use crate::project::jobs::{Job, JobState};
use crate::project::{Session, Status};

/// What the recorder of a job does next that has not sent a cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NextStep<T> {
    /// It waits until this earlier job of the same actor has begun.
    WaitFor(T),
    /// It sends the first cell as soon as the kernel is idle.
    Send,
    /// It ends the job without a run: the kernel for which the job was requested has ended.
    End,
}

/// Returns what the recorder of a job does next. `session` is the record of the job's session, and `open` are the jobs
/// that are not over, of all actors and sessions.
pub fn next_step<J: Borrow<Job>, T>(
    job: &Job,
    session: &Session,
    open: impl IntoIterator<Item = (J, T)>,
) -> NextStep<(J, T)> {
    if !has_kernel(session, job.for_generation) {
        return NextStep::End;
    }
    let actor = job.actor();
    let order = |one: &Job, other: &Job| (one.asked_at, &one.id).cmp(&(other.asked_at, &other.id));
    let earlier = open.into_iter().filter(|(other, _)| {
        let other: &Job = other.borrow();
        other.id != job.id
            && other.state == JobState::Queued
            && other.session == job.session
            && other.actor() == actor
            && order(other, job).is_lt()
    });
    match earlier.min_by(|(one, _), (other, _)| order(one.borrow(), other.borrow())) {
        Some(earlier) => NextStep::WaitFor(earlier),
        None => NextStep::Send,
    }
}

/// Returns whether a session still has the kernel for which something was requested, or this kernel is being started.
/// Without a generation each kernel will do.
pub fn has_kernel(session: &Session, generation: Option<u64>) -> bool {
    !matches!(session.status, Status::Stopped | Status::Died)
        && generation.is_none_or(|generation| generation == session.generation_to_use())
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    fn job(id: &str, by: &str, second: i64) -> Job {
        Job {
            id: id.to_owned(),
            by: by.to_owned(),
            session: "a.ipynb".to_owned(),
            asked_at: Timestamp::from_second(second).unwrap(),
            for_generation: Some(1),
            ..Job::default()
        }
    }

    fn session(status: Status, generation: u64) -> Session {
        let mut session = Session::local("/p/a.ipynb".into());
        session.set_process(1, 1, None);
        session.status = status;
        session.generation = generation;
        session
    }

    #[test]
    fn an_actors_jobs_run_in_order_and_others_do_not_wait_for_them() {
        let live = session(Status::Live, 1);
        let jobs = [
            job("a", "ada", 1),
            job("b", "ada", 2),
            job("c", "ada", 2),
            job("d", "bob", 3),
        ];
        let step = |at: usize, live: &Session| {
            let open = jobs.iter().cloned().map(|job| (job, ()));
            match next_step(&jobs[at], live, open) {
                NextStep::WaitFor((earlier, ())) => NextStep::WaitFor(earlier.id),
                NextStep::Send => NextStep::Send,
                NextStep::End => NextStep::End,
            }
        };
        assert_eq!(step(0, &live), NextStep::Send);
        for at in [1, 2] {
            assert_eq!(step(at, &live), NextStep::WaitFor("a".to_owned()));
        }
        assert_eq!(step(3, &live), NextStep::Send);
    }

    #[test]
    fn no_job_runs_on_a_kernel_that_came_after_its_own() {
        for (status, generation, goes_on) in [
            (Status::Live, 1, true),
            (Status::Restarting, 1, false),
            (Status::Live, 2, false),
            (Status::Died, 1, false),
            (Status::Stopped, 1, false),
            // Another process was the kernel before.
            (Status::Starting, 1, false),
        ] {
            let session = session(status, generation);
            let none: [(Job, ()); 0] = [];
            let step = next_step(&job("a", "ada", 1), &session, none);
            assert_eq!(step == NextStep::Send, goes_on, "{session:?}");
        }
        // What is requested while the kernel is restarted is for the next one.
        let restarting = session(Status::Restarting, 1);
        assert!(has_kernel(
            &restarting,
            Some(restarting.generation_to_use())
        ));
        assert!(has_kernel(&session(Status::Live, 2), Some(2)));
        // A first start has no kernel before it.
        let mut first = Session::local("/p/a.ipynb".into());
        first.status = Status::Starting;
        assert_eq!(first.generation_to_use(), first.generation);
        assert!(has_kernel(&first, None));
    }
}
