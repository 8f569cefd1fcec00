//! `nb fmt`: notebooks in Jupyter's own style.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use serde_json::{Value, json};

use crate::api::problem::Problem;
use crate::api::problem::ProblemAnswer;
use crate::cli::Context;
use crate::cli::commands::change::Manner;
use crate::cli::commands::{Command, Group};
use crate::cli::render::print;
use crate::cli::render::problem;
use crate::editing::format::{self, Differences};
use crate::editing::gather::gather;
use crate::editing::notebook_file::NotebookFile;

/// Put notebooks into Jupyter's own style, with their real kernelspec
///
/// Byte for byte what Python's nbformat writes: indent 1, sorted keys, text as lists of lines, no
/// escapes beyond what JSON needs; numbers keep their spelling. Cells get the ids that they lack, and
/// "nb shared kernel" gives way to the notebook's own kernelspec. Sources and outputs stay as they
/// are. Without --write nothing is written: the notebooks that differ are listed, and the exit code is
/// 1 where there is one, as formatters have it.
#[derive(Args, Debug)]
#[command(override_usage = "nb fmt [OPTIONS] [NOTEBOOK|FOLDER]...", after_help = EXAMPLES)]
pub(crate) struct Fmt {
    /// The notebooks; a folder stands for all below it
    #[arg(value_name = "NOTEBOOK")]
    pub(crate) paths: Vec<PathBuf>,
    /// List the notebooks that differ, and write nothing; as without it
    #[arg(long, conflicts_with = "write")]
    check: bool,
    /// Write the notebooks that differ
    #[arg(long)]
    write: bool,
    /// Do not wait while a front end's own cell runs in a notebook
    #[arg(long, requires = "write")]
    now: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

const EXAMPLES: &str = "\
Examples:
  nb fmt --check .
  nb fmt --write train.ipynb";

/// One notebook's outcome.
struct Outcome {
    name: String,
    differences: Result<Differences, Problem>,
    notes: Vec<String>,
}

impl Command for Fmt {
    const NAME: &'static str = "fmt";
    const GROUP: Group = Group::Notebook;

    fn notebook(&self) -> Option<PathBuf> {
        self.paths.first().cloned()
    }

    fn json(&self) -> bool {
        self.json
    }

    async fn run(self, context: &Context) -> Result<ExitCode, Problem> {
        let mut faults = Vec::new();
        let outcomes: Vec<_> = if self.paths.is_empty() {
            let page = context.page(&mut Vec::new()).await?;
            vec![self.one(context, page.key.clone(), Ok(page))]
        } else {
            let gathered = gather(&self.paths)
                .map_err(|error| Problem::failed("find the notebooks", &error))?;
            faults = gathered.faults;
            if let [only] = gathered.notebooks.as_slice() {
                let page = NotebookFile::of(&only.path)?;
                context.concerns(&page.project, &page.key);
            }
            let paths = gathered.notebooks.into_iter().map(|found| found.path);
            let each = |path: PathBuf| {
                let page = NotebookFile::of(&path).map_err(Problem::from);
                self.one(context, path.display().to_string(), page)
            };
            paths.map(each).collect()
        };
        faults
            .iter()
            .for_each(|problem| print::note(&format!("note: {problem}")));
        Ok(self.tell(context, &outcomes))
    }
}

impl Fmt {
    fn one(&self, context: &Context, name: String, page: Result<NotebookFile, Problem>) -> Outcome {
        let done = page.and_then(|page| {
            if !self.write {
                return Ok((format::check(&page)?, Vec::new()));
            }
            let manner = Manner {
                now: self.now,
                ..Manner::default()
            };
            let (differences, done) = format::write(&page, &context.editor(&manner))?;
            Ok((differences, done.notes))
        });
        let (differences, notes) = match done {
            Ok((differences, notes)) => (Ok(differences), notes),
            Err(problem) => (Err(problem), Vec::new()),
        };
        Outcome {
            name,
            differences,
            notes,
        }
    }

    /// Tells what came of it; one notebook that failed keeps no other from its style.
    fn tell(&self, context: &Context, outcomes: &[Outcome]) -> ExitCode {
        let differing = outcomes
            .iter()
            .filter(|outcome| outcome.differences.as_ref().is_ok_and(|it| it.differs))
            .count();
        let failed = outcomes
            .iter()
            .filter(|outcome| outcome.differences.is_err())
            .count();
        if self.json {
            let notebooks: Vec<_> = outcomes
                .iter()
                .map(|outcome| self.object(outcome))
                .collect();
            let _ = context.answer(&json!({
                "notebooks": notebooks, "differing": differing, "failed": failed,
                "written": self.write,
            }));
        } else {
            for outcome in outcomes {
                self.tell_one(outcome);
            }
            let total = match outcomes.len() {
                1 => "1 notebook".to_owned(),
                count => format!("{count} notebooks"),
            };
            print::note(&match (self.write, differing) {
                (true, _) => format!("{differing} of {total} written"),
                (false, 0) => format!("{total}: as Jupyter writes them"),
                (false, _) => {
                    format!("{differing} of {total} would change; nb fmt --write writes them")
                }
            });
        }
        match (self.write, differing, failed) {
            (true, _, 0) | (false, 0, 0) => ExitCode::SUCCESS,
            _ => ExitCode::FAILURE,
        }
    }

    fn tell_one(&self, outcome: &Outcome) {
        match &outcome.differences {
            Ok(differences) => {
                if differences.differs {
                    let _ = print::line(&outcome.name);
                }
                for note in about(differences, self.write).iter().chain(&outcome.notes) {
                    print::note(&format!("{}: {note}", outcome.name));
                }
            }
            Err(problem) => {
                problem::report(problem, false);
            }
        }
    }

    fn object(&self, outcome: &Outcome) -> Value {
        match &outcome.differences {
            Ok(differences) => json!({
                "notebook": outcome.name,
                "differs": differences.differs,
                "ids_missing": differences.ids,
                "kernelspec": differences.kernelspec,
                "notes": outcome.notes,
            }),
            Err(problem) => {
                let mut object = json!(ProblemAnswer { error: problem });
                object["notebook"] = json!(outcome.name);
                object
            }
        }
    }
}

/// Tells of differences that are more than style.
fn about(differences: &Differences, written: bool) -> Vec<String> {
    let mut notes = Vec::new();
    let cells = match differences.ids {
        1 => "1 cell has".to_owned(),
        count => format!("{count} cells have"),
    };
    match (differences.ids, written) {
        (0, _) => {}
        (_, true) => notes.push(format!("{cells} got an id")),
        (_, false) => notes.push(format!("{cells} no id")),
    }
    if let Some(renamed) = &differences.kernelspec {
        let from = &renamed.from;
        notes.push(match (&renamed.to, written) {
            (Some(to), true) => format!("it names its own kernelspec {to} again, not {from}"),
            (Some(to), false) => format!("it names the kernelspec {from}; its own is {to}"),
            (None, _) => format!(
                "it names the kernelspec {from} still: which real kernel it had is not known; nb open starts one and knows"
            ),
        });
    }
    notes
}
