//! The kernelspec that front ends list: installed once, and repaired when it would not work.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use super::{home, nb, open, opening, output_of, path};
use crate::python;
use crate::world::{World, succeed};

#[test]
fn the_spec_is_installed_mended_and_removed() {
    let world = World::new();
    let health = || {
        let status = nb(&world, ["status", "--json"]).ended(0).json();
        status["spec"]["state"].clone()
    };
    let unserved = output_of(opening(&world, "t.ipynb").arg("--no-serve"))
        .ended(0)
        .json();
    assert_eq!(unserved["spec"], Value::Null);
    assert_eq!(health(), "missing");
    nb(&world, ["open"])
        .ended(0)
        .with("Select Kernel")
        .with("JupyterLab");
    assert_eq!(health(), "good");

    let served = nb(&world, ["serve", "--json"]).ended(0).json();
    assert_eq!(served["changed"], false);
    let (folder, program) = (path(&served["spec"]), path(&served["program"]));
    assert_eq!(folder, home(&world).join("jupyter/kernels/nb-shared"));
    assert_eq!(program, home(&world).join(".local/share/nb/bin/nb-proxy"));
    let text = std::fs::read(folder.join("kernel.json")).expect("it is installed");
    let spec: Value = serde_json::from_slice(&text).expect("JSON");
    assert_eq!(spec["argv"], json!([program, "-f", "{connection_file}"]));
    assert_eq!(spec["display_name"], "nb shared kernel");
    let mode = std::fs::metadata(&program)
        .expect("it is installed")
        .permissions()
        .mode();
    assert_eq!(mode & 0o111, 0o111);
    // It is the `nb-proxy` beside `nb`, and finds `nb` by a link.
    let content = |path: &str| std::fs::read(path).expect("read a program");
    let installed = std::fs::read(&program).expect("it is installed");
    assert!(installed == content(env!("CARGO_BIN_EXE_nb-proxy")));
    let link = program.with_file_name("nb");
    let target = std::fs::read_link(&link).expect("a link");
    assert_eq!(target, Path::new(env!("CARGO_BIN_EXE_nb")));

    // Missing, of another version, or not executable.
    std::fs::remove_file(&program).expect("remove it");
    assert_eq!(health(), "stale");
    nb(&world, ["status"])
        .ended(0)
        .with("is gone; next: nb serve");
    assert_eq!(open(&world, "t.ipynb")["spec"], "mended");
    assert_eq!(health(), "good");
    std::fs::copy("/bin/true", &program).expect("put another in its place");
    assert_eq!(health(), "stale");
    nb(&world, ["open"]).ended(0).with("mended");
    std::fs::write(folder.join("kernel.json"), "{").expect("damage it");
    assert_eq!(health(), "stale");
    assert_eq!(open(&world, "t.ipynb")["spec"], "mended");
    assert_eq!(nb(&world, ["serve", "--json"]).json()["changed"], false);

    let removed = nb(&world, ["unserve", "--json"]).ended(0).json();
    assert_eq!(removed["removed"], json!([folder, program, link]));
    nb(&world, ["unserve"]).ended(0).with("not installed");
    assert_eq!(health(), "missing");
    nb(&world, ["run", "1"]).ended(0);
}

#[test]
fn an_environment_can_have_the_spec_and_anothers_is_left_alone() {
    let world = World::new();
    let prefix = world.project().join("an env");
    let serve = |command: &str| {
        output_of(
            world
                .nb()
                .args([command, "--json", "--prefix"])
                .arg(&prefix),
        )
    };
    let served = serve("serve").ended(0).json();
    let folder = prefix.join("share/jupyter/kernels/nb-shared");
    assert_eq!(path(&served["spec"]), folder);
    assert!(folder.join("logo-svg.svg").exists());
    serve("unserve").ended(0);
    std::fs::create_dir_all(&folder).expect("make the folder");
    std::fs::write(folder.join("kernel.json"), r#"{"argv":["other"]}"#).expect("write a spec");
    for command in ["serve", "unserve"] {
        let refused = serve(command).ended(5).json();
        assert_eq!(refused["error"]["kind"], "refused");
        assert!(refused["error"]["hints"][0].is_string(), "{refused}");
    }
    assert!(folder.join("kernel.json").exists());
    nb(&world, ["serve", "--user", "--prefix", "x"]).ended(2);
    assert!(python::interpreter().exists());
}

#[test]
fn a_project_can_have_the_spec_and_vscode_is_told_where() {
    let world = World::new();
    let env = world.project().join(".env");
    std::fs::write(&env, "A=1").expect("write it");
    let served = nb(&world, ["serve", "--project", "--json"]).ended(0).json();
    let data = world.project().join(".nb/jupyter");
    let data = data.canonicalize().expect("it was made");
    assert_eq!(path(&served["spec"]), data.join("kernels/nb-shared"));
    let line = format!("JUPYTER_PATH={}", data.display());
    assert_eq!(
        path(&served["env"]["file"]),
        env.canonicalize().expect("it is there")
    );
    assert_eq!(served["env"]["line"], line);
    nb(&world, ["serve", "--project"])
        .ended(0)
        .with("already installed")
        .with(&format!("    {line}\n"));
    let mut lists = world.nb();
    lists.env("JUPYTER_PATH", &data);
    let (program, envs) = (python::interpreter(), lists.get_envs());
    let envs = envs.filter_map(|(name, value)| Some((name, value?)));
    let mut lists = Command::new(program);
    lists
        .envs(envs)
        .args(["-m", "jupyter_client.kernelspecapp"]);
    output_of(lists.arg("list"))
        .ended(0)
        .with(&data.to_string_lossy());
    nb(&world, ["serve"]).ended(0);
    // The project's kernelspec uses the user's program, too.
    nb(&world, ["unserve"])
        .ended(0)
        .with("the program stays for the specs in");
    assert!(path(&served["program"]).exists());
    nb(&world, ["unserve", "--project"])
        .ended(0)
        .with(&format!("has the line {line}"));
    assert!(!path(&served["program"]).exists());
    // The `.env` file belongs to the user, so it is not changed.
    assert_eq!(std::fs::read_to_string(&env).expect("it is there"), "A=1");
}

/// Installs a kernelspec for R whose kernel is ipykernel.
fn install_r(world: &World) {
    let folder = home(world).join("jupyter/kernels/ir");
    std::fs::create_dir_all(&folder).expect("make a folder");
    let argv = [
        &*python::interpreter().to_string_lossy(),
        "-m",
        "ipykernel_launcher",
        "-f",
        "{connection_file}",
    ];
    let spec = json!({ "argv": argv, "display_name": "R", "language": "R" });
    std::fs::write(folder.join("kernel.json"), spec.to_string()).expect("write a spec");
}

#[test]
fn another_language_has_a_spec_of_its_own() {
    let world = World::new();
    install_r(&world);
    let opened = nb(&world, ["open", "r.ipynb", "--kernel", "ir"]).ended(0);
    opened
        .with("The kernelspec \"nb shared kernel (R)\" is installed")
        .with("> nb shared kernel (R)");
    let kernels = home(&world).join("jupyter/kernels");
    let read = |name: &str| -> Value {
        let text = std::fs::read(kernels.join(name).join("kernel.json")).expect("it is there");
        serde_json::from_slice(&text).expect("JSON")
    };
    nb(&world, ["serve", "--language", "python"]).ended(0);
    assert_eq!(read("nb-shared-r")["argv"], read("nb-shared")["argv"]);
    assert_eq!(read("nb-shared-r")["language"], "R");
    nb(&world, ["serve", "--language", "Julia"])
        .ended(0)
        .with("no kernel for Julia");
    // A new notebook from a front end starts a kernel of the chosen language.
    succeed(&mut world.script("language.py", "nb-shared-r"));
    nb(&world, ["open", "x.ipynb", "--kernel", "nb-shared-r"])
        .ended(1)
        .with("needs a real kernel behind it");
    nb(&world, ["unserve"]).ended(0);
    let left = std::fs::read_dir(&kernels).expect("it is there").count();
    assert_eq!(left, 1, "only the kernel's own");
}

#[test]
fn a_notebook_names_its_real_kernel_again_when_nb_is_done_with_it() {
    let world = World::new();
    let notebook = world.project().join("t.ipynb");
    let read = || std::fs::read_to_string(&notebook).expect("it is there");
    open(&world, "t.ipynb");
    let real = read();
    output_of(opening(&world, "t.ipynb").arg("--select")).ended(0);
    let shared = read();
    assert_eq!(
        shared,
        real.replace("Python 3 (ipykernel)", "nb shared kernel")
            .replace("\"python3\"", "\"nb-shared\"")
    );
    nb(&world, ["shutdown"])
        .ended(0)
        .with("note: t.ipynb names its own kernelspec python3 again");
    assert_eq!(read(), real);

    // A front end that saves the notebook names the shared kernelspec, in its own style.
    let one_line = r#"{"cells":[],"metadata":{"kernelspec":{"name":"nb-shared","display_name":"x"},"k":1.0},"nbformat":4,"nbformat_minor":5}"#;
    std::fs::write(&notebook, one_line).expect("save it");
    open(&world, "t.ipynb");
    let session = nb(&world, ["status", "--json"]).ended(0).json();
    assert_eq!(session["sessions"][0]["kernel"], "python3");
    let answer = nb(&world, ["unserve", "--json"]).ended(0).json();
    assert!(
        answer["notes"][0]
            .as_str()
            .is_some_and(|note| note.contains("python3 again")),
        "{answer}"
    );
    let text = read();
    let (head, tail) = one_line
        .split_once(r#"{"name":"nb-shared","display_name":"x"}"#)
        .expect("it is in it");
    let spec = text
        .strip_prefix(head)
        .and_then(|text| text.strip_suffix(tail));
    let spec: Value = serde_json::from_str(spec.expect("all else is as it was")).expect("JSON");
    let real =
        json!({ "name": "python3", "display_name": "Python 3 (ipykernel)", "language": "python" });
    assert_eq!(spec, real);
    std::fs::write(&notebook, "no notebook any more").expect("damage it");
    nb(&world, ["shutdown"])
        .ended(0)
        .with("was left as it is: it is not a notebook");
    assert_eq!(read(), "no notebook any more");
}
