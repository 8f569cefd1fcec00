//! One outstanding execute request.

use std::time::Instant;

use super::execution_state::{ExecutionEvent, ExecutionState, RequestOutcome};
use super::sequence_numbers::SequenceNumbers;
use super::{Client, Prompt, is_idle, reached};

/// One outstanding execute request; [`ExecuteRequest::next`] returns its events.
///
/// Dropping it stops nothing: the code goes on in the kernel, and its further outputs are not seen.
pub struct ExecuteRequest<'a> {
    client: &'a mut Client,
    run: ExecutionState,
    /// How many messages were dropped before this request was sent.
    dropped_before: u64,
    /// The sequence numbers of the kernel's messages since then.
    numbers: SequenceNumbers,
}

/// The input that Python, R and Julia kernels treat as end of file.
pub const EOF: &str = "\u{4}";

impl<'a> ExecuteRequest<'a> {
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

    /// Waits for the next event; returns `None` when the request has ended. The future may be dropped.
    pub async fn next(&mut self) -> Option<ExecutionEvent> {
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
                            self.numbers.take(&header, is_idle(&header, &message));
                        }
                        self.run.handle_message(channel, &message, Instant::now());
                    }
                    Err(error) => self.run.handle_kernel_gone(error.into_why(), Instant::now()),
                },
                () = overdue => self.run.handle_timeout(Instant::now()),
            }
        }
    }

    /// Answers a prompt of the code.
    pub fn answer(&mut self, prompt: &Prompt, text: &str) {
        self.client.answer(prompt.header.clone(), text);
    }

    /// Answers that there is no more input: Python raises `EOFError`.
    pub fn answer_eof(&mut self, prompt: &Prompt) {
        self.answer(prompt, EOF);
    }

    /// Sends the kernel an interrupt_request, without waiting for its answer.
    pub fn interrupt(&mut self) {
        self.client.ask_interrupt();
    }

    /// Returns the message id of the request.
    pub fn msg_id(&self) -> &str {
        self.run.msg_id()
    }

    /// Returns how many messages were dropped because the inbox was full since the request was sent; outputs
    /// may be among them.
    pub fn dropped(&self) -> u64 {
        self.client.dropped() - self.dropped_before
    }

    /// Returns how many messages of the kernel never arrived since the request was sent, if the kernel
    /// numbers them: its own queue was full.
    pub fn missing(&self) -> u64 {
        self.numbers.missing().saturating_sub(self.dropped())
    }

    /// Returns the sequence numbers of the kernel's messages, for whoever follows the request over another connection.
    pub fn numbers(&self) -> &SequenceNumbers {
        &self.numbers
    }

    /// Returns how the request ended, once [`ExecuteRequest::next`] has returned `None`.
    pub fn outcome(&self) -> Option<&RequestOutcome> {
        self.run.outcome()
    }

    pub(super) fn into_outcome(self) -> RequestOutcome {
        self.run
            .into_outcome()
            .expect("`next` gives none only when the request has ended")
    }
}
