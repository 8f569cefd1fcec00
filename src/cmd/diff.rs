//! `nb diff`: what differs between two versions, cell by cell.

use std::process::ExitCode;

use clap::Args;

use super::Context;
use super::fault::{Fault, Kind};

/// Show what differs, cell by cell
#[derive(Args, Debug)]
pub(super) struct Diff {
    /// Print one JSON object
    #[arg(long)]
    pub(super) json: bool,
}

impl Diff {
    /// Runs the command.
    pub(super) async fn run(self, context: &Context) -> Result<ExitCode, Fault> {
        let _page = context.page(&mut Vec::new(), "nb diff").await?;
        Err(Fault::new(Kind::Failed, "it is being written"))
    }
}
