//! The packages of an environment as text.

use crate::api::columns;
use crate::api::{Package, PackagesAnswer};

/// Returns a line for each package, or one line about what has changed.
pub fn lines(answer: &PackagesAnswer) -> Vec<String> {
    if !answer.packages.is_empty() {
        let packages = answer.packages.iter();
        let rows = packages.map(|it| [it.name.clone(), it.version.clone()]);
        return columns::lines(&rows.collect::<Vec<_>>());
    }
    let other = |these: &[Package], it: &Package| {
        let mut these = these.iter();
        these
            .find(|other| other.name == it.name)
            .map(|it| it.version.clone())
    };
    let named = |verb: &str, packages: Vec<String>| {
        (!packages.is_empty()).then(|| format!("{verb} {}", packages.join(", ")))
    };
    let (mut added, mut changed) = (Vec::new(), Vec::new());
    for it in &answer.added {
        match other(&answer.removed, it) {
            Some(before) => changed.push(format!("{} {before} → {}", it.name, it.version)),
            None => added.push(format!("{} {}", it.name, it.version)),
        }
    }
    let removed = answer
        .removed
        .iter()
        .filter(|it| other(&answer.added, it).is_none());
    let removed = removed
        .map(|it| format!("{} {}", it.name, it.version))
        .collect();
    let parts = [
        named("added", added),
        named("changed", changed),
        named("removed", removed),
    ];
    let parts: Vec<_> = parts.into_iter().flatten().collect();
    let what = match parts.is_empty() {
        true => "nothing has changed".to_owned(),
        false => parts.join("; "),
    };
    let manifest = answer.manifest.as_ref();
    let manifest = manifest.map(|it| format!(", {}", it.display()));
    vec![format!(
        "{what} · {}{}",
        answer.environment.display(),
        manifest.unwrap_or_default()
    )]
}
