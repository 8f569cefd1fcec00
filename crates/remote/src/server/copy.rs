//! Files copied to a server and back.
//!
//! A copy grows under a name of its own, which has a digest of the content in it: a copy that was broken off goes
//! on where it was, also in a later run, and never on top of another content. When it is complete its size and,
//! where the server reports one, its checksum are compared; only then it gets its name.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use sha2::{Digest, Sha256};

use super::client::ServerClient;
use super::error::{ServerError, ServerErrorKind};
use super::models::ContentsModel;

/// How many bytes one request writes.
const PART_BYTES: usize = 4 << 20;

/// How often in a row a copy goes on after a failure.
const RETRIES_MAX: u32 = 6;

/// How long the bytes of a download may pause.
const CHUNK_TIMEOUT: Duration = Duration::from_secs(60);

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
    /// The source is not a regular file.
    #[error("{name} is not a file; nb cp copies files, not folders")]
    NotAFile {
        /// The name.
        name: String,
    },
    /// The copy differs from the original.
    #[error(
        "the copy of {name} is not the same ({difference}): it changed meanwhile, or somebody else wrote the copy; copy it again"
    )]
    Different {
        /// The name.
        name: String,
        /// What differs.
        difference: &'static str,
    },
}

/// A function that gets the number of bytes copied so far, and the size of the file.
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
    let to_local = |error| local_error(from, error);
    let mut file = open_file(from)?;
    let size = file.metadata().map_err(to_local)?.len();
    let digest = digest_of(&mut file).map_err(to_local)?;
    let is_same = |entry: &ContentsModel| entry.sha256() == Some(&*digest);
    let existing = client.entry_with_hash(to).await?;
    match &existing {
        Some(entry) if entry.is_folder() => return Err(not_a_file(to)),
        Some(entry) if is_same(entry) => {
            progress(size, size);
            return Ok(copied_file(size, size, true));
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
        let result =
            upload_parts(client, &mut file, from, &part, size, &mut resumed, progress).await;
        match result {
            Err(CopyError::Server(error))
                if may_succeed_later(&error.kind) && failures < RETRIES_MAX =>
            {
                tracing::debug!(%error, failures, "a part of a copy");
                tokio::time::sleep(Duration::from_secs(1 << failures)).await;
                failures += 1;
            }
            result => break result?,
        }
    }
    let copy = client.entry_with_hash(&part).await?;
    let checksum = copy.as_ref().and_then(ContentsModel::sha256);
    let is_same_size = copy.as_ref().and_then(|it| it.size) == Some(size);
    if !is_same_size || checksum.is_some_and(|it| it != digest) {
        client.remove_file(&part).await?;
        let difference = if is_same_size { "checksum" } else { "size" };
        return Err(CopyError::Different {
            name: to.to_owned(),
            difference,
        });
    }
    if existing.is_some() {
        client.remove_file(to).await?;
    }
    client.rename(&part, to).await?;
    Ok(copied_file(
        size,
        resumed.unwrap_or_default(),
        checksum.is_some(),
    ))
}

/// Returns whether the same request may succeed later: not one of which the server itself says why it fails.
fn may_succeed_later(kind: &ServerErrorKind) -> bool {
    match kind {
        ServerErrorKind::Internal {
            status: 500,
            message,
        } => message.is_empty(),
        kind => kind.is_transient(),
    }
}

/// Uploads the bytes that the server's part lacks.
async fn upload_parts(
    client: &ServerClient,
    file: &mut File,
    from: &Path,
    part: &str,
    size: u64,
    resumed: &mut Option<u64>,
    progress: CopyProgress<'_>,
) -> Result<(), CopyError> {
    let existing = client.entry(part).await?;
    // A longer part has bytes that another client appended.
    let existing = existing
        .and_then(|it| it.size)
        .filter(|existing| *existing <= size);
    let mut offset = existing.unwrap_or(0);
    resumed.get_or_insert(offset);
    let mut bytes = vec![0; PART_BYTES];
    loop {
        progress(offset, size);
        if offset == size && (size > 0 || existing.is_some()) {
            return Ok(());
        }
        let to_local = |error| local_error(from, error);
        file.seek(SeekFrom::Start(offset)).map_err(to_local)?;
        let count = usize::try_from(size - offset)
            .unwrap_or(PART_BYTES)
            .min(PART_BYTES);
        file.read_exact(&mut bytes[..count]).map_err(to_local)?;
        match offset {
            0 => client.write_first(part, &bytes[..count]).await?,
            _ => client.append(part, &bytes[..count]).await?,
        }
        offset += count as u64;
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
    let entry = client.entry_with_hash(from).await?;
    let entry = entry.ok_or_else(|| not_found(client, from))?;
    if entry.is_folder() {
        return Err(not_a_file(from));
    }
    let digest = entry.sha256().map(str::to_owned);
    if let Ok(mut existing) = File::open(to) {
        let to_local = |error| local_error(to, error);
        let is_same =
            digest.is_some() && digest == Some(digest_of(&mut existing).map_err(to_local)?);
        if is_same {
            let size = existing.metadata().map_err(to_local)?.len();
            progress(size, size);
            return Ok(copied_file(size, size, true));
        }
        if !force {
            let name = to.display().to_string();
            return Err(CopyError::Exists { name });
        }
    }
    let version = digest.clone().unwrap_or_else(|| {
        let text = format!("{:?} {:?}", entry.size, entry.last_modified);
        hex::encode(Sha256::digest(text))
    });
    let part = PathBuf::from(part_name(&to.to_string_lossy(), &version));
    let to_local = |error| local_error(&part, error);
    let mut options = File::options();
    options.create(true).read(true).append(true);
    // A link of this name would point to another file.
    std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, NO_FOLLOW);
    let mut file = options.open(&part).map_err(to_local)?;
    let mut resumed = None;
    let mut failures = 0;
    loop {
        match download_rest(
            client,
            from,
            &entry,
            &mut file,
            &part,
            &mut resumed,
            progress,
        )
        .await
        {
            Err(CopyError::Server(error))
                if may_succeed_later(&error.kind) && failures < RETRIES_MAX =>
            {
                tracing::debug!(%error, failures, "a part of a copy");
                tokio::time::sleep(Duration::from_secs(1 << failures)).await;
                failures += 1;
            }
            result => break result?,
        }
    }
    let size = file.metadata().map_err(to_local)?.len();
    let is_same_size = entry.size.is_none_or(|it| it == size);
    let copy = digest_of(&mut file).map_err(to_local)?;
    if !is_same_size || digest.as_ref().is_some_and(|it| *it != copy) {
        std::fs::remove_file(&part).map_err(to_local)?;
        let difference = if is_same_size { "checksum" } else { "size" };
        return Err(CopyError::Different {
            name: from.to_owned(),
            difference,
        });
    }
    std::fs::rename(&part, to).map_err(to_local)?;
    Ok(copied_file(
        size,
        resumed.unwrap_or_default(),
        digest.is_some(),
    ))
}

/// `O_NOFOLLOW` of this system.
const NO_FOLLOW: i32 = rustix::fs::OFlags::NOFOLLOW.bits() as i32;

/// Downloads the bytes that the part lacks.
async fn download_rest(
    client: &ServerClient,
    from: &str,
    entry: &ContentsModel,
    file: &mut File,
    part: &Path,
    resumed: &mut Option<u64>,
    progress: CopyProgress<'_>,
) -> Result<(), CopyError> {
    let to_local = |error| local_error(part, error);
    let existing = file.metadata().map_err(to_local)?.len();
    if entry.size == Some(existing) {
        resumed.get_or_insert(existing);
        progress(existing, existing);
        return Ok(());
    }
    let (mut response, mut offset) = client.bytes_from(from, existing).await?;
    if offset < existing {
        file.set_len(offset).map_err(to_local)?;
    }
    resumed.get_or_insert(offset);
    loop {
        progress(offset, entry.size.unwrap_or(offset));
        let chunk = tokio::time::timeout(CHUNK_TIMEOUT, response.chunk()).await;
        let connection_error = |reason: String| {
            let at = client.base().host_str().unwrap_or_default().to_owned();
            client.error(ServerErrorKind::Connection { at, reason })
        };
        let chunk = chunk.map_err(|_| connection_error("the bytes stopped".to_owned()))?;
        let chunk = chunk.map_err(|_| connection_error("the bytes broke off".to_owned()))?;
        let Some(chunk) = chunk else { break };
        file.write_all(&chunk).map_err(to_local)?;
        offset += chunk.len() as u64;
        if entry.size.is_some_and(|size| offset > size) {
            // The comparison of sizes reports the difference.
            break;
        }
    }
    match entry.size {
        Some(size) if offset < size => {
            let host = client.base().host_str().unwrap_or_default().to_owned();
            let reason = "the bytes broke off".to_owned();
            Err(client
                .error(ServerErrorKind::Connection { at: host, reason })
                .into())
        }
        _ => Ok(()),
    }
}

fn copied_file(size: u64, resumed: u64, is_verified: bool) -> CopiedFile {
    CopiedFile {
        size,
        resumed,
        is_verified,
    }
}

fn open_file(path: &Path) -> Result<File, CopyError> {
    let to_local = |error| local_error(path, error);
    if !std::fs::metadata(path).map_err(to_local)?.is_file() {
        return Err(not_a_file(&path.display().to_string()));
    }
    File::open(path).map_err(to_local)
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
    let subject = format!("the file {path}");
    client.error(ServerErrorKind::NotFound { subject }).into()
}
