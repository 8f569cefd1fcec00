//! `nb packages`: packages come into the environment of a notebook's kernel and go again, without the network.

use std::process::Command;

use super::kernels::{PATH, environment_with_uv, venv};
use super::{Output, nb, output_of};
use crate::made;
use crate::python;
use crate::skipped::has_bubblewrap;
use crate::world::{World, succeed};

/// Makes wheels of two packages, one of them in two versions.
const WHEELS: &str = "
import sys, zipfile
for name, version in ('nbtiny', '1.0'), ('nbtiny', '2.0'), ('nbother', '1.0'):
    info = f'{name}-{version}.dist-info'
    with zipfile.ZipFile(f'{sys.argv[1]}/{name}-{version}-py3-none-any.whl', 'w') as wheel:
        wheel.writestr(f'{name}/__init__.py', f'version = {version!r}')
        wheel.writestr(f'{info}/METADATA', f'Metadata-Version: 2.1\\nName: {name}\\nVersion: {version}\\n')
        wheel.writestr(f'{info}/WHEEL', 'Wheel-Version: 1.0\\nGenerator: x\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n')
        files = f'{name}/__init__.py', f'{info}/METADATA', f'{info}/WHEEL', f'{info}/RECORD'
        wheel.writestr(f'{info}/RECORD', ''.join(f'{file},,\\n' for file in files))
";

/// Makes the wheels, and returns a function that runs `nb packages` with them alone.
fn packages(world: &World, path: &str) -> impl Fn(&[&str]) -> Output {
    let wheels = world.temporary().join("wheels");
    std::fs::create_dir(&wheels).expect("make a folder");
    let mut make = Command::new(python::interpreter());
    made::run(make.args(["-c", WHEELS]).arg(&wheels));
    let path = path.to_owned();
    move |words: &[&str]| {
        let mut command = world.nb();
        command.arg("packages").args(words).env("PATH", &path);
        for tool in ["PIP", "UV"] {
            command.env(format!("{tool}_NO_INDEX"), "1");
            command.env(format!("{tool}_FIND_LINKS"), &wheels);
        }
        output_of(&mut command)
    }
}

/// Adds, changes and removes a package: the running kernel sees it.
fn come_and_go(world: &World, packages: impl Fn(&[&str]) -> Output) {
    nb(world, ["run", "import nbtiny"])
        .ended(3)
        .with("ModuleNotFoundError");
    let added = packages(&["add", "nbtiny==1.0", "nbother"]).ended(0);
    assert_eq!(added.stdout.lines().count(), 1, "{added:?}");
    let added = added.with("added nbother 1.0, nbtiny 1.0 · ");
    assert!(!added.stderr.contains("note"), "{added:?}");
    nb(world, ["run", "import nbtiny; nbtiny.version"])
        .ended(0)
        .with("1.0");
    packages(&["t.ipynb", "list"])
        .ended(0)
        .with("nbtiny")
        .with("ipykernel");

    let changed = packages(&["add", "nbtiny>=2", "--json"]).ended(0).json();
    assert_eq!(changed["added"][0]["version"], "2.0", "{changed}");
    assert_eq!(changed["removed"][0]["version"], "1.0", "{changed}");
    let notes = changed["notes"].to_string();
    assert!(notes.contains("has imported nbtiny before"), "{notes}");

    packages(&["remove", "nbtiny", "nbother"])
        .ended(0)
        .with("removed nbother 1.0, nbtiny 2.0 · ")
        .with("has imported nbtiny before");
    nb(world, ["run", "import nbother"])
        .ended(3)
        .with("ModuleNotFoundError");
    nb(world, ["run", "nbtiny.version"]).ended(0).with("1.0");

    let failed = packages(&["add", "nb-no-such-package"]).ended(1);
    let failed = failed.with("nb: cannot add nb-no-such-package: ");
    assert!(failed.stderr.lines().count() > 3, "{failed:?}");
    for words in [
        &["add"][..],
        &["add", "./x"],
        &["add", "--", "-r"],
        &["add", "-x"],
        &["put", "six"],
    ] {
        packages(words).ended(2);
    }
}

#[test]
fn pip_changes_the_packages_of_a_venv() {
    let world = World::new();
    let folder = world.project();
    let python = venv(&folder.join(".venv"), true);
    nb(
        &world,
        ["open", "t.ipynb", "--python", &python.to_string_lossy()],
    )
    .ended(0);
    // Python would import it in place of its own module, from the working directory.
    std::fs::write(folder.join("json.py"), "raise SystemExit('hostile')").expect("write it");
    let packages = packages(&world, PATH);
    packages(&["remove", "nbtiny"])
        .ended(1)
        .with("nbtiny is not installed in ");
    come_and_go(&world, packages);
}

#[test]
fn uv_changes_the_packages_of_its_project_and_the_manifest_agrees() {
    let world = World::new();
    let folder = world.project().canonicalize().expect("it is there");
    let uv = environment_with_uv();
    let path = format!("{}/bin:{PATH}", uv.display());
    let python = venv(&folder.join(".venv"), true);
    let manifest = folder.join("pyproject.toml");
    let text = "[project]\nname = \"p\"\nversion = \"0\"\nrequires-python = \">=3.9\"\n";
    std::fs::write(&manifest, text).expect("write a project");
    let mut lock = world.command(&uv.join("bin/uv"));
    succeed(
        lock.args(["lock", "--quiet", "--no-index"])
            .env("PATH", &path),
    );
    nb(
        &world,
        ["open", "t.ipynb", "--python", &python.to_string_lossy()],
    )
    .ended(0);
    let packages = packages(&world, &path);
    let listed = || std::fs::read_to_string(&manifest).expect("it is there");
    packages(&["add", "nbother"])
        .ended(0)
        .with(&format!(", {}", manifest.display()));
    assert!(listed().contains("nbother>=1.0"), "{}", listed());
    packages(&["remove", "nbother"]).ended(0);
    assert!(!listed().contains("nbother"), "{}", listed());
    come_and_go(&world, packages);
    assert!(!listed().contains("nbtiny"), "{}", listed());
}

#[test]
fn what_other_programs_manage_or_a_sandbox_keeps_is_left_to_them() {
    let world = World::new();
    let conda = world.project().join("conda");
    let python = venv(&conda, true);
    std::fs::create_dir(conda.join("conda-meta")).expect("make it one of conda's");
    nb(
        &world,
        ["open", "t.ipynb", "--python", &python.to_string_lossy()],
    )
    .ended(0);
    let packages = packages(&world, PATH);
    packages(&["add", "nbtiny"])
        .ended(2)
        .with("conda manages ")
        .with("hint: conda install --yes --prefix ")
        .with(" nbtiny");
    packages(&["list"]).ended(0).with("ipykernel");
    nb(&world, ["shutdown"]).ended(0);
    if has_bubblewrap() {
        let python = python::interpreter().to_string_lossy();
        let open = ["open", "s.ipynb", "--sandbox", "--python", &python];
        nb(&world, open).ended(0);
        packages(&["s.ipynb", "add", "nbtiny"])
            .ended(5)
            .with("it runs in a sandbox");
        nb(&world, ["shutdown", "s.ipynb"]).ended(0);
    }
}
