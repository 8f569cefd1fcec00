//! The map in `src/lib.rs` is the architecture: a module imports only what its row allows.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Reads the map's rows: a module and what it may import.
fn map() -> BTreeMap<String, Vec<String>> {
    let lib = include_str!("../../src/lib.rs");
    lib.lines()
        .filter_map(|line| line.strip_prefix("//! | [`"))
        .map(|row| {
            let (module, rest) = row.split_once("`]").expect("a row names its module");
            let imports = rest
                .trim_end_matches(" |")
                .rsplit('|')
                .next()
                .expect("a row has columns");
            let names = imports
                .split(|c: char| !c.is_ascii_lowercase())
                .filter(|word| !word.is_empty())
                .map(str::to_owned)
                .collect();
            (module.to_owned(), names)
        })
        .collect()
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("read a source folder") {
        let path = entry.expect("read a folder entry").path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn modules_import_only_what_the_map_allows() {
    let map = map();
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut faults = Vec::new();
    for (module, allowed) in &map {
        let mut files = Vec::new();
        sources(&src.join(module), &mut files);
        for file in files {
            let text = std::fs::read_to_string(&file).expect("read a source file");
            for (number, line) in text.lines().enumerate() {
                if line.trim_start().starts_with("//") {
                    continue;
                }
                for used in line.split("crate::").skip(1) {
                    let name: String = used
                        .chars()
                        .take_while(|c| c.is_ascii_lowercase() || *c == '_')
                        .collect();
                    if map.contains_key(&name) && name != *module && !allowed.contains(&name) {
                        faults.push(format!(
                            "{}:{}: {module} imports {name}",
                            file.display(),
                            number + 1
                        ));
                    }
                }
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn every_module_stands_on_the_map() {
    let map = map();
    let lib = include_str!("../../src/lib.rs");
    let declared: Vec<_> = lib
        .lines()
        .filter_map(|line| line.strip_prefix("pub mod ")?.strip_suffix(';'))
        .collect();
    assert_eq!(declared, map.keys().map(String::as_str).collect::<Vec<_>>());
}

#[test]
fn no_test_file_is_forgotten() {
    let main = include_str!("main.rs");
    for entry in std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it"))
        .expect("read tests/it")
    {
        let name = entry
            .expect("read a folder entry")
            .file_name()
            .to_string_lossy()
            .into_owned();
        let module = name.trim_end_matches(".rs");
        assert!(
            module == "main" || main.contains(&format!("mod {module};")),
            "tests/it/main.rs does not name {name}"
        );
    }
}

/// Where files of a project's folder are opened, made, renamed or removed, and what may be done there
/// without [`nb::project::beneath`]: these touch other files.
const ELSEWHERE: [(&str, &[&str]); 13] = [
    // The opening itself; folders of the user's state folder.
    ("project/beneath.rs", &["std::fs::"]),
    ("project/identity.rs", &["std::fs::"]),
    ("project/registry.rs", &["std::fs::"]),
    ("project/scratch.rs", &["std::fs::"]),
    ("project/written.rs", &["std::fs::"]),
    // On Linux it goes by descriptors of its own.
    (
        "project/remove.rs",
        &["symlink_metadata", "remove_dir_all", "remove_file"],
    ),
    ("project/save.rs", &["tempfile"]),
    // A connection file may lie anywhere.
    ("project/stranger.rs", &["std::fs::"]),
    // What stands at `.nb` itself.
    (
        "project/adopt.rs",
        &["symlink_metadata", "std::fs::Metadata"],
    ),
    ("project/folder.rs", &["std::fs::DirBuilder"]),
    ("project/journal.rs", &["std::fs::Metadata"]),
    ("project/place.rs", &["/proc/"]),
    (
        "project/lock.rs",
        &["std::fs::DirBuilder", "std::fs::metadata(path)", "/proc/"],
    ),
];

#[test]
fn files_of_the_project_are_opened_in_one_place() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    sources(&src.join("project"), &mut files);
    let mut faults = Vec::new();
    for file in files {
        let name = file
            .strip_prefix(&src)
            .expect("it is in src")
            .to_string_lossy()
            .into_owned();
        let text = std::fs::read_to_string(&file).expect("read a source file");
        let code = text.split("\nmod tests").next().unwrap_or_default();
        let code = code
            .split("\npub(super) mod tests")
            .next()
            .unwrap_or_default();
        let allowed = ELSEWHERE.iter().find(|(path, _)| *path == name);
        let allowed = allowed.map_or(&[][..], |(_, words)| words);
        for (number, line) in code.lines().enumerate() {
            let code = line.trim_start();
            let opens = ["std::fs::", "File::open", "OpenOptions", "tempfile"];
            let is_code = !code.starts_with("//") && !code.starts_with("use ");
            if is_code
                && opens.iter().any(|word| code.contains(word))
                && !allowed.iter().any(|word| code.contains(word))
            {
                faults.push(format!("{name}:{}: {code}", number + 1));
            }
        }
    }
    assert!(
        faults.is_empty(),
        "use project::beneath:\n{}",
        faults.join("\n")
    );
}
