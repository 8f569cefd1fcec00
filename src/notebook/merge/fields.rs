//! Objects merged by their keys, metadata above all.

use std::collections::BTreeMap;

use crate::notebook::edit::Conflict;
use crate::notebook::json::{
    Json, Layout, Object, digest, remove_value_at, set_value_at, value_at,
};

/// Objects deeper than this are merged, and compared, whole.
pub(super) const MOST_LEVELS: usize = 20;

/// Returns the file's object with the writer's changes, or none where there are none to make, and
/// what both changed differently, without saying of which cell. The three are the base's, the
/// file's and the writer's; `skipped` are outer keys that are no part of this.
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
    let mut paths: Vec<Vec<String>> = vec![Vec::new()];
    while let Some(path) = paths.pop() {
        let outer: Vec<&str> = path.iter().map(String::as_str).collect();
        let fields = three.map(|object| fields_at(object, &outer));
        let [base, _, writer] = &fields;
        for key in writer
            .keys()
            .chain(base.keys().filter(|key| !writer.contains_key(*key)))
        {
            if path.is_empty() && skipped.contains(&key.as_str()) {
                continue;
            }
            let [base, file, writer] = [0, 1, 2].map(|side: usize| fields[side].get(key).cloned());
            if same(&writer, &base) || same(&writer, &file) {
                continue;
            }
            let mut inner = outer.clone();
            inner.push(key);
            if same(&file, &base) {
                let now = new.as_deref().unwrap_or(three[1]);
                let made = match &writer {
                    Some(value) => set_value_at(now, &inner, value, layout),
                    None => remove_value_at(now, &inner),
                };
                new = made.or(new);
            } else if is_object(&file) && is_object(&writer) && inner.len() < MOST_LEVELS {
                paths.push(inner.into_iter().map(str::to_owned).collect());
            } else {
                let text = |value: Option<Json>| value.map(|value| value.text().into_owned());
                conflicts.push(Conflict {
                    field: format!("{name}.{}", inner.join(".")),
                    base: text(base),
                    yours: text(writer),
                    theirs: text(file),
                    ..Conflict::default()
                });
            }
        }
    }
    (new, conflicts)
}

/// Returns whether two values, of which either may be missing, mean the same.
pub(super) fn same(a: &Option<Json>, b: &Option<Json>) -> bool {
    let meaning = |value: &Option<Json>| value.as_ref().map(|value| digest(value.bytes()));
    meaning(a) == meaning(b)
}

pub(super) fn is_object(value: &Option<Json>) -> bool {
    let value = value.as_ref();
    value.is_some_and(|value| value.bytes().starts_with(b"{"))
}

/// Returns the values of the object that a path leads to; none where it leads to something else.
fn fields_at(object: &[u8], path: &[&str]) -> BTreeMap<String, Json> {
    let object = value_at(object, path);
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
}
