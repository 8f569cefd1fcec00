//! The list of kernels, their environments, and the kernel that a notebook gets.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use super::{home, nb, output_of, path};
use crate::made;
use crate::python;
use crate::world::{World, succeed};

/// Returns the site-packages of the tests' own Python, which has ipykernel.
fn site_packages() -> PathBuf {
    let prefix = python::interpreter().parent().and_then(Path::parent);
    let lib = prefix.expect("it is in an environment").join("lib");
    let versions = std::fs::read_dir(lib).expect("it has packages").flatten();
    let mut folders = versions.map(|entry| entry.path().join("site-packages"));
    folders.find(|it| it.is_dir()).expect("it has packages")
}

/// Makes a venv environment, with the tests' ipykernel or without any; returns its Python.
pub(super) fn venv(prefix: &Path, ipykernel: bool) -> PathBuf {
    made::run(
        Command::new(python::interpreter())
            .args(["-m", "venv", "--without-pip"])
            .arg(prefix),
    );
    if ipykernel {
        let own = site_packages();
        let version = own.parent().and_then(Path::file_name).expect("a version");
        let file = prefix
            .join("lib")
            .join(version)
            .join("site-packages/tests.pth");
        std::fs::write(file, format!("{}\n", own.display())).expect("lend it ipykernel");
    }
    prefix.join("bin/python")
}

/// The PATH of a shell with only the system's programs.
pub(super) const PATH: &str = "/usr/bin:/bin";

#[test]
fn what_jupyter_lists_is_what_nb_lists() {
    let world = World::new();
    let at = |name: &str| home(&world).join(name);
    let spec = |folder: PathBuf, name: &str| {
        let text = json!({ "argv": ["sh", "-c", "true", "{connection_file}"],
            "display_name": folder, "language": "x" });
        let folder = folder.join("kernels").join(name);
        std::fs::create_dir_all(&folder).expect("make a spec's folder");
        std::fs::write(folder.join("kernel.json"), text.to_string()).expect("write a spec");
    };
    // The same name in every folder: the first folder wins.
    let places = [
        "extra",
        "data",
        "site/share/jupyter",
        "xdg/jupyter",
        "dirs/jupyter",
        "ipython",
    ];
    for place in places {
        spec(at(place), "Same");
        spec(at(place), &format!("of_{}", place.replace('/', "_")));
    }
    let broken = at("data/kernels/broken");
    std::fs::create_dir_all(&broken).expect("make a folder");
    std::fs::write(broken.join("kernel.json"), "{").expect("write a damaged spec");
    let prefix = python::interpreter().parent().and_then(Path::parent);
    let prefix = prefix.expect("it is in an environment");
    let (on, off) = (Some("1"), Some("no"));
    // JUPYTER_DATA_DIR, JUPYTER_PATH, JUPYTER_PREFER_ENV_PATH, JUPYTER_PLATFORM_DIRS
    let settings = [
        (true, true, None, None),
        (true, false, off, None),
        (false, true, on, None),
        (false, false, off, on),
        (false, true, None, on),
    ];
    for version in ["4.12.0", "5.3.0", "5.7.2", "5.9.1"] {
        let core = jupyter_core(version);
        for (data, extra, prefer, platform) in settings {
            let is_old = version.starts_with('4');
            // Version 4 had no platform folders and never preferred an environment by default.
            if is_old && (platform.is_some() || prefer.is_none()) {
                continue;
            }
            let set = |mut command: Command| {
                command
                    .env("VIRTUAL_ENV", prefix)
                    .env("XDG_DATA_HOME", at("xdg"))
                    .env("XDG_DATA_DIRS", at("dirs"))
                    .env("IPYTHONDIR", at("ipython"))
                    .env("PYTHONUSERBASE", at("site"))
                    .env_remove("JUPYTER_DATA_DIR");
                let chosen = [
                    ("JUPYTER_DATA_DIR", data.then(|| at("data"))),
                    ("JUPYTER_PATH", extra.then(|| at("extra"))),
                    ("JUPYTER_PREFER_ENV_PATH", prefer.map(PathBuf::from)),
                    ("JUPYTER_PLATFORM_DIRS", platform.map(PathBuf::from)),
                ];
                for (name, value) in chosen {
                    value.map(|value| command.env(name, value));
                }
                command
            };
            let mut asked = set(world.command(python::interpreter()));
            asked.arg(python::script("kernelspecs.py"));
            let jupyter = succeed(asked.env("PYTHONPATH", &core));
            let last = jupyter.lines().last().expect("it prints a line");
            let jupyter: Value = serde_json::from_str(last).expect("JSON");
            let mut listed = set(world.nb());
            let own = output_of(listed.args(["kernels", "--json"]))
                .ended(0)
                .json();
            let case = format!("{version} {data} {extra} {prefer:?} {platform:?}");
            assert_eq!(own["searched"], jupyter["folders"], "{case}");
            let kernels = own["kernels"].as_array().expect("a list").iter();
            let specs = kernels.filter(|kernel| kernel["kind"] == "kernelspec");
            let specs: Vec<_> = specs
                .map(|kernel| json!([kernel["name"], kernel["path"]]))
                .collect();
            assert_eq!(Value::from(specs), jupyter["specs"], "{case}");
        }
    }
}

/// Installs a release of jupyter_core, with its dependencies; returns the folder.
fn jupyter_core(version: &str) -> PathBuf {
    let wanted = format!("jupyter_core=={version}");
    made::once(
        &format!("test-jupyter-core-{version}"),
        &[&wanted],
        |folder| {
            made::run(
                Command::new(python::interpreter())
                    .args(["-m", "pip", "install", "--quiet", "--no-deps", "--target"])
                    .arg(folder)
                    .arg(&wanted),
            );
        },
    )
}

#[test]
fn the_environment_at_hand_is_chosen_listed_and_started() {
    let world = World::new();
    let project = world.project().canonicalize().expect("it is there");
    let own = venv(&project.join(".venv"), true);
    venv(&project.join("deep/.venv"), false);
    let list = |notebook: &str| {
        let mut command = world.nb();
        command
            .args(["kernels", notebook, "--json"])
            .env("PATH", PATH);
        output_of(&mut command).ended(0).json()
    };
    let found = list("t.ipynb");
    assert_eq!(path(&found["chosen"]["argv"][0]), own);
    let why = format!(".venv in {}", project.display());
    assert_eq!(found["chosen"]["why"], *why);
    let first = &found["kernels"][0];
    assert_eq!(
        json!([
            first["name"],
            first["kind"],
            first["manager"],
            first["chosen"]
        ]),
        json!([".venv", "environment", "venv", true])
    );
    // The nearer one has no ipykernel: the next one is chosen, with a note.
    let deep = list("deep/t.ipynb");
    assert_eq!(path(&deep["chosen"]["argv"][0]), own);
    assert_eq!(deep["kernels"][0]["ready"], false);
    let note = deep["notes"][0].as_str().expect("a note");
    assert!(note.contains("was passed over; to use it: "), "{note}");
    let mut open = world.nb();
    open.args(["open", "t.ipynb"]).env("PATH", PATH);
    output_of(&mut open).ended(0);
    let code = "import os, sys; print(sys.prefix, os.environ['VIRTUAL_ENV'], os.environ['PATH'])";
    let prefix = project.join(".venv");
    let stdout = nb(&world, ["run", code]).ended(0).stdout;
    let expected = format!("{0} {0} {0}/bin:{PATH}\n", prefix.display());
    assert_eq!(stdout, expected);
    let text = nb(&world, ["kernels", "t.ipynb"]).ended(0);
    text.with("* .venv  ").with(": the notebook ran it before");
}

#[test]
fn commands_that_look_or_end_run_nothing_of_the_folder() {
    let world = World::new();
    let project = world.project();
    let canary = project.parent().expect("a folder").join("canary");
    std::fs::create_dir(&canary).expect("make a folder");
    let trap = |file: &Path, start: &str| {
        std::fs::create_dir_all(file.parent().expect("a folder")).expect("make its folder");
        let name = file.display().to_string().replace('/', "_");
        let text = format!("{start}touch {}/{name}\n", canary.display());
        std::fs::write(file, text).expect("write a trap");
        std::fs::set_permissions(file, PermissionsExt::from_mode(0o755)).expect("let it run");
    };
    for program in [
        "python",
        "python3",
        "git",
        "bwrap",
        "podman",
        "docker",
        "uv",
        "systemd-run",
    ] {
        trap(&project.join(".venv/bin").join(program), "#!/bin/sh\n");
    }
    for prefix in ["env", ".conda", ".pixi/envs/default"].map(|name| project.join(name)) {
        trap(&prefix.join("bin/python"), "#!/bin/sh\n");
        std::fs::create_dir_all(prefix.join("conda-meta")).expect("make an environment");
        trap(&prefix.join("etc/conda/activate.d/x.sh"), "");
    }
    let code = format!("open({:?}, 'w')\n", canary.join("module"));
    std::fs::write(project.join("sitecustomize.py"), &code).expect("write a module");
    made::run(
        Command::new("git")
            .args(["init", "--quiet"])
            .current_dir(&project),
    );
    let text = r#"{"cells":[],"metadata":{},"nbformat":4,"nbformat_minor":5}"#;
    std::fs::write(project.join("t.ipynb"), text).expect("write a notebook");
    let commands: [&[&str]; 20] = [
        &["kernels"],
        &["kernels", "t.ipynb", "--json"],
        &["doctor"],
        &["doctor", "t.ipynb", "--json"],
        &["status"],
        &["status", "t.ipynb"],
        &["cells", "t.ipynb"],
        &["cell", "t.ipynb", "1"],
        &["search", "x"],
        &["log"],
        &["log", "t.ipynb"],
        &["diff", "t.ipynb"],
        &["jobs"],
        &["vars", "t.ipynb"],
        &["fmt", "t.ipynb"],
        &["restart", "t.ipynb"],
        &["interrupt", "t.ipynb"],
        &["shutdown", "t.ipynb"],
        &["shutdown", "--all"],
        &["gc"],
    ];
    for words in commands {
        for active in [false, true] {
            let mut command = world.nb();
            command.args(words).env("PATH", PATH);
            if active {
                let bin = project.join(".venv/bin");
                command
                    .env("PATH", format!("{}:{PATH}", bin.display()))
                    .env("VIRTUAL_ENV", project.join(".venv"))
                    .env("PYTHONPATH", &project);
            }
            output_of(&mut command);
            let ran: Vec<_> = std::fs::read_dir(&canary)
                .expect("list it")
                .flatten()
                .collect();
            assert!(ran.is_empty(), "{words:?}, active: {active}: {ran:?}");
        }
    }
    // The canary works: `nb open` runs the Python of the folder.
    let mut open = world.nb();
    output_of(
        open.args(["open", "t.ipynb", "--no-serve"])
            .env("PATH", PATH),
    );
    let ran = std::fs::read_dir(&canary).expect("list it").count();
    assert!(ran > 0, "nb open asks the folder's Python");
}

#[test]
fn an_environment_whose_python_is_gone_is_reported_with_what_makes_it_anew() {
    let world = World::new();
    let project = world.project().canonicalize().expect("it is there");
    let python = venv(&project.join(".venv"), true);
    for name in ["python", "python3"] {
        let link = python.with_file_name(name);
        std::fs::remove_file(&link).expect("remove it");
        std::os::unix::fs::symlink("/gone/bin/python3", link).expect("link it");
    }
    let refused = |words: &[&str]| {
        let mut command = world.nb();
        output_of(command.args(words).env("PATH", PATH))
            .with(".venv/bin/python leads to /gone/bin/python3, which is not there")
            .with("python3 -m venv --clear ")
    };
    refused(&["open", "t.ipynb", "--no-serve"]).ended(1);
    refused(&["open", "t.ipynb", "--no-serve", "--install"]).ended(1);
    refused(&["kernels", "t.ipynb"]).ended(0);
    refused(&["doctor", "t.ipynb"]).ended(1);
    assert!(!project.join("t.ipynb").exists());
}

#[test]
fn a_python_without_ipykernel_may_be_named_by_a_relative_path() {
    let world = World::new();
    let project = world.project().canonicalize().expect("it is there");
    let python = venv(&project.join("myenv"), false);
    // Its files do not show what it has, so it is run.
    std::fs::remove_file(project.join("myenv/pyvenv.cfg")).expect("remove it");
    std::fs::remove_dir_all(project.join("myenv/lib")).expect("remove it");
    std::fs::remove_file(&python).expect("remove it");
    let script = format!(
        "#!/bin/sh\necho '{}'\n",
        serde_json::json!({
            "executable": &python, "prefix": project.join("myenv"), "ipykernel": false,
            "pip": true, "environment": true, "managed": false,
        })
    );
    std::fs::write(&python, script).expect("write it");
    std::fs::set_permissions(&python, PermissionsExt::from_mode(0o755)).expect("allow it");
    nb(&world, ["open", "t.ipynb", "--python", "myenv/bin/python"])
        .ended(1)
        .with("myenv/bin/python has no ipykernel")
        .with("-m pip install ipykernel");
}

#[test]
fn without_ipykernel_the_command_is_printed_and_run_on_demand() {
    let world = World::new();
    let uv = environment_with_uv();
    let path_with_uv = format!("{}/bin:{PATH}", uv.display());
    let project = world.project().canonicalize().expect("it is there");
    let with_uv = |words: &[&str]| {
        let mut command = world.command(&uv.join("bin/uv"));
        command.args(words).env("PATH", &path_with_uv);
        succeed(&mut command)
    };
    let interpreter = python::interpreter().to_string_lossy();
    with_uv(&["venv", "--quiet", "--python", &interpreter, ".venv"]);
    let open = |more: &[&str]| {
        let mut command = world.nb();
        command
            .args(["open", "t.ipynb"])
            .args(more)
            .env("PATH", &path_with_uv);
        output_of(&mut command)
    };
    let python = project.join(".venv/bin/python");
    let refused = open(&[]).ended(1);
    refused
        .with("has no ipykernel; it is the project's (.venv in ")
        .with(&format!(
            "hint: uv pip install --python {} ipykernel",
            python.display()
        ))
        .with("hint: nb open t.ipynb --install runs that");
    assert!(!project.join("t.ipynb").exists());
    // In a locked project ipykernel is added as a dependency: uv removes packages that the project does not
    // list.
    std::fs::write(
        project.join("pyproject.toml"),
        "[project]\nname = \"p\"\nversion = \"0\"\nrequires-python = \">=3.9\"\n",
    )
    .expect("write a project");
    with_uv(&["lock", "--quiet"]);
    let opened = open(&["--install", "--json"]).ended(0);
    let opened = opened.with("uv add --project ").json();
    assert_eq!(opened["created"], true);
    let text = std::fs::read_to_string(project.join("pyproject.toml")).expect("it is there");
    assert!(text.contains("\"ipykernel>="), "{text}");
    let output = nb(&world, ["run", "import sys; sys.prefix"]).ended(0);
    output.with(&project.join(".venv").to_string_lossy());
}

const UV: &str = "uv==0.13.9";

/// Returns an environment with uv.
pub(super) fn environment_with_uv() -> PathBuf {
    made::once("test-uv", &[UV], |folder| {
        python::make_environment(folder);
        made::run(
            Command::new(folder.join("bin/python")).args(["-m", "pip", "install", "--quiet", UV]),
        );
    })
}

#[test]
fn a_conda_environment_is_started_activated() {
    let world = World::new();
    let rattler = made::once("test-rattler", &[RATTLER], |folder| {
        python::make_environment(folder);
        made::run(
            Command::new(folder.join("bin/python"))
                .args(["-m", "pip", "install", "--quiet", RATTLER]),
        );
    });
    let root = home(&world).join("miniforge3");
    let prefix = root.join("envs/ml");
    let mut make = world.command(&rattler.join("bin/python"));
    make.arg(python::script("conda_environment.py"));
    let script = succeed(make.arg(&prefix).arg(site_packages()));
    let base = venv(&root, true);
    for folder in ["condabin", "conda-meta"] {
        std::fs::create_dir_all(root.join(folder)).expect("make conda's own folders");
    }
    // As in an agent's shell: base is active in every folder.
    let path_of_base = format!("{}/bin:{PATH}", root.display());
    let shell = |mut command: Command| {
        command
            .env("PATH", &path_of_base)
            .env("CONDA_PREFIX", &root)
            .env("CONDA_DEFAULT_ENV", "base")
            .env("CONDA_SHLVL", "1");
        command
    };
    // An active base is not a choice: if the project names no environment, the candidates are listed.
    let mut open = shell(world.nb());
    let asked = output_of(open.args(["open", "other.ipynb", "--no-serve"])).ended(2);
    asked
        .with("2 Pythons could run it: say which")
        .with(&format!(
            "hint: nb open other.ipynb --python {}",
            base.display()
        ))
        .with(&format!("--python {}", prefix.join("bin/python").display()));
    let mut list = shell(world.nb());
    let listed = output_of(list.args(["kernels", "other.ipynb", "--json"]))
        .ended(0)
        .json();
    assert_eq!(listed["chosen"], Value::Null);
    let names = listed["kernels"].as_array().expect("a list").iter();
    let names: Vec<_> = names
        .filter(|kernel| kernel["kind"] == "conda")
        .map(|kernel| kernel["name"].as_str().expect("a name"))
        .collect();
    assert_eq!(names, ["ml", "base"]);
    let mut open = shell(world.nb());
    open.args(["open", "t.ipynb", "--python"]);
    output_of(open.arg(prefix.join("bin/python"))).ended(0);
    let code = "import json, os; print(json.dumps(dict(os.environ)))";
    let inside: Value =
        serde_json::from_str(&nb(&world, ["run", code]).ended(0).stdout).expect("JSON");
    let data = prefix.join("share/data").display().to_string();
    assert_eq!(inside["NB_TEST_DATA"], *data);
    assert_eq!(inside["CONDA_DEFAULT_ENV"], "ml");
    // Rattler's own activation sets the same variables, including the PATH below.
    let script = format!("{}\n/usr/bin/env -0", script.replace(":${PATH}\"", "\""));
    let mut bash = Command::new("bash");
    bash.args(["--norc", "-c", &script]).env_clear();
    let out = bash
        .env("CONDA_DEFAULT_ENV", "ml")
        .output()
        .expect("run bash");
    let pairs = String::from_utf8(out.stdout).expect("UTF-8");
    let pairs = pairs.split('\0').filter_map(|pair| pair.split_once('='));
    let mut count = 0;
    for (name, value) in pairs.filter(|(name, _)| !["_", "SHLVL", "PWD"].contains(name)) {
        assert_eq!(inside[name], *value, "{name}");
        count += 1;
    }
    assert!(count >= 7, "{count} variables: {:?}", out.stderr);
    let mut open = shell(world.nb());
    open.args(["open", "other.ipynb", "--no-serve", "--python"]);
    output_of(open.arg(&base)).ended(0);
}

const RATTLER: &str = "py-rattler==0.28.0";

#[test]
fn an_activation_that_fails_is_reported() {
    let world = World::new();
    let prefix = home(&world).join("miniforge3/envs/ml");
    let interpreter = venv(&prefix, true);
    let scripts = prefix.join("etc/conda/activate.d");
    for folder in [&scripts, &prefix.join("conda-meta")] {
        std::fs::create_dir_all(folder).expect("make conda's own folders");
    }
    let script = "export NB_TEST_DATA=1\necho 'no licence' >&2\nexit 4\n";
    std::fs::write(scripts.join("x.sh"), script).expect("write a script");
    let mut open = world.nb();
    open.args(["open", "t.ipynb", "--no-serve", "--python"]);
    let note = format!("note: {} was not activated: no licence", prefix.display());
    output_of(open.arg(interpreter)).ended(0).with(&note);
    let code = "import os; print(os.environ.get('NB_TEST_DATA'), os.environ['CONDA_DEFAULT_ENV'])";
    nb(&world, ["run", code]).ended(0).with("None ml\n");
}

#[test]
#[ignore = "needs micromamba on PATH, and bash: cargo test --test it real_micromamba -- --ignored"]
fn a_real_micromamba_environment_is_started_activated() {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|folder| folder.join("micromamba"));
    let Some(micromamba) = { found }.find(|it| it.is_file()) else {
        eprintln!("not tried: there is no micromamba");
        return;
    };
    let world = World::new();
    let channel = home(&world).join("channel");
    let mut make = world.command(python::interpreter());
    make.arg(python::script("conda_channel.py")).arg(&channel);
    succeed(make.arg(python::interpreter()).arg(site_packages()));
    let channel = format!("file://{}", channel.display());
    // There are no settings, and only the variables of an interactive shell name the root.
    let root = home(&world).join("roots/m");
    let prefix = root.join("envs/ml");
    let shell = |script: &str| {
        let mut bash = world.command(Path::new("/bin/bash"));
        bash.args(["--norc", "-c"])
            .arg(format!(
                "eval \"$(\"$EXE\" shell hook --shell bash)\" && {script}"
            ))
            .env("EXE", &micromamba)
            .env("NB", env!("CARGO_BIN_EXE_nb"))
            .env("MAMBA_ROOT_PREFIX", &root)
            .env("PATH", PATH);
        bash
    };
    let create = format!("micromamba create --yes --name ml --channel {channel}");
    succeed(&mut shell(&format!("{create} python nb-test-data")));
    // An agent's shell has neither micromamba's function nor its variables.
    let open = |more: &[&str]| {
        let mut command = world.nb();
        command.args(["open", "t.ipynb", "--python"]);
        command.arg(prefix.join("bin/python")).args(more);
        output_of(command.env("PATH", PATH))
    };
    let install = format!(
        "{} install --yes --prefix {} --channel {channel} ipykernel",
        micromamba.display(),
        prefix.display()
    );
    open(&[]).ended(1).with(&format!("hint: {install}\n"));
    open(&["--install"]).ended(0);
    let inside = |notebook: &str| -> Value {
        let code = "import json, os; print(json.dumps(dict(os.environ)))";
        let mut run = world.nb();
        run.args(["run", notebook, code]);
        serde_json::from_str(&output_of(&mut run).ended(0).stdout).expect("JSON")
    };
    let own = inside("t.ipynb");
    assert_eq!(
        own["NB_TEST_DATA"],
        *prefix.join("share/data").to_string_lossy()
    );
    // micromamba's own activation sets the same variables.
    let variables_after = |script: &str| {
        let stdout = succeed(&mut shell(&format!("{script} /usr/bin/env -0")));
        let pairs = stdout.split('\0').filter_map(|pair| pair.split_once('='));
        let pairs = pairs.map(|(name, value)| (name.to_owned(), value.to_owned()));
        pairs.collect::<std::collections::BTreeMap<_, _>>()
    };
    let before = variables_after("");
    let mut activated = variables_after("micromamba activate ml &&");
    activated.retain(|name, value| before.get(name) != Some(value));
    // The folder of the hook's own programs, which no environment needs.
    let condabin = format!("{}/condabin:", root.display());
    for (name, value) in &activated {
        assert_eq!(own[name], value.replace(&condabin, ""), "{name}");
    }
    for name in ["CONDA_PREFIX", "CONDA_DEFAULT_ENV", "PATH", "NB_TEST_LAST"] {
        assert!(activated.contains_key(name), "{name}");
    }
    // In a shell in which it is active, nothing else is asked for; an active base is not a choice.
    let script =
        "micromamba activate ml && \"$NB\" kernels active.ipynb && \"$NB\" open active.ipynb";
    output_of(&mut shell(script))
        .ended(0)
        .with(": active in this shell (CONDA_PREFIX)\n");
    let active = inside("active.ipynb");
    for name in activated.keys() {
        let value = active[name]
            .as_str()
            .map(|value| value.replace(&condabin, ""));
        assert_eq!(value.as_deref(), own[name].as_str(), "{name}");
    }
    // The kernel of the neighbouring notebooks is this project's choice; another project has to ask.
    let base = create.replace("create --yes --name ml", "install --yes --name base");
    let open = "mkdir ../other && cd ../other && \"$NB\" open other.ipynb --no-serve";
    let script = format!("{base} python ipykernel && micromamba activate && {open}");
    output_of(&mut shell(&script))
        .ended(2)
        .with("2 Pythons could run it: say which");
}
