//! Notebooks and outputs as resources, and subscriptions to what others change.

use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use percent_encoding::{percent_decode_str, utf8_percent_encode};
use rmcp::RoleServer;
use rmcp::model::{Resource, ResourceContents, ResourceTemplate, ResourceUpdatedNotificationParam};
use rmcp::service::RequestContext;
use tokio::time::Instant;

use super::calls::MOST_NOTEBOOKS;
use super::result::meanwhile;
use super::session::Session;
use crate::activity::notification::ActivityEntry;
use crate::api::caller::Caller;
use crate::api::envelope::Meanwhile;
use crate::api::outputs::plain;
use crate::api::problem::{Problem, ProblemKind};
use crate::api::{
    self, CellsRequest, ExportRequest, NotebooksRequest, OutputAnswer, OutputRequest,
};
use crate::http::ESCAPED;
use crate::notebook::{CellSelector, visible, visible_output};
use crate::project::FolderWatch;
use crate::project::event::OverwrittenEdit;

/// How many resources a client may be subscribed to.
pub(super) const MOST_SUBSCRIPTIONS: usize = 64;

/// The shortest time between two notifications of a client about a notebook.
const PACE: Duration = Duration::from_secs(1);

const NOTEBOOK: &str = "nb://notebook/";
const CELL: &str = "nb://cell/";
const ENDING: &str = ".ipynb";

/// What a URI names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ResourceName {
    /// A notebook, by its path below the root.
    Notebook(PathBuf),
    /// An output of a cell.
    Output {
        notebook: PathBuf,
        /// The cell's id, or a beginning of it.
        cell: String,
        /// Which of its outputs, from 0.
        number: usize,
    },
}

impl ResourceName {
    /// Reads a URI.
    pub(super) fn of(uri: &str) -> Result<Self, Problem> {
        Self::parse(uri).ok_or_else(|| {
            let text = format!("there is no resource {uri:?}");
            Problem::new(ProblemKind::Usage, text)
                .hint(format!("{NOTEBOOK}PATH.ipynb"))
                .hint(format!("{CELL}PATH.ipynb/CELL/output/NUMBER"))
        })
    }

    fn parse(uri: &str) -> Option<Self> {
        let decoded = |text: &str| {
            let text = percent_decode_str(text).decode_utf8().ok()?;
            Some(text.into_owned())
        };
        if let Some(path) = uri.strip_prefix(NOTEBOOK) {
            return Some(Self::Notebook(decoded(path)?.into()));
        }
        let (path, output) = uri.strip_prefix(CELL)?.split_once(&format!("{ENDING}/"))?;
        let (cell, number) = output.split_once("/output/")?;
        Some(Self::Output {
            notebook: (decoded(path)? + ENDING).into(),
            cell: decoded(cell)?,
            number: number.parse().ok()?,
        })
    }

    fn notebook(&self) -> &Path {
        match self {
            Self::Notebook(notebook) | Self::Output { notebook, .. } => notebook,
        }
    }
}

/// Returns the URI of a notebook.
fn uri(notebook: &Path) -> String {
    let path = notebook.to_string_lossy();
    format!("{NOTEBOOK}{}", utf8_percent_encode(&path, ESCAPED))
}

/// Returns the forms of all URIs.
pub(super) fn templates() -> Vec<ResourceTemplate> {
    let template = |uri: &str, name: &str, description: &str| {
        ResourceTemplate::new(uri, name).with_description(description)
    };
    vec![
        template(
            "nb://notebook/{+path}",
            "notebook",
            "The sources of a notebook's cells, as text with `# %%` lines",
        ),
        template(
            "nb://cell/{+path}/{cell}/output/{number}",
            "output",
            "An output of a cell, from 0: an image, or text",
        ),
    ]
}

impl Session {
    /// Lists the notebooks below the root.
    pub(super) async fn resources(
        &self,
        context: &RequestContext<RoleServer>,
    ) -> Result<Vec<Resource>, Problem> {
        let caller = self.caller(None, context)?;
        let request = NotebooksRequest {
            most: MOST_NOTEBOOKS,
            kernels: false,
        };
        let notebooks = api::notebooks(&caller, request).await?.notebooks;
        let resource = |path: &PathBuf| {
            Resource::new(uri(path), path.to_string_lossy()).with_mime_type("text/plain")
        };
        Ok(notebooks.iter().map(resource).collect())
    }

    /// Returns what a resource has. It counts as seen by the client.
    pub(super) async fn read_resource(
        &self,
        uri: String,
        context: &RequestContext<RoleServer>,
    ) -> Result<ResourceContents, Problem> {
        let name = ResourceName::of(&uri)?;
        let notebook = self.root().notebook(name.notebook())?;
        let caller = self.caller(Some(notebook), context)?;
        let contents = match name {
            ResourceName::Notebook(_) => {
                let answer = api::export(&caller, ExportRequest::default()).await?;
                ResourceContents::text(visible(&answer.text), uri)
            }
            ResourceName::Output { cell, number, .. } => {
                let request = OutputRequest {
                    cells: vec![CellSelector::Id(cell)],
                    number,
                    mime: None,
                    image_size: None,
                    to_file: false,
                };
                match api::output(&caller, request).await? {
                    OutputAnswer::Text(text) => {
                        let text = plain(&visible_output(&String::from_utf8_lossy(&text)));
                        ResourceContents::text(text, uri)
                    }
                    OutputAnswer::Bytes { mime, bytes } => {
                        ResourceContents::blob(STANDARD.encode(bytes), uri).with_mime_type(mime)
                    }
                    OutputAnswer::File(path) => {
                        ResourceContents::text(path.display().to_string(), uri)
                    }
                }
            }
        };
        let seen = move || caller.delivered(&Meanwhile::default());
        let seen = tokio::task::spawn_blocking(seen).await;
        seen.map_err(|error| Problem::failed("record what was seen", &error))?;
        Ok(contents)
    }

    /// Begins to follow a resource's notebook: a client is notified of what others change from now on.
    ///
    /// # Errors
    /// The URI names no resource, or the notebook's folder does not exist.
    pub(super) async fn begin_following(
        &self,
        uri: String,
        context: &RequestContext<RoleServer>,
    ) -> Result<FollowedResource, Problem> {
        let name = ResourceName::of(&uri)?;
        let notebook = self.root().notebook(name.notebook())?;
        let caller = self.caller(Some(notebook.clone()), context)?;
        // What others run appears in the file as well.
        let watch = FolderWatch::begin(notebook.parent().as_slice(), PACE);
        let last = pending_notifications(&caller).await;
        if last == Default::default() {
            let recorded = tokio::task::spawn_blocking(move || caller.begin_notifications()).await;
            recorded.map_err(|error| Problem::failed("begin to follow", &error))?;
        }
        Ok(FollowedResource {
            uri,
            notebook,
            watch,
            last,
        })
    }

    /// Notifies a client when others have changed a notebook, until it disconnects: then `notify` returns false.
    pub(super) async fn follow(
        &self,
        followed: FollowedResource,
        context: &RequestContext<RoleServer>,
        notify: impl AsyncFn(ResourceUpdatedNotificationParam) -> bool,
    ) {
        let FollowedResource {
            uri,
            notebook,
            mut watch,
            mut last,
        } = followed;
        let is_it = |name: Option<&str>| {
            name.is_none_or(|name| notebook.file_name().is_some_and(|file| *name == *file))
        };
        loop {
            let at = Instant::now();
            let caller = match self.caller(Some(notebook.clone()), context) {
                Ok(caller) => caller,
                Err(problem) => {
                    tracing::warn!(problem = problem.message, "a subscription has ended");
                    return;
                }
            };
            let current = pending_notifications(&caller).await;
            if current != last && current != Default::default() {
                let updated = ResourceUpdatedNotificationParam::new(&*uri);
                if !notify(updated).await {
                    return;
                }
            }
            last = current;
            tokio::time::sleep_until(at + PACE).await;
            watch.changed(is_it).await;
        }
    }
}

/// A resource whose notebook a client follows.
pub(super) struct FollowedResource {
    uri: String,
    notebook: PathBuf,
    watch: FolderWatch,
    /// What the client has been notified of, and has not read yet.
    last: PendingNotifications,
}

impl FollowedResource {
    /// Lets the client be notified at once of what it has not read yet: some of it may be later than its request.
    pub(super) fn telling_what_is_unread(mut self) -> Self {
        self.last = PendingNotifications::default();
        self
    }
}

/// What others did to a notebook, and the edits that saves wiped out.
type PendingNotifications = (Vec<ActivityEntry>, Vec<OverwrittenEdit>);

/// Returns the notifications about its notebook that the caller has not received.
async fn pending_notifications(caller: &Caller) -> PendingNotifications {
    // This records what another program has saved. Nothing counts as seen.
    let _ = api::cells(caller, CellsRequest::default()).await;
    let notebook = meanwhile(caller).await.notebook.unwrap_or_default();
    (
        notebook.notifications.since,
        notebook.notifications.overwritten,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uri_names_a_notebook_or_an_output() {
        let notebook = |path: &str| Some(ResourceName::Notebook(path.into()));
        for (uri, name) in [
            ("nb://notebook/a.ipynb", notebook("a.ipynb")),
            (
                "nb://notebook/sub/a%20%C3%A4.ipynb",
                notebook("sub/a ä.ipynb"),
            ),
            (
                "nb://cell/sub/a.ipynb/k0-1/output/12",
                Some(ResourceName::Output {
                    notebook: "sub/a.ipynb".into(),
                    cell: "k0-1".to_owned(),
                    number: 12,
                }),
            ),
            ("nb://notebook/%ff.ipynb", None),
            ("nb://cell/a.ipynb/k0/output/-1", None),
            ("nb://cell/a.ipynb/k0", None),
            ("nb://cell/a.txt/k0/output/1", None),
            ("file:///etc/passwd", None),
            ("", None),
        ] {
            assert_eq!(ResourceName::parse(uri), name, "{uri}");
        }
        for path in ["a.ipynb", "sub/a b%c?#ä.ipynb"] {
            assert_eq!(ResourceName::parse(&uri(Path::new(path))), notebook(path));
        }
    }
}
