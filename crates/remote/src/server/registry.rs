//! The user's servers: one private file each in the state folder, and one with the server that the variables
//! `JUPYTER_GATEWAY_…` name.

use std::io;
use std::path::PathBuf;

use super::credential::forget;
use super::error::{ServerError, ServerErrorKind};
use super::gateway::server_of_variables;
use super::record::{ServerRecord, is_server_name};
use crate::kernel::variables::ProcessVariables;
use crate::project::{read_private, replace_private, user_folder};

/// The largest file of a server, in bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Returns all servers of the user, by name; the one of the variables comes first.
///
/// # Errors
/// The state folder cannot be read, or a file in it, or the variables make no sense.
pub fn servers() -> Result<Vec<ServerRecord>, ServerError> {
    let from_variables = server_of_variables(&ProcessVariables);
    let from_variables = from_variables.map_err(|kind| kind.of(super::gateway::NAME))?;
    let folder = folder().map_err(|error| setup(&error).of("registry"))?;
    let entries = std::fs::read_dir(&folder).map_err(|error| setup(&error).of("registry"))?;
    let names = entries.flatten().filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        name.strip_suffix(".json").map(str::to_owned)
    });
    let mut names: Vec<_> = names.filter(|name| is_server_name(name)).collect();
    names.sort_unstable();
    let stored = names.iter().map(|name| read(name));
    let stored: Vec<_> = stored.collect::<Result<_, _>>()?;
    let is_unused = |it: &ServerRecord| stored.iter().all(|other| other.name != it.name);
    Ok(from_variables
        .filter(is_unused)
        .into_iter()
        .chain(stored)
        .collect())
}

/// Returns the server of a name.
///
/// # Errors
/// No server has this name, or its file cannot be read.
pub fn server(name: &str) -> Result<ServerRecord, ServerError> {
    let all = servers()?;
    let record = all.iter().find(|it| it.name == name);
    record.cloned().ok_or_else(|| {
        let names: Vec<_> = all.iter().map(|it| it.name.as_str()).collect();
        let known = match names.is_empty() {
            true => "no server is known".to_owned(),
            false => format!("known are {}", names.join(", ")),
        };
        let text =
            format!("nobody added a server of this name ({known}); nb server add {name} URL");
        ServerErrorKind::Name(text).of(name)
    })
}

/// Stores a server, in place of one of the same name.
///
/// # Errors
/// The name is none, or the file cannot be written.
pub fn store(record: &ServerRecord) -> Result<(), ServerError> {
    let result = file(&record.name).and_then(|file| {
        let text = serde_json::to_vec_pretty(record)?;
        replace_private(&file, &text)
    });
    result.map_err(|error| setup(&error).of(&record.name))
}

/// Removes a server and its secrets.
///
/// # Errors
/// No server has this name, it comes from the variables, or its file cannot be removed.
pub fn remove(name: &str) -> Result<ServerRecord, ServerError> {
    let record = server(name)?;
    let result = file(name).and_then(std::fs::remove_file);
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let text = "the variables JUPYTER_GATEWAY_… name it; unset JUPYTER_GATEWAY_URL";
            return Err(ServerErrorKind::Name(text.to_owned()).of(name));
        }
        result => result.map_err(|error| setup(&error).of(name))?,
    }
    forget(&record).map_err(|kind| kind.of(name))?;
    Ok(record)
}

fn read(name: &str) -> Result<ServerRecord, ServerError> {
    let bytes = file(name).and_then(|file| read_private(&file, FILE_BYTES_MAX));
    let bytes = bytes.map_err(|error| setup(&error).of(name))?;
    let record: Result<ServerRecord, _> = serde_json::from_slice(&bytes);
    let mut record = record.map_err(|error| {
        let text =
            format!("its file in the state folder is damaged ({error}); nb server add it again");
        ServerErrorKind::Setup(text).of(name)
    })?;
    name.clone_into(&mut record.name);
    Ok(record)
}

fn file(name: &str) -> io::Result<PathBuf> {
    if !is_server_name(name) {
        let text = "a server's name has letters, digits, '-', '_' and '.'";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    Ok(folder()?.join(format!("{name}.json")))
}

fn folder() -> io::Result<PathBuf> {
    user_folder("servers")
}

fn setup(error: &io::Error) -> ServerErrorKind {
    ServerErrorKind::Setup(format!(
        "the state folder has no place for servers: {error}"
    ))
}
