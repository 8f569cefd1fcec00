//! The secrets of a server: where they are stored, and the headers that requests get from them.
//!
//! Secrets lie in a private file of the state folder. A command's output is stored nowhere.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::io::AsyncReadExt;
use zeroize::{Zeroize, Zeroizing};

use super::error::ServerErrorKind;
use super::gateway::headers_of_variables;
use super::headers::CredentialHeaders;
use super::record::{CredentialSource, SecretPlace, ServerRecord};
use super::secret::Secret;
use crate::kernel::variables::ProcessVariables;
use crate::project::{read_private, replace_private, user_folder};

/// The largest token, or output of a command, in bytes.
const SECRET_BYTES_MAX: u64 = 64 << 10;

/// How long a command may run: it may ask its user for a password.
const COMMAND_DEADLINE: Duration = Duration::from_secs(60);

/// The secrets of a server, as they are stored.
#[derive(Default, Serialize, Deserialize)]
pub struct StoredSecrets {
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<String>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
}

impl StoredSecrets {
    /// Makes the secrets from a token and the values of headers.
    pub fn new(token: Option<&Secret>, headers: &[(String, Secret)]) -> Self {
        let values = headers.iter();
        let values = values.map(|(name, value)| (name.clone(), value.expose().to_owned()));
        Self {
            token: token.map(|token| token.expose().to_owned()),
            headers: values.collect(),
        }
    }

    fn is_empty(&self) -> bool {
        self.token.is_none() && self.headers.is_empty()
    }
}

impl Drop for StoredSecrets {
    fn drop(&mut self) {
        self.token.zeroize();
        self.headers.values_mut().for_each(Zeroize::zeroize);
    }
}

/// Stores the secrets of a server, in place of earlier ones; returns where.
///
/// # Errors
/// The state folder does not take them.
pub fn keep(name: &str, secrets: &StoredSecrets) -> Result<SecretPlace, ServerErrorKind> {
    let file = file(name).map_err(|error| unusable(&error))?;
    if secrets.is_empty() {
        remove_file(&file)?;
        return Ok(SecretPlace::Nowhere);
    }
    let text = serde_json::to_string(secrets).map_err(io::Error::from);
    let text = Zeroizing::new(text.map_err(|error| unusable(&error))?);
    replace_private(&file, text.as_bytes()).map_err(|error| unusable(&error))?;
    Ok(SecretPlace::File)
}

/// Removes the secrets of a server.
///
/// # Errors
/// They cannot be removed.
pub fn forget(record: &ServerRecord) -> Result<(), ServerErrorKind> {
    remove_file(&file(&record.name).map_err(|error| unusable(&error))?)
}

/// Returns the headers of a server's requests.
///
/// # Errors
/// A secret cannot be had.
pub(super) async fn load(record: &ServerRecord) -> Result<CredentialHeaders, ServerErrorKind> {
    match &record.credential {
        CredentialSource::Variables => headers_of_variables(&ProcessVariables),
        _ => load_with(record, &stored(record).await?).await,
    }
}

/// Returns the headers of a server's requests, from secrets that need not be stored.
///
/// # Errors
/// A secret cannot be had.
pub(super) async fn load_with(
    record: &ServerRecord,
    secrets: &StoredSecrets,
) -> Result<CredentialHeaders, ServerErrorKind> {
    let mut headers = headers_of(secrets)?;
    if record.credential == CredentialSource::Nothing && secrets.is_empty() {
        headers.add_xsrf()?;
    }
    if let CredentialSource::Command { command } = &record.credential {
        headers.add_token(&secret_of_command("token command", command).await?)?;
    }
    Ok(headers)
}

/// Returns newer headers where there may be some: by the command, or from the file that had the token.
pub(super) async fn renewed(
    record: &ServerRecord,
    refused: &CredentialHeaders,
) -> Result<Option<CredentialHeaders>, ServerErrorKind> {
    let newer = match &record.credential {
        CredentialSource::Command { .. } => load(record).await?,
        CredentialSource::Stored {
            token_file: Some(file),
            ..
        } => {
            let mut headers = refused.clone();
            match token_in(file) {
                Ok(token) => headers.add_token(&token)?,
                // The user may have removed it: its token is stored.
                Err(_) => return Ok(None),
            }
            headers
        }
        // `nb server add --replace` may have stored another one meanwhile.
        CredentialSource::Stored { .. } if record.secrets != SecretPlace::Nowhere => {
            load(record).await?
        }
        CredentialSource::Stored { .. }
        | CredentialSource::Nothing
        | CredentialSource::Variables => return Ok(None),
    };
    Ok((newer != *refused).then_some(newer))
}

/// Reads a token from a private file.
///
/// # Errors
/// The file cannot be read, others may read it, or it has no token.
pub fn token_in(file: &Path) -> Result<Secret, ServerErrorKind> {
    let read_error = |error: io::Error| {
        ServerErrorKind::Credential(format!("{} cannot be read: {error}", file.display()))
    };
    let bytes = Zeroizing::new(read_private(file, SECRET_BYTES_MAX).map_err(read_error)?);
    first_line(&bytes, &file.display().to_string())
}

fn first_line(bytes: &[u8], source: &str) -> Result<Secret, ServerErrorKind> {
    let text = std::str::from_utf8(bytes).unwrap_or_default();
    let line = text.lines().map(str::trim).find(|line| !line.is_empty());
    let line = line.ok_or_else(|| ServerErrorKind::Credential(format!("{source} has none")))?;
    Ok(Secret::new(line))
}

/// Returns the first line that a command prints. `what` names the command in errors.
///
/// # Errors
/// The command fails, prints nothing, or does not end within a minute.
pub async fn secret_of_command(what: &str, command: &str) -> Result<Secret, ServerErrorKind> {
    // What the command prints may be secret, also on stderr.
    let failed = |reason: String| {
        ServerErrorKind::Credential(format!("the {what} {reason}; run it by hand: {command}"))
    };
    let child = tokio::process::Command::new("/bin/sh")
        .args(["-c", command])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn();
    let mut child = child.map_err(|error| failed(format!("cannot be started: {error}")))?;
    let output = child.stdout.take();
    let result = tokio::time::timeout(COMMAND_DEADLINE, async {
        let mut output_bytes = Zeroizing::new(Vec::new());
        if let Some(output) = output {
            output
                .take(SECRET_BYTES_MAX)
                .read_to_end(&mut output_bytes)
                .await?;
        }
        Ok::<_, io::Error>((child.wait().await?, output_bytes))
    });
    let (status, output_bytes) = match result.await {
        Ok(result) => result.map_err(|error| failed(format!("failed: {error}")))?,
        Err(_) => {
            let seconds = COMMAND_DEADLINE.as_secs();
            return Err(failed(format!("does not end within {seconds} s")));
        }
    };
    match status.success() {
        true => first_line(&output_bytes, &format!("the output of the {what}")),
        false => Err(failed(format!("failed ({status})"))),
    }
}

fn headers_of(secrets: &StoredSecrets) -> Result<CredentialHeaders, ServerErrorKind> {
    let mut headers = CredentialHeaders::default();
    if let Some(token) = &secrets.token {
        headers.add_token(&Secret::new(token.as_str()))?;
    }
    for (name, value) in &secrets.headers {
        headers.add(name, value)?;
    }
    Ok(headers)
}

async fn stored(record: &ServerRecord) -> Result<StoredSecrets, ServerErrorKind> {
    let (name, storage) = (record.name.clone(), record.secrets);
    let read = tokio::task::spawn_blocking(move || stored_in(storage, &name)).await;
    read.map_err(|error| ServerErrorKind::Credential(error.to_string()))?
}

fn stored_in(storage: SecretPlace, name: &str) -> Result<StoredSecrets, ServerErrorKind> {
    let text = match storage {
        SecretPlace::Nowhere => return Ok(StoredSecrets::default()),
        SecretPlace::File => {
            let text = file(name).and_then(|file| read_private(&file, SECRET_BYTES_MAX));
            Zeroizing::new(text.map_err(|error| unusable(&error))?)
        }
    };
    serde_json::from_slice(&text)
        .map_err(|_| ServerErrorKind::Credential("what is stored is damaged".to_owned()))
}

fn file(name: &str) -> io::Result<PathBuf> {
    Ok(user_folder("servers")?.join(format!("{name}.secret")))
}

fn remove_file(file: &Path) -> Result<(), ServerErrorKind> {
    match std::fs::remove_file(file) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(unusable(&error)),
        _ => Ok(()),
    }
}

fn unusable(error: &io::Error) -> ServerErrorKind {
    ServerErrorKind::Setup(format!("secrets cannot be stored or read: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_becomes_a_header_that_debug_does_not_show() {
        let secrets = StoredSecrets::new(
            Some(&Secret::new("sesame-open")),
            &[("X-Api".to_owned(), Secret::new("sesame-two"))],
        );
        let headers = headers_of(&secrets).unwrap();
        assert_eq!(headers.get("authorization"), Some("token sesame-open"));
        assert_eq!(headers.get("x-api"), Some("sesame-two"));
        let shown = format!("{headers:?} {:?}", headers.map());
        assert!(!shown.contains("sesame"), "{shown}");
        let text = headers.redact("the token sesame-open is wrong".to_owned());
        assert_eq!(text, "the token … is wrong");
        let mut headers = CredentialHeaders::default();
        headers.add_token(&Secret::new("Bearer abc")).unwrap();
        assert_eq!(headers.get("authorization"), Some("Bearer abc"));
        let error = headers.add_token(&Secret::new("sesame\0")).unwrap_err();
        assert!(!error.to_string().contains("sesame"), "{error}");
    }

    #[tokio::test]
    async fn the_error_of_a_token_command_does_not_contain_its_output() {
        let of_command = async |command| secret_of_command("token command", command).await;
        let token = of_command("printf '\\n abc \\nmore'").await.unwrap();
        assert_eq!(token.expose(), "abc");
        for command in ["echo sesame; exit 3", "exec 1>&-", "echo"] {
            let error = of_command(command).await.unwrap_err().to_string();
            assert!(error.contains("token command"), "{error}");
            assert!(!error.replace(command, "").contains("sesame"), "{error}");
        }
    }
}
