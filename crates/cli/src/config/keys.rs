//! Finds unknown keys in a file, and suggests the intended ones.
use super::document::Document;
use outlast::Error;
use serde_json::{Map, Value};
use toml::Spanned;
use toml::de::DeValue;

/// Returns an error for every unknown key of a file, in file order.
pub(crate) fn unknown(document: &Document, schema: &Value) -> Result<Vec<Error>, Error> {
    let root = document.root()?;
    let mut search = UnknownKeySearch { document, schema, found: Vec::new() };
    search.look(&root, schema, &mut Vec::new());
    search.found.sort_by_key(|(at, _)| *at);
    Ok(search.found.into_iter().map(|(_, error)| error).collect())
}

/// Fails at the first unknown key of a file.
pub(crate) fn check(document: &Document, schema: &Value) -> Result<(), Error> {
    unknown(document, schema)?.into_iter().next().map_or(Ok(()), Err)
}

struct UnknownKeySearch<'a> {
    document: &'a Document,
    schema: &'a Value,
    found: Vec<(usize, Error)>,
}

impl<'a> UnknownKeySearch<'a> {
    /// Checks a value against its schema. If the schema has alternatives, only one of them has keys.
    fn look(&mut self, value: &Spanned<DeValue<'_>>, schema: &'a Value, way: &mut Vec<String>) {
        let schema = self.with_keys(schema);
        match value.get_ref() {
            DeValue::Array(list) => {
                if let Some(items) = schema.get("items") {
                    for value in list {
                        self.look(value, items, way);
                    }
                }
            }
            DeValue::Table(table) => {
                let known = schema.get("properties").and_then(Value::as_object);
                let others = schema.get("additionalProperties");
                for (name, value) in table {
                    let key: &str = name.get_ref();
                    let of_key = known.and_then(|known| known.get(key));
                    if let Some(schema) = of_key.or_else(|| others.filter(|others| others.is_object())) {
                        way.push(key.to_owned());
                        self.look(value, schema, way);
                        way.pop();
                    } else if others == Some(&Value::Bool(false)) {
                        let what = complaint(key, known, way);
                        let at = name.span().start;
                        self.found.push((at, self.document.wrong(at, &what)));
                    }
                }
            }
            _ => {}
        }
    }

    /// Resolves references, and picks the alternative that has keys.
    fn with_keys(&self, schema: &'a Value) -> &'a Value {
        if let Some(reference) = schema.get("$ref").and_then(Value::as_str) {
            let target = reference.strip_prefix('#').and_then(|pointer| self.schema.pointer(pointer));
            return target.map_or(schema, |target| self.with_keys(target));
        }
        let forms = ["anyOf", "oneOf"].iter().find_map(|forms| schema.get(forms)?.as_array());
        let forms = forms.into_iter().flatten().map(|form| self.with_keys(form));
        let has_keys = |form: &&Value| {
            ["properties", "additionalProperties", "items"].iter().any(|key| form.get(key).is_some())
        };
        forms.into_iter().find(has_keys).unwrap_or(schema)
    }
}

fn complaint(key: &str, known: Option<&Map<String, Value>>, way: &[String]) -> String {
    let names: Vec<&str> = known.into_iter().flat_map(Map::keys).map(String::as_str).collect();
    let place = if way.is_empty() { String::new() } else { format!(" in `{}`", way.join(".")) };
    match nearest(key, &names) {
        Some(meant) => format!("unknown key `{key}`{place}; did you mean `{meant}`?"),
        None => format!("unknown key `{key}`{place}; the keys are: {}", names.join(", ")),
    }
}

/// Returns the closest name, if at most a third of its characters differ.
pub(crate) fn nearest<'n>(written: &str, names: &[&'n str]) -> Option<&'n str> {
    let near = names.iter().map(|name| (distance(written, name), *name)).min()?;
    (near.0 <= (near.1.chars().count().max(3) / 3).max(1)).then_some(near.1)
}

/// Returns the edit distance: insertions, deletions, substitutions, and swaps of neighbours.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows = vec![(0..=b.len()).collect::<Vec<usize>>()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let same = usize::from(a[i - 1] != b[j - 1]);
            let mut least = (rows[i - 1][j] + 1).min(row[j - 1] + 1).min(rows[i - 1][j - 1] + same);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                least = least.min(rows[i - 2][j - 2] + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_key_is_suggested_for_a_typo() {
        let names = ["system", "model", "model_calls", "then", "key"];
        for (written, meant) in [
            ("sistem", Some("system")),
            ("modle", Some("model")),
            ("model_call", Some("model_calls")),
            ("thn", Some("then")),
            ("kye", Some("key")),
            ("rocket", None),
            ("", None),
        ] {
            assert_eq!(nearest(written, &names), meant, "{written}");
        }
        assert_eq!(nearest("x", &[]), None);
    }
}
