//! Requests that no kernel will answer.

use super::bridge::Bridge;
use super::kernel::Ending;
use super::request::{Answer, Key, Request};
use super::timer::{Now, Timer};
use super::to_clients::done;
use super::voice;
use super::{Action, Note};

impl Bridge {
    /// Ends the requests that a predicate chooses, with an error each.
    pub(super) fn fail(&mut self, now: Now, ending: &Ending, chosen: impl Fn(&Request) -> bool) {
        for key in self.requests.keys(chosen) {
            self.fail_one(now, ending, &key);
        }
        for client in self.clients.values_mut() {
            client.prompt = None;
        }
    }

    /// Ends one request as a kernel would, unless it has its answer.
    pub(super) fn fail_one(&mut self, now: Now, ending: &Ending, key: &Key) {
        if self
            .requests
            .get_mut(key)
            .is_some_and(|it| it.asks_for_widgets())
        {
            self.answer_widgets(now, key);
        }
        let Some(request) = self.requests.remove(key) else {
            return;
        };
        self.timers.stop(&Timer::Stale(key.clone()));
        if request.answer == Answer::FromKernel {
            self.tell_failed(now, ending, key, &request);
        } else if request.journalled {
            let execution = done(self.generation, key, &request, "error".into());
            self.actions.push_back(Action::Journal(execution));
        }
    }

    /// Ends a request that the kernel has: its asker reads the error now, the kernel is not heard.
    pub(super) fn fail_early(&mut self, now: Now, ending: &Ending, key: &Key) {
        let Some(known) = self.requests.get_mut(key) else {
            return;
        };
        let request = known.clone();
        // Its end is written down now, and not once more when the kernel has had it.
        known.journalled = false;
        self.tell_failed(now, ending, key, &request);
        self.requests.set_answer(key, Answer::Withdrawn);
    }

    /// Busy, error, reply, idle; what came already is not repeated.
    fn tell_failed(&mut self, now: Now, ending: &Ending, key: &Key, request: &Request) {
        let parent = request.header.clone();
        if request.journalled {
            let execution = done(self.generation, key, request, "error".into());
            self.actions.push_back(Action::Journal(execution));
        }
        if !request.busy {
            let busy = self.voice.status(now, parent.clone(), "busy");
            self.actions.push_back(Action::Publish(busy));
        }
        if !request.replied {
            if request.msg_type == "execute_request" {
                let error = self
                    .voice
                    .publish(now, "error", parent.clone(), &voice::error(ending));
                self.actions.push_back(Action::Publish(error));
            }
            if let Some(reply_type) = request.reply_type() {
                let content = voice::error_reply(request, ending);
                let reply = self.voice.say(now, &reply_type, parent.clone(), &content);
                self.deliver(&request.client, request.channel, reply);
            }
        }
        if !request.idle {
            self.publish_idle(now, parent);
        }
        self.log(Note::RequestFailed {
            client: request.client.clone(),
            msg_type: request.msg_type.clone(),
            msg_id: key.msg_id().to_owned(),
            why: ending.name.to_owned(),
        });
        self.settled(now, &request.client);
    }

    /// Answers everything that waits for a kernel with an error: none will come.
    pub(super) fn refuse_held(&mut self, now: Now, ending: &Ending) {
        self.fail(now, ending, |request| !request.sent);
        let mut unanswerable = Vec::new();
        for (id, client) in &mut self.clients {
            for (channel, state) in client.states() {
                let count = state
                    .held
                    .drain(..)
                    .filter(|held| held.key.is_none())
                    .count();
                if count > 0 {
                    unanswerable.push(Note::NoKernel {
                        client: id.clone(),
                        channel,
                        count,
                    });
                }
            }
            client.held_bytes = 0;
        }
        unanswerable.into_iter().for_each(|note| self.log(note));
        let ids: Vec<_> = self.clients.keys().cloned().collect();
        for id in ids {
            self.read_on(&id);
        }
    }
}
