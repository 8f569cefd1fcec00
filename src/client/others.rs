//! What other clients run on the kernel, as everybody is told of it on iopub.
//!
//! Pure: messages go in, and what they say comes out. Only code that the kernel announces
//! (`execute_input`) counts: silent requests are nobody's work.

use serde::Deserialize;

use crate::wire::Verified;

/// A step of what another client runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Foreign {
    /// The request's id.
    pub msg_id: String,
    /// The asker's name for itself.
    pub username: String,
    /// Which step it is.
    pub step: Step,
}

/// A step of an execution, as its observers see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// The kernel begins with this code.
    Begun {
        /// The source.
        code: String,
    },
    /// It is over.
    Ended {
        /// An error was among its outputs: the reply itself goes to the asker alone.
        raised: bool,
    },
}

/// Follows what others run: one after the other, as a kernel does.
#[derive(Debug, Default)]
pub(super) struct Others {
    running: Option<Running>,
}

#[derive(Debug)]
struct Running {
    msg_id: String,
    raised: bool,
}

impl Others {
    /// Takes a message of iopub; says whether it is a step of what a client runs whose session is not
    /// `own`.
    pub(super) fn take(&mut self, message: &Verified, own: &str) -> Option<Foreign> {
        let header = message.header().ok()?;
        if !matches!(&*header.msg_type, "execute_input" | "error" | "status") {
            return None;
        }
        let parent = message.parent().ok()?;
        if parent.session == own || parent.msg_id.is_empty() {
            return None;
        }
        let step = match &*header.msg_type {
            "execute_input" => {
                let Input { code } = serde_json::from_slice(message.content()).ok()?;
                self.running = Some(Running {
                    msg_id: parent.msg_id.clone().into_owned(),
                    raised: false,
                });
                Step::Begun { code }
            }
            "error" => {
                let running = self.running.as_mut();
                let running = running.filter(|running| running.msg_id == parent.msg_id)?;
                running.raised = true;
                return None;
            }
            _ => {
                let Status { execution_state } = serde_json::from_slice(message.content()).ok()?;
                let ends = execution_state == "idle";
                let running = self
                    .running
                    .take_if(|it| ends && it.msg_id == parent.msg_id)?;
                Step::Ended {
                    raised: running.raised,
                }
            }
        };
        Some(Foreign {
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

#[derive(Deserialize)]
struct Status {
    execution_state: String,
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use serde_json::{Value, json};

    use super::*;
    use crate::wire::NewHeader;

    fn says(others: &mut Others, asker: &str, msg_type: &str, content: &Value) -> Option<Step> {
        let header = |session, username, msg_type| NewHeader {
            msg_id: "1",
            session,
            username,
            date: "2026-01-02T03:04:05.000000Z",
            msg_type,
        };
        let asked = Verified::new(
            &header(asker, "ada", "execute_request"),
            Bytes::from_static(b"{}"),
            &json!({}),
        );
        let header = header("kernel", "kernel", msg_type);
        let message = Verified::new(&header, asked.header_bytes().clone(), content);
        let foreign = others.take(&message, "own")?;
        assert_eq!((&*foreign.msg_id, &*foreign.username), ("1", "ada"));
        Some(foreign.step)
    }

    #[test]
    fn what_others_run_is_seen_from_its_beginning_to_its_end() {
        let mut others = Others::default();
        let mut says = |msg_type, content| says(&mut others, "other", msg_type, &content);
        let (busy, idle) = (
            json!({"execution_state": "busy"}),
            json!({"execution_state": "idle"}),
        );
        for raised in [false, true] {
            assert_eq!(says("status", busy.clone()), None);
            let code = "x".to_owned();
            let begun = says("execute_input", json!({"code": "x", "execution_count": 1}));
            assert_eq!(begun, Some(Step::Begun { code }));
            assert_eq!(says("stream", json!({"name": "stdout", "text": "x"})), None);
            if raised {
                assert_eq!(says("error", json!({"ename": "E"})), None);
            }
            assert_eq!(says("status", busy.clone()), None);
            assert_eq!(says("status", idle.clone()), Some(Step::Ended { raised }));
        }
        // A silent one, or one that began before.
        assert_eq!(says("status", idle), None);
        assert_eq!(says("execute_input", json!(["x"])), None);
    }

    #[test]
    fn ones_own_is_nobody_elses() {
        let mut others = Others::default();
        let input = json!({"code": "x"});
        assert_eq!(says(&mut others, "own", "execute_input", &input), None);
        let idle = json!({"execution_state": "idle"});
        assert_eq!(says(&mut others, "own", "status", &idle), None);
    }
}
