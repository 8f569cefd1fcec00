//! Execute requests: their content, and the steps that the journal records.

use serde::Deserialize;

use super::ClientId;
use super::request::{Key, Request};
use crate::wire::{Header, Verified};

/// One step of an execution, for the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecutionProgress {
    /// The step.
    pub phase: Phase,
    /// The generation of the kernel in which the step happened.
    pub generation: u64,
    /// The request's id: with the generation, the key of an execution.
    pub msg_id: String,
    /// The client that sent the request, if it belongs to this front end.
    pub client: Option<ClientId>,
    /// The client's session.
    pub session: String,
    /// The client's name for itself.
    pub username: String,
    /// The notebook cell's id, where the front end sends it.
    pub cell: Option<String>,
    /// The source; only in the steps `Queued`, `Sent` and `BegunOutside`.
    pub code: Option<String>,
    /// Whether the code is a person's cell: front ends run code of their own with `store_history:false`.
    /// Cells from outside this front end count as a person's.
    pub store_history: bool,
}

/// A step of an execution.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Phase {
    /// A cell of a client of this front end waits here until another client's cell has ended.
    Queued,
    /// A client of this front end has sent a cell to the kernel.
    Sent,
    /// The kernel has begun a cell that a client outside this front end sent.
    BegunOutside,
    /// A cell that a client outside this front end sent has ended.
    EndedOutside {
        /// An error was among its outputs.
        raised: bool,
    },
    /// The kernel asks the person at this front end for a line of input; holds the prompt.
    Prompted(String),
    /// The person has answered.
    Answered,
    /// A cell of this front end has ended; holds the reply's `status`.
    Ended(String),
}

impl ExecutionProgress {
    /// Returns the `Queued` or `Sent` step of a client's request, with its code; `None` for silent code.
    pub(super) fn with_code(
        phase: Phase,
        generation: u64,
        key: &Key,
        request: &Request,
        message: &Verified,
    ) -> Option<Self> {
        let execute: ExecuteContent = message.read_content()?;
        if execute.silent {
            return None;
        }
        Some(Self {
            cell: cell_id(message.metadata()),
            store_history: execute.store_history.unwrap_or(true),
            code: Some(execute.code),
            ..Self::of(phase, generation, key, request)
        })
    }

    /// Returns the `Ended` step of a client's request.
    pub(super) fn ended(generation: u64, key: &Key, request: &Request, status: String) -> Self {
        Self::of(Phase::Ended(status), generation, key, request)
    }

    /// Returns another step of a client's request.
    pub(super) fn of(phase: Phase, generation: u64, key: &Key, request: &Request) -> Self {
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

    /// Returns a step of a cell that a client outside this front end has sent.
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
    /// Returns whether it is a cell of a person or an agent, not a tool's own code.
    pub(super) fn is_cell(&self) -> bool {
        !self.silent && self.store_history.unwrap_or(true)
    }

    /// Returns whether the code is a console's command to exit. IPython ends the kernel for it, too.
    pub(super) fn is_console_exit(&self) -> bool {
        let commands = ["exit", "quit", "exit()", "quit()"];
        self.allows_stdin() && commands.contains(&self.code.trim())
    }

    /// Returns whether a person can answer its prompts.
    pub(super) fn allows_stdin(&self) -> bool {
        self.allow_stdin.unwrap_or(true)
    }
}

/// Reads the cell's id from the metadata of an `execute_request`.
pub(super) fn cell_id(metadata: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Metadata {
        cell_id: Option<String>,
    }
    let metadata: Metadata = serde_json::from_slice(metadata).ok()?;
    metadata.cell_id
}
