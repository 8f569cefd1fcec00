//! The tokens that clients of this user's servers show.

use std::fs::Permissions;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use zeroize::Zeroizing;

use super::state_folder::{make_private, state_folder};
use super::user_file::read_private;

/// The shortest token, in characters.
const SHORTEST: usize = 32;

/// Which server's clients show a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenOf {
    /// `nb mcp --http`
    Mcp,
    /// `nb web --keep-token`
    Web,
}

/// Returns a server's token, and the file that has it. The token stays the same, so that clients can go on using it.
///
/// # Errors
/// There is no home folder, the file cannot be written or read, it is another user's or others may read it, or
/// its token is too short.
pub fn server_token(of: TokenOf) -> io::Result<(PathBuf, Zeroizing<String>)> {
    let state = state_folder().ok_or_else(|| io::Error::other("there is no home folder"))?;
    make_private(&state)?;
    let file = state.join(match of {
        TokenOf::Mcp => "mcp-token",
        TokenOf::Web => "web-token",
    });
    let token = token_in(&file)?;
    Ok((file, token))
}

fn token_in(file: &Path) -> io::Result<Zeroizing<String>> {
    match read(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        done => return done,
    }
    let random = || uuid::Uuid::new_v4().simple().to_string();
    let token = Zeroizing::new(random() + &random());
    let folder = file.parent().unwrap_or(Path::new("."));
    let mut temporary = tempfile::Builder::new()
        .permissions(Permissions::from_mode(0o600))
        .tempfile_in(folder)?;
    writeln!(temporary, "{}", token.as_str())?;
    match temporary.persist_noclobber(file) {
        Ok(_) => Ok(token),
        // Another process was first.
        Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => read(file),
        Err(error) => Err(error.error),
    }
}

fn read(file: &Path) -> io::Result<Zeroizing<String>> {
    let bytes = Zeroizing::new(read_private(file, 4096)?);
    let text = std::str::from_utf8(&bytes);
    let text = text.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
    let token = text.trim();
    if token.len() < SHORTEST {
        let text = format!("a token has at least {SHORTEST} characters");
        return Err(io::Error::new(io::ErrorKind::InvalidData, text));
    }
    Ok(Zeroizing::new(token.to_owned()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn a_token_is_made_once_and_only_its_user_may_read_it() {
        let temp = tempfile::tempdir().unwrap();
        let file = temp.path().join("token");
        let token = token_in(&file).unwrap();
        assert!(token.len() >= SHORTEST);
        assert_eq!(file.metadata().unwrap().mode() & 0o777, 0o600);
        assert_eq!(token_in(&file).unwrap(), token);
        std::fs::set_permissions(&file, Permissions::from_mode(0o640)).unwrap();
        let error = token_in(&file).unwrap_err();
        assert!(
            error.to_string().contains("other users may read it"),
            "{error}"
        );
        std::fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
        std::fs::write(&file, "short\n").unwrap();
        assert!(token_in(&file).is_err());
    }
}
