//! `nb fmt`: the file written as Jupyter writes it.

use std::process::ExitCode;

use clap::Args;

use super::Context;
use super::fault::{Fault, Kind};

/// Write the file as Jupyter writes it
#[derive(Args, Debug)]
pub(super) struct Fmt {
    /// Print one JSON object
    #[arg(long)]
    pub(super) json: bool,
}

impl Fmt {
    /// Runs the command.
    pub(super) async fn run(self, context: &Context) -> Result<ExitCode, Fault> {
        let _page = context.page(&mut Vec::new(), "nb fmt").await?;
        Err(Fault::new(Kind::Failed, "it is being written"))
    }
}
