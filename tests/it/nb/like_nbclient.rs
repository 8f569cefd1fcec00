//! `nb exec --all` writes the same into notebooks as nbclient does.

use std::path::Path;
use std::process::Stdio;

use super::output_of;
use crate::world::{World, is_thorough, succeed};
use crate::{notebooks, python};

/// Runs the script with these words on folders; returns its output.
fn script(world: &World, interpreter: &Path, words: &[&str], folders: &[&Path]) -> String {
    let mut command = world.command(interpreter);
    let script = python::script("like_nbclient.py");
    succeed(command.arg(script).args(words).args(folders))
}

/// Runs all notebooks of the project's folder `with_nb` with `nb`, the same ones in `with_nbclient` with nbclient,
/// and compares the results.
fn assert_alike(world: &World, interpreter: &Path) -> String {
    let [with_nb, with_nbclient] =
        ["with_nb", "with_nbclient"].map(|name| world.project().join(name));
    let names: Vec<_> = notebooks::notebooks(&with_nb)
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    assert!(!names.is_empty());
    std::fs::create_dir(&with_nbclient).expect("make a folder");
    for name in &names {
        std::fs::copy(with_nb.join(name), with_nbclient.join(name)).expect("copy a notebook");
    }
    let nbclient = world
        .command(interpreter)
        .arg(python::script("like_nbclient.py"))
        .arg("run")
        .arg(&with_nbclient)
        .stdout(Stdio::null())
        .spawn();
    let mut nbclient = nbclient.expect("run nbclient");
    for name in &names {
        let path = Path::new("with_nb").join(name);
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
    script(
        world,
        interpreter,
        &["compare"],
        &[&with_nb, &with_nbclient],
    )
}

/// Makes the folder `with_nb` of the project.
fn make_folder(world: &World) -> std::path::PathBuf {
    let with_nb = world.project().join("with_nb");
    std::fs::create_dir(&with_nb).expect("make a folder");
    with_nb
}

#[test]
fn streams_displays_and_errors_are_nbclients() {
    let world = World::new();
    script(
        &world,
        python::interpreter(),
        &["make"],
        &[&make_folder(&world)],
    );
    assert_alike(&world, python::interpreter());
}

#[test]
fn what_is_drawn_by_lot_is_folded_as_nbclient_does() {
    let world = World::new();
    let interpreter = python::interpreter();
    let with_nb = make_folder(&world);
    script(&world, interpreter, &["make_by_lot"], &[&with_nb]);
    if !is_thorough() {
        for name in ["lot-1.ipynb", "lot-2.ipynb"] {
            std::fs::remove_file(with_nb.join(name)).expect("leave a notebook out");
        }
    }
    assert_alike(&world, interpreter);
}

/// Notebooks of Jupyter's own that need no library and take about a second each: one of each special kind that those made
/// here do not have.
const QUICK: [&str; 4] = [
    "nbclient-0.11.0__tests__files__Clear Output.ipynb",
    "nbclient-0.11.0__tests__files__Other Comms.ipynb",
    "nbconvert-7.17.2__tests__files__notebook3_with_errors.ipynb",
    "papermill-2.7.0__papermill__tests__notebooks__sysexit1.ipynb",
];

#[test]
fn jupyters_own_notebooks_have_nbclients_outputs() {
    let world = World::new();
    let (from, to) = (notebooks::jupyters_own(), make_folder(&world));
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
    let with_nb = make_folder(&world);
    script(&world, interpreter, &["make_with_libraries"], &[&with_nb]);
    assert_alike(&world, interpreter);
}

#[test]
#[ignore = "two kernels for each of fifty notebooks take minutes"]
fn all_notebooks_of_jupyters_own_have_nbclients_outputs() {
    let world = World::new();
    let (from, to) = (notebooks::jupyters_own(), make_folder(&world));
    // Some of them have widgets and figures.
    let interpreter = python::with_libraries();
    script(&world, interpreter, &["choose"], &[&from, &to]);
    let compared = assert_alike(&world, interpreter);
    eprintln!("{compared}");
}
