//! A kernel's variables as text.

use crate::api::VarsAnswer;
use crate::api::columns;
use crate::execution::vars::Variable;
use crate::notebook::size;

/// Returns a line for each variable, or for one that was asked for by name all that is known of it.
pub fn lines(answer: &VarsAnswer, is_one: bool) -> Vec<String> {
    if is_one {
        return answer.variables.iter().flat_map(detail).collect();
    }
    let rows: Vec<_> = answer.variables.iter().map(row).collect();
    columns::lines(&rows)
}

/// Returns what there is to know about variables that are not in the list, and the option of `nb vars` that lists them,
/// with what it does.
pub fn note(answer: &VarsAnswer) -> Option<(String, &'static str)> {
    match answer.more {
        0 if answer.variables.is_empty() => {
            let option = "--all lists functions and modules too";
            Some(("no variables".to_owned(), option))
        }
        0 => None,
        more => Some((format!("{more} more"), "--limit 0 lists all")),
    }
}

/// Returns a variable's line: name, type, shape, size, value.
fn row(it: &Variable) -> [String; 5] {
    let size = it.size.map(size).unwrap_or_default();
    let mut value = one_line(it.value.as_deref().unwrap_or_default());
    if let (Some(dtype), None) = (&it.dtype, &it.columns) {
        value = format!("{dtype} {value}");
    }
    [it.name.clone(), class(it), shape(it), size, value]
}

fn detail(it: &Variable) -> Vec<String> {
    let mut lines = vec![format!("{}: {}", it.name, class(it))];
    let size = it.size.map(size).unwrap_or_default();
    let dtype = it.dtype.clone().unwrap_or_default();
    let len = if it.shape.is_some() { "shape" } else { "len" };
    for (label, text) in [(len, shape(it)), ("dtype", dtype), ("size", size)] {
        if !text.is_empty() {
            lines.push(format!("{label:<6} {text}"));
        }
    }
    let columns = it.columns.iter().flatten();
    let rows: Vec<_> = columns
        .map(|it| [format!("  {}", it.name), it.dtype.clone()])
        .collect();
    lines.extend(columns::lines(&rows));
    let value = it.value.iter().flat_map(|value| value.lines());
    lines.extend(value.map(|line| format!("  {line}")));
    lines
}

/// Returns a class's name with its library; for Python's own classes only the name.
fn class(it: &Variable) -> String {
    let library = it.module.split('.').next().unwrap_or_default();
    match library {
        "" | "builtins" | "__main__" => it.class.clone(),
        library => format!("{library}.{}", it.class),
    }
}

fn shape(it: &Variable) -> String {
    match (&it.shape, it.len) {
        (Some(shape), _) if shape.is_empty() => "()".to_owned(),
        (Some(shape), _) => {
            let sides: Vec<_> = shape.iter().map(ToString::to_string).collect();
            sides.join("×")
        }
        (None, Some(len)) => len.to_string(),
        (None, None) => String::new(),
    }
}

fn one_line(text: &str) -> String {
    text.split(['\n', '\r']).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_tells_what_it_is() {
        let table = Variable {
            name: "df".to_owned(),
            class: "DataFrame".to_owned(),
            module: "pandas.core.frame".to_owned(),
            shape: Some(vec![1000, 3]),
            columns: Some(Vec::new()),
            size: Some(24_128),
            value: Some("id, name\nprice".to_owned()),
            ..Variable::default()
        };
        assert_eq!(
            row(&table),
            [
                "df",
                "pandas.DataFrame",
                "1000×3",
                "24 kB",
                "id, name price"
            ]
        );
        let array = Variable {
            name: "a".to_owned(),
            class: "list".to_owned(),
            module: "builtins".to_owned(),
            len: Some(2),
            dtype: Some("int8".to_owned()),
            value: Some("[1]".to_owned()),
            ..Variable::default()
        };
        assert_eq!(row(&array), ["a", "list", "2", "", "int8 [1]"]);
    }
}
