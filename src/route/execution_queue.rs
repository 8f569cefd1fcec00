//! The execution queue: one cell runs at a time, and a person's cell waits here while somebody else's runs.
//!
//! A kernel queues what it is sent, and an interrupt hits whatever runs first. So a cell that
//! waits behind another client's stays on this side, where its own user can withdraw it without
//! touching the one that runs. A failing cell's `stop_on_error`, by which ipykernel aborts the queued
//! requests of **all** clients, then aborts those of its own client only.

use bytes::Bytes;

use super::ClientId;
use super::request::{Key, Requests, Role};
use crate::wire::Header;

/// What runs on the kernel's shell, and which cells wait for it.
#[derive(Debug)]
pub(super) struct ExecutionQueue {
    /// Whether the user wants cells to wait.
    is_enabled: bool,
    running: Running,
    /// The header of the cell that runs, as the kernel names it.
    header: Bytes,
    /// A cell of a client outside this front end that the journal has.
    outside: Option<OutsideCell>,
}

/// What runs on the kernel's shell, as its iopub and the proxy's own requests show.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Running {
    /// Nothing, as far as is known.
    #[default]
    Nothing,
    /// An execute request that began.
    Cell {
        key: Key,
        /// Its client; `None` for one outside this front end.
        client: Option<ClientId>,
    },
    /// Something that began before this proxy listened: the kernel does not answer on shell.
    Something,
}

/// A cell of a client outside this front end.
#[derive(Debug)]
struct OutsideCell {
    key: Key,
    /// An error was among its outputs.
    raised: bool,
}

impl Default for ExecutionQueue {
    fn default() -> Self {
        Self {
            is_enabled: true,
            running: Running::Nothing,
            header: Bytes::from_static(b"{}"),
            outside: None,
        }
    }
}

impl ExecutionQueue {
    /// Takes whether the user wants cells to wait.
    pub(super) fn set_enabled(&mut self, enabled: bool) {
        self.is_enabled = enabled;
    }

    pub(super) fn running(&self) -> &Running {
        &self.running
    }

    pub(super) fn is_idle(&self) -> bool {
        self.running == Running::Nothing
    }

    /// Returns the header of what runs; an empty one where that is not known.
    pub(super) fn running_header(&self) -> Option<Bytes> {
        (!self.is_idle()).then(|| self.header.clone())
    }

    /// Returns whether what runs came from outside this front end.
    pub(super) fn runs_from_outside(&self) -> bool {
        matches!(
            self.running,
            Running::Cell { client: None, .. } | Running::Something
        )
    }

    /// Returns whether a request of a client must wait until what runs has ended.
    pub(super) fn must_wait(&self, id: &ClientId, key: Option<&Key>, requests: &Requests) -> bool {
        let is_anothers = match &self.running {
            Running::Nothing => false,
            Running::Cell { client, .. } => client.as_ref() != Some(id),
            Running::Something => true,
        };
        self.is_enabled
            && is_anothers
            && key.is_some_and(|key| requests.role(key) == Some(Role::Cell))
    }

    /// Takes that the kernel has begun a cell.
    pub(super) fn begin(&mut self, key: &Key, client: Option<ClientId>) {
        self.running = Running::Cell {
            key: key.clone(),
            client,
        };
    }

    /// Takes the header of the cell that runs.
    pub(super) fn set_header(&mut self, header: &Bytes) {
        self.header = header.clone();
    }

    /// Returns whether this is what runs.
    pub(super) fn runs(&self, key: &Key) -> bool {
        matches!(&self.running, Running::Cell { key: running, .. } if running == key)
    }

    /// Returns whether the end of a request is that of what runs.
    pub(super) fn is_ended_by(&self, key: &Key, header: &Header<'_>) -> bool {
        match &self.running {
            Running::Something => header.msg_type == "execute_request",
            _ => self.runs(key),
        }
    }

    /// Takes that nothing runs.
    pub(super) fn clear(&mut self) {
        self.running = Running::Nothing;
    }

    /// Takes that the kernel does not answer on shell: something runs.
    pub(super) fn assume_busy(&mut self) {
        if self.is_idle() {
            self.running = Running::Something;
            self.header = Bytes::from_static(b"{}");
        }
    }

    /// Takes that the journal has the beginning of a cell from outside.
    pub(super) fn begin_outside(&mut self, key: Key) {
        self.outside = Some(OutsideCell { key, raised: false });
    }

    /// Takes that a cell has raised, if it is from outside.
    pub(super) fn raise_outside(&mut self, key: Option<&Key>) {
        if let Some(outside) = &mut self.outside
            && key == Some(&outside.key)
        {
            outside.raised = true;
        }
    }

    /// Takes the end of a cell from outside; returns whether it has raised.
    pub(super) fn end_outside(&mut self, key: &Key) -> Option<bool> {
        if !matches!(self.running, Running::Cell { client: None, .. }) {
            return None;
        }
        let outside = self.outside.take_if(|outside| outside.key == *key)?;
        Some(outside.raised)
    }
}
