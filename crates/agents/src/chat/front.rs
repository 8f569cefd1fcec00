//! One cell's outputs and questions: the displays of a turn, and the prompts for the person.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::json;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::channels::ChatChannels;
use crate::agent::update::Update;
use crate::agent::{Front, Turn};

/// The time between two displays: VS Code lags at more than ten a second.
const DISPLAY_INTERVAL: Duration = Duration::from_millis(100);

/// The front end of a running cell.
pub(super) struct CellFront {
    channels: Rc<ChatChannels>,
    parent: Bytes,
    client: Bytes,
    allows_stdin: bool,
    /// The beginning of the displays' ids.
    id: String,
    turn: RefCell<Turn>,
    changed: Notify,
}

impl CellFront {
    pub(super) fn new(
        channels: Rc<ChatChannels>,
        parent: Bytes,
        client: Bytes,
        allows_stdin: bool,
        turn: Turn,
    ) -> Self {
        Self {
            channels,
            parent,
            client,
            allows_stdin,
            id: uuid::Uuid::new_v4().simple().to_string(),
            turn: RefCell::new(turn),
            changed: Notify::new(),
        }
    }

    /// Runs `work`, and sends the displays that change, during it and after it.
    pub(super) async fn run_with_displays<T>(&self, work: impl Future<Output = T>) -> T {
        let displays = async {
            loop {
                self.changed.notified().await;
                self.send_displays().await;
            }
        };
        let result = tokio::select! {
            result = work => result,
            () = displays => unreachable!("the loop never ends"),
        };
        self.send_displays().await;
        result
    }

    /// Ends the turn; its last display shows the reason.
    pub(super) async fn end(&self, stop: &str) {
        self.turn.borrow_mut().end(stop);
        self.send_displays().await;
    }

    /// Prints the text of a command's answer.
    pub(super) fn print(&self, text: &str) {
        let content = json!({ "name": "stdout", "text": text });
        self.channels.publish("stream", &self.parent, &content);
    }

    /// Sends the displays that have changed.
    async fn send_displays(&self) {
        loop {
            if let Some(last) = self.channels.last_display.get() {
                tokio::time::sleep_until(last + DISPLAY_INTERVAL).await;
            }
            let Some(display) = self.turn.borrow_mut().next_display() else {
                return;
            };
            let content = json!({
                "data": display.data,
                "metadata": {},
                "transient": { "display_id": format!("{}-{}", self.id, display.page) },
            });
            let msg_type = match display.is_update {
                true => "update_display_data",
                false => "display_data",
            };
            self.channels.publish(msg_type, &self.parent, &content);
            self.channels.last_display.set(Some(Instant::now()));
        }
    }
}

impl Front for CellFront {
    fn take(&self, update: Update) {
        self.turn.borrow_mut().take(update);
        self.changed.notify_one();
    }

    async fn ask(&self, prompt: String) -> Option<String> {
        // The displays that the question is about must be seen before it.
        self.send_displays().await;
        if !self.allows_stdin {
            return None;
        }
        self.channels.ask(&self.parent, &self.client, &prompt).await
    }
}
