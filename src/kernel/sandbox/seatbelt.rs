//! The profile for macOS's `sandbox-exec`: everything is forbidden but the kernel's room. Pure.

use std::fmt::Write;
use std::path::Path;

use super::room::Room;

/// Returns the profile, in the language of `sandbox-exec`.
///
/// The last rule that matches counts. Paths are real paths: the system compares those.
pub fn profile(room: &Room) -> String {
    let mut text = BEGIN.to_owned();
    let mut rule = |deed: &str, what: &str, path: &Path| {
        let _ = writeln!(text, "({deed} {what} (subpath {}))", quoted(path));
    };
    let named = room.programs.iter().chain(&room.allow_read);
    for path in named.chain([&room.workspace]) {
        rule("allow", "file-read* process-exec*", path);
    }
    let own = room.own_folders();
    for path in room.allow_write.iter() {
        rule("allow", "file-read* file-write*", path);
    }
    for path in room.hidden() {
        rule("deny", "file-read* file-write*", path);
    }
    for path in &own {
        rule("allow", "file-read* file-write* process-exec*", path);
    }
    rule("allow", "file-read*", &room.connection_file);
    // Its own sockets alone: bound, and connected to by its own children.
    for path in &own {
        let deeds = "network-bind network-inbound network-outbound";
        rule("allow", deeds, path);
    }
    if room.allow_net {
        text.push_str("(allow network* (remote ip) (local ip))\n(allow system-socket)\n");
    }
    text
}

/// A path as a string of the profile's language.
fn quoted(path: &Path) -> String {
    let text = path.to_string_lossy();
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

/// Programs, their libraries and what the C library asks of the system.
const BEGIN: &str = r#"(version 1)
(deny default)
(allow process-fork)
(allow signal (target same-sandbox))
(allow process-info* (target same-sandbox))
(allow sysctl-read)
(allow ipc-posix-sem ipc-posix-shm)
(allow pseudo-tty)
(allow file-read-metadata)
(allow file-read* file-ioctl file-write-data (literal "/dev/null") (literal "/dev/zero")
       (literal "/dev/random") (literal "/dev/urandom") (literal "/dev/tty") (literal "/dev/ptmx"))
(allow file-read* file-write-data file-ioctl (regex #"^/dev/ttys[0-9]+$"))
(allow file-read* process-exec* (subpath "/usr") (subpath "/bin") (subpath "/sbin")
       (subpath "/System") (subpath "/Library/Frameworks") (subpath "/private/var/db/dyld")
       (subpath "/private/var/db/timezone") (literal "/private/etc/localtime") (literal "/"))
"#;

#[cfg(test)]
mod tests {
    use super::super::room::tests::room;
    use super::*;

    #[test]
    fn everything_is_forbidden_but_the_room() {
        let text = profile(&room());
        assert!(text.starts_with("(version 1)\n(deny default)\n"));
        let at = |rule: &str| {
            text.find(rule)
                .unwrap_or_else(|| panic!("no {rule} in {text}"))
        };
        let workspace = at("(allow file-read* process-exec* (subpath \"/w\"))");
        let out = at("(allow file-read* file-write* (subpath \"/w/out\"))");
        let hidden = at("(deny file-read* file-write* (subpath \"/w/.nb\"))");
        let scratch = at("(allow file-read* file-write* process-exec* (subpath \"/s/a/home\"))");
        // Later rules count for more.
        assert!(workspace < hidden && out < hidden && hidden < scratch);
        assert!(!text.contains("network*") && !text.contains("/home/u"));
        let net = profile(&Room {
            allow_net: true,
            ..room()
        });
        assert!(net.contains("(allow network*"));
    }

    #[test]
    fn a_path_cannot_leave_its_string() {
        let room = Room {
            workspace: "/w\")(allow default)(\\".into(),
            ..room()
        };
        assert!(profile(&room).contains(r#"(subpath "/w\")(allow default)(\\")"#));
    }
}
