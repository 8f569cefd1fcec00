//! Writes the pages of the manual, the completion scripts and the extension for JupyterLab into a folder, for packages.
//!
//! ```sh
//! cargo run --example manual -- FOLDER
//! ```
//!
//! It makes `FOLDER/man/man1/*.1`, one page for each command and one for `nb-proxy`, `FOLDER/completions`, in the layout
//! that the shells search, and `FOLDER/labextensions/nb-live`.

use std::io;
use std::path::{Path, PathBuf};

use clap_complete::Shell;
use clap_mangen::roff::{Roff, bold, roman};
use nb::setup::jupyterlab_extension;

fn main() -> io::Result<()> {
    let folder = std::env::args_os().nth(1).map(PathBuf::from);
    let folder = folder.ok_or_else(|| io::Error::other("the folder is missing"))?;
    pages(&folder.join("man/man1"))?;
    completions(&folder.join("completions"))?;
    labextension(&folder.join("labextensions"))
}

/// Writes the extension for JupyterLab.
fn labextension(folder: &Path) -> io::Result<()> {
    for (name, content) in jupyterlab_extension::files() {
        let path = folder.join(jupyterlab_extension::NAME).join(name);
        std::fs::create_dir_all(path.parent().expect("it is in a folder"))?;
        std::fs::write(path, content)?;
    }
    Ok(())
}

/// Writes the pages of the manual.
fn pages(folder: &Path) -> io::Result<()> {
    std::fs::create_dir_all(folder)?;
    // The page of `nb` tells how to find the version, and must not change with each commit.
    let parser = nb::cli::parser().version(env!("CARGO_PKG_VERSION"));
    clap_mangen::generate_to(parser, folder)?;
    let version = format!("nb-proxy {}", env!("CARGO_PKG_VERSION"));
    let mut page = Roff::new();
    page.control("TH", ["nb-proxy", "1", "", &version]);
    page.control("SH", ["NAME"]);
    page.text([roman(
        "nb-proxy - the kernel \"nb shared kernel\" of front ends",
    )]);
    page.control("SH", ["SYNOPSIS"]);
    page.text([bold("nb-proxy"), roman(" -f CONNECTION_FILE")]);
    page.control("SH", ["DESCRIPTION"]);
    page.control("nf", []);
    for line in nb::proxy::HELP.lines() {
        page.text([roman(line)]);
    }
    page.control("fi", []);
    page.control("SH", ["SEE ALSO"]);
    page.text([bold("nb"), roman("(1)")]);
    std::fs::write(folder.join("nb-proxy.1"), page.render())
}

/// Writes the completion scripts, under the names by which the shells load them.
fn completions(folder: &Path) -> io::Result<()> {
    for (shell, path) in [
        (Shell::Bash, "bash/nb"),
        (Shell::Zsh, "zsh/_nb"),
        (Shell::Fish, "fish/nb.fish"),
    ] {
        let mut script = Vec::new();
        clap_complete::generate(shell, &mut nb::cli::parser(), "nb", &mut script);
        let path = folder.join(path);
        std::fs::create_dir_all(path.parent().expect("it is in a folder"))?;
        std::fs::write(path, script)?;
    }
    Ok(())
}
