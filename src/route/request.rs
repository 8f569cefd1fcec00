//! Requests that have no answer yet.

use std::collections::{HashMap, HashSet, VecDeque};

use bytes::Bytes;

use super::ClientId;
use crate::wire::{Channel, Header, Verified};

/// What a reply's parent header names: the session and the id of a request.
///
/// Both, since two clients may count their messages alike.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Key {
    session: String,
    msg_id: String,
}

impl Key {
    /// Returns the key of a message, or of the message that a parent header names.
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

/// A request and what has come back for it. Only [`Requests`] changes it.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) client: ClientId,
    pub(super) channel: Channel,
    pub(super) msg_type: String,
    /// Its header as it came: the parent header of every answer.
    pub(super) header: Bytes,
    pub(super) username: String,
    pub(super) session: String,
    pub(super) role: Role,
    pub(super) answer: Answer,
    /// Whether a kernel has it.
    pub(super) sent: bool,
    /// Whether the journal has its beginning, and not its end.
    pub(super) journalled: bool,
    pub(super) busy: bool,
    pub(super) idle: bool,
    pub(super) replied: bool,
    /// How many messages the kernel's iopub had dropped when it was sent.
    dropped_before: u64,
    /// Whether its `idle` may have been sent while nobody received it.
    idle_doubtful: bool,
    /// The proxy's own request that was sent when only the `idle` of this one was missing. Where that one is idle,
    /// this one is.
    proof: Option<Key>,
}

/// What a request is to the bridge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Role {
    /// A cell that somebody wants to see run: it goes through the execution queue.
    Cell,
    /// VS Code's probe for the kernel's ipywidgets, whose stdout is remembered.
    WidgetProbe,
    /// Anything else.
    #[default]
    Plain,
}

/// Who answers a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Answer {
    /// The kernel.
    #[default]
    FromKernel,
    /// The bridge has answered it; what the kernel still sends for it is not passed on.
    Given,
    /// The same, and its client does not want it to run any more.
    Withdrawn,
}

impl Request {
    /// Makes a request that was not sent yet.
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
            role: Role::default(),
            answer: Answer::default(),
            sent: false,
            journalled: false,
            busy: false,
            idle: false,
            replied: false,
            dropped_before: 0,
            idle_doubtful: false,
            proof: None,
        }
    }

    /// Returns the type of its reply; comm messages have none.
    pub(super) fn reply_type(&self) -> Option<String> {
        self.msg_type
            .strip_suffix("_request")
            .map(|name| format!("{name}_reply"))
    }

    fn has_reply(&self) -> bool {
        self.replied || self.reply_type().is_none()
    }

    /// Returns whether nothing more will come for it.
    pub(super) fn is_done(&self) -> bool {
        self.idle && self.has_reply()
    }

    /// Returns whether only an `idle` is missing that may have been sent while nobody received it.
    pub(super) fn lacks_doubtful_idle(&self) -> bool {
        self.idle_doubtful && !self.idle && self.has_reply()
    }

    /// Returns whether only such an `idle` is missing, and no request of the proxy's own can prove it lost.
    pub(super) fn lacks_proof(&self) -> bool {
        self.lacks_doubtful_idle() && self.proof.is_none()
    }

    /// Returns whether its reply is here and its `idle` is not. Not every kernel sends its status for control.
    pub(super) fn lacks_idle(&self) -> bool {
        let has_status = self.channel == Channel::Shell || self.busy;
        has_status && self.sent && self.replied && !self.idle
    }

    /// Returns whether the kernel works on it and its client is to hear of that.
    pub(super) fn is_under_way(&self) -> bool {
        self.busy && !self.idle && self.answer == Answer::FromKernel
    }

    /// Returns whether its client has what it waits for.
    ///
    /// On control the reply is enough: not every kernel sends its status there.
    pub(super) fn is_answered(&self) -> bool {
        self.is_done()
            || self.answer != Answer::FromKernel
            || (self.channel == Channel::Control && self.replied)
    }

    /// Returns whether it is a probe for ipywidgets without an answer.
    pub(super) fn asks_for_widgets(&self) -> bool {
        self.role == Role::WidgetProbe && !self.replied && self.answer == Answer::FromKernel
    }

    /// Returns whether its client cannot be forgotten.
    ///
    /// A cell that was withdrawn while it was in the kernel's queue is interrupted when it begins.
    pub(super) fn binds_its_client(&self) -> bool {
        !self.is_answered() || self.answer == Answer::Withdrawn
    }
}

/// What a reply of the kernel ends.
pub(super) struct Replied<'a> {
    pub(super) request: &'a Request,
    /// Whether the journal is to get the end.
    pub(super) journalled: bool,
}

/// All outstanding requests of all clients.
#[derive(Debug, Default)]
pub(super) struct Requests {
    by_key: HashMap<Key, Numbered>,
    /// How many there were so far.
    count: u64,
    /// How many the bridge has answered while the kernel has them still.
    answered_here: usize,
    /// How many are widget probes.
    widget_probes: usize,
    late: Late,
}

/// Requests that the bridge has answered and whose client was forgotten before the kernel's reply.
///
/// That reply goes to the client's identity, which may be in use again by then.
#[derive(Debug, Default)]
struct Late {
    keys: HashSet<Key>,
    /// Oldest first, those that are no longer awaited among them.
    order: VecDeque<Key>,
}

/// A request with its number: requests fail in the order in which they came.
#[derive(Debug)]
struct Numbered {
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
        self.by_key.insert(key, Numbered { number, request });
    }

    pub(super) fn get(&self, key: &Key) -> Option<&Request> {
        self.by_key.get(key).map(|known| &known.request)
    }

    fn get_mut(&mut self, key: &Key) -> Option<&mut Request> {
        self.by_key.get_mut(key).map(|known| &mut known.request)
    }

    /// Takes that a request goes to the kernel now, whose iopub has dropped so many messages before.
    pub(super) fn send(&mut self, key: &Key, dropped_before: u64) -> Option<&Request> {
        let request = self.get_mut(key)?;
        request.sent = true;
        request.dropped_before = dropped_before;
        Some(request)
    }

    /// Takes that the kernel never got a request.
    pub(super) fn take_back(&mut self, key: &Key) {
        if let Some(request) = self.get_mut(key) {
            request.sent = false;
        }
    }

    /// Takes that the journal has the beginning of a request.
    pub(super) fn set_journalled(&mut self, key: &Key) {
        if let Some(request) = self.get_mut(key) {
            request.journalled = true;
        }
    }

    /// Takes a reply; `None` where it is not that of the request.
    pub(super) fn reply(&mut self, key: &Key, msg_type: &str) -> Option<Replied<'_>> {
        let request = self.get_mut(key)?;
        let name = request.msg_type.strip_suffix("_request")?;
        if msg_type.strip_suffix("_reply") != Some(name) {
            return None;
        }
        request.replied = true;
        Some(Replied {
            journalled: std::mem::take(&mut request.journalled),
            request,
        })
    }

    /// Takes the kernel's status for a request.
    pub(super) fn set_status(&mut self, key: &Key, state: &str) {
        if let Some(request) = self.get_mut(key) {
            request.busy |= state == "busy";
            request.idle |= state == "idle";
            request.idle_doubtful &= state != "busy";
        }
    }

    /// Takes whether a client has got the `busy` of its request.
    pub(super) fn set_busy(&mut self, key: &Key, busy: bool) {
        if let Some(request) = self.get_mut(key) {
            request.busy = busy;
        }
    }

    /// Takes that the `idle` of a request is lost; returns how many messages the kernel has dropped since the
    /// request was sent, of so many in all.
    pub(super) fn lose_idle(&mut self, key: &Key, dropped: u64) -> Option<(&Request, u64)> {
        let request = self.get_mut(key)?;
        request.idle = true;
        // Its reply is numbered, too.
        let dropped = dropped.saturating_sub(request.dropped_before);
        let dropped = dropped.saturating_sub(u64::from(request.replied));
        Some((request, dropped))
    }

    /// Takes that iopub was lost: what ends meanwhile is not heard.
    pub(super) fn iopub_lost(&mut self) {
        for Numbered { request, .. } in self.by_key.values_mut() {
            if request.sent && !request.idle {
                request.idle_doubtful = true;
                request.proof = None;
            }
        }
    }

    /// Doubts every `idle` that is missing behind its reply; returns whether there is one. `asked` is the
    /// proxy's own request that is under way: an earlier one, whose own `idle` was lost, proves nothing any more.
    pub(super) fn doubt_idles(&mut self, asked: Option<&Key>) -> bool {
        let mut any = false;
        for Numbered { request, .. } in self.by_key.values_mut() {
            if request.lacks_idle() {
                any = true;
                request.idle_doubtful = true;
                request.proof.take_if(|proof| Some(&*proof) != asked);
            }
        }
        any
    }

    /// Takes that the proxy asks the kernel now: every doubtful `idle` is lost, where this one's comes first.
    pub(super) fn await_proof(&mut self, asked: &Key) {
        for Numbered { request, .. } in self.by_key.values_mut() {
            if request.lacks_doubtful_idle() {
                request.proof = Some(asked.clone());
            }
        }
    }

    /// Returns the requests whose missing `idle` is lost, since the proxy's own request is idle.
    pub(super) fn proven_by(&self, asked: &Key) -> Vec<Key> {
        self.keys(|request| request.proof.as_ref() == Some(asked) && request.lacks_doubtful_idle())
    }

    /// Takes that a request that the kernel has is not wanted any more: its client reads an error now. Returns
    /// it as it was.
    pub(super) fn withdraw(&mut self, key: &Key) -> Option<Request> {
        let request = self.get_mut(key)?;
        let before = request.clone();
        // The journal gets its end now, and not once more when the kernel has had it.
        request.journalled = false;
        self.set_answer(key, Answer::Withdrawn);
        Some(before)
    }

    pub(super) fn contains(&self, key: &Key) -> bool {
        self.by_key.contains_key(key)
    }

    pub(super) fn remove(&mut self, key: &Key) -> Option<Request> {
        let Numbered { request, .. } = self.by_key.remove(key)?;
        self.answered_here -= usize::from(request.answer != Answer::FromKernel);
        self.widget_probes -= usize::from(request.role == Role::WidgetProbe);
        Some(request)
    }

    /// Forgets a request whose client is forgotten, but for what the kernel may still send for it.
    pub(super) fn forget(&mut self, key: &Key) {
        let awaited = self.remove(key).is_some_and(|request| {
            request.sent && !request.replied && request.answer != Answer::FromKernel
        });
        if awaited && self.late.keys.insert(key.clone()) {
            self.late.order.push_back(key.clone());
            if self.late.order.len() > OUTSTANDING_MAX
                && let Some(oldest) = self.late.order.pop_front()
            {
                self.late.keys.remove(&oldest);
            }
        }
    }

    /// Returns whether messages for this request are dropped, since its client was forgotten.
    pub(super) fn is_late(&self, key: &Key) -> bool {
        self.late.keys.contains(key)
    }

    /// Takes a reply; returns whether the client of its request was forgotten.
    pub(super) fn take_late_reply(&mut self, key: &Key) -> bool {
        self.late.keys.remove(key)
    }

    /// Takes the end of the kernel: no late replies come.
    pub(super) fn end_late_replies(&mut self) {
        self.late = Late::default();
    }

    pub(super) fn role(&self, key: &Key) -> Option<Role> {
        self.by_key.get(key).map(|known| known.request.role)
    }

    pub(super) fn set_role(&mut self, key: &Key, role: Role) {
        if let Some(Numbered { request, .. }) = self.by_key.get_mut(key) {
            self.widget_probes -= usize::from(request.role == Role::WidgetProbe);
            self.widget_probes += usize::from(role == Role::WidgetProbe);
            request.role = role;
        }
    }

    /// Returns whether any widget probe has no answer.
    pub(super) fn any_widget_probe(&self) -> bool {
        self.widget_probes > 0
    }

    pub(super) fn answer(&self, key: &Key) -> Option<Answer> {
        self.by_key.get(key).map(|known| known.request.answer)
    }

    /// Takes that the client has its answer although the kernel has the request still.
    pub(super) fn set_answer(&mut self, key: &Key, answer: Answer) {
        if let Some(Numbered { request, .. }) = self.by_key.get_mut(key)
            && request.answer == Answer::FromKernel
        {
            request.answer = answer;
            self.answered_here += 1;
        }
    }

    /// Returns whether the kernel has any request that the bridge has answered.
    pub(super) fn any_answered_here(&self) -> bool {
        self.answered_here > 0
    }

    /// Returns whether the bridge has answered a request, so that the kernel's messages for it are dropped.
    pub(super) fn is_answered_here(&self, key: &Key) -> bool {
        self.answer(key)
            .is_some_and(|answer| answer != Answer::FromKernel)
    }

    /// Returns the number of a request: earlier ones have lower numbers.
    pub(super) fn number(&self, key: &Key) -> Option<u64> {
        self.by_key.get(key).map(|known| known.number)
    }

    /// Returns the keys that a predicate chooses, oldest first.
    pub(super) fn keys(&self, chosen: impl Fn(&Request) -> bool) -> Vec<Key> {
        let chosen = |known: &Numbered| chosen(&known.request).then_some(known.number);
        let known = self.by_key.iter();
        let mut keys: Vec<_> = known
            .filter_map(|(key, known)| Some((chosen(known)?, key)))
            .collect();
        keys.sort_by_key(|(number, _)| *number);
        keys.into_iter().map(|(_, key)| key.clone()).collect()
    }
}
