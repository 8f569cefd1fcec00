//! The execution queue: one cell runs at a time, and a person's cell waits here while another client's runs.
//!
//! A kernel queues the requests that it gets, and an interrupt hits the one that runs. So a cell that waits
//! behind another client's cell stays in the proxy, where its own user can withdraw it without an effect on
//! the cell that runs. When a cell fails with `stop_on_error`, ipykernel aborts the queued requests of
//! **all** clients; with this queue these are only the requests of the same client.

use std::collections::HashSet;

use bytes::Bytes;

use super::ClientId;
use super::request::{Key, Request, Requests};
use crate::wire::Header;

/// What runs on the kernel's shell, and which cells wait for it.
#[derive(Debug)]
pub(super) struct ExecutionQueue {
    /// Whether the user wants cells to wait.
    is_enabled: bool,
    running: Running,
    /// The header of the running cell, as the kernel's messages name it.
    header: Bytes,
    /// A running cell of a client outside this front end whose beginning is in the journal.
    outside: Option<OutsideCell>,
    /// Whether the last status that front ends got is the `busy` of the running cell.
    busy_is_last: bool,
}

/// What runs on the kernel's shell, as iopub and the answers to the proxy's own requests show it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Running {
    /// Nothing is known to run.
    #[default]
    Nothing,
    /// An execute request that has begun.
    Cell {
        key: Key,
        /// Its client; `None` for one outside this front end.
        client: Option<ClientId>,
    },
    /// Something that began before this proxy subscribed: the kernel does not answer on shell.
    Something,
}

/// What an interrupt is meant for: what ran when it arrived, and the front end's own cells that waited then.
#[derive(Debug)]
pub(super) struct InterruptTarget {
    pub(super) running: Running,
    pub(super) cells: HashSet<Key>,
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
            busy_is_last: false,
        }
    }
}

impl ExecutionQueue {
    /// Sets whether the user wants cells to wait.
    pub(super) fn set_enabled(&mut self, enabled: bool) {
        self.is_enabled = enabled;
    }

    pub(super) fn running(&self) -> &Running {
        &self.running
    }

    pub(super) fn is_idle(&self) -> bool {
        self.running == Running::Nothing
    }

    /// Returns the header of the running cell, `{}` where it is not known; `None` if nothing runs.
    pub(super) fn running_header(&self) -> Option<Bytes> {
        (!self.is_idle()).then(|| self.header.clone())
    }

    /// Notes that front ends get the `idle` of another request now. Returns whether the last status until now
    /// was the `busy` of a cell.
    pub(super) fn record_other_idle(&mut self) -> bool {
        std::mem::take(&mut self.busy_is_last)
    }

    /// Returns the header of the running cell as [`Self::running_header`] does, but `None` if front ends got the
    /// `busy` of the cell after the last `idle` of another request. From now on they have it.
    pub(super) fn take_hidden_header(&mut self) -> Option<Bytes> {
        let is_hidden = !std::mem::replace(&mut self.busy_is_last, true);
        self.running_header().filter(|_| is_hidden)
    }

    /// Returns whether the running cell came from outside this front end.
    pub(super) fn runs_from_outside(&self) -> bool {
        matches!(
            self.running,
            Running::Cell { client: None, .. } | Running::Something
        )
    }

    /// Returns whether a request of a client must wait until the running cell has ended.
    pub(super) fn must_wait(&self, id: &ClientId, key: Option<&Key>, requests: &Requests) -> bool {
        let is_of_another_client = match &self.running {
            Running::Nothing => false,
            Running::Cell { client, .. } => client.as_ref() != Some(id),
            Running::Something => true,
        };
        self.is_enabled
            && is_of_another_client
            && key
                .and_then(|key| requests.get(key))
                .is_some_and(Request::waits_its_turn)
    }

    /// Records that the kernel has begun a cell.
    pub(super) fn begin(&mut self, key: &Key, client: Option<ClientId>) {
        self.running = Running::Cell {
            key: key.clone(),
            client,
        };
    }

    /// Records that front ends get the kernel's `busy` of a cell, with this header as its parent.
    pub(super) fn publishes_busy(&mut self, header: &Bytes) {
        self.header = header.clone();
        self.busy_is_last = true;
    }

    /// Returns whether this is the running cell.
    pub(super) fn runs(&self, key: &Key) -> bool {
        matches!(&self.running, Running::Cell { key: running, .. } if running == key)
    }

    /// Returns whether the end of this request is the end of the running cell.
    pub(super) fn is_ended_by(&self, key: &Key, header: &Header<'_>) -> bool {
        match &self.running {
            Running::Something => header.msg_type == "execute_request",
            _ => self.runs(key),
        }
    }

    /// Records that nothing runs.
    pub(super) fn clear(&mut self) {
        self.running = Running::Nothing;
    }

    /// Records that something runs, because the kernel does not answer on shell.
    pub(super) fn assume_busy(&mut self) {
        if self.is_idle() {
            self.running = Running::Something;
            self.header = Bytes::from_static(b"{}");
        }
    }

    /// Records that the journal has the beginning of a cell from outside this front end.
    pub(super) fn begin_outside(&mut self, key: Key) {
        self.outside = Some(OutsideCell { key, raised: false });
    }

    /// Records that a cell has raised an error, if it is the one from outside this front end.
    pub(super) fn raise_outside(&mut self, key: Option<&Key>) {
        if let Some(outside) = &mut self.outside
            && key == Some(&outside.key)
        {
            outside.raised = true;
        }
    }

    /// Takes the end of a cell from outside this front end; returns whether the cell has raised an error.
    pub(super) fn end_outside(&mut self, key: &Key) -> Option<bool> {
        if !matches!(self.running, Running::Cell { client: None, .. }) {
            return None;
        }
        let outside = self.outside.take_if(|outside| outside.key == *key)?;
        Some(outside.raised)
    }
}
