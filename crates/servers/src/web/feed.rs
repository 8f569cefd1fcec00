//! The numbered messages that all connected pages receive.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::sync::broadcast;
use tokio_tungstenite::tungstenite::Utf8Bytes;

use crate::project::event::Event;
use crate::project::fresh_id;
use crate::project::jobs::JobPrompt;

/// How many messages wait for a page that does not read. If there are more, the page gets a request to load all anew.
const WAITING_MAX: usize = 256;

/// How many bytes of earlier messages are kept for pages that connect again.
const STORED_BYTES_MAX: usize = 2 << 20;

/// A message to the pages.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum PageMessage {
    /// The first message of each connection.
    Hello {
        /// Which run of the server this is: numbers of another run mean nothing.
        run: String,
        /// The number of the last message before this connection.
        number: u64,
        /// The name under which the pages act.
        name: String,
    },
    /// The server is there: comes every 30 seconds, without a number.
    Alive,
    /// Messages are missing: what the page shows must be loaded anew.
    Reload,
    /// Something happened in the project.
    Event {
        /// The notebook, as requests name it.
        notebook: String,
        /// What happened.
        event: Box<Event>,
    },
    /// The notebook's file has changed.
    Changed {
        /// The notebook, as requests name it.
        notebook: String,
    },
    /// A running cell has other outputs than before. The notebook's file has them later.
    Output {
        /// The notebook, as requests name it.
        notebook: String,
        /// The cell.
        cell: String,
        /// How many of its outputs are as before; `outputs` replaces the others.
        from: usize,
        /// The outputs, as a notebook of format 4 has them; very long ones lack their middle.
        outputs: Vec<Value>,
    },
    /// The code of a running job asks something, or what it asked has been answered.
    Prompt {
        /// The notebook, as requests name it.
        notebook: String,
        /// The job, by which the answer names it.
        job: String,
        /// The cell; none for code that is in no cell.
        cell: Option<String>,
        /// What it asks; none if it asks nothing any more.
        prompt: Option<JobPrompt>,
    },
    /// A message of [the live protocol](live.md) to this page, without a number.
    Live {
        /// The message; without one `nb live` has ended, and the page opens its notebook again.
        message: Option<Box<RawValue>>,
    },
    /// A turn of the assistant has begun or ended, or the conversation was forgotten.
    Assistant {
        /// The notebook, as requests name it.
        notebook: String,
        /// The turn; none if all turns were forgotten.
        turn: Option<String>,
        /// Whether it goes on.
        running: bool,
    },
}

/// A message with its number.
#[derive(Serialize)]
struct NumberedMessage<'a> {
    number: u64,
    #[serde(flatten)]
    message: &'a PageMessage,
}

/// The messages so far.
pub(super) struct Feed {
    run: String,
    /// The name under which the pages act.
    name: String,
    state: Mutex<FeedState>,
    sender: broadcast::Sender<Utf8Bytes>,
}

#[derive(Default)]
struct FeedState {
    /// The number of the last message.
    number: u64,
    /// The last messages; the newest has the number above.
    past: VecDeque<Utf8Bytes>,
    bytes: usize,
}

/// What a page gets that connects.
pub(super) struct FeedStart {
    /// The messages to send first.
    pub(super) first: Vec<Utf8Bytes>,
    /// Those that follow.
    pub(super) next: broadcast::Receiver<Utf8Bytes>,
}

impl Feed {
    /// Makes a feed without messages. `name` is the name under which the pages act.
    pub(super) fn new(name: &str) -> Self {
        Self {
            run: fresh_id(),
            name: name.to_owned(),
            state: Mutex::default(),
            sender: broadcast::channel(WAITING_MAX).0,
        }
    }

    fn state(&self) -> MutexGuard<'_, FeedState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of the last message.
    pub(super) fn number(&self) -> u64 {
        self.state().number
    }

    /// Sends a message to all connected pages.
    pub(super) fn send(&self, message: &PageMessage) {
        let mut state = self.state();
        let number = state.number + 1;
        let Ok(text) = serde_json::to_string(&NumberedMessage { number, message }) else {
            return;
        };
        let text = Utf8Bytes::from(text);
        state.number = number;
        state.bytes += text.len();
        state.past.push_back(text.clone());
        while state.bytes > STORED_BYTES_MAX {
            let Some(oldest) = state.past.pop_front() else {
                break;
            };
            state.bytes -= oldest.len();
        }
        // Nobody may be connected.
        let _ = self.sender.send(text);
    }

    /// Begins with a page. `after` is the run and the number of the last message that it has received.
    pub(super) fn begin(&self, after: Option<(&str, u64)>) -> FeedStart {
        let state = self.state();
        let hello = PageMessage::Hello {
            run: self.run.clone(),
            number: state.number,
            name: self.name.clone(),
        };
        let mut first = vec![text_of(&hello)];
        if let Some((run, number)) = after {
            let missed = state.number.checked_sub(number);
            let missed = missed.and_then(|missed| usize::try_from(missed).ok());
            match missed.filter(|missed| run == self.run && *missed <= state.past.len()) {
                Some(missed) => {
                    let first_missed = state.past.len() - missed;
                    first.extend(state.past.range(first_missed..).cloned());
                }
                None => first.push(reload()),
            }
        }
        FeedStart {
            first,
            next: self.sender.subscribe(),
        }
    }
}

/// Returns the message that tells a page to load all anew.
pub(super) fn reload() -> Utf8Bytes {
    text_of(&PageMessage::Reload)
}

/// Returns the message that tells a page that the server is there.
pub(super) fn alive() -> Utf8Bytes {
    text_of(&PageMessage::Alive)
}

/// Returns a message of `nb live` as one to a page.
pub(super) fn live(message: Box<RawValue>) -> Utf8Bytes {
    let message = Some(message);
    text_of(&PageMessage::Live { message })
}

/// Returns the message that tells a page that its `nb live` has ended.
pub(super) fn live_ended() -> Utf8Bytes {
    text_of(&PageMessage::Live { message: None })
}

fn text_of(message: &PageMessage) -> Utf8Bytes {
    serde_json::to_string(message).unwrap_or_default().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(feed: &Feed, notebook: &str) {
        let notebook = notebook.to_owned();
        feed.send(&PageMessage::Changed { notebook });
    }

    fn first(feed: &Feed, after: Option<(&str, u64)>) -> Vec<Value> {
        let first = feed.begin(after).first;
        let first = first.iter().map(|text| serde_json::from_str(text));
        first.collect::<Result<_, _>>().unwrap()
    }

    #[test]
    fn a_page_that_connects_again_misses_nothing_or_loads_all_anew() {
        let feed = Feed::new("ann");
        let run = first(&feed, None)[0]["run"].as_str().unwrap().to_owned();
        for notebook in ["a", "b", "c"] {
            changed(&feed, notebook);
        }
        let missed = first(&feed, Some((&run, 1)));
        let names: Vec<_> = missed.iter().map(|it| it["notebook"].as_str()).collect();
        assert_eq!(names, [None, Some("b"), Some("c")]);
        assert_eq!(missed[2]["number"], 3);
        assert_eq!(first(&feed, Some((&run, 3))).len(), 1);
        for after in [("other", 3), (&*run, 4)] {
            assert_eq!(first(&feed, Some(after))[1]["type"], "reload", "{after:?}");
        }
        // Old messages are dropped.
        let long = "x".repeat(STORED_BYTES_MAX / 2);
        for _ in 0..3 {
            changed(&feed, &long);
        }
        assert_eq!(first(&feed, Some((&run, 3)))[1]["type"], "reload");
        assert!(feed.state().bytes <= STORED_BYTES_MAX);
    }

    #[test]
    fn a_page_that_does_not_read_is_cut_off() {
        let feed = Feed::new("ann");
        let mut next = feed.begin(None).next;
        for _ in 0..=WAITING_MAX {
            changed(&feed, "a");
        }
        let lagged = broadcast::error::TryRecvError::Lagged(1);
        assert_eq!(next.try_recv(), Err(lagged));
    }
}
