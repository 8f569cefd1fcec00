//! The socket that sends to whom subscribed.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::io;
use std::rc::Rc;
use std::time::Instant;

use bytes::Bytes;

use super::disconnect::DisconnectReason;
use super::outbox::Item;
use super::server::Server;
use super::{Limits, Message, PeerId, ServerHandler, SpillTo};
use crate::wire::Endpoint;
use crate::zmtp::{Encoder, Role};

/// An XPUB: takes SUB and XSUB peers and sends each message to those that want it.
///
/// [`ServerHandler::message`] gets each subscription as one frame, `[1]` or `[0]` and the topic;
/// one that changes nothing for that subscriber is not told. Every connection has a
/// [`PeerId`] of its own, whatever identity it announces.
pub struct Publisher {
    server: Server,
    encoder: RefCell<Encoder>,
    /// How many messages were sent to all.
    sent: Cell<u64>,
}

impl Publisher {
    /// Binds, listens and serves. What goes beyond a subscriber's budget waits on disk, if it may.
    ///
    /// # Errors
    /// As [`Router::bind`](super::Router::bind).
    ///
    /// # Panics
    /// Outside a [`tokio::task::LocalSet`].
    pub fn bind(
        endpoint: &Endpoint,
        limits: Limits,
        spill: Option<SpillTo>,
        handler: Rc<dyn ServerHandler>,
    ) -> io::Result<Self> {
        let server = Server::bind(Role::Xpub, endpoint, limits, spill, handler)?;
        Ok(Self {
            server,
            encoder: RefCell::default(),
            sent: Cell::new(0),
        })
    }

    /// Returns where it listens, with the port that the system chose.
    pub fn local_endpoint(&self) -> &Endpoint {
        self.server.endpoint()
    }

    /// Queues a message for every subscriber with a topic that its first frame begins with.
    ///
    /// Never waits. A subscriber whose budget is used up, on disk too, is cut, and nobody else notices. Returns
    /// how many subscribers the message was queued for.
    pub fn send(&self, message: &Message) -> usize {
        let Some(first) = message.first() else {
            return 0;
        };
        self.sent.set(self.sent.get() + 1);
        let mut shared = None;
        let mut taken = 0;
        self.server.each(|slot| {
            if !slot.topics.borrow().want(first) {
                return;
            }
            let shared =
                shared.get_or_insert_with(|| match self.encoder.borrow_mut().encode(message) {
                    Some(bytes) => Shared::Encoded(bytes),
                    None => Shared::Message(Rc::new(message.clone())),
                });
            let item = match shared {
                Shared::Encoded(bytes) => Item::Encoded(bytes.clone()),
                Shared::Message(message) => Item::Shared(Rc::clone(message)),
            };
            match slot.link.push(item) {
                Ok(()) => {
                    taken += 1;
                    if slot.first.get().is_none() {
                        slot.first.set(Some(self.sent.get()));
                    }
                }
                Err(_) => {
                    let unread = slot.link.unread() + 1;
                    slot.link.cut(DisconnectReason::Full {
                        queued_bytes: slot.link.queued_bytes(),
                        unread,
                        since: (self.sent.get() + 1).saturating_sub(unread),
                    });
                }
            }
        });
        taken
    }

    /// Queues messages for one subscriber, whatever it has subscribed to; what does not fit is dropped.
    pub fn send_to(&self, peer: &PeerId, messages: impl IntoIterator<Item = Message>) {
        if let Some(slot) = self.server.slot(peer) {
            for message in messages {
                let _ = slot.link.push(Item::Own(message));
            }
        }
    }

    /// Returns how many messages were sent to all.
    pub fn sent(&self) -> u64 {
        self.sent.get()
    }

    /// Returns how far the subscribers are that are connected and were sent messages before this one, the
    /// first of all being 1: whether one of them has read it.
    pub fn reach(&self, number: u64) -> DeliveryProgress {
        let later = self.sent.get().saturating_sub(number);
        let mut reach = DeliveryProgress::Nobody;
        self.server.each(|slot| {
            if reach != DeliveryProgress::Read
                && slot.first.get().is_some_and(|first| first < number)
            {
                reach = match slot.has_read_all_but(later) {
                    true => DeliveryProgress::Read,
                    false => DeliveryProgress::Waits,
                };
            }
        });
        reach
    }

    /// Returns how many peers have at least completed their handshake.
    pub fn subscriber_count(&self) -> usize {
        let mut count = 0;
        self.server.each(|_| count += 1);
        count
    }

    /// Returns what each subscriber has not taken yet.
    pub fn backlogs(&self) -> Vec<SubscriberBacklog> {
        let mut backlogs = Vec::new();
        self.server.each_peer(|peer, slot| {
            let spilled_bytes = slot.link.spilled_bytes();
            let on_disk = usize::try_from(spilled_bytes).unwrap_or(usize::MAX);
            backlogs.push(SubscriberBacklog {
                peer: peer.clone(),
                queued_bytes: slot.link.queued_bytes().saturating_sub(on_disk),
                spilled_bytes,
            });
        });
        backlogs
    }

    /// Closes a subscriber's connection at once; what is queued for it is dropped.
    ///
    /// [`ServerHandler::left`] is called later, not from here.
    pub fn disconnect(&self, peer: &PeerId, reason: impl Into<std::borrow::Cow<'static, str>>) {
        if let Some(slot) = self.server.slot(peer) {
            slot.link.cut(DisconnectReason::Disconnected(reason.into()));
        }
    }

    /// Stops accepting, writes what is queued and closes; at the deadline at the latest.
    ///
    /// Returns for how many subscribers something was left unwritten. From the call on no handler
    /// is called. When this is dropped halfway, writing goes on until the publisher is dropped.
    pub async fn close(&self, deadline: Instant) -> usize {
        self.server.close(deadline).await
    }
}

/// How far a message of a [`Publisher`] has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeliveryProgress {
    /// A subscriber that is still connected has read it.
    Read,
    /// A subscriber that is still connected has not read it yet.
    Waits,
    /// Nobody is connected any more who could read it.
    Nobody,
}

/// What one subscriber has not taken yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubscriberBacklog {
    /// Who.
    pub peer: PeerId,
    /// What is queued in memory, with some for each frame and message.
    pub queued_bytes: usize,
    /// What waits on disk.
    pub spilled_bytes: u64,
}

/// A message in the form that every subscriber's outbox takes.
enum Shared {
    Encoded(Bytes),
    Message(Rc<Message>),
}

impl fmt::Debug for Publisher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Publisher({})", self.local_endpoint())
    }
}
