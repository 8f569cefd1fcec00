//! `nb clear`: outputs removed.

use std::process::ExitCode;

use clap::Args;

use super::Context;
use super::fault::{Fault, Kind};

/// Remove outputs
#[derive(Args, Debug)]
pub(super) struct Clear {
    /// Print one JSON object
    #[arg(long)]
    pub(super) json: bool,
}

impl Clear {
    /// Runs the command.
    pub(super) async fn run(self, context: &Context) -> Result<ExitCode, Fault> {
        let _page = context.page(&mut Vec::new(), "nb clear").await?;
        Err(Fault::new(Kind::Failed, "it is being written"))
    }
}
