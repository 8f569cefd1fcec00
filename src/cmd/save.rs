//! `nb save`: the file checked.

use std::process::ExitCode;

use clap::Args;

use super::Context;
use super::fault::{Fault, Kind};

/// Check the file and print its revision
#[derive(Args, Debug)]
pub(super) struct Save {
    /// Print one JSON object
    #[arg(long)]
    pub(super) json: bool,
}

impl Save {
    /// Runs the command.
    pub(super) async fn run(self, context: &Context) -> Result<ExitCode, Fault> {
        let _page = context.page(&mut Vec::new(), "nb save").await?;
        Err(Fault::new(Kind::Failed, "it is being written"))
    }
}
