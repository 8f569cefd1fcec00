//! Kernels' servers elsewhere: real ones, started from their PyPI packages, and one that answers by a script.

mod bad;
mod bridge;
mod client;
mod command;
mod cutter;
mod files;
mod scripted;
mod sockets;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::ports::free_port;
use crate::world::{World, succeed};
use crate::{node, python};

pub use scripted::ScriptedServer;

/// A server of Jupyter's, with a folder and a token of its own. On drop it ends, and so do its kernels.
pub struct Server {
    kind: Kind,
    /// The interpreter of its environment, and of its kernels'.
    python: &'static Path,
    /// Its working directory and its home.
    folder: tempfile::TempDir,
    port: u16,
    token: String,
    process: Option<Child>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Jupyter,
    /// A Jupyter Server without a token.
    Open,
    Hub,
    KernelGateway,
    EnterpriseGateway,
}

/// How long a server may take to start.
const START: Duration = Duration::from_secs(120);

/// The hub's user whose token [`Server::token`] is.
pub const HUB_USER: &str = "ann";

impl Server {
    /// Starts a Jupyter Server.
    pub fn jupyter() -> Server {
        Server::started(Kind::Jupyter, python::with_servers())
    }

    /// Starts a Jupyter Server that asks for no token.
    pub fn open() -> Server {
        Server::started(Kind::Open, python::with_servers())
    }

    /// Starts a Jupyter Server whose kernels have matplotlib and ipywidgets.
    pub fn with_libraries() -> Server {
        Server::started(Kind::Jupyter, python::with_jupyterlab())
    }

    /// Starts a JupyterHub with a token of its user `ann`; `None` if this machine has no npm, from which its
    /// proxy comes.
    pub fn hub() -> Option<Server> {
        node::hub_modules()?;
        let mut hub = Server::started(Kind::Hub, python::with_servers());
        let users = format!("hub/api/users/{HUB_USER}");
        hub.post_as_service(&users);
        let made = hub.post_as_service(&format!("{users}/tokens"));
        let token = made["token"].as_str().expect("the hub makes a token");
        token.clone_into(&mut hub.token);
        hub.write_token();
        Some(hub)
    }

    /// Starts a kernel gateway, which does not list its kernels.
    pub fn kernel_gateway() -> Server {
        Server::started(Kind::KernelGateway, python::with_servers())
    }

    /// Starts an Enterprise Gateway, which lists its kernels.
    pub fn enterprise_gateway() -> Server {
        Server::started(Kind::EnterpriseGateway, python::with_enterprise_gateway())
    }

    /// Returns the base URL, with a slash at the end; for a hub the hub's.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}/", self.port())
    }

    /// Returns the port of the URL.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the token.
    pub fn token(&self) -> &str {
        &self.token
    }

    /// Returns a private file with the token.
    pub fn token_file(&self) -> PathBuf {
        self.folder.path().join("token")
    }

    /// Returns the folder of the files that a Jupyter Server offers; for a hub those of its user.
    pub fn files(&self) -> PathBuf {
        match self.kind {
            Kind::Hub => self.folder.path().join("home").join(HUB_USER),
            _ => self.folder.path().join("files"),
        }
    }

    /// Adds the server to a world's, by `nb server add`.
    pub fn add_to(&self, world: &World, name: &str) {
        let mut command = world.nb();
        command.args(["server", "add", name, &self.url(), "--token-file"]);
        succeed(command.arg(self.token_file()));
    }

    /// Ends a kernel, as the server does with one that nobody uses.
    pub fn end_kernel(&self, id: &str) {
        let answer = self.ask("DELETE", &format!("/api/kernels/{id}"));
        let answer = answer.expect("the server answers");
        assert!(answer.starts_with("HTTP/1.1 204"), "{answer}");
    }

    /// Ends the server as an administrator does, and starts it again at the same port.
    pub fn restart(&mut self) {
        self.stop();
        self.start();
    }

    /// Ends the server and its kernels.
    pub fn stop(&mut self) {
        if let Some(mut process) = self.process.take() {
            let pid = i32::try_from(process.id()).ok();
            let pid = pid.and_then(rustix::process::Pid::from_raw).expect("a pid");
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
            let end = Instant::now() + Duration::from_secs(20);
            while matches!(process.try_wait(), Ok(None)) && Instant::now() < end {
                // The server needs the processor too.
                std::thread::sleep(Duration::from_millis(10));
            }
            let _ = process.kill();
            let _ = process.wait();
        }
        self.kill_the_rest();
    }

    /// Starts the server at its port, and waits until it answers.
    pub fn start(&mut self) {
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(self.log())
            .expect("open the server's log");
        let mut command = self.command();
        command
            .current_dir(self.folder.path().join("files"))
            .stdin(Stdio::null())
            .stderr(log.try_clone().expect("share the log"))
            .stdout(log);
        let mut process = command.spawn().expect("start the server");
        let path = match self.kind {
            Kind::Hub => "/hub/api/",
            _ => "/api",
        };
        let end = Instant::now() + START;
        while !self.answers(path) {
            let ended = process.try_wait().expect("ask for the server's end");
            let is_late = Instant::now() > end;
            assert!(ended.is_none() && !is_late, "{ended:?}: {}", self.logged());
            // The server needs the processor too.
            std::thread::sleep(Duration::from_millis(20));
        }
        self.process = Some(process);
    }

    /// Returns what the server has logged.
    pub fn logged(&self) -> String {
        std::fs::read_to_string(self.log()).unwrap_or_default()
    }

    fn log(&self) -> PathBuf {
        self.folder.path().join("log")
    }

    fn started(kind: Kind, python: &'static Path) -> Server {
        let folder = crate::scope::folder();
        for name in ["files", "home"] {
            std::fs::create_dir(folder.path().join(name)).expect("make a folder of the server");
        }
        let mut server = Server {
            kind,
            python,
            port: free_port(),
            token: format!("sesame-{}", nb::project::fresh_id()),
            folder,
            process: None,
        };
        server.write_token();
        server.start();
        server
    }

    fn write_token(&self) {
        use std::os::unix::fs::OpenOptionsExt;
        let file = std::fs::File::options()
            .create(true)
            .write(true)
            .truncate(true)
            .mode(0o600)
            .open(self.token_file());
        let mut file = file.expect("make the file of the token");
        writeln!(file, "{}", self.token).expect("write the token");
    }

    fn command(&self) -> Command {
        let bin = self.python.parent().expect("the environment has a bin");
        let home = self.folder.path().join("home");
        let path = std::env::var_os("PATH").unwrap_or_default();
        let path = std::env::join_paths(
            std::iter::once(bin.to_owned()).chain(std::env::split_paths(&path)),
        );
        let mut command = Command::new(match self.kind {
            Kind::Hub => bin.join("jupyterhub"),
            _ => bin.join("jupyter"),
        });
        command
            .env_clear()
            .env("PATH", path.expect("join the paths"))
            .env("HOME", &home)
            .env("NB_TEST_SERVER", self.folder.path())
            .env("EG_UNAUTHORIZED_USERS", "mallory")
            .env("PYTHONDONTWRITEBYTECODE", "1");
        let token = if self.kind == Kind::Open {
            ""
        } else {
            &self.token
        };
        let port = self.port;
        match self.kind {
            Kind::Jupyter | Kind::Open => command.args([
                "server",
                "--allow-root",
                "--no-browser",
                "--ServerApp.ip=127.0.0.1",
                "--ServerApp.port_retries=0",
                &format!("--ServerApp.port={port}"),
                &format!("--IdentityProvider.token={token}"),
            ]),
            Kind::KernelGateway => command.args([
                "kernelgateway",
                "--KernelGatewayApp.ip=127.0.0.1",
                "--KernelGatewayApp.port_retries=0",
                &format!("--KernelGatewayApp.port={port}"),
                &format!("--KernelGatewayApp.auth_token={token}"),
            ]),
            Kind::EnterpriseGateway => command.args([
                "enterprisegateway",
                "--EnterpriseGatewayApp.ip=127.0.0.1",
                "--EnterpriseGatewayApp.port_retries=0",
                "--EnterpriseGatewayApp.list_kernels=True",
                &format!("--EnterpriseGatewayApp.port={port}"),
                &format!("--EnterpriseGatewayApp.auth_token={token}"),
            ]),
            Kind::Hub => command.arg("-f").arg(self.hub_settings(bin)),
        };
        command
    }

    fn hub_settings(&self, bin: &Path) -> PathBuf {
        let file = self.folder.path().join("jupyterhub_config.py");
        if file.exists() {
            return file;
        }
        let proxy = node::hub_modules().expect("the hub has its proxy");
        let proxy = proxy.join(".bin/configurable-http-proxy");
        let (home, mark) = (self.folder.path().join("home"), self.folder.path());
        let text = format!(
            r#"
c = get_config()
c.JupyterHub.spawner_class = "simple"
c.JupyterHub.authenticator_class = "dummy"
c.JupyterHub.bind_url = "http://127.0.0.1:{port}"
c.JupyterHub.hub_port = {hub_port}
c.JupyterHub.db_url = "sqlite:///{mark}/hub.sqlite"
c.JupyterHub.cookie_secret_file = "{mark}/cookie"
c.ConfigurableHTTPProxy.api_url = "http://127.0.0.1:{proxy_port}"
c.ConfigurableHTTPProxy.command = "{proxy}"
c.ConfigurableHTTPProxy.pid_file = "{mark}/proxy.pid"
c.Authenticator.allow_all = True
c.Spawner.args = ["--allow-root"]
c.Spawner.cmd = ["{bin}/jupyterhub-singleuser"]
c.Spawner.environment = {{"NB_TEST_SERVER": "{mark}"}}
c.SimpleLocalProcessSpawner.home_dir_template = "{home}/{{username}}"
c.JupyterHub.services = [{{"name": "tests", "api_token": "{token}"}}]
c.JupyterHub.load_roles = [
    {{"name": "tests", "scopes": ["admin:users", "tokens"], "services": ["tests"]}}
]
"#,
            port = self.port,
            hub_port = free_port(),
            proxy_port = free_port(),
            proxy = proxy.display(),
            bin = bin.display(),
            home = home.display(),
            mark = mark.display(),
            token = self.token,
        );
        std::fs::write(&file, text).expect("write the hub's settings");
        file
    }

    fn post_as_service(&self, path: &str) -> serde_json::Value {
        let body = self.ask("POST", &format!("/{path}"));
        let body = body.expect("the hub answers");
        let (head, body) = body.split_once("\r\n\r\n").expect("an answer has a body");
        assert!(head.starts_with("HTTP/1.1 201"), "{head}\n{body}");
        serde_json::from_str(body).expect("the hub answers in JSON")
    }

    fn answers(&self, path: &str) -> bool {
        let answer = self.ask("GET", path);
        answer.is_ok_and(|answer| answer.starts_with("HTTP/1.1 200"))
    }

    fn ask(&self, method: &str, path: &str) -> std::io::Result<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
        stream.set_read_timeout(Some(Duration::from_secs(20)))?;
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nContent-Length: 2\r\n\
             Authorization: token {}\r\n\r\n{{}}",
            self.token
        )?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    }

    /// Kills what the server has left: kernels, and users' servers.
    fn kill_the_rest(&self) {
        let mark = format!("NB_TEST_SERVER={}", self.folder.path().display());
        for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
            let environment = std::fs::read(entry.path().join("environ")).unwrap_or_default();
            if environment.split(|b| *b == 0).any(|v| v == mark.as_bytes())
                && let Ok(pid) = entry.file_name().to_string_lossy().parse()
                && let Some(pid) = rustix::process::Pid::from_raw(pid)
            {
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
        if std::thread::panicking() {
            let logged = self.logged();
            let lines: Vec<_> = logged.lines().collect();
            let last = &lines[lines.len().saturating_sub(60)..];
            eprintln!("--- the server's log\n{}", last.join("\n"));
        }
    }
}
