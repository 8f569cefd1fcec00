//! The facts of one execution: data from a kernel, which may be hostile.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

/// A variable by its name, or something outside of the variables: `file:PATH`, `state:cwd`.
pub type Resource = String;

/// What one execution read and wrote.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct ExecutionFacts {
    /// Whether it ran to its end.
    pub ok: bool,
    /// Whether it may have read any variable.
    #[serde(rename = "all")]
    pub reads_any: bool,
    /// The variables that were deleted between the execution before it and this one.
    #[serde(default)]
    pub unbound: BTreeSet<Resource>,
    /// What it read, or may have read.
    pub reads: BTreeSet<Resource>,
    /// What it wrote.
    pub writes: BTreeMap<Resource, FactWrite>,
    /// The variables that its text stores in a branch or a loop.
    #[serde(default)]
    pub perhaps: BTreeSet<Resource>,
    /// The variables that the functions in a variable name.
    #[serde(default)]
    pub reach: BTreeMap<Resource, BTreeSet<Resource>>,
    /// Why it may give other values after a restart.
    #[serde(default)]
    pub uncertain: BTreeSet<String>,
}

/// A write: its kind, the fingerprint of the value after it if all of the value could be seen, whether the value holds no
/// object that can change, and whether no variable holds a part of it that the same execution did not bind, too.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct FactWrite(pub FactKind, pub Option<String>, pub bool, pub bool);

/// The kind of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FactKind {
    /// It does not depend on what was there before.
    Bound,
    /// It changes what was there, or perhaps leaves it as it was.
    Changed,
    /// It deletes.
    Gone,
}

/// How many names the facts of one execution have at most.
const MOST_NAMES: usize = 100_000;

/// How many bytes a name, a path or a reason has at most.
const MOST_BYTES: usize = 4096;

impl ExecutionFacts {
    /// Says whether the facts are of a size that is believed.
    pub fn is_bounded(&self) -> bool {
        let reached = self.reach.values().flatten();
        let names = self.reads.iter().chain(self.writes.keys());
        let names = names
            .chain(self.reach.keys())
            .chain(reached)
            .chain(&self.perhaps)
            .chain(&self.unbound);
        let prints = self.writes.values().filter_map(|write| write.1.as_ref());
        let mut all = names.chain(&self.uncertain).chain(prints);
        let are_short = all
            .by_ref()
            .take(MOST_NAMES)
            .all(|it| it.len() <= MOST_BYTES);
        are_short && all.next().is_none()
    }
}
