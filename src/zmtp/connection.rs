//! One connection from its first byte to its last.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::command::{self, Command};
use super::decoder::{Decoder, Incoming, Limits};
use super::greeting::{self, Greeting};
use super::{Error, Message, Role};

/// A connection's state, without its socket.
///
/// The order of calls: write what [`poll_transmit`](Self::poll_transmit) gives; read into
/// [`space`](Self::space); call [`poll_event`](Self::poll_event) until it returns `None`; begin
/// again. After an error nothing more is to be read; what `poll_transmit` still gives tells the
/// peer why.
#[derive(Debug)]
pub struct Connection {
    role: Role,
    identity: Bytes,
    phase: Phase,
    decoder: Decoder,
    transmit: BytesMut,
}

#[derive(Debug)]
enum Phase {
    Greeting,
    Handshake { minor: u8 },
    Traffic { minor: u8 },
    Failed(Error),
}

/// What a peer said of itself in its READY.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its socket type, such as `DEALER`; one that may talk with ours.
    pub socket_type: String,
    /// Its routing identity; empty for none.
    pub identity: Bytes,
}

/// What came from the peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The handshake is complete. The first event, once.
    Ready(Peer),
    /// A message.
    Message(Message),
    /// The peer wants messages whose first frame begins with these bytes. Only as [`Role::Xpub`].
    Subscribe(Bytes),
    /// The peer no longer wants them. Only as [`Role::Xpub`].
    Cancel(Bytes),
}

impl Connection {
    /// Returns a connection on which nothing has been read or written.
    ///
    /// # Panics
    /// When the identity has more than [`IDENTITY_MAX`](super::IDENTITY_MAX) bytes.
    pub fn new(role: Role, identity: Bytes, limits: Limits) -> Self {
        assert!(
            identity.len() <= super::IDENTITY_MAX,
            "an identity has at most 255 bytes"
        );
        Self {
            role,
            identity,
            phase: Phase::Greeting,
            decoder: Decoder::new(limits),
            transmit: BytesMut::from(&greeting::ours()[..]),
        }
    }

    /// Returns where bytes from the peer go; never without room.
    pub fn space(&mut self) -> bytes::buf::Limit<&mut BytesMut> {
        self.decoder.space()
    }

    /// Takes bytes from the peer by copying them; for callers that have them elsewhere.
    ///
    /// Returns how many were taken: at least one of a non-empty slice. The rest must wait until
    /// [`poll_event`](Self::poll_event) has returned `None`.
    pub fn handle_bytes(&mut self, bytes: &[u8]) -> usize {
        let mut space = self.space();
        let taken = space.chunk_mut().len().min(bytes.len());
        space.put(bytes.take(taken));
        taken
    }

    /// Returns bytes that must be written now: greeting, READY, ERROR and PONGs.
    pub fn poll_transmit(&mut self) -> Option<Bytes> {
        (!self.transmit.is_empty()).then(|| self.transmit.split().freeze())
    }

    /// Returns the next event; `None` when more bytes are needed.
    ///
    /// # Errors
    /// Says what the peer did wrong; every later call says the same.
    pub fn poll_event(&mut self) -> Result<Option<Event>, Error> {
        let result = self.next_event();
        if let Err(error) = &result {
            self.phase = Phase::Failed(error.clone());
        }
        result
    }

    /// Returns a subscription, or the end of one, as this peer's version understands it.
    pub fn subscription(&self, on: bool, topic: &[u8]) -> Bytes {
        let minor = match self.phase {
            Phase::Handshake { minor } | Phase::Traffic { minor } => minor,
            Phase::Greeting | Phase::Failed(_) => 0,
        };
        command::subscription_frame(minor, on, topic)
    }

    fn next_event(&mut self) -> Result<Option<Event>, Error> {
        loop {
            let minor = match &self.phase {
                Phase::Greeting => {
                    let Some(Greeting { minor }) = Greeting::take(&mut self.decoder.read)? else {
                        return Ok(None);
                    };
                    let ready = command::ready_frame(self.role, &self.identity);
                    self.transmit.extend_from_slice(&ready);
                    self.phase = Phase::Handshake { minor };
                    continue;
                }
                Phase::Handshake { minor } => *minor,
                Phase::Traffic { .. } => match self.traffic()? {
                    Step::Again => continue,
                    Step::Wait => return Ok(None),
                    Step::Event(event) => return Ok(Some(event)),
                },
                Phase::Failed(error) => return Err(error.clone()),
            };
            return match self.decoder.next()? {
                None => Ok(None),
                Some(Incoming::Message(_)) => Err(Error::TooEarly("a message")),
                Some(Incoming::Command(body)) => match Command::parse(body)? {
                    Command::Ready {
                        socket_type,
                        identity,
                    } => {
                        self.accept(&socket_type)?;
                        self.phase = Phase::Traffic { minor };
                        Ok(Some(Event::Ready(Peer {
                            socket_type,
                            identity,
                        })))
                    }
                    Command::Error(reason) => Err(Error::Refused(reason)),
                    _ => Err(Error::TooEarly("another command")),
                },
            };
        }
    }

    fn accept(&mut self, socket_type: &str) -> Result<(), Error> {
        if self.role.accepts(socket_type) {
            return Ok(());
        }
        let error = Error::Incompatible {
            ours: self.role,
            theirs: socket_type.chars().take(32).collect(),
        };
        let told = command::error_frame("socket types do not match");
        self.transmit.extend_from_slice(&told);
        Err(error)
    }

    fn traffic(&mut self) -> Result<Step, Error> {
        Ok(match self.decoder.next()? {
            None => Step::Wait,
            Some(Incoming::Message(message)) => Step::Event(self.message(message)),
            Some(Incoming::Command(body)) => match Command::parse(body)? {
                Command::Subscribe(topic) if self.role == Role::Xpub => {
                    Step::Event(Event::Subscribe(own(&topic)))
                }
                Command::Cancel(topic) if self.role == Role::Xpub => {
                    Step::Event(Event::Cancel(own(&topic)))
                }
                Command::Ping(context) => {
                    // Full: a peer that asks without reading gets no more answers until it reads.
                    if self.transmit.len() < PONGS_MAX {
                        let pong = command::pong_frame(&context);
                        self.transmit.extend_from_slice(&pong);
                    }
                    Step::Again
                }
                Command::Error(reason) => return Err(Error::Refused(reason)),
                Command::Ready { .. } => return Err(Error::Malformed("second READY")),
                Command::Subscribe(_) | Command::Cancel(_) | Command::Other => Step::Again,
            },
        })
    }

    /// Reads the 3.0 form of a subscription: a message of one frame that begins with 1 or 0.
    fn message(&self, message: Message) -> Event {
        if self.role == Role::Xpub
            && let [frame] = &message[..]
        {
            match frame.split_first() {
                Some((1, topic)) => return Event::Subscribe(Bytes::copy_from_slice(topic)),
                Some((0, topic)) => return Event::Cancel(Bytes::copy_from_slice(topic)),
                _ => {}
            }
        }
        Event::Message(message)
    }
}

enum Step {
    Event(Event),
    Again,
    Wait,
}

/// The most PONGs held for a peer, in bytes.
const PONGS_MAX: usize = 4 * 1024;

/// A topic lives as long as its subscription: it must not pin a read buffer.
fn own(topic: &Bytes) -> Bytes {
    Bytes::copy_from_slice(topic)
}
