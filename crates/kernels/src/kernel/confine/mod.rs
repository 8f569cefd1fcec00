//! Confinement of kernels: a sandbox of bubblewrap or Landlock with filtered system calls, or a container.

mod bubblewrap;
pub mod container;
#[cfg(target_os = "linux")]
mod enter;
pub mod guarantee;
#[cfg(target_os = "linux")]
mod landlock;
pub mod outcome;
#[cfg(target_os = "linux")]
mod privileges;
#[cfg(target_os = "linux")]
mod probe;
pub mod program_folders;
pub mod sandbox;
#[cfg(target_os = "linux")]
mod seccomp;
pub mod view;

#[cfg(target_os = "linux")]
pub(super) use enter::entry;

/// Runs this process's part of a start in a sandbox; this system has none.
#[cfg(not(target_os = "linux"))]
pub(super) fn entry() -> Option<std::process::ExitCode> {
    None
}
