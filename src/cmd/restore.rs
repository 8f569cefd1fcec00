//! `nb restore`: an earlier version of a cell.

use std::process::ExitCode;

use clap::Args;

use super::Context;
use super::fault::{Fault, Kind};

/// Bring back a cell or an earlier version of one
#[derive(Args, Debug)]
pub(super) struct Restore {
    /// Print one JSON object
    #[arg(long)]
    pub(super) json: bool,
}

impl Restore {
    /// Runs the command.
    pub(super) async fn run(self, context: &Context) -> Result<ExitCode, Fault> {
        let _page = context.page(&mut Vec::new(), "nb restore").await?;
        Err(Fault::new(Kind::Failed, "it is being written"))
    }
}
