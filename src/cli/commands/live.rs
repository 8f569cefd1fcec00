//! `nb live`: keeps the notebooks that an editor has open in step with their files.

use std::path::PathBuf;
use std::pin::Pin;
use std::process::ExitCode;

use clap::Args;
use tokio::sync::mpsc;

use crate::api::caller::{Caller, CallerSettings};
use crate::api::problem::Problem;
use crate::api::{StaleReason, StaleWatch, WatchRequest};
use crate::cli::Context;
use crate::cli::commands::Command;
use crate::editors::{self, StaleMark};
use crate::pages;

/// Keep the notebooks that an editor has open in step with their files
///
/// An editor's extension starts it and speaks with it on stdin and stdout, one JSON object a line (docs/live.md). The editor
/// reports what a person types; other commands of nb then know it before it is saved. What others write comes back as
/// changes of single cells.
#[derive(Args, Debug)]
#[command(override_usage = "nb live --stdio")]
pub(crate) struct Live {
    /// Speak on stdin and stdout
    #[arg(long, required_unless_present = "pages")]
    stdio: bool,
    /// Say instead whether a page is connected to this kernel of the Jupyter server that launched the process
    #[arg(long, value_name = "KERNEL", conflicts_with = "stdio", hide = true)]
    pages: Option<String>,
}

impl Command for Live {
    async fn run(self, _context: &Context) -> Result<ExitCode, Problem> {
        let (stdin, stdout) = (tokio::io::stdin(), tokio::io::stdout());
        let served = match self.pages {
            Some(kernel) => pages::watch(kernel, stdin, stdout).await,
            None => editors::serve(stdin, stdout, follow_stale).await,
        };
        served.map_err(|error| Problem::failed("speak with the editor", &error))?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Tells which cells of a notebook have outputs that are out of date.
fn follow_stale(
    notebook: PathBuf,
    lists: mpsc::Sender<Vec<StaleMark>>,
) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    Box::pin(async move {
        if watch_stale(notebook, &lists).await.is_err() {
            // It is not known any more.
            let _ = lists.send(Vec::new()).await;
        }
    })
}

async fn watch_stale(
    notebook: PathBuf,
    lists: &mpsc::Sender<Vec<StaleMark>>,
) -> Result<(), Problem> {
    let caller = Caller::of(CallerSettings {
        working_dir: notebook.parent().unwrap_or(&notebook).to_owned(),
        notebook: Some(notebook),
        name: None,
        on_terminal: false,
        command: "nb".to_owned(),
        progress: |_| {},
        gets_json: false,
        has_own_thread: false,
    })?;
    let mut watch = StaleWatch::begin(&caller, WatchRequest::default()).await?;
    loop {
        let stale = watch.next(&caller).await?.stale.into_iter();
        // A cell that was not run shows that by itself: it has no count.
        let shown = stale.filter(|it| it.stale.why != StaleReason::NotRun);
        let cells = shown.map(|it| StaleMark {
            cell: it.id,
            why: it.stale.text,
        });
        if lists.send(cells.collect()).await.is_err() {
            return Ok(());
        }
    }
}
