//! Requests without a complete answer.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::ClientId;
use crate::wire::{Channel, Header, Verified};

/// The key of a request: the session and the message id that a reply's parent header names.
///
/// It needs both, since two clients may number their messages alike.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Key {
    session: String,
    msg_id: String,
}

impl Key {
    /// Returns the key for a message's own header, or for the request that a parent header names.
    pub(super) fn of(header: &Header<'_>) -> Option<Self> {
        (!header.msg_id.is_empty()).then(|| Self {
            session: header.session.clone().into_owned(),
            msg_id: header.msg_id.clone().into_owned(),
        })
    }

    pub(super) fn msg_id(&self) -> &str {
        &self.msg_id
    }

    pub(super) fn session(&self) -> &str {
        &self.session
    }
}

/// A request and the answers so far. Only [`Requests`] changes it.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) client: ClientId,
    pub(super) channel: Channel,
    pub(super) msg_type: String,
    /// The request's header, byte for byte: the parent header of every answer.
    pub(super) header: Bytes,
    pub(super) username: String,
    pub(super) session: String,
    /// Whether it is for a subshell, where it runs beside the cell of the main shell.
    pub(super) is_on_subshell: bool,
    pub(super) role: Role,
    pub(super) answer: Answer,
    /// Whether it was sent to a kernel.
    pub(super) sent: bool,
    /// Whether the journal has its beginning but not its end.
    pub(super) journalled: bool,
    /// Whether its wait in the execution queue is in the journal.
    pub(super) queued: bool,
    pub(super) busy: bool,
    pub(super) idle: bool,
    /// When its reply arrived.
    pub(super) replied_at: Option<Instant>,
    /// How many messages the kernel's iopub had dropped when this request was sent.
    dropped_before: u64,
    /// Whether its `idle` may have been sent while iopub was not connected.
    idle_doubtful: bool,
    /// The proxy's own request that was sent when only the `idle` of this one was missing. When the proxy's
    /// request becomes idle, this one is idle, too.
    proof: Option<Key>,
}

/// How long an `idle` may arrive after its reply before the kernel is asked whether it is lost.
pub(super) const LATE_IDLE: Duration = Duration::from_secs(1);

/// How the bridge treats a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Role {
    /// A cell of a person or an agent: the execution queue orders it.
    Cell,
    /// VS Code's probe for the kernel's ipywidgets; the bridge stores the version in its stdout.
    WidgetProbe,
    /// Anything else.
    #[default]
    Other,
}

/// Who answers a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Answer {
    /// The kernel.
    #[default]
    FromKernel,
    /// The bridge has answered it; later messages of the kernel for it are dropped.
    FromBridge,
    /// The bridge has answered it, and the client's user does not want it to run any more.
    Withdrawn,
}

impl Request {
    /// Returns whether it waits while another client's cell runs.
    pub(super) fn waits_its_turn(&self) -> bool {
        self.role == Role::Cell && !self.is_on_subshell
    }

    /// Makes a request that has not been sent yet.
    pub(super) fn new(
        client: ClientId,
        channel: Channel,
        message: &Verified,
        header: &Header<'_>,
    ) -> Self {
        Self {
            client,
            channel,
            msg_type: header.msg_type.clone().into_owned(),
            header: message.header_bytes().clone(),
            username: header.username.clone().into_owned(),
            session: header.session.clone().into_owned(),
            is_on_subshell: header.subshell_id.is_some(),
            role: Role::default(),
            answer: Answer::default(),
            sent: false,
            journalled: false,
            queued: false,
            busy: false,
            idle: false,
            replied_at: None,
            dropped_before: 0,
            idle_doubtful: false,
            proof: None,
        }
    }

    /// Returns the type of its reply; `None` for comm messages, which have none.
    pub(super) fn reply_type(&self) -> Option<String> {
        self.msg_type
            .strip_suffix("_request")
            .map(|name| format!("{name}_reply"))
    }

    fn has_reply(&self) -> bool {
        self.replied_at.is_some() || self.reply_type().is_none()
    }

    /// Returns whether the kernel sends nothing more for it.
    pub(super) fn is_done(&self) -> bool {
        self.idle && self.has_reply()
    }

    /// Returns whether it lacks only an `idle` that may have been sent while iopub was not connected.
    pub(super) fn lacks_doubtful_idle(&self) -> bool {
        self.idle_doubtful && !self.idle && self.has_reply()
    }

    /// Returns whether it lacks only such an `idle`, and no request of the proxy can prove yet that it is
    /// lost.
    pub(super) fn lacks_proof(&self) -> bool {
        self.lacks_doubtful_idle() && self.proof.is_none()
    }

    /// Returns whether its reply has arrived and its `idle` has not. Some kernels send no status for control
    /// requests.
    pub(super) fn lacks_idle(&self) -> bool {
        let has_status = self.channel == Channel::Shell || self.busy;
        has_status && self.sent && self.replied_at.is_some() && !self.idle
    }

    /// Returns whether the kernel works on it, and the client still waits for the kernel's answer.
    pub(super) fn is_under_way(&self) -> bool {
        self.busy && !self.idle && self.answer == Answer::FromKernel
    }

    /// Returns whether it is a cell whose client waits for the kernel's reply.
    pub(super) fn is_open_cell(&self) -> bool {
        self.role == Role::Cell && self.replied_at.is_none() && self.answer == Answer::FromKernel
    }

    /// Returns whether its client has its answer.
    ///
    /// On control the reply is enough: some kernels send no status there.
    pub(super) fn is_answered(&self) -> bool {
        self.is_done()
            || self.answer != Answer::FromKernel
            || (self.channel == Channel::Control && self.replied_at.is_some())
    }

    /// Returns whether it is a probe for ipywidgets that has no answer.
    pub(super) fn asks_for_widgets(&self) -> bool {
        self.role == Role::WidgetProbe
            && self.replied_at.is_none()
            && self.answer == Answer::FromKernel
    }

    /// Returns whether its client must not be forgotten yet.
    ///
    /// The client of a withdrawn cell in the kernel's queue is still needed: the kernel is interrupted when
    /// it begins the cell.
    pub(super) fn needs_client(&self) -> bool {
        !self.is_answered() || self.answer == Answer::Withdrawn
    }
}

/// All outstanding requests of all clients.
#[derive(Debug, Default)]
pub(super) struct Requests {
    by_key: HashMap<Key, NumberedRequest>,
    /// How many requests there were so far.
    count: u64,
    /// How many requests the bridge has answered that the kernel still has.
    answered_by_bridge: usize,
    /// How many requests are widget probes.
    widget_probes: usize,
    late: LateRequests,
}

/// Requests that the bridge has answered and whose client was forgotten before the kernel had ended them.
///
/// The kernel addresses the reply to the client's identity, which another client may use by then.
#[derive(Debug, Default)]
struct LateRequests {
    keys: HashSet<Key>,
    /// Oldest first; at most [`OUTSTANDING_MAX`].
    order: VecDeque<Key>,
}

/// A request with its number. Requests fail in the order of their numbers.
#[derive(Debug)]
struct NumberedRequest {
    number: u64,
    request: Request,
}

/// How many requests one client may have without an answer before the oldest is forgotten.
///
/// A kernel that never answers some type of message must not make the table grow for ever.
pub(super) const OUTSTANDING_MAX: usize = 10_000;

impl Requests {
    pub(super) fn insert(&mut self, key: Key, request: Request) {
        self.count += 1;
        let number = self.count;
        self.by_key.insert(key, NumberedRequest { number, request });
    }

    pub(super) fn get(&self, key: &Key) -> Option<&Request> {
        self.by_key.get(key).map(|entry| &entry.request)
    }

    /// Returns a request whose beginning is in the journal, and whose end is not.
    pub(super) fn journalled(&self, key: &Key) -> Option<&Request> {
        self.get(key).filter(|request| request.journalled)
    }

    fn get_mut(&mut self, key: &Key) -> Option<&mut Request> {
        self.by_key.get_mut(key).map(|entry| &mut entry.request)
    }

    /// Records that a request is sent to the kernel, whose iopub has dropped `dropped_before` messages so
    /// far.
    pub(super) fn send(&mut self, key: &Key, dropped_before: u64) -> Option<&Request> {
        let request = self.get_mut(key)?;
        request.sent = true;
        request.dropped_before = dropped_before;
        Some(request)
    }

    /// Records that the kernel never received a request.
    pub(super) fn take_back(&mut self, key: &Key) {
        if let Some(request) = self.get_mut(key) {
            request.sent = false;
        }
    }

    /// Records that the beginning of a request is in the journal.
    pub(super) fn set_journalled(&mut self, key: &Key) {
        if let Some(request) = self.get_mut(key) {
            request.journalled = true;
        }
    }

    /// Records that the wait of a request in the execution queue is in the journal.
    pub(super) fn set_queued(&mut self, key: &Key) {
        if let Some(request) = self.get_mut(key) {
            request.queued = true;
        }
    }

    /// Takes a reply. Returns the request, and whether the journal still needs its end; `None` where the type
    /// of the reply does not fit.
    pub(super) fn reply(
        &mut self,
        key: &Key,
        msg_type: &str,
        now: Instant,
    ) -> Option<(&Request, bool)> {
        let request = self.get_mut(key)?;
        let name = request.msg_type.strip_suffix("_request")?;
        if msg_type.strip_suffix("_reply") != Some(name) {
            return None;
        }
        request.replied_at = Some(now);
        let is_journalled = std::mem::take(&mut request.journalled);
        Some((request, is_journalled))
    }

    /// Takes the kernel's status for a request.
    pub(super) fn set_status(&mut self, key: &Key, state: &str) {
        if let Some(request) = self.get_mut(key) {
            request.busy |= state == "busy";
            request.idle |= state == "idle";
            request.idle_doubtful &= state != "busy";
        }
    }

    /// Sets whether a client has got the `busy` of its request.
    pub(super) fn set_busy(&mut self, key: &Key, busy: bool) {
        if let Some(request) = self.get_mut(key) {
            request.busy = busy;
        }
    }

    /// Records that the `idle` of a request is lost. Returns how many messages the kernel has dropped since
    /// the request was sent; `dropped` is the total.
    pub(super) fn lose_idle(&mut self, key: &Key, dropped: u64) -> Option<(&Request, u64)> {
        let request = self.get_mut(key)?;
        request.idle = true;
        // Its reply has a number, too, and arrived on another socket.
        let dropped = dropped.saturating_sub(request.dropped_before);
        let dropped = dropped.saturating_sub(u64::from(request.replied_at.is_some()));
        Some((request, dropped))
    }

    /// Records the loss of iopub: the `idle` of a request that ends before it is back does not arrive.
    pub(super) fn iopub_lost(&mut self) {
        for NumberedRequest { request, .. } in self.by_key.values_mut() {
            if request.sent && !request.idle {
                request.idle_doubtful = true;
                request.proof = None;
            }
        }
    }

    /// Marks each `idle` that is overdue as doubtful. Returns whether there are any, and else how long the next
    /// one has left.
    ///
    /// `own_request` is the proxy's own outstanding request: an earlier one, whose own `idle` was lost, proves
    /// nothing any more.
    pub(super) fn doubt_idles(
        &mut self,
        now: Instant,
        own_request: Option<&Key>,
    ) -> (bool, Option<Duration>) {
        let (mut any, mut next) = (false, None);
        for NumberedRequest { request, .. } in self.by_key.values_mut() {
            if request.replied_at.is_none() && request.lacks_doubtful_idle() {
                // A comm message. The proxy's own request was sent to prove that its `idle` is lost.
                if request.proof.as_ref() != own_request {
                    any = true;
                    request.proof = None;
                }
                continue;
            }
            let replied_at = request.replied_at.filter(|_| request.lacks_idle());
            let left = replied_at.map(|at| (at + LATE_IDLE).saturating_duration_since(now));
            match left {
                Some(left) if !left.is_zero() => {
                    next = Some(next.map_or(left, |next: Duration| next.min(left)));
                }
                Some(_) => {
                    any = true;
                    request.idle_doubtful = true;
                    request.proof.take_if(|proof| Some(&*proof) != own_request);
                }
                None => {}
            }
        }
        (any, next)
    }

    /// Returns whether a message without a reply lacks an `idle` that is doubtful.
    pub(super) fn any_doubtful_without_reply(&self) -> bool {
        let mut requests = self.by_key.values().map(|entry| &entry.request);
        requests.any(|request| request.replied_at.is_none() && request.lacks_doubtful_idle())
    }

    /// Records that the proxy sends a request now: if its `idle` arrives, every `idle` that is doubtful now
    /// is lost.
    pub(super) fn await_proof(&mut self, own_request: &Key) {
        for NumberedRequest { request, .. } in self.by_key.values_mut() {
            if request.lacks_doubtful_idle() {
                request.proof = Some(own_request.clone());
            }
        }
    }

    /// Returns the requests whose `idle` is lost, now that the proxy's own request is idle.
    pub(super) fn proven_by(&self, own_request: &Key) -> Vec<Key> {
        self.keys(|request| {
            request.proof.as_ref() == Some(own_request) && request.lacks_doubtful_idle()
        })
    }

    /// Withdraws a request that the kernel has: its client gets an error now. Returns the request as it was
    /// before.
    pub(super) fn withdraw(&mut self, key: &Key) -> Option<Request> {
        let request = self.get_mut(key)?;
        let before = request.clone();
        // Its end is written to the journal now, and not again when the kernel has run it.
        request.journalled = false;
        self.set_answer(key, Answer::Withdrawn);
        Some(before)
    }

    pub(super) fn contains(&self, key: &Key) -> bool {
        self.by_key.contains_key(key)
    }

    pub(super) fn remove(&mut self, key: &Key) -> Option<Request> {
        let NumberedRequest { request, .. } = self.by_key.remove(key)?;
        self.answered_by_bridge -= usize::from(request.answer != Answer::FromKernel);
        self.widget_probes -= usize::from(request.role == Role::WidgetProbe);
        Some(request)
    }

    /// Forgets a request whose client is forgotten, but remembers to drop the messages that the kernel may still
    /// send for it.
    pub(super) fn forget(&mut self, key: &Key) {
        let is_late = self.remove(key).is_some_and(|request| {
            request.sent && !request.is_done() && request.answer != Answer::FromKernel
        });
        if is_late && self.late.keys.insert(key.clone()) {
            self.late.order.push_back(key.clone());
            if self.late.order.len() > OUTSTANDING_MAX
                && let Some(oldest) = self.late.order.pop_front()
            {
                self.late.keys.remove(&oldest);
            }
        }
    }

    /// Returns whether messages for this request are dropped because its client was forgotten.
    pub(super) fn is_late(&self, key: &Key) -> bool {
        self.late.keys.contains(key)
    }

    /// Records that the kernel has ended: no late messages will come.
    pub(super) fn end_late(&mut self) {
        self.late = LateRequests::default();
    }

    pub(super) fn role(&self, key: &Key) -> Option<Role> {
        self.by_key.get(key).map(|entry| entry.request.role)
    }

    pub(super) fn set_role(&mut self, key: &Key, role: Role) {
        if let Some(NumberedRequest { request, .. }) = self.by_key.get_mut(key) {
            self.widget_probes -= usize::from(request.role == Role::WidgetProbe);
            self.widget_probes += usize::from(role == Role::WidgetProbe);
            request.role = role;
        }
    }

    /// Returns whether any widget probe is outstanding.
    pub(super) fn any_widget_probe(&self) -> bool {
        self.widget_probes > 0
    }

    pub(super) fn answer(&self, key: &Key) -> Option<Answer> {
        self.by_key.get(key).map(|entry| entry.request.answer)
    }

    /// Records that the client has its answer although the kernel still has the request.
    pub(super) fn set_answer(&mut self, key: &Key, answer: Answer) {
        if let Some(NumberedRequest { request, .. }) = self.by_key.get_mut(key)
            && request.answer == Answer::FromKernel
        {
            request.answer = answer;
            self.answered_by_bridge += 1;
        }
    }

    /// Returns whether the kernel has any request that the bridge has answered itself, of known or forgotten clients.
    pub(super) fn any_answered_by_bridge(&self) -> bool {
        self.answered_by_bridge > 0 || !self.late.keys.is_empty()
    }

    /// Returns whether the bridge has answered this request, so that the kernel's messages for it are
    /// dropped.
    pub(super) fn is_answered_by_bridge(&self, key: &Key) -> bool {
        self.answer(key)
            .is_some_and(|answer| answer != Answer::FromKernel)
    }

    /// Returns the number of a request: earlier ones have lower numbers.
    pub(super) fn number(&self, key: &Key) -> Option<u64> {
        self.by_key.get(key).map(|entry| entry.number)
    }

    /// Returns the keys that a predicate chooses, oldest first.
    pub(super) fn keys(&self, chosen: impl Fn(&Request) -> bool) -> Vec<Key> {
        let chosen = |entry: &NumberedRequest| chosen(&entry.request).then_some(entry.number);
        let known = self.by_key.iter();
        let mut keys: Vec<_> = known
            .filter_map(|(key, entry)| Some((chosen(entry)?, key)))
            .collect();
        keys.sort_by_key(|(number, _)| *number);
        keys.into_iter().map(|(_, key)| key.clone()).collect()
    }
}
