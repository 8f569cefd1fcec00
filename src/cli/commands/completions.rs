//! `nb completions`: a script for a shell.

use std::process::ExitCode;

use clap::Args;

use crate::api::problem::Problem;
use crate::cli::Context;
use crate::cli::args;
use crate::cli::commands::{Command, Group};
use crate::cli::render::print;

/// Print a completion script for a shell
///
/// For bash: nb completions bash > ~/.local/share/bash-completion/completions/nb
#[derive(Args, Debug)]
pub(crate) struct Completions {
    /// The shell
    shell: clap_complete::Shell,
}

impl Command for Completions {
    const NAME: &'static str = "completions";
    const GROUP: Group = Group::Rest;

    fn alone(&self) -> Option<ExitCode> {
        // Through a buffer: the generator panics where it cannot write.
        let mut script = Vec::new();
        let mut parser = args::parser().mut_subcommands(|command| command.hide(false));
        clap_complete::generate(self.shell, &mut parser, "nb", &mut script);
        let _ = print::raw(&script);
        Some(ExitCode::SUCCESS)
    }

    async fn run(self, _: &Context) -> Result<ExitCode, Problem> {
        Ok(ExitCode::SUCCESS)
    }
}
