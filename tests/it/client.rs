//! The kernel's client against a real ipykernel, over TCP and over Unix sockets.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nb::client::{
    Client, ClientError, Execute, ExecutionEvent, OutputMessage, RequestEnd, RequestOutcome,
};
use nb::wire::{Channel, ConnectionInfo, Transport};

use crate::ports::free_port;
use crate::python;

/// Long enough for a kernel on a busy machine.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);

/// A kernel for one test, killed at the end.
pub(crate) struct Kernel {
    pub(crate) process: Child,
    pub(crate) info: ConnectionInfo,
    pub(crate) file: PathBuf,
    _folder: tempfile::TempDir,
}

impl Kernel {
    pub(crate) fn start(transport: Transport) -> Self {
        let folder = crate::scope::folder();
        let (file, info) = connection(transport, folder.path());
        let process = Command::new(python::interpreter())
            .args(["-m", "ipykernel_launcher", "-f"])
            .arg(&file)
            .current_dir(folder.path())
            .env("IPYTHONDIR", folder.path().join("ipython"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("start ipykernel");
        Self {
            process,
            info,
            file,
            _folder: folder,
        }
    }

    pub(crate) async fn client(&self) -> Client {
        Client::connect_when_up(&self.info, "tests", TIMEOUT)
            .await
            .unwrap_or_else(|error| panic!("{} does not come up: {error}", self.file.display()))
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Writes a connection file into `folder`; for TCP with ports that are free now.
fn connection(transport: Transport, folder: &Path) -> (PathBuf, ConnectionInfo) {
    let (name, ip, ports) = match transport {
        Transport::Tcp => {
            let ports = std::array::from_fn(|_| free_port());
            ("tcp", "127.0.0.1".to_owned(), ports)
        }
        Transport::Ipc => {
            let path = folder.join("k");
            ("ipc", path.display().to_string(), [1, 2, 3, 4, 5])
        }
    };
    let [shell, iopub, stdin, control, hb] = ports;
    let file = folder.join(format!("{name}.json"));
    let json = serde_json::json!({
        "transport": name, "ip": ip, "key": "a secret of this test",
        "signature_scheme": "hmac-sha256", "shell_port": shell, "iopub_port": iopub,
        "stdin_port": stdin, "control_port": control, "hb_port": hb,
    });
    std::fs::write(&file, json.to_string()).expect("write the connection file");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(&file, mode).expect("keep it private");
    let info = ConnectionInfo::parse(json.to_string().as_bytes()).expect("it is whole");
    (file, info)
}

/// Runs a test's future; if it hangs, the test fails.
pub(crate) fn run<T>(test: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("make a runtime")
        .block_on(async {
            tokio::time::timeout(2 * TIMEOUT, test)
                .await
                .expect("the test hangs")
        })
}

/// Runs code that asks no question; returns its outputs and its end.
async fn execute(client: &mut Client, code: &str) -> (Vec<OutputMessage>, RequestOutcome) {
    let mut outputs = Vec::new();
    let outcome = client
        .execute(&Execute::new(code), |event| {
            outputs.extend(event.output());
            None
        })
        .await
        .expect("the kernel is there");
    (outputs, outcome)
}

/// Returns all text of one stream.
fn text(outputs: &[OutputMessage], stream: &str) -> String {
    outputs
        .iter()
        .filter_map(|output| match output {
            OutputMessage::Stream(output) if output.name == stream => Some(output.text.as_str()),
            _ => None,
        })
        .collect()
}

#[test]
fn a_kernel_answers_over_tcp_and_over_unix_sockets() {
    for transport in [Transport::Tcp, Transport::Ipc] {
        run(async {
            let kernel = Kernel::start(transport);
            let mut client = kernel.client().await;
            for channel in [Channel::Shell, Channel::Control] {
                let info = client
                    .kernel_info(channel, TIMEOUT)
                    .await
                    .expect("it says its name");
                let content: serde_json::Value =
                    serde_json::from_slice(info.content()).expect("JSON");
                assert_eq!(content["implementation"], "ipython", "{content}");
            }
            let (outputs, outcome) = execute(&mut client, "print('hello'); 6 * 7").await;
            assert_eq!(outcome.end, RequestEnd::Ok);
            assert_eq!(outcome.execution_count, Some(1));
            assert!(!outcome.idle_missing);
            assert_eq!(text(&outputs, "stdout"), "hello\n");
            assert!(
                matches!(outputs.last(), Some(OutputMessage::Result(result)) if result.data["text/plain"] == "42"),
                "{outputs:?}"
            );
            assert_eq!((client.refused(), client.dropped()), (0, 0));
            client.close().await;
        });
    }
}

#[test]
fn every_print_of_a_flood_arrives() {
    // ipykernel's PUB socket drops messages that are more than 1,000 ahead of its reader. In a debug build,
    // beside other tests, the reader may be that late, so the flood has fewer messages.
    let lines = if cfg!(debug_assertions) { 900 } else { 20_000 };
    for transport in [Transport::Tcp, Transport::Ipc] {
        run(async {
            let kernel = Kernel::start(transport);
            let mut client = kernel.client().await;
            let code = format!("for i in range({lines}): print(i, flush=True)");
            let (outputs, outcome) = execute(&mut client, &code).await;
            assert_eq!((outcome.end, outcome.idle_missing), (RequestEnd::Ok, false));
            let wanted: String = (0..lines).map(|i| format!("{i}\n")).collect();
            assert!(
                text(&outputs, "stdout") == wanted,
                "{transport:?}: lines are missing"
            );
        });
    }
}

#[test]
fn two_clients_each_see_their_own() {
    run(async {
        let kernel = Kernel::start(Transport::Ipc);
        let (mut one, mut two) = (kernel.client().await, kernel.client().await);
        execute(&mut one, "x = 'one'").await;
        let (outputs, _) = execute(&mut two, "print(x); x = 'two'").await;
        assert_eq!(text(&outputs, "stdout"), "one\n");
        // The first client has received the second's traffic meanwhile, and must not take it for its own.
        let (outputs, outcome) = execute(&mut one, "print(x)").await;
        assert_eq!(text(&outputs, "stdout"), "two\n");
        assert_eq!(outcome.execution_count, Some(3));
    });
}

#[test]
fn a_question_is_answered() {
    run(async {
        let kernel = Kernel::start(Transport::Tcp);
        let mut client = kernel.client().await;
        let mut request = Execute::new("print(input('name? ') + '!')");
        request.allow_stdin = true;
        let mut asked = Vec::new();
        let mut printed = String::new();
        let outcome = client
            .execute(&request, |event| match event {
                ExecutionEvent::Prompt(prompt) => {
                    asked.push((prompt.prompt.clone(), prompt.password));
                    Some("Ada".to_owned())
                }
                event => {
                    if let Some(OutputMessage::Stream(output)) = event.output() {
                        printed.push_str(&output.text);
                    }
                    None
                }
            })
            .await
            .expect("the kernel is there");
        assert_eq!(asked, [("name? ".to_owned(), false)]);
        assert_eq!((outcome.end, printed.as_str()), (RequestEnd::Ok, "Ada!\n"));

        // `None` as an answer is the end of the input.
        let outcome = client
            .execute(&request, |_| None)
            .await
            .expect("it is there");
        assert!(matches!(outcome.end, RequestEnd::Raised(error) if error.ename == "EOFError"));

        // If nobody can answer, the kernel does not ask.
        request.allow_stdin = false;
        let outcome = client
            .execute(&request, |_| None)
            .await
            .expect("it is there");
        assert!(
            matches!(outcome.end, RequestEnd::Raised(error) if error.ename == "StdinNotImplementedError")
        );
    });
}

#[test]
fn an_error_is_reported_on_both_channels() {
    run(async {
        let kernel = Kernel::start(Transport::Ipc);
        let mut client = kernel.client().await;
        let (outputs, outcome) = execute(&mut client, "def f(): return 1 / 0\nf()").await;
        let RequestEnd::Raised(raised) = outcome.end else {
            panic!("it raised: {outcome:?}");
        };
        assert_eq!(raised.ename, "ZeroDivisionError");
        assert_eq!(outputs, [OutputMessage::Error(raised)]);
    });
}

#[test]
fn a_running_cell_is_interrupted() {
    run(async {
        let kernel = Kernel::start(Transport::Tcp);
        let mut client = kernel.client().await;
        let request = Execute::new("import time; print('asleep'); time.sleep(600)");
        let mut execution = client.start(&request).await.expect("it is there");
        while let Some(event) = execution.next().await {
            // Once the text is printed, the cell sleeps or is about to.
            if matches!(event.output(), Some(OutputMessage::Stream(_))) {
                execution.interrupt();
            }
        }
        let outcome = execution.outcome().expect("it has ended");
        assert!(
            matches!(&outcome.end, RequestEnd::Raised(error) if error.ename == "KeyboardInterrupt"),
            "{outcome:?}"
        );
        // Interrupt in the other way; the kernel stays alive.
        client.interrupt(TIMEOUT).await.expect("it answers");
        let (outputs, _) = execute(&mut client, "print('alive')").await;
        assert_eq!(text(&outputs, "stdout"), "alive\n");
    });
}

#[test]
fn a_dropped_execution_leaves_the_code_running() {
    run(async {
        let kernel = Kernel::start(Transport::Ipc);
        let mut client = kernel.client().await;
        let request = Execute::new("for i in range(200): print(i, flush=True)\nx = 'done'");
        let mut execution = client.start(&request).await.expect("it is there");
        while !matches!(execution.next().await, Some(ExecutionEvent::Iopub(_))) {}
        drop(execution);
        let (outputs, outcome) = execute(&mut client, "print(x)").await;
        assert_eq!(
            (outcome.end, text(&outputs, "stdout")),
            (RequestEnd::Ok, "done\n".to_owned())
        );
    });
}

#[test]
fn a_kernel_killed_in_mid_cell_ends_the_request() {
    for transport in [Transport::Tcp, Transport::Ipc] {
        run(async {
            let mut kernel = Kernel::start(transport);
            let mut client = kernel.client().await;
            // One write: `print` makes two, which ipykernel may send one after the other.
            let code = "import sys\nsys.stdout.write('last words\\n'); sys.stdout.flush()\nwhile True: pass";
            let request = Execute::new(code);
            let mut execution = client.start(&request).await.expect("it is there");
            let mut outputs = Vec::new();
            let mut killed = None;
            while let Some(event) = execution.next().await {
                if let Some(output) = event.output() {
                    outputs.push(output);
                    kernel.process.kill().expect("kill the kernel");
                    killed = Some(Instant::now());
                }
            }
            assert_eq!(text(&outputs, "stdout"), "last words\n");
            assert!(killed.is_some_and(|at| at.elapsed() < Duration::from_secs(60)));
            let outcome = execution.outcome().expect("it has ended");
            assert!(
                matches!(outcome.end, RequestEnd::KernelGone(_)),
                "{outcome:?}"
            );
            let after = client.kernel_info(Channel::Shell, TIMEOUT).await;
            assert!(
                matches!(after, Err(ClientError::KernelGone(_))),
                "{after:?}"
            );
            // A process that is being killed may still accept a connection, and then close it.
            kernel.process.wait().expect("it was killed");
            let anew = Client::connect(&kernel.info, "tests").await.err();
            assert!(
                matches!(&anew, Some(error @ ClientError::Unreachable { .. }) if error.may_come_up()),
                "{anew:?}"
            );
        });
    }
}

#[test]
fn the_callers_word_that_the_process_ended_is_taken() {
    run(async {
        let kernel = Kernel::start(Transport::Ipc);
        let mut client = kernel.client().await;
        let (die, died) = tokio::sync::oneshot::channel::<()>();
        client.watch(async move {
            let _ = died.await;
            "pid 7 ended".to_owned()
        });
        let request = Execute::new("print('here', flush=True)\nwhile True: pass");
        let mut execution = client.start(&request).await.expect("it is there");
        let mut die = Some(die);
        while let Some(event) = execution.next().await {
            if matches!(event, ExecutionEvent::Iopub(_)) {
                drop(die.take());
            }
        }
        assert_eq!(
            execution.outcome().map(|outcome| &outcome.end),
            Some(&RequestEnd::KernelGone("pid 7 ended".to_owned()))
        );
    });
}

#[test]
fn a_wrong_key_gets_no_answer_and_believes_nothing() {
    run(async {
        let kernel = Kernel::start(Transport::Ipc);
        let mut right = kernel.client().await;
        let mut info = kernel.info.clone();
        info.key = nb::wire::SigningKey::new(b"another");
        let mut wrong = Client::connect(&info, "tests")
            .await
            .expect("the sockets are there");
        right.prove_iopub().await.expect("it is there");
        execute(&mut right, "1").await;
        let none = wrong
            .kernel_info(Channel::Shell, Duration::from_millis(500))
            .await;
        assert!(
            matches!(none, Err(ClientError::NoAnswer { .. })),
            "{none:?}"
        );
        assert!(
            wrong.refused() > 0,
            "iopub's messages are signed with another key"
        );
    });
}

#[test]
fn an_iopub_that_sends_nothing_is_not_waited_for_for_ever() {
    run(async {
        let kernel = Kernel::start(Transport::Tcp);
        drop(kernel.client().await);
        let mut silent = <zeromq::XPubSocket as zeromq::Socket>::new();
        let bound = zeromq::Socket::bind(&mut silent, "tcp://127.0.0.1:0");
        let zeromq::Endpoint::Tcp(_, port) = bound.await.expect("bind a socket") else {
            panic!("it is bound to TCP");
        };
        let text = std::fs::read(&kernel.file).expect("read the connection file");
        let mut json: serde_json::Value = serde_json::from_slice(&text).expect("JSON");
        json["iopub_port"] = port.into();
        let info = ConnectionInfo::parse(json.to_string().as_bytes()).expect("it is whole");
        let mut client = Client::connect(&info, "tests").await.expect("it is there");
        client.prove_within(Duration::from_millis(300));
        let error = client.start(&Execute::new("1")).await.map(|_| ());
        assert!(
            matches!(error, Err(ClientError::NoIopub { .. })),
            "{error:?}"
        );
    });
}

#[test]
fn shutdown_ends_the_kernel() {
    run(async {
        let mut kernel = Kernel::start(Transport::Tcp);
        let mut client = kernel.client().await;
        client.shutdown(false, TIMEOUT).await.expect("it agrees");
        let deadline = Instant::now() + TIMEOUT;
        while kernel.process.try_wait().expect("look at it").is_none() {
            assert!(Instant::now() < deadline, "it agreed, and goes on");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
}

#[test]
fn through_nb_proxy_everything_is_as_it_is_directly() {
    run(async {
        let kernel = Kernel::start(Transport::Ipc);
        let mut direct = kernel.client().await;
        execute(&mut direct, "import time; x = 'the agent'").await;
        let folder = tempfile::tempdir().expect("make a folder");
        std::fs::create_dir(folder.path().join(".nb")).expect("make a project");
        let state = serde_json::json!({
            "notebook": folder.path().join("a.ipynb"), "connection_file": kernel.file,
            "kernel_pid": kernel.process.id(),
        });
        std::fs::write(folder.path().join(".nb/state.json"), state.to_string())
            .expect("write the state");
        let (file, info) = connection(Transport::Tcp, folder.path());
        let mut proxy = Command::new(env!("CARGO_BIN_EXE_nb-proxy"))
            .arg("-f")
            .arg(&file)
            .current_dir(folder.path())
            .stdin(Stdio::null())
            .spawn()
            .expect("start nb-proxy");
        let mut client = Client::connect_when_up(&info, "tests", TIMEOUT)
            .await
            .expect("the proxy comes up");
        let (outputs, outcome) = execute(&mut client, "print(x)\nx = 'the person'").await;
        assert_eq!(
            (outcome.end, text(&outputs, "stdout")),
            (RequestEnd::Ok, "the agent\n".to_owned())
        );
        let (outputs, _) = execute(&mut direct, "print(x)").await;
        assert_eq!(text(&outputs, "stdout"), "the person\n");

        let mut request = Execute::new("input('name? ')");
        request.allow_stdin = true;
        let outcome = client.execute(&request, |_| Some("Ada".to_owned())).await;
        assert!(outcome.is_ok_and(|outcome| outcome.end == RequestEnd::Ok));

        let request = Execute::new("print('asleep'); time.sleep(600)");
        let mut execution = client.start(&request).await.expect("it is there");
        while let Some(event) = execution.next().await {
            if matches!(event.output(), Some(OutputMessage::Stream(_))) {
                execution.interrupt();
            }
        }
        assert!(matches!(
            execution.outcome().map(|outcome| &outcome.end),
            Some(RequestEnd::Raised(error)) if error.ename == "KeyboardInterrupt"
        ));
        assert_eq!(client.refused(), 0);
        client.close().await;
        proxy.kill().expect("end the proxy");
        proxy.wait().expect("it ends");
    });
}
