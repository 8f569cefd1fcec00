//! nb's extension for VS Code: its package, its installation, and what it does in a stand-in of VS Code.
//!
//! VS Code itself is not run, see `vscode`. The extension's code is checked against the published types of VS Code's
//! and the Jupyter extension's API, and runs against a real `nb` and a real kernel.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::node;
use crate::world::{World, finish, succeed};

/// Returns the folder of the extension's sources.
fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("crates/setup/src/vscode")
}

/// Runs a part of `tests/node/vscode_extension.js` in the project of a world.
fn part(world: &World, name: &str) {
    if let Some(mut command) = world.node("vscode_extension.js") {
        command.env("NB_TEST_EXTENSION", sources());
        succeed(command.arg(name));
    }
}

#[test]
fn a_notebook_of_the_project_is_opened_on_the_shared_kernel() {
    part(&World::opened(), "shares");
}

#[test]
fn an_agents_run_and_its_edit_are_shown_and_interrupt_ends_the_run() {
    part(&World::opened(), "shows");
}

#[test]
fn cells_that_are_out_of_date_are_marked_if_the_setting_says_so() {
    part(&World::opened(), "stale");
}

#[test]
fn a_run_that_began_before_the_window_is_shown() {
    part(&World::opened(), "began_before");
}

#[test]
fn a_tab_with_unsaved_changes_gets_what_an_agent_writes() {
    part(&World::opened(), "takes_in");
}

#[test]
fn two_texts_stand_at_their_cell_until_the_person_chooses() {
    part(&World::opened(), "conflicts");
}

#[test]
fn a_project_that_appears_above_an_open_notebook_is_found() {
    part(&World::opened(), "appears");
}

#[test]
fn a_project_without_an_nb_is_said_once_with_a_button() {
    part(&World::opened(), "asks");
}

#[test]
fn what_was_just_typed_is_not_overwritten_by_an_agent() {
    part(&World::opened(), "reports");
}

#[test]
fn unsaved_text_is_no_conflict_once_nb_or_the_window_has_started_again() {
    part(&World::opened(), "restores");
}

#[test]
fn run_all_beside_an_agents_cell_runs_each_cell() {
    part(&World::opened(), "run_all");
}

#[test]
fn run_all_in_a_saved_tab_beside_an_agents_cell_runs_each_cell() {
    part(&World::opened(), "run_all_saved");
}

#[test]
fn beside_a_persons_cells_that_wait_an_agents_outputs_and_edits_are_written_at_once() {
    part(&World::opened(), "beside_run");
}

/// Runs a part of `tests/node/vscode_run_all.js`, where nb, the kernel and the clock are simulated.
fn simulated(name: &str) {
    if let Some(mut command) = World::new().node("vscode_run_all.js") {
        command.env("NB_TEST_EXTENSION", sources());
        succeed(command.arg(name));
    }
}

#[test]
fn at_ten_moments_of_an_agents_cell_run_all_runs_each_cell_and_the_counts_agree() {
    simulated("beside");
}

#[test]
fn outputs_for_the_cell_with_the_cursor_come_when_the_person_leaves_it() {
    simulated("cursor");
}

#[test]
fn a_cell_that_waits_or_runs_is_neither_replaced_nor_moved() {
    simulated("waits");
}

#[test]
fn a_cell_that_may_wait_counts_as_one_that_waits() {
    simulated("doubt");
}

#[test]
fn save_asks_only_where_the_tab_has_not_what_the_file_has() {
    simulated("saves");
}

#[test]
fn what_is_typed_meanwhile_is_refused_and_reported_after_the_answers() {
    simulated("types");
}

#[test]
fn what_is_typed_just_now_is_not_taken_for_what_was_loaded() {
    simulated("typed_just_now");
}

#[test]
fn a_save_that_was_refused_is_made_again_when_the_tab_has_what_the_file_has() {
    simulated("saves_again");
}

#[test]
fn the_counts_of_runs_are_saved() {
    simulated("counts");
}

#[test]
fn a_save_during_a_removal_gives_no_cell_the_metadata_of_another_one() {
    simulated("counts_beside_a_removal");
}

#[test]
fn a_cell_that_gets_the_metadata_of_another_one_keeps_its_id() {
    simulated("foreign_metadata");
}

#[test]
fn a_new_cell_that_vs_code_loads_in_that_moment_is_there_once() {
    simulated("loads_meanwhile");
}

#[test]
fn a_change_by_an_agent_hits_no_other_cell_when_the_person_inserts_one_at_that_moment() {
    simulated("places");
}

#[test]
fn the_pure_parts_do_what_they_say() {
    part(&World::new(), "pure");
}

/// The extension is a thin door; `nb live` decides.
#[test]
fn the_code_has_at_most_1800_lines() {
    let files = std::fs::read_dir(sources()).expect("list the sources");
    let files = files.map(|file| file.expect("an entry").path());
    let code = files.filter(|file| file.extension().is_some_and(|ending| ending == "js"));
    let text = |file: PathBuf| std::fs::read_to_string(file).expect("read a source");
    let lines: usize = code.map(|file| text(file).lines().count()).sum();
    assert!((1000..=1800).contains(&lines), "{lines} lines");
}

#[test]
fn the_code_keeps_to_the_types_of_the_api() {
    let Some(modules) = node::vscode_modules() else {
        return;
    };
    let folder = tempfile::tempdir().expect("make a folder");
    let options = |file: &Path, libraries: &[&str]| {
        json!({
            "compilerOptions": {
                "noEmit": true, "allowJs": true, "checkJs": true, "strict": true, "noUnusedLocals": true,
                "noImplicitReturns": true, "module": "commonjs", "moduleResolution": "node", "target": "es2022",
                "lib": libraries, "skipLibCheck": true, "types": ["node", "vscode"], "typeRoots": [modules.join("@types")],
                "baseUrl": modules,
            },
            "files": [file],
        })
    };
    let check = |file: &Path, libraries: &[&str]| {
        let config = folder.path().join("tsconfig.json");
        std::fs::write(&config, options(file, libraries).to_string()).expect("write the options");
        let mut command = Command::new("node");
        command.arg(modules.join("typescript/bin/tsc"));
        finish(command.arg("-p").arg(&config))
    };
    let (status, stdout, _) = check(&sources().join("extension.js"), &["es2022"]);
    assert!(status.success(), "{stdout}");
    let jupyterlab = sources().join("../jupyterlab/entry.js");
    let (status, stdout, _) = check(&jupyterlab, &["es2022", "dom", "dom.iterable"]);
    assert!(status.success(), "{stdout}");
    // A mistake is found.
    let wrong = folder.path().join("wrong.js");
    let text = "require('vscode').window.activeNotebookEditor.noSuchThing();";
    std::fs::write(&wrong, text).expect("write a mistake");
    let (status, stdout, _) = check(&wrong, &["es2022"]);
    assert!(
        !status.success() && stdout.contains("noSuchThing"),
        "{stdout}"
    );

    // The types are those of the oldest editor that can install the extension.
    let read = |path: &Path| -> Value {
        let text = std::fs::read(path).expect("read a package");
        serde_json::from_slice(&text).expect("it is JSON")
    };
    let types = read(&modules.join("@types/vscode/package.json"));
    let package = read(&sources().join("package.json"));
    let oldest = format!("^{}", types["version"].as_str().expect("a version"));
    assert_eq!(package["engines"]["vscode"], oldest);
}

#[test]
fn in_a_folder_that_is_not_trusted_nothing_runs() {
    let text = std::fs::read(sources().join("package.json")).expect("read the package");
    let package: Value = serde_json::from_slice(&text).expect("it is JSON");
    let untrusted = &package["capabilities"]["untrustedWorkspaces"]["supported"];
    assert_eq!(untrusted, false);
    // A workspace cannot set the program.
    let path = &package["contributes"]["configuration"]["properties"]["nb.path"];
    assert_eq!(path["scope"], "machine");
}

/// Returns `nb` with these folders as its PATH.
fn nb(world: &World, path: &Path) -> Command {
    let mut command = world.nb();
    command.env("PATH", path);
    command
}

/// Makes an editor's command, which records its arguments in `calls`.
fn editor(world: &World, name: &str, script: &str) -> PathBuf {
    let bin = world.project().join("../tmp/editors");
    std::fs::create_dir_all(&bin).expect("make the folder");
    let bin = bin.canonicalize().expect("it is there");
    let program = bin.join(name);
    let calls = bin.join("calls");
    let text = format!("#!/bin/sh\necho \"$*\" >> {}\n{script}\n", calls.display());
    std::fs::write(&program, text).expect("write the program");
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(&program, mode).expect("make it executable");
    bin
}

fn calls(bin: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(bin.join("calls")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

fn answer(command: &mut Command) -> Value {
    let (_, stdout, stderr) = finish(command.arg("--json"));
    serde_json::from_str(&stdout).unwrap_or_else(|error| panic!("{error}: {stdout} {stderr}"))
}

/// Returns where the extension's file is written.
fn package(world: &World) -> PathBuf {
    world
        .project()
        .join("../home/.local/share/nb/nb-shared-kernel.vsix")
}

#[test]
fn without_an_editor_the_path_of_the_file_is_printed() {
    let world = World::new();
    let none = world.project();
    let (status, stdout, _) = finish(nb(&world, &none).args(["serve", "--vscode"]));
    assert!(status.success());
    let line = stdout.lines().find(|line| line.contains("no editor"));
    let line = line.unwrap_or_else(|| panic!("{stdout}"));
    let file = line.rsplit(' ').next().expect("a path");
    assert!(
        line.contains("code, code-insiders, codium, cursor"),
        "{line}"
    );
    assert_eq!(
        Path::new(file).canonicalize().expect("it is there"),
        package(&world).canonicalize().expect("it is there"),
    );
    let answer = answer(nb(&world, &none).args(["serve", "--vscode"]));
    assert_eq!(answer["vscode"]["editors"], json!([]));
    assert_eq!(answer["vscode"]["file"], file);
    // Not without the option.
    let answer = self::answer(nb(&world, &none).arg("serve"));
    assert_eq!(answer["vscode"], Value::Null);
}

/// VS Code reads packages with yauzl.
#[test]
fn the_package_is_one_that_vs_code_reads() {
    let Some(modules) = node::vscode_modules() else {
        return;
    };
    let world = World::new();
    succeed(nb(&world, &world.project()).args(["serve", "--vscode"]));
    let reads = "
        const yauzl = require('yauzl');
        yauzl.open(process.argv[1], { lazyEntries: true, validateEntrySizes: true }, (error, zip) => {
          if (error) throw error;
          const found = {};
          zip.on('entry', entry => zip.openReadStream(entry, (error, stream) => {
            if (error) throw error;
            const parts = [];
            stream.on('data', part => parts.push(part));
            stream.on('end', () => { found[entry.fileName] = Buffer.concat(parts).toString(); zip.readEntry(); });
          }));
          zip.on('end', () => console.log(JSON.stringify(found)));
          zip.readEntry();
        });";
    let mut command = world.command(Path::new("node"));
    command.env("NODE_PATH", &modules);
    let stdout = succeed(command.args(["-e", reads]).arg(package(&world)));
    let files: Value = serde_json::from_str(&stdout).expect("one object");
    let text = |name: &str| files[name].as_str().unwrap_or_else(|| panic!("no {name}"));
    assert!(text("[Content_Types].xml").starts_with("<?xml"));
    let manifest = text("extension.vsixmanifest");
    assert!(manifest.contains("Id=\"nb-shared-kernel\""), "{manifest}");
    let version = format!("Version=\"{}\"", env!("CARGO_PKG_VERSION"));
    assert!(manifest.contains(&version), "{manifest}");
    let package: Value = serde_json::from_str(text("extension/package.json")).expect("JSON");
    assert_eq!(package["version"], env!("CARGO_PKG_VERSION"));
    let main = package["main"].as_str().expect("a name");
    text(&format!("extension/{}", main.trim_start_matches("./")));
}

#[test]
fn the_extension_is_installed_over_an_older_one_and_removed() {
    let world = World::new();
    // As VS Code does: a version that is there stays unless --force is given.
    let bin = editor(
        &world,
        "codium",
        r#"installed="${0%/*}/installed"
case "$1" in
--install-extension) if [ -e "$installed" ] && [ "$3" != --force ]; then exit 0; fi; /bin/cp "$2" "$installed";;
--list-extensions) if [ -e "$installed" ]; then echo nb.nb-shared-kernel; fi; echo other.extension;;
--uninstall-extension) [ "$2" = nb.nb-shared-kernel ] && /bin/rm "$installed";;
esac"#,
    );
    std::fs::write(bin.join("installed"), "older").expect("write the older one");
    let stdout = succeed(nb(&world, &bin).args(["serve", "--vscode"]));
    assert!(stdout.contains("installed with"), "{stdout}");
    let read = |path: &Path| std::fs::read(path).expect("read the package");
    assert_eq!(read(&bin.join("installed")), read(&package(&world)));

    let answer = answer(nb(&world, &bin).arg("unserve"));
    let expected = json!([{"program": bin.join("codium"), "done": true, "failure": null}]);
    assert_eq!(answer["editors"], expected);
    assert!(!bin.join("installed").exists() && !package(&world).exists());
    // It was installed once: no editor is asked again.
    let before = calls(&bin);
    assert_eq!(before.len(), 3, "{before:?}");
    succeed(nb(&world, &bin).arg("unserve"));
    assert_eq!(calls(&bin), before);
}

#[test]
fn the_message_of_an_editor_that_fails_is_printed() {
    let world = World::new();
    let too_old = "Unable to install extension 'nb.nb-shared-kernel' as it is not compatible with VS Code '1.80.2'.";
    let bin = editor(
        &world,
        "code",
        &format!(
            "echo 'Installing extensions...'; echo \"{too_old}\" >&2; echo 'Failed Installing Extensions: x' >&2; exit 1"
        ),
    );
    editor(&world, "cursor", "exit 0");
    let (status, stdout, stderr) = finish(nb(&world, &bin).args(["serve", "--vscode"]));
    assert_eq!(status.code(), Some(1), "{stdout} {stderr}");
    let failure = format!(
        "nb: {} could not install the VS Code extension: {too_old}",
        bin.join("code").display()
    );
    assert!(stderr.contains(&failure), "{stderr}");
    assert!(stderr.contains("nb-shared-kernel.vsix"), "{stderr}");
    // The other editor has it.
    let done = format!("installed with {}", bin.join("cursor").display());
    assert!(stdout.contains(&done), "{stdout}");

    editor(
        &world,
        "code",
        "echo \"EACCES: permission denied, mkdir '/x/extensions'\" >&2; exit 1",
    );
    let answer = answer(nb(&world, &bin).args(["serve", "--vscode"]));
    let code = &answer["vscode"]["editors"][0];
    assert_eq!(code["done"], false);
    let why = "EACCES: permission denied, mkdir '/x/extensions'";
    assert_eq!(code["failure"], why);
}
