//! `nb move`: a cell moved.

use std::process::ExitCode;

use clap::Args;

use super::Context;
use super::fault::{Fault, Kind};

/// Move a cell
#[derive(Args, Debug)]
pub(super) struct MoveCell {
    /// Print one JSON object
    #[arg(long)]
    pub(super) json: bool,
}

impl MoveCell {
    /// Runs the command.
    pub(super) async fn run(self, context: &Context) -> Result<ExitCode, Fault> {
        let _page = context.page(&mut Vec::new(), "nb move").await?;
        Err(Fault::new(Kind::Failed, "it is being written"))
    }
}
