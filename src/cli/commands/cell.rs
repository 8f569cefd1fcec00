//! `nb cell`: what cells hold, their outputs among it.

use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use serde_json::{Value, json};

use crate::api::problem::{Problem, ProblemKind};
use crate::cli::Context;
use crate::cli::args::cells::{Which, places};
use crate::cli::args::first_notebook;
use crate::cli::commands::cells::{about, state};
use crate::cli::commands::follow::LIMIT;
use crate::cli::commands::{Command, Group};
use crate::cli::render::preview::{Out, Previews, parsed};
use crate::cli::render::print;
use crate::editing::export::Export;
use crate::editing::page::Page;
use crate::editing::running::running;
use crate::editing::view;
use crate::execution::stale::stale;
use crate::notebook::{self, CellType, Document, Output};

/// Show cells: their source and their outputs
///
/// The source is whole. Long outputs are cut in the middle; their whole text, images and what else
/// no terminal shows are written to files in .nb/outputs/, which the answer names. Such a file is
/// that output as it is now: it goes when .nb/ holds too much, and `nb cell` makes it anew.
#[derive(Args, Debug)]
#[command(override_usage = "nb cell [OPTIONS] [NOTEBOOK] CELL...", after_help = EXAMPLES)]
pub(crate) struct Cell {
    /// The notebook, and the cells: an index (3, -1), an id or its beginning, In[12], a range (2..5)
    #[arg(value_name = "CELL", allow_negative_numbers = true)]
    pub(crate) words: Vec<String>,
    #[command(flatten)]
    which: Which,
    /// Print at most this many characters of a cell's outputs; 0 is no limit
    #[arg(long, value_name = "CHARACTERS", default_value_t = LIMIT)]
    limit: usize,
    /// Print the source and nothing else: exactly its characters, and a newline where the last is none
    #[arg(long, conflicts_with_all = ["json", "output"])]
    source_only: bool,
    /// Print this output and nothing else, whole; an image is its bytes, on a terminal its file's path
    #[arg(long, value_name = "N", conflicts_with = "json")]
    output: Option<usize>,
    /// Which form of the output is meant: text/html, image/png, ...
    #[arg(long, value_name = "TYPE", requires = "output")]
    mime: Option<String>,
    /// Print one JSON object; with --limit 0 the outputs are as the file has them
    #[arg(long)]
    pub(crate) json: bool,
}

const EXAMPLES: &str = "\
Examples:
  nb cell train.ipynb 3f2c
  nb cell 2..5 --limit 500
  nb cell 3f2c --source-only > cell.py
  nb cell -1 --output 0 > plot.png";

impl Command for Cell {
    const NAME: &'static str = "cell";
    const GROUP: Group = Group::Notebook;
    const IS_FIRST: bool = true;

    fn notebook(&self) -> Option<PathBuf> {
        first_notebook(&self.words)
    }

    fn json(&self) -> bool {
        self.json
    }

    fn summary() -> String {
        "nb cell CELL".to_owned()
    }

    async fn run(mut self, context: &Context) -> Result<ExitCode, Problem> {
        let page = context.page(&mut self.words).await?;
        let selectors = self.which.selectors(&self.words)?;
        if selectors.is_empty() {
            let problem = Problem::new(ProblemKind::Usage, "which cell is meant?");
            return Err(problem.hint("nb cells lists them"));
        }
        let view = view::open(&page, context.by())?;
        let document = &view.document;
        let places = places(document, &selectors)?;
        let cells: Vec<_> = places
            .iter()
            .filter_map(|place| Some((*place, document.cells().get(*place)?)))
            .collect();
        let _ = match self.output {
            Some(number) => match cells.as_slice() {
                [(_, cell)] => self.one_output(context, &page, cell, number)?,
                _ => return Err(Problem::new(ProblemKind::Usage, "--output is of one cell")),
            },
            None if self.source_only => {
                let sources = cells
                    .iter()
                    .map(|(_, cell)| line_ended(cell.source().into_owned()));
                print::exact(sources.collect::<String>().as_bytes())
            }
            None => self.all(context, &page, document, &cells),
        };
        if self.output.is_none() {
            cells.iter().for_each(|(_, cell)| view.shown(cell));
        }
        view.remember();
        Ok(ExitCode::SUCCESS)
    }
}

impl Cell {
    fn all(
        &self,
        context: &Context,
        page: &Page,
        document: &Document,
        cells: &[(usize, &notebook::Cell)],
    ) -> io::Result<()> {
        let limit = (self.limit > 0).then_some(self.limit);
        let runs = running(page)
            .and_then(|runs| runs.cell)
            .filter(|_| self.json);
        let places: Vec<_> = cells.iter().map(|(index, _)| *index).collect();
        let stale = stale(page, document, &places);
        let mut shown = Vec::new();
        let mut text = String::new();
        let mut out = Out::of(page, &context.caller.here);
        for (index, cell) in cells {
            let is_stale = stale.contains(index);
            if self.json && limit.is_none() {
                let outputs = cell.outputs().map(|output| parsed(&output));
                let outputs: Vec<_> = outputs.collect();
                shown.push(object(*index, cell, is_stale, runs.as_deref(), &outputs));
                continue;
            }
            let previews = Previews::of(&mut out, cell, limit);
            if self.json {
                shown.push(object(
                    *index,
                    cell,
                    is_stale,
                    runs.as_deref(),
                    &previews.json(),
                ));
            } else {
                text.push_str(&head(page, *index, cell, is_stale));
                text.push_str(&line_ended(readable(&cell.source())));
                text.push_str(&previews.text());
            }
        }
        if let Some(problem) = out.problem {
            print::note(&format!(
                "note: outputs could not be written to files: {problem}"
            ));
        }
        if self.json {
            let mut answer = about(page, document);
            answer["cells"] = json!(shown);
            context.answer(&answer)
        } else {
            print::exact(text.as_bytes())
        }
    }

    /// Prints one output, whole.
    fn one_output(
        &self,
        context: &Context,
        page: &Page,
        cell: &notebook::Cell,
        number: usize,
    ) -> Result<io::Result<()>, Problem> {
        let count = cell.outputs().count();
        let Some(raw) = cell.outputs().nth(number) else {
            let text = format!(
                "cell {} has no output {number}: it has {count}, from 0",
                cell.id()
            );
            return Err(Problem::new(ProblemKind::Failed, text));
        };
        let output = Output::read(&raw);
        let Some(mime) = self.mime.as_deref().or_else(|| best(&output)) else {
            return Ok(print::exact(line_ended(output.text).as_bytes()));
        };
        let form = Output::form(&raw, mime).ok_or_else(|| {
            let has: Vec<_> = output.data.iter().map(|data| data.mime.as_str()).collect();
            let text = format!("output {number} of cell {} has no {mime}", cell.id());
            Problem::new(ProblemKind::Failed, text).hint(match has.as_slice() {
                [] => format!("it is plain text: --output {number} alone prints it"),
                has => format!("it has {}", has.join(", ")),
            })
        })?;
        let media = output
            .data
            .iter()
            .any(|data| data.mime == mime && data.is_media());
        if !media {
            let mut text = form.bytes;
            if text.last().is_some_and(|last| *last != b'\n') {
                text.push(b'\n');
            }
            return Ok(print::exact(&text));
        }
        if !io::stdout().is_terminal() {
            return Ok(print::exact(&form.bytes));
        }
        let path = Export::of(page).write(cell.id(), number, &form.ending, &form.bytes);
        let path = path.map_err(|error| Problem::failed("write the output to a file", &error))?;
        let path = path.strip_prefix(&context.caller.here).unwrap_or(&path);
        Ok(print::line(&path.display().to_string()))
    }
}

/// Returns the form of an output that says most; none for what is only text.
fn best(output: &Output) -> Option<&str> {
    let media = output.data.iter().find(|data| data.is_media());
    let text = ["text/markdown", "text/plain", "text/latex", "text/html"];
    let text = text
        .iter()
        .find_map(|mime| output.data.iter().find(|data| data.mime == *mime));
    let found = media.or(text).or(output.data.first());
    found.map(|data| data.mime.as_str())
}

/// Returns a source as it is; for a terminal, whose escapes it may hold, with pictures of them.
fn readable(source: &str) -> String {
    if !io::stdout().is_terminal() {
        return source.to_owned();
    }
    let picture = |c: char| match c {
        '\n' | '\t' => c,
        '\u{7f}' => '\u{2421}',
        c if c < ' ' => char::from_u32(0x2400 + u32::from(c)).unwrap_or(c),
        c if c.is_control() => '\u{fffd}',
        c => c,
    };
    source.chars().map(picture).collect()
}

fn line_ended(mut text: String) -> String {
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text
}

/// The line above a cell, and what else is seen of it nowhere.
fn head(page: &Page, index: usize, cell: &notebook::Cell, is_stale: bool) -> String {
    let mut parts = vec![
        format!("=== cell {index}"),
        cell.id().to_owned(),
        cell.cell_type().to_string(),
    ];
    match (cell.cell_type(), cell.execution_count()) {
        (_, Some(count)) => parts.push(format!("In[{count}]")),
        (CellType::Code, None) => parts.push("In[ ]".to_owned()),
        _ => {}
    }
    if is_stale {
        parts.push("stale: its outputs are of an earlier source".to_owned());
    }
    parts.push(format!("revision {}", cell.revision()));
    parts.push(page.key.clone());
    let mut head = parts.join(" · ");
    head.push('\n');
    let mut more: Vec<_> = said_metadata(cell)
        .map(|said| format!("metadata {said}"))
        .into_iter()
        .collect();
    for (name, forms) in cell.attachments() {
        let forms = forms.iter().map(|form| format!(" · {form}"));
        more.push(format!("attachment {name}{}", forms.collect::<String>()));
    }
    if !more.is_empty() {
        more.push("source".to_owned());
    }
    head.extend(more.iter().map(|more| format!("--- {more}\n")));
    head
}

/// Returns the metadata that somebody set: not the times that front ends write when a cell runs.
fn said_metadata(cell: &notebook::Cell) -> Option<String> {
    let mut metadata = parsed(&cell.metadata(&[])?);
    let said = metadata.as_object_mut()?;
    for times in ["execution", "ExecuteTime", "papermill", "executionInfo"] {
        said.remove(times);
    }
    (!said.is_empty()).then(|| metadata.to_string())
}

fn object(
    index: usize,
    cell: &notebook::Cell,
    is_stale: bool,
    runs: Option<&str>,
    outputs: &[Value],
) -> Value {
    let attachments = cell.attachments().into_iter();
    let attachments = attachments.map(|(name, forms)| json!({ "name": name, "forms": forms }));
    json!({
        "index": index,
        "id": cell.id(),
        "type": cell.cell_type(),
        "execution_count": cell.execution_count(),
        "state": state(cell, cell.outputs_summary(0).failed, is_stale, runs),
        "revision": cell.revision(),
        "source": cell.source(),
        "metadata": cell.metadata(&[]).map(|metadata| parsed(&metadata)),
        "attachments": attachments.collect::<Vec<_>>(),
        "output_count": cell.outputs().count(),
        "outputs": outputs,
    })
}
