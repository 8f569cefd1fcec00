//! `nb doctor` finds what is wrong and prints a fix, and the fix works.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::{Output, home, nb, output_of};
use crate::python;
use crate::world::{World, succeed};

/// Returns the folder of the `nb` under test.
fn own_folder() -> &'static Path {
    let program = Path::new(env!("CARGO_BIN_EXE_nb"));
    program.parent().expect("it is in a folder")
}

/// Runs `nb doctor` in a shell with the tests' Python active and this `nb` first on PATH.
fn doctor(world: &World, before: &str, words: &[&str]) -> Output {
    let mut command = world.nb();
    let prefix = python::interpreter().parent().and_then(Path::parent);
    command
        .arg("doctor")
        .args(words)
        .env("VIRTUAL_ENV", prefix.expect("it is in an environment"))
        .env(
            "PATH",
            format!("{before}{}:/usr/bin:/bin", own_folder().display()),
        );
    output_of(&mut command)
}

/// Returns the texts and fixes of the checks about something with this verdict.
fn checks<'a>(answer: &'a Value, about: &str, verdict: &str) -> Vec<(&'a str, &'a str)> {
    let checks = answer["checks"].as_array().expect("a list").iter();
    let wanted = checks.filter(|check| check["about"] == about && check["verdict"] == verdict);
    wanted
        .map(|check| {
            (
                check["text"].as_str().unwrap_or(""),
                check["fix"].as_str().unwrap_or(""),
            )
        })
        .collect()
}

#[test]
fn a_sound_machine_is_well_before_and_after_the_first_notebook() {
    let world = World::new();
    let before = doctor(&world, "", &[]).ended(0);
    before
        .with("- kernelspec  \"nb shared kernel\" is not installed yet")
        .with("next: nb serve")
        .with(", ipykernel 7.")
        .with("all is well");
    assert!(!world.project().join(".nb").exists(), "it changes nothing");
    world.open("t.ipynb");
    let after = doctor(&world, "", &["t.ipynb", "--json"]).ended(0).json();
    assert_eq!(after["well"], true);
    assert_eq!(checks(&after, "kernelspec", "good").len(), 1);
    assert_eq!(checks(&after, "nb-proxy", "good").len(), 1);
    let kernel = checks(&after, "kernel", "good");
    assert!(
        kernel[0].0.ends_with("the notebook ran it before"),
        "{kernel:?}"
    );
    assert_eq!(checks(&after, "project", "good").len(), 1);
}

#[test]
fn cells_of_sql_need_a_magic() {
    let world = World::new();
    nb(&world, ["open", "q.ipynb", "--no-kernel"]).ended(0);
    nb(&world, ["insert", "q.ipynb", "-s", "%%sql\nselect 1"]).ended(0);
    doctor(&world, "", &["q.ipynb"])
        .ended(1)
        .with("! sql")
        .with("-m pip install jupysql, then %load_ext sql in a cell");
    nb(&world, ["edit", "q.ipynb", "0", "-s", "print('%%sql')"]).ended(0);
    doctor(&world, "", &["q.ipynb"])
        .ended(0)
        .with("all is well");
}

#[test]
fn what_would_not_work_is_reported_with_its_fix() {
    let world = World::served();
    let project = world.project().canonicalize().expect("it is there");
    let other = project.join("other");
    std::fs::create_dir(&other).expect("make a folder");
    std::fs::write(other.join("nb"), "").expect("put another nb there");
    let before = format!("{}:", other.display());
    let answer = doctor(&world, &before, &["--json"]).ended(1).json();
    assert_eq!(answer["well"], false);
    let (text, fix) = checks(&answer, "nb", "bad")[0];
    assert!(text.contains("other/nb comes first on PATH"), "{text}");
    assert_eq!(
        fix,
        format!("export PATH={}:\"$PATH\"", own_folder().display())
    );

    // The files in git would not work on another machine; the fix is run as printed.
    let git = |words: &[&str]| {
        succeed(world.command(Path::new("git")).args(words));
    };
    git(&["init", "--quiet"]);
    world.open("t.ipynb");
    let prefix = python::interpreter();
    nb(
        &world,
        [
            "open",
            "t.ipynb",
            "--select",
            "--python",
            &prefix.to_string_lossy(),
        ],
    )
    .ended(0);
    assert!(
        checks(
            &doctor(&world, "", &["--json"]).ended(0).json(),
            "git",
            "bad"
        )
        .is_empty()
    );
    git(&["add", "t.ipynb"]);
    let answer = doctor(&world, "", &["--json"]).ended(1).json();
    let (text, fix) = checks(&answer, "git", "bad")[0];
    assert!(
        text.starts_with("t.ipynb is tracked and names the kernelspec nb-shared"),
        "{text}"
    );
    let words = fix.strip_prefix("nb ").expect("a command of nb");
    nb(&world, words.split(' ')).ended(0);
    doctor(&world, "", &["--json"]).ended(0);

    let spec = home(&world).join("jupyter/kernels/nb-shared/kernel.json");
    std::fs::write(&spec, "{").expect("damage the spec");
    let answer = doctor(&world, "", &["--json"]).ended(1).json();
    assert_eq!(checks(&answer, "kernelspec", "bad")[0].1, "nb serve");
    nb(&world, ["serve"]).ended(0);
    // The program is not executable; root may execute a file if any execute bit is set.
    let program = home(&world).join(".local/share/nb/bin/nb-proxy");
    let mode = std::fs::Permissions::from_mode(0o644);
    std::fs::set_permissions(&program, mode).expect("take the right away");
    let answer = doctor(&world, "", &["--json"]).ended(1).json();
    assert_eq!(checks(&answer, "kernelspec", "bad")[0].1, "nb serve");
    nb(&world, ["serve"]).ended(0);

    let state = project.join(".nb/state.json");
    let whole = std::fs::read(&state).expect("it is there");
    std::fs::write(&state, "{").expect("damage it");
    let answer = doctor(&world, "", &["--json"]).ended(1).json();
    let (text, fix) = checks(&answer, "project", "bad")[0];
    assert!(text.contains("state.json"), "{text}");
    assert!(fix.starts_with("mv "), "{fix}");
    std::fs::write(&state, whole).expect("put it back");
}

#[test]
fn what_open_refuses_is_not_well() {
    let world = World::new();
    std::fs::write(world.project().join("empty.ipynb"), "").expect("make an empty file");
    std::fs::write(world.project().join("x.txt"), "x").expect("make a file");
    std::fs::create_dir(world.project().join("d.ipynb")).expect("make a folder");
    for (name, text) in [
        ("empty.ipynb", "empty.ipynb is empty"),
        ("x.txt", "its name does not end in .ipynb"),
        ("d.ipynb", "is a folder, not a notebook"),
        (".", "is a folder, not a notebook"),
    ] {
        let answer = doctor(&world, "", &[name, "--json"]).ended(1).json();
        let found = checks(&answer, "notebook", "bad");
        assert!(found[0].0.contains(text), "{name}: {found:?}");
        assert_ne!(found[0].1, "", "{name}");
    }
}

#[test]
fn a_disk_that_takes_no_bytes_is_noticed_and_no_temporary_name_is_shown() {
    let world = World::new();
    // The output of the command itself goes through a pipe, which has no such limit.
    let limited = |limit: u32, words: &str| {
        let mut command = world.command("bash".as_ref());
        let script =
            format!("(ulimit -f {limit}; exec \"$0\" {words}) 2>&1 | cat; exit ${{PIPESTATUS[0]}}");
        command.args(["-c", &script]).arg(world.nb().get_program());
        output_of(&mut command).ended(1)
    };
    limited(16, "doctor").with("cannot be written: File too large");
    nb(&world, ["open", "t.ipynb", "--no-kernel"]).ended(0);
    let refused = limited(0, "open new.ipynb --no-kernel");
    assert!(!refused.stdout.contains(".nb-"), "{refused:?}");
    refused.with("cannot create the notebook new.ipynb: File too large");
}

#[test]
fn damaged_kernelspecs_and_an_environment_without_ipykernel_are_reported() {
    let world = World::served();
    let spec = |name: &str, text: &str| {
        let folder = home(&world).join("jupyter/kernels").join(name);
        std::fs::create_dir_all(&folder).expect("make a folder");
        std::fs::write(folder.join("kernel.json"), text).expect("write a spec");
    };
    spec("empty", r#"{"argv":[]}"#);
    spec("mute", r#"{"argv":["sh"]}"#);
    spec("none", "no JSON");
    spec(
        &"long".repeat(40),
        r#"{"argv":["/gone/r","{connection_file}"]}"#,
    );
    let answer = doctor(&world, "", &["--json"]).ended(0).json();
    let notes = checks(&answer, "kernel", "note");
    assert_eq!(notes.len(), 4, "{notes:?}");
    for (text, fix) in notes {
        assert!(text.starts_with("the kernelspec ") && fix.starts_with("mend or remove "));
    }
    nb(&world, ["open", "t.ipynb", "--kernel", "mute"])
        .ended(1)
        .with("no argument of its argv is or holds {connection_file}");
    nb(&world, ["open", "t.ipynb", "--kernel", "none"])
        .ended(1)
        .with("is not a kernelspec: expected");
    let bare = world.project().join(".venv");
    succeed(
        Command::new(python::interpreter())
            .args(["-m", "venv"])
            .arg(&bare),
    );
    let mut command = world.nb();
    command.args(["doctor", "t.ipynb", "--json"]);
    let path = format!("{}:/usr/bin:/bin", own_folder().display());
    let answer = output_of(command.env("PATH", path)).ended(1).json();
    let (text, fix) = checks(&answer, "kernel", "bad")[0];
    assert!(
        text.contains("has no ipykernel; it is the project's"),
        "{text}"
    );
    assert!(
        fix.ends_with("/.venv/bin/python -m pip install ipykernel"),
        "{fix}"
    );
}

#[test]
fn programs_of_the_folder_are_not_run() {
    let world = World::new();
    world.open("t.ipynb");
    let project = world.project();
    let git = |words: &[&str]| {
        let mut git = Command::new("git");
        git.args(["-c", "user.name=a", "-c", "user.email=a@b.c"]);
        succeed(git.args(words).current_dir(&project));
    };
    git(&["init", "--quiet"]);
    git(&["add", "t.ipynb"]);
    git(&["commit", "--quiet", "-m", "x"]);
    let ran = home(&world).join("ran");
    let folders = [".venv/bin", "node_modules/.bin", "tools", "deep/er"];
    for folder in folders {
        let folder = project.join(folder);
        std::fs::create_dir_all(&folder).expect("make a folder");
        for name in [
            "nb",
            "git",
            "bwrap",
            "code",
            "cursor",
            "podman",
            "docker",
            "systemd-run",
            "id",
            "ps",
            "uv",
        ] {
            let script = format!("#!/bin/sh\necho {name} >> {}\n", ran.display());
            let program = folder.join(name);
            std::fs::write(&program, script).expect("write a program");
            let executable = std::fs::Permissions::from_mode(0o755);
            std::fs::set_permissions(&program, executable).expect("make it executable");
        }
    }
    let mut path: Vec<_> = folders.iter().map(|folder| project.join(folder)).collect();
    path.extend([own_folder().to_owned(), "/usr/bin".into(), "/bin".into()]);
    path[2] = "tools".into();
    let path = std::env::join_paths(path).expect("no colon is in them");
    let notebook = project.join("t.ipynb");
    let notebook = notebook.to_str().expect("UTF-8");
    let (here, elsewhere) = (project.clone(), home(&world));
    for (folder, words) in [
        (&here, &["doctor", "t.ipynb"][..]),
        (&here, &["diff", "--git", "t.ipynb"]),
        (&here, &["kernels", "t.ipynb"]),
        (&here, &["serve", "--vscode"]),
        // A notebook of the project is named.
        (&elsewhere, &["doctor", notebook]),
        (&elsewhere, &["diff", "--git", notebook]),
        (&elsewhere, &["kernels", notebook]),
    ] {
        let mut command = world.nb();
        command.args(words).env("PATH", &path).current_dir(folder);
        let output = output_of(&mut command);
        let names = std::fs::read_to_string(&ran).unwrap_or_default();
        assert_eq!(names, "", "{words:?} in {}: {output:?}", folder.display());
    }
}

#[test]
fn nothing_is_writable_by_others_with_any_umask() {
    for umask in ["000", "002"] {
        let world = World::new();
        // Earlier versions have made this folder with the rights that the umask left.
        let program = home(&world).join(".local/share/nb/bin");
        std::fs::create_dir_all(&program).expect("make the folder");
        for (folder, mode) in program.ancestors().zip([0o777, 0o777, 0o755, 0o755]) {
            let permissions = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(folder, permissions).expect("set the permissions");
        }
        for words in [
            &["serve"][..],
            &["agent", "install", "claude", "codex", "cursor", "--yes"],
        ] {
            let mut command = world.command(Path::new("/bin/sh"));
            command.args(["-c", &format!("umask {umask}; exec \"$@\""), "sh"]);
            command.arg(env!("CARGO_BIN_EXE_nb")).args(words);
            succeed(&mut command);
        }
        let mut folders = vec![world.project(), home(&world)];
        let mut seen = 0;
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).expect("list").flatten() {
                let metadata = entry.metadata().expect("it is there");
                if metadata.is_symlink() {
                    continue;
                }
                let mode = metadata.permissions().mode();
                assert_eq!(
                    mode & 0o022,
                    0,
                    "{} with umask {umask}",
                    entry.path().display()
                );
                seen += 1;
                if metadata.is_dir() {
                    folders.push(entry.path());
                }
            }
        }
        assert!(seen > 10, "{seen}");
    }
}

#[test]
fn another_server_of_the_name_is_named_by_agent_install() {
    let world = World::new();
    let text = r#"{"mcpServers": {"nb": {"command": "nb", "args": ["mcp"], "env": {"LD_PRELOAD": "./x.so"}}}}"#;
    let file = world.project().join(".mcp.json");
    std::fs::write(&file, text).expect("write the settings");
    let install = ["agent", "install", "claude", "--yes"];
    let said = nb(&world, install).ended(0);
    said.with(".mcp.json names another server \"nb\"")
        .with("LD_PRELOAD");
    assert_eq!(std::fs::read_to_string(&file).expect("read it"), text);
    let answer = nb(&world, install.iter().chain(&["--json"]))
        .ended(0)
        .json();
    assert_eq!(
        answer["other_servers"][0]["entry"]["env"]["LD_PRELOAD"],
        "./x.so"
    );
    std::fs::remove_file(&file).expect("remove it");
    nb(&world, install).ended(0);
    let answer = nb(&world, install.iter().chain(&["--json"]))
        .ended(0)
        .json();
    assert_eq!(answer["other_servers"], serde_json::json!([]));
}
