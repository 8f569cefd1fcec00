//! `interrupt`: interrupts what a kernel runs.

use serde::Serialize;

use super::caller::Caller;
use super::envelope::Answer;
use super::problem::Problem;
use crate::lifecycle;
use crate::lifecycle::consent::KernelAction;
use crate::project::InterruptMode;

/// Which kernel is interrupted.
#[derive(Clone, Debug, Default)]
pub struct InterruptRequest {
    /// Whether to interrupt even a request of another actor.
    pub force: bool,
}

/// A kernel that was interrupted.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct InterruptAnswer {
    /// The notebook's key in its project.
    pub notebook: String,
    /// Always true.
    pub interrupted: bool,
    /// How: by `signal` or by `message`, as its kernelspec has it.
    pub mode: &'static str,
    /// Which of the session's kernels it was.
    pub kernel_generation: u64,
}

impl Answer for InterruptAnswer {
    fn tells_generation(&self) -> bool {
        true
    }
}

/// Interrupts what a kernel runs. An interrupt does not disturb an idle kernel.
///
/// # Errors
/// The running request is another actor's, or the kernel cannot be reached.
pub async fn interrupt(
    caller: &Caller,
    request: InterruptRequest,
) -> Result<InterruptAnswer, Problem> {
    let target = caller.target().await?;
    caller
        .consent(KernelAction::Interrupt, &target, request.force)
        .await?;
    let mode =
        lifecycle::interrupt::interrupt(&target.project, &target.key, &target.session, caller.by())
            .await?;
    Ok(InterruptAnswer {
        notebook: target.notebook_key,
        interrupted: true,
        mode: match mode {
            InterruptMode::Signal => "signal",
            InterruptMode::Message => "message",
        },
        kernel_generation: target.session.generation,
    })
}
