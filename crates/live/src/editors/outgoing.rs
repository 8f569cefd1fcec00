//! What `nb` sends to an editor, on a connection that may lose messages.
//!
//! A Jupyter server drops messages of a kernel that prints very much, those of a comm too. For such a connection each
//! line has a number, and is sent again until the editor has received it.

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use serde::Serialize;
use serde_json::Value;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::time::Instant;

/// How long a line may be on its way before it is sent again. Each time the next pause is twice as long.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(8);

/// After how long without a line `alive` is sent.
const ALIVE: Duration = Duration::from_secs(5);

/// How long nothing may be heard of an editor that has lines to acknowledge. Then it is gone.
const GONE: Duration = Duration::from_secs(20);

/// How many bytes may wait to be acknowledged. With more the connection ends.
const MOST_BYTES: usize = 256 << 20;

/// The way to an editor.
pub(super) struct Outgoing<W> {
    output: W,
    /// What is kept to be sent again; none on a connection that loses nothing.
    unreceived: Option<Unreceived>,
}

/// The lines that an editor has not acknowledged.
struct Unreceived {
    /// The lines, each with its number.
    lines: VecDeque<(u64, Vec<u8>)>,
    last_number: u64,
    bytes: usize,
    /// When the first line is sent again, and the pause before that.
    again: Instant,
    pause: Duration,
    /// When the last line was added, and when the editor was heard last.
    added: Instant,
    heard: Instant,
}

/// What is to be done at a moment.
#[derive(Debug, PartialEq, Eq)]
enum Due {
    Nothing,
    /// Nothing was said for a while.
    Alive,
    /// This line is sent again.
    Again(Vec<u8>),
    /// The editor is gone.
    Gone,
}

/// Nothing is to be said: the editor answers that it has received it.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Alive {
    /// Sent to an editor that acknowledges, after five seconds without another message.
    Alive,
}

impl<W: AsyncWrite + Unpin> Outgoing<W> {
    pub(super) fn new(output: W) -> Self {
        Self {
            output,
            unreceived: None,
        }
    }

    /// The editor acknowledges what it receives: from now on lines have numbers.
    pub(super) fn number(&mut self) {
        self.unreceived
            .get_or_insert_with(|| Unreceived::new(Instant::now()));
    }

    /// Sends a message.
    pub(super) async fn send(&mut self, message: &impl Serialize) -> io::Result<()> {
        let line = match &mut self.unreceived {
            None => line(message)?,
            Some(unreceived) => unreceived.add(Instant::now(), serde_json::to_value(message)?)?,
        };
        self.write(&line).await
    }

    async fn write(&mut self, line: &[u8]) -> io::Result<()> {
        self.output.write_all(line).await?;
        self.output.flush().await
    }

    /// The editor has sent a line.
    pub(super) fn heard(&mut self) {
        if let Some(unreceived) = &mut self.unreceived {
            unreceived.heard = Instant::now();
        }
    }

    /// The editor has received all lines up to this number.
    pub(super) fn received(&mut self, number: u64) {
        if let Some(unreceived) = &mut self.unreceived {
            unreceived.remove(Instant::now(), number);
        }
    }

    /// Returns when [`Outgoing::due`] must be called.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.unreceived.as_ref().map(Unreceived::next_due)
    }

    /// Sends again what is late.
    ///
    /// # Errors
    /// The editor is gone, or reads nothing any more.
    pub(super) async fn due(&mut self) -> io::Result<()> {
        let Some(unreceived) = &mut self.unreceived else {
            return Ok(());
        };
        match unreceived.due(Instant::now()) {
            Due::Nothing => Ok(()),
            Due::Alive => self.send(&Alive::Alive).await,
            Due::Again(line) => self.write(&line).await,
            Due::Gone => {
                let text = "the editor acknowledges nothing any more";
                Err(io::Error::new(io::ErrorKind::TimedOut, text))
            }
        }
    }
}

impl Unreceived {
    fn new(now: Instant) -> Self {
        Self {
            lines: VecDeque::new(),
            last_number: 0,
            bytes: 0,
            again: now,
            pause: FIRST_PAUSE,
            added: now,
            heard: now,
        }
    }

    /// Gives a message its number, and keeps it; returns its line.
    fn add(&mut self, now: Instant, mut message: Value) -> io::Result<Vec<u8>> {
        self.last_number += 1;
        if let Some(fields) = message.as_object_mut() {
            fields.insert("n".to_owned(), self.last_number.into());
        }
        let line = line(&message)?;
        self.added = now;
        if self.lines.is_empty() {
            self.begin(now);
            // Before this nothing was to be acknowledged.
            self.heard = now;
        }
        self.bytes += line.len();
        if self.bytes > MOST_BYTES && !self.lines.is_empty() {
            return Err(io::Error::other("the editor receives too slowly"));
        }
        self.lines.push_back((self.last_number, line.clone()));
        Ok(line)
    }

    fn remove(&mut self, now: Instant, number: u64) {
        let mut has_removed = false;
        while let Some((_, line)) = self.lines.pop_front_if(|(first, _)| *first <= number) {
            self.bytes -= line.len();
            has_removed = true;
        }
        if has_removed {
            self.begin(now);
        }
    }

    /// Another line is the first one.
    fn begin(&mut self, now: Instant) {
        self.pause = FIRST_PAUSE;
        self.again = now + FIRST_PAUSE;
    }

    fn next_due(&self) -> Instant {
        match self.lines.is_empty() {
            true => self.added + ALIVE,
            false => self.again.min(self.heard + GONE),
        }
    }

    fn due(&mut self, now: Instant) -> Due {
        if now < self.next_due() {
            return Due::Nothing;
        }
        let Some((_, first)) = self.lines.front() else {
            return Due::Alive;
        };
        if now >= self.heard + GONE {
            return Due::Gone;
        }
        self.pause = (2 * self.pause).min(LONGEST_PAUSE);
        self.again = now + self.pause;
        // The editor keeps later lines until it has this one.
        Due::Again(first.clone())
    }
}

fn line(message: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    Ok(line)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_first_line_that_was_not_received_is_sent_again() {
        let begin = Instant::now();
        let mut unreceived = Unreceived::new(begin);
        let lines = [1, 2, 3].map(|a| unreceived.add(begin, json!({ "a": a })).unwrap());
        assert_eq!(lines[1], b"{\"a\":2,\"n\":2}\n");
        unreceived.remove(begin, 1);
        assert_eq!(unreceived.due(begin), Due::Nothing);
        let next = unreceived.next_due();
        assert_eq!(unreceived.due(next), Due::Again(lines[1].clone()));
        assert_eq!(unreceived.due(next), Due::Nothing);
        unreceived.remove(next, 3);
        assert_eq!(unreceived.next_due(), begin + ALIVE);
        assert_eq!(unreceived.due(begin + ALIVE), Due::Alive);
        assert_eq!(unreceived.bytes, 0);
    }

    #[test]
    fn an_editor_that_acknowledges_nothing_is_gone_after_twenty_seconds() {
        let begin = Instant::now();
        let mut unreceived = Unreceived::new(begin);
        unreceived.add(begin, json!({})).unwrap();
        let mut times = Vec::new();
        loop {
            let now = unreceived.next_due();
            let due = unreceived.due(now);
            times.push((now - begin).as_secs());
            if due == Due::Gone {
                break;
            }
        }
        assert_eq!(times, [1, 3, 7, 15, 20]);
    }

    #[test]
    fn an_editor_that_had_nothing_to_say_for_long_is_not_gone_when_it_gets_a_line() {
        let begin = Instant::now();
        let mut unreceived = Unreceived::new(begin);
        let later = begin + 2 * GONE;
        unreceived.add(later, json!({})).unwrap();
        assert_ne!(unreceived.due(unreceived.next_due()), Due::Gone);
    }
}
