//! What an agent has done in the project's notebooks while it answered a message, and for which message.

use std::collections::BTreeSet;

use crate::project::Project;
use crate::project::event::{ChatTurn, Event, EventKind, Position};

/// What an agent has done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AgentWork {
    /// The cells that it changed, and that are still there: the notebook, and the cell's id.
    pub changed: BTreeSet<(String, String)>,
    /// The notebooks that it changed or whose cells it ran.
    notebooks: BTreeSet<String>,
}

impl AgentWork {
    /// Reads from the journal what an agent has done since a moment.
    pub fn since(project: &Project, since: Position, agent: &str) -> Self {
        let mut work = Self::default();
        let mut events = project.events_of(&[]);
        while let Some(event) = events.next() {
            if events.position() < since {
                break;
            }
            if event.by.as_deref() != Some(agent) {
                continue;
            }
            match &event.kind {
                EventKind::Edited(change) => {
                    let kept_cells = change.changes.iter().filter(|it| it.after.is_some());
                    let kept_cells = kept_cells.map(|it| (event.session.clone(), it.cell.clone()));
                    work.changed.extend(kept_cells);
                }
                EventKind::Requested(_) => {}
                _ => continue,
            }
            work.notebooks.insert(event.notebook().to_owned());
        }
        work
    }

    /// Adds to the log of each notebook for which message the agent has worked there.
    pub fn record(&self, project: &Project, agent: &str, turn: &ChatTurn) {
        let events = self.notebooks.iter().map(|notebook| Event {
            by: Some(agent.to_owned()),
            ..Event::now(notebook, EventKind::Messaged(turn.clone()))
        });
        let events: Vec<_> = events.collect();
        if !events.is_empty() {
            project.record(&events);
        }
    }
}
