//! Landlock's part of a sandbox: which files may be read and written, and no signals outside.

use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, CompatLevel, Compatible, LandlockStatus, PathBeneath, PathFd, Ruleset,
    RulesetAttr, RulesetCreated, RulesetCreatedAttr, Scope,
};

use super::room::{NETWORK_SETTINGS, Room, SETTINGS, SYSTEM};

/// Why the rules could not be put on.
#[derive(Debug, thiserror::Error)]
#[error("Landlock: {0}")]
pub(super) struct RulesError(#[from] landlock::RulesetError);

/// The newest rights that this knows; the system uses those that it knows of them.
const ABI_KNOWN: ABI = ABI::V9;

/// Puts the rules on this thread and all that it starts. Returns how the system took them.
///
/// What the system does not know is left out: whether a promise is kept is found out afterwards,
/// by trying.
pub(super) fn apply(room: &Room) -> Result<String, RulesError> {
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(ABI_KNOWN))?
        .scope(Scope::from_all(ABI_KNOWN))?
        .create()?;
    let own = std::process::id();
    let read = AccessFs::from_read(ABI_KNOWN);
    let net = NETWORK_SETTINGS.iter().filter(|_| room.allow_net);
    let named = SYSTEM.iter().chain(&SETTINGS).chain(net).chain(&PROCESSES);
    let mut readable: Vec<PathBuf> = named.map(PathBuf::from).collect();
    readable.push(format!("/proc/{own}").into());
    readable.extend(room.programs.iter().cloned());
    readable.extend(room.allow_read.iter().cloned());
    readable.extend([room.workspace.clone(), room.connection_file.clone()]);
    for path in readable {
        rules = allow(rules, &path, read)?;
    }
    let all = AccessFs::from_all(ABI_KNOWN);
    let folders = [&room.scratch, &room.sockets];
    for path in folders.into_iter().chain(&room.allow_write) {
        rules = allow(rules, path, all)?;
    }
    for path in DEVICES.map(Path::new) {
        rules = allow(rules, path, all)?;
    }
    let status = rules.restrict_self()?;
    Ok(match status.landlock {
        LandlockStatus::Available { effective_abi, .. } => {
            format!("Landlock, version {}", effective_abi as i32)
        }
        LandlockStatus::NotEnabled => "Landlock is not enabled when the system boots".to_owned(),
        LandlockStatus::NotImplemented => "this system has no Landlock".to_owned(),
    })
}

/// Puts only the scopes on: nothing outside is signalled or reached through abstract sockets.
///
/// Where the network is shared with the outside, so are its abstract sockets.
pub(super) fn apply_scopes() -> Result<(), RulesError> {
    Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .scope(Scope::from_all(ABI_KNOWN))?
        .create()?
        .restrict_self()?;
    Ok(())
}

fn allow(
    rules: RulesetCreated,
    path: &Path,
    access: landlock::BitFlags<AccessFs>,
) -> Result<RulesetCreated, RulesError> {
    // What is not there needs no rule.
    let Ok(opened) = PathFd::new(path) else {
        return Ok(rules);
    };
    // A right that only folders have would be an error on a file.
    let access = match path.is_dir() {
        true => access,
        false => access & AccessFs::from_file(ABI_KNOWN),
    };
    Ok(rules.add_rule(PathBeneath::new(opened, access))?)
}

/// What is told of the machine and not of processes.
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

/// Devices that programs need. Two are folders that are shared with the outside, and no rule can
/// part them: `/dev/shm` holds the semaphores of multiprocessing, `/dev/pts` the terminals that
/// `!command` runs in, which do not exist yet. The user is told.
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
