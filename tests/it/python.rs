//! The tests' own pinned Python environments, made under `target/` on first use.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::made::{self, run};

const REQUIREMENTS: &str = include_str!("../python/requirements.txt");

/// The libraries with which notebooks are made: installed only if a test asks for them, since they are
/// large.
const WITH_LIBRARIES: &str = include_str!("../python/libraries.txt");

/// Kernels of other languages and makers, for their tests.
const WITH_LANGUAGES: &str = include_str!("../python/languages.txt");

/// The ipykernel version that many environments still have.
const WITH_IPYKERNEL6: &str = include_str!("../python/ipykernel6.txt");

/// The official client of the Model Context Protocol, and a stand-in for providers of models.
const WITH_MCP: &str = include_str!("../python/mcp.txt");

/// Jupyter Server, a kernel gateway and JupyterHub.
const WITH_SERVERS: &str = include_str!("../python/servers.txt");

/// The Enterprise Gateway, which needs older libraries than the other servers.
const WITH_ENTERPRISE_GATEWAY: &str = include_str!("../python/enterprise_gateway.txt");

/// The Python library of the Agent Client Protocol, whose source has an example agent, and nbconvert.
const WITH_ACP: &str = include_str!("../python/acp.txt");

/// JupyterLab and the browser's driver: only if there is a browser, since they take a minute.
const WITH_JUPYTERLAB: &str = include_str!("../browser/requirements.txt");

/// Notebook 7, and the browser's driver.
const WITH_NOTEBOOK_7: &str = include_str!("../browser/notebook7.txt");

/// JupyterLab as a single-user server of JupyterHub.
const WITH_HUB: &str = include_str!("../browser/hub.txt");

/// JupyterLab with the extension by which several people edit one notebook.
const WITH_COLLABORATION: &str = include_str!("../browser/collaboration.txt");

/// The oldest version for which the extension is.
const WITH_JUPYTERLAB_4_0: &str = include_str!("../browser/jupyterlab40.txt");

/// The versions of Altair whose plots the page draws.
const WITH_ALTAIR: [(&str, &str); 2] = [
    ("test-altair5", include_str!("../browser/altair5.txt")),
    ("test-altair6", include_str!("../browser/altair6.txt")),
];

/// Returns the interpreter of the pinned environment; makes the environment if it does not exist.
pub fn interpreter() -> &'static Path {
    static PYTHON: OnceLock<PathBuf> = OnceLock::new();
    PYTHON.get_or_init(|| environment("test-python", REQUIREMENTS))
}

/// Returns the interpreter of the environment with matplotlib, pandas, ipywidgets and tqdm; makes the
/// environment if it does not exist.
pub fn with_libraries() -> &'static Path {
    static PYTHON: OnceLock<PathBuf> = OnceLock::new();
    PYTHON.get_or_init(|| environment("test-libraries", WITH_LIBRARIES))
}

/// Returns the interpreter of the environment with JupyterLab; makes the environment if it does not exist.
pub fn with_jupyterlab() -> &'static Path {
    static PYTHON: OnceLock<PathBuf> = OnceLock::new();
    PYTHON.get_or_init(|| environment("test-jupyterlab", WITH_JUPYTERLAB))
}

/// Returns the interpreter of the environment with JupyterLab 4.0; makes the environment if it does not exist.
pub fn with_jupyterlab_4_0() -> &'static Path {
    static PYTHON: OnceLock<PathBuf> = OnceLock::new();
    PYTHON.get_or_init(|| environment("test-jupyterlab40", WITH_JUPYTERLAB_4_0))
}

/// Returns the interpreter of the environment with Notebook 7; makes the environment if it does not exist.
pub fn with_notebook_7() -> &'static Path {
    static PYTHON: OnceLock<PathBuf> = OnceLock::new();
    PYTHON.get_or_init(|| environment("test-notebook7", WITH_NOTEBOOK_7))
}

/// Returns the interpreter of the environment with JupyterHub and JupyterLab; makes the environment if it does not exist.
pub fn with_hub() -> &'static Path {
    static PYTHON: OnceLock<PathBuf> = OnceLock::new();
    PYTHON.get_or_init(|| environment("test-hub", WITH_HUB))
}

/// Returns the interpreters of the environments with Altair; makes the environments if they do not exist.
pub fn with_altair() -> &'static [PathBuf; 2] {
    static PYTHONS: OnceLock<[PathBuf; 2]> = OnceLock::new();
    PYTHONS.get_or_init(|| WITH_ALTAIR.map(|(name, requirements)| environment(name, requirements)))
}

/// Returns the interpreter of the environment with JupyterLab and jupyter-collaboration; makes the environment if it
/// does not exist.
pub fn with_collaboration() -> &'static Path {
    static PYTHON: OnceLock<PathBuf> = OnceLock::new();
    PYTHON.get_or_init(|| environment("test-collaboration", WITH_COLLABORATION))
}

/// Returns the interpreter of the environment with kernels of other languages; makes the environment if it
/// does not exist.
pub fn with_languages() -> &'static Path {
    static PYTHON: OnceLock<PathBuf> = OnceLock::new();
    PYTHON.get_or_init(|| environment("test-languages", WITH_LANGUAGES))
}

/// Returns the interpreter of the environment with ipykernel 6; makes the environment if it does not exist.
pub fn with_ipykernel6() -> &'static Path {
    static PYTHON: OnceLock<PathBuf> = OnceLock::new();
    PYTHON.get_or_init(|| environment("test-ipykernel6", WITH_IPYKERNEL6))
}

/// Returns the interpreter of the environment with the MCP client; makes the environment if it does not exist.
pub fn with_mcp() -> &'static Path {
    static PYTHON: OnceLock<PathBuf> = OnceLock::new();
    PYTHON.get_or_init(|| environment("test-mcp", WITH_MCP))
}

/// Returns the interpreter of the environment with Jupyter's servers; makes the environment if it does not exist.
pub fn with_servers() -> &'static Path {
    static PYTHON: OnceLock<PathBuf> = OnceLock::new();
    PYTHON.get_or_init(|| environment("test-servers", WITH_SERVERS))
}

/// Returns the interpreter of the environment with the Enterprise Gateway; makes the environment if it does not
/// exist.
pub fn with_enterprise_gateway() -> &'static Path {
    static PYTHON: OnceLock<PathBuf> = OnceLock::new();
    PYTHON.get_or_init(|| environment("test-enterprise-gateway", WITH_ENTERPRISE_GATEWAY))
}

/// Returns the interpreter of the environment with nbconvert and the library of the Agent Client Protocol, and
/// that library's echo agent, which only its source package has; makes the environment if it does not exist.
pub fn with_acp() -> (&'static Path, &'static Path) {
    static PATHS: OnceLock<(PathBuf, PathBuf)> = OnceLock::new();
    let (python, agent) = PATHS.get_or_init(|| {
        let python = environment("test-acp", WITH_ACP);
        let source = made::once("test-acp-source", &[WITH_ACP], |home| {
            let package = WITH_ACP.lines().next().expect("the library comes first");
            run(Command::new(&python)
                .args(["-m", "pip", "download", "--quiet", "--no-deps"])
                .args(["--no-binary", ":all:", package])
                .current_dir(home));
            run(Command::new("sh")
                .args(["-c", "tar -xzf *.tar.gz --strip-components=1"])
                .current_dir(home));
        });
        (python, source.join("examples/echo_agent.py"))
    });
    (python, agent)
}

/// A package without which Jupyter's servers start in a fifth of the CPU time: jsonschema imports it if it is there, to check
/// the form of URLs, and the import takes more than a second.
const LEFT_OUT: &str = "rfc3987-syntax";

/// Returns the Python from which the environments are made: the system's, if it can make them, since the distributors
/// build it with optimisations that a kernel's start is a third faster with; otherwise the first on `PATH`.
fn base() -> &'static str {
    static BASE: OnceLock<&str> = OnceLock::new();
    BASE.get_or_init(|| {
        let check = "import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))";
        let system = "/usr/bin/python3";
        let checked = Command::new(system).args(["-c", check]).output();
        match checked.is_ok_and(|output| output.status.success()) {
            true => system,
            false => "python3",
        }
    })
}

/// Makes a virtual environment in a folder.
pub fn make_environment(home: &Path) {
    run(Command::new(base()).args(["-m", "venv"]).arg(home));
}

/// Returns an environment with pip alone, to be copied; makes it if it does not exist.
pub fn bare() -> PathBuf {
    made::once("test-bare", &[base()], make_environment)
}

fn environment(name: &str, requirements: &str) -> PathBuf {
    let home = made::once(name, &[requirements, LEFT_OUT, base()], |home| {
        let wanted = home.join("requirements.txt");
        std::fs::write(&wanted, requirements).expect("write the requirements");
        make_environment(home);
        run(Command::new(home.join("bin/python"))
            .args(["-m", "pip", "install", "--quiet", "-r"])
            .arg(&wanted));
        run(Command::new(home.join("bin/python")).args([
            "-m",
            "pip",
            "uninstall",
            "--quiet",
            "--yes",
            LEFT_OUT,
        ]));
    });
    home.join("bin/python")
}

/// Returns the path of a script in `tests/python`.
pub fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/python")
        .join(name)
}

#[test]
fn the_environment_has_ipykernel() {
    let out = Command::new(interpreter())
        .args(["-c", "import ipykernel; print(ipykernel.__version__)"])
        .output()
        .expect("run the interpreter");
    assert_eq!(String::from_utf8_lossy(&out.stdout).trim(), "7.4.0");
}
