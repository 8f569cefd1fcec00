//! Refuses what would end others' work, unless the caller insists.

use std::time::Duration;

use serde::Serialize;

use super::caller::Caller;
use super::envelope::Answer;
use super::problem::{ConfirmationQuestion, Problem, ProblemKind};
use super::time::{age, moment};
use super::vars::{VarsRequest, vars};
use crate::hint;
use crate::hint::{Verb, nb};
use crate::lifecycle::consent::{KernelAction, Objection, facts, objections};
use crate::lifecycle::target::Target;

/// How long a kernel has to say how many variables it has.
const COUNTS_WITHIN: Duration = Duration::from_millis(700);

/// What is lost with a kernel.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LossesAnswer {
    /// How many variables it has; none if it does not say so at once.
    pub variables: Option<u64>,
    /// What a restart or a shutdown would do to others' work, in words: "end claude's cell 3f2a".
    pub would: Vec<String>,
}

impl Answer for LossesAnswer {}

/// Says what is lost with a notebook's kernel.
///
/// # Errors
/// There is no kernel.
pub async fn losses(caller: &Caller) -> Result<LossesAnswer, Problem> {
    let target = caller.target().await?;
    let facts = facts(&target.project, &target.key, &target.session, caller.by()).await;
    let request = VarsRequest {
        name: None,
        all: false,
        most: Some(0),
    };
    let counted = tokio::time::timeout(COUNTS_WITHIN, vars(caller, request)).await;
    Ok(LossesAnswer {
        variables: counted.ok().and_then(Result::ok).map(|it| it.more),
        would: objections(KernelAction::Shutdown, caller.by(), &facts)
            .iter()
            .map(objection_text)
            .collect(),
    })
}

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
