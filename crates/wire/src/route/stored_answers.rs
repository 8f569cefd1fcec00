//! The answers that the bridge gives to connecting clients in the kernel's stead.

use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{ClientId, startup};
use crate::wire::Verified;

/// Data from this kernel, or from an earlier one of the session, for answers in its stead.
#[derive(Debug, Default)]
pub(super) struct StoredAnswers {
    /// The content of a `kernel_info_reply`.
    info: Option<Bytes>,
    /// The version of ipywidgets that a kernel of this session printed last for a widget probe.
    widgets: Option<String>,
    execution_count: u64,
    /// The client whose start-up code turns Jedi off; the bridge does so in each generation of the kernel.
    jedi_off: Option<ClientId>,
}

impl StoredAnswers {
    /// Stores the content of a `kernel_info_reply`, if it is usable.
    pub(super) fn set_info(&mut self, info: Option<Bytes>) {
        let can_serve = |info: &Bytes| {
            let info = serde_json::from_slice::<Value>(info);
            info.is_ok_and(|info| info["language_info"].is_object())
        };
        if info.as_ref().is_some_and(can_serve) {
            self.info = info;
        }
    }

    pub(super) fn has_info(&self) -> bool {
        self.info.is_some()
    }

    /// Returns the content of a `kernel_info_reply`; a plain one of a Python kernel where none is known.
    pub(super) fn info(&self) -> Value {
        let info = self.info.as_deref();
        info.and_then(|info| serde_json::from_slice(info).ok())
            .unwrap_or_else(plain_info)
    }

    /// Returns the content of an `execute_reply`.
    pub(super) fn execute_reply(&self) -> Value {
        json!({
            "status": "ok",
            "execution_count": self.execution_count,
            "user_expressions": {},
            "payload": [],
        })
    }

    /// Sets the execution count of the last cell.
    pub(super) fn set_execution_count(&mut self, count: u64) {
        self.execution_count = count;
    }

    /// Sets the version of ipywidgets, if one is given.
    pub(super) fn set_widgets(&mut self, version: Option<String>) {
        if version.is_some() {
            self.widgets = version;
        }
    }

    /// Stores the version that a kernel has printed for a widget probe; returns it if it differs from the
    /// stored one.
    pub(super) fn take_widget_probe(&mut self, stream: &Verified) -> Option<String> {
        #[derive(Deserialize)]
        struct Stream {
            text: String,
        }
        let stream: Stream = stream.read_content()?;
        let version = startup::widget_version(&stream.text)?.to_owned();
        if self.widgets.as_ref() == Some(&version) {
            return None;
        }
        self.widgets = Some(version.clone());
        Some(version)
    }

    /// Returns the stdout of a widget probe, with the known version, else with VS Code's default.
    ///
    /// There is always a version: at a first start VS Code does not ask again; without a version it draws no
    /// widget, and every cell after the first widget stays pending.
    pub(super) fn widget_probe(&self) -> String {
        let version = self.widgets.as_deref();
        startup::widget_probe_stdout(version.unwrap_or(startup::WIDGETS_DEFAULT))
    }

    /// Stores the client whose start-up code turns Jedi off.
    pub(super) fn set_jedi_off(&mut self, client: ClientId) {
        self.jedi_off = Some(client);
    }

    pub(super) fn jedi_off(&self) -> Option<&ClientId> {
        self.jedi_off.as_ref()
    }
}

/// Returns a plain Python kernel's kernel_info_reply, for a kernel that has not answered yet.
fn plain_info() -> Value {
    json!({
        "status": "ok",
        "protocol_version": "5.3",
        "implementation": "nb-proxy",
        "implementation_version": env!("CARGO_PKG_VERSION"),
        "language_info": {
            "name": "python",
            "version": "3",
            "mimetype": "text/x-python",
            "codemirror_mode": { "name": "ipython", "version": 3 },
            "pygments_lexer": "ipython3",
            "nbconvert_exporter": "python",
            "file_extension": ".py",
        },
        "banner": "nb shared kernel",
        "help_links": [],
    })
}
