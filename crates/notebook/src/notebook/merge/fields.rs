//! Merges objects by their keys, mainly metadata.

use std::collections::{BTreeMap, BTreeSet};

use crate::notebook::edit::Conflict;
use crate::notebook::json::{
    Json, Layout, Object, digest, remove_value_at, set_value_at, value_at,
};

/// Objects below this depth are merged and compared as a whole.
pub(super) const MOST_LEVELS: usize = 20;

/// Returns the file's object with the writer's changes, or `None` if there are none to make, and the
/// conflicts, whose cell the caller sets. `three` are the base's, the file's and the writer's object; outer
/// keys in `skipped` are ignored.
pub(super) fn merge_objects(
    three: [&[u8]; 3],
    name: &str,
    skipped: &[&str],
    layout: &Layout,
) -> (Option<Vec<u8>>, Vec<Conflict>) {
    let mut conflicts = Vec::new();
    let mut new: Option<Vec<u8>> = None;
    let [base, file, writer] = three.map(digest);
    if writer == base || writer == file {
        return (new, conflicts);
    }
    for_each_field(three, skipped, |path, [base, file, writer]| {
        if same(&writer, &base) || same(&writer, &file) {
            return false;
        }
        if same(&file, &base) {
            let now = new.as_deref().unwrap_or(three[1]);
            let made = match &writer {
                Some(value) => set_value_at(now, path, value, layout),
                None => remove_value_at(now, path),
            };
            new = made.or_else(|| new.take());
            return false;
        }
        if path.len() < MOST_LEVELS && is_object(&file) && is_object(&writer) {
            return true;
        }
        let text = |value: Option<Json>| value.map(|value| value.text().into_owned());
        conflicts.push(Conflict {
            field: format!("{name}.{}", path.join(".")),
            base: text(base),
            yours: text(writer),
            theirs: text(file),
            ..Conflict::default()
        });
        false
    });
    (new, conflicts)
}

/// Calls `visit` with the path of each field of some objects and its values in them. If `visit` returns
/// true, the fields of those values are visited too. Outer keys in `skipped` are not visited.
pub(super) fn for_each_field<const N: usize>(
    objects: [&[u8]; N],
    skipped: &[&str],
    mut visit: impl FnMut(&[&str], [Option<Json>; N]) -> bool,
) {
    let mut paths: Vec<Vec<String>> = vec![Vec::new()];
    while let Some(path) = paths.pop() {
        let fields = objects.map(|object| fields_at(object, &path));
        let keys: BTreeSet<&String> = fields.iter().flat_map(BTreeMap::keys).collect();
        for key in keys {
            if path.is_empty() && skipped.contains(&key.as_str()) {
                continue;
            }
            let inner: Vec<&str> = path.iter().chain([key]).map(String::as_str).collect();
            if visit(
                &inner,
                fields.each_ref().map(|fields| fields.get(key).cloned()),
            ) {
                paths.push(inner.into_iter().map(str::to_owned).collect());
            }
        }
    }
}

/// Says whether two values, of which either may be missing, have the same meaning.
pub(super) fn same(a: &Option<Json>, b: &Option<Json>) -> bool {
    let meaning = |value: &Option<Json>| value.as_ref().map(|value| digest(value.bytes()));
    meaning(a) == meaning(b)
}

pub(super) fn is_object(value: &Option<Json>) -> bool {
    let value = value.as_ref();
    value.is_some_and(|value| value.bytes().starts_with(b"{"))
}

/// Returns the fields of the object at a path; nothing if there is no object.
fn fields_at(object: &[u8], path: &[String]) -> BTreeMap<String, Json> {
    let path: Vec<&str> = path.iter().map(String::as_str).collect();
    let object = value_at(object, &path);
    let text = object.as_ref().map_or(&b""[..], Json::bytes);
    let named = Object::read(text).unwrap_or_default().by_name(text);
    let values = named.into_iter();
    values
        .map(|(name, span)| (name, Json::of_valid(span.of(text))))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merged(base: &str, file: &str, writer: &str) -> (String, Vec<String>) {
        let three = [base, file, writer].map(str::as_bytes);
        let (new, conflicts) = merge_objects(three, "metadata", &["own"], &Layout::default());
        let new = new.map_or(file.to_owned(), |new| String::from_utf8(new).unwrap());
        (
            new,
            conflicts
                .into_iter()
                .map(|conflict| conflict.field)
                .collect(),
        )
    }

    #[test]
    fn keys_merge_at_every_level() {
        for (base, file, writer, want) in [
            ("{}", "{\"a\": 1}", "{\"b\": 2}", "{\"a\": 1, \"b\": 2}"),
            ("{\"a\":1,\"b\":2}", "{\"a\":1}", "{\"b\":2}", "{}"),
            (
                "{\"a\":{\"b\":1,\"c\":1}}",
                "{\"a\":{\"b\":2,\"c\":1}}",
                "{\"a\":{\"b\":1,\"c\":3}}",
                "{\"a\":{\"b\":2,\"c\":3}}",
            ),
            (
                "{}",
                "{\"a\":{\"b\":1}}",
                "{\"a\":{\"c\":1}}",
                "{\"a\":{\"b\":1,\"c\":1}}",
            ),
            ("{\"own\":1}", "{\"own\":2}", "{\"own\":3}", "{\"own\":2}"),
            // Only outer keys are skipped.
            (
                "{\"a\":{\"own\":1}}",
                "{\"a\":{\"own\":1,\"b\":1}}",
                "{\"a\":{\"own\":2}}",
                "{\"a\":{\"own\":2,\"b\":1}}",
            ),
            (
                "{\"a\":1}",
                "{\"a\":2,\"x\":1}",
                "{\"a\":2.0}",
                "{\"a\":2,\"x\":1}",
            ),
        ] {
            assert_eq!(
                merged(base, file, writer),
                (want.into(), vec![]),
                "{base} {file} {writer}"
            );
        }
    }

    #[test]
    fn the_files_value_stays_where_both_changed_it() {
        let (new, conflicts) = merged(
            "{\"a\":{\"b\":1},\"c\":1}",
            "{\"a\":{\"b\":2},\"c\":1}",
            "{\"a\":{\"b\":3}}",
        );
        assert_eq!(
            (new.as_str(), conflicts),
            ("{\"a\":{\"b\":2}}", vec!["metadata.a.b".into()])
        );
        let (new, conflicts) = merged("{\"a\":1}", "{}", "{\"a\":2}");
        assert_eq!((new.as_str(), conflicts), ("{}", vec!["metadata.a".into()]));
    }

    #[test]
    fn an_object_and_another_value_are_not_merged_key_by_key() {
        let (object, more) = ("{\"a\":{\"b\":1}}", "{\"a\":{\"b\":1,\"c\":2}}");
        for other in ["{\"a\":5}", "{\"a\":[{\"b\":1}]}", "{}"] {
            for (file, writer) in [(more, other), (other, more)] {
                let merged = merged(object, file, writer);
                let want = (file.to_owned(), vec!["metadata.a".into()]);
                assert_eq!(merged, want, "{file} {writer}");
            }
        }
    }

    #[test]
    fn a_conflict_has_the_values_of_all_three() {
        let three = ["{\"a\":1}", "{\"a\":2}", "{\"a\":3}"].map(str::as_bytes);
        let (new, conflicts) = merge_objects(three, "metadata", &[], &Layout::default());
        let conflict = Conflict {
            field: "metadata.a".into(),
            base: Some("1".into()),
            yours: Some("3".into()),
            theirs: Some("2".into()),
            ..Conflict::default()
        };
        assert_eq!((new, conflicts), (None, vec![conflict]));
    }

    #[test]
    fn objects_below_the_last_level_are_merged_as_a_whole() {
        let nested = |inner: &str, levels| {
            let [before, after] = ["{\"k\":", "}"].map(|part: &str| part.repeat(levels));
            format!("{before}{inner}{after}")
        };
        for (levels, conflict) in [(MOST_LEVELS - 1, false), (MOST_LEVELS, true)] {
            let three = ["{}", "{\"a\":1}", "{\"b\":2}"].map(|inner| nested(inner, levels));
            let [base, file, writer] = &three;
            let (new, conflicts) = merged(base, file, writer);
            let path = vec!["k"; levels].join(".");
            assert_eq!(conflicts.len(), usize::from(conflict), "{conflicts:?}");
            assert!(conflicts.iter().all(|it| *it == format!("metadata.{path}")));
            assert_eq!(new.contains("\"b\""), !conflict, "{new}");
        }
    }
}
