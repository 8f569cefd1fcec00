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
