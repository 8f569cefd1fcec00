//! Landlock's part of a sandbox: which files may be read and written, and no signals outside.

use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, LandlockStatus, PathBeneath, PathFd,
    Ruleset, RulesetAttr, RulesetCreated, RulesetCreatedAttr, Scope,
};

use super::view::{FilesystemView, NETWORK_SETTINGS, SETTINGS};
use crate::kernel::environment::tools::SYSTEM;

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

/// Puts the rules on inside bubblewrap, where nothing but the view is mounted: a second wall.
///
/// It also keeps apart what is mounted only for reading and can be written all the same, as pipes
/// with a name are, and parts the kernel from the first process of its namespace. Where the
/// network is shared with the outside, so are its abstract sockets: they are out of reach by this.
pub(super) fn apply_inside(view: &FilesystemView, program: &Path) -> Result<String, RulesError> {
    let mut rules = begin()?;
    // Lists of folders tell of nothing but the view.
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
    for path in writable.chain([Path::new("/tmp"), Path::new("/dev")]) {
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

/// Lets a folder be read but for what is hidden in it.
///
/// A rule is for all that lies below, and none takes away what another gave. So where something
/// is hidden, there is a rule for each of its neighbours instead, as they are now: what is put
/// beside it later cannot be read. Names can be listed everywhere.
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
        // A link's target would be opened by the rule, wherever it is.
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
