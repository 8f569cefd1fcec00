//! `nb search`: text in sources and outputs, of one notebook or many.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use regex::{Regex, RegexBuilder};
use serde_json::json;

use crate::api::problem::{Problem, ProblemKind, causes};
use crate::cli::Context;
use crate::cli::args::first_notebook;
use crate::cli::commands::{Command, Group};
use crate::cli::render::print;
use crate::editing::gather::{Found, gather};
use crate::kernel::shell::quote;
use crate::notebook::{Document, SearchMatch, SearchScope};
use crate::project::Project;

/// How many characters of a line are printed.
const LINE: usize = 300;

/// How many lines are printed.
const LINES: usize = 200;

/// Find text in the cells of notebooks
///
/// Prints each line in which a match begins: NOTEBOOK CELL:LINE: TEXT, or NOTEBOOK CELL:outN:LINE: TEXT
/// where it is in the cell's output N. Sources and outputs are searched, as people read them (without colours). What could not
/// be read is told on stderr, and the rest searched. Nothing found is no failure: the exit code is 0,
/// and stderr says so.
#[derive(Args, Debug)]
#[command(override_usage = "nb search [OPTIONS] PATTERN [NOTEBOOK|FOLDER]...", after_help = EXAMPLES)]
pub(crate) struct Search {
    /// A regular expression, and the notebooks; a folder stands for all below it
    #[arg(required = true, value_name = "PATTERN")]
    pub(crate) words: Vec<String>,
    /// Take the pattern as plain text
    #[arg(short = 'F', long = "fixed-strings")]
    fixed: bool,
    /// Take capital and small letters as equal
    #[arg(short = 'i', long)]
    ignore_case: bool,
    /// Search sources only
    #[arg(long, conflicts_with = "outputs")]
    source: bool,
    /// Search outputs only
    #[arg(long)]
    outputs: bool,
    /// Print at most this many lines; 0 is no limit
    #[arg(long, value_name = "LINES", default_value_t = LINES)]
    limit: usize,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

const EXAMPLES: &str = "\
Examples:
  nb search 'read_csv\\(' train.ipynb
  nb search -i warning . --outputs
  nb search -F 'df[\"a\"]' a.ipynb b.ipynb --json";

/// What was found in one notebook.
#[derive(Debug)]
struct In {
    notebook: String,
    /// With each line, as much of its cell's id as is needed.
    hits: Vec<(String, SearchMatch)>,
}

/// The arguments as they are meant.
struct Meant {
    pattern: Regex,
    within: SearchScope,
    paths: Vec<PathBuf>,
}

impl Command for Search {
    const NAME: &'static str = "search";
    const ALIASES: &'static [&'static str] = &["grep", "find"];
    const GROUP: Group = Group::Notebook;
    const IS_FIRST: bool = true;

    fn notebook(&self) -> Option<PathBuf> {
        first_notebook(&self.words)
    }

    fn json(&self) -> bool {
        self.json
    }

    fn summary() -> String {
        "nb search PATTERN".to_owned()
    }

    async fn run(self, context: &Context) -> Result<ExitCode, Problem> {
        let meant = self.meant()?;
        let mut faults = Vec::new();
        let mut found = Vec::new();
        let searched;
        if meant.paths.is_empty() {
            let page = context.page(&mut Vec::new()).await?;
            found.extend(meant.look(&page.key, &page.read()?));
            searched = 1;
        } else {
            let gathered = gather(&meant.paths)
                .map_err(|error| Problem::failed("find the notebooks", &error))?;
            faults = gathered.faults;
            if let [only] = gathered.notebooks.as_slice()
                && let Some(project) = Project::find(&only.path)
            {
                context.concerns(&project, &project.key(&only.path));
            }
            searched = gathered.notebooks.len();
            for Found { path, is_named } in gathered.notebooks {
                match opened(&path) {
                    Ok(document) => {
                        found.extend(meant.look(&path.display().to_string(), &document));
                    }
                    Err(problem) if is_named && searched == 1 => {
                        return Err(Problem::new(ProblemKind::Failed, problem));
                    }
                    Err(problem) => faults.push(problem),
                }
            }
        }
        self.tell(context, found, &faults, searched);
        Ok(ExitCode::SUCCESS)
    }
}

impl Search {
    fn meant(&self) -> Result<Meant, Problem> {
        // As everywhere, notebooks may come first; one word alone is the pattern.
        let is_notebook = |word: &&String| word.ends_with(".ipynb");
        let first = self.words.iter().take_while(is_notebook).count();
        let at = if first == self.words.len() { 0 } else { first };
        let mut paths: Vec<PathBuf> = self.words.iter().map(PathBuf::from).collect();
        paths.remove(at);
        let given = self.words.get(at).map_or("", String::as_str);
        let text = match self.fixed {
            true => regex::escape(given),
            false => given.to_owned(),
        };
        let pattern = RegexBuilder::new(&text)
            .case_insensitive(self.ignore_case)
            .multi_line(true)
            .build();
        let pattern = pattern.map_err(|error| {
            let lines: Vec<_> = error.to_string().lines().map(str::to_owned).collect();
            Problem::new(
                ProblemKind::Usage,
                format!("{given:?} is no regular expression"),
            )
            .lines(&lines)
            .hint(format!(
                "nb search -F {} takes it as plain text",
                quote(Path::new(given))
            ))
        })?;
        let within = match (self.source, self.outputs) {
            (true, _) => SearchScope::Source,
            (_, true) => SearchScope::Outputs,
            _ => SearchScope::All,
        };
        Ok(Meant {
            pattern,
            within,
            paths,
        })
    }

    fn tell(&self, context: &Context, mut found: Vec<In>, faults: &[String], searched: usize) {
        let count: usize = found.iter().map(|found| found.hits.len()).sum();
        let mut left = match self.limit {
            0 => usize::MAX,
            limit => limit,
        };
        for found in &mut found {
            found.hits.truncate(left);
            left -= found.hits.len();
        }
        if self.json {
            let matches = found.iter().flat_map(|found| {
                found.hits.iter().map(|(_, hit)| {
                    let mut object = json!(hit);
                    object["notebook"] = json!(found.notebook);
                    object
                })
            });
            let _ = context.answer(&json!({
                "matches": matches.collect::<Vec<_>>(),
                "count": count,
                "searched": searched,
                "faults": faults,
            }));
            return;
        }
        let mut text = String::new();
        for found in &found {
            for (id, hit) in &found.hits {
                let output = hit
                    .output
                    .map(|output| format!("out{output}:"))
                    .unwrap_or_default();
                let line = format!(
                    "{} {id}:{output}{}: {}\n",
                    found.notebook, hit.line, hit.text
                );
                text.push_str(&line);
            }
        }
        let _ = print::raw(text.as_bytes());
        faults
            .iter()
            .for_each(|problem| print::note(&format!("note: {problem}")));
        let notebooks = match searched {
            1 => "1 notebook".to_owned(),
            searched => format!("{searched} notebooks"),
        };
        if count == 0 {
            print::note(&format!("nothing found in {notebooks}"));
        } else if self.limit > 0 && count > self.limit {
            let left_out = count - self.limit;
            print::note(&format!(
                "{left_out} more lines; --limit 0 prints all {count}"
            ));
        }
    }
}

impl Meant {
    fn look(&self, notebook: &str, document: &Document) -> Option<In> {
        let hits: Vec<_> = document.search(&self.pattern, self.within, LINE).collect();
        if hits.is_empty() {
            return None;
        }
        let short = document.short_ids();
        let named = hits.into_iter().map(|hit| {
            let id = short.get(hit.index).copied().unwrap_or_default();
            (id.to_owned(), hit)
        });
        Some(In {
            notebook: notebook.to_owned(),
            hits: named.collect(),
        })
    }
}

/// Reads a notebook that is only searched: no project is made for it. What is wrong is told in words.
fn opened(path: &Path) -> Result<Document, String> {
    let failed = |why: &str| format!("cannot read {}: {why}", path.display());
    let found = std::fs::metadata(path).map_err(|error| failed(&causes(&error)))?;
    if !found.is_file() {
        return Err(failed("it is no file"));
    }
    let text = std::fs::read(path).map_err(|error| failed(&causes(&error)))?;
    Document::parse(text).map_err(|error| failed(&causes(&error)))
}
