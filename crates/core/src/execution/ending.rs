//! The error output of a cell whose kernel ended while it ran.
//!
//! A kernel that has ended sends no error and no reply. Without an error output the cell would seem
//! to have succeeded.

use std::time::Duration;

use serde_json::json;

use super::category;
use crate::client::IopubMessage;
use crate::kernel::process::Process;
use crate::lifecycle::death::{self, note_death};
use crate::project::{Ended, ErrorCategory, Project, Session, Status};

/// How long a process may take to exit after its sockets were closed.
const EXIT_WAIT: Duration = Duration::from_secs(1);

/// The end of a kernel, as an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ending {
    /// The error's name, which front ends show before the text; the same names as nb-proxy's.
    name: &'static str,
    /// The text: what happened, and its consequences.
    text: String,
    /// The error's category for the code that ran.
    category: ErrorCategory,
}

impl Ending {
    /// Returns the end of a kernel that exited unexpectedly.
    pub(super) fn died(how: &str, ended: Option<&Ended>) -> Self {
        Self {
            category: category::of_death(ended),
            ..Self::new("KernelDied", how)
        }
    }

    /// Returns the error for a kernel that cannot be reached, so that the end of its cell will
    /// never be known.
    pub(super) fn unreachable(why: &str) -> Self {
        Self {
            name: "KernelUnreachable",
            text: why.to_owned(),
            category: ErrorCategory::Unknown,
        }
    }

    fn new(name: &'static str, how: &str) -> Self {
        Self {
            name,
            text: format!("{}. Its variables are gone.", how.trim_end_matches('.')),
            category: ErrorCategory::Unknown,
        }
    }

    /// Returns the end of a kernel according to its record.
    pub(super) fn recorded(key: &str, ended: &Ended) -> Self {
        let by = ended.by.as_ref().map(|by| format!(" by {by}"));
        let by = by.unwrap_or_default();
        match &*ended.reason {
            "restarted" => Self::restarted(&by),
            "shut down" => Self::stopped(&by),
            _ => Self::died(&death::description(key, ended), Some(ended)),
        }
    }

    /// Returns how the kernel of an earlier generation of a session ended, as far as the session's record shows.
    pub(super) fn of_generation(key: &str, session: Option<&Session>, generation: u64) -> Self {
        let ended = session.and_then(|session| session.ended.as_ref());
        match ended.filter(|ended| ended.generation == generation) {
            Some(ended) => Self::recorded(key, ended),
            None => Self::died("the kernel for which it was requested has ended", None),
        }
    }

    fn restarted(by: &str) -> Self {
        Self::new("KernelRestarted", &format!("the kernel was restarted{by}"))
    }

    fn stopped(by: &str) -> Self {
        Self::new("KernelStopped", &format!("the kernel was shut down{by}"))
    }

    /// Returns the text of the error.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Returns what kind of error it is for the code that ran.
    pub(super) fn category(&self) -> ErrorCategory {
        self.category
    }

    /// Returns the error message that the kernel would have sent.
    pub(super) fn error_message(&self) -> IopubMessage {
        // Front ends show only the lines of the traceback.
        let line = format!("\u{1b}[0;31m{}\u{1b}[0m: {}", self.name, self.text);
        let content = json!({ "ename": self.name, "evalue": self.text, "traceback": [line] });
        IopubMessage {
            id: None,
            msg_type: "error".to_owned(),
            content: content.to_string().into_bytes().into(),
            buffers: Vec::new(),
        }
    }
}

/// Returns how a kernel ended: by a restart or shutdown, or unexpectedly, which is recorded.
pub(super) async fn kernel_ending(
    project: &Project,
    key: &str,
    session: &Session,
    process: Option<&Process>,
    cause: &str,
) -> Ending {
    let key = &project.current_key(key);
    if let Some(process) = process {
        // The kernel's sockets close shortly before its process exits.
        process.ended_within(EXIT_WAIT).await;
    }
    let now = match process {
        Some(process) if !process.is_alive() => note_death(project, key, session.clone()).ok(),
        // The process exits slowly: the actor who is ending it has recorded that before.
        _ => (project.state().ok()).and_then(|state| state.session(key)),
    };
    let by = |ended: &Option<Ended>| {
        ended
            .as_ref()
            .and_then(|ended| ended.by.as_ref())
            .map(|by| format!(" by {by}"))
            .unwrap_or_default()
    };
    match now {
        Some(now) if now.status == Status::Stopped => Ending::stopped(&by(&now.ended)),
        Some(now) if now.status == Status::Restarting || now.generation != session.generation => {
            Ending::restarted(&by(&now.ended))
        }
        Some(Session {
            status: Status::Died,
            ended: Some(ended),
            ..
        }) => Ending::died(&death::description(key, &ended), Some(&ended)),
        _ => Ending::died(&format!("the kernel died: {cause}"), None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::OutputMessage;
    use crate::project::Exit;

    fn ended(reason: &str, by: Option<&str>) -> Ended {
        let ended = json!({
            "at": "2026-01-02T03:12:00Z", "reason": reason, "generation": 1, "by": by,
        });
        serde_json::from_value(ended).unwrap()
    }

    #[test]
    fn an_end_is_an_error_that_says_the_cause_first_and_then_what_follows() {
        for (ended, name, begins) in [
            (
                ended("SIGKILL", None),
                "KernelDied",
                "the kernel of t.ipynb ended at",
            ),
            (
                ended("restarted", Some("ada")),
                "KernelRestarted",
                "the kernel was restarted by ada. ",
            ),
            (
                ended("shut down", None),
                "KernelStopped",
                "the kernel was shut down. ",
            ),
        ] {
            let ending = Ending::recorded("t.ipynb", &ended);
            let Some(OutputMessage::Error(error)) = ending.error_message().output() else {
                panic!("{ending:?} is not an error");
            };
            assert_eq!(error.ename, name);
            assert!(error.evalue.starts_with(begins), "{error:?}");
            assert!(
                error.evalue.ends_with(". Its variables are gone."),
                "{error:?}"
            );
            assert!(error.traceback[0].ends_with(&error.evalue), "{error:?}");
            assert_eq!(ending.category(), ErrorCategory::Unknown);
        }
    }

    #[test]
    fn a_kernel_that_the_system_killed_for_memory_is_an_error_of_memory() {
        for exit in [Exit::OutOfMemory, Exit::PerhapsOutOfMemory] {
            let mut killed = ended("out of memory, 61.8 GB", None);
            killed.exit = Some(exit);
            let ending = Ending::recorded("t.ipynb", &killed);
            assert_eq!(ending.category(), ErrorCategory::Memory);
        }
    }
}
