//! The kernel's lives, as the bridge sees them.

/// What is known of the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kernel {
    /// It is being started or restarted: requests wait, for 60 s at most.
    Awaited,
    /// It runs.
    Live {
        /// Counts its lives; another number is another process with other variables.
        generation: u64,
        /// How it is interrupted.
        interrupt: Interrupt,
    },
    /// It ended, and nobody is starting another: requests are answered with this.
    Ended(Ending),
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
