//! The cells that other clients run on the kernel, as seen on iopub.
//!
//! Pure: takes messages, returns steps. Only code that the kernel announces (`execute_input`) counts, not
//! silent requests. The announcement of code that already ran when this client connected was missed; such
//! code counts if it went on for longer than silent requests do.

use std::time::{Duration, Instant};

use bytes::Bytes;
use serde::Deserialize;

use super::execution_state::StatusContent;
use crate::wire::{FACTS, Verified};

/// A step of a cell of another client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtherClientStep {
    /// The request's id.
    pub msg_id: String,
    /// The name that the other client gave itself.
    pub username: String,
    /// The step.
    pub step: ExecutionStep,
}

/// A step of an execution, as other clients see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExecutionStep {
    /// The kernel begins with this code.
    Begun {
        /// The source.
        code: String,
    },
    /// The kernel says what the code changed, which may be this client's own.
    Facts {
        /// The content of the kernel's message.
        content: Bytes,
    },
    /// The kernel has ended the code.
    Ended {
        /// Whether an error was among its outputs: only the other client gets the reply.
        raised: bool,
        /// Whether it began before this client connected.
        early: bool,
    },
}

/// Follows the executions of other clients, which the kernel runs one after the other.
#[derive(Debug)]
pub(super) struct OtherClients {
    running: Option<Running>,
    /// When this client connected.
    since: Instant,
    /// Whether a cell began or ended since then: later ends belong to cells that began after the connect.
    moved: bool,
    raised_early: bool,
}

/// A request that ends within this time after this client connected may be a front end's silent request.
const SILENT: Duration = Duration::from_millis(250);

#[derive(Debug)]
struct Running {
    msg_id: String,
    raised: bool,
}

impl OtherClients {
    /// Starts to follow at `now`.
    pub(super) fn new(now: Instant) -> Self {
        Self {
            running: None,
            since: now,
            moved: false,
            raised_early: false,
        }
    }

    /// Takes a message of iopub; returns a step if the message is one of a cell of a client whose session is
    /// not `own`.
    pub(super) fn take(
        &mut self,
        message: &Verified,
        own: &str,
        now: Instant,
    ) -> Option<OtherClientStep> {
        let header = message.header().ok()?;
        if !matches!(
            &*header.msg_type,
            "execute_input" | "error" | "status" | FACTS
        ) {
            return None;
        }
        let parent = message.parent().ok()?;
        if parent.msg_type != "execute_request" || parent.msg_id.is_empty() {
            return None;
        }
        if header.msg_type == FACTS {
            return Some(OtherClientStep {
                msg_id: parent.msg_id.into_owned(),
                username: parent.username.into_owned(),
                step: ExecutionStep::Facts {
                    content: message.content().clone(),
                },
            });
        }
        if parent.session == own {
            self.moved = true;
            return None;
        }
        let step = match &*header.msg_type {
            "execute_input" => {
                let Input { code } = serde_json::from_slice(message.content()).ok()?;
                self.moved = true;
                self.running = Some(Running {
                    msg_id: parent.msg_id.clone().into_owned(),
                    raised: false,
                });
                ExecutionStep::Begun { code }
            }
            "error" => {
                match &mut self.running {
                    Some(running) if running.msg_id == parent.msg_id => running.raised = true,
                    Some(_) => {}
                    None => self.raised_early = true,
                }
                return None;
            }
            _ => {
                let status: StatusContent = serde_json::from_slice(message.content()).ok()?;
                if parent.subshell_id.is_some() {
                    return None;
                }
                if status.execution_state != "idle" {
                    self.moved = true;
                    return None;
                }
                let first = !std::mem::replace(&mut self.moved, true);
                match self.running.take_if(|it| it.msg_id == parent.msg_id) {
                    Some(Running { raised, .. }) => ExecutionStep::Ended {
                        raised,
                        early: false,
                    },
                    None if first && now.duration_since(self.since) >= SILENT => {
                        ExecutionStep::Ended {
                            raised: self.raised_early,
                            early: true,
                        }
                    }
                    None => return None,
                }
            }
        };
        Some(OtherClientStep {
            msg_id: parent.msg_id.into_owned(),
            username: parent.username.into_owned(),
            step,
        })
    }
}

#[derive(Deserialize)]
struct Input {
    code: String,
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use serde_json::{Value, json};

    use super::*;
    use crate::wire::NewHeader;

    struct World {
        others: OtherClients,
        now: Instant,
    }

    impl World {
        fn new() -> Self {
            let now = Instant::now();
            Self {
                others: OtherClients::new(now),
                now,
            }
        }

        fn says(&mut self, asker: &str, msg_type: &str, content: &Value) -> Option<ExecutionStep> {
            let header = |session, msg_type| NewHeader {
                msg_id: "1",
                session,
                username: "ada",
                date: "2026-01-02T03:04:05.000000Z",
                msg_type,
            };
            let (empty, none) = (Bytes::from_static(b"{}"), json!({}));
            let asked = Verified::new(&header(asker, "execute_request"), empty, &none);
            let header = header("kernel", msg_type);
            let message = Verified::new(&header, asked.header_bytes().clone(), content);
            let foreign = self.others.take(&message, "own", self.now)?;
            assert_eq!((&*foreign.msg_id, &*foreign.username), ("1", "ada"));
            Some(foreign.step)
        }

        fn is(&mut self, asker: &str, state: &str) -> Option<ExecutionStep> {
            self.says(asker, "status", &json!({ "execution_state": state }))
        }
    }

    fn ended(raised: bool, early: bool) -> Option<ExecutionStep> {
        Some(ExecutionStep::Ended { raised, early })
    }

    #[test]
    fn what_others_run_is_seen_from_its_beginning_to_its_end() {
        let mut world = World::new();
        for raised in [false, true] {
            assert_eq!(world.is("other", "busy"), None);
            let code = "x".to_owned();
            let begun = world.says("other", "execute_input", &json!({"code": "x"}));
            assert_eq!(begun, Some(ExecutionStep::Begun { code }));
            let text = json!({"name": "stdout", "text": "x"});
            assert_eq!(world.says("other", "stream", &text), None);
            if raised {
                assert_eq!(world.says("other", "error", &json!({"ename": "E"})), None);
            }
            assert_eq!(world.is("other", "idle"), ended(raised, false));
        }
        world.now += SILENT;
        assert_eq!(world.is("other", "idle"), None, "a silent one");
        assert_eq!(world.says("other", "execute_input", &json!({"x": 1})), None);
    }

    #[test]
    fn what_ran_before_is_told_when_it_ends() {
        let mut world = World::new();
        world.now += SILENT;
        assert_eq!(
            world.is("other", "idle"),
            ended(false, true),
            "it was silent"
        );

        let mut world = World::new();
        world.says("other", "stream", &json!({"name": "stdout", "text": "x"}));
        world.now += SILENT;
        world.says("other", "error", &json!({"ename": "E"}));
        assert_eq!(world.is("other", "idle"), ended(true, true));
        assert_eq!(
            world.is("other", "idle"),
            None,
            "it began when all was heard"
        );

        let mut world = World::new();
        world.is("other", "busy");
        assert_eq!(world.is("other", "idle"), None, "too short for a cell");
    }

    #[test]
    fn ones_own_is_nobody_elses() {
        let mut world = World::new();
        assert_eq!(
            world.says("own", "execute_input", &json!({"code": "x"})),
            None
        );
        world.now += SILENT;
        assert_eq!(world.is("own", "idle"), None);
        assert_eq!(world.is("other", "idle"), None, "it began after ours");
    }
}
