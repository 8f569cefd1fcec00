//! Words the commands in hints, so that they work as printed: from the user's working directory, and on the notebook
//! as it was typed. Only this module knows how the user has spelled its path.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::cli::Context;
use crate::hint::shell::{quote, quote_word};
use crate::hint::{Command, Hint, Word};

/// The longest command that is repeated, in characters.
const LONG: usize = 300;

/// The spelling of the notebook in the commands of messages.
#[derive(Clone, Debug, Default)]
pub(crate) struct Commands {
    /// The path as the user typed it.
    typed: Option<PathBuf>,
    /// The notebook's path, once it is known.
    path: Option<PathBuf>,
    /// The notebook's path relative to the working directory.
    relative: Option<PathBuf>,
    /// Whether the notebook's project is not the one at or above the working directory.
    is_far: bool,
}

impl Context {
    /// Returns how the commands in this command's messages spell its notebook.
    pub(crate) fn commands(&self) -> Commands {
        let target = self.caller.target_notebook();
        let path = target.map(|it| it.project.notebook(&it.key));
        let relative = path.as_ref().map(|path| {
            path.strip_prefix(&self.caller.working_dir)
                .unwrap_or(path)
                .into()
        });
        let project = target
            .map(|it| &it.project)
            .or(self.caller.project.as_ref());
        let is_far = self.typed.is_some()
            && project.is_some_and(|project| {
                let own_project = crate::project::Project::find(&self.caller.working_dir);
                own_project.is_none_or(|own| own.dir() != project.dir())
            });
        Commands {
            typed: self.typed.clone(),
            path,
            relative,
            is_far,
        }
    }
}

impl Commands {
    /// Returns a hint in which each command names the notebook as it was typed.
    pub(crate) fn complete(&self, hint: &Hint) -> String {
        hint.spelled(|command| self.command(command), |path| self.path(path))
    }

    fn command(&self, command: &Command) -> String {
        let typed = self.typed.as_deref().map(quote);
        let is_missing = !command.is_complete && command.verb.takes_notebook();
        let missing = typed.filter(|_| is_missing);
        let missing = match command.is_of_job() {
            true => missing.filter(|_| self.is_far).map(|it| format!("-n {it}")),
            false => missing,
        };
        command.spelled(missing, |word| match word {
            Word::Path(path) => self.path(path),
            Word::Notebook => match self.typed.as_ref().or(self.relative.as_ref()) {
                Some(path) => quote(path),
                None => word.to_string(),
            },
            word => word.to_string(),
        })
    }

    fn path(&self, path: &Path) -> String {
        let typed = self.typed.as_deref();
        let typed = typed.filter(|_| self.path.as_deref() == Some(path));
        quote(typed.unwrap_or(path))
    }
}

/// Returns the command as it was typed, quoted for a shell; `otherwise` if it is too long to be repeated.
pub(crate) fn as_typed(otherwise: &str) -> String {
    typed_words(std::env::args_os().skip(1), otherwise)
}

fn typed_words(words: impl Iterator<Item = OsString>, otherwise: &str) -> String {
    let words: Vec<_> = words.map(|word| quote_word(&word)).collect();
    let typed = format!("nb {}", words.join(" "));
    let fits = typed.chars().count() <= LONG && !typed.contains('\n');
    if fits { typed } else { otherwise.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hint;
    use crate::hint::{Joint, Verb, nb};

    fn commands(typed: Option<&str>, is_far: bool) -> Commands {
        Commands {
            typed: typed.map(PathBuf::from),
            path: Some("/p/k/f.ipynb".into()),
            relative: Some("k/f.ipynb".into()),
            is_far,
        }
    }

    fn open() -> Command {
        nb(Verb::Open)
    }

    #[test]
    fn each_command_names_the_notebook_as_it_was_typed() {
        let typed = commands(Some("k/f.ipynb"), false);
        let path = Path::new("/p/k/f.ipynb");
        let next = hint![
            "next: ",
            nb(Verb::Wait).job("7f3a9c01"),
            Joint::Or,
            nb(Verb::Interrupt).job("7f3a9c01")
        ];
        for (hint, expected) in [
            (
                hint![open().this(), " starts one"],
                "nb open k/f.ipynb starts one",
            ),
            (open().notebook(path).into(), "nb open k/f.ipynb"),
            (
                hint![nb(Verb::Cells), " lists the cells"],
                "nb cells k/f.ipynb lists the cells",
            ),
            (
                hint![nb(Verb::Status), " tells its state; ", open(), " starts it"],
                "nb status k/f.ipynb tells its state; nb open k/f.ipynb starts it",
            ),
            (
                nb(Verb::Exec).option("--all").into(),
                "nb exec k/f.ipynb --all",
            ),
            (
                hint![
                    open().notebook(path),
                    Joint::And,
                    nb(Verb::Exec).notebook(path).option("--replay")
                ],
                "nb open k/f.ipynb && nb exec k/f.ipynb --replay",
            ),
            (next, "next: nb wait 7f3a9c01 | nb interrupt 7f3a9c01"),
            (nb(Verb::Undo).word("12ab").into(), "nb undo k/f.ipynb 12ab"),
            (nb(Verb::Vars).word("df").into(), "nb vars k/f.ipynb df"),
            (
                nb(Verb::Status).without_notebook().option("--all").into(),
                "nb status --all",
            ),
            (
                hint![
                    nb(Verb::Apply).without_notebook().option("--help"),
                    " tells what may be in it"
                ],
                "nb apply --help tells what may be in it",
            ),
            (
                nb(Verb::Edit)
                    .notebook(Path::new("g.ipynb"))
                    .word("3")
                    .into(),
                "nb edit g.ipynb 3",
            ),
            (
                hint!["set NB_NOTEBOOK, or ", nb(Verb::Kernels)],
                "set NB_NOTEBOOK, or nb kernels",
            ),
            (
                "a lamb runs, and nb opens it".into(),
                "a lamb runs, and nb opens it",
            ),
            (
                hint!["rm ", path, Joint::And, open().notebook(path)],
                "rm k/f.ipynb && nb open k/f.ipynb",
            ),
        ] {
            assert_eq!(typed.complete(&hint), expected);
        }
    }

    #[test]
    fn a_name_without_an_ending_is_not_doubled() {
        let other = |typed| Commands {
            path: None,
            relative: None,
            ..commands(Some(typed), false)
        };
        let named = |name: &str| open().notebook(Path::new(name)).into();
        for (typed, hint) in [("g.txt", named("g.txt")), ("0", named("0"))] {
            assert_eq!(other(typed).complete(&hint), hint.to_string());
        }
        let undo = nb(Verb::Undo).word("0abc").into();
        assert_eq!(other("0").complete(&undo), "nb undo 0 0abc");
    }

    #[test]
    fn a_path_is_quoted_for_a_shell() {
        let typed = commands(Some("my folder/it's.ipynb"), false);
        let hint = typed.complete(&hint![open().this(), " starts one"]);
        assert_eq!(hint, r"nb open 'my folder/it'\''s.ipynb' starts one");
        let words = ["run", "x = 1", "-n", "a b.ipynb"].map(OsString::from);
        let repeated = typed_words(words.into_iter(), "nb run CODE");
        assert_eq!(repeated, "nb run 'x = 1' -n 'a b.ipynb'");
        let long = [OsString::from("run"), OsString::from("x".repeat(LONG))];
        assert_eq!(typed_words(long.into_iter(), "nb run CODE"), "nb run CODE");
    }

    #[test]
    fn a_quoted_name_ends_no_command() {
        for name in [
            "Chapter 1: intro.ipynb",
            "a, b.ipynb",
            "a; b.ipynb",
            "a | b.ipynb",
            "a (1).ipynb",
            "a && b.ipynb",
            "it's a, b.ipynb",
        ] {
            let typed = commands(Some(name), false);
            let quoted = quote(Path::new(name));
            let list = hint![", ", nb(Verb::Cells), " lists the cells"];
            let want = format!("nb open {quoted} starts one, nb cells {quoted} lists the cells");
            for open in [open().this(), open().notebook(Path::new(name))] {
                let hint = hint![open, " starts one", list.clone()];
                assert_eq!(typed.complete(&hint), want);
            }
        }
    }

    #[test]
    fn a_job_of_another_project_is_found_by_its_notebook() {
        let far = commands(Some("../k/f.ipynb"), true);
        let hint = hint![
            "next: ",
            nb(Verb::Wait).job("7f3a9c01"),
            Joint::Or,
            nb(Verb::Interrupt).job("7f3a9c01")
        ];
        assert_eq!(
            far.complete(&hint),
            "next: nb wait -n ../k/f.ipynb 7f3a9c01 | nb interrupt -n ../k/f.ipynb 7f3a9c01"
        );
    }

    #[test]
    fn without_a_typed_notebook_only_its_place_is_filled() {
        let none = commands(None, false);
        let this = open().this().into();
        assert_eq!(none.complete(&this), "nb open k/f.ipynb");
        let list = hint![nb(Verb::Cells), " lists the cells"];
        assert_eq!(none.complete(&list), "nb cells lists the cells");
        let unknown = Commands::default();
        assert_eq!(unknown.complete(&this), "nb open NOTEBOOK");
    }

    #[test]
    fn hints_name_commands_that_there_are() {
        let mut parser = crate::cli::parser();
        parser.build();
        for verb in Verb::ALL {
            let command = parser.find_subcommand_mut(verb.name());
            let command = command.unwrap_or_else(|| panic!("there is no nb {verb}"));
            let usage = command.render_usage().to_string();
            let may_follow = usage.contains("NOTEBOOK]") || nb(*verb).is_of_job();
            assert!(may_follow || !verb.takes_notebook(), "{usage}");
        }
    }
}
