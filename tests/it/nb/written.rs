//! What a hostile kernel in a sandbox leaves where it may write: none of it is run outside.
//!
//! Everything that it leaves would make a file in the user's home, where the kernel itself cannot write. No
//! such file exists after all commands that choose, list, examine and start kernels.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use super::{Output, output_of};
use crate::made::run;
use crate::python;
use crate::world::World;

/// Replaces or adds everything that somebody might run; `@HOME@` is the user's home.
const HOSTILE: &str = r##"
import json, os, pathlib, stat, sys
home, venv = pathlib.Path("@HOME@"), pathlib.Path(".venv")
try: (home / "ran-inside").touch()
except OSError: pass
def program(path, mark):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.write_text(f"#!/bin/sh\ntouch {home}/ran-{mark}\n")
    path.chmod(0o755)
for name in ["git", "bwrap", "systemd-run", "uv", "conda", "mamba", "poetry", "pixi", "R", "python3.99"]:
    program(venv / "bin" / name, name)
code = "import pathlib; pathlib.Path('%s/ran-%s').touch()\n"
site = next((venv / "lib").glob("python*")) / "site-packages"
(site / "evil.pth").write_text(code % (home, "pth"))
(site / "sitecustomize.py").write_text(code % (home, "sitecustomize"))
pathlib.Path("ipykernel_launcher.py").write_text(code % (home, "module"))
(venv / "conda-meta").mkdir(exist_ok=True)
program(venv / "etc/conda/activate.d/x.sh", "activate")
program(venv / "etc/conda/deactivate.d/x.sh", "deactivate")
spec = {"argv": ["/bin/sh", "-c", f"touch {home}/ran-spec", "{connection_file}"], "display_name": "evil", "language": "evil"}
for name in ["evil", "python3"]:
    folder = venv / "share/jupyter/kernels" / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "kernel.json").write_text(json.dumps(spec))
program(pathlib.Path("hook"), "fsmonitor")
# Bubblewrap has it read-only; Landlock alone takes no such folder to write.
try:
    with open(".git/config", "a") as config:
        config.write("[core]\n\tfsmonitor = %s/hook\n" % os.getcwd())
except OSError:
    pass
pathlib.Path("inner/.nb").mkdir(parents=True)
state = json.load(open("state-of-inner"))
pathlib.Path("inner/.nb/state.json").write_text(json.dumps(state))
pathlib.Path("inner/a.ipynb").write_text(open("b.ipynb").read())
print("done")
"##;

/// A project's state that a kernel has made up, which would have a command of its own run again.
const STATE_OF_INNER: &str = r#"{"sessions": {"a.ipynb": {"notebook": "@NOTEBOOK@", "connection_file": "@NOTEBOOK@.json",
  "backend": {"kind": "local", "host": {}}, "status": "stopped", "kernelspec": {"name": "x", "display_name": "x", "language": "python",
  "argv": ["/bin/sh", "-c", "touch @HOME@/ran-state", "{connection_file}"]}}}}"#;

fn marks(home: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(home)
        .expect("read the home folder")
        .flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.starts_with("ran-")).collect()
}

/// Makes an environment of the project that uses the packages of the tests' own.
fn environment(folder: &Path) {
    run(Command::new(python::interpreter())
        .args(["-m", "venv", "--without-pip"])
        .arg(folder.join(".venv")));
    let own = python::interpreter().parent().and_then(Path::parent);
    let sites = |prefix: &Path| {
        let mut found = std::fs::read_dir(prefix.join("lib"))
            .expect("lib")
            .flatten();
        let first = found.next().expect("a Python's folder").path();
        first.join("site-packages")
    };
    let packages = sites(own.expect("an environment"));
    let line = format!("{}\n", packages.display());
    std::fs::write(sites(&folder.join(".venv")).join("packages.pth"), line).expect("write");
}

#[test]
fn nothing_that_a_sandboxed_kernel_left_is_run_outside() {
    if !crate::skipped::has_bubblewrap() {
        return;
    }
    let world = World::new();
    let project = world.project();
    let home = project.with_file_name("home");
    run(Command::new("git").args(["init", "-q"]).arg(&project));
    environment(&project);
    let nb = |words: &[&str]| -> Output {
        let mut command = world.nb();
        // A shell with the environment activated.
        let bin = project.join(".venv/bin");
        let path = std::env::var("PATH").expect("a path");
        command.env("PATH", format!("{}:{path}", bin.display()));
        command.env("VIRTUAL_ENV", project.join(".venv"));
        command.env("CONDA_PREFIX", project.join(".venv"));
        output_of(command.args(words))
    };
    nb(&["open", "b.ipynb", "--no-kernel"]).ended(0);
    let state = STATE_OF_INNER.replace("@HOME@", &home.display().to_string());
    let inner = project.join("inner/a.ipynb");
    let state = state.replace("@NOTEBOOK@", &inner.display().to_string());
    std::fs::write(project.join("state-of-inner"), state).expect("write");
    // If the folder above the project is writable, the project and its records could be exchanged.
    nb(&[
        "open",
        "t.ipynb",
        "--no-serve",
        "--sandbox",
        "--allow-write",
        "..",
    ])
    .ended(5)
    .with("cannot be given to a sandbox");
    let open = ["open", "t.ipynb", "--no-serve", "--sandbox=bubblewrap"];
    let sources = ["--allow-write", ".", "--allow-read"];
    let packages = python::interpreter().parent().and_then(Path::parent);
    let packages = packages.and_then(Path::to_str).expect("a path");
    nb(&[&open[..], &sources, &[packages]].concat()).ended(0);
    let hostile = HOSTILE.replace("@HOME@", &home.display().to_string());
    assert_eq!(nb(&["run", "t.ipynb", &hostile]).ended(0).stdout, "done\n");
    assert_eq!(marks(&home), Vec::<String>::new());

    let refused = |words: &[&str], message: &str| {
        nb(words)
            .ended(5)
            .with(message)
            .with("was allowed to write")
            .with("nb open b.ipynb --sandbox")
            .with("--trust");
    };
    // The environment's Python is still listed, with everything that it would run by itself.
    nb(&["kernels", "b.ipynb"])
        .ended(0)
        .with("evil/kernel.json");
    nb(&["doctor", "b.ipynb"])
        .ended(1)
        .with("is on PATH, and a sandboxed kernel was allowed to write it");
    refused(&["open", "b.ipynb"], ".venv/bin/python is not used");
    refused(
        &["open", "b.ipynb", "--python", ".venv/bin/python"],
        ".venv/bin/python",
    );
    // A kernel of another Python is refused too, as it would run in the folder that the hostile kernel can
    // write.
    let other = python::interpreter().to_str().expect("a path");
    refused(&["open", "b.ipynb", "--python", other], "working directory");
    nb(&["open", "b.ipynb", "--kernel", "evil"])
        .ended(1)
        .with("evil/kernel.json is not used");
    // A `.nb` that the hostile kernel made is ignored, and nothing in it is run.
    nb(&["open", "inner/a.ipynb"])
        .ended(5)
        .with("inner/.nb was not made by your nb on this machine")
        .with("is not used outside a sandbox");
    nb(&["show", "b.ipynb", "--at", "HEAD"]);
    nb(&["diff", "b.ipynb"]);
    assert_eq!(marks(&home), Vec::<String>::new());

    // The same if its Python was replaced or links to another file, and at the next start of the sandboxed
    // kernel.
    for name in ["python", "python3"] {
        let file = project.join(".venv/bin").join(name);
        std::fs::remove_file(&file).expect("remove it");
        symlink("python3.99", &file).expect("link it");
    }
    nb(&["kernels", "b.ipynb", "--json"]).ended(0);
    nb(&["doctor", "b.ipynb"]).ended(1);
    for more in [
        &[][..],
        &["--install"],
        &["--python", ".venv/bin/python", "--install"],
    ] {
        let output = nb(&[&["open", "b.ipynb"], more].concat());
        assert!(matches!(output.code, Some(1 | 5)), "{output:?}");
    }
    nb(&["restart", "t.ipynb"]);
    nb(&["open", "b.ipynb", "--sandbox"]);
    assert_eq!(marks(&home), Vec::<String>::new());
    nb(&["shutdown", "b.ipynb"]);

    // The user inspects the folder, and says so.
    nb(&["open", "b.ipynb", "--trust", "nowhere"])
        .ended(5)
        .with("--trust /");
    nb(&["shutdown", "t.ipynb"]).ended(0);
    run(Command::new("rm")
        .arg("-r")
        .args([".venv", "inner", "ipykernel_launcher.py", ".git"])
        .current_dir(&project));
    environment(&project);
    refused(
        &["open", "b.ipynb", "--no-sandbox"],
        ".venv/bin/python is not used",
    );
    nb(&["open", "b.ipynb", "--no-sandbox", "--trust", "."])
        .ended(0)
        .with("started");
    assert_eq!(
        nb(&["run", "b.ipynb", "print(6 * 7)"]).ended(0).stdout,
        "42\n"
    );
    assert_eq!(marks(&home), Vec::<String>::new());
}

#[test]
fn an_environment_that_was_written_shows_the_next_sandbox_nothing_more() {
    if !crate::skipped::has_bubblewrap() {
        return;
    }
    let world = World::new();
    let project = world.project();
    let keys = project.with_file_name("home").join("keys");
    for folder in ["bin", "lib/python"] {
        std::fs::create_dir_all(keys.join(folder)).expect("make a folder");
    }
    std::fs::write(keys.join("secret"), "secret").expect("write it");
    std::fs::write(keys.join("bin/python"), "").expect("write it");
    environment(&project);
    let packages = python::interpreter().parent().and_then(Path::parent);
    let packages = packages.and_then(Path::to_str).expect("a path");
    let nb = |words: &[&str]| output_of(world.nb().args(words));
    let open = ["open", "t.ipynb", "--no-serve", "--sandbox=bubblewrap"];
    let rooms = ["--allow-write", ".venv", "--allow-read", packages];
    nb(&[&open[..], &rooms].concat()).ended(0);
    let secret = keys.join("secret");
    let read = format!(
        "try: print(open('{}').read())\nexcept OSError: print('not seen')",
        secret.display()
    );
    assert_eq!(nb(&["run", "t.ipynb", &read]).ended(0).stdout, "not seen\n");
    // Its base Python is set to a folder with keys; the real one is still found.
    let bin = keys.join("bin");
    let name = format!("home = {}", bin.display());
    let code = format!(
        "import pathlib, re\nfile = pathlib.Path('.venv/pyvenv.cfg')\n\
         file.write_text(re.sub('home = .*', '{name}', file.read_text()) + '\\n{name}\\n'); print('done')"
    );
    assert_eq!(nb(&["run", "t.ipynb", &code]).ended(0).stdout, "done\n");
    nb(&["restart", "t.ipynb"]);
    nb(&["open", "t.ipynb"]);
    let output = nb(&["run", "t.ipynb", &read]);
    assert!(!output.stdout.contains("secret"), "{output:?}");
    let settings = std::fs::read_to_string(project.join(".venv/pyvenv.cfg")).expect("read it");
    assert!(settings.contains(&name), "{settings}");
}
