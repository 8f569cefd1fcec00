//! The dependencies of `nb` comply with `deny.toml`: licences, sources, bans, one version of each.
//!
//! `cargo deny` reads the same file and checks more; this test needs no installed tool.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// Returns what `cargo metadata` says of this package and of all its dependencies.
fn metadata() -> Value {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version=1", "--locked", "--offline"])
        // Dependencies of other systems are not downloaded here.
        .args(["--filter-platform", "host-tuple"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("run cargo metadata");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    serde_json::from_slice(&output.stdout).expect("it is JSON")
}

fn deny() -> toml::Table {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("deny.toml");
    let text = std::fs::read_to_string(path).expect("read deny.toml");
    toml::from_str(&text).expect("it is TOML")
}

fn words<'a>(list: &'a toml::Value, field: Option<&str>) -> Vec<&'a str> {
    let list = list.as_array().expect("a list").iter();
    let words = list.map(|entry| match field {
        Some(field) => entry.get(field).and_then(toml::Value::as_str),
        None => entry.as_str(),
    });
    words.map(|word| word.expect("a word")).collect()
}

/// Returns the names and versions of the packages that are built for a user with these options of cargo: without tests and
/// benches. `cargo metadata` also has optional packages that are not built.
fn built(options: &[&str]) -> BTreeSet<(String, String)> {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--locked", "--offline", "--edges=normal,build"])
        .args(["--prefix=none", "--format={p}"])
        .args(options)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("run cargo tree");
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    let words = text.lines().map(str::split_whitespace);
    let packages = words.filter_map(|mut words| {
        let name = words.next()?.to_owned();
        Some((name, words.next()?.strip_prefix('v')?.to_owned()))
    });
    packages.collect()
}

#[test]
fn nb_proxy_needs_no_client_of_servers_no_web_server_and_no_python_parser() {
    let packages = built(&["--package=nb-proxy", "--no-default-features"]);
    let names: BTreeSet<_> = packages.iter().map(|(name, _)| name.as_str()).collect();
    assert!(names.contains("nb-core"), "{names:?}");
    for heavy in [
        "axum",
        "clap",
        "html2text",
        "image",
        "reqwest",
        "rmcp",
        "rustls",
        "zbus",
    ] {
        assert!(!names.contains(heavy), "{heavy}: {names:?}");
    }
    let ruff = names.iter().find(|name| name.starts_with("ruff"));
    assert_eq!(ruff, None);
}

#[test]
fn what_nb_is_built_of_keeps_to_the_rules() {
    let (metadata, deny, built) = (metadata(), deny(), built(&[]));
    let licences = words(&deny["licenses"]["allow"], None);
    let banned = words(&deny["bans"]["deny"], Some("crate"));
    let twice = words(&deny["bans"]["skip"], Some("crate"));
    let mut faults = Vec::new();
    let mut registries = BTreeSet::new();
    let mut versions: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for package in metadata["packages"].as_array().expect("a list") {
        let text = |field: &str| package[field].as_str();
        let name = text("name").expect("a name");
        match text("source") {
            None => assert!(name.starts_with("nb-"), "{name} has no source"),
            Some(source) if source.starts_with("registry+") => _ = registries.insert(source),
            Some(source) => faults.push(format!("{name} comes from {source}")),
        }
        let licence = text("license").unwrap_or_default();
        let expression = spdx::Expression::parse_mode(licence, spdx::ParseMode::LAX);
        let is_allowed = expression.is_ok_and(|expression| {
            expression.evaluate(|wanted| {
                let name = wanted.license.id().map(|id| id.name.to_owned());
                let name = match (name, &wanted.addition) {
                    (Some(name), Some(addition)) => Some(format!("{name} WITH {addition}")),
                    (name, _) => name,
                };
                name.is_some_and(|name| licences.contains(&&*name))
            })
        });
        if !is_allowed {
            faults.push(format!("{name} has the licence {licence:?}"));
        }
        if banned.contains(&name) {
            faults.push(format!("{name} is banned"));
        }
        let version = text("version").expect("a version");
        if built.contains(&(name.to_owned(), version.to_owned())) {
            versions.entry(name).or_default().push(version);
        }
    }
    for (name, found) in versions {
        let is_known = |version: &&&str| {
            // Versions with the same first number that is not 0 are compatible.
            let numbers = if version.starts_with("0.") { 2 } else { 1 };
            let numbers: Vec<_> = version.split('.').take(numbers).collect();
            twice.contains(&&*format!("{name}@{}", numbers.join(".")))
        };
        let unknown = found.iter().filter(|version| !is_known(version)).count();
        if unknown > 1 {
            faults.push(format!("{name} is there in the versions {found:?}"));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert_eq!(registries.len(), 1, "{registries:?}");
}

/// Returns the packages of a `Cargo.lock`, with their versions.
fn locked(path: &str) -> BTreeSet<(String, String)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    let text = std::fs::read_to_string(path).expect("read the lock file");
    let lock: toml::Table = toml::from_str(&text).expect("it is TOML");
    let packages = lock["package"].as_array().expect("a list").iter();
    let of_registry = packages.filter(|package| package.get("source").is_some());
    let text = |package: &toml::Value, field: &str| package[field].as_str().map(str::to_owned);
    of_registry
        .filter_map(|package| Some((text(package, "name")?, text(package, "version")?)))
        .collect()
}

#[test]
fn the_pure_parts_are_measured_with_the_packages_that_nb_is_built_of() {
    let (nb, pure) = (locked("Cargo.lock"), locked("benches/pure/Cargo.lock"));
    let others: Vec<_> = pure.difference(&nb).collect();
    assert!(
        others.is_empty(),
        "{others:?}; to mend it: cp Cargo.lock benches/pure, then run that bench"
    );
}
