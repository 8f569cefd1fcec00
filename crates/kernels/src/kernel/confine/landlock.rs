//! The Landlock rules of a sandbox: the files that may be read and written, and no signals outside.

use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, LandlockStatus, PathBeneath, PathFd,
    Ruleset, RulesetAttr, RulesetCreated, RulesetCreatedAttr, Scope,
};

use super::view::{FilesystemView, NETWORK_SETTINGS, SETTINGS};
use crate::kernel::environment::tools::SYSTEM;

/// Why the rules could not be applied.
#[derive(Debug, thiserror::Error)]
#[error("Landlock: {0}")]
pub(super) struct RulesError(#[from] landlock::RulesetError);

/// The newest version of Landlock whose rights are used; an older system uses those that it knows.
const ABI_KNOWN: ABI = ABI::V9;

/// Applies the rules to this thread and all processes that it starts. Returns the version of Landlock in use.
///
/// Rights that the system does not know are left out; the probes show whether a guarantee holds.
pub(super) fn apply(view: &FilesystemView) -> Result<String, RulesError> {
    let mut rules = begin()?;
    let own = std::process::id();
    let net = NETWORK_SETTINGS.iter().filter(|_| view.allow_net);
    let named = SYSTEM.iter().chain(&SETTINGS).chain(net).chain(&PROCESSES);
    let mut named: Vec<PathBuf> = named.map(PathBuf::from).collect();
    named.push(format!("/proc/{own}").into());
    named.push(view.connection_file.clone());
    for path in named {
        rules = allow(rules, &path, read())?;
    }
    let hidden: Vec<_> = view.hidden().collect();
    let folders = view.programs.iter().chain(&view.allow_read);
    for path in folders.chain([&view.workspace]) {
        rules = allow_but(rules, path, &hidden)?;
    }
    for path in view.own_folders().iter().chain(&view.allow_write) {
        rules = allow(rules, path, all())?;
    }
    for path in DEVICES.map(Path::new) {
        rules = allow(rules, path, all())?;
    }
    restrict(rules)
}

/// Applies the rules inside bubblewrap as a second barrier.
///
/// They also protect named pipes, which can be written even in a read-only mount, the first process of the
/// namespace, and, where the network is shared with the outside, the outside's abstract sockets.
pub(super) fn apply_inside(view: &FilesystemView, program: &Path) -> Result<String, RulesError> {
    let mut rules = begin()?;
    // Only the view is mounted: listing folders shows nothing else.
    rules = allow(rules, Path::new("/"), AccessFs::ReadDir.into())?;
    let net = NETWORK_SETTINGS.iter().filter(|_| view.allow_net);
    let named = SYSTEM.iter().chain(&SETTINGS).chain(net);
    let mut named: Vec<PathBuf> = named.map(PathBuf::from).collect();
    named.extend(["/proc".into(), program.to_owned()]);
    named.extend([view.connection_file.clone(), view.workspace.clone()]);
    let named = named.iter().chain(&view.programs).chain(&view.allow_read);
    for path in named {
        rules = allow(rules, path, read())?;
    }
    let own = view.own_folders();
    let writable = own.iter().chain(&view.allow_write).map(PathBuf::as_path);
    for path in writable.chain([view.inner_temporary(), Path::new("/dev")]) {
        rules = allow(rules, path, all())?;
    }
    restrict(rules)
}

fn begin() -> Result<RulesetCreated, RulesError> {
    Ok(Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(all())?
        .scope(Scope::from_all(ABI_KNOWN))?
        .create()?)
}

fn restrict(rules: RulesetCreated) -> Result<String, RulesError> {
    let status = rules.restrict_self()?;
    Ok(match status.landlock {
        LandlockStatus::Available { effective_abi, .. } => {
            format!("Landlock, version {}", effective_abi as i32)
        }
        LandlockStatus::NotEnabled => "Landlock is not enabled when the system boots".to_owned(),
        LandlockStatus::NotImplemented => "this system has no Landlock".to_owned(),
    })
}

fn read() -> BitFlags<AccessFs> {
    AccessFs::from_read(ABI_KNOWN)
}

fn all() -> BitFlags<AccessFs> {
    AccessFs::from_all(ABI_KNOWN)
}

/// Allows a folder to be read, except the hidden folders in it.
///
/// A Landlock rule applies to everything below a folder, and no rule can take away what another one allows.
/// So a folder that contains a hidden one gets a rule for each other entry that exists now; entries that are
/// made later cannot be read. Names can be listed everywhere.
fn allow_but(
    mut rules: RulesetCreated,
    folder: &Path,
    hidden: &[&Path],
) -> Result<RulesetCreated, RulesError> {
    if hidden.contains(&folder) {
        return Ok(rules);
    }
    if !hidden.iter().any(|it| it.starts_with(folder)) {
        return allow(rules, folder, read());
    }
    rules = allow(rules, folder, AccessFs::ReadDir.into())?;
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    for entry in entries {
        // A rule for a link would open its target, wherever that is.
        let kind = entry.file_type();
        let plain = kind.is_ok_and(|kind| kind.is_dir() || kind.is_file());
        if plain {
            rules = allow_but(rules, &entry.path(), hidden)?;
        }
    }
    Ok(rules)
}

fn allow(
    rules: RulesetCreated,
    path: &Path,
    access: BitFlags<AccessFs>,
) -> Result<RulesetCreated, RulesError> {
    // A missing file needs no rule.
    let Ok(opened) = PathFd::new(path) else {
        return Ok(rules);
    };
    // Rights that apply to folders only would be an error on a file.
    let access = match path.is_dir() {
        true => access,
        false => access & AccessFs::from_file(ABI_KNOWN),
    };
    Ok(rules.add_rule(PathBeneath::new(opened, access))?)
}

/// Files in /proc about the machine, not about processes.
const PROCESSES: [&str; 8] = [
    "/proc/cpuinfo",
    "/proc/meminfo",
    "/proc/stat",
    "/proc/loadavg",
    "/proc/uptime",
    "/proc/version",
    "/proc/filesystems",
    "/proc/sys",
];

/// Devices that programs need. `/dev/shm` (semaphores of multiprocessing) and `/dev/pts` (terminals of
/// `!command`, which do not exist yet) are shared with the outside, which no rule can prevent. The
/// documentation says so.
const DEVICES: [&str; 9] = [
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
    "/dev/tty",
    "/dev/ptmx",
    "/dev/pts",
    "/dev/shm",
];
