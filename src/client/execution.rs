//! One execute request under way.

use std::time::Instant;

use bytes::Bytes;
use serde_json::json;

use super::execution_state::{Event, ExecutionState, RequestOutcome};
use super::sequence_numbers::SequenceNumbers;
use super::{Client, ClientError, Prompt, reached};
use crate::wire::Channel;

/// One execute request under way; [`Execution::next`] says what happens to it.
///
/// Dropping it stops nothing: the code goes on in the kernel, its further outputs are not seen.
pub struct Execution<'a> {
    client: &'a mut Client,
    run: ExecutionState,
    /// Outputs that were dropped before this request was sent.
    dropped_before: u64,
    /// What the kernel has sent since.
    numbers: SequenceNumbers,
}

/// What Python, R and Julia kernels take for the end of the input.
pub const EOF: &str = "\u{4}";

impl<'a> Execution<'a> {
    pub(super) fn new(client: &'a mut Client, msg_id: String) -> Self {
        let dropped_before = client.dropped();
        let run = ExecutionState::new(msg_id, Instant::now()).lingering(client.linger);
        Self {
            client,
            run,
            dropped_before,
            numbers: SequenceNumbers::default(),
        }
    }

    /// Waits for the next event; none when the request has ended. May be dropped halfway.
    pub async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.run.poll_event() {
                return Some(event);
            }
            if self.run.outcome().is_some() {
                return None;
            }
            let due = self.run.poll_timeout();
            let overdue = reached(due.map(Into::into));
            tokio::select! {
                biased;
                received = self.client.receive() => match received {
                    Ok((channel, message)) => {
                        if let Ok(header) = message.header() {
                            self.numbers.take(&header);
                        }
                        self.run.handle_message(channel, &message, Instant::now());
                    }
                    Err(error) => {
                        let why = match error {
                            ClientError::KernelGone(why) => why,
                            other => other.to_string(),
                        };
                        self.run.handle_kernel_gone(why, Instant::now());
                    }
                },
                () = overdue => self.run.handle_timeout(Instant::now()),
            }
        }
    }

    /// Answers the code's question.
    pub fn answer(&mut self, prompt: &Prompt, text: &str) {
        self.client.send(
            Channel::Stdin,
            "input_reply",
            prompt.header.clone(),
            &json!({ "value": text, "status": "ok" }),
        );
    }

    /// Answers that there is no more input: Python raises `EOFError`.
    pub fn answer_eof(&mut self, prompt: &Prompt) {
        self.answer(prompt, EOF);
    }

    /// Asks the kernel to interrupt what it runs, by message, without waiting for its answer.
    pub fn interrupt(&mut self) {
        let empty = Bytes::from_static(b"{}");
        self.client
            .send(Channel::Control, "interrupt_request", empty, &json!({}));
    }

    /// Returns the message id of the request.
    pub fn msg_id(&self) -> &str {
        self.run.msg_id()
    }

    /// Returns how many messages were dropped since the request was sent because nobody took
    /// them; outputs may be among them.
    pub fn dropped(&self) -> u64 {
        self.client.dropped() - self.dropped_before
    }

    /// Returns how many messages of the kernel never came since the request was sent, where it numbers
    /// them: its own queue had no room.
    pub fn missing(&self) -> u64 {
        self.numbers.missing().saturating_sub(self.dropped())
    }

    /// Returns how it ended, once [`Execution::next`] has given none.
    pub fn outcome(&self) -> Option<&RequestOutcome> {
        self.run.outcome()
    }

    pub(super) fn into_outcome(self) -> RequestOutcome {
        self.run
            .into_outcome()
            .expect("`next` gives none only when the request has ended")
    }
}
