//! A notebook that was opened, as text.

use std::time::Duration;

use crate::api::time::took;
use crate::api::{OpenOutcome, OpenedNotebook};

/// Returns the line about the notebook and its kernel.
pub fn opened(answer: &OpenedNotebook) -> String {
    let session = &answer.session;
    let how = match answer.how {
        OpenOutcome::Started => "started",
        OpenOutcome::Attached => "attached",
        OpenOutcome::Finished => "started by another call",
        OpenOutcome::Joined => "attached, which another program started",
    };
    let kernelspec = session.kernelspec.as_ref();
    let name = kernelspec.map_or("?", |spec| spec.display_name.as_str());
    let created = if answer.created { "created; " } else { "" };
    let pid = match &answer.server {
        Some(server) => Some(format!(", on {server}")),
        None => answer.kernel_pid.map(|pid| format!(", pid {pid}")),
    };
    let sharing = answer.kernel_of.as_ref();
    let sharing = sharing.map(|owner| format!("shares the kernel of {owner}; "));
    format!(
        "{}: {created}{}kernel {how} ({name}{}) in {}",
        answer.notebook,
        sharing.unwrap_or_default(),
        pid.unwrap_or_default(),
        took(Duration::from_millis(answer.took_ms))
    )
}
