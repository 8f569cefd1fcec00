//! The programs between the client and the kernel: the table's columns.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The way by which the client reaches the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Directly, through the kernel's own sockets.
    Direct,
    /// Bytes are copied without looking at them: the lower bound.
    Pump,
    /// This project's proxy.
    Proxy,
    /// The smallest proxy on the `zeromq` crate.
    Zeromq,
    /// The same on libzmq, with a thread for each channel.
    Libzmq,
    /// The same on pyzmq, as a user might write it.
    Python,
}

impl Way {
    /// All ways, in the table's order.
    pub const ALL: [Self; 6] = [
        Self::Direct,
        Self::Pump,
        Self::Proxy,
        Self::Zeromq,
        Self::Libzmq,
        Self::Python,
    ];

    /// Returns the head of the way's column.
    pub fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Pump => "byte pump",
            Self::Proxy => "nb-proxy",
            Self::Zeromq => "zeromq",
            Self::Libzmq => "libzmq",
            Self::Python => "pyzmq",
        }
    }

    /// Says whether this machine can run it.
    pub fn is_there(self) -> bool {
        self != Self::Libzmq || libzmq().is_some()
    }

    /// Says whether it signs messages again: then client and kernel have different keys.
    pub fn signs(self) -> bool {
        !matches!(self, Self::Direct | Self::Pump)
    }

    /// Returns the program between, which takes the front end's connection file and the kernel's.
    pub fn program(self) -> Command {
        let this = || Command::new(std::env::current_exe().expect("this program"));
        let mut command = match self {
            Self::Direct => unreachable!("nothing stands between"),
            Self::Pump | Self::Zeromq => this(),
            Self::Proxy => Command::new(env!("CARGO_BIN_EXE_nb-proxy")),
            Self::Libzmq => Command::new(libzmq().expect("asked before")),
            Self::Python => Command::new(super::python::interpreter()),
        };
        match self {
            Self::Pump => drop(command.arg("--byte-pump")),
            Self::Zeromq => drop(command.arg("--zeromq-proxy")),
            Self::Python => drop(command.arg(beside("pyzmq_proxy.py"))),
            Self::Direct | Self::Proxy | Self::Libzmq => {}
        }
        command
    }
}

/// Returns the path of a file of this bench.
pub fn beside(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("benches/proxy")
        .join(name)
}

/// Builds the proxy on libzmq, which has its own manifest so that neither the library nor its tests wait
/// for libzmq's compilation. If that fails, for example without a C++ compiler, the column stays empty.
fn libzmq() -> Option<PathBuf> {
    static PROGRAM: OnceLock<Option<PathBuf>> = OnceLock::new();
    let build = || {
        let temporary = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let target = temporary.parent().expect("target/tmp has a parent");
        let target = target.join("bench-libzmq");
        eprintln!("builds the proxy on libzmq in {}", target.display());
        let built = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
            .args([
                "build",
                "--quiet",
                "--release",
                "--locked",
                "--manifest-path",
            ])
            .arg(beside("libzmq/Cargo.toml"))
            .arg("--target-dir")
            .arg(&target)
            .status();
        if built.is_ok_and(|status| status.success()) {
            return Some(target.join("release/libzmq-proxy"));
        }
        eprintln!("it cannot be built here: its column stays empty");
        None
    };
    PROGRAM.get_or_init(build).clone()
}
