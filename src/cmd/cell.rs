//! `nb cell`: one cell, its source and outputs.

use std::process::ExitCode;

use clap::Args;

use super::Context;
use super::fault::{Fault, Kind};

/// Show a cell
#[derive(Args, Debug)]
pub(super) struct Cell {
    /// Print one JSON object
    #[arg(long)]
    pub(super) json: bool,
}

impl Cell {
    /// Runs the command.
    pub(super) async fn run(self, context: &Context) -> Result<ExitCode, Fault> {
        let _page = context.page(&mut Vec::new(), "nb cell").await?;
        Err(Fault::new(Kind::Failed, "it is being written"))
    }
}
