//! `nb insert`: a new cell.

use std::process::ExitCode;

use clap::Args;

use super::Context;
use super::fault::{Fault, Kind};

/// Insert a cell
#[derive(Args, Debug)]
pub(super) struct Insert {
    /// Print one JSON object
    #[arg(long)]
    pub(super) json: bool,
}

impl Insert {
    /// Runs the command.
    pub(super) async fn run(self, context: &Context) -> Result<ExitCode, Fault> {
        let _page = context.page(&mut Vec::new(), "nb insert").await?;
        Err(Fault::new(Kind::Failed, "it is being written"))
    }
}
