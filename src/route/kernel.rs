//! The kernel's lives, as the bridge sees them.

use bytes::Bytes;

/// What is known of the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kernel {
    /// Which notebook, and so which kernel, the front end means is not known yet.
    ///
    /// What every connecting client asks is answered here, and everything else waits.
    Unnamed {
        /// The content of a `kernel_info_reply` to answer with; a plain one where none is known.
        info: Option<Bytes>,
    },
    /// It is being started or restarted: requests wait, for 60 s at most.
    Awaited,
    /// It runs.
    Live {
        /// Counts its lives; another number is another process with other variables.
        generation: u64,
        /// How it is interrupted.
        interrupt: Interrupt,
        /// The content of its `kernel_info_reply`: the answer while it is busy.
        info: Option<Bytes>,
    },
    /// It went by itself: a person's next cell brings another, everything else is answered with this.
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
    pub(super) fn is_same_life(&self, other: &Self) -> bool {
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
            Self::Unnamed { .. } | Self::Awaited | Self::Live { .. } => None,
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

/// How a kernel's life ended, in words for the person whose cell it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ending {
    /// The error's name: `KernelDied`, `KernelRestarted`, `KernelStopped`.
    pub name: &'static str,
    /// What happened and what mends it.
    pub text: String,
}
