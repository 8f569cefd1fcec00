//! Which client opened which comm, so that no client closes another's.
//!
//! Front ends answer a `comm_open` of a target that they do not know with `comm_close` (VS Code
//! and JupyterLab both do), and the kernel publishes every comm to all: one window's widget
//! would be closed by another window.

use std::collections::{HashMap, VecDeque};

use serde::Deserialize;

use super::ClientId;

/// How many comms are remembered; the oldest is forgotten, and may then be closed by any client.
const COMMS_MAX: usize = 10_000;

/// The comms that were opened in this generation of the kernel.
#[derive(Debug, Default)]
pub(super) struct Comms {
    opener: HashMap<String, Option<ClientId>>,
    order: VecDeque<String>,
}

impl Comms {
    /// Records which client opened a comm; `None` for a client outside this front end.
    pub(super) fn opened(&mut self, content: &[u8], opener: Option<ClientId>) {
        let Some(comm) = comm_id(content) else { return };
        if self.opener.insert(comm.clone(), opener).is_none() {
            self.order.push_back(comm);
        }
        if self.order.len() > COMMS_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.opener.remove(&oldest);
        }
    }

    /// Returns whether a client may close a comm: its own, one of a client that has disconnected, or an
    /// unknown one.
    pub(super) fn may_close(
        &self,
        content: &[u8],
        id: &ClientId,
        is_joined: impl Fn(&ClientId) -> bool,
    ) -> bool {
        let opener = comm_id(content).and_then(|comm| self.opener.get(&comm));
        match opener {
            None => true,
            Some(None) => false,
            Some(Some(opener)) => opener == id || !is_joined(opener),
        }
    }
}

fn comm_id(content: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Comm {
        comm_id: String,
    }
    serde_json::from_slice::<Comm>(content)
        .ok()
        .map(|comm| comm.comm_id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_opener_closes_a_comm_unless_it_is_gone() {
        let (mine, other) = (ClientId::new("a".into()), ClientId::new("b".into()));
        let mut comms = Comms::default();
        comms.opened(br#"{"comm_id":"1","target_name":"t"}"#, Some(mine.clone()));
        comms.opened(br#"{"comm_id":"2"}"#, None);
        let may = |comm: &str, id: &ClientId, here: bool| {
            comms.may_close(format!(r#"{{"comm_id":"{comm}"}}"#).as_bytes(), id, |_| {
                here
            })
        };
        assert!(may("1", &mine, true));
        assert!(!may("1", &other, true));
        assert!(
            may("1", &other, false),
            "no other client can close it any more"
        );
        assert!(!may("2", &mine, true), "a client outside opened it");
        assert!(may("3", &other, true), "of this one nothing is known");
    }

    #[test]
    fn the_number_of_comms_is_bounded() {
        let mut comms = Comms::default();
        for n in 0..COMMS_MAX + 5 {
            comms.opened(format!(r#"{{"comm_id":"{n}"}}"#).as_bytes(), None);
        }
        assert_eq!(
            (comms.order.len(), comms.opener.len()),
            (COMMS_MAX, COMMS_MAX)
        );
    }
}
