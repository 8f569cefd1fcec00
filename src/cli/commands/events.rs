//! `nb events`: prints what happens in a project, as it happens.

use std::process::ExitCode;

use clap::Args;

use crate::api::problem::Problem;
use crate::api::{self, EventsRequest, EventsStart};
use crate::cli::Context;
use crate::cli::commands::Command;
use crate::cli::render::print;
use crate::cli::terminal::{CtrlC, reader_gone};
use crate::text;

/// Print what happens in this project, as it happens, until Ctrl-C
///
/// Runs, edits, interrupts and restarts of all its notebooks and kernels, by everybody. What happened before is
/// in nb log. It ends when whoever reads its output is gone.
#[derive(Args, Debug)]
pub(crate) struct Events {}

impl Command for Events {
    async fn run(self, context: &Context) -> Result<ExitCode, Problem> {
        let mut events = api::events(&context.caller, EventsRequest::default()).await?;
        let start = EventsStart::of(&context.caller, &events)?;
        let ctrl_c = CtrlC::listen().map_err(|error| Problem::failed("wait for Ctrl-C", &error))?;
        let reader_end = reader_gone();
        if context.json && print::json(&start).is_err() {
            return Ok(ExitCode::FAILURE);
        }
        tokio::pin!(reader_end);
        loop {
            let event = tokio::select! {
                event = events.next() => event,
                () = ctrl_c.pressed() => return Ok(ExitCode::SUCCESS),
                () = &mut reader_end => return Ok(ExitCode::SUCCESS),
            };
            let shown = match context.json {
                true => print::json(&event),
                false => print::line(&text::event::line(&event)),
            };
            if shown.is_err() {
                return Ok(ExitCode::FAILURE);
            }
        }
    }
}
