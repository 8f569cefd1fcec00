//! `nb apply`: several edits, all or none.

use std::process::ExitCode;

use clap::Args;

use super::Context;
use super::fault::{Fault, Kind};

/// Do several edits, all or none
#[derive(Args, Debug)]
pub(super) struct Apply {
    /// Print one JSON object
    #[arg(long)]
    pub(super) json: bool,
}

impl Apply {
    /// Runs the command.
    pub(super) async fn run(self, context: &Context) -> Result<ExitCode, Fault> {
        let _page = context.page(&mut Vec::new(), "nb apply").await?;
        Err(Fault::new(Kind::Failed, "it is being written"))
    }
}
