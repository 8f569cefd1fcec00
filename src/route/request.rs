//! Requests that have no answer yet.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Instant;

use bytes::Bytes;

use super::ClientId;
use crate::wire::{Channel, Header};

/// What a reply's parent header names: the asker's session and message.
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

/// A request and what has come back for it.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) client: ClientId,
    pub(super) channel: Channel,
    pub(super) msg_type: String,
    /// Its header as it came: the parent header of every answer.
    pub(super) header: Bytes,
    pub(super) username: String,
    pub(super) session: String,
    /// Whether a kernel has it.
    pub(super) sent: bool,
    /// When it went there.
    pub(super) sent_at: Option<Instant>,
    /// Whether the journal has it.
    pub(super) journalled: bool,
    pub(super) busy: bool,
    pub(super) idle: bool,
    pub(super) replied: bool,
    /// iopub was lost while a kernel had it: its `idle` may have been told to nobody.
    pub(super) unheard: bool,
    /// The proxy's own question that went out when all but the `idle` of this was there. Where
    /// that one is idle, this one is.
    pub(super) proof: Option<Key>,
    /// How many messages the kernel's iopub had dropped when it was sent.
    pub(super) dropped_before: u64,
    pub(super) role: Role,
    pub(super) answer: Answer,
}

/// What a request is to the bridge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Role {
    /// A cell that somebody wants to see run: it takes its turn.
    Cell,
    /// A front end's question for its kernel's ipywidgets, whose stdout is remembered.
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
    /// It was answered here; what the kernel still says of it is not passed on.
    Given,
    /// As given, and its asker does not want it to run any more.
    Withdrawn,
}

impl Request {
    /// Returns the type of its reply; comm messages have none.
    pub(super) fn reply_type(&self) -> Option<String> {
        self.msg_type
            .strip_suffix("_request")
            .map(|name| format!("{name}_reply"))
    }

    /// Returns whether nothing more will come for it.
    pub(super) fn is_done(&self) -> bool {
        self.idle && (self.replied || self.reply_type().is_none())
    }

    /// Returns whether it lacks nothing but an `idle` that may have been told to nobody.
    pub(super) fn lacks_lost_idle(&self) -> bool {
        self.unheard && !self.idle && (self.replied || self.reply_type().is_none())
    }

    /// Returns whether its asker has what it waits for.
    ///
    /// On control the reply is enough: not every kernel tells its status there.
    pub(super) fn is_answered(&self) -> bool {
        self.is_done()
            || self.answer != Answer::FromKernel
            || (self.channel == Channel::Control && self.replied)
    }

    /// Returns whether it is a probe of ipywidgets without an answer.
    pub(super) fn asks_for_widgets(&self) -> bool {
        self.role == Role::WidgetProbe && !self.replied && self.answer == Answer::FromKernel
    }

    /// Returns whether its client cannot be let go.
    ///
    /// One that was taken back in the kernel's queue is stopped when it begins.
    pub(super) fn binds_its_client(&self) -> bool {
        !self.is_answered() || self.answer == Answer::Withdrawn
    }
}

/// All outstanding requests of all clients.
#[derive(Debug, Default)]
pub(super) struct Requests {
    by_key: HashMap<Key, Numbered>,
    /// How many came.
    count: u64,
    /// How many were answered here while the kernel has them still.
    answered_here: usize,
    /// How many are widget probes.
    widget_probes: usize,
    late: Late,
}

/// Requests that were answered here and whose client was let go before the kernel had answered.
///
/// It answers to the identity, which may be somebody's again by then.
#[derive(Debug, Default)]
struct Late {
    keys: HashSet<Key>,
    /// Oldest first, those that are no longer awaited among them.
    order: VecDeque<Key>,
}

/// A request and which of all it was: they fail in the order in which they came.
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

    pub(super) fn get_mut(&mut self, key: &Key) -> Option<&mut Request> {
        self.by_key.get_mut(key).map(|known| &mut known.request)
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

    /// Forgets a request whose client is let go, but for what the kernel may still say of it.
    pub(super) fn let_go(&mut self, key: &Key) {
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

    /// Returns whether what is said of this goes no further, since its client was let go.
    pub(super) fn is_late(&self, key: &Key) -> bool {
        self.late.keys.contains(key)
    }

    /// Takes the reply to what was let go; returns whether it is one.
    pub(super) fn came_late(&mut self, key: &Key) -> bool {
        self.late.keys.remove(key)
    }

    /// The kernel has ended: it says no more.
    pub(super) fn none_are_late(&mut self) {
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

    /// Returns whether an output may be the answer to a widget probe.
    pub(super) fn any_widget_probe(&self) -> bool {
        self.widget_probes > 0
    }

    pub(super) fn answer(&self, key: &Key) -> Option<Answer> {
        self.by_key.get(key).map(|known| known.request.answer)
    }

    /// Notes that the asker has its answer although the kernel has the request still.
    pub(super) fn set_answer(&mut self, key: &Key, answer: Answer) {
        if let Some(Numbered { request, .. }) = self.by_key.get_mut(key)
            && request.answer == Answer::FromKernel
        {
            request.answer = answer;
            self.answered_here += 1;
        }
    }

    /// Returns whether any message of the kernel's may be one that is not to be passed on.
    pub(super) fn any_answered_here(&self) -> bool {
        self.answered_here > 0
    }

    /// Returns whether what the kernel says of a request goes no further.
    pub(super) fn is_answered_here(&self, key: &Key) -> bool {
        self.answer(key)
            .is_some_and(|answer| answer != Answer::FromKernel)
    }

    /// Returns when a request came, as a running number.
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
