//! How a job is followed, and what the answer holds.

use regex::Regex;

/// How a job is followed, and what the answer holds.
#[derive(Clone, Debug)]
pub struct FollowOptions {
    /// For how many seconds at most, 0 is for ever; none is the caller's own limit.
    pub timeout: Option<f64>,
    /// How many characters of output the answer has at most; none is no limit.
    pub limit: Option<usize>,
    /// How the answer has the outputs.
    pub outputs: OutputsAs,
    /// A line at which following ends; the job goes on.
    pub until: Option<Regex>,
}

/// How an answer has the outputs of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputsAs {
    /// As one text a cell. The limit is for all of them.
    Text,
    /// As a notebook file has them. The limit is for each.
    Objects,
    /// Not at all: the observer is told them as they come.
    Events,
}

impl Default for FollowOptions {
    fn default() -> Self {
        Self {
            timeout: None,
            limit: Some(6000),
            outputs: OutputsAs::Objects,
            until: None,
        }
    }
}
