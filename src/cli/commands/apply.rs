//! `nb apply`: applies several edits, all or none.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;

use crate::api::problem::{Problem, ProblemKind};
use crate::api::{self, EditRequest};
use crate::cli::Context;
use crate::cli::args::{source, take_notebook};
use crate::cli::commands::change::WriteOptions;
use crate::cli::commands::{Command, diff};
use crate::hint;
use crate::hint::{Verb, nb};

/// Do several edits at once, all or none: a list of operations as JSON
///
/// Each operation sees what the one before left, so that indexes count anew. Cells are named as on
/// the command line: by index, id or the beginning of one, "In[12]", and where several may be meant
/// by ranges and lists; {"id": "1234"} is an id that looks like an index. The notebook is written
/// once, or, if one operation cannot be done, not at all.
#[derive(Args, Debug)]
#[command(override_usage = "nb apply [OPTIONS] [NOTEBOOK] FILE|-", after_help = EXAMPLES)]
pub(crate) struct Apply {
    /// The notebook, and a file with the list, or `-` for stdin
    #[arg(value_name = "FILE")]
    pub(crate) words: Vec<String>,
    /// Show what would differ, and write nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    writing: WriteOptions,
}

const EXAMPLES: &str = r##"Example:
  nb apply analysis.ipynb - <<'EOF'
  [
    {"op": "insert", "source": "# Title", "type": "markdown", "at": 0},
    {"op": "edit", "cell": "3f2c", "source": "x = 2", "if_rev": "9f8e7d6c5b"},
    {"op": "remove", "cell": [4, "7..=9"]}
  ]
  EOF

Operations, and what each may have (* must):
  insert   source, type (code, markdown, raw), id, metadata {…}; one of after, before, at
  edit     cell*, source, type, metadata {"key": value, or null to remove it}, if_rev
  replace  cell*, old*, new*, all (true: wherever it is), if_rev
  append   cell*, source* (lines to add at the end), if_rev
  remove   cell* (one, a range, or a list of them), if_rev
  move     cell*; one of after, before, to (its index in the end, -1 is the last)
  clear    cell (one, a range, or a list of them; without it all): outputs and counts go
  split    cell*, line* (from 0, the second cell begins with it), id (the second cell's), if_rev
  join     cells* (a range, or a list of neighbours): their texts, a newline between, in the first"##;

impl Command for Apply {
    fn take_notebook(&mut self) -> Option<PathBuf> {
        take_notebook(&mut self.words)
    }

    async fn run(self, context: &Context) -> Result<ExitCode, Problem> {
        let text = match self.words.as_slice() {
            [word] if word == "-" => source::stdin()?,
            [path] => source::file(Path::new(path))?,
            _ => {
                let message = "one list of operations is wanted";
                return Err(Problem::new(ProblemKind::Usage, message)
                    .hint(hint![
                        nb(Verb::Apply).word("-"),
                        " reads it from stdin, ",
                        nb(Verb::Apply).word("FILE"),
                        " from a file"
                    ])
                    .hint("nb apply --help tells what may be in it"));
            }
        };
        let policy = self.writing.policy();
        let request = EditRequest::of_list(&context.caller, &text, policy).await?;
        if self.dry_run {
            let answer = api::preview_edit(&context.caller, request).await?;
            return context.print(&answer, diff::show);
        }
        context.edit(request, "apply").await
    }
}
