//! Clients that run a notebook's cells without a person: nbclient, papermill, `jupyter execute`.
//!
//! Their next cell needs the variables of the one before. So a kernel that ends takes them along: they
//! look whether the process lives that they launched, and report that their kernel has died. An error
//! in the place of a reply would let `--allow-errors` go on with a kernel without variables.

use super::bridge::Bridge;
use super::client::Client;
use super::kernel::{Ending, Kernel};
use super::request::{Answer, Request, Requests, Role};
use super::settings::FrontEnd;
use super::timer::{Now, Timers};
use super::to_clients::done;
use super::{Action, voice};

/// What the cells of a front end tell of whether a person runs them.
///
/// `allow_stdin` says whether somebody can answer what a cell asks: nbclient never allows it, consoles do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Batch {
    /// No cell came yet.
    #[default]
    Unknown,
    /// Nobody could answer any of its cells.
    Unattended,
    /// Somebody could answer one.
    Attended,
    /// It ends with its kernel.
    Over,
}

impl Batch {
    /// Takes whether somebody can answer what a cell asks.
    pub(super) fn asks(&mut self, may_ask: bool) {
        match self {
            Self::Over => {}
            _ if may_ask => *self = Self::Attended,
            Self::Unknown => *self = Self::Unattended,
            Self::Unattended | Self::Attended => {}
        }
    }

    /// Returns whether nothing is done any more.
    pub(super) fn is_over(self) -> bool {
        self == Self::Over
    }
}

impl Bridge {
    /// Returns whether the front end is one that runs cells without a person.
    pub fn is_batch(&self) -> bool {
        self.settings.front_end == FrontEnd::Other && self.batch == Batch::Unattended
    }

    /// Takes the end of the kernel under such a front end. What waits for a reply gets none, as directly;
    /// the notebook reads why its cell ended.
    pub(super) fn end_with_kernel(&mut self, now: Now, ending: &Ending) {
        let under_way = |request: &Request| {
            request.role == Role::Cell
                && request.sent
                && !request.replied
                && request.answer == Answer::FromKernel
        };
        for key in self.requests.keys(under_way) {
            let Some(request) = self.requests.remove(&key) else {
                continue;
            };
            let error = voice::error(ending);
            let error = self
                .voice
                .publish(now, "error", request.header.clone(), &error);
            self.actions.push_back(Action::Publish(error));
            if request.journalled {
                let execution = done(self.generation, &key, &request, "error".into());
                self.actions.push_back(Action::Journal(execution));
            }
        }
        self.batch = Batch::Over;
        self.requests = Requests::default();
        self.timers = Timers::default();
        self.clients.values_mut().for_each(Client::drop_held);
        self.kernel = Kernel::Ended(ending.clone());
        self.actions.push_back(Action::Die(ending.clone()));
    }
}
