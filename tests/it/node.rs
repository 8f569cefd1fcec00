//! The npm packages through which VS Code and JupyterLab talk to kernels, installed under `target/` on
//! first use, and scripts that use them.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::made::{self, run};

/// The protocol's own tools for MCP servers, and the version of Node.js that they need.
const MCP_PACKAGE: &str = include_str!("../node/mcp/package.json");
const MCP_LOCKED: &str = include_str!("../node/mcp/package-lock.json");

/// The proxy of JupyterHub.
const HUB_PACKAGE: &str = include_str!("../node/hub/package.json");
const HUB_LOCKED: &str = include_str!("../node/hub/package-lock.json");

/// Agents that speak the Agent Client Protocol.
const ACP_PACKAGE: &str = include_str!("../node/acp/package.json");
const ACP_LOCKED: &str = include_str!("../node/acp/package-lock.json");

/// The types of VS Code's API, and VS Code's reader of extensions.
const VSCODE_PACKAGE: &str = include_str!("../node/vscode_extension/package.json");
const VSCODE_LOCKED: &str = include_str!("../node/vscode_extension/package-lock.json");

const PACKAGE: &str = include_str!("../node/package.json");
const LOCKED: &str = include_str!("../node/package-lock.json");

/// Returns `node_modules` with the locked packages; `None` if this machine has no npm.
///
/// The `zeromq` package includes binaries for the usual platforms, so that no install script needs to run.
pub fn modules() -> Option<&'static Path> {
    static MODULES: OnceLock<Option<PathBuf>> = OnceLock::new();
    let modules = MODULES.get_or_init(|| installed("test-node", PACKAGE, LOCKED));
    modules.as_deref()
}

/// Like [`modules`], with the tools for MCP servers.
pub fn mcp_modules() -> Option<PathBuf> {
    installed("test-node-mcp", MCP_PACKAGE, MCP_LOCKED)
}

/// Like [`modules`], with JupyterHub's proxy.
pub fn hub_modules() -> Option<PathBuf> {
    installed("test-node-hub", HUB_PACKAGE, HUB_LOCKED)
}

/// Like [`modules`], with agents that speak the Agent Client Protocol.
pub fn acp_modules() -> Option<PathBuf> {
    installed("test-node-acp", ACP_PACKAGE, ACP_LOCKED)
}

/// Like [`modules`], with the types of VS Code's API.
pub fn vscode_modules() -> Option<PathBuf> {
    installed("test-node-vscode", VSCODE_PACKAGE, VSCODE_LOCKED)
}

/// Returns `node_modules` with the packages of a lock file; `None` if this machine has no npm.
pub fn installed(name: &str, package: &str, locked: &str) -> Option<PathBuf> {
    // On Windows npm is a script, which a plain command does not find.
    if !crate::skipped::has_program("npm", "npm") {
        return None;
    }
    let home = made::once(name, &[package, locked], |home| {
        for (name, text) in [("package.json", package), ("package-lock.json", locked)] {
            std::fs::write(home.join(name), text).expect("write what npm is to install");
        }
        run(Command::new("npm")
            .args([
                "ci",
                "--ignore-scripts",
                "--no-audit",
                "--no-fund",
                "--silent",
            ])
            .current_dir(home));
    });
    Some(home.join("node_modules"))
}

/// Returns the path of a script in `tests/node`.
pub fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/node")
        .join(name)
}

/// `.ci/run` installs npm, so that nothing is skipped there silently.
#[test]
fn the_packages_load() {
    let Some(modules) = modules() else { return };
    let loads = "for (const name of ['zeromq', '@jupyterlab/services/lib/kernel/default'])
        if (!Object.keys(require(name)).length) throw new Error(name);
    process.exit(0)";
    run(Command::new("node")
        .env("NODE_PATH", modules)
        .args(["-e", loads]));
}
