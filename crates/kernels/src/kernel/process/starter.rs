//! The process that started this one, and whether it is gone.

use rustix::io::Errno;
use rustix::process::{Pid, getppid, test_kill_process};

use crate::kernel::variables::{ProcessVariables, Variables};

/// The process that started this one.
#[derive(Clone, Copy, Debug)]
pub struct Starter {
    parent: Option<Pid>,
    /// The process that `JPY_PARENT_PID` names, which `jupyter_client` sets to its own pid.
    named: Option<Pid>,
}

impl Starter {
    /// Returns the starter of this process. Call it early: later on, the parent may be another one.
    pub fn of_this_process() -> Self {
        Self::new(getppid(), &ProcessVariables)
    }

    fn new(parent: Option<Pid>, variables: &dyn Variables) -> Self {
        let named = variables.get("JPY_PARENT_PID");
        let named = named.and_then(|pid| Pid::from_raw(pid.to_str()?.parse().ok()?));
        Self { parent, named }
    }

    /// Returns whether the starter is gone: this process has another parent by now, or it had no other than
    /// the first process when it asked, and the starter that its environment names is gone.
    pub fn is_gone(self) -> bool {
        self.is_gone_under(getppid())
    }

    fn is_gone_under(self, parent: Option<Pid>) -> bool {
        let is_gone = |pid| test_kill_process(pid) == Err(Errno::SRCH);
        let ended_before = self.parent.is_some_and(Pid::is_init) && self.named.is_some_and(is_gone);
        parent != self.parent || ended_before
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::process::Command;

    use super::*;

    fn is_gone(parent: Pid, named: u32, now: Pid) -> bool {
        let named = named.to_string();
        let variables = HashMap::from([("JPY_PARENT_PID", &*named)]);
        Starter::new(Some(parent), &variables).is_gone_under(Some(now))
    }

    #[test]
    fn a_starter_that_ended_before_it_was_asked_for_is_gone() {
        let mut child = Command::new("true").spawn().expect("it starts");
        child.wait().expect("it ends");
        let (ended, lives) = (child.id(), std::process::id());
        let (init, other) = (Pid::INIT, rustix::process::getpid());

        assert!(is_gone(init, ended, init));
        assert!(!is_gone(init, lives, init), "the first process started it");
        assert!(is_gone(other, lives, init));
        assert!(!is_gone(other, ended, other), "the variable is another's");
    }
}
