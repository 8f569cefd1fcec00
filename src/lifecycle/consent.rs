//! Consent: what of others' work an action on a kernel would end.
//!
//! The rule is a pure function of what is known; [`facts`] finds that out, at the price of one
//! question to the kernel.

use jiff::Timestamp;

use super::liveness::liveness;
use super::status::busy;
use crate::activity::company::{self, whose};
use crate::activity::participants::joined_to;
use crate::project::event::RunningCell;
use crate::project::{Project, Session, Status};

/// What is to be done to a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelAction {
    /// Ends the cell that runs.
    Interrupt,
    /// Ends it, and the variables.
    Restart,
    /// Ends it, and the variables.
    Shutdown,
}

/// What is known of others' work on a kernel.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Facts {
    /// What the kernel runs.
    pub runs: Option<Running>,
    /// The joined humans whose code ran on this kernel.
    pub made_by: Vec<String>,
}

/// What a kernel runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Running {
    /// Who asked for it.
    pub by: String,
    /// Whose it is, in words.
    pub what: String,
    /// Since when, where that is known.
    pub since: Option<Timestamp>,
}

/// What speaks against an action.
#[derive(Clone, Debug, PartialEq)]
pub enum Objection {
    /// It would end somebody else's cell.
    EndsCell(Running),
    /// It would take these joined humans' variables.
    WipesVariables(Vec<String>),
}

/// Returns which work of others an action of `actor` would end.
pub fn objections(action: KernelAction, actor: &str, facts: &Facts) -> Vec<Objection> {
    let others = |name: &str| !company::is_same(name, actor);
    let mut found = Vec::new();
    if let Some(running) = facts.runs.as_ref().filter(|it| others(&it.by)) {
        found.push(Objection::EndsCell(running.clone()));
    }
    let made_by: Vec<_> = facts
        .made_by
        .iter()
        .filter(|name| others(name))
        .cloned()
        .collect();
    if action != KernelAction::Interrupt && !made_by.is_empty() {
        found.push(Objection::WipesVariables(made_by));
    }
    found
}

/// Finds out whose work an action of `actor` may end.
///
/// Whether the actor's own cell still runs does not matter, so the kernel is not asked then.
pub async fn facts(project: &Project, key: &str, session: &Session, actor: &str) -> Facts {
    // One that is being started runs nobody's cell, and does not answer.
    let is_up = session.status == Status::Live && liveness(session).await.is_up();
    if !is_up {
        return Facts::default();
    }
    let present = project.present(key, session.generation);
    let is_own = |cell: &RunningCell| company::is_same(company::name(cell.by.as_deref()), actor);
    let runs = match present.running {
        Some(cell) if is_own(&cell) => None,
        cell => match (busy(session).await, cell) {
            (Some(true), Some(cell)) => Some(Running {
                by: company::name(cell.by.as_deref()).to_owned(),
                what: whose(&cell),
                since: Some(cell.since),
            }),
            // A client without a proxy, something that is no cell, or a kernel that hangs.
            (Some(true), None) => Some(Running {
                by: company::SOMEBODY.to_owned(),
                what: "what keeps it busy, which the journal does not know".to_owned(),
                since: None,
            }),
            _ => None,
        },
    };
    let joined: Vec<_> = joined_to(project, key)
        .into_iter()
        .map(|joined| joined.by())
        .collect();
    let made_by = if joined.is_empty() {
        Vec::new()
    } else {
        let authors = project.authors(key, session.generation);
        authors
            .into_iter()
            .filter(|author| joined.contains(author))
            .collect()
    };
    Facts { runs, made_by }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(runs: Option<&str>, made_by: &[&str]) -> Facts {
        Facts {
            runs: runs.map(|by| Running {
                by: by.to_owned(),
                what: format!("{by}'s cell"),
                since: None,
            }),
            made_by: made_by.iter().map(|name| (*name).to_owned()).collect(),
        }
    }

    #[test]
    fn only_others_work_is_asked_about() {
        let human = "human (VS Code)";
        let count = |action, actor, facts: &Facts| objections(action, actor, facts).len();
        for action in [
            KernelAction::Interrupt,
            KernelAction::Restart,
            KernelAction::Shutdown,
        ] {
            assert_eq!(count(action, "claude", &facts(None, &[])), 0);
            assert_eq!(count(action, "claude", &facts(Some("claude"), &[])), 0);
            assert_eq!(count(action, "claude", &facts(Some("codex"), &[])), 1);
            assert_eq!(count(action, "claude", &facts(Some(human), &[])), 1);
            assert_eq!(count(action, "human", &facts(Some(human), &[human])), 0);
        }
        let made = facts(None, &[human, "human (JupyterLab)"]);
        assert_eq!(count(KernelAction::Interrupt, "claude", &made), 0);
        assert_eq!(count(KernelAction::Restart, "claude", &made), 1);
        assert_eq!(count(KernelAction::Shutdown, "claude", &made), 1);
        let both = objections(
            KernelAction::Restart,
            "claude",
            &facts(Some(human), &[human]),
        );
        assert!(
            matches!(&both[..], [Objection::EndsCell(_), Objection::WipesVariables(who)] if *who == [human])
        );
    }
}
