//! One connection from its first byte to its last.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::command::{self, Command};
use super::decoder::{Decoder, FrameLimits, Incoming};
use super::greeting::{self, Greeting};
use super::{Error, Message, Role};

/// A connection's state, without its socket.
///
/// The order of calls: write the bytes of [`poll_transmit`](Self::poll_transmit); read into
/// [`space`](Self::space); call [`poll_event`](Self::poll_event) until it returns `None`; begin again. After
/// an error, do not read any more; the last bytes of `poll_transmit` tell the peer the reason.
#[derive(Debug)]
pub struct Connection {
    role: Role,
    identity: Bytes,
    phase: Phase,
    decoder: Decoder,
    /// The longest message once the handshake is complete, in bytes.
    message_bytes: usize,
    transmit: BytesMut,
}

#[derive(Debug)]
enum Phase {
    Greeting,
    Handshake { minor: u8 },
    Traffic { minor: u8 },
    Failed(Error),
}

/// The properties that a peer announced in its READY.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its socket type, such as `DEALER`; one that may be connected to ours.
    pub socket_type: String,
    /// Its routing identity; empty for none.
    pub identity: Bytes,
}

/// An event on a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConnectionEvent {
    /// The handshake is complete. The first event, once.
    Ready(Peer),
    /// A message.
    Message(Message),
    /// A message was too long and was dropped; see [`FrameLimits::drained_bytes`].
    Drained {
        /// The frames before the one that was too long.
        partial: Message,
        /// The length of all its frames.
        bytes: u64,
    },
    /// The peer wants messages whose first frame begins with these bytes. Only as [`Role::Xpub`].
    Subscribe(Bytes),
    /// The peer has cancelled this subscription. Only as [`Role::Xpub`].
    Cancel(Bytes),
}

impl Connection {
    /// Returns a connection on which nothing has been read or written.
    ///
    /// # Panics
    /// When the identity has more than [`IDENTITY_MAX`](super::IDENTITY_MAX) bytes.
    pub fn new(role: Role, identity: Bytes, limits: FrameLimits) -> Self {
        assert!(
            identity.len() <= super::IDENTITY_MAX,
            "an identity has at most 255 bytes"
        );
        let in_handshake = FrameLimits {
            message_bytes: limits.message_bytes.min(HANDSHAKE_MESSAGE_BYTES),
            ..limits
        };
        Self {
            role,
            identity,
            phase: Phase::Greeting,
            decoder: Decoder::new(in_handshake),
            message_bytes: limits.message_bytes,
            transmit: BytesMut::from(&greeting::own_greeting()[..]),
        }
    }

    /// Sets the longest message, in bytes; applies to messages that begin later.
    pub fn set_message_limit(&mut self, bytes: usize) {
        self.decoder.set_message_limit(bytes);
    }

    /// Returns how many bytes of an incomplete message are held.
    pub fn held_bytes(&self) -> usize {
        self.decoder.held_bytes()
    }

    /// Returns the buffer for bytes from the peer; it always has room.
    pub fn space(&mut self) -> bytes::buf::Limit<&mut BytesMut> {
        self.decoder.space()
    }

    /// Takes bytes from the peer by copying them, for callers that do not read into [`space`](Self::space).
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
    /// Says what the peer did wrong; every later call returns the same error.
    pub fn poll_event(&mut self) -> Result<Option<ConnectionEvent>, Error> {
        let result = self.next_event();
        if let Err(error) = &result {
            self.phase = Phase::Failed(error.clone());
        }
        result
    }

    /// Returns a subscription, or its end, in the form of this peer's protocol version.
    pub fn subscription(&self, on: bool, topic: &[u8]) -> Bytes {
        let minor = match self.phase {
            Phase::Handshake { minor } | Phase::Traffic { minor } => minor,
            Phase::Greeting | Phase::Failed(_) => 0,
        };
        command::subscription_frame(minor, on, topic)
    }

    fn next_event(&mut self) -> Result<Option<ConnectionEvent>, Error> {
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
                    Step::Continue => continue,
                    Step::Wait => return Ok(None),
                    Step::Event(event) => return Ok(Some(event)),
                },
                Phase::Failed(error) => return Err(error.clone()),
            };
            return match self.decoder.next()? {
                None => Ok(None),
                Some(Incoming::Message(_) | Incoming::Drained { .. }) => {
                    Err(Error::TooEarly("a message"))
                }
                Some(Incoming::Command(body)) => match Command::parse(body)? {
                    Command::Ready {
                        socket_type,
                        identity,
                    } => {
                        self.check_type(&socket_type)?;
                        self.phase = Phase::Traffic { minor };
                        self.decoder.set_message_limit(self.message_bytes);
                        Ok(Some(ConnectionEvent::Ready(Peer {
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

    fn check_type(&mut self, socket_type: &str) -> Result<(), Error> {
        if self.role.accepts(socket_type) {
            return Ok(());
        }
        let error = Error::Incompatible {
            own: self.role,
            peer: socket_type.chars().take(32).collect(),
        };
        let error_bytes = command::error_frame("socket types do not match");
        self.transmit.extend_from_slice(&error_bytes);
        Err(error)
    }

    fn traffic(&mut self) -> Result<Step, Error> {
        Ok(match self.decoder.next()? {
            None => Step::Wait,
            Some(Incoming::Message(message)) => Step::Event(self.message(message)),
            Some(Incoming::Drained { partial, bytes }) => {
                Step::Event(ConnectionEvent::Drained { partial, bytes })
            }
            Some(Incoming::Command(body)) => match Command::parse(body)? {
                Command::Subscribe(topic) if self.role == Role::Xpub => {
                    Step::Event(ConnectionEvent::Subscribe(copied(&topic)))
                }
                Command::Cancel(topic) if self.role == Role::Xpub => {
                    Step::Event(ConnectionEvent::Cancel(copied(&topic)))
                }
                Command::Ping(context) => {
                    // If too many PONGs wait, a peer that sends PINGs without reading gets no more until it
                    // reads.
                    if self.transmit.len() < PONGS_MAX {
                        let pong = command::pong_frame(&context);
                        self.transmit.extend_from_slice(&pong);
                    }
                    Step::Continue
                }
                Command::Error(reason) => return Err(Error::Refused(reason)),
                Command::Ready { .. } => return Err(Error::Malformed("second READY")),
                Command::Subscribe(_) | Command::Cancel(_) | Command::Other => Step::Continue,
            },
        })
    }

    /// Parses the ZMTP 3.0 form of a subscription: a message of one frame that begins with 1 or 0.
    fn message(&self, message: Message) -> ConnectionEvent {
        if self.role == Role::Xpub
            && let [frame] = &message[..]
        {
            match frame.split_first() {
                Some((1, topic)) => {
                    return ConnectionEvent::Subscribe(Bytes::copy_from_slice(topic));
                }
                Some((0, topic)) => return ConnectionEvent::Cancel(Bytes::copy_from_slice(topic)),
                _ => {}
            }
        }
        ConnectionEvent::Message(message)
    }
}

enum Step {
    Event(ConnectionEvent),
    Continue,
    Wait,
}

/// A message before READY is always an error, so no long one is received.
const HANDSHAKE_MESSAGE_BYTES: usize = 1024;

/// The maximum size of the PONGs that wait for a peer, in bytes.
const PONGS_MAX: usize = 4 * 1024;

/// Copies a topic: it is stored as long as its subscription, and must not hold a read buffer.
fn copied(topic: &Bytes) -> Bytes {
    Bytes::copy_from_slice(topic)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::zmtp::{Batch, LARGE_FRAME};

    /// Feeds bytes in pieces of the given lengths, repeatedly; collects the events.
    fn events(
        connection: &mut Connection,
        mut bytes: &[u8],
        pieces: &[usize],
    ) -> Result<Vec<ConnectionEvent>, Error> {
        let mut events = Vec::new();
        let mut pieces = pieces.iter().cycle();
        while !bytes.is_empty() {
            let piece = pieces.next().map_or(bytes.len(), |&n| n.min(bytes.len()));
            let mut piece = &bytes[..piece];
            bytes = &bytes[piece.len()..];
            while !piece.is_empty() {
                let taken = connection.handle_bytes(piece);
                piece = &piece[taken..];
                while let Some(event) = connection.poll_event()? {
                    events.push(event);
                }
            }
        }
        Ok(events)
    }

    fn connection(role: Role) -> Connection {
        Connection::new(role, Bytes::new(), FrameLimits::default())
    }

    /// Returns the bytes that a peer sends before the traffic phase.
    fn opening(role: Role, identity: &[u8]) -> Vec<u8> {
        let ready = command::ready_frame(role, identity);
        [&greeting::own_greeting()[..], &ready].concat()
    }

    fn written(messages: &[Message]) -> Vec<u8> {
        let mut batch = Batch::default();
        for message in messages {
            batch.push(message);
        }
        let slices = batch.io_slices(usize::MAX);
        slices.iter().flat_map(|slice| slice.to_vec()).collect()
    }

    fn any_message() -> impl Strategy<Value = Message> {
        let len = prop_oneof![
            8 => 0..300_usize,
            1 => 400..1200_usize,
            1 => LARGE_FRAME - 2..LARGE_FRAME * 3,
        ];
        let frame = (len, any::<u8>()).prop_map(|(len, byte)| Bytes::from(vec![byte; len]));
        prop::collection::vec(frame, 1..8)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn any_split_gives_the_same_messages(
            messages in prop::collection::vec(any_message(), 0..8),
            pieces in prop::collection::vec(prop_oneof![1..20_usize, 1..100_000_usize], 1..10),
        ) {
            let stream = [opening(Role::Dealer, b"me"), written(&messages)].concat();
            let mut router = connection(Role::Router);
            let mut expected = vec![ConnectionEvent::Ready(Peer {
                socket_type: "DEALER".to_owned(),
                identity: Bytes::from_static(b"me"),
            })];
            expected.extend(messages.into_iter().map(ConnectionEvent::Message));
            prop_assert_eq!(events(&mut router, &stream, &pieces), Ok(expected));
        }

        #[test]
        fn arbitrary_bytes_never_panic(
            has_opening in any::<bool>(),
            bytes in prop::collection::vec(any::<u8>(), 0..400),
            pieces in prop::collection::vec(1..50_usize, 1..5),
        ) {
            let mut router = connection(Role::Router);
            let opening = if has_opening { opening(Role::Dealer, b"") } else { Vec::new() };
            let _ = events(&mut router, &[opening, bytes].concat(), &pieces);
        }

        #[test]
        fn arbitrary_commands_never_panic(
            kind in prop::sample::select(vec!["READY", "ERROR", "PING", "PONG", "SUBSCRIBE", "X"]),
            body in prop::collection::vec(any::<u8>(), 0..100),
            early in any::<bool>(),
        ) {
            let mut publisher = connection(Role::Xpub);
            let mut stream = if early { greeting::own_greeting().to_vec() } else { opening(Role::Sub, b"") };
            stream.extend([4, (1 + kind.len() + body.len()) as u8, kind.len() as u8]);
            stream.extend_from_slice(kind.as_bytes());
            stream.extend(body);
            let _ = events(&mut publisher, &stream, &[1000]);
        }
    }

    #[test]
    fn two_connections_complete_their_handshake() {
        let mut router = connection(Role::Router);
        let mut dealer = Connection::new(
            Role::Dealer,
            Bytes::from_static(b"d"),
            FrameLimits::default(),
        );
        let mut received = Vec::new();
        while let Some(bytes) = dealer.poll_transmit() {
            received.extend(events(&mut router, &bytes, &[7]).unwrap());
            let answer = router.poll_transmit().unwrap_or_default();
            received.extend(events(&mut dealer, &answer, &[7]).unwrap());
        }
        let ready = |socket_type: &str, identity| {
            ConnectionEvent::Ready(Peer {
                socket_type: socket_type.to_owned(),
                identity: Bytes::from_static(identity),
            })
        };
        assert_eq!(received, [ready("ROUTER", b""), ready("DEALER", b"d")]);
    }

    #[test]
    fn a_peer_of_the_wrong_type_gets_an_error() {
        let mut router = connection(Role::Router);
        router.poll_transmit();
        let expected = Error::Incompatible {
            own: Role::Router,
            peer: "SUB".to_owned(),
        };
        let stream = opening(Role::Sub, b"");
        assert_eq!(events(&mut router, &stream, &[1000]), Err(expected.clone()));
        let text = "it is a \"SUB\" socket, which cannot talk with our ROUTER";
        assert_eq!(expected.to_string(), text);
        // Later calls return the same error.
        assert_eq!(router.poll_event(), Err(expected));
        let error_bytes = router.poll_transmit().expect("READY and ERROR");
        assert!(error_bytes.windows(6).any(|bytes| bytes == b"\x05ERROR"));
    }

    #[test]
    fn subscriptions_come_in_both_forms() {
        let mut publisher = connection(Role::Xpub);
        let mut stream = opening(Role::Sub, b"");
        for minor in [0, 1] {
            for on in [true, false] {
                stream.extend(command::subscription_frame(minor, on, b"topic"));
            }
        }
        let topic = || Bytes::from_static(b"topic");
        assert_eq!(
            events(&mut publisher, &stream, &[3]).unwrap()[1..],
            [
                ConnectionEvent::Subscribe(topic()),
                ConnectionEvent::Cancel(topic()),
                ConnectionEvent::Subscribe(topic()),
                ConnectionEvent::Cancel(topic()),
            ]
        );
    }

    #[test]
    fn subscriptions_are_ignored_where_nothing_is_published() {
        let mut router = connection(Role::Router);
        let mut stream = opening(Role::Dealer, b"");
        for on in [true, false] {
            stream.extend(command::subscription_frame(1, on, b"topic"));
        }
        assert_eq!(events(&mut router, &stream, &[1000]).unwrap().len(), 1);
    }

    #[test]
    fn the_bytes_of_an_incomplete_message_are_counted() {
        let mut router = connection(Role::Router);
        let frames = |count| count * size_of::<Bytes>();
        let mut stream = opening(Role::Dealer, b"");
        stream.extend(b"\x01\x0a0123456789\x01\x08abc");
        events(&mut router, &stream, &[1000]).unwrap();
        assert_eq!(router.held_bytes(), 10 + frames(1) + 2 + 3);
        let mut rest = b"defgh".to_vec();
        rest.extend([&[2][..], &(1_u64 << 20).to_be_bytes()].concat());
        events(&mut router, &rest, &[1000]).unwrap();
        let held = router.held_bytes();
        assert!(held >= 10 + 8 + frames(2) + LARGE_FRAME, "{held}");
    }

    #[test]
    fn a_subscription_is_written_as_the_peer_understands_it() {
        for (minor, expected) in [(0, &b"\x00\x02\x01t"[..]), (1, b"\x04\x0b\x09SUBSCRIBEt")] {
            let mut subscriber = connection(Role::Sub);
            let mut stream = opening(Role::Xpub, b"");
            stream[11] = minor;
            events(&mut subscriber, &stream, &[1000]).unwrap();
            assert_eq!(&subscriber.subscription(true, b"t")[..], expected);
        }
    }

    #[test]
    fn pings_are_answered_up_to_a_bound() {
        let mut router = connection(Role::Router);
        events(&mut router, &opening(Role::Dealer, b""), &[1000]).unwrap();
        router.poll_transmit();
        let ping = b"\x04\x0a\x04PING\x00\x00ctx";
        assert_eq!(events(&mut router, ping, &[4]), Ok(Vec::new()));
        assert_eq!(&router.poll_transmit().unwrap()[..], b"\x04\x08\x04PONGctx");
        // A PONG with one byte of context has 8 bytes.
        let ping = b"\x04\x08\x04PING\x00\x00c";
        events(&mut router, &ping.repeat(10_000), &[1000]).unwrap();
        assert_eq!(router.poll_transmit().unwrap().len(), 4096);
    }

    #[test]
    fn a_long_message_before_ready_is_refused() {
        let long = [&[2][..], &(1_u64 << 20).to_be_bytes()].concat();
        let expected = |limit| Error::MessageTooLong {
            announced: 1 << 20,
            limit,
        };
        let mut router = connection(Role::Router);
        let stream = [&greeting::own_greeting()[..], &long].concat();
        let early = events(&mut router, &stream, &[1000]);
        assert_eq!(early, Err(expected(HANDSHAKE_MESSAGE_BYTES)));
        let mut router = connection(Role::Router);
        let stream = [&opening(Role::Dealer, b"")[..], &long].concat();
        assert!(events(&mut router, &stream, &[1000]).is_ok());
        // A peer with another limit gets no longer messages through, either.
        let mut router = connection(Role::Router);
        events(&mut router, &opening(Role::Dealer, b""), &[1000]).unwrap();
        router.set_message_limit(1000);
        assert_eq!(events(&mut router, &long, &[1000]), Err(expected(1000)));
    }

    #[test]
    fn a_message_before_ready_is_refused() {
        for (frame, expected) in [
            (&b"\x00\x01m"[..], Error::TooEarly("a message")),
            (
                b"\x04\x07\x04PING\x00\x00",
                Error::TooEarly("another command"),
            ),
            (
                b"\x04\x0a\x05ERROR\x03bad",
                Error::Refused("bad".to_owned()),
            ),
        ] {
            let stream = [&greeting::own_greeting()[..], frame].concat();
            let mut router = connection(Role::Router);
            assert_eq!(events(&mut router, &stream, &[1000]), Err(expected));
        }
    }
}
