//! `nb undo`: an edit taken back.

use std::process::ExitCode;

use clap::Args;

use super::Context;
use super::fault::{Fault, Kind};

/// Take an edit back
#[derive(Args, Debug)]
pub(super) struct Undo {
    /// Print one JSON object
    #[arg(long)]
    pub(super) json: bool,
}

impl Undo {
    /// Runs the command.
    pub(super) async fn run(self, context: &Context) -> Result<ExitCode, Fault> {
        let _page = context.page(&mut Vec::new(), "nb undo").await?;
        Err(Fault::new(Kind::Failed, "it is being written"))
    }
}
