//! Files copied to a server and back.
//!
//! A copy grows under a name of its own, which has a digest of the content in it: a copy that was broken off goes
//! on where it was, also in a later run, and never on top of another content. When it is complete its size and,
//! where the server tells one, its checksum are compared; only then it gets its name.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use sha2::{Digest, Sha256};

use super::client::ServerClient;
use super::error::{ServerError, ServerErrorKind};
use super::models::ContentsModel;

/// How many bytes one request writes.
const PART: usize = 4 << 20;

/// How often in a row a copy goes on after a failure.
const ATTEMPTS: u32 = 6;

/// How long the bytes of a download may pause.
const PAUSE: Duration = Duration::from_secs(60);

/// A file that was copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopiedFile {
    /// Its size in bytes.
    pub size: u64,
    /// How many of its bytes were there from an earlier copy.
    pub resumed: u64,
    /// Whether the checksums were compared, besides the sizes.
    pub is_verified: bool,
}

/// Why a file was not copied.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// A file of this machine cannot be read or written.
    #[error("{}: {error}", path.display())]
    Local {
        /// The file.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// The server refuses or fails.
    #[error(transparent)]
    Server(#[from] ServerError),
    /// There is a file of the name, with another content.
    #[error("{name} is there with another content; --force replaces it")]
    Exists {
        /// The name.
        name: String,
    },
    /// What was copied is no regular file.
    #[error("{name} is no file; nb cp copies files, not folders")]
    NotAFile {
        /// The name.
        name: String,
    },
    /// The copy is not what was copied.
    #[error(
        "the copy of {name} is not the same ({what}): it changed meanwhile, or somebody else wrote the copy; copy it again"
    )]
    Different {
        /// The name.
        name: String,
        /// What differs.
        what: &'static str,
    },
}

/// A function that is told how many bytes of how many there are.
pub type CopyProgress<'a> = &'a mut (dyn FnMut(u64, u64) + Send);

/// Copies a file to a server, under this path there.
///
/// # Errors
/// The file cannot be read, the server refuses, another content is there and `force` is not given, or the copy
/// differs.
pub async fn upload(
    client: &ServerClient,
    from: &Path,
    to: &str,
    force: bool,
    progress: CopyProgress<'_>,
) -> Result<CopiedFile, CopyError> {
    let local = |error| local_error(from, error);
    let mut file = open_file(from)?;
    let size = file.metadata().map_err(local)?.len();
    let digest = digest_of(&mut file).map_err(local)?;
    let same = |found: &ContentsModel| found.sha256() == Some(&*digest);
    let there = client.entry_with_hash(to).await?;
    match &there {
        Some(found) if found.is_folder() => return Err(not_a_file(to)),
        Some(found) if same(found) => {
            progress(size, size);
            return Ok(copied(size, size, true));
        }
        Some(_) if !force => {
            return Err(CopyError::Exists {
                name: to.to_owned(),
            });
        }
        _ => {}
    }
    let part = part_name(to, &digest);
    let mut resumed = None;
    let mut failures = 0;
    loop {
        let done = put_parts(client, &mut file, from, &part, size, &mut resumed, progress).await;
        match done {
            Err(CopyError::Server(error)) if error.kind.may_pass() && failures < ATTEMPTS => {
                tracing::debug!(%error, failures, "a part of a copy");
                tokio::time::sleep(Duration::from_secs(1 << failures)).await;
                failures += 1;
            }
            done => break done?,
        }
    }
    let made = client.entry_with_hash(&part).await?;
    let checked = made.as_ref().and_then(ContentsModel::sha256);
    let is_same_size = made.as_ref().and_then(|it| it.size) == Some(size);
    if !is_same_size || checked.is_some_and(|it| it != digest) {
        client.remove_file(&part).await?;
        let what = if is_same_size { "checksum" } else { "size" };
        return Err(CopyError::Different {
            name: to.to_owned(),
            what,
        });
    }
    if there.is_some() {
        client.remove_file(to).await?;
    }
    client.rename(&part, to).await?;
    Ok(copied(size, resumed.unwrap_or_default(), checked.is_some()))
}

/// Writes what the server's part lacks.
async fn put_parts(
    client: &ServerClient,
    file: &mut File,
    from: &Path,
    part: &str,
    size: u64,
    resumed: &mut Option<u64>,
    progress: CopyProgress<'_>,
) -> Result<(), CopyError> {
    let there = client.entry(part).await?;
    // A longer one has what somebody else appended.
    let there = there.and_then(|it| it.size).filter(|there| *there <= size);
    let mut at = there.unwrap_or(0);
    resumed.get_or_insert(at);
    let mut bytes = vec![0; PART];
    loop {
        progress(at, size);
        if at == size && (size > 0 || there.is_some()) {
            return Ok(());
        }
        let local = |error| local_error(from, error);
        file.seek(SeekFrom::Start(at)).map_err(local)?;
        let wanted = usize::try_from(size - at).unwrap_or(PART).min(PART);
        file.read_exact(&mut bytes[..wanted]).map_err(local)?;
        match at {
            0 => client.write_first(part, &bytes[..wanted]).await?,
            _ => client.append(part, &bytes[..wanted]).await?,
        }
        at += wanted as u64;
        if size == 0 {
            return Ok(());
        }
    }
}

/// Copies a file of a server to this machine.
///
/// # Errors
/// The server has no such file or refuses, the file cannot be written, another content is there and `force` is
/// not given, or the copy differs.
pub async fn download(
    client: &ServerClient,
    from: &str,
    to: &Path,
    force: bool,
    progress: CopyProgress<'_>,
) -> Result<CopiedFile, CopyError> {
    let found = client.entry_with_hash(from).await?;
    let found = found.ok_or_else(|| not_found(client, from))?;
    if found.is_folder() {
        return Err(not_a_file(from));
    }
    let digest = found.sha256().map(str::to_owned);
    if let Ok(mut there) = File::open(to) {
        let local = |error| local_error(to, error);
        let is_same = digest.is_some() && digest == Some(digest_of(&mut there).map_err(local)?);
        if is_same {
            let size = there.metadata().map_err(local)?.len();
            progress(size, size);
            return Ok(copied(size, size, true));
        }
        if !force {
            let name = to.display().to_string();
            return Err(CopyError::Exists { name });
        }
    }
    let version = digest.clone().unwrap_or_else(|| {
        let text = format!("{:?} {:?}", found.size, found.last_modified);
        hex::encode(Sha256::digest(text))
    });
    let part = PathBuf::from(part_name(&to.to_string_lossy(), &version));
    let local = |error| local_error(&part, error);
    let mut options = File::options();
    options.create(true).read(true).append(true);
    // A link of this name would lead elsewhere.
    std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, NO_FOLLOW);
    let mut file = options.open(&part).map_err(local)?;
    let mut resumed = None;
    let mut failures = 0;
    loop {
        match get_rest(
            client,
            from,
            &found,
            &mut file,
            &part,
            &mut resumed,
            progress,
        )
        .await
        {
            Err(CopyError::Server(error)) if error.kind.may_pass() && failures < ATTEMPTS => {
                tracing::debug!(%error, failures, "a part of a copy");
                tokio::time::sleep(Duration::from_secs(1 << failures)).await;
                failures += 1;
            }
            done => break done?,
        }
    }
    let size = file.metadata().map_err(local)?.len();
    let is_same_size = found.size.is_none_or(|it| it == size);
    let made = digest_of(&mut file).map_err(local)?;
    if !is_same_size || digest.as_ref().is_some_and(|it| *it != made) {
        std::fs::remove_file(&part).map_err(local)?;
        let what = if is_same_size { "checksum" } else { "size" };
        return Err(CopyError::Different {
            name: from.to_owned(),
            what,
        });
    }
    std::fs::rename(&part, to).map_err(local)?;
    Ok(copied(size, resumed.unwrap_or_default(), digest.is_some()))
}

/// `O_NOFOLLOW` of this system.
const NO_FOLLOW: i32 = rustix::fs::OFlags::NOFOLLOW.bits() as i32;

/// Appends what the part lacks.
async fn get_rest(
    client: &ServerClient,
    from: &str,
    found: &ContentsModel,
    file: &mut File,
    part: &Path,
    resumed: &mut Option<u64>,
    progress: CopyProgress<'_>,
) -> Result<(), CopyError> {
    let local = |error| local_error(part, error);
    let there = file.metadata().map_err(local)?.len();
    if found.size == Some(there) {
        resumed.get_or_insert(there);
        progress(there, there);
        return Ok(());
    }
    let (mut response, offset) = client.bytes_from(from, there).await?;
    if offset < there {
        file.set_len(offset).map_err(local)?;
    }
    resumed.get_or_insert(offset);
    let mut at = offset;
    loop {
        progress(at, found.size.unwrap_or(at));
        let chunk = tokio::time::timeout(PAUSE, response.chunk()).await;
        let failed = |reason: String| {
            let at = client.base().host_str().unwrap_or_default().to_owned();
            client.error(ServerErrorKind::Connection { at, reason })
        };
        let chunk = chunk.map_err(|_| failed("the bytes stopped".to_owned()))?;
        let chunk = chunk.map_err(|_| failed("the bytes broke off".to_owned()))?;
        let Some(chunk) = chunk else { break };
        file.write_all(&chunk).map_err(local)?;
        at += chunk.len() as u64;
        if found.size.is_some_and(|size| at > size) {
            // The comparison of sizes says so.
            break;
        }
    }
    match found.size {
        Some(size) if at < size => {
            let host = client.base().host_str().unwrap_or_default().to_owned();
            let reason = "the bytes broke off".to_owned();
            Err(client
                .error(ServerErrorKind::Connection { at: host, reason })
                .into())
        }
        _ => Ok(()),
    }
}

fn copied(size: u64, resumed: u64, is_verified: bool) -> CopiedFile {
    CopiedFile {
        size,
        resumed,
        is_verified,
    }
}

fn open_file(path: &Path) -> Result<File, CopyError> {
    let local = |error| local_error(path, error);
    if !std::fs::metadata(path).map_err(local)?.is_file() {
        return Err(not_a_file(&path.display().to_string()));
    }
    File::open(path).map_err(local)
}

fn digest_of(file: &mut File) -> std::io::Result<String> {
    file.seek(SeekFrom::Start(0))?;
    let mut digest = Sha256::new();
    let mut bytes = vec![0; 1 << 20];
    loop {
        match file.read(&mut bytes)? {
            0 => return Ok(hex::encode(digest.finalize())),
            read => digest.update(&bytes[..read]),
        }
    }
}

/// Returns the name under which a copy of this content grows.
fn part_name(name: &str, digest: &str) -> String {
    let digest: String = digest.chars().take(12).collect();
    format!("{name}.nb-part-{digest}")
}

fn local_error(path: &Path, error: std::io::Error) -> CopyError {
    CopyError::Local {
        path: path.to_owned(),
        error,
    }
}

fn not_a_file(name: &str) -> CopyError {
    CopyError::NotAFile {
        name: name.to_owned(),
    }
}

fn not_found(client: &ServerClient, path: &str) -> CopyError {
    let what = format!("the file {path}");
    client.error(ServerErrorKind::NotFound { what }).into()
}
