//! The programs of agents, found by their names.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use crate::kernel::environment::trust::StartedByName;
use crate::kernel::variables::ProcessVariables;

/// The agents that speak the protocol: the name, and the command.
pub(super) const AGENTS: [(&str, &[&str]); 6] = [
    ("claude", &["claude-agent-acp"]),
    ("codex", &["codex-acp"]),
    ("gemini", &["gemini", "--acp"]),
    ("goose", &["goose", "acp"]),
    ("opencode", &["opencode", "acp"]),
    ("qwen", &["qwen", "--acp"]),
];

/// Says whether there is a program of this path, or of this name on `PATH`.
pub(super) fn is_program(program: &str, path: &OsStr) -> bool {
    match program.contains('/') {
        true => is_executable(Path::new(program)),
        false => program_on(program, path).is_some(),
    }
}

fn is_executable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    let found = std::fs::metadata(path);
    found.is_ok_and(|it| it.is_file() && it.permissions().mode() & 0o111 != 0)
}

/// Returns the program of an agent's command that is found by its name. A name that `nb` has chosen is that of no program
/// of a project; one that the user has typed is what their shell would run.
pub(super) fn program_on(program: &str, path: &OsStr) -> Option<PathBuf> {
    let mut names = AGENTS.iter().filter_map(|(_, argv)| argv.first());
    let is_ours = ["npx", "uvx"].contains(&program) || names.any(|name| *name == program);
    let started = is_ours.then(|| StartedByName::known(&ProcessVariables));
    let mut files = std::env::split_paths(path).map(|folder| folder.join(program));
    files.find(|file| is_executable(file) && started.as_ref().is_none_or(|it| it.may_start(file)))
}
