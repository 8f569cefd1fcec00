//! What a notebook's kernel has said of each execution.

use std::collections::HashMap;

use jiff::Timestamp;
use serde::Deserialize;

use crate::project::{Project, Session, StoredFacts};
use crate::witness::ExecutionFacts;

/// The version of the facts that this program understands.
const VERSION: u64 = 1;

/// The facts of a kernel that were read before: the next reader reads only later ones.
#[derive(Debug, Default)]
pub(super) struct KernelFacts {
    generation: u64,
    /// When the kernel was started: another kernel may have the generation.
    started_at: Option<Timestamp>,
    /// The offset of the first line that was not read.
    end: u64,
    /// The facts of each request, with the number of its run: none if they are not understood.
    pub(super) runs: HashMap<String, (u64, Option<ExecutionFacts>)>,
}

impl KernelFacts {
    /// Reads the facts that are not known yet of a session's kernel; returns whether it says any.
    pub(super) fn read(&mut self, project: &Project, key: &str, session: &Session) -> bool {
        if (self.generation, self.started_at) != (session.generation, session.started_at) {
            *self = Self {
                generation: session.generation,
                started_at: session.started_at,
                ..Self::default()
            };
        }
        let Some((facts, end)) = project.facts(key, self.generation, self.end) else {
            return false;
        };
        self.end = end;
        for StoredFacts { msg_id, facts } in facts {
            let Ok(Head { version, run }) = serde_json::from_str(facts.get()) else {
                continue;
            };
            let facts = Some(facts).filter(|_| version == VERSION);
            let facts = facts.and_then(|facts| serde_json::from_str(facts.get()).ok());
            let facts = facts.filter(ExecutionFacts::is_bounded);
            self.runs.entry(msg_id).or_insert((run, facts));
        }
        true
    }
}

#[derive(Deserialize)]
struct Head {
    version: u64,
    run: u64,
}
