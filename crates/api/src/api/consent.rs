//! Refuses what would end others' work, unless the caller insists.

use super::caller::Caller;
use super::problem::{ConfirmationQuestion, Problem, ProblemKind};
use super::time::{age, moment};
use crate::hint;
use crate::hint::{Verb, nb};
use crate::lifecycle::consent::{KernelAction, Objection, facts, objections};
use crate::lifecycle::target::Target;

impl Caller {
    /// Checks that the action ends nobody else's work, or that the caller insists.
    ///
    /// # Errors
    /// A refusal that says whose work would end, and how to insist.
    pub(super) async fn consent(
        &self,
        action: KernelAction,
        target: &Target,
        force: bool,
    ) -> Result<(), Problem> {
        if force {
            return Ok(());
        }
        let facts = facts(&target.project, &target.key, &target.session, self.by()).await;
        let objections = objections(action, self.by(), &facts);
        if objections.is_empty() {
            return Ok(());
        }
        let name = &target.notebook_key;
        let (noun, verb) = match action {
            KernelAction::Interrupt => ("an interrupt", Verb::Interrupt),
            KernelAction::Restart => ("a restart", Verb::Restart),
            KernelAction::Shutdown => ("a shutdown", Verb::Shutdown),
        };
        let why: Vec<_> = objections.iter().map(objection_text).collect();
        let why = why.join(", and ");
        let text = format!("{name}: refused, since {noun} would {why}");
        let insist = nb(verb).option("--force");
        let insist = insist.notebook(&target.session.notebook);
        let problem = Problem::new(ProblemKind::Refused, text);
        let mut problem = problem.hint(hint!["ask them first; to insist: ", insist]);
        problem.question = Some(Box::new(ConfirmationQuestion::Force {
            text: format!("{name}: {noun} would {why}. Go on? [y/N] "),
            declined: format!("{name}: left as it is"),
        }));
        Err(problem)
    }
}

fn objection_text(objection: &Objection) -> String {
    match objection {
        Objection::EndsCell(running) => {
            let since = running
                .since
                .map(|since| format!(", which has run since {} ({})", moment(since), age(since)));
            format!("end {}{}", running.description, since.unwrap_or_default())
        }
        Objection::DropsQueued(queued) => {
            format!(
                "throw out {}, which waits for the kernel",
                queued.join(" and ")
            )
        }
        Objection::WipesVariables(actors) => {
            format!(
                "delete the variables of {}, who uses the kernel",
                actors.join(" and ")
            )
        }
    }
}
