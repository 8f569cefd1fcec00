//! Which notebook's cells a command means, and what is common to the commands on cells.

use std::path::{Path, PathBuf};

use super::Context;
use super::commands::as_typed;
use super::fault::{Fault, Kind, causes};
use super::print;
use crate::editing::page::{Page, PageError};
use crate::editing::transaction;
use crate::kernel::shell::quote;
use crate::kernel::variables::ProcessVariables;
use crate::lifecycle::target::{self, TargetError};

/// How many notebooks of the working directory are suggested.
const MOST_NEAR: usize = 5;

impl Context {
    /// Returns the notebook that a command means: the first of its words where that ends in
    /// `.ipynb`, which is taken from them, else what `-n`, `NB_NOTEBOOK` or the settings name, else
    /// the only open one. `command` is what was typed, without a notebook.
    ///
    /// It needs no kernel: that no notebook is meant is the fault of the words.
    pub(super) async fn page(&self, words: &mut Vec<String>, command: &str) -> Result<Page, Fault> {
        let first = words.first().filter(|word| word.ends_with(".ipynb"));
        let named = match first {
            Some(_) => Some(PathBuf::from(words.remove(0))),
            None => target::named(self.notebook.as_deref(), &ProcessVariables),
        };
        let path = match named {
            Some(path) => path,
            None => match target::resolve(None, &self.here, &ProcessVariables).await {
                Ok(target) => target.session.notebook,
                Err(error @ TargetError::NoneOpen { .. }) => {
                    let message = format!("no notebook is named, and {}", causes(&error));
                    let fault = Fault::new(Kind::Usage, message);
                    return Err(near(&self.here, &as_typed(command))
                        .into_iter()
                        .fold(fault, Fault::hint));
                }
                Err(error) => return Err(Fault::of_target(&error, &as_typed(command))),
            },
        };
        let page = page_of(&path)?;
        for note in transaction::finish(&page) {
            print::note(&format!("{}: {note}", page.path.display()));
        }
        self.concerns(&page.project, &page.key);
        Ok(page)
    }
}

fn page_of(path: &Path) -> Result<Page, Fault> {
    Ok(Page::of(path)?)
}

/// Returns the command with each of the folder's notebooks, or with none in particular.
fn near(folder: &Path, command: &str) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name());
    let mut notebooks: Vec<_> = names
        .filter(|name| Path::new(name).extension().is_some_and(|it| it == "ipynb"))
        .map(|name| format!("{command} -n {}", quote(Path::new(&name))))
        .collect();
    notebooks.sort();
    notebooks.truncate(MOST_NEAR);
    if notebooks.is_empty() {
        notebooks.push(format!("{command} -n NOTEBOOK.ipynb"));
    }
    notebooks
}

impl From<PageError> for Fault {
    fn from(error: PageError) -> Self {
        let fault = Self::new(Kind::Failed, causes(&error));
        hint(&error).into_iter().fold(fault, Self::hint)
    }
}

/// Returns what may be done about a notebook that cannot be read.
pub(super) fn hint(error: &PageError) -> Option<String> {
    match error {
        PageError::Missing { path } => Some(format!(
            "nb open {} makes it, and starts a kernel",
            quote(path)
        )),
        PageError::Empty { path } => Some(format!(
            "if there is nothing to get back: rm {0} && nb open {0}",
            quote(path)
        )),
        _ => None,
    }
}
