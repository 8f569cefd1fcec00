//! How a job is followed, and what the answer holds.

use regex::Regex;

/// How a job is followed, and what the answer holds.
#[derive(Clone, Debug)]
pub struct FollowOptions {
    /// How many seconds to follow at most, 0 is for ever; `None` is the caller's own limit.
    pub timeout: Option<f64>,
    /// How many characters of output the answer has at most; `None` is no limit.
    pub limit: Option<usize>,
    /// The form of the outputs in the answer.
    pub outputs: OutputsAs,
    /// Whether a text comes with the images that it cannot show.
    pub images: bool,
    /// Whether the text has tables, charts and tracebacks in short, as agents read them.
    pub in_short: bool,
    /// A line at which following stops; the job goes on.
    pub until: Option<Regex>,
}

/// The form of a job's outputs in an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputsAs {
    /// As one text for each cell, with one limit for all of them.
    Text,
    /// As objects of a notebook file, each with its own limit.
    Objects,
    /// Not at all: the observer gets them as they come.
    Events,
}

impl Default for FollowOptions {
    fn default() -> Self {
        Self {
            timeout: None,
            limit: Some(6000),
            outputs: OutputsAs::Objects,
            images: false,
            in_short: false,
            until: None,
        }
    }
}
