//! What the kernel's own iopub queue has dropped, by the numbers of its messages; and requests whose
//! `idle` was among it.
//!
//! A PUB socket with a full queue (1,000 messages in ipykernel) drops what comes, without a word. Where
//! that hits the `idle` of a request, its asker waits for ever. iopub keeps its order, so the `idle` of
//! a request that was replied to is lost for certain once something comes on iopub that the kernel's
//! shell has done later: another request's `busy`, or the `idle` of the proxy's own question.

use super::Action;
use super::bridge::Bridge;
use super::connect;
use super::request::{Answer, Key, Request};
use super::timer::{LATE_IDLE, Now, Timer};
use crate::wire::{Channel, Header};

/// How many messages never came on iopub, of a kernel that numbers what it sends.
#[derive(Debug, Default)]
pub(super) struct Dropped {
    /// What stands before the number.
    prefix: String,
    last: u64,
    count: u64,
}

impl Dropped {
    /// Takes the header of a message on iopub. The reply that precedes an `idle` is numbered, too, and
    /// comes on another socket.
    pub(super) fn take(&mut self, header: &Header<'_>, is_idle: bool) {
        let Some((prefix, number)) = header.numbered() else {
            return;
        };
        if self.prefix != prefix {
            // Another kernel.
            prefix.clone_into(&mut self.prefix);
        } else if let Some(missing) = number.checked_sub(self.last + 1) {
            self.count += missing.saturating_sub(u64::from(is_idle));
        } else {
            // Two threads of the kernel: the hole was none.
            self.count = self.count.saturating_sub(1);
            return;
        }
        self.last = number;
    }

    /// Returns how many were missing so far.
    pub(super) fn count(&self) -> u64 {
        self.count
    }
}

impl Bridge {
    /// A reply has come before its request's `idle`, as usual: it is looked for later.
    pub(super) fn await_idle(&mut self, now: Now) {
        if !self.timers.runs(&Timer::LateIdle) {
            self.timers.start(now.instant + LATE_IDLE, Timer::LateIdle);
        }
    }

    /// The `idle` of some requests may be late, or lost: what the kernel's shell is asked now tells.
    pub(super) fn look_for_idles(&mut self, now: Now) {
        let late = self.requests.keys(Request::lacks_idle);
        if late.is_empty() || !self.kernel.is_live() {
            return;
        }
        for key in late {
            let asked = self.probe.on_shell.clone();
            if let Some(request) = self.requests.get_mut(&key) {
                request.unheard = true;
                // A question whose own `idle` was lost proves nothing any more.
                request
                    .proof
                    .take_if(|proof| Some(&*proof) != asked.as_ref());
            }
        }
        self.ask_on_shell(now);
        self.timers.start(now.instant + LATE_IDLE, Timer::LateIdle);
    }

    /// The kernel's main shell has begun a request: what it had begun and replied to before is over.
    ///
    /// A reply alone says nothing of the order, since iopub may be behind the shell's socket.
    pub(super) fn prove_idles_lost(&mut self, now: Now, begun: &Key) {
        let was_begun = |request: &Request| {
            let on_main_shell = || {
                let header = Header::parse(&request.header);
                header.is_ok_and(|header| header.subshell_id.is_none())
            };
            request.busy
                && request.lacks_idle()
                && request.channel == Channel::Shell
                && on_main_shell()
        };
        for key in self.requests.keys(was_begun) {
            if key != *begun {
                self.make_up_for_idle(now, &key);
            }
        }
    }

    /// Tells everybody that a request is over whose `idle` was lost, and what was lost with it.
    pub(super) fn make_up_for_idle(&mut self, now: Now, key: &Key) {
        let count = self.dropped.count();
        let Some(request) = self.requests.get_mut(key) else {
            return;
        };
        request.idle = true;
        if request.answer == Answer::FromKernel {
            let parent = request.header.clone();
            // Its reply is numbered, too.
            let dropped = count.saturating_sub(request.dropped_before);
            let dropped = dropped.saturating_sub(u64::from(request.replied));
            // One is the `idle` itself.
            if request.msg_type == "execute_request" && dropped > 1 {
                let notice = connect::notice_stream(&notice(dropped));
                let stream = self.voice.publish(now, "stream", parent.clone(), &notice);
                self.actions.push_back(Action::Publish(stream));
            }
            self.actions.push_back(Action::IdleLost {
                msg_id: key.msg_id().to_owned(),
            });
            self.publish_idle(now, parent);
        }
        self.ended(now, key);
        self.finish(now, key);
    }
}

impl Request {
    /// Returns whether its reply is here and its `idle` is not. Not every kernel tells its status on
    /// control.
    pub(super) fn lacks_idle(&self) -> bool {
        let tells = self.channel == Channel::Shell || self.busy;
        tells && self.sent && self.replied && !self.idle
    }
}

fn notice(dropped: u64) -> String {
    format!(
        "{dropped} messages of the kernel are missing here: its own queue was full, and it dropped them. \
         The end of this cell was among them. To see its whole output, run it again."
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(numbers: impl IntoIterator<Item = (u64, bool)>) -> u64 {
        let mut dropped = Dropped::default();
        for (number, is_idle) in numbers {
            let header = Header {
                msg_id: format!("k_7_{number}").into(),
                session: "k".into(),
                ..Header::default()
            };
            dropped.take(&header, is_idle);
        }
        dropped.count()
    }

    #[test]
    fn a_hole_is_what_was_dropped_but_for_the_reply_before_an_idle() {
        assert_eq!(count([(5, false), (6, false), (8, true)]), 0);
        assert_eq!(count([(5, false), (9, false), (10, true)]), 3);
        assert_eq!(count([(5, false), (9, true)]), 2);
        assert_eq!(count([(5, false), (7, false), (6, false), (8, false)]), 0);
        assert_eq!(count([]), 0);
    }

    #[test]
    fn another_kernel_counts_from_its_own_first_number() {
        let mut dropped = Dropped::default();
        for id in [
            "k_7_1", "k_7_2", "j_8_900", "j_8_901", "anything", "j_8_905",
        ] {
            let session = id.split('_').next().unwrap_or_default();
            let header = Header {
                msg_id: id.into(),
                session: session.into(),
                ..Header::default()
            };
            dropped.take(&header, false);
        }
        assert_eq!(dropped.count(), 3);
    }
}
