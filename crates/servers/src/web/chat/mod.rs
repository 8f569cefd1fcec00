//! Conversations with an assistant about notebooks.
//!
//! Each notebook has one conversation, and each message is a turn. `turn` holds the events of a turn, which pages receive
//! as server-sent events; `backend` is the assistant itself: a model, or a coding agent that speaks ACP; `conversation`
//! runs the turns one after the other; `routes` are the requests.

mod backend;
pub(super) mod conversation;
pub(super) mod routes;
pub(super) mod turn;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use tokio_util::task::LocalPoolHandle;

pub use self::backend::AssistantChoice;
pub(super) use self::backend::AssistantSetup;
use self::conversation::Conversation;
use super::feed::Feed;
use crate::api::problem::{Problem, ProblemKind};

/// How many notebooks may have a conversation at a time.
const CONVERSATIONS_MAX: usize = 64;

/// The conversations of a server.
pub(super) struct Conversations {
    choice: AssistantChoice,
    /// The folder whose notebooks are served.
    root: PathBuf,
    open: Mutex<HashMap<String, Arc<Conversation>>>,
}

impl Conversations {
    pub(super) fn new(choice: AssistantChoice, root: &Path) -> Self {
        Self {
            choice,
            root: root.to_owned(),
            open: Mutex::default(),
        }
    }

    /// Returns who answers, or how that is set up.
    pub(super) async fn setup(&self) -> AssistantSetup {
        self.choice.setup().await
    }

    /// Returns the conversation about a notebook.
    ///
    /// # Errors
    /// There are too many, or it cannot be stored.
    pub(super) fn of(
        &self,
        notebook: &str,
        feed: &Arc<Feed>,
        worker: &LocalPoolHandle,
    ) -> Result<Arc<Conversation>, Problem> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(conversation) = open
            .get(notebook)
            .filter(|conversation| conversation.is_alive())
        {
            return Ok(conversation.clone());
        }
        if open.len() >= CONVERSATIONS_MAX {
            open.retain(|_, it| it.is_running());
        }
        if open.len() >= CONVERSATIONS_MAX {
            let text = format!(
                "the assistant works in {CONVERSATIONS_MAX} notebooks: wait until one turn has ended"
            );
            return Err(Problem::new(ProblemKind::Refused, text));
        }
        let conversation = Conversation::begin(
            self.choice.clone(),
            &self.root,
            notebook,
            feed.clone(),
            worker,
        )?;
        open.insert(notebook.to_owned(), conversation.clone());
        Ok(conversation)
    }
}
