//! Kernels of other languages and makers, through `nb` and through `nb-proxy`. The table below says what
//! each of them can do; a change of it also belongs in the table of the documentation.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use super::{home, nb};
use crate::python;
use crate::world::{World, succeed};

/// A kernel, and its answers to some code.
struct Kernel {
    /// The name of its kernelspec.
    name: &'static str,
    /// Its command without the connection file; `{python}` is the environment's Python.
    argv: &'static [&'static str],
    language: &'static str,
    /// Code that prints 42, or has it as its value.
    hello: &'static str,
    /// Code that fails.
    error: &'static str,
    /// Whether the kernel's reply reports that `error` failed.
    reports_errors: bool,
    /// Code that prints something and then runs for long, if the kernel can be interrupted. For a kernel
    /// that sends outputs only at the end, the code makes the file `{sign}` instead.
    endless: Option<&'static str>,
    /// The status of the reply to the endless code when it is interrupted.
    interrupted: &'static str,
    /// The way in which the kernel is interrupted.
    interrupt_mode: &'static str,
    /// Whether the kernelspec has to set that way.
    sets_interrupt_mode: bool,
    /// The beginning of a word, and its completion.
    complete: (&'static str, &'static str),
    /// Code that asks `name?` and prints the answer, if the kernel can ask.
    input: Option<&'static str>,
    /// Variables that name folders which the kernel needs, and the folders' default paths in the user's
    /// home.
    folders: &'static [(&'static str, &'static str)],
}

impl Kernel {
    /// Tests the kernel in a separate world.
    fn works(&self, interpreter: &Path) {
        let world = World::new();
        self.install(&world, interpreter);
        let sign = world.project().join("sign");
        let endless = self
            .endless
            .map(|code| code.replace("{sign}", &sign.to_string_lossy()));
        let notebook = &*format!("{}.ipynb", self.name);
        // evcxr takes long to start.
        let patient = ["--timeout", "240"];
        let open = [["open", notebook], ["--kernel", self.name], patient];
        nb(&world, open.as_flattened()).ended(0);
        let run = |code: &str| nb(&world, ["run", "-n", notebook, code]);
        assert_eq!(run(self.hello).ended(0).stdout.trim(), "42");
        run(self.error).ended(if self.reports_errors { 3 } else { 0 });
        if let Some(input) = self.input {
            self.asks(&world, notebook, input);
        }
        if let Some(endless) = &endless {
            nb(&world, ["run", "-n", notebook, "--timeout", "1", endless]).ended(4);
            nb(&world, ["interrupt", notebook])
                .ended(0)
                .with(&format!("interrupted (by {})", self.interrupt_mode));
            assert_eq!(run(self.hello).ended(0).stdout.trim(), "42");
        }
        let generation = nb(&world, ["status", notebook, "--json"]).ended(0).json();
        assert_eq!(generation["sessions"][0]["kernel_generation"], 1);

        let _ = std::fs::remove_file(&sign);
        let signs = self.endless.is_some_and(|code| code.contains("{sign}"));
        let replies = self.through_the_proxy(
            &world,
            notebook,
            &json!({ "endless": endless, "sign": signs.then_some(&sign) }),
        );
        let is_hello = |reply: &Value| {
            assert_eq!(reply[0], "ok");
            // deno colours its output.
            let text = reply[1].as_str();
            assert!(text.is_some_and(|text| text.contains("42")), "{reply}");
        };
        is_hello(&replies["hello"]);
        assert_eq!(
            replies["error"],
            if self.reports_errors { "error" } else { "ok" }
        );
        assert_eq!(replies["completes"], !self.complete.0.is_empty());
        if self.input.is_some() {
            assert_eq!(replies["input"][0], "ok");
            let prompt = replies["input"][1][0].as_str().expect("it asked");
            assert_eq!(prompt.trim(), "name?");
            let text = replies["input"][2].as_str();
            assert!(text.is_some_and(|text| text.contains("Ada")), "{replies}");
        }
        if self.endless.is_some() {
            assert_eq!(replies["interrupt"], self.interrupted);
            is_hello(&replies["after"]);
        }
    }

    fn install(&self, world: &World, interpreter: &Path) {
        let python = interpreter.to_string_lossy();
        let bin = interpreter.parent().expect("it is in a folder");
        let bin = bin.to_string_lossy();
        let words = self.argv.iter();
        let words = words.map(|word| word.replace("{python}", &python).replace("{bin}", &bin));
        let argv: Vec<_> = words.chain(["{connection_file}".to_owned()]).collect();
        let folder_of = |&(name, folder): &(&str, &str)| {
            let set = std::env::var(name).ok();
            let home = || std::env::home_dir().expect("a home").join(folder);
            let path = set.unwrap_or_else(|| home().display().to_string());
            (name.to_owned(), Value::from(path))
        };
        let env: serde_json::Map<_, _> = self.folders.iter().map(folder_of).collect();
        let mut spec = json!({
            "argv": argv, "display_name": self.name, "language": self.language, "env": env,
        });
        if self.sets_interrupt_mode {
            spec["interrupt_mode"] = self.interrupt_mode.into();
        }
        let folder = home(world).join("jupyter/kernels").join(self.name);
        std::fs::create_dir_all(&folder).expect("make the spec's folder");
        std::fs::write(folder.join("kernel.json"), spec.to_string()).expect("write the spec");
    }

    /// Tests a question of running code, asked and answered by two commands.
    fn asks(&self, world: &World, notebook: &str, input: &str) {
        nb(world, ["insert", "-n", notebook, input]).ended(0);
        let asked = nb(world, ["exec", "-n", notebook, "0", "--json"]);
        let asked = asked.ended(7).json();
        let job = asked["job"].as_str().expect("a job").to_owned();
        nb(world, ["reply", &job, "Grace"]).ended(0).with("Grace");
    }

    fn through_the_proxy(&self, world: &World, notebook: &str, endless: &Value) -> Value {
        let mut case = json!({
            "hello": self.hello, "error": self.error, "input": self.input,
            "complete": self.complete.0, "completion": self.complete.1,
        });
        for name in ["endless", "sign"] {
            case[name] = endless[name].clone();
        }
        let file = world.project().join("case.json");
        std::fs::write(&file, case.to_string()).expect("write the case");
        let shared = match self.language {
            "python" => "nb-shared".to_owned(),
            other => format!("nb-shared-{other}"),
        };
        let mut script: Command = world.script("languages.py", &shared);
        script.args(["--notebook", notebook, "--case"]).arg(&file);
        let stdout = succeed(&mut script);
        let last = stdout.lines().last().expect("it prints a line");
        serde_json::from_str(last).expect("JSON")
    }
}

/// Returns the Python of the environment with bash_kernel, deno and xeus-python.
fn languages() -> PathBuf {
    python::with_languages().to_owned()
}

const PYTHON: Kernel = Kernel {
    name: "ipykernel6",
    argv: &["{python}", "-m", "ipykernel_launcher", "-f"],
    language: "python",
    hello: "print(6 * 7)",
    error: "1 / 0",
    reports_errors: true,
    endless: Some("import time\nprint('on')\nwhile True: time.sleep(0.1)"),
    interrupted: "error",
    interrupt_mode: "signal",
    sets_interrupt_mode: false,
    complete: ("impor", "import"),
    input: Some("print(input('name?'))"),
    folders: &[],
};

#[test]
fn ipykernel_6() {
    PYTHON.works(python::with_ipykernel6());
}

#[test]
fn xeus_python() {
    let kernel = Kernel {
        name: "xpython",
        argv: &["{python}", "-m", "xpython_launcher", "-f"],
        // SIGINT ends the kernel, and it replies to `interrupt_request` without interrupting.
        endless: None,
        ..PYTHON
    };
    kernel.works(&languages());
}

#[test]
fn bash() {
    let kernel = Kernel {
        name: "bash",
        argv: &["{python}", "-m", "bash_kernel", "-f"],
        language: "bash",
        hello: "echo $((6*7))",
        error: "false",
        reports_errors: true,
        endless: Some("echo on; sleep 1000"),
        interrupted: "abort",
        interrupt_mode: "signal",
        sets_interrupt_mode: false,
        complete: ("ech", "echo"),
        input: None,
        folders: &[],
    };
    kernel.works(&languages());
}

#[test]
fn deno() {
    let kernel = Kernel {
        name: "deno",
        argv: &["{bin}/deno", "jupyter", "--kernel", "--conn"],
        language: "typescript",
        hello: "6 * 7",
        error: "throw new Error('no')",
        reports_errors: true,
        endless: Some("console.log('on'); while (true) {}"),
        interrupted: "error",
        interrupt_mode: "message",
        sets_interrupt_mode: false,
        complete: ("consol", "console"),
        input: Some("prompt('name?')"),
        folders: &[],
    };
    kernel.works(&languages());
}

/// Returns a Python with kernels that no test installs, if the one of `NB_TEST_LANGUAGES` or on `PATH` has
/// this module.
fn by_hand(module: &str) -> Option<PathBuf> {
    let named = std::env::var_os("NB_TEST_LANGUAGES");
    let python = named.map_or_else(|| PathBuf::from("python3"), PathBuf::from);
    let question = format!("import sys, {module}; print(sys.executable)");
    let out = Command::new(python).args(["-c", &question]).output().ok()?;
    if !out.status.success() {
        eprintln!("not tried: there is no Python with {module} (NB_TEST_LANGUAGES names one)");
        return None;
    }
    let stdout = String::from_utf8(out.stdout).expect("a path");
    Some(PathBuf::from(stdout.trim()))
}

#[test]
#[ignore = "needs R with IRkernel: apt-get install r-cran-irkernel"]
fn irkernel() {
    let asked = Command::new("R")
        .args(["-s", "-e", "library(IRkernel)"])
        .output();
    if !asked.is_ok_and(|asked| asked.status.success()) {
        eprintln!("not tried: there is no R with IRkernel");
        return;
    }
    let kernel = Kernel {
        name: "ir",
        argv: &["R", "--slave", "-e", "IRkernel::main()", "--args"],
        language: "R",
        hello: "cat(6 * 7)",
        error: "stop('no')",
        reports_errors: true,
        endless: Some("cat('on\\n'); flush.console(); repeat Sys.sleep(0.1)"),
        interrupted: "abort",
        interrupt_mode: "signal",
        sets_interrupt_mode: false,
        complete: ("Sys.slee", "Sys.sleep"),
        input: Some("cat(readline('name?'))"),
        folders: &[],
    };
    kernel.works(Path::new("/usr/bin/R"));
}

#[test]
#[ignore = "needs octave and a Python with octave_kernel"]
fn octave() {
    let Some(python) = by_hand("octave_kernel") else {
        return;
    };
    let kernel = Kernel {
        name: "octave",
        argv: &["{python}", "-m", "octave_kernel", "-f"],
        language: "octave",
        hello: "disp(6 * 7)",
        error: "error('no')",
        reports_errors: false,
        endless: Some("disp('on'); while true, pause(0.1); end"),
        interrupted: "ok",
        interrupt_mode: "signal",
        sets_interrupt_mode: false,
        complete: ("acos", "acosd"),
        input: Some("disp(input('name?', 's'))"),
        folders: &[],
    };
    kernel.works(&python);
}

#[test]
#[ignore = "needs a Python with calysto_scheme"]
fn calysto_scheme() {
    let Some(python) = by_hand("calysto_scheme") else {
        return;
    };
    let kernel = Kernel {
        name: "calysto_scheme",
        argv: &["{python}", "-m", "calysto_scheme", "-f"],
        language: "scheme",
        hello: "(* 6 7)",
        error: "(car 1)",
        reports_errors: true,
        endless: Some("(define loop (lambda () (loop))) (display \"on\") (loop)"),
        interrupted: "error",
        interrupt_mode: "signal",
        sets_interrupt_mode: false,
        complete: ("(defin", "define"),
        input: None,
        folders: &[],
    };
    kernel.works(&python);
}

#[test]
#[ignore = "needs gnuplot and a Python with gnuplot_kernel"]
fn gnuplot() {
    let Some(python) = by_hand("gnuplot_kernel") else {
        return;
    };
    let kernel = Kernel {
        name: "gnuplot",
        argv: &["{python}", "-m", "gnuplot_kernel", "-f"],
        language: "gnuplot",
        // By default the kernel looks for an image after each cell.
        hello: "%gnuplot dumb\nprint 6*7",
        error: "show nonsense",
        reports_errors: true,
        endless: Some("system(\"touch '{sign}'\")\npause 1000"),
        interrupted: "ok",
        interrupt_mode: "signal",
        sets_interrupt_mode: false,
        complete: ("%gnup", "%gnuplot"),
        input: None,
        folders: &[],
    };
    kernel.works(&python);
}

#[test]
#[ignore = "needs evcxr_jupyter on PATH, and a Rust toolchain: cargo install evcxr_jupyter --locked"]
fn evcxr() {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let all = std::env::split_paths(&path).map(|folder| folder.join("evcxr_jupyter"));
    let Some(program) = all.into_iter().find(|path| path.is_file()) else {
        eprintln!("not tried: there is no evcxr_jupyter on PATH");
        return;
    };
    let kernel = Kernel {
        name: "rust",
        argv: &["{bin}/evcxr_jupyter", "--control_file"],
        language: "rust",
        hello: "6 * 7",
        error: "nonsense()",
        reports_errors: true,
        endless: Some(
            "println!(\"on\"); loop { std::thread::sleep(std::time::Duration::from_millis(100)) }",
        ),
        interrupted: "error",
        interrupt_mode: "message",
        sets_interrupt_mode: true,
        complete: ("std::collec", "collections::"),
        input: None,
        folders: &[("RUSTUP_HOME", ".rustup"), ("CARGO_HOME", ".cargo")],
    };
    kernel.works(&program);
}

#[test]
fn a_kernel_that_binds_no_unix_socket_is_started_again_on_tcp() {
    let world = World::new();
    let kernel = Kernel {
        name: "tcp_alone",
        argv: &[
            "{python}",
            "-c",
            "import json, signal, sys\n\
             json.load(open(sys.argv[1]))['transport'] == 'tcp' or signal.pause()\n\
             from ipykernel.kernelapp import launch_new_instance\n\
             launch_new_instance(['-f', sys.argv[1]])",
        ],
        language: "python",
        hello: "6 * 7",
        error: "",
        reports_errors: true,
        endless: None,
        interrupted: "error",
        interrupt_mode: "signal",
        sets_interrupt_mode: false,
        complete: ("", ""),
        input: None,
        folders: &[],
    };
    kernel.install(&world, python::interpreter());
    let open = ["open", "t.ipynb", "--kernel", "tcp_alone"];
    let output = nb(&world, open).ended(0);
    output.with("bound no Unix socket within 5s: it was started again on TCP");
    nb(&world, ["run", "6 * 7"]).ended(0).with("42");
    // The next start begins there.
    nb(&world, ["shutdown"]).ended(0);
    nb(&world, open).ended(0).without("Unix socket");
}
