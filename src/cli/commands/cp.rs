//! `nb cp`: copies files to a server and back.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use indicatif::{HumanBytes, ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::api::problem::Problem;
use crate::api::{self, CopiedItem, CopyRequest};
use crate::cli::Context;
use crate::cli::commands::Command;
use crate::cli::render::{columns, print};
use crate::notebook::visible_line;

/// Copy files to a server, or from one
///
/// NAME:PATH is a path below the root of the server NAME (see nb server). A copy that was broken off
/// goes on where it was when the command is repeated. Sizes are compared, and checksums where the
/// server tells them (Jupyter Server 2.11 and later); only then the copy gets its name.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Cp {
    /// The files, and last the folder or the new name; either side is on one server
    #[arg(required = true, num_args = 2.., value_names = ["FILE", "DESTINATION"])]
    words: Vec<PathBuf>,
    /// Replace files that are there with another content
    #[arg(short, long)]
    force: bool,
}

const EXAMPLES: &str = "\
Examples:
  nb cp train.csv test.csv gpu:data/
  nb cp gpu:models/best.pt .";

impl Command for Cp {
    async fn run(self, context: &Context) -> Result<ExitCode, Problem> {
        let request = CopyRequest {
            words: self.words,
            force: self.force,
        };
        // Nothing is drawn if stderr is not a terminal.
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        let form = "{msg} {wide_bar} {bytes} of {total_bytes} {bytes_per_sec} {eta}";
        let style = ProgressStyle::with_template(form);
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        let mut progress = |name: &str, at: u64, size: u64| {
            if bar.message() != name {
                bar.reset();
                bar.set_message(visible_line(name).into_owned());
            }
            bar.set_length(size);
            bar.set_position(at);
        };
        let result = api::copy(&context.caller, request, &mut progress).await;
        bar.finish_and_clear();
        context.print(&result?, |answer| {
            let rows = answer.files.iter().map(row);
            print::lines(columns::lines(&rows.collect::<Vec<_>>()))?;
            print::notes(&answer.notes);
            Ok(())
        })
    }
}

fn row(file: &CopiedItem) -> [String; 3] {
    let resumed = match file.resumed_bytes {
        0 => String::new(),
        there if there == file.size_bytes => "was there".to_owned(),
        there => format!("{} were there", HumanBytes(there)),
    };
    let size = HumanBytes(file.size_bytes).to_string();
    [file.to.clone(), size, resumed]
}
