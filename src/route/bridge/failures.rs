//! Requests that no kernel will answer.

use super::Bridge;
use crate::route::attendance::Attendance;
use crate::route::execution::Execution;
use crate::route::request::{Answer, Key, Request, Requests, Role};
use crate::route::synthetic;
use crate::route::timer::{Now, Timer, Timers};
use crate::route::{Action, Ending, Kernel, Note};

impl Bridge {
    /// Ends the chosen requests with an error each.
    pub(super) fn fail(&mut self, now: Now, ending: &Ending, chosen: impl Fn(&Request) -> bool) {
        for key in self.requests.keys(chosen) {
            self.fail_one(now, ending, &key);
        }
        self.clients.end_prompts();
    }

    /// Ends one request as a kernel would, unless it has its answer.
    pub(super) fn fail_one(&mut self, now: Now, ending: &Ending, key: &Key) {
        let request = self.requests.get(key);
        if request.is_some_and(Request::asks_for_widgets) {
            self.answer_widget_probe(now, key);
        }
        let Some(request) = self.requests.remove(key) else {
            return;
        };
        self.timers.stop(&Timer::Stale(key.clone()));
        if request.answer == Answer::FromKernel {
            self.send_failure(now, ending, key, &request);
        } else if request.journalled {
            self.journal_end(key, &request, "error".into());
        }
    }

    /// Ends a request that the kernel has: its client reads the error now, the kernel's messages for it are dropped.
    pub(super) fn fail_early(&mut self, now: Now, ending: &Ending, key: &Key) {
        if let Some(request) = self.requests.withdraw(key) {
            self.send_failure(now, ending, key, &request);
        }
    }

    /// Sends busy, error, reply and idle, but for what the client has already.
    fn send_failure(&mut self, now: Now, ending: &Ending, key: &Key, request: &Request) {
        let parent = request.header.clone();
        if request.journalled {
            self.journal_end(key, request, "error".into());
        }
        if !request.busy {
            self.out.publish_busy(now, parent.clone());
        }
        if !request.replied {
            if request.msg_type == "execute_request" {
                let error = synthetic::error(ending);
                self.out.publish_new(now, "error", parent.clone(), &error);
            }
            if let Some(reply_type) = request.reply_type() {
                let content = synthetic::error_reply(request, ending);
                let reply = self
                    .out
                    .new_reply(now, &reply_type, parent.clone(), &content);
                self.clients
                    .deliver(&mut self.out, &request.client, request.channel, reply);
            }
        }
        if !request.idle {
            self.out.publish_idle(now, parent);
        }
        self.out.log(Note::RequestFailed {
            client: request.client.clone(),
            msg_type: request.msg_type.clone(),
            msg_id: key.msg_id().to_owned(),
            why: ending.name.to_owned(),
        });
        self.settle(now, &request.client);
    }

    /// Answers everything that waits for a kernel with an error: none will come.
    pub(super) fn refuse_held(&mut self, now: Now, ending: &Ending) {
        self.fail(now, ending, |request| !request.sent);
        self.clients.drop_held(&mut self.out);
    }

    /// Takes the end of the kernel under a front end without a person. A client gets no reply, as without a proxy;
    /// the notebook shows why its cell ended.
    pub(super) fn end_with_kernel(&mut self, now: Now, ending: &Ending) {
        let under_way = |request: &Request| {
            request.role == Role::Cell
                && request.sent
                && !request.replied
                && request.answer == Answer::FromKernel
        };
        for key in self.requests.keys(under_way) {
            let Some(request) = self.requests.remove(&key) else {
                continue;
            };
            let error = synthetic::error(ending);
            let parent = request.header.clone();
            self.out.publish_new(now, "error", parent, &error);
            if request.journalled {
                self.journal_end(&key, &request, "error".into());
            }
        }
        self.attendance = Attendance::Over;
        self.requests = Requests::default();
        self.timers = Timers::default();
        self.clients.abandon_requests();
        self.kernel.set_kernel(Kernel::Ended(ending.clone()));
        self.out.push(Action::ExitWithKernel(ending.clone()));
    }

    /// Adds the end of a request to the journal.
    pub(super) fn journal_end(&mut self, key: &Key, request: &Request, status: String) {
        let generation = self.kernel.generation();
        let done = Execution::done(generation, key, request, status);
        self.out.push(Action::Journal(done));
    }
}
