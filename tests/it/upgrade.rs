//! Projects that other versions of `nb` have written: `tests/fixtures` has one of each released version.

use std::path::Path;

use serde_json::{Value, json};

use crate::nb::nb;
use crate::python;
use crate::world::World;

/// The versions of which there is a project, with the notebook `analysis.ipynb`, on which a person and the agent
/// `claude` have worked.
const VERSIONS: [&str; 1] = ["0.1.0"];

/// Makes a world whose project was written by that version.
///
/// Its `.nb` is made by this `nb`, which uses no other, and gets the files of the other version.
fn of_version(version: &str) -> World {
    let world = World::new();
    nb(&world, ["open", "analysis.ipynb", "--no-kernel"]).ended(0);
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    copy(&from.join(version).join("nb"), &folder(&world), &world);
    copy(&from.join(version), &world.project(), &world);
    world
}

fn folder(world: &World) -> std::path::PathBuf {
    world.project().join(".nb")
}

/// Copies the files of a folder, with this world's paths, and its folders but `nb`.
fn copy(from: &Path, to: &Path, world: &World) {
    let project = world.project().canonicalize().expect("it is there");
    let environment = python::interpreter().ancestors().nth(2).expect("a folder");
    for entry in std::fs::read_dir(from).expect("read a folder") {
        let path = entry.expect("an entry").path();
        let target = to.join(path.file_name().expect("it has a name"));
        if path.is_file() {
            let text = std::fs::read_to_string(&path).expect("read a file");
            let text = text
                .replace("PROJECT", &project.display().to_string())
                .replace("ENVIRONMENT", &environment.display().to_string());
            std::fs::write(&target, text).expect("write a file");
        } else if !path.ends_with("nb") {
            std::fs::create_dir_all(&target).expect("make a folder");
            copy(&path, &target, world);
        }
    }
}

/// Changes the world's `state.json`.
fn change_state(world: &World, change: impl FnOnce(&mut Value)) {
    let mut state = state(world);
    change(&mut state);
    let path = folder(world).join("state.json");
    std::fs::write(path, state.to_string()).expect("write it");
}

fn state(world: &World) -> Value {
    let text = std::fs::read(folder(world).join("state.json")).expect("read it");
    serde_json::from_slice(&text).expect("it is JSON")
}

#[test]
fn a_project_of_each_released_version_is_read_and_goes_on() {
    for version in VERSIONS {
        let world = of_version(version);
        let status = nb(&world, ["status", "--json"]).ended(0).json();
        let session = &status["sessions"][0];
        assert_eq!(session["notebook"], "analysis.ipynb", "{version}: {status}");
        assert_eq!(session["state"], "stopped", "{version}: {status}");
        assert_eq!(session["kernel_generation"], 2, "{version}: {status}");

        nb(&world, ["log", "analysis.ipynb"])
            .ended(0)
            .with("human ran \"losses = [0.5, 0.25]\" ok")
            .with("human inserted 4c720d23")
            .with("claude edited 4c720d23")
            .with("human shut the kernel down · generation 2");
        let log = nb(&world, ["log", "analysis.ipynb", "--json"]).ended(0);
        assert_eq!(log.json()["log"].as_array().map(Vec::len), Some(8));
        nb(&world, ["jobs", "analysis.ipynb"])
            .ended(0)
            .with("8687fe44");
        nb(&world, ["wait", "8687fe44"]).ended(0).with("last 0.25");

        // The versions of cells that it has stored.
        nb(&world, ["undo", "1ef5b360"]).ended(0);
        nb(&world, ["cell", "analysis.ipynb", "0"])
            .ended(0)
            .with("print(\"final\", losses[-1])");

        // The next kernel is the next generation.
        world.open("analysis.ipynb");
        nb(&world, ["run", "print(6 * 7)"]).ended(0).with("42");
        let status = nb(&world, ["status", "--json"]).ended(0).json();
        assert_eq!(status["sessions"][0]["kernel_generation"], 3, "{status}");
    }
}

#[test]
fn what_a_later_version_of_the_same_layout_adds_is_kept() {
    let world = of_version("0.1.0");
    change_state(&world, |state| {
        state["added"] = json!({"by": "a later nb"});
        state["sessions"]["analysis.ipynb"]["backend"]["added"] = json!([1]);
    });
    let journal = folder(&world).join("journal.jsonl");
    let mut text = std::fs::read_to_string(&journal).expect("read it");
    text.push_str("{\"at\":\"2026-11-25T21:50:00Z\",\"session\":\"analysis.ipynb\",\"by\":\"human\",\"event\":\"of a later nb\",\"added\":1}\n");
    std::fs::write(&journal, text).expect("write it");

    nb(&world, ["log", "analysis.ipynb"])
        .ended(0)
        .with("human shut the kernel down · generation 2");
    // The file is written for another notebook, then for this one, whose new kernel has a new backend.
    world.open("other.ipynb");
    let state = state(&world);
    assert_eq!(state["added"], json!({"by": "a later nb"}));
    let backend = &state["sessions"]["analysis.ipynb"]["backend"];
    assert_eq!(backend["added"], json!([1]), "{backend}");
    world.open("analysis.ipynb");
    nb(&world, ["run", "-n", "analysis.ipynb", "print(6 * 7)"])
        .ended(0)
        .with("42");
    let text = std::fs::read_to_string(&journal).expect("read it");
    assert!(text.contains("of a later nb"), "the line stays");
}

#[test]
fn another_layout_is_refused_by_name_and_stays_as_it_is() {
    for version in [1, 3] {
        is_refused(version);
    }
}

fn is_refused(version: u64) {
    let world = of_version("0.1.0");
    change_state(&world, |state| state["version"] = version.into());
    let path = folder(&world).join("state.json");
    let before = std::fs::read(&path).expect("read it");
    for words in [
        &["status"][..],
        &["open", "analysis.ipynb"],
        &["run", "-n", "analysis.ipynb", "1"],
        &["exec", "analysis.ipynb", "0"],
        &["edit", "analysis.ipynb", "0", "1"],
        &["shutdown", "analysis.ipynb"],
    ] {
        let output = nb(&world, words).ended(1);
        output.with(&format!(
            "state.json has version {version}, this nb knows 2: use the nb that wrote it"
        ));
    }
    assert_eq!(std::fs::read(&path).expect("read it"), before);

    // The version that wrote it goes on where it was.
    change_state(&world, |state| state["version"] = json!(2));
    world.open("analysis.ipynb");
    nb(&world, ["run", "print(6 * 7)"]).ended(0).with("42");
}
