//! `nb completions`: prints a completion script for a shell.

use std::process::ExitCode;

use clap::Args;

use crate::cli::commands::{Command, MakeParser};
use crate::cli::render::print;

/// Print a completion script for a shell
///
/// For bash: mkdir -p ~/.local/share/bash-completion/completions, then
/// nb completions bash > ~/.local/share/bash-completion/completions/nb
#[derive(Args, Debug)]
pub(crate) struct Completions {
    /// The shell
    shell: clap_complete::Shell,
}

impl Command for Completions {
    fn alone(&self, make_parser: MakeParser) -> Option<ExitCode> {
        // Generate into a buffer: the generator panics if it cannot write.
        let mut script = Vec::new();
        let mut parser = make_parser();
        clap_complete::generate(self.shell, &mut parser, "nb", &mut script);
        Some(print::code(&print::raw(&script)))
    }
}
