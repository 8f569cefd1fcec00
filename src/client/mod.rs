//! A client of a running kernel, over the `zeromq` crate.
//!
//! [`Client`] has the four sockets of one kernel, on a thread of their own that always reads; one
//! request at a time. [`execution_state`] follows an execute request and is pure. Every message is verified
//! with the connection's key; a bad one is counted and dropped. No request goes out before the
//! iopub subscription is proven, so that no output of it can be missed.
//!
//! A kernel that dies closes its sockets, which the client sees at once; where the caller can see
//! the process end, [`Client::watch`] takes that too. A client never dials again: the caller
//! connects anew. The heartbeat is not used.

mod content;
mod error;
mod execution;
pub mod execution_state;
mod follower;
mod other_clients;
mod request;
mod sequence_numbers;
mod socket_thread;

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;
use serde_json::json;
use tokio::time::Instant;

use crate::wire::{Channel, ConnectionInfo, NewHeader, SigningKey, Unverified, Verified};
pub use content::{DisplayContent, IopubMessage, KernelException, Output, Prompt, StreamText};
pub use error::ClientError;
pub use execution::{EOF, Execution};
pub use execution_state::{Event, RequestEnd, RequestOutcome};
pub use follower::{FollowedEvent, FollowedStep, RequestFollower};
use other_clients::OtherClients;
pub use other_clients::{ExecutionStep, OtherClientStep};
pub use request::Execute;
use socket_thread::{Arrived, SocketThread};

/// A kernel's client: shell, control and stdin under one identity, and everything on iopub.
///
/// Dropping it closes the sockets; [`Client::close`] also waits until what was sent is written.
pub struct Client {
    link: SocketThread,
    key: SigningKey,
    session: String,
    username: String,
    requests: u64,
    iopub: Iopub,
    refused: u64,
    life: Life,
    death: Option<Pin<Box<dyn Future<Output = String> + Send>>>,
    others: OtherClients,
    observer: Option<Observer>,
    /// The silence that ends a request, for kernels that send outputs after idle.
    linger: Duration,
    /// The time that iopub may be silent while the kernel answers.
    proof: Duration,
}

/// A callback for what other clients run.
type Observer = Box<dyn FnMut(OtherClientStep) + Send>;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Iopub {
    /// Connected; whether the kernel knows of the subscription is open.
    Unproven,
    Proven,
    /// The connection has ended; the link dials again.
    Lost,
}

/// Whether the kernel lives.
enum Life {
    Alive,
    /// It is gone; what iopub still has is read until then.
    Draining {
        until: Instant,
        why: String,
    },
    Gone(String),
}

/// The time to read the outputs that are in the socket when a kernel dies.
const DRAIN: Duration = Duration::from_millis(500);

/// The pause between two attempts to connect to a starting kernel.
const DIAL_AGAIN: Duration = Duration::from_millis(5);

/// The first pause before the kernel is asked again for a sign on iopub; it doubles.
const PROVE_AGAIN: Duration = Duration::from_millis(50);

/// The time for which a kernel that answers on shell or control may be silent on iopub. It publishes
/// the status of each request there, so a longer silence means a broken connection.
const PROOF: Duration = Duration::from_secs(10);

/// How far a kernel's word on iopub may be behind its answer before it is asked for another.
const BEHIND: Duration = Duration::from_millis(5);

impl Client {
    /// Connects to a kernel that is running. `username` is what it sees as the sender's name.
    ///
    /// # Errors
    /// [`ClientError::Unreachable`] names the socket that nobody listens on,
    /// [`ClientError::Handshake`] the one that is none of a kernel's.
    pub async fn connect(info: &ConnectionInfo, username: &str) -> Result<Self, ClientError> {
        // All sockets share it: the kernel addresses stdin by the shell's identity.
        let session = uuid::Uuid::new_v4().simple().to_string();
        let link = SocketThread::connect(info, &session).await?;
        Ok(Self {
            link,
            key: info.key.clone(),
            session,
            username: username.to_owned(),
            requests: 0,
            iopub: Iopub::Unproven,
            refused: 0,
            life: Life::Alive,
            death: None,
            others: OtherClients::new(Instant::now().into_std()),
            observer: None,
            linger: Duration::ZERO,
            proof: PROOF,
        })
    }

    /// Connects to a kernel that is starting: dials again until it listens.
    ///
    /// # Errors
    /// As [`Client::connect`], once `patience` is over.
    pub async fn connect_when_up(
        info: &ConnectionInfo,
        username: &str,
        patience: Duration,
    ) -> Result<Self, ClientError> {
        let deadline = Instant::now() + patience;
        loop {
            // First without the sockets' thread, which takes time to start.
            let connected = match socket_thread::listens(info).await {
                Ok(()) => Self::connect(info, username).await,
                Err(error) => Err(error),
            };
            match connected {
                Err(error) if error.may_come_up() && Instant::now() < deadline => {
                    tokio::time::sleep(DIAL_AGAIN).await;
                }
                result => return result,
            }
        }
    }

    /// Takes the kernel for gone when this future ends; its text says what happened.
    ///
    /// For a kernel whose process can be watched (a pidfd): connections of a dead process end by
    /// themselves, those through a proxy or a tunnel may not.
    pub fn watch(&mut self, death: impl Future<Output = String> + Send + 'static) {
        self.death = Some(Box::pin(death));
    }

    /// Lets executions end only after this silence behind reply and idle, for kernels that send outputs
    /// then.
    pub fn linger(&mut self, silence: Duration) {
        self.linger = silence;
    }

    /// Sets the time after which a kernel that answers and is silent on iopub counts as broken.
    pub fn prove_within(&mut self, proof: Duration) {
        self.proof = proof;
    }

    /// Tells `observer` what other clients run on the kernel, whenever this client reads.
    pub fn observe(&mut self, observer: impl FnMut(OtherClientStep) + Send + 'static) {
        self.observer = Some(Box::new(observer));
    }

    fn see(&mut self, message: &Verified) {
        if let Some(observer) = &mut self.observer
            && let Some(foreign) =
                self.others
                    .take(message, &self.session, std::time::Instant::now())
        {
            observer(foreign);
        }
    }

    /// Returns this client's session: its identity, and `header.session` of what it sends.
    pub fn session(&self) -> &str {
        &self.session
    }

    /// Returns how many messages were dropped because they were malformed or badly signed.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Returns how many messages were dropped because nobody took them (above 512 MiB).
    pub fn dropped(&self) -> u64 {
        self.link.dropped()
    }

    /// Asks what the kernel is. On shell the answer also says that no cell is running.
    ///
    /// # Errors
    /// No answer in time, or the kernel is gone.
    pub async fn kernel_info(
        &mut self,
        channel: Channel,
        timeout: Duration,
    ) -> Result<Verified, ClientError> {
        self.request(channel, "kernel_info_request", &json!({}), timeout)
            .await
    }

    /// Asks the kernel to interrupt what it runs, by message.
    ///
    /// Some kernels (IRkernel) ignore the message; those need the signal.
    ///
    /// # Errors
    /// No answer in time, or the kernel is gone.
    pub async fn interrupt(&mut self, timeout: Duration) -> Result<Verified, ClientError> {
        self.request(Channel::Control, "interrupt_request", &json!({}), timeout)
            .await
    }

    /// Asks the kernel to end. Its sockets may close before the answer is read: that is success
    /// as well, and gives `None`.
    ///
    /// # Errors
    /// No answer in time.
    pub async fn shutdown(
        &mut self,
        restart: bool,
        timeout: Duration,
    ) -> Result<Option<Verified>, ClientError> {
        let content = json!({ "restart": restart });
        match self
            .request(Channel::Control, "shutdown_request", &content, timeout)
            .await
        {
            Err(ClientError::KernelGone(_)) => Ok(None),
            answer => answer.map(Some),
        }
    }

    /// Sends a request and waits for its reply; other messages that come meanwhile are dropped.
    ///
    /// # Errors
    /// No answer in time, or the kernel is gone.
    pub async fn request(
        &mut self,
        channel: Channel,
        msg_type: &str,
        content: &(impl Serialize + Sync),
        timeout: Duration,
    ) -> Result<Verified, ClientError> {
        self.request_in(None, channel, msg_type, content, timeout)
            .await
    }

    /// Sends a request to a subshell of the kernel, or to none, and waits for its reply as
    /// [`Client::request`] does.
    ///
    /// # Errors
    /// As [`Client::request`].
    pub async fn request_in(
        &mut self,
        subshell: Option<&str>,
        channel: Channel,
        msg_type: &str,
        content: &(impl Serialize + Sync),
        timeout: Duration,
    ) -> Result<Verified, ClientError> {
        let empty = Bytes::from_static(b"{}");
        let msg_id = self.send_in(subshell, channel, msg_type, empty, content);
        let answered = async {
            loop {
                let (from, message) = self.receive().await?;
                if from == channel && answers(&message, &msg_id) {
                    return Ok(message);
                }
            }
        };
        match tokio::time::timeout(timeout, answered).await {
            Ok(answer) => answer,
            Err(_) => Err(ClientError::NoAnswer {
                request: msg_type.to_owned(),
                channel,
                after: timeout,
            }),
        }
    }

    /// Sends an execute request, as soon as the iopub subscription is proven.
    ///
    /// Dropping the [`Execution`] leaves the code running in the kernel. The future may be
    /// dropped: before it ends nothing has been asked of the kernel but its name.
    ///
    /// # Errors
    /// The kernel is gone.
    pub async fn start(&mut self, request: &Execute) -> Result<Execution<'_>, ClientError> {
        self.start_in(None, request).await
    }

    /// Sends an execute request to a subshell of the kernel, or to none, as [`Client::start`] does.
    ///
    /// # Errors
    /// The kernel is gone.
    pub async fn start_in(
        &mut self,
        subshell: Option<&str>,
        request: &Execute,
    ) -> Result<Execution<'_>, ClientError> {
        self.prove_iopub().await?;
        let Self {
            link, iopub, life, ..
        } = self;
        // What came before the request has nothing to do with it.
        let mut before = Vec::new();
        let observed = self.observer.is_some();
        link.forget_arrived(|arrived| match arrived {
            Arrived::Lost { channel, why } => lost(channel, &why, iopub, life),
            Arrived::Message { channel, frames } if observed && channel == Channel::Iopub => {
                before.push(frames);
            }
            Arrived::Message { .. } => {}
        });
        for frames in before {
            if let Some(message) = self.verify(frames) {
                self.see(&message);
            }
        }
        let empty = Bytes::from_static(b"{}");
        let channel = Channel::Shell;
        let msg_id = self.send_in(subshell, channel, "execute_request", empty, request);
        Ok(Execution::new(self, msg_id))
    }

    /// Executes code to its end. `on_event` sees what happens; what it returns for a
    /// [`Event::Prompt`] is the answer, and none there means end of file.
    ///
    /// # Errors
    /// The kernel was gone before the request was sent; later [`RequestEnd::KernelGone`] says so.
    pub async fn execute(
        &mut self,
        request: &Execute,
        mut on_event: impl FnMut(&Event) -> Option<String>,
    ) -> Result<RequestOutcome, ClientError> {
        let mut execution = self.start(request).await?;
        while let Some(event) = execution.next().await {
            let answer = on_event(&event);
            if let Event::Prompt(prompt) = &event {
                match answer {
                    Some(text) => execution.answer(prompt, &text),
                    None => execution.answer_eof(prompt),
                }
            }
        }
        Ok(execution.into_outcome())
    }

    /// Waits until a message has come on iopub: from then on every output is seen.
    ///
    /// A kernel that greets its subscribers (`iopub_welcome`) proves it at once. The others are
    /// asked for their name, whose status everybody is told: on control again and again, on shell
    /// once, since some kernels answer there alone and requests must not pile up behind a cell.
    ///
    /// # Errors
    /// The kernel is gone, or it answers and says nothing on iopub.
    pub async fn prove_iopub(&mut self) -> Result<(), ClientError> {
        let mut pause = PROVE_AGAIN;
        let mut asked_shell = false;
        // A kernel that runs a cell may answer nothing until its end, which may be far away.
        let mut answered: Option<Instant> = None;
        while self.iopub != Iopub::Proven {
            let empty = || Bytes::from_static(b"{}");
            self.send(Channel::Control, "kernel_info_request", empty(), &json!({}));
            if !std::mem::replace(&mut asked_shell, true) {
                self.send(Channel::Shell, "kernel_info_request", empty(), &json!({}));
            }
            let heard = async {
                while self.iopub != Iopub::Proven {
                    let (channel, _) = self.receive().await?;
                    if channel != Channel::Iopub {
                        answered.get_or_insert_with(Instant::now);
                    }
                }
                Ok(())
            };
            match tokio::time::timeout(pause, heard).await {
                Ok(heard) => heard?,
                Err(_) => pause = (pause * 2).min(Duration::from_secs(1)),
            }
            if self.iopub != Iopub::Proven && answered.is_some_and(|at| at.elapsed() >= self.proof)
            {
                return Err(ClientError::NoIopub { after: self.proof });
            }
        }
        Ok(())
    }

    /// Waits until the kernel runs nobody's cell, and every output is seen from then on: it has
    /// answered on shell, which most kernels tell everybody on iopub too. May be dropped halfway.
    ///
    /// # Errors
    /// The kernel is gone.
    pub async fn idle(&mut self) -> Result<(), ClientError> {
        let empty = Bytes::from_static(b"{}");
        let channel = Channel::Shell;
        let msg_id = self.send(channel, "kernel_info_request", empty, &json!({}));
        loop {
            let (from, message) = self.receive().await?;
            if from == channel && answers(&message, &msg_id) {
                break;
            }
        }
        // What it told everybody of this very request may be a moment behind.
        let told = async {
            while self.iopub != Iopub::Proven {
                self.receive().await?;
            }
            Ok(())
        };
        match tokio::time::timeout(BEHIND, told).await {
            Ok(told) => told,
            Err(_) => self.prove_iopub().await,
        }
    }

    /// Tells the kernel's side of a comm something; nobody answers.
    pub fn tell_comm(&mut self, content: &impl Serialize) {
        let empty = Bytes::from_static(b"{}");
        self.send(Channel::Shell, "comm_msg", empty, content);
    }

    /// Closes the sockets once what was sent is written, after one second at the latest.
    pub async fn close(self) {
        self.link.close().await;
    }

    /// Sends one message and returns its id.
    fn send(
        &mut self,
        channel: Channel,
        msg_type: &str,
        parent: Bytes,
        content: &impl Serialize,
    ) -> String {
        self.send_in(None, channel, msg_type, parent, content)
    }

    fn send_in(
        &mut self,
        subshell: Option<&str>,
        channel: Channel,
        msg_type: &str,
        parent: Bytes,
        content: &impl Serialize,
    ) -> String {
        self.requests += 1;
        let msg_id = format!("{}_{}", self.session, self.requests);
        // jupyter_client reads six decimals at most.
        let date = format!("{:.6}", jiff::Timestamp::now());
        let header = NewHeader {
            msg_id: &msg_id,
            session: &self.session,
            username: &self.username,
            date: &date,
            msg_type,
        };
        let message = Verified::to_subshell(subshell, &header, parent, content);
        self.link.send(channel, message.into_frames(&self.key));
        msg_id
    }

    /// Waits for the next message that is signed as it should be; may be dropped halfway.
    async fn receive(&mut self) -> Result<(Channel, Verified), ClientError> {
        loop {
            let draining = match &self.life {
                Life::Gone(why) => return Err(ClientError::KernelGone(why.clone())),
                Life::Draining { until, .. } => Some(*until),
                Life::Alive => None,
            };
            let death = async {
                match self.death.as_mut() {
                    Some(death) => death.await,
                    None => std::future::pending().await,
                }
            };
            let drained = reached(draining);
            tokio::select! {
                biased;
                arrived = self.link.receive() => match arrived {
                    Arrived::Message { channel, frames } => {
                        if let Some(message) = self.verify(frames) {
                            if channel == Channel::Iopub {
                                self.iopub = Iopub::Proven;
                                self.see(&message);
                            }
                            return Ok((channel, message));
                        }
                    }
                    Arrived::Lost { channel, why } => {
                        lost(channel, &why, &mut self.iopub, &mut self.life);
                    }
                },
                why = death => {
                    // A future that has ended must not be asked again.
                    self.death = None;
                    if matches!(self.life, Life::Alive) {
                        let until = Instant::now() + DRAIN;
                        self.life = Life::Draining { until, why };
                    }
                }
                () = drained => {
                    if let Life::Draining { why, .. } = &mut self.life {
                        self.life = Life::Gone(std::mem::take(why));
                    }
                }
            }
        }
    }

    fn verify(&mut self, frames: Vec<Bytes>) -> Option<Verified> {
        let verified = Unverified::parse(frames)
            .ok()
            .and_then(|message| self.key.verify(message).ok());
        self.refused += u64::from(verified.is_none());
        verified
    }
}

/// Waits for a moment; for ever where there is none.
async fn reached(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}

/// Notes that a connection has ended. One socket of a living kernel does not close alone, but
/// iopub's end behind a proxy can be: a client that reads too slowly is cut there.
fn lost(channel: Channel, why: &str, iopub: &mut Iopub, life: &mut Life) {
    if channel == Channel::Iopub {
        *iopub = Iopub::Lost;
    }
    *life = match std::mem::replace(life, Life::Alive) {
        Life::Alive if channel == Channel::Iopub => Life::Alive,
        Life::Alive if *iopub == Iopub::Lost => Life::Gone(format!("{channel}: {why}")),
        Life::Alive => Life::Draining {
            until: Instant::now() + DRAIN,
            why: format!("{channel}: {why}"),
        },
        // All that iopub had is read.
        Life::Draining { why, .. } if channel == Channel::Iopub => Life::Gone(why),
        other => other,
    };
}

fn answers(message: &Verified, msg_id: &str) -> bool {
    message.parent().is_ok_and(|parent| parent.msg_id == msg_id)
}
