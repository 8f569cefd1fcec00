//! `nb search`: text found in sources and outputs.

use std::process::ExitCode;

use clap::Args;

use super::Context;
use super::fault::{Fault, Kind};

/// Find text in sources and outputs
#[derive(Args, Debug)]
pub(super) struct Search {
    /// Print one JSON object
    #[arg(long)]
    pub(super) json: bool,
}

impl Search {
    /// Runs the command.
    pub(super) async fn run(self, context: &Context) -> Result<ExitCode, Fault> {
        let _page = context.page(&mut Vec::new(), "nb search").await?;
        Err(Fault::new(Kind::Failed, "it is being written"))
    }
}
