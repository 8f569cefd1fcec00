//! Refusing, or asking at the terminal, before others' work is ended.

use crate::api::problem::{Problem, ProblemKind};
use crate::cli::Context;
use crate::cli::render::print;
use crate::cli::terminal::Lines;
use crate::kernel::shell::quote;
use crate::lifecycle::consent::{KernelAction, Objection, facts, objections};
use crate::lifecycle::target::Target;

impl Context {
    /// Requires that nothing of others is ended by it, or that the user at the terminal says so.
    ///
    /// # Errors
    /// A refusal that says whose work it is and how to insist.
    pub(crate) async fn consent(
        &self,
        action: KernelAction,
        target: &Target,
        force: bool,
        json: bool,
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
        let command = command(action);
        let why: Vec<_> = objections.iter().map(words).collect();
        let why = why.join(", and ");
        if !json && self.can_ask() {
            let question = format!("{name}: {command} would {why}. Go on? [y/N] ");
            let answer = Lines::new().ask(&question, false).await;
            let answer = answer.unwrap_or_default().trim().to_ascii_lowercase();
            if matches!(answer.as_str(), "y" | "yes") {
                return Ok(());
            }
            return Err(Problem::new(
                ProblemKind::Refused,
                format!("{name}: left as it is"),
            ));
        }
        let text = format!("{name}: refused, since {command} would {why}");
        let notebook = quote(&target.session.notebook);
        Err(Problem::new(ProblemKind::Refused, text).hint(format!(
            "ask them first; to insist: {command} --force {notebook}"
        )))
    }
}

fn command(action: KernelAction) -> &'static str {
    match action {
        KernelAction::Interrupt => "nb interrupt",
        KernelAction::Restart => "nb restart",
        KernelAction::Shutdown => "nb shutdown",
    }
}

fn words(objection: &Objection) -> String {
    match objection {
        Objection::EndsCell(running) => {
            let since = running.since.map(|since| {
                let moment = print::moment(since);
                format!(", which has run since {moment} ({})", print::age(since))
            });
            format!("end {}{}", running.what, since.unwrap_or_default())
        }
        Objection::WipesVariables(who) => {
            format!("wipe the variables of {}, who is joined", who.join(" and "))
        }
    }
}
