//! `cp`: files copied to a server and back.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::caller::Caller;
use super::envelope::Answer;
use super::problem::{Problem, ProblemKind};
use crate::server::copy::{CopyError, CopyProgress, download, upload};
use crate::server::{ServerClient, ServerErrorKind, ServerKind, is_server_name, registry};

/// Files to be copied.
#[derive(Clone, Debug)]
pub struct CopyRequest {
    /// The files, and last their destination. `NAME:PATH` is on a server.
    pub words: Vec<PathBuf>,
    /// Whether to replace files with another content.
    pub force: bool,
}

/// What was copied.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CopyAnswer {
    /// The server.
    pub server: String,
    /// The files.
    pub files: Vec<CopiedItem>,
    /// What is to be known of it.
    pub notes: Vec<String>,
}

impl Answer for CopyAnswer {}

/// A file that was copied.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CopiedItem {
    /// The file.
    pub from: String,
    /// Its copy.
    pub to: String,
    /// Its size.
    pub size_bytes: u64,
    /// How many of its bytes were there already.
    pub resumed_bytes: u64,
    /// Whether the checksums were compared.
    pub verified: bool,
}

/// What the words of a request mean.
struct Copies<'a> {
    server: &'a str,
    is_upload: bool,
    from: Vec<&'a str>,
    to: &'a str,
}

/// Copies files to a server, or from one. `progress` receives each file's name, the number of copied bytes, and the
/// file's size.
///
/// # Errors
/// The words make no sense, the server has no files or refuses, or a file of another content is there.
pub async fn copy(
    caller: &Caller,
    request: CopyRequest,
    progress: &mut (dyn FnMut(&str, u64, u64) + Send),
) -> Result<CopyAnswer, Problem> {
    let copies = copies_of(&request.words)?;
    let client = ServerClient::open(registry::server(copies.server)?).await?;
    if client.record().kind == ServerKind::Gateway {
        let text =
            "it is a gateway, which has no files: kernels there need another way to the data";
        return Err(ServerErrorKind::Name(text.to_owned())
            .of(copies.server)
            .into());
    }
    let note = caller.progress;
    client.ensure_running(&mut |line| note(line)).await?;
    let names_folder = match copies.is_upload {
        true => remote_folder(&client, &copies).await?,
        false => {
            copies.from.len() > 1 || is_folder_name(copies.to) || Path::new(copies.to).is_dir()
        }
    };
    let mut files = Vec::new();
    for from in &copies.from {
        let name = Path::new(from).file_name().and_then(OsStr::to_str);
        let name = name.ok_or_else(|| usage(format!("{from} names no file")))?;
        let to = match (names_folder, copies.to.trim_end_matches('/')) {
            (false, to) => to.to_owned(),
            (true, "") if copies.is_upload => name.to_owned(),
            (true, "") => format!("{}{name}", copies.to),
            (true, to) => format!("{to}/{name}"),
        };
        let mut of_file = |at: u64, size: u64| progress(name, at, size);
        let of_file: CopyProgress<'_> = &mut of_file;
        let copied = match copies.is_upload {
            true => upload(&client, Path::new(from), &to, request.force, of_file).await?,
            false => download(&client, from, Path::new(&to), request.force, of_file).await?,
        };
        let remote = |path: &str| format!("{}:{path}", copies.server);
        files.push(CopiedItem {
            from: if copies.is_upload {
                (*from).to_owned()
            } else {
                remote(from)
            },
            to: if copies.is_upload { remote(&to) } else { to },
            size_bytes: copied.size,
            resumed_bytes: copied.resumed,
            verified: copied.is_verified,
        });
    }
    let note = "the server provides no checksums: only the sizes were compared";
    let is_unverified = files.iter().any(|file| !file.verified);
    Ok(CopyAnswer {
        server: copies.server.to_owned(),
        notes: is_unverified.then(|| note.to_owned()).into_iter().collect(),
        files,
    })
}

/// Says whether a destination on a server is a folder. Makes the folder that is to hold the files: the destination if its
/// name says that it is a folder, or if there are several files, else the one above.
async fn remote_folder(client: &ServerClient, copies: &Copies<'_>) -> Result<bool, Problem> {
    let to = copies.to.trim_matches('/');
    if to.is_empty() {
        return Ok(true);
    }
    if let Some(found) = client.entry(to).await? {
        return Ok(found.is_folder());
    }
    let is_folder = copies.from.len() > 1 || is_folder_name(copies.to);
    let folders = to.match_indices('/').map(|(at, _)| at);
    for end in folders.chain(is_folder.then_some(to.len())) {
        if client.entry(&to[..end]).await?.is_none() {
            client.make_folder(&to[..end]).await?;
        }
    }
    Ok(is_folder)
}

fn is_folder_name(path: &str) -> bool {
    path.is_empty() || path.ends_with('/')
}

fn copies_of(paths: &[PathBuf]) -> Result<Copies<'_>, Problem> {
    let texts = paths.iter().map(|path| path.to_str());
    let texts: Option<Vec<&str>> = texts.collect();
    let texts = texts.ok_or_else(|| usage("a name is not UTF-8".to_owned()))?;
    let form = "nb cp FILE… NAME:FOLDER, or nb cp NAME:FILE… FOLDER, with the name of a server";
    let Some((to, from)) = texts.split_last().filter(|(_, from)| !from.is_empty()) else {
        return Err(usage(form.to_owned()));
    };
    let remotes: Vec<_> = from.iter().filter_map(|path| remote_path(path)).collect();
    match (remote_path(to), remotes.as_slice()) {
        (Some((server, to)), []) => Ok(Copies {
            server,
            is_upload: true,
            from: from.to_vec(),
            to,
        }),
        (None, [(server, _), others @ ..])
            if remotes.len() == from.len() && others.iter().all(|(other, _)| other == server) =>
        {
            Ok(Copies {
                server,
                is_upload: false,
                from: remotes.iter().map(|(_, path)| *path).collect(),
                to,
            })
        }
        _ => Err(usage(format!(
            "files are copied between this machine and one server: {form}"
        ))),
    }
}

/// Returns the server and the path there, if a word names them.
fn remote_path(path: &str) -> Option<(&str, &str)> {
    let (server, path) = path.split_once(':')?;
    is_server_name(server).then_some((server, path))
}

fn usage(text: String) -> Problem {
    Problem::new(ProblemKind::Usage, text)
}

impl From<CopyError> for Problem {
    fn from(error: CopyError) -> Self {
        let kind = match &error {
            CopyError::Server(error) => return error.clone().into(),
            CopyError::Exists { .. } => ProblemKind::Refused,
            CopyError::NotAFile { .. } => ProblemKind::Usage,
            CopyError::Local { .. } | CopyError::Different { .. } => ProblemKind::Failed,
        };
        Self::new(kind, error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(texts: &[&str]) -> Vec<PathBuf> {
        texts.iter().map(PathBuf::from).collect()
    }

    #[test]
    fn the_last_word_says_which_way() {
        let up = words(&["a.csv", "./b:c.csv", "gpu:data"]);
        let up = copies_of(&up).unwrap();
        assert_eq!((up.server, up.is_upload, up.to), ("gpu", true, "data"));
        assert_eq!(up.from, ["a.csv", "./b:c.csv"]);
        let down = words(&["gpu:data/a.csv", "gpu:b.csv", "."]);
        let down = copies_of(&down).unwrap();
        assert_eq!((down.server, down.is_upload, down.to), ("gpu", false, "."));
        assert_eq!(down.from, ["data/a.csv", "b.csv"]);
        for wrong in [
            &["a.csv"][..],
            &["a.csv", "b.csv"],
            &["one:a", "two:b"],
            &["one:a", "two:b", "."],
            &["one:a", "b", "."],
        ] {
            assert!(copies_of(&words(wrong)).is_err(), "{wrong:?}");
        }
    }
}
