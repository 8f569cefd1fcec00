//! The processes of a bubblewrap as they are seen from outside.

use crate::kernel::process::Process;

/// Returns the first process of the namespace, and the one that it started, while that is alone.
///
/// `bwrap` waits outside for its child, which is the namespace's first process and starts the
/// program.
pub(super) fn inner(bwrap: u32) -> Option<(Process, Process)> {
    let init = child(bwrap)?;
    let program = child(init)?;
    Some((Process::of(init)?, Process::of(program)?))
}

fn child(parent: u32) -> Option<u32> {
    let entries = std::fs::read_dir("/proc").ok()?;
    let pids = entries.flatten().filter_map(|entry| {
        let name = entry.file_name();
        name.to_str()?.parse::<u32>().ok()
    });
    let parent_of = |pid: u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The command's name may hold anything; the parent is the second field behind it.
        let rest = stat.rsplit_once(')')?.1;
        rest.split_ascii_whitespace().nth(1)?.parse::<u32>().ok()
    };
    { pids }.find(|pid| parent_of(*pid) == Some(parent))
}
