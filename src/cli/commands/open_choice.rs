//! What `nb open` does where it cannot know or use a kernel: asks at the terminal, installs
//! ipykernel where that was wished, or says what to repeat.

use std::path::{Path, PathBuf};

use crate::api::problem::{Problem, ProblemKind, causes};
use crate::cli::render::hints::Commands;
use crate::cli::render::{print, problem};
use crate::cli::terminal::Lines;
use crate::kernel::environment::install::InstallCommands;
use crate::kernel::spec::candidates::KernelCandidate;
use crate::kernel::spec::selection::SelectionError;
use crate::lifecycle::install::install;
use crate::lifecycle::open::OpenOptions;
use crate::lifecycle::open_error::OpenError;

/// The choice of one notebook's kernel.
pub(crate) struct Choosing {
    notebook: PathBuf,
    installs: bool,
    /// Whether the question may be put which kernel is meant.
    asks: bool,
}

impl Choosing {
    pub(crate) fn new(notebook: &Path, installs: bool, asks: bool) -> Self {
        Self {
            notebook: notebook.to_owned(),
            installs,
            asks,
        }
    }

    /// Makes the options such that opening may be tried again.
    ///
    /// # Errors
    /// The problem where there is nothing to be done here.
    pub(crate) async fn again(
        &mut self,
        error: OpenError,
        options: &mut OpenOptions,
    ) -> Result<(), Problem> {
        match &error {
            OpenError::Choose(SelectionError::NoIpykernel { install, .. })
                if std::mem::take(&mut self.installs) =>
            {
                run(install)?;
                if options.python.is_some() {
                    options.python = Some(install.python.clone());
                }
                return Ok(());
            }
            OpenError::Choose(SelectionError::Ambiguous { candidates }) if self.asks => {
                print::note(&format!("{}:", causes(&error)));
                if let Some(candidate) = ask(candidates).await {
                    match candidate.option() {
                        ("--kernel", name) => options.kernel = Some(name),
                        (_, python) => options.python = Some(python.into()),
                    }
                    return Ok(());
                }
                return Err(Problem::new(ProblemKind::Usage, "none was chosen"));
            }
            _ => {}
        }
        let lines = match &error {
            OpenError::Choose(SelectionError::Ambiguous { candidates }) => listed(candidates),
            _ => Vec::new(),
        };
        let commands = Commands::on(&self.notebook);
        let problem = Problem::from(error).more_lines(&lines);
        Err(problem::completed(problem, &commands))
    }
}

fn run(wanted: &InstallCommands) -> Result<(), Problem> {
    print::note(&format!("installs ipykernel: {wanted}"));
    let done = install(wanted);
    done.map_err(|error| {
        Problem::new(ProblemKind::Failed, causes(&error)).hint(format!("run it by hand: {wanted}"))
    })
}

/// Returns the candidates in a line each.
fn listed(candidates: &[KernelCandidate]) -> Vec<String> {
    let rows: Vec<_> = candidates
        .iter()
        .map(|candidate| {
            let display = candidate
                .spec
                .as_ref()
                .map_or("", |spec| &spec.display_name);
            let path = candidate.path.display().to_string();
            [
                candidate.name.clone(),
                display.to_owned(),
                candidate.source.clone(),
                path,
            ]
        })
        .collect();
    let lines = crate::cli::render::columns::lines(&rows).into_iter();
    lines.map(|line| line.trim_end().to_owned()).collect()
}

async fn ask(candidates: &[KernelCandidate]) -> Option<&KernelCandidate> {
    for (at, line) in listed(candidates).iter().enumerate() {
        print::note(&format!("  {}  {line}", at + 1));
    }
    let lines = Lines::new();
    loop {
        let question = format!(
            "Which one is meant? [1-{}, nothing for none] ",
            candidates.len()
        );
        let answer = lines.ask(&question, false).await?;
        let answer = answer.trim();
        if answer.is_empty() {
            return None;
        }
        let number: Option<usize> = answer.parse().ok();
        let chosen = number.and_then(|number| candidates.get(number.checked_sub(1)?));
        if chosen.is_some() {
            return chosen;
        }
    }
}
