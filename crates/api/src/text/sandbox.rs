//! Descriptions of sandboxes.

use std::path::Path;

use crate::project::{Mechanism, Sandbox};

/// Describes a sandbox in one line; paths below `root` are relative to it.
pub fn text(sandbox: &Sandbox, root: &Path) -> String {
    let shown = |path: &Path| {
        let inner = path.strip_prefix(root).unwrap_or(path);
        match inner.as_os_str().is_empty() {
            // The path is the project's own folder.
            true => ".".to_owned(),
            false => inner.display().to_string(),
        }
    };
    let mut parts = Vec::new();
    match &sandbox.reached {
        Some(reached) if reached.missing.is_empty() => parts.push(format!(
            "{}, tried from inside: {}",
            reached.mechanism.as_str(),
            guarantees(&reached.kept)
        )),
        Some(reached) => parts.push(format!(
            "{}, best effort: {}; NOT kept: {}",
            reached.mechanism.as_str(),
            guarantees(&reached.kept),
            reached
                .missing
                .iter()
                .map(|missing| format!("{} ({})", missing.promise, missing.why))
                .collect::<Vec<_>>()
                .join(", ")
        )),
        None => parts.push("not entered yet".to_owned()),
    }
    let mechanism = sandbox.reached.as_ref().map(|reached| reached.mechanism);
    if mechanism == Some(Mechanism::Landlock) {
        // Landlock has no rules that separate these.
        parts.push("shared with the outside: /dev/shm, your terminals".to_owned());
    }
    if sandbox.allow_net {
        parts.push("network allowed".to_owned());
    }
    let lists = [
        ("may write", &sandbox.allow_write),
        ("may read", &sandbox.allow_read),
    ];
    for (permission, paths) in lists.into_iter().filter(|(_, paths)| !paths.is_empty()) {
        let all: Vec<_> = paths.iter().map(|path| shown(path)).collect();
        parts.push(format!("{permission} {}", all.join(", ")));
    }
    parts.extend(sandbox.cpus.map(|count| match count {
        1 => "1 processor".to_owned(),
        _ => format!("{count} processors"),
    }));
    let time = sandbox.max_time_s;
    parts.extend(time.map(|seconds| format!("{seconds} s a cell")));
    parts.push(format!("scratch {}", shown(&sandbox.scratch)));
    format!("sandbox: {}", parts.join(" · "))
}

/// Lists the guarantees that hold, without the one that the kernel's own folders can be used, which
/// protects nobody.
fn guarantees(kept: &[String]) -> String {
    let own = crate::kernel::confine::guarantee::Guarantee::OwnFolders.words();
    let all: Vec<_> = kept
        .iter()
        .map(String::as_str)
        .filter(|it| *it != own)
        .collect();
    all.join(", ")
}
