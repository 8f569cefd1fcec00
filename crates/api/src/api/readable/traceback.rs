//! Tracebacks in short.

use std::borrow::Cow;

use anstream::adapter::strip_str;

use crate::notebook::own_line;

/// Shortens tracebacks of IPython: of each frame, only the line that was run is kept, and of frames of libraries
/// only the last one, which says where the error was raised.
#[derive(Clone, Copy, Debug)]
pub struct ShortTraceback<'a> {
    /// The command that shows the whole traceback.
    pub more: &'a str,
}

/// The mark in front of the number of the line that a frame runs.
const ARROW: &str = "-> ";

impl ShortTraceback<'_> {
    /// Returns the parts of a traceback as text, without colours. A traceback of another kernel is not
    /// shortened.
    pub fn of<S: AsRef<str>>(self, parts: &[S]) -> String {
        let parts = parts
            .iter()
            .map(|part| strip_str(part.as_ref()).to_string());
        let parts: Vec<_> = parts.collect();
        let mut shown: Vec<String> = Vec::new();
        let mut left_out = 0;
        for (at, part) in parts.iter().enumerate() {
            let is_next_of_library = parts.get(at + 1).is_some_and(|next| is_library(next));
            if is_library(part) && is_next_of_library {
                left_out += 1;
                continue;
            }
            match std::mem::take(&mut left_out) {
                0 => {}
                1 => shown.push(own_line(&format!("… 1 frame of a library; {}", self.more))),
                count => {
                    let text = format!("… {count} frames of libraries; {}", self.more);
                    shown.push(own_line(&text));
                }
            }
            if !is_ornament(part) {
                shown.push(short_frame(part));
            }
        }
        shown.join("\n")
    }
}

/// Says whether a part is the line of dashes or the title above the frames: the error's name is below them too.
fn is_ornament(part: &str) -> bool {
    let part = part.trim();
    let is_title = part.ends_with("Traceback (most recent call last)") && !part.contains('\n');
    is_title || (!part.is_empty() && part.bytes().all(|byte| byte == b'-'))
}

/// Says whether a part is a frame in a file of a library, as IPython writes it:
/// `File /usr/lib/python3.12/json/decoder.py:353, in …`.
fn is_library(part: &str) -> bool {
    let line = part.trim_start().lines().next().unwrap_or_default();
    let file = line.strip_prefix("File ");
    file.is_some_and(|file| {
        // Compiled modules name their files relative to where they were built.
        let marks = [
            "/site-packages/",
            "/dist-packages/",
            "/lib/python",
            "<frozen ",
            ".pyx:",
            ".pxi:",
        ];
        marks.iter().any(|mark| file.contains(mark))
    })
}

/// Returns a frame without the lines around the one that was run, and without the folder of libraries.
fn short_frame(part: &str) -> String {
    let folders = ["/site-packages/", "/dist-packages/"].iter();
    let mut below = folders.filter_map(|folder| part.strip_prefix("File ")?.split_once(folder));
    let part = match below.next() {
        Some((_, below)) => Cow::Owned(format!("File {below}")),
        None => Cow::Borrowed(part),
    };
    let is_frame = part.starts_with("Cell In[") || part.starts_with("File ");
    let is_run = |line: &str| line.trim_start().starts_with('-') && line.contains(ARROW);
    if !is_frame || !part.lines().any(is_run) {
        return part.trim_end().to_owned();
    }
    let lines = part.lines().enumerate();
    let lines = lines.filter(|(at, line)| *at == 0 || is_run(line));
    let lines: Vec<_> = lines.map(|(_, line)| line).collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: ShortTraceback<'_> = ShortTraceback {
        more: "--all shows all",
    };

    #[test]
    fn of_libraries_frames_only_the_one_that_raised_is_kept() {
        let parts = [
            "\u{1b}[31m---------------------------------------------------------------------------\u{1b}[39m",
            "KeyError                                  Traceback (most recent call last)",
            "File /v/lib/python3.12/site-packages/pandas/a.py:1, in get()\n      1 a",
            "File /v/lib/python3.12/site-packages/pandas/b.py:2, in get()\n      1 a\n----> 2 b",
            "\nThe above exception was the direct cause of the following exception:\n",
            "KeyError                                  Traceback (most recent call last)",
            "\u{1b}[36mCell\u{1b}[39m\u{1b}[36m In[3]\u{1b}[39m, line 2\n      1 import load\n----> 2 load.load()\n      3 after()",
            "File ~/project/load.py:3, in load()\n----> 3 df['x']",
            "File /v/lib/python3.12/site-packages/pandas/c.py:1, in __getitem__()",
            "File pandas/_libs/index.pyx:172, in pandas._libs.index.IndexEngine.get_loc()\n--> 172 'Could not'",
            "File /v/lib/python3.12/site-packages/pandas/e.py:1, in get_loc()",
            "KeyError: 'x'",
        ];
        insta::assert_snapshot!(SHORT.of(&parts), @r"
        ‣ … 1 frame of a library; --all shows all
        File pandas/b.py:2, in get()
        ----> 2 b

        The above exception was the direct cause of the following exception:
        Cell In[3], line 2
        ----> 2 load.load()
        File ~/project/load.py:3, in load()
        ----> 3 df['x']
        ‣ … 2 frames of libraries; --all shows all
        File pandas/e.py:1, in get_loc()
        KeyError: 'x'
        ");
    }

    #[test]
    fn a_syntax_error_and_other_kernels_tracebacks_are_whole() {
        for parts in [
            vec![
                "\u{1b}[36m  Cell\u{1b}[39m\u{1b}[36m In[1]\u{1b}[39m, line 1\n    x = = 1\n        ^\nSyntaxError: invalid syntax",
            ],
            vec!["Error in f(): x", "Traceback:", "1. f()", "2. stop(\"x\")"],
        ] {
            let whole = parts.join("\n");
            assert_eq!(SHORT.of(&parts), strip_str(&whole).to_string());
        }
    }
}
