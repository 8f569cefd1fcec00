//! The state of the kernel, as the caller reports it to the bridge.

use bytes::Bytes;

/// The state of the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kernel {
    /// It is not known yet which notebook the front end means, and so which kernel.
    ///
    /// The bridge answers the requests by which clients connect; all other requests wait.
    Unresolved {
        /// The content of a `kernel_info_reply` to answer with; `None` means a plain Python one.
        info: Option<Bytes>,
    },
    /// It is being started or restarted: requests wait, for 60 s at most.
    Awaited,
    /// It runs.
    Live {
        /// The number of the kernel process; another process has other variables.
        generation: u64,
        /// How it is interrupted.
        interrupt: Interrupt,
        /// The content of its `kernel_info_reply`, with which the bridge answers while the kernel is busy.
        info: Option<Bytes>,
    },
    /// It exited unexpectedly: a person's next cell starts another kernel; other requests are answered with
    /// this error.
    Died(Ending),
    /// It ended, and no other is being started: requests are answered with this error.
    Ended(Ending),
}

impl Kernel {
    /// Returns whether messages can be sent to it.
    pub(super) fn is_live(&self) -> bool {
        matches!(self, Self::Live { .. })
    }

    /// Returns whether it is not known yet which kernel the front end means.
    pub(super) fn is_unresolved(&self) -> bool {
        matches!(self, Self::Unresolved { .. })
    }

    /// Returns whether both are the same process; the rest of the state may differ.
    pub(super) fn is_same_generation(&self, other: &Self) -> bool {
        match (self, other) {
            (
                Self::Live { generation, .. },
                Self::Live {
                    generation: others, ..
                },
            ) => generation == others,
            _ => false,
        }
    }

    /// Returns the error that answers requests, if there is no kernel and none is being started.
    pub(super) fn ending(&self) -> Option<&Ending> {
        match self {
            Self::Died(ending) | Self::Ended(ending) => Some(ending),
            Self::Unresolved { .. } | Self::Awaited | Self::Live { .. } => None,
        }
    }
}

/// How a kernel is interrupted, from its kernelspec.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interrupt {
    /// By `interrupt_request` on control.
    Message,
    /// By SIGINT. Such a kernel may ignore the message (IRkernel does).
    Signal,
}

/// How a kernel ended, as the client whose cell ran reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ending {
    /// The error's name: `KernelDied`, `KernelRestarted`, `KernelStopped`.
    pub name: &'static str,
    /// Says what happened and what to do.
    pub text: String,
}

impl Ending {
    /// Makes an ending.
    pub fn new(name: &'static str, text: impl Into<String>) -> Self {
        Self {
            name,
            text: text.into(),
        }
    }
}
