//! `nb cells`: the cells of a notebook, one line each.

use std::process::ExitCode;

use clap::Args;

use super::Context;
use super::fault::{Fault, Kind};

/// List the cells
#[derive(Args, Debug)]
pub(super) struct Cells {
    /// Print one JSON object
    #[arg(long)]
    pub(super) json: bool,
}

impl Cells {
    /// Runs the command.
    pub(super) async fn run(self, context: &Context) -> Result<ExitCode, Fault> {
        let _page = context.page(&mut Vec::new(), "nb cells").await?;
        Err(Fault::new(Kind::Failed, "it is being written"))
    }
}
