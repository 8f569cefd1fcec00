//! Lists of frames, used again: a message that passes makes none of its own.

use std::cell::RefCell;

use super::Message;

/// So many are kept, and none with room for more frames than a Jupyter message mostly has.
const KEPT: usize = 64;
const FRAMES: usize = 16;

thread_local! {
    static SPARE: RefCell<Vec<Message>> = const { RefCell::new(Vec::new()) };
}

/// Returns an empty list with room for so many frames.
pub(super) fn with_room(frames: usize) -> Message {
    let spare = SPARE.with_borrow_mut(Vec::pop).unwrap_or_default();
    if spare.capacity() >= frames {
        spare
    } else {
        Message::with_capacity(frames)
    }
}

/// Takes the list of a message that is over, for the next that comes on this thread.
///
/// One that is dropped instead costs nothing but that the next has to be made.
pub fn reuse(mut message: Message) {
    message.clear();
    if (1..=FRAMES).contains(&message.capacity()) {
        SPARE.with_borrow_mut(|spare| {
            if spare.len() < KEPT {
                spare.push(message);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    #[test]
    fn what_is_over_serves_again_and_little_is_kept() {
        let mut message = with_room(7);
        message.push(Bytes::from_static(b"x"));
        let at = message.as_ptr();
        reuse(message);
        let again = with_room(7);
        assert_eq!((again.as_ptr(), again.len()), (at, 0));
        reuse(again);
        assert!(with_room(FRAMES + 1).capacity() > FRAMES);
        (0..2 * KEPT).for_each(|_| reuse(Message::with_capacity(1)));
        reuse(Message::with_capacity(FRAMES + 1));
        reuse(Message::new());
        assert_eq!(SPARE.with_borrow(Vec::len), KEPT);
    }
}
