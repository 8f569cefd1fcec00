//! A client of a running kernel, over the `zeromq` crate.
//!
//! [`Client`] has the four sockets of one kernel, on a separate thread that always reads; it sends one
//! request at a time. [`execution_state`] follows an execute request and is pure. Every message is verified
//! with the connection's key; a wrong one is counted and dropped. No request is sent before the iopub
//! subscription is proven, so that none of its outputs can be missed.
//!
//! A kernel that dies closes its sockets, which the client notices at once; if the caller can notice the
//! process's end, [`Client::watch`] uses that, too. A client never dials again: the caller makes a new one.
//! The heartbeat is not used.

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

use crate::wire::{Channel, ConnectionInfo, Header, NewHeader, SigningKey, Unverified, Verified};
pub use content::{
    DisplayContent, IopubMessage, KernelException, OutputMessage, Prompt, StreamText,
};
pub use error::ClientError;
pub use execution::{EOF, ExecuteRequest};
pub use execution_state::{ExecutionEvent, RequestEnd, RequestOutcome};
pub use follower::{FollowedEvent, FollowedStep, RequestFollower};
use other_clients::OtherClients;
pub use other_clients::{ExecutionStep, OtherClientStep};
pub use request::Execute;
pub use sequence_numbers::SequenceNumbers;
use socket_thread::{Arrived, SocketThread};

/// A kernel's client: shell, control and stdin under one identity, and everything on iopub.
///
/// Dropping it closes the sockets; [`Client::close`] also waits until the queued messages are written.
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
    /// The silence after reply and idle that ends a request, for kernels that send outputs then.
    linger: Duration,
    /// How long iopub may be silent although the kernel answers.
    proof: Duration,
}

/// A callback for the cells of other clients.
type Observer = Box<dyn FnMut(OtherClientStep) + Send>;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Iopub {
    /// Connected; it is not known whether the kernel has the subscription.
    Unproven,
    Proven,
    /// The connection has ended; the socket thread dials again.
    Lost,
}

/// Whether the kernel lives.
enum Life {
    Alive,
    /// It has ended; messages that iopub still has are read until then.
    Draining {
        until: Instant,
        why: String,
    },
    Gone(String),
}

/// How long to read the outputs that are in the socket when a kernel dies.
const DRAIN: Duration = Duration::from_millis(500);

/// The parent header of messages that answer no other message.
const NO_PARENT: Bytes = Bytes::from_static(b"{}");

/// The pause between two attempts to connect to a starting kernel.
const DIAL_AGAIN: Duration = Duration::from_millis(5);

/// The first pause before the kernel is asked again for a message on iopub; it doubles.
const PROVE_AGAIN: Duration = Duration::from_millis(50);

/// How long a kernel that answers on shell or control may be silent on iopub. It publishes the status of each
/// request there, so a longer silence means a broken connection.
const PROOF: Duration = Duration::from_secs(10);

/// How long to wait for the status of an answered request on iopub before the kernel is asked again.
const BEHIND: Duration = Duration::from_millis(5);

impl Client {
    /// Connects to a running kernel, which sees `username` as the sender's name.
    ///
    /// # Errors
    /// [`ClientError::Unreachable`] names the socket on which no process listens, [`ClientError::Handshake`]
    /// the socket that is not a kernel's.
    pub async fn connect(info: &ConnectionInfo, username: &str) -> Result<Self, ClientError> {
        // All sockets have the same identity: the kernel addresses stdin by the shell's identity.
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
    /// Like [`Client::connect`], once `timeout` is over.
    pub async fn connect_when_up(
        info: &ConnectionInfo,
        username: &str,
        timeout: Duration,
    ) -> Result<Self, ClientError> {
        let deadline = Instant::now() + timeout;
        loop {
            // First without the socket thread, which takes time to start.
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

    /// Treats the kernel as ended when this future completes; its text says what happened.
    ///
    /// For a kernel whose process can be watched (by a pidfd): the connections of a dead process end by
    /// themselves, those through a proxy or a tunnel may not.
    pub fn watch(&mut self, death: impl Future<Output = String> + Send + 'static) {
        self.death = Some(Box::pin(death));
    }

    /// Sets the silence after reply and idle that ends an execution, for kernels that send outputs then.
    pub fn linger(&mut self, silence: Duration) {
        self.linger = silence;
    }

    /// Sets how long a kernel that answers may be silent on iopub before its connection counts as broken.
    pub fn prove_within(&mut self, proof: Duration) {
        self.proof = proof;
    }

    /// Reports cells that other clients run on the kernel to `observer`, whenever this client reads.
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

    /// Returns this client's session: its identity, and the `header.session` of its messages.
    pub fn session(&self) -> &str {
        &self.session
    }

    /// Returns how many messages were dropped because they were malformed or wrongly signed.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Returns how many messages were dropped because the inbox was full (above 512 MiB).
    pub fn dropped(&self) -> u64 {
        self.link.dropped()
    }

    /// Sends a kernel_info_request. An answer on shell also means that no cell is running.
    ///
    /// # Errors
    /// If there is no answer in time, or the kernel has ended.
    pub async fn kernel_info(
        &mut self,
        channel: Channel,
        timeout: Duration,
    ) -> Result<Verified, ClientError> {
        self.request(channel, "kernel_info_request", &json!({}), timeout)
            .await
    }

    /// Sends the kernel an interrupt_request and waits for its answer.
    ///
    /// Some kernels (IRkernel) ignore the message; those need the signal.
    ///
    /// # Errors
    /// If there is no answer in time, or the kernel has ended.
    pub async fn interrupt(&mut self, timeout: Duration) -> Result<Verified, ClientError> {
        self.request(Channel::Control, "interrupt_request", &json!({}), timeout)
            .await
    }

    /// Sends the kernel a shutdown_request. Its sockets may close before the answer is read: that is also a
    /// success, and returns `None`.
    ///
    /// # Errors
    /// If there is no answer in time.
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

    /// Sends a request and waits for its reply; other messages that arrive before it are dropped.
    ///
    /// # Errors
    /// If there is no answer in time, or the kernel has ended.
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

    /// Sends a request to a subshell of the kernel, or to its main shell, like [`Client::request`].
    ///
    /// # Errors
    /// If there is no answer in time, or the kernel has ended.
    pub async fn request_in(
        &mut self,
        subshell: Option<&str>,
        channel: Channel,
        msg_type: &str,
        content: &(impl Serialize + Sync),
        timeout: Duration,
    ) -> Result<Verified, ClientError> {
        let msg_id = self.send(subshell, channel, msg_type, NO_PARENT, content);
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
    /// Dropping the [`ExecuteRequest`] leaves the code running in the kernel. The future may be dropped:
    /// until it completes, only kernel_info_requests have been sent.
    ///
    /// # Errors
    /// If the kernel has ended.
    pub async fn start(&mut self, request: &Execute) -> Result<ExecuteRequest<'_>, ClientError> {
        self.start_in(None, request).await
    }

    /// Sends an execute request to a subshell of the kernel, or to its main shell, like [`Client::start`].
    ///
    /// # Errors
    /// If the kernel has ended.
    pub async fn start_in(
        &mut self,
        subshell: Option<&str>,
        request: &Execute,
    ) -> Result<ExecuteRequest<'_>, ClientError> {
        self.prove_iopub().await?;
        let Self {
            link, iopub, life, ..
        } = self;
        // Messages that arrived before the request do not belong to it.
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
        let channel = Channel::Shell;
        let msg_id = self.send(subshell, channel, "execute_request", NO_PARENT, request);
        Ok(ExecuteRequest::new(self, msg_id))
    }

    /// Executes code to its end. `on_event` gets each event; its result for an [`ExecutionEvent::Prompt`] is
    /// the answer, where `None` means end of file.
    ///
    /// # Errors
    /// If the kernel ended before the request was sent; after that it is [`RequestEnd::KernelGone`].
    pub async fn execute(
        &mut self,
        request: &Execute,
        mut on_event: impl FnMut(&ExecutionEvent) -> Option<String>,
    ) -> Result<RequestOutcome, ClientError> {
        let mut execution = self.start(request).await?;
        while let Some(event) = execution.next().await {
            let answer = on_event(&event);
            if let ExecutionEvent::Prompt(prompt) = &event {
                match answer {
                    Some(text) => execution.answer(prompt, &text),
                    None => execution.answer_eof(prompt),
                }
            }
        }
        Ok(execution.into_outcome())
    }

    /// Waits until a message has arrived on iopub: from then on no output is missed.
    ///
    /// A kernel that sends its subscribers an `iopub_welcome` proves the subscription at once. Other kernels
    /// get kernel_info_requests, whose status they publish: on control again and again, on shell only once,
    /// since some kernels answer only there and requests must not pile up behind a cell.
    ///
    /// # Errors
    /// If the kernel has ended, or answers and publishes nothing on iopub.
    pub async fn prove_iopub(&mut self) -> Result<(), ClientError> {
        let mut pause = PROVE_AGAIN;
        let mut asked_shell = false;
        // A kernel that runs a cell may answer only at the cell's end, which may be far away.
        let mut answered: Option<Instant> = None;
        while self.iopub != Iopub::Proven {
            self.ask_name(Channel::Control);
            if !std::mem::replace(&mut asked_shell, true) {
                self.ask_name(Channel::Shell);
            }
            let proven = async {
                while self.iopub != Iopub::Proven {
                    let (channel, _) = self.receive().await?;
                    if channel != Channel::Iopub {
                        answered.get_or_insert_with(Instant::now);
                    }
                }
                Ok(())
            };
            match tokio::time::timeout(pause, proven).await {
                Ok(proven) => proven?,
                Err(_) => pause = (pause * 2).min(Duration::from_secs(1)),
            }
            if self.iopub != Iopub::Proven && answered.is_some_and(|at| at.elapsed() >= self.proof)
            {
                return Err(ClientError::NoIopub { after: self.proof });
            }
        }
        Ok(())
    }

    /// Waits until the kernel runs no cell of any client, and no later output can be missed. The kernel has
    /// then answered on shell, and most kernels publish the status of that request on iopub. The future may
    /// be dropped.
    ///
    /// # Errors
    /// If the kernel has ended.
    pub async fn idle(&mut self) -> Result<(), ClientError> {
        let msg_id = self.ask_name(Channel::Shell);
        loop {
            let (from, message) = self.receive().await?;
            if from == Channel::Shell && answers(&message, &msg_id) {
                break;
            }
        }
        // The status of this request on iopub may arrive a moment later.
        let proven = async {
            while self.iopub != Iopub::Proven {
                self.receive().await?;
            }
            Ok(())
        };
        match tokio::time::timeout(BEHIND, proven).await {
            Ok(proven) => proven,
            Err(_) => self.prove_iopub().await,
        }
    }

    /// Waits for the next message on iopub, about any request; the future may be dropped.
    ///
    /// # Errors
    /// If the kernel has ended.
    pub async fn next_on_iopub(&mut self) -> Result<Verified, ClientError> {
        loop {
            if let (Channel::Iopub, message) = self.receive().await? {
                return Ok(message);
            }
        }
    }

    /// Sends a message to the kernel's side of a comm; it has no reply.
    pub fn tell_comm(&mut self, content: &impl Serialize) {
        self.ask(Channel::Shell, "comm_msg", content);
    }

    /// Closes the sockets once the queued messages are written, after one second at the latest.
    pub async fn close(self) {
        self.link.close().await;
    }

    /// Sends a `kernel_info_request` without waiting for the reply: its status goes to every client on iopub.
    fn ask_name(&mut self, channel: Channel) -> String {
        self.ask(channel, "kernel_info_request", &json!({}))
    }

    /// Sends the kernel an interrupt_request, without waiting for its answer.
    fn ask_interrupt(&mut self) {
        self.ask(Channel::Control, "interrupt_request", &json!({}));
    }

    /// Answers a prompt, whose header is `parent`.
    fn answer(&mut self, parent: Bytes, text: &str) {
        let content = json!({ "value": text, "status": "ok" });
        self.send(None, Channel::Stdin, "input_reply", parent, &content);
    }

    /// Sends one message without a parent and returns its id.
    fn ask(&mut self, channel: Channel, msg_type: &str, content: &impl Serialize) -> String {
        self.send(None, channel, msg_type, NO_PARENT, content)
    }

    /// Sends one message, to a subshell or to the main shell, and returns its id.
    fn send(
        &mut self,
        subshell: Option<&str>,
        channel: Channel,
        msg_type: &str,
        parent: Bytes,
        content: &impl Serialize,
    ) -> String {
        self.requests += 1;
        let msg_id = format!("{}_{}", self.session, self.requests);
        // jupyter_client parses at most six decimals.
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

    /// Waits for the next correctly signed message; the future may be dropped.
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
                    // A completed future must not be polled again.
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

/// Waits until `due`; for ever if it is `None`.
async fn reached(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}

/// Records that a connection has ended. A live kernel does not close one socket alone, but behind a proxy
/// only iopub may end: the proxy cuts a client that reads too slowly.
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
        // All messages of iopub have been read.
        Life::Draining { why, .. } if channel == Channel::Iopub => Life::Gone(why),
        other => other,
    };
}

fn is_idle(header: &Header<'_>, message: &Verified) -> bool {
    header.msg_type == "status" && message.execution_state().as_deref() == Some("idle")
}

fn answers(message: &Verified, msg_id: &str) -> bool {
    message.parent().is_ok_and(|parent| parent.msg_id == msg_id)
}
