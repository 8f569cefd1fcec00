//! `nb live`: keeps the notebooks that an editor has open in step with their files.

use std::process::ExitCode;

use clap::Args;

use crate::api::problem::Problem;
use crate::cli::Context;
use crate::cli::commands::Command;
use crate::{editors, pages};

/// Keep the notebooks that an editor has open in step with their files
///
/// An editor's extension starts it and speaks with it on stdin and stdout, one JSON object a line (docs/live.md). The editor
/// reports what a person types; other commands of nb then know it before it is saved. What others write comes back as
/// changes of single cells.
#[derive(Args, Debug)]
#[command(override_usage = "nb live --stdio")]
pub(crate) struct Live {
    /// Speak on stdin and stdout
    #[arg(long, required_unless_present = "pages")]
    stdio: bool,
    /// Say instead whether a page is connected to this kernel of the Jupyter server that launched the process
    #[arg(long, value_name = "KERNEL", conflicts_with = "stdio", hide = true)]
    pages: Option<String>,
}

impl Command for Live {
    async fn run(self, _context: &Context) -> Result<ExitCode, Problem> {
        let (stdin, stdout) = (tokio::io::stdin(), tokio::io::stdout());
        let served = match self.pages {
            Some(kernel) => pages::watch(kernel, stdin, stdout).await,
            None => editors::serve(stdin, stdout).await,
        };
        served.map_err(|error| Problem::failed("speak with the editor", &error))?;
        Ok(ExitCode::SUCCESS)
    }
}
