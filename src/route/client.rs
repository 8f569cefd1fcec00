//! One client: an identity on the front end's sockets, and its own sockets to the kernel.

use std::collections::VecDeque;
use std::fmt;

use bytes::Bytes;

use super::request::Key;
use crate::wire::{Channel, Verified};

/// A client's routing identity, as the ROUTER sockets know it.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClientId(Bytes);

impl ClientId {
    /// Takes the identity that a connection announced, or the one made up for it.
    pub fn new(identity: Bytes) -> Self {
        Self(identity)
    }

    /// Returns the identity's bytes.
    pub fn bytes(&self) -> &Bytes {
        &self.0
    }

    /// Returns whether the identity was made up: such a client cannot come back.
    ///
    /// ZMTP reserves identities that begin with a zero byte for that.
    pub fn is_anonymous(&self) -> bool {
        self.0.first() == Some(&0)
    }
}

impl fmt::Display for ClientId {
    /// Shows at most twelve characters that are safe in a log line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.".contains(byte);
        if !self.0.is_empty() && self.0.iter().all(plain) {
            let shown = self.0.get(..12).unwrap_or(&self.0);
            f.write_str(&String::from_utf8_lossy(shown))
        } else {
            let shown = self.0.get(..6).unwrap_or(&self.0);
            write!(f, "0x")?;
            shown.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
        }
    }
}

impl fmt::Debug for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClientId({self})")
    }
}

/// The three channels that belong to one client.
pub(super) const OWN_CHANNELS: [Channel; 3] = [Channel::Shell, Channel::Control, Channel::Stdin];

/// What the bridge knows of one client.
#[derive(Debug, Default)]
pub(super) struct Client {
    channels: [State; 3],
    /// What it has sent and no kernel has got yet, in order: per channel.
    pub(super) held_bytes: usize,
    /// Whether its connections are not being read.
    pub(super) paused: bool,
    /// What the kernel asks of it and it has not answered.
    pub(super) prompt: Option<Prompt>,
    /// How many of its requests have no answer yet.
    pub(super) outstanding: usize,
    /// An interrupt that is held for a moment, and what came on control after it.
    pub(super) behind_interrupt: VecDeque<Verified>,
}

/// The messages of one client that wait for the kernel, or for their turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeldMessages {
    /// How many.
    pub messages: u64,
    /// The bytes of all their frames.
    pub bytes: u64,
}

/// The kernel's `input_request`.
#[derive(Debug)]
pub(super) struct Prompt {
    pub(super) header: Bytes,
    /// Whose cell asks. The reply of the cell before it may come later: it has another socket.
    pub(super) cell: Option<Key>,
}

/// One of a client's three channels.
#[derive(Debug, Default)]
pub(super) struct State {
    /// Whether the client is connected here.
    pub(super) joined: bool,
    /// The socket to the kernel.
    pub(super) link: Link,
    /// For the kernel, once it is there.
    pub(super) held: VecDeque<Held>,
    /// For the client, once it is back.
    pub(super) undelivered: VecDeque<Verified>,
    pub(super) undelivered_bytes: usize,
}

/// A message that waits for the kernel.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) key: Option<Key>,
    pub(super) message: Verified,
}

/// A socket to the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Link {
    #[default]
    Closed,
    Opening,
    Up,
    /// The kernel does not listen there: it asks nothing.
    Absent,
}

impl Client {
    /// Returns one of the three channels; `None` for iopub and the heartbeat.
    pub(super) fn on(&mut self, channel: Channel) -> Option<&mut State> {
        let index = OWN_CHANNELS.iter().position(|own| *own == channel)?;
        self.channels.get_mut(index)
    }

    pub(super) fn link(&self, channel: Channel) -> Link {
        let index = OWN_CHANNELS.iter().position(|own| *own == channel);
        index
            .and_then(|index| self.channels.get(index))
            .map_or(Link::Closed, |state| state.link)
    }

    /// Returns whether a request may go to the kernel on this channel.
    ///
    /// The kernel addresses stdin by the shell's identity, so that socket must be up before a
    /// cell can ask something.
    pub(super) fn is_linked(&self, channel: Channel) -> bool {
        let up = |channel| self.link(channel) == Link::Up;
        up(channel)
            && (channel != Channel::Shell
                || matches!(self.link(Channel::Stdin), Link::Up | Link::Absent))
    }

    /// Returns what waits first on shell.
    pub(super) fn first_held(&mut self) -> Option<Key> {
        self.on(Channel::Shell)?.held.front()?.key.clone()
    }

    pub(super) fn is_joined(&self) -> bool {
        self.channels.iter().any(|state| state.joined)
    }

    /// Returns whether it has sockets to the kernel on which it has nothing to say.
    pub(super) fn has_idle_links(&self) -> bool {
        let states = &self.channels;
        states.iter().any(|state| state.link != Link::Closed)
            && states.iter().all(|state| state.held.is_empty())
            && self.prompt.is_none()
            && self.behind_interrupt.is_empty()
    }

    /// Forgets what waits for the kernel, and the answers that are owed.
    pub(super) fn drop_held(&mut self) {
        self.states().for_each(|(_, state)| state.held.clear());
        self.behind_interrupt.clear();
        (self.held_bytes, self.outstanding) = (0, 0);
        self.prompt = None;
    }

    pub(super) fn held(&self) -> HeldMessages {
        let held: usize = self.channels.iter().map(|state| state.held.len()).sum();
        HeldMessages {
            messages: held as u64,
            bytes: self.held_bytes as u64,
        }
    }

    pub(super) fn states(&mut self) -> impl Iterator<Item = (Channel, &mut State)> {
        OWN_CHANNELS.into_iter().zip(&mut self.channels)
    }
}
