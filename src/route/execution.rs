//! Execute requests: what their content says, and what the journal gets of them.

use serde::Deserialize;

use super::ClientId;
use super::request::{Key, Request};
use crate::wire::{Header, Verified};

/// One step of an execution, for the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Execution {
    /// Which step.
    pub phase: Phase,
    /// The kernel's generation in which it happened.
    pub generation: u64,
    /// The request's id: with the generation, the key of an execution.
    pub msg_id: String,
    /// The client that asked, where it is one of this front end's.
    pub client: Option<ClientId>,
    /// The client's session.
    pub session: String,
    /// The client's name for itself.
    pub username: String,
    /// The notebook cell's id, where the front end sends it.
    pub cell: Option<String>,
    /// The source, at `asked` and `seen`.
    pub code: Option<String>,
    /// Whether a person asked: front ends run code of their own with `store_history:false`.
    /// What others run is taken for a person's.
    pub store_history: bool,
}

/// A step of an execution.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Phase {
    /// A client of this front end sent it to the kernel.
    Asked,
    /// The kernel runs what a client outside this front end has sent.
    Seen,
    /// What a client outside this front end has sent is over.
    Over {
        /// An error was among its outputs.
        raised: bool,
    },
    /// It ended: the reply's `status`.
    Done(String),
}

impl Execution {
    /// Returns the step that a client's request was sent, with its code; `None` for silent code, which is nobody's
    /// work.
    pub(super) fn asked(
        generation: u64,
        key: &Key,
        request: &Request,
        message: &Verified,
    ) -> Option<Self> {
        let execute = ExecuteContent::read(message.content())?;
        if execute.silent {
            return None;
        }
        Some(Self {
            cell: cell_id(message.metadata()),
            store_history: execute.store_history.unwrap_or(true),
            code: Some(execute.code),
            ..Self::of(Phase::Asked, generation, key, request)
        })
    }

    /// Returns the step that a client's request has ended.
    pub(super) fn done(generation: u64, key: &Key, request: &Request, status: String) -> Self {
        Self::of(Phase::Done(status), generation, key, request)
    }

    fn of(phase: Phase, generation: u64, key: &Key, request: &Request) -> Self {
        Self {
            phase,
            generation,
            msg_id: key.msg_id().to_owned(),
            client: Some(request.client.clone()),
            session: request.session.clone(),
            username: request.username.clone(),
            cell: None,
            code: None,
            store_history: true,
        }
    }

    /// Returns a step of what a client outside this front end has sent.
    pub(super) fn of_outside(
        phase: Phase,
        generation: u64,
        header: &Header<'_>,
        code: Option<String>,
    ) -> Self {
        Self {
            phase,
            generation,
            msg_id: header.msg_id.clone().into_owned(),
            client: None,
            session: header.session.clone().into_owned(),
            username: header.username.clone().into_owned(),
            cell: None,
            code,
            store_history: true,
        }
    }
}

/// The content of an `execute_request`.
#[derive(Deserialize)]
pub(super) struct ExecuteContent {
    pub(super) code: String,
    #[serde(default)]
    silent: bool,
    store_history: Option<bool>,
    allow_stdin: Option<bool>,
}

impl ExecuteContent {
    pub(super) fn read(content: &[u8]) -> Option<Self> {
        serde_json::from_slice(content).ok()
    }

    /// Returns whether a person or an agent wants to see it run: not a tool's own code.
    pub(super) fn is_cell(&self) -> bool {
        !self.silent && self.store_history.unwrap_or(true)
    }

    /// Returns whether somebody is there who can answer what it asks.
    pub(super) fn may_ask(&self) -> bool {
        self.allow_stdin.unwrap_or(true)
    }
}

/// Reads the cell's id from the metadata of an `execute_request`.
pub(super) fn cell_id(metadata: &[u8]) -> Option<String> {
    #[derive(Default, Deserialize)]
    #[serde(default, rename_all = "camelCase")]
    struct Metadata {
        cell_id: Option<String>,
    }
    let metadata = serde_json::from_slice::<Metadata>(metadata);
    metadata.unwrap_or_default().cell_id
}
