//! `nb vars`: lists the kernel's variables.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use crate::api::problem::{Problem, ProblemKind};
use crate::api::{self, VarsAnswer, VarsRequest};
use crate::cli::Context;
use crate::cli::args::take_notebook;
use crate::cli::commands::Command;
use crate::cli::render::{columns, print};
use crate::execution::vars::Variable;
use crate::notebook::size;

/// List the kernel's variables, or show one: type, shape, size, value
///
/// Looks without running anybody's code: nothing is printed, counted or left behind in the kernel,
/// and nothing lazy is computed. Sizes are without what a container refers to. Modules, functions,
/// classes and names that begin with _ are left out. For Python kernels; while a cell runs it needs
/// ipykernel 7, with others it ends with 4 and says whose cell it is.
#[derive(Args, Debug)]
#[command(override_usage = "nb vars [OPTIONS] [NOTEBOOK] [NAME]", after_help = EXAMPLES)]
pub(crate) struct Vars {
    /// [NOTEBOOK] [NAME]
    #[arg(num_args = 0..=2, value_name = "WORDS", hide = true)]
    pub(crate) words: Vec<String>,
    /// Modules, functions, classes and IPython's own names too
    #[arg(short, long)]
    all: bool,
    /// List at most this many; 0 is all
    #[arg(long, value_name = "N", default_value_t = 200)]
    limit: usize,
}

const EXAMPLES: &str = "\
Examples:
  nb vars
  nb vars train.ipynb df               one of them: its columns, more of its value
  nb vars --all --json";

impl Command for Vars {
    fn take_notebook(&mut self) -> Option<PathBuf> {
        take_notebook(&mut self.words)
    }

    async fn run(mut self, context: &Context) -> Result<ExitCode, Problem> {
        let name = self.words.pop();
        if !self.words.is_empty() {
            let text = "one name is wanted, or none; a notebook may stand before it";
            return Err(Problem::new(ProblemKind::Usage, text));
        }
        let is_one = name.is_some();
        let request = VarsRequest {
            name,
            all: self.all,
            most: (self.limit > 0).then_some(self.limit),
        };
        let answer = api::vars(&context.caller, request).await?;
        context.print(&answer, |answer| show(answer, is_one))
    }
}

fn show(found: &VarsAnswer, whole: bool) -> io::Result<()> {
    if whole {
        return found.variables.iter().try_for_each(detail);
    }
    let rows: Vec<_> = found.variables.iter().map(row).collect();
    let wide = columns::of_terminal();
    for line in columns::lines(&rows) {
        print::line(&wide.map_or_else(|| line.clone(), |wide| columns::cut(&line, wide)))?;
    }
    match found.more {
        0 if rows.is_empty() => print::note("no variables; --all lists functions and modules too"),
        0 => {}
        more => print::note(&format!("{more} more; --limit 0 lists all")),
    }
    Ok(())
}

/// Returns a variable's line: name, type, shape, size, value.
fn row(it: &Variable) -> [String; 5] {
    let size = it.size.map(size).unwrap_or_default();
    let mut value = one_line(it.value.as_deref().unwrap_or_default());
    if let (Some(dtype), None) = (&it.dtype, &it.columns) {
        value = format!("{dtype} {value}");
    }
    [it.name.clone(), class(it), shape(it), size, value]
}

fn detail(it: &Variable) -> io::Result<()> {
    print::line(&format!("{}: {}", it.name, class(it)))?;
    let size = it.size.map(size).unwrap_or_default();
    let dtype = it.dtype.clone().unwrap_or_default();
    let len = if it.shape.is_some() { "shape" } else { "len" };
    for (what, text) in [(len, shape(it)), ("dtype", dtype), ("size", size)] {
        if !text.is_empty() {
            print::line(&format!("{what:<6} {text}"))?;
        }
    }
    let columns = it.columns.iter().flatten();
    let rows: Vec<_> = columns
        .map(|it| [format!("  {}", it.name), it.dtype.clone()])
        .collect();
    for line in columns::lines(&rows) {
        print::line(&line)?;
    }
    match &it.value {
        Some(value) => print::line(value),
        None => Ok(()),
    }
}

/// Returns a class's name with its library; for Python's own classes only the name.
fn class(it: &Variable) -> String {
    let library = it.module.split('.').next().unwrap_or_default();
    match library {
        "" | "builtins" | "__main__" => it.class.clone(),
        library => format!("{library}.{}", it.class),
    }
}

fn shape(it: &Variable) -> String {
    match (&it.shape, it.len) {
        (Some(shape), _) if shape.is_empty() => "()".to_owned(),
        (Some(shape), _) => {
            let sides: Vec<_> = shape.iter().map(ToString::to_string).collect();
            sides.join("×")
        }
        (None, Some(len)) => len.to_string(),
        (None, None) => String::new(),
    }
}

fn one_line(text: &str) -> String {
    text.split(['\n', '\r']).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_tells_what_it_is() {
        let table = Variable {
            name: "df".to_owned(),
            class: "DataFrame".to_owned(),
            module: "pandas.core.frame".to_owned(),
            shape: Some(vec![1000, 3]),
            columns: Some(Vec::new()),
            size: Some(24_128),
            value: Some("id, name\nprice".to_owned()),
            ..Variable::default()
        };
        assert_eq!(
            row(&table),
            [
                "df",
                "pandas.DataFrame",
                "1000×3",
                "24 kB",
                "id, name price"
            ]
        );
        let array = Variable {
            name: "a".to_owned(),
            class: "list".to_owned(),
            module: "builtins".to_owned(),
            len: Some(2),
            dtype: Some("int8".to_owned()),
            value: Some("[1]".to_owned()),
            ..Variable::default()
        };
        assert_eq!(row(&array), ["a", "list", "2", "", "int8 [1]"]);
    }
}
