//! `search`: finds text in the cells of one notebook or many.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use regex::{Regex, RegexBuilder};
use serde::Serialize;

use super::caller::{Caller, blocking};
use super::envelope::Answer;
use super::problem::{Problem, ProblemKind, causes};
use crate::editing::content::read_notebook;
use crate::editing::gather::{FoundNotebook, gather};
use crate::editing::notebook_file::NotebookFile;
use crate::editing::view;
use crate::hint;
use crate::hint::{Verb, nb};
pub use crate::notebook::SearchScope;
use crate::notebook::{Document, SearchMatch};
use crate::project::Project;

/// How many characters of a matching line are in the answer.
const LINE: usize = 300;

/// The text to find, and where.
#[derive(Clone, Debug)]
pub struct SearchRequest {
    /// A regular expression, or a text.
    pub pattern: String,
    /// Whether the pattern is plain text.
    pub is_text: bool,
    /// Whether the case of letters is ignored.
    pub ignores_case: bool,
    /// Whether sources or outputs are searched.
    pub within: SearchScope,
    /// The notebooks; a folder stands for all notebooks below it. If empty, the notebook that the caller
    /// means.
    pub paths: Vec<PathBuf>,
    /// How many lines are in the answer at most; `None` is no limit.
    pub limit: Option<usize>,
}

/// What was found.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SearchAnswer {
    /// The lines in which a match begins.
    pub matches: Vec<NotebookMatch>,
    /// How many there are, with those that are left out.
    pub count: usize,
    /// How many notebooks were searched.
    pub searched: usize,
    /// What could not be read, and why.
    pub faults: Vec<String>,
}

impl Answer for SearchAnswer {}

/// One line in which a match begins.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NotebookMatch {
    /// Where it is in the notebook.
    #[serde(flatten)]
    pub hit: SearchMatch,
    /// The notebook.
    pub notebook: String,
    /// As much of the cell's id as other requests need.
    #[serde(skip)]
    pub short_id: String,
}

/// Finds text in the cells of notebooks.
///
/// # Errors
/// The pattern is not a regular expression, or the only named notebook cannot be read.
pub async fn search(caller: &Caller, request: SearchRequest) -> Result<SearchAnswer, Problem> {
    let SearchRequest {
        is_text,
        ignores_case,
        ..
    } = request;
    let pattern = pattern(&request.pattern, is_text, ignores_case, false)?;
    let mut matches = Matches {
        pattern,
        within: request.within,
        left: request.limit.unwrap_or(usize::MAX),
        matches: Vec::new(),
        count: 0,
    };
    if request.paths.is_empty() {
        let file = caller.notebook_file().await?;
        return blocking(caller, move |caller| {
            matches.view(caller, &file, &file.key)?;
            Ok(matches.answer(1, Vec::new()))
        })
        .await;
    }
    blocking(caller, move |caller| {
        let gathered = gather(&request.paths)
            .map_err(|error| Problem::failed("find the notebooks", &error))?;
        let mut faults = gathered.faults;
        if let [only] = gathered.notebooks.as_slice()
            && let Some(project) = Project::find(&only.path)
        {
            caller.set_target_notebook(&project, &project.key(&only.path));
            if only.is_named
                && let Ok(file) = NotebookFile::of(&only.path)
            {
                matches.view(caller, &file, &only.path.display().to_string())?;
                return Ok(matches.answer(1, faults));
            }
        }
        let searched = gathered.notebooks.len();
        for FoundNotebook { path, is_named } in gathered.notebooks {
            match opened(&path) {
                Ok(document) => matches.search(&path.display().to_string(), &document),
                Err(why) if is_named && searched == 1 => {
                    return Err(Problem::new(ProblemKind::Failed, why));
                }
                Err(why) => faults.push(why),
            }
        }
        Ok(matches.answer(searched, faults))
    })
    .await
}

/// Makes a regular expression of what the caller typed.
pub(super) fn pattern(
    typed: &str,
    is_text: bool,
    ignores_case: bool,
    is_word: bool,
) -> Result<Regex, Problem> {
    let mut text = match is_text {
        true => regex::escape(typed),
        false => typed.to_owned(),
    };
    if is_word {
        text = format!(r"\b(?:{text})\b");
    }
    let pattern = RegexBuilder::new(&text)
        .case_insensitive(ignores_case)
        .multi_line(true)
        .build();
    pattern.map_err(|error| {
        let lines: Vec<_> = error.to_string().lines().map(str::to_owned).collect();
        let message = format!("{typed:?} is not a regular expression");
        Problem::new(ProblemKind::Usage, message)
            .lines(&lines)
            .hint(hint![
                nb(Verb::Search).option("-F").word(typed),
                " takes it as plain text"
            ])
    })
}

/// Makes a regular expression of what the caller typed, or one of its text if it is none.
pub(super) fn pattern_or_text(typed: &str) -> Result<Regex, Problem> {
    pattern(typed, false, false, false).or_else(|_| pattern(typed, true, false, false))
}

/// The matches so far.
struct Matches {
    pattern: Regex,
    within: SearchScope,
    /// How many more lines fit in the answer.
    left: usize,
    matches: Vec<NotebookMatch>,
    count: usize,
}

impl Matches {
    /// Searches the notebook of a project. A cell of which each line matches counts as seen.
    fn view(&mut self, caller: &Caller, file: &NotebookFile, name: &str) -> Result<(), Problem> {
        let view = view::open(file, caller.by())?;
        self.search(name, &view.document);
        let hits = self.matches.iter().map(|it| &it.hit);
        let hits = hits.filter(|hit| hit.output.is_none());
        let shown: HashSet<_> = hits.map(|hit| (hit.index, hit.line, &*hit.text)).collect();
        for (index, cell) in view.document.cells().iter().enumerate() {
            let source = cell.source();
            let mut lines = source.split('\n').zip(1..);
            if lines.all(|(text, line)| shown.contains(&(index, line, text))) {
                view.shown(cell);
            }
        }
        caller.has_shown(view);
        Ok(())
    }

    fn search(&mut self, notebook: &str, document: &Document) {
        let hits: Vec<_> = document.search(&self.pattern, self.within, LINE).collect();
        if hits.is_empty() {
            return;
        }
        self.count += hits.len();
        let short = document.short_ids();
        let listed = hits.into_iter().take(self.left).map(|hit| NotebookMatch {
            short_id: short.get(hit.index).copied().unwrap_or_default().to_owned(),
            hit,
            notebook: notebook.to_owned(),
        });
        let before = self.matches.len();
        self.matches.extend(listed);
        self.left -= self.matches.len() - before;
    }

    fn answer(self, searched: usize, faults: Vec<String>) -> SearchAnswer {
        SearchAnswer {
            matches: self.matches,
            count: self.count,
            searched,
            faults,
        }
    }
}

/// Reads a notebook without making a project for it. The error is a message for the user.
fn opened(path: &Path) -> Result<Document, String> {
    let failed = |why: &str| format!("cannot read {}: {why}", path.display());
    let metadata = std::fs::metadata(path).map_err(|error| failed(&causes(&error)))?;
    if !metadata.is_file() {
        return Err(failed("it is not a file"));
    }
    let text = read_notebook(path).map_err(|error| failed(&causes(&error)))?;
    Document::parse(text).map_err(|error| failed(&causes(&error)))
}
