//! The counters as Prometheus reads them, on a Unix socket, where the user wants it.

use std::fmt::Write as _;
use std::path::Path;

use super::shell::Shell;
use crate::kernel::connection::socket_folder;
use crate::kernel::paths::ProcessVariables;
use crate::kernel::process::Process;
use crate::project::counters::{Counters, Latency};
use crate::socket::Page;

impl Shell {
    /// Serves the counters, where the settings say so; what keeps it from that is told in the log.
    pub(super) fn serve_metrics(&self, notebook: &str) -> Option<Page> {
        if !self.settings.borrow().metrics {
            return None;
        }
        let folder = match socket_folder(&ProcessVariables) {
            Ok(folder) => folder,
            Err(_) => {
                tracing::warn!("metrics are not served: there is no private folder for a socket");
                return None;
            }
        };
        sweep(&folder);
        let path = folder.join(format!("proxy-{}.metrics", std::process::id()));
        let me = self.me.clone();
        let info = format!(
            "nb_proxy_info{{notebook={},front_end={},version={}}} 1\n",
            quoted(notebook),
            quoted(self.origin.name),
            quoted(env!("CARGO_PKG_VERSION"))
        );
        let served = Page::serve(&path, move || match me.upgrade() {
            Some(shell) => format!("{info}{}", text(&shell.counted())),
            None => String::new(),
        });
        match served {
            Ok(page) => {
                tracing::info!("serves metrics at {}", path.display());
                Some(page)
            }
            Err(error) => {
                tracing::warn!("metrics are not served: {error}");
                None
            }
        }
    }
}

/// Removes the sockets of proxies that were killed.
fn sweep(folder: &Path) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let pid = name
            .to_str()
            .and_then(|name| name.strip_prefix("proxy-")?.strip_suffix(".metrics"))
            .and_then(|pid| pid.parse().ok());
        if pid.is_some_and(|pid| Process::of(pid).is_none()) {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

/// Returns the counters in Prometheus' text format.
fn text(counted: &Counters) -> String {
    let mut text = String::new();
    let ways = [
        ("from_clients", counted.from_clients),
        ("to_kernel", counted.to_kernel),
        ("from_kernel", counted.from_kernel),
        ("to_clients", counted.to_clients),
    ];
    let each = || {
        ways.into_iter().flat_map(|(way, channels)| {
            let labelled = move |(channel, passed)| {
                (format!("{{way=\"{way}\",channel=\"{channel}\"}}"), passed)
            };
            channels.each().into_iter().map(labelled)
        })
    };
    let mut family = |name: &str, kind: &str, values: Vec<(String, u64)>| {
        let _ = writeln!(text, "# TYPE nb_proxy_{name} {kind}");
        for (labels, value) in values {
            let _ = writeln!(text, "nb_proxy_{name}{labels} {value}");
        }
    };
    let one = |value| vec![(String::new(), value)];
    let messages = each().map(|(labels, passed)| (labels, passed.messages));
    family("messages_total", "counter", messages.collect());
    let bytes = each().map(|(labels, passed)| (labels, passed.bytes));
    family("bytes_total", "counter", bytes.collect());
    let refused = counted.refused;
    let refused = [
        ("connection", refused.connections),
        ("malformed", refused.malformed),
        ("bad_signature", refused.bad_signature),
        ("replayed", refused.replayed),
    ];
    let refused = refused.map(|(what, count)| (format!("{{what=\"{what}\"}}"), count));
    family("refused_total", "counter", refused.into());
    family("lost_total", "counter", one(counted.lost));
    family("cut_total", "counter", one(counted.cut));
    family("kernel_restarts_total", "counter", one(counted.restarts));
    family("subscribers", "gauge", one(counted.subscribers));
    family("outstanding", "gauge", one(counted.outstanding));
    family("held_messages", "gauge", one(counted.held.messages));
    family("held_bytes", "gauge", one(counted.held.bytes));
    let queued = counted.queued_bytes;
    let queued = [("kernel", queued.to_kernel), ("clients", queued.to_clients)];
    let queued = queued.map(|(to, bytes)| (format!("{{to=\"{to}\"}}"), bytes));
    family("queued_bytes", "gauge", queued.into());
    family("spilled_bytes", "gauge", one(counted.spilled_bytes));
    seconds(&mut text, "passing", counted.passing);
    seconds(&mut text, "reply", counted.reply);
    text
}

fn seconds(text: &mut String, name: &str, latency: Latency) {
    let _ = writeln!(text, "# TYPE nb_proxy_{name}_seconds gauge");
    for (quantile, micros) in [("0.5", latency.p50_us), ("0.99", latency.p99_us)] {
        if let Some(micros) = micros {
            let (whole, rest) = (micros / 1_000_000, micros % 1_000_000);
            let _ = writeln!(
                text,
                "nb_proxy_{name}_seconds{{quantile=\"{quantile}\"}} {whole}.{rest:06}"
            );
        }
    }
}

/// Returns a label's value.
fn quoted(text: &str) -> String {
    let escaped = text
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n");
    format!("\"{escaped}\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_is_a_comment_or_a_name_with_a_number() {
        let mut counted = Counters::default();
        counted.from_clients.shell.messages = 7;
        counted.passing.p50_us = Some(1_000_021);
        let text = text(&counted);
        for line in text.lines().filter(|line| !line.starts_with("# TYPE ")) {
            let (name, value) = line.rsplit_once(' ').expect("two words");
            assert!(name.starts_with("nb_proxy_"), "{line}");
            assert!(value.parse::<f64>().is_ok(), "{line}");
        }
        let has = |wanted| text.lines().any(|line| line == wanted);
        assert!(has(
            "nb_proxy_messages_total{way=\"from_clients\",channel=\"shell\"} 7"
        ));
        assert!(has("nb_proxy_passing_seconds{quantile=\"0.5\"} 1.000021"));
        assert!(!text.contains("0.99"), "nothing is known of it");
        assert_eq!(quoted("a\"b\\c\nd"), "\"a\\\"b\\\\c\\nd\"");
    }
}
