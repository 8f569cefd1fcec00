//! Kernels in a container, by podman or docker.
//!
//! The kernel's process is the `podman run` or `docker run` that runs as long as the container: signals to it
//! go to the kernel inside, and its exit status is the kernel's. SIGKILL ends only that program. So the
//! container's name is on disk before the container starts, and `nb` removes it by that name.
//!
//! Inside are the image's own files, the project's folder at its own path without its `.nb`, and the folder
//! of the sockets with a copy of the connection file. A container is no sandbox: the kernel can write the
//! project's folder, and has a network.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};

use crate::kernel::environment::trust;
use crate::kernel::spec::ipykernel;
use crate::kernel::variables::{ProcessVariables, Variables};
use crate::project::{Container, RealSpec, ResourceLimits, beneath, save};

/// The container engines, best first: podman needs no daemon.
pub const PROGRAMS: [&str; 2] = ["podman", "docker"];

/// The copy of the connection file for the kernel, in the folder of the sockets: ipykernel 6 rewrites the
/// file.
pub(in crate::kernel) const COPY: &str = "kernel.json";

/// A kernel's container, and the folders of this machine that it sees.
#[derive(Clone, Debug)]
pub struct KernelContainer {
    /// The container.
    pub container: Container,
    /// The project's folder.
    pub workspace: PathBuf,
    /// The project's `.nb` folder, which the kernel must not change.
    pub hidden: PathBuf,
    /// The folder of the sockets.
    pub sockets: PathBuf,
    /// The container's name.
    named: ContainerName,
}

/// The name of a container, recorded before the container starts.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ContainerName {
    program: PathBuf,
    name: String,
}

impl ContainerName {
    /// Kills and removes the container, if it exists.
    ///
    /// Only the file name of the recorded program is used: the record lies in the project's folder and could
    /// name any file.
    pub fn remove(&self) {
        let name = self.program.file_name();
        let known = PROGRAMS
            .into_iter()
            .find(|known| name == Some(OsStr::new(known)));
        let Some(program) = known.and_then(|known| trust::on_path(known, &ProcessVariables)) else {
            return;
        };
        // `podman rm` alone would wait ten seconds for the container's end.
        for words in [&["kill"][..], &["rm", "--force", "--volumes"]] {
            let mut command = Command::new(&program);
            command.args(words).arg(&self.name).stdin(Stdio::null());
            let _ = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
        }
    }
}

/// Returns the engine that has this image; otherwise the reason and the command that helps.
pub fn program(image: &str, variables: &dyn Variables) -> Result<PathBuf, (String, String)> {
    let found = PROGRAMS.map(|program| trust::on_path(program, variables));
    let mut without = None;
    for program in found.into_iter().flatten() {
        match has(&program, image) {
            Ok(()) => return Ok(program),
            Err(why) => without = without.or(Some((program, why))),
        }
    }
    let Some((program, why)) = without else {
        let why = "neither podman nor docker is on PATH".to_owned();
        return Err((why, "apt-get install podman".to_owned()));
    };
    let name = program.file_name().unwrap_or_default().display();
    let why = format!("{name} has no image {image}: {why}");
    Err((why, format!("{name} pull {image}")))
}

fn has(program: &Path, image: &str) -> Result<(), String> {
    let mut query = Command::new(program);
    query.args(["image", "inspect", "--format", "{{.Id}}", "--", image]);
    match query.stdin(Stdio::null()).output() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stderr);
            let last = text.lines().rfind(|line| !line.trim().is_empty());
            let last = last.unwrap_or("it failed without a message");
            Err(last.trim().to_owned())
        }
        Err(error) => Err(error.to_string()),
    }
}

/// Returns the spec of the kernel in an image: ipykernel, run by the container's Python.
pub fn spec(container: &Container) -> RealSpec {
    let python = container.python.as_deref().unwrap_or("python3");
    ipykernel::of_command(python, &format!("Python 3 in {}", container.image))
}

impl KernelContainer {
    /// Describes a new container, with a new name.
    pub fn new(
        container: Container,
        workspace: PathBuf,
        hidden: PathBuf,
        sockets: PathBuf,
        connection_file: &Path,
    ) -> Self {
        let own = connection_file.file_stem().unwrap_or_default();
        // A new name, because the last container may not be removed yet.
        let random = uuid::Uuid::new_v4().simple().to_string();
        let named = ContainerName {
            program: container.program.clone(),
            name: format!("nb-{}-{}", own.display(), &random[..8]),
        };
        Self {
            container,
            workspace,
            hidden,
            sockets,
            named,
        }
    }

    /// Returns the container's name.
    pub fn named(&self) -> &ContainerName {
        &self.named
    }

    /// Returns the command that runs the kernel's command in the container, and records the name. `set` are
    /// the kernel's own variables; the command line passes only their names, because every user may read it.
    pub fn wrap(
        &self,
        argv: &[OsString],
        set: &[(OsString, OsString)],
        limits: ResourceLimits,
        folder: &Path,
        connection_file: &Path,
    ) -> std::io::Result<Vec<OsString>> {
        use std::os::unix::fs::DirBuilderExt;
        let mut made = std::fs::DirBuilder::new();
        made.recursive(true).mode(0o700).create(&self.sockets)?;
        let text = std::fs::read(connection_file)?;
        save::replace_unsynced(&self.sockets.join(COPY), &text)?;
        remove(connection_file);
        beneath::replace_unsynced(&record(connection_file), &serde_json::to_vec(&self.named)?)?;
        Ok(self.arguments(argv, set, limits, folder, connection_file))
    }

    fn arguments(
        &self,
        argv: &[OsString],
        set: &[(OsString, OsString)],
        limits: ResourceLimits,
        folder: &Path,
        file: &Path,
    ) -> Vec<OsString> {
        let container = &self.container;
        let mut all: Vec<OsString> = vec![container.program.clone().into()];
        let mut words = |words: &[&OsStr]| all.extend(words.iter().map(|&word| word.to_owned()));
        let word = OsStr::new;
        words(&["run", "--rm", "--pull=never", "--name", &self.named.name].map(word));
        // SELinux would hide the mounted folders.
        words(&["--security-opt", "label=disable"].map(word));
        let user = rustix::process::geteuid().as_raw();
        let group = rustix::process::getegid().as_raw();
        // The kernel's files and sockets must belong to this user.
        if is_podman(&container.program) && user != 0 {
            words(&[word("--userns=keep-id")]);
        } else {
            words(&[word("--user"), word(&format!("{user}:{group}"))]);
        }
        if user != 0 {
            // The image has no home folder for this user.
            words(&["--env", "HOME=/tmp"].map(word));
        }
        for path in [&self.workspace, &self.sockets] {
            let mut both = path.as_os_str().to_owned();
            both.push(":");
            both.push(path);
            words(&[word("--volume"), &both]);
        }
        if self.hidden.starts_with(&self.workspace) {
            let mut empty = self.hidden.as_os_str().to_owned();
            if is_podman(&container.program) {
                // Otherwise podman would copy the hidden files into it.
                empty.push(":notmpcopyup");
            }
            words(&[word("--tmpfs"), &empty]);
        }
        words(&[word("--workdir"), folder.as_os_str()]);
        for (name, _) in set {
            words(&[word("--env"), name]);
        }
        if let Some(bytes) = limits.memory_bytes {
            let bytes = bytes.to_string();
            words(&["--memory", &bytes, "--memory-swap", &bytes].map(word));
        }
        for option in &container.options {
            words(&[word(option)]);
        }
        let (first, rest) = argv.split_first().expect("the spec names a Python");
        // Replaces the image's own entry point, which may not pass signals on.
        words(&[word("--entrypoint"), first, word(&container.image)]);
        let copy = self.sockets.join(COPY);
        for argument in rest {
            let is_file = argument == file.as_os_str();
            words(&[if is_file { copy.as_os_str() } else { argument }]);
        }
        all
    }
}

fn is_podman(program: &Path) -> bool {
    program.file_stem() == Some("podman".as_ref())
}

/// Returns the file that names the container of a kernel.
pub fn record(connection_file: &Path) -> PathBuf {
    connection_file.with_extension("container")
}

/// Removes the container of a kernel that has ended, if it has one.
pub fn remove(connection_file: &Path) {
    let record = record(connection_file);
    let Ok(text) = beneath::read(&record, beneath::SMALL) else {
        return;
    };
    if let Ok(named) = serde_json::from_slice::<ContainerName>(&text) {
        named.remove();
    }
    let _ = beneath::remove_file(&record);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(program: &str, limits: ResourceLimits) -> String {
        let temp = tempfile::tempdir().unwrap();
        let file = temp.path().join("kernel-1.json");
        let container = Container {
            program: program.into(),
            image: "python:3.13".to_owned(),
            python: None,
            options: vec!["--network=none".to_owned()],
        };
        let argv = crate::kernel::spec::command(&spec(&container), &file);
        let contained = KernelContainer::new(
            container,
            "/w".into(),
            "/w/.nb".into(),
            "/tmp/nb-1/1".into(),
            &file,
        );
        let set = [("TOKEN".into(), "secret".into())];
        let folder = Path::new("/w/sub");
        let all = contained.arguments(&argv, &set, limits, folder, &file);
        let words: Vec<_> = all.iter().map(|word| word.to_string_lossy()).collect();
        words.join(" ")
    }

    #[test]
    fn it_sees_the_project_without_what_nb_trusts() {
        let limits = ResourceLimits {
            memory_bytes: Some(1 << 30),
        };
        let line = line("/usr/bin/podman", limits);
        for part in [
            "/usr/bin/podman run --rm --pull=never --name nb-kernel-1-",
            "--volume /w:/w --volume /tmp/nb-1/1:/tmp/nb-1/1 --tmpfs /w/.nb:notmpcopyup --workdir /w/sub ",
            " --env TOKEN ",
            "--memory 1073741824 --memory-swap 1073741824 --network=none ",
        ] {
            assert!(line.contains(part), "no {part:?} in {line}");
        }
        let last =
            "--entrypoint python3 python:3.13 -m ipykernel_launcher -f /tmp/nb-1/1/kernel.json";
        assert!(line.ends_with(last), "{line}");
        assert!(!line.contains("secret"), "{line}");
    }

    #[test]
    fn a_record_in_the_folder_names_no_program_to_run() {
        use std::os::unix::fs::PermissionsExt;
        let temp = tempfile::tempdir().unwrap();
        let file = temp.path().join("kernel-1.json");
        for name in ["trap", "podman"] {
            let (trap, canary) = (temp.path().join(name), temp.path().join("ran"));
            std::fs::write(&trap, format!("#!/bin/sh\ntouch {}\n", canary.display())).unwrap();
            std::fs::set_permissions(&trap, PermissionsExt::from_mode(0o755)).unwrap();
            let text = serde_json::json!({ "program": trap, "name": "x" });
            std::fs::write(record(&file), text.to_string()).unwrap();
            remove(&file);
            assert!(!canary.exists(), "{name} was run");
        }
    }

    #[test]
    fn files_of_a_container_belong_to_this_user() {
        let user = rustix::process::geteuid().as_raw();
        let by_number = format!("--user {user}:");
        let docker = line("/usr/bin/docker", ResourceLimits::default());
        assert!(docker.contains(&by_number), "{docker}");
        let podman = line("/usr/bin/podman", ResourceLimits::default());
        let kept = podman.contains("--userns=keep-id");
        assert_eq!(kept, user != 0, "{podman}");
        assert!(!podman.contains("--memory"), "{podman}");
    }
}
