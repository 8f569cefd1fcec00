//! Which notebook the front end's traffic is about, where nothing said so at its launch.
//!
//! VS Code starts a kernel without a word on the notebook. Its start-up code names it, and else
//! the first cell; kernel_info and code that names nothing decide nothing.

use serde::Deserialize;

use super::Action;
use super::bridge::Bridge;
use super::kernel::Kernel;
use super::naming::notebook_of_cell;
use super::timer::{NAMELESS, Now, Timer};
use crate::wire::Verified;

/// How far the front end's notebook is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Naming {
    /// It was known at launch, or its traffic has named it.
    #[default]
    Known,
    /// It is waited for.
    Wanted,
    /// Nothing named it in time: the default was taken, and a name still changes that.
    Assumed,
}

impl Bridge {
    pub(super) fn is_unnamed(&self) -> bool {
        matches!(self.kernel, Kernel::Unnamed { .. })
    }

    /// What was held while not even this was known is looked at again: some of it is answered now,
    /// and some of it may name the notebook.
    pub(super) fn take_anew(&mut self, now: Now) {
        for key in self.requests.keys(|request| !request.sent) {
            let Some((id, channel, message)) = self.take_held(&key) else {
                continue;
            };
            self.requests.remove(&key);
            self.timers.stop(&Timer::Stale(key));
            if let Some(client) = self.clients.get_mut(&id) {
                client.outstanding = client.outstanding.saturating_sub(1);
            }
            self.client_message(now, channel, &id, message);
        }
        if let Some(notebook) = self.notebook.take() {
            self.named(notebook);
        }
    }

    /// Something of the front end's own waits for a kernel that nobody has named.
    pub(super) fn wait_for_name(&mut self, now: Now) {
        if self.naming == Naming::Wanted && !self.timers.runs(&Timer::Nameless) {
            self.timers.start(now.instant + NAMELESS, Timer::Nameless);
        }
    }

    /// Nothing has named the notebook for long enough.
    pub(super) fn nameless(&mut self) {
        if self.naming == Naming::Wanted {
            self.naming = Naming::Assumed;
            self.actions.push_back(Action::Bind { notebook: None });
        }
    }

    /// Looks for the notebook's name in the metadata of a cell.
    pub(super) fn look_for_name(&mut self, message: &Verified) {
        #[derive(Default, Deserialize)]
        #[serde(default, rename_all = "camelCase")]
        struct Metadata {
            cell_id: Option<String>,
        }
        if self.naming == Naming::Known {
            return;
        }
        let metadata: Metadata = serde_json::from_slice(message.metadata()).unwrap_or_default();
        let notebook = metadata.cell_id.as_deref().and_then(notebook_of_cell);
        if let Some(notebook) = notebook {
            self.named(notebook);
        }
    }

    /// The traffic names the notebook. It may do so before anybody knows that this is needed.
    pub(super) fn named(&mut self, notebook: String) {
        if self.naming == Naming::Known {
            self.notebook = Some(notebook);
            return;
        }
        self.naming = Naming::Known;
        self.timers.stop(&Timer::Nameless);
        self.actions.push_back(Action::Bind {
            notebook: Some(notebook),
        });
    }

    /// Tells once which session the front end's clients have.
    pub(super) fn hear(&mut self, session: &str) {
        if !self.heard && !session.is_empty() {
            self.heard = true;
            self.actions.push_back(Action::Heard {
                session: session.to_owned(),
            });
        }
    }
}
