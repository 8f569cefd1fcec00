//! `nb log`: what the proxies and the kernel wrote.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;

use super::Context;
use super::fault::{Fault, Kind};
use crate::kernel::paths::ProcessVariables;
use crate::ops::target;
use crate::project::Project;

/// Show what the proxies or the kernel wrote
#[derive(Args, Debug)]
pub(super) struct Log {
    /// The notebook; without it, the only open one
    notebook: Option<PathBuf>,
    /// The proxies of the project: who joined and left, what failed (the default)
    #[arg(long, conflicts_with = "kernel")]
    proxy: bool,
    /// The kernel's own stdout and stderr
    #[arg(long)]
    kernel: bool,
    /// Go on with what is written from now on, until interrupted
    #[arg(short, long)]
    follow: bool,
    /// Show at most this many of the last lines; 0 is all
    #[arg(long, value_name = "N", default_value_t = 100)]
    lines: usize,
    /// Print one JSON object
    #[arg(long, conflicts_with = "follow")]
    pub(super) json: bool,
}

/// How often a followed file is looked at.
const LOOK: Duration = Duration::from_millis(200);

impl Log {
    /// Runs the command.
    pub(super) async fn run(self, context: &Context) -> Result<ExitCode, Fault> {
        let path = self.path(context).await?;
        let shown = if self.json {
            tell(context, &path, self.lines)
        } else {
            show(&path, self.lines, self.follow)
        };
        match shown {
            Ok(()) => Ok(ExitCode::SUCCESS),
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(Fault::new(
                Kind::Failed,
                format!("nothing was written yet: there is no {}", path.display()),
            )),
            Err(error) => Err(Fault::failed(&format!("read {}", path.display()), &error)),
        }
    }

    async fn path(&self, context: &Context) -> Result<PathBuf, Fault> {
        if self.kernel {
            let target = context
                .target(self.notebook.clone(), "nb log --kernel")
                .await?;
            return Ok(target.project.kernel_log(&target.key));
        }
        let given = self.notebook.clone().or_else(|| context.notebook.clone());
        let named = target::named(given.as_deref(), &ProcessVariables);
        let from = named.as_deref().unwrap_or(&context.here);
        let project = Project::find(from).ok_or_else(|| {
            Fault::new(
                Kind::NoKernel,
                format!("no notebook is open in {}", from.display()),
            )
            .hint("nb open NOTEBOOK.ipynb")
        })?;
        Ok(project.proxy_log())
    }
}

fn tell(context: &Context, path: &Path, lines: usize) -> io::Result<()> {
    let text = std::fs::read(path)?;
    let text = String::from_utf8_lossy(last_lines(&text, lines));
    let lines: Vec<&str> = text.lines().collect();
    context.answer(serde_json::json!({ "path": path, "lines": lines }))
}

fn show(path: &Path, lines: usize, follow: bool) -> io::Result<()> {
    let mut file = File::open(path)?;
    let mut text = Vec::new();
    file.read_to_end(&mut text)?;
    let mut stdout = io::stdout().lock();
    stdout.write_all(last_lines(&text, lines))?;
    stdout.flush()?;
    let mut read = text.len() as u64;
    let mut inode = file.metadata()?.ino();
    if !follow {
        return Ok(());
    }
    loop {
        std::thread::sleep(LOOK);
        // A log that was rotated is another file of the same name.
        let Ok(now) = std::fs::metadata(path) else {
            continue;
        };
        if now.ino() != inode || now.len() < read {
            file = File::open(path)?;
            (inode, read) = (now.ino(), 0);
        }
        if now.len() > read {
            file.seek(SeekFrom::Start(read))?;
            read += io::copy(&mut file, &mut stdout)?;
            stdout.flush()?;
        }
    }
}

/// Returns the end of a text that has at most so many lines; all of it for 0.
fn last_lines(text: &[u8], lines: usize) -> &[u8] {
    if lines == 0 {
        return text;
    }
    let body = text.strip_suffix(b"\n").unwrap_or(text);
    let newlines = body
        .iter()
        .enumerate()
        .rev()
        .filter(|(_, byte)| **byte == b'\n');
    match newlines.map(|(at, _)| at).nth(lines - 1) {
        Some(at) => text.get(at + 1..).unwrap_or_default(),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::last_lines;

    #[test]
    fn the_last_lines_are_whole() {
        assert_eq!(last_lines(b"a\nb\nc\n", 2), b"b\nc\n");
        assert_eq!(last_lines(b"a\nb\nc", 1), b"c");
        assert_eq!(last_lines(b"a\n", 5), b"a\n");
        assert_eq!(last_lines(b"a\nb\n", 0), b"a\nb\n");
    }
}
