//! Requests that no kernel will answer.

use super::Bridge;
use crate::route::attendance::Attendance;
use crate::route::execution::ExecutionProgress;
use crate::route::request::{Answer, Key, Request, Requests, Role};
use crate::route::synthetic;
use crate::route::timer::Timer;
use crate::route::{Action, Ending, Kernel, Note};

/// The name of the error of a cell that its user has withdrawn: Jupyter's for an interrupt.
pub(super) const WITHDRAWN: &str = "KeyboardInterrupt";

impl Bridge {
    /// Ends each of the chosen requests with an error.
    pub(super) fn fail(&mut self, ending: &Ending, chosen: impl Fn(&Request) -> bool) {
        for key in self.requests.keys(chosen) {
            self.fail_one(ending, &key);
        }
        self.clients.end_prompts();
    }

    /// Ends one request with an error, as a kernel would, unless it has its answer.
    pub(super) fn fail_one(&mut self, ending: &Ending, key: &Key) {
        let request = self.requests.get(key);
        if request.is_some_and(Request::asks_for_widgets) {
            self.answer_widget_probe(key);
        }
        let Some(request) = self.requests.remove(key) else {
            return;
        };
        self.timers.stop(&Timer::AnswerWait(key.clone()));
        if request.answer == Answer::FromKernel {
            self.send_failure(ending, key, &request);
        } else if request.journalled {
            self.journal_end(key, &request, "error".into());
        }
    }

    /// Ends a request that the kernel has: its client gets the error now, and the kernel's later messages for
    /// it are dropped.
    pub(super) fn fail_early(&mut self, ending: &Ending, key: &Key) {
        if let Some(request) = self.requests.withdraw(key) {
            self.send_failure(ending, key, &request);
        }
    }

    /// Sends busy, error, reply and idle, except those that the client already has.
    fn send_failure(&mut self, ending: &Ending, key: &Key, request: &Request) {
        let parent = request.header.clone();
        if request.journalled || request.queued {
            let status = match request.sent {
                _ if ending.name == WITHDRAWN => "withdrawn",
                true => "error",
                // The kernel never got it.
                false => "aborted",
            };
            self.journal_end(key, request, status.into());
        }
        if !request.busy {
            self.out.publish_busy(parent.clone());
        }
        if request.replied_at.is_none() {
            if request.msg_type == "execute_request" {
                let error = synthetic::error(ending);
                self.out.publish_new("error", parent.clone(), &error);
            }
            if let Some(reply_type) = request.reply_type() {
                let content = synthetic::error_reply(request, ending);
                let reply =
                    self.out
                        .synthetic
                        .kernel_message(&reply_type, parent.clone(), &content);
                self.clients
                    .deliver(&mut self.out, &request.client, request.channel, reply);
            }
        }
        if !request.idle {
            self.out.publish_idle(parent);
        }
        self.out.log(Note::RequestFailed {
            client: request.client.clone(),
            msg_type: request.msg_type.clone(),
            msg_id: key.msg_id().to_owned(),
            error: ending.name,
        });
        self.settle(&request.client);
    }

    /// Fails all requests that wait for a kernel, since none will come.
    pub(super) fn refuse_held(&mut self, ending: &Ending) {
        self.fail(ending, |request| !request.sent);
        self.clients.drop_held(&mut self.out);
    }

    /// Ends all requests after the kernel has died under a front end without a person. Clients get no reply,
    /// as without a proxy; the notebook shows an error that says why its cell ended.
    pub(super) fn end_with_kernel(&mut self, ending: &Ending) {
        let under_way = |request: &Request| {
            request.role == Role::Cell
                && request.sent
                && request.replied_at.is_none()
                && request.answer == Answer::FromKernel
        };
        for key in self.requests.keys(under_way) {
            let Some(request) = self.requests.remove(&key) else {
                continue;
            };
            let error = synthetic::error(ending);
            let parent = request.header.clone();
            self.out.publish_new("error", parent, &error);
            if request.journalled {
                self.journal_end(&key, &request, "error".into());
            }
        }
        self.attendance = Attendance::Exited;
        self.requests = Requests::default();
        self.timers.stop_all();
        self.clients.abandon_requests();
        self.kernel.set_kernel(Kernel::Ended(ending.clone()));
        self.out.push(Action::ExitWithKernel(ending.clone()));
    }

    /// Adds the end of a request to the journal.
    pub(super) fn journal_end(&mut self, key: &Key, request: &Request, status: String) {
        let generation = self.kernel.generation();
        let step = ExecutionProgress::ended(generation, key, request, status);
        self.out.push(Action::Journal(step));
    }
}
