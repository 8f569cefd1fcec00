//! `nb edit`: another text for a cell.

use std::process::ExitCode;

use clap::Args;

use super::Context;
use super::fault::{Fault, Kind};

/// Edit a cell
#[derive(Args, Debug)]
pub(super) struct Edit {
    /// Print one JSON object
    #[arg(long)]
    pub(super) json: bool,
}

impl Edit {
    /// Runs the command.
    pub(super) async fn run(self, context: &Context) -> Result<ExitCode, Fault> {
        let _page = context.page(&mut Vec::new(), "nb edit").await?;
        Err(Fault::new(Kind::Failed, "it is being written"))
    }
}
