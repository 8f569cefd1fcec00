//! The socket that sends messages to its subscribers.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::io;
use std::rc::Rc;
use std::time::Instant;

use bytes::Bytes;

use super::disconnect::DisconnectReason;
use super::outbox::Item;
use super::server::{PeerSlot, Server};
use super::{Message, PeerId, ServerHandler, SocketLimits, SpillTo};
use crate::wire::Endpoint;
use crate::zmtp::{Encoder, Role};

/// An XPUB: accepts SUB and XSUB peers and sends each message to those that have subscribed to its topic.
///
/// [`ServerHandler::message`] gets each subscription as one frame, `[1]` or `[0]` and the topic, except a
/// subscription that changes nothing for the subscriber. Every connection has its own [`PeerId`], whatever
/// identity it announces.
pub struct Publisher {
    server: Server,
    encoder: RefCell<Encoder>,
    /// How many messages were sent to all subscribers.
    sent: Cell<u64>,
    /// How many bytes one subscriber may leave unread in memory.
    outbox_bytes: usize,
    /// How many bytes all subscribers together may leave unread on disk.
    spill_bytes: u64,
}

/// All subscribers together may leave as much unread as so many of them may in memory, and as so many may on disk:
/// no subscriber proves that it knows the key.
const UNREAD_IN_MEMORY: usize = 32;
const UNREAD_ON_DISK: u64 = 4;

impl Publisher {
    /// Binds, listens and serves. Messages beyond a subscriber's budget wait on disk, if that is allowed.
    ///
    /// # Errors
    /// Like [`Router::bind`](super::Router::bind).
    ///
    /// # Panics
    /// Outside a [`tokio::task::LocalSet`].
    pub fn bind(
        endpoint: &Endpoint,
        limits: SocketLimits,
        spill: Option<SpillTo>,
        handler: Rc<dyn ServerHandler>,
    ) -> io::Result<Self> {
        let spill_bytes = spill.as_ref().map_or(0, |to| to.bytes);
        let server = Server::bind(Role::Xpub, endpoint, limits, spill, handler)?;
        Ok(Self {
            server,
            encoder: RefCell::default(),
            sent: Cell::new(0),
            outbox_bytes: limits.outbox_bytes,
            spill_bytes: spill_bytes.saturating_mul(UNREAD_ON_DISK),
        })
    }

    /// Returns the address on which it listens, with the port that the system chose.
    pub fn local_endpoint(&self) -> &Endpoint {
        self.server.endpoint()
    }

    /// Queues a message for every subscriber with a topic that is a prefix of the first frame.
    ///
    /// Never waits. A subscriber whose budget is used up, also on disk, is cut without an effect on other
    /// subscribers; so is the one with the most unread bytes if all together have left too much unread. Returns for
    /// how many subscribers the message was queued.
    pub fn send(&self, message: &Message) -> usize {
        let Some(first) = message.first() else {
            return 0;
        };
        self.sent.set(self.sent.get() + 1);
        let mut shared = None;
        let mut count = 0;
        let mut is_behind = false;
        self.server.each(|slot| {
            is_behind |= slot.link.outbox().cost() > self.outbox_bytes / UNREAD_IN_MEMORY;
            if !slot.topics.borrow().matches(first) {
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
                    count += 1;
                    if slot.first_message.get().is_none() {
                        slot.first_message.set(Some(self.sent.get()));
                    }
                }
                Err(_) => self.cut(slot, 1),
            }
        });
        if is_behind {
            self.limit_unread();
        }
        count
    }

    /// Queues messages for one subscriber, whatever its topics are; messages that do not fit are dropped.
    pub fn send_to(&self, peer: &PeerId, messages: impl IntoIterator<Item = Message>) {
        if let Some(slot) = self.server.slot(peer) {
            for message in messages {
                let _ = slot.link.push(Item::Own(message));
            }
            self.limit_unread();
        }
    }

    /// Cuts a subscriber that has not read its messages, and for which `more` were not queued.
    fn cut(&self, slot: &PeerSlot, more: u64) {
        let unread = slot.link.outbox().unread() + more;
        slot.link.cut(DisconnectReason::Full {
            queued_bytes: slot.link.outbox().cost(),
            unread,
            first_unread: (self.sent.get() + 1).saturating_sub(unread),
        });
    }

    /// Cuts the subscriber with the most unread bytes if those of all are too many.
    fn limit_unread(&self) {
        let (mut in_memory, mut on_disk) = (0_usize, 0_u64);
        let mut most = (0, None);
        self.server.each_peer(|peer, slot| {
            let (bytes, spilled) = (slot.link.outbox().cost(), slot.link.outbox().spilled());
            // Beyond the budget there is at most one message, which all subscribers share.
            in_memory += self.outbox_bytes.min(bytes);
            on_disk += spilled;
            if bytes > most.0 {
                most = (bytes, Some(peer.clone()));
            }
        });
        let memory_max = self.outbox_bytes.saturating_mul(UNREAD_IN_MEMORY);
        if in_memory <= memory_max && on_disk <= self.spill_bytes {
            return;
        }
        if let Some(slot) = most.1.and_then(|peer| self.server.slot(&peer)) {
            self.cut(&slot, 0);
        }
    }

    /// Returns how many messages were sent to all subscribers.
    pub fn sent(&self) -> u64 {
        self.sent.get()
    }

    /// Returns how far message `number` has been delivered (the first message has number 1), among the
    /// subscribers that are still connected and were sent messages before it.
    pub fn delivery_progress(&self, number: u64) -> DeliveryProgress {
        let later = self.sent.get().saturating_sub(number);
        let mut progress = DeliveryProgress::NoReader;
        self.server.each(|slot| {
            if progress != DeliveryProgress::Read
                && slot.first_message.get().is_some_and(|first| first < number)
            {
                progress = match slot.has_read_all_but(later) {
                    true => DeliveryProgress::Read,
                    false => DeliveryProgress::Waits,
                };
            }
        });
        progress
    }

    /// Returns how many peers have completed their handshake.
    pub fn subscriber_count(&self) -> usize {
        let mut count = 0;
        self.server.each(|_| count += 1);
        count
    }

    /// Returns the size of the messages that each subscriber has not read yet.
    pub fn backlogs(&self) -> Vec<SubscriberBacklog> {
        let mut backlogs = Vec::new();
        self.server.each_peer(|peer, slot| {
            let spilled_bytes = slot.link.outbox().spilled();
            let on_disk = usize::try_from(spilled_bytes).unwrap_or(usize::MAX);
            backlogs.push(SubscriberBacklog {
                peer: peer.clone(),
                queued_bytes: slot.link.outbox().cost().saturating_sub(on_disk),
                spilled_bytes,
            });
        });
        backlogs
    }

    /// Stops accepting, writes the queued messages and closes, at the deadline at the latest.
    ///
    /// Returns for how many subscribers some messages were left unwritten. No handler is called after this
    /// call. If the future is dropped, writing goes on until the publisher is dropped.
    pub async fn close(&self, deadline: Instant) -> usize {
        self.server.close(deadline).await
    }
}

/// How far a message of a [`Publisher`] has been delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeliveryProgress {
    /// A subscriber that is still connected has read it.
    Read,
    /// A subscriber that is still connected has not read it yet.
    Waits,
    /// No subscriber that could read it is connected any more.
    NoReader,
}

/// The size of the messages that one subscriber has not read yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubscriberBacklog {
    /// The subscriber.
    pub peer: PeerId,
    /// The bytes queued in memory, including some overhead for each frame and message.
    pub queued_bytes: usize,
    /// The bytes that wait on disk.
    pub spilled_bytes: u64,
}

/// A message in the form in which all subscribers' outboxes share it.
enum Shared {
    Encoded(Bytes),
    Message(Rc<Message>),
}

impl fmt::Debug for Publisher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Publisher({})", self.local_endpoint())
    }
}
