//! `nb exec --all` writes the same into notebooks as nbclient does.

use std::path::Path;
use std::process::Stdio;

use super::output_of;
use crate::world::{World, succeed};
use crate::{notebooks, python};

/// Runs the script with these words on folders; returns its output.
fn script(world: &World, interpreter: &Path, words: &[&str], folders: &[&Path]) -> String {
    let mut command = world.command(interpreter);
    let script = python::script("like_nbclient.py");
    succeed(command.arg(script).args(words).args(folders))
}

/// Runs all notebooks of the project's folder `ours` with `nb`, the same ones in `theirs` with nbclient,
/// and compares the results.
fn assert_alike(world: &World, interpreter: &Path) -> String {
    let [ours, theirs] = ["ours", "theirs"].map(|name| world.project().join(name));
    let names: Vec<_> = notebooks::notebooks(&ours)
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    assert!(!names.is_empty());
    std::fs::create_dir(&theirs).expect("make a folder");
    for name in &names {
        std::fs::copy(ours.join(name), theirs.join(name)).expect("copy a notebook");
    }
    let nbclient = world
        .command(interpreter)
        .arg(python::script("like_nbclient.py"))
        .arg("run")
        .arg(&theirs)
        .stdout(Stdio::null())
        .spawn();
    let mut nbclient = nbclient.expect("run nbclient");
    for name in &names {
        let path = Path::new("ours").join(name);
        let mut open = world.nb();
        open.arg("open").arg(&path).arg("--python").arg(interpreter);
        output_of(&mut open).ended(0);
        let mut exec = world.nb();
        exec.arg("exec").arg(&path);
        exec.args(["--all", "--allow-errors", "--timeout", "120"]);
        let output = output_of(&mut exec);
        // 3: a cell raised.
        assert!(matches!(output.code, Some(0 | 3)), "{name}: {output:#?}");
        output_of(world.nb().arg("shutdown").arg(&path)).ended(0);
    }
    assert!(nbclient.wait().expect("nbclient ends").success());
    script(world, interpreter, &["compare"], &[&ours, &theirs])
}

fn ours(world: &World) -> std::path::PathBuf {
    let ours = world.project().join("ours");
    std::fs::create_dir(&ours).expect("make a folder");
    ours
}

#[test]
fn streams_displays_and_errors_are_nbclients() {
    let world = World::new();
    script(&world, python::interpreter(), &["make"], &[&ours(&world)]);
    assert_alike(&world, python::interpreter());
}

#[test]
fn what_is_drawn_by_lot_is_folded_as_nbclient_does() {
    let world = World::new();
    let interpreter = python::interpreter();
    script(&world, interpreter, &["make_by_lot"], &[&ours(&world)]);
    assert_alike(&world, interpreter);
}

/// Notebooks of Jupyter's own that need no library and take about a second each: those with the most
/// outputs, and one of each special kind.
const QUICK: [&str; 14] = [
    "nbclient-0.11.0__tests__files__Clear Output.ipynb",
    "nbclient-0.11.0__tests__files__Inline Image.ipynb",
    "nbclient-0.11.0__tests__files__Other Comms.ipynb",
    "nbclient-0.11.0__tests__files__SVG.ipynb",
    "nbclient-0.11.0__tests__files__Skip Exceptions with Cell Tags.ipynb",
    "nbclient-0.11.0__tests__files__Skip Execution with Cell Tag.ipynb",
    "nbclient-0.11.0__tests__files__update-display-id.ipynb",
    "nbconvert-7.17.2__tests__exporters__files__notebook_inject.ipynb",
    "nbconvert-7.17.2__tests__files__notebook1.ipynb",
    "nbconvert-7.17.2__tests__files__notebook3_with_errors.ipynb",
    "nbconvert-7.17.2__tests__files__notebook4_jpeg.ipynb",
    "papermill-2.7.0__papermill__tests__notebooks__line_magic_error.ipynb",
    "papermill-2.7.0__papermill__tests__notebooks__sysexit1.ipynb",
    "papermill-2.7.0__papermill__tests__notebooks__test_logging.ipynb",
];

#[test]
fn jupyters_own_notebooks_have_nbclients_outputs() {
    let world = World::new();
    let (from, to) = (notebooks::jupyters_own(), ours(&world));
    script(&world, python::interpreter(), &["choose"], &[&from, &to]);
    for (name, _) in notebooks::notebooks(&to) {
        if !QUICK.contains(&&*name) {
            std::fs::remove_file(to.join(name)).expect("leave a notebook out");
        }
    }
    assert_eq!(notebooks::notebooks(&to).len(), QUICK.len());
    assert_alike(&world, python::interpreter());
}

#[test]
#[ignore = "an environment with pandas and matplotlib is half a gigabyte"]
fn figures_frames_bars_and_widgets_are_nbclients() {
    let world = World::new();
    let interpreter = python::with_libraries();
    let ours = ours(&world);
    script(&world, interpreter, &["make_with_libraries"], &[&ours]);
    assert_alike(&world, interpreter);
}

#[test]
#[ignore = "two kernels for each of fifty notebooks take minutes"]
fn all_notebooks_of_jupyters_own_have_nbclients_outputs() {
    let world = World::new();
    let (from, to) = (notebooks::jupyters_own(), ours(&world));
    // Some of them have widgets and figures.
    let interpreter = python::with_libraries();
    script(&world, interpreter, &["choose"], &[&from, &to]);
    let compared = assert_alike(&world, interpreter);
    eprintln!("{compared}");
}
