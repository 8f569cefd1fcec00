//! Opens the page in the user's browser.

use std::process::{Command, Stdio};

use crate::kernel::environment::trust;
use crate::kernel::variables::ProcessVariables;

/// The programs that open an address: of Linux, and of macOS.
const OPENERS: [&str; 2] = ["xdg-open", "open"];

/// Opens an address in the user's browser. Returns whether a program for that was started.
pub fn open_in_browser(url: &str) -> bool {
    let mut programs = OPENERS.into_iter();
    programs.any(|program| starts(program, url))
}

fn starts(program: &str, url: &str) -> bool {
    let Some(program) = trust::on_path(program, &ProcessVariables) else {
        return false;
    };
    let mut command = Command::new(program);
    let command = command.arg(url).stdin(Stdio::null());
    command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .is_ok()
}
