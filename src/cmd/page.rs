//! Which notebook's cells a command means, and what is common to the commands on cells.

use std::path::Path;

use super::Context;
use super::fault::{Fault, Kind, causes};
use crate::ops::page::{Page, PageError};

impl Context {
    /// Returns the notebook that a command means: the first of its words where that ends in
    /// `.ipynb`, which is taken from them, else what `-n` or the settings name, else the only open
    /// one. `command` is what was typed, without a notebook.
    pub(super) async fn page(&self, words: &mut Vec<String>, command: &str) -> Result<Page, Fault> {
        let first = words.first().filter(|word| word.ends_with(".ipynb"));
        let named = match first {
            Some(_) => Some(words.remove(0).into()),
            None => self.notebook.clone(),
        };
        let path = match named {
            Some(path) => path,
            None => self.target(None, command).await?.session.notebook,
        };
        let page = page_of(&path)?;
        self.concerns(&page.project, &page.key);
        Ok(page)
    }
}

fn page_of(path: &Path) -> Result<Page, Fault> {
    Ok(Page::of(path)?)
}

impl From<PageError> for Fault {
    fn from(error: PageError) -> Self {
        let fault = Self::new(Kind::Failed, causes(&error));
        match &error {
            PageError::Missing { path } => fault.hint(format!(
                "nb open {} makes it, and starts a kernel",
                crate::kernel::python::quote(path)
            )),
            _ => fault,
        }
    }
}
