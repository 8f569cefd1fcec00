//! Edits: their common arguments, and the printing of their answers.

use std::io;
use std::process::ExitCode;

use clap::Args;

use crate::api::problem::Problem;
use crate::api::{self, EditAnswer, EditPolicy, EditRequest};
use crate::cli::Context;
use crate::cli::render::conflict::with_repeat;
use crate::cli::render::{print, problem};
use crate::notebook::Operation;
use crate::text::edit::lines;

/// How a notebook is written.
#[derive(Args, Debug, Default)]
pub(crate) struct WriteOptions {
    /// Write over what others have changed since you saw it: the last writer wins
    #[arg(long)]
    pub(crate) force: bool,
    /// Do not wait while a front end's own cell runs in this notebook
    #[arg(long)]
    pub(crate) now: bool,
}

impl WriteOptions {
    /// Returns the write policy.
    pub(crate) fn policy(&self) -> EditPolicy {
        EditPolicy {
            force: self.force,
            now: self.now,
        }
    }

    /// Makes a request of operations on a notebook.
    pub(crate) fn request(&self, operations: Vec<Operation>) -> EditRequest {
        EditRequest {
            operations,
            is_list: false,
            policy: self.policy(),
        }
    }
}

impl Context {
    /// Applies operations to a notebook and prints the result; `command` is the subcommand's name.
    pub(crate) async fn edit(
        &self,
        request: EditRequest,
        command: &str,
    ) -> Result<ExitCode, Problem> {
        let mut answer = self.edited(request, command).await?;
        let code = self.take_error(&mut answer, command);
        self.print(&answer, |answer| self.print_edit(answer))?;
        Ok(code)
    }

    /// Applies operations to a notebook.
    pub(crate) async fn edited(
        &self,
        request: EditRequest,
        command: &str,
    ) -> Result<EditAnswer, Problem> {
        let result = api::edit(&self.caller, request).await;
        result.map_err(|problem| with_repeat(problem, command))
    }

    /// Completes the commands in the hints of an answer's problem, and returns the exit code.
    pub(crate) fn take_error(&self, answer: &mut EditAnswer, command: &str) -> ExitCode {
        let error = answer.error.take().map(|error| with_repeat(error, command));
        answer.error = error.map(|error| problem::completed(error, &self.commands()));
        let kind = answer.error.as_ref().map(|error| error.kind);
        kind.map_or(ExitCode::SUCCESS, problem::code)
    }

    /// Prints the result of an edit, including conflicts.
    pub(crate) fn print_edit(&self, answer: &EditAnswer) -> io::Result<()> {
        let printed = print::lines(lines(answer));
        let commands = self.commands();
        let notes = answer.notes.iter();
        notes.for_each(|note| print::note(&commands.complete(note)));
        if let Some(error) = &answer.error {
            problem::report(error, false);
        }
        printed
    }
}
