//! The state of the kernel, as the caller gives it to the bridge.

use bytes::Bytes;

/// What is known of the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kernel {
    /// It is not known yet which notebook, and so which kernel, the front end means.
    ///
    /// What every connecting client asks is answered by the bridge, and everything else waits.
    Unresolved {
        /// The content of a `kernel_info_reply` to answer with; a plain one where none is known.
        info: Option<Bytes>,
    },
    /// It is being started or restarted: requests wait, for 60 s at most.
    Awaited,
    /// It runs.
    Live {
        /// The number of the process; another one has other variables.
        generation: u64,
        /// How it is interrupted.
        interrupt: Interrupt,
        /// The content of its `kernel_info_reply`: the answer while it is busy.
        info: Option<Bytes>,
    },
    /// It exited unexpectedly: a person's next cell starts another, everything else is answered with this.
    Died(Ending),
    /// It ended, and nobody is starting another: requests are answered with this.
    Ended(Ending),
}

impl Kernel {
    /// Returns whether messages can be sent to it.
    pub(super) fn is_live(&self) -> bool {
        matches!(self, Self::Live { .. })
    }

    /// Returns whether both are the same process; what is known of it may differ.
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

    /// Returns what is answered in its stead, where there is none and none is on its way.
    pub(super) fn ending(&self) -> Option<&Ending> {
        match self {
            Self::Died(ending) | Self::Ended(ending) => Some(ending),
            Self::Unresolved { .. } | Self::Awaited | Self::Live { .. } => None,
        }
    }
}

/// How a kernelspec wants its kernel interrupted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interrupt {
    /// By `interrupt_request` on control.
    Message,
    /// By SIGINT. Such a kernel may ignore the message (IRkernel does).
    Signal,
}

/// How a kernel ended, in words for the person whose cell it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ending {
    /// The error's name: `KernelDied`, `KernelRestarted`, `KernelStopped`.
    pub name: &'static str,
    /// What happened and what to do.
    pub text: String,
}
