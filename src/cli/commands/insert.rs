//! `nb insert`: adds a cell.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use crate::api::problem::{Problem, ProblemKind};
use crate::cli::Context;
use crate::cli::args::cells::CellPosition;
use crate::cli::args::metadata::Metadata;
use crate::cli::args::source::Source;
use crate::cli::args::take_notebook;
use crate::cli::commands::Command;
use crate::cli::commands::change::WriteOptions;
use crate::cli::commands::exec::ExecAfterEdit;
use crate::hint;
use crate::hint::{Verb, nb};
use crate::notebook::{CellType, Operation, read_percent};

/// Insert a cell: at the end, or where you say
///
/// The first word is the notebook if it ends in .ipynb, the last one the text, and one before it
/// the index that the cell takes. The text is taken as it is; `-` reads it from stdin. A text that begins with
/// a dash stands behind `--`, or in --source.
#[derive(Args, Debug)]
#[command(override_usage = "nb insert [OPTIONS] [NOTEBOOK] [INDEX] SOURCE", after_help = EXAMPLES)]
pub(crate) struct Insert {
    /// The notebook, the index that the cell takes, and its text
    #[arg(value_name = "SOURCE", allow_negative_numbers = true)]
    pub(crate) words: Vec<String>,
    #[command(flatten)]
    source: Source,
    #[command(flatten)]
    position: CellPosition,
    /// Put it at this index, from 0; -1 is before the last cell
    #[arg(
        short = 'i',
        long = "at",
        aliases = ["index", "insert-at"],
        value_name = "INDEX",
        allow_negative_numbers = true,
        group = "place"
    )]
    at: Option<i64>,
    /// What it is
    #[arg(short = 't', long = "type", value_name = "TYPE", default_value = "code", value_parser = cell_type)]
    cell_type: CellType,
    /// Its id; without it, eight random digits as Jupyter makes them
    #[arg(long)]
    id: Option<String>,
    /// The text has several cells: `# %%` begins a code cell, `# %% [markdown]` a text cell
    #[arg(long, conflicts_with_all = ["id", "cell_type"])]
    cells: bool,
    #[command(flatten)]
    metadata: Metadata,
    #[command(flatten)]
    after_edit: ExecAfterEdit,
    #[command(flatten)]
    writing: WriteOptions,
}

const EXAMPLES: &str = "\
Examples:
  nb insert analysis.ipynb 'x = 1'               at the end
  nb insert analysis.ipynb 0 '# Title' -t markdown
  nb insert -a 3f2c - <<'EOF'                    after cell 3f2c, the text from stdin
  for x in data:
      print(x)
  EOF
  nb insert --before 3f2c --file cell.py
  nb insert -x --cells - <<'EOF'                 several cells
  # %% [markdown]
  # # Title
  # %%
  x = 1
  EOF
  nb insert -x 'df.head()'                       and run it
  nb insert -s '-x'                              a text that reads as an option";

impl Command for Insert {
    fn take_notebook(&mut self) -> Option<PathBuf> {
        take_notebook(&mut self.words)
    }

    async fn run(self, context: &Context) -> Result<ExitCode, Problem> {
        let operations = match (self.operation()?, self.cells) {
            (operation, false) => vec![operation],
            (operation, true) => several(operation)?,
        };
        let request = self.writing.request(operations);
        self.after_edit.edit(context, request, "insert").await
    }
}

impl Insert {
    /// Parses the words into an operation, without reading the notebook.
    fn operation(&self) -> Result<Operation, Problem> {
        let usage = |text: &str| Err(Problem::new(ProblemKind::Usage, text));
        let (place, word) = match (self.words.as_slice(), self.source.is_given()) {
            ([], _) => (None, None),
            ([place], true) => (Some(place), None),
            ([source], false) => (None, Some(source)),
            ([place, source], false) => (Some(place), Some(source)),
            _ => return usage("more than one text is given: put the text in quotes"),
        };
        let placed = self.position.is_given() || self.at.is_some();
        let at = match place {
            Some(_) if placed => return usage("more than one place is given"),
            Some(place) => Some(place.parse().map_err(|_| {
                let message =
                    format!("{place:?} is not an index: use a number, or -1 for the last cell");
                Problem::new(ProblemKind::Usage, message)
                    .hint("after a cell: -a CELL; before it: -b CELL")
            })?),
            None => self.at,
        };
        let word = word.map(String::as_str);
        let Some(source) = self.source.read(word)? else {
            let insert = || nb(Verb::Insert);
            return Err(
                Problem::new(ProblemKind::Usage, "there is no text for the cell")
                    .hint(hint![
                        insert().word("SOURCE"),
                        ", ",
                        insert().word("-"),
                        " reads stdin, ",
                        insert().option("--file").word("PATH")
                    ])
                    .hint(hint!["an empty cell: ", insert().option("-s").word("")]),
            );
        };
        let (after, before) = self.position.selectors()?;
        Ok(Operation::Insert {
            after,
            before,
            at,
            id: self.id.clone(),
            cell_type: Some(self.cell_type),
            source,
            metadata: self.metadata.object()?,
        })
    }
}

/// Makes an operation of each cell in the text of one.
fn several(operation: Operation) -> Result<Vec<Operation>, Problem> {
    let Operation::Insert {
        after,
        before,
        at,
        source,
        metadata: common,
        ..
    } = operation
    else {
        return Ok(vec![operation]);
    };
    let cells = read_percent(&source).map_err(|error| {
        Problem::new(ProblemKind::Usage, error.to_string())
            .hint("# %% [markdown] id=\"3f2c\" tags=[\"draft\"] begins a text cell")
            .hint(
                "a text in a dialect of Jupytext: jupytext --to ipynb FILE makes a notebook of it",
            )
    })?;
    if cells.is_empty() {
        return Err(Problem::new(
            ProblemKind::Usage,
            "there is no cell in the text",
        ));
    }
    let cells = cells.into_iter().zip(0..);
    let operations = cells.map(|(cell, nth)| Operation::Insert {
        after: after.clone(),
        before: before.clone(),
        // From the end, each comes before the same cell.
        at: at.map(|at| if at < 0 { at } else { at + nth }),
        id: cell.id,
        cell_type: Some(cell.cell_type),
        source: cell.source,
        metadata: cell.metadata.or_else(|| common.clone()),
    });
    let mut operations: Vec<_> = operations.collect();
    if after.is_some() {
        // Each comes directly after the same cell.
        operations.reverse();
    }
    Ok(operations)
}

/// Parses a cell type.
pub(crate) fn cell_type(word: &str) -> Result<CellType, String> {
    match word {
        "md" => Ok(CellType::Markdown),
        word => word
            .parse()
            .map_err(|_| "a cell is code, markdown or raw".to_owned()),
    }
}
