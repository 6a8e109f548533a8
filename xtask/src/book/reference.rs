//! Generates the reference of the book: commands, keys of `outlast.toml`, the HTTP API and error codes.
use super::Pages;
use crate::markdown;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

const METHODS: [&str; 5] = ["get", "put", "post", "patch", "delete"];

/// Returns the page of the commands, from the output of `outlast man --markdown`.
pub(super) fn commands(sections: &str) -> String {
    let mut page =
        "# Commands\n\nGenerated from the program. `outlast help COMMAND` prints the same text.\n\n"
            .to_owned();
    let mut in_fence = false;
    for line in sections.lines() {
        in_fence ^= line.starts_with("```");
        page.push_str(&if in_fence { line.to_owned() } else { escape_html(line) });
        page.push('\n');
    }
    page
}

/// Returns the list of the error codes, each with what happened.
pub(super) fn errors(pages: &Pages) -> String {
    let mut list =
        "# Error codes\n\nEvery error has one of these codes. `outlast explain CODE` prints its page.\n\n\
                    | code | what happened |\n|---|---|\n"
            .to_owned();
    for (path, text) in pages.iter().filter(|(path, _)| path.starts_with("docs/errors/")) {
        let code = markdown::title(text).unwrap_or(path);
        let happened = text.split_once("## What happened\n").map_or("", |(_, below)| below.trim_start());
        let happened = happened.split("\n\n").next().unwrap_or_default().replace('\n', " ");
        let sentence = happened.split_inclusive(". ").next().unwrap_or_default().trim();
        line(&mut list, &format!("| [`{code}`](../{path}) | {} |", cell(sentence)));
    }
    list
}

/// Returns the page of the keys of `outlast.toml`, from its JSON Schema.
pub(super) fn configuration(schema: &Value) -> Pages {
    let mut page = "# Keys of outlast.toml\n\nGenerated from [the JSON Schema](../docs/outlast.schema.json), which \
                    editors can use to complete and check the file. The page [`outlast.toml`](../docs/guide/configuration.md) \
                    explains how to use the keys.\n\n## Top level { #top-level }\n\n"
        .to_owned();
    fields(schema, "", &mut page);
    types(&schema["$defs"], "", &mut page);
    // A table is known by its header, not by the name of its type.
    for (name, table) in entries(&schema["$defs"]) {
        if let Some(title) = table["title"].as_str() {
            let anchor = name.to_lowercase();
            page = page.replace(&format!("[{name}](#{anchor})"), &format!("[`{title}`](#{anchor})"));
        }
    }
    Pages::from([("reference/configuration.md".to_owned(), page)])
}

/// Returns the pages of the HTTP API, from its OpenAPI document: an overview, a page for each tag, and one for the types.
pub(super) fn http(document: &Value) -> Pages {
    let mut tags = BTreeMap::<&str, String>::new();
    let mut statuses = BTreeMap::<&str, BTreeSet<&str>>::new();
    for (path, operations) in entries(&document["paths"]) {
        for (method, operation) in METHODS.iter().filter_map(|method| Some((method, operations.get(method)?)))
        {
            let tag = text(&operation["tags"][0]);
            let page = tags.entry(tag).or_default();
            write_operation(page, &method.to_uppercase(), path, operation);
            for (status, response) in entries(&operation["responses"]).filter(|(status, _)| is_error(status))
            {
                statuses.entry(status).or_default().insert(text(&response["description"]));
            }
        }
    }
    let mut overview = "# HTTP API\n\nGenerated from [the OpenAPI document](../docs/openapi.json), which `outlast serve` \
                        also serves. [The server](../docs/guide/server.md) explains keys, streams and idempotency.\n\n\
                        | part | what it contains |\n|---|---|\n"
        .to_owned();
    let mut pages = Pages::new();
    for tag in document["tags"].as_array().into_iter().flatten() {
        let (name, about) = (text(&tag["name"]), text(&tag["description"]));
        let Some(operations) = tags.get(name) else { continue };
        line(&mut overview, &format!("| [{name}](http/{name}.md) | {} |", cell(about)));
        pages.insert(format!("reference/http/{name}.md"), format!("# {name}\n\n{about}\n\n{operations}"));
    }
    line(&mut overview, "| [types](http/types.md) | the JSON objects of requests and responses |\n");
    line(&mut overview, "## Error statuses\n\n| status | meaning |\n|---|---|");
    for (status, meanings) in statuses {
        let meanings: Vec<&str> = meanings.into_iter().collect();
        line(&mut overview, &format!("| {status} | {} |", cell(&meanings.join(" Or: "))));
    }
    let mut all_types = "# types\n\nThe JSON objects of requests and responses.\n\n".to_owned();
    types(&document["components"]["schemas"], "", &mut all_types);
    pages.insert("reference/http/types.md".to_owned(), all_types);
    pages.insert("reference/http.md".to_owned(), overview);
    pages
}

fn write_operation(page: &mut String, method: &str, path: &str, operation: &Value) {
    line(page, &format!("## {method} `{path}`\n\n{}\n", escape_html(text(&operation["summary"]))));
    if let Some(description) = operation["description"].as_str() {
        line(page, &format!("{}\n", escape_html(description)));
    }
    let scopes = operation["security"].as_array().into_iter().flatten();
    let scopes: Vec<String> = scopes
        .flat_map(|key| key["key"].as_array().into_iter().flatten())
        .map(|scope| format!("`{}`", text(scope)))
        .collect();
    if !scopes.is_empty() {
        line(page, &format!("Scope of the key: {}.\n", scopes.join(", ")));
    }
    let parameters: Vec<&Value> = operation["parameters"].as_array().into_iter().flatten().collect();
    if !parameters.is_empty() {
        line(page, "| parameter | in | type | description |\n|---|---|---|---|");
        for parameter in parameters {
            let required = if parameter["required"] == true { ", required" } else { "" };
            let kind = type_of(&parameter["schema"], "types.md");
            let (name, place) = (text(&parameter["name"]), text(&parameter["in"]));
            let about = cell(text(&parameter["description"]));
            line(page, &format!("| `{name}` | {place}{required} | {kind} | {about} |"));
        }
        page.push('\n');
    }
    for (media_type, content) in entries(&operation["requestBody"]["content"]) {
        line(page, &format!("Body: {} as `{media_type}`.\n", type_of(&content["schema"], "types.md")));
    }
    let mut errors = Vec::new();
    for (status, response) in entries(&operation["responses"]) {
        if is_error(status) {
            errors.push(status.as_str());
            continue;
        }
        let bodies: Vec<String> = entries(&response["content"])
            .map(|(media_type, content)| {
                format!("{} as `{media_type}`", type_of(&content["schema"], "types.md"))
            })
            .collect();
        let bodies =
            if bodies.is_empty() { String::new() } else { format!(" Body: {}.", bodies.join(", or ")) };
        let about = escape_html(text(&response["description"]));
        line(page, &format!("- **{status}**: {}.{bodies}", about.trim_end_matches('.')));
    }
    line(page, &format!("- Errors: [{}](../http.md#error-statuses)\n", errors.join(", ")));
}

fn is_error(status: &str) -> bool {
    status.starts_with(['4', '5'])
}

/// Writes a section for each named type, with its name as the anchor.
fn types(schemas: &Value, page_of_types: &str, page: &mut String) {
    for (name, schema) in entries(schemas) {
        let title = schema["title"].as_str().map_or_else(|| name.clone(), |title| format!("`{title}`"));
        line(page, &format!("## {title} {{ #{} }}\n", name.to_lowercase()));
        if let Some(about) = schema["description"].as_str() {
            line(page, &format!("{}\n", escape_html(about)));
        }
        if schema["properties"].is_object() {
            fields(schema, page_of_types, page);
            continue;
        }
        let variants = ["oneOf", "anyOf", "allOf"].iter().find_map(|key| schema[key].as_array());
        let Some(variants) = variants else {
            line(page, &format!("{}\n", type_of(schema, page_of_types)));
            continue;
        };
        for variant in variants {
            let about = variant["description"]
                .as_str()
                .map_or_else(String::new, |about| format!(": {}", escape_html(about)));
            line(page, &format!("- {}{about}", type_of(variant, page_of_types)));
        }
        page.push('\n');
    }
}

/// Writes the table of the fields of an object.
fn fields(schema: &Value, page_of_types: &str, page: &mut String) {
    let required: Vec<&str> = schema["required"].as_array().into_iter().flatten().map(text).collect();
    line(page, "| key | type | description |\n|---|---|---|");
    for (name, field) in entries(&schema["properties"]) {
        let mut about = cell(text(&field["description"]));
        let default = &field["default"];
        if !default.is_null() && *default != Value::Array(Vec::new()) && *default != Value::Object(Map::new())
        {
            write!(about, " Default: `{default}`.").expect("writing to a string succeeds");
        }
        let required = if required.contains(&name.as_str()) { ", required" } else { "" };
        line(page, &format!("| `{name}` | {}{required} | {} |", type_of(field, page_of_types), about.trim()));
    }
    page.push('\n');
}

/// Describes the type of a schema, with links to named types.
fn type_of(schema: &Value, page: &str) -> String {
    if let Some(reference) = schema["$ref"].as_str() {
        let name = reference.rsplit('/').next().unwrap_or(reference);
        return format!("[{name}]({page}#{})", name.to_lowercase());
    }
    if let Some(value) = schema.get("const") {
        return format!("`{value}`");
    }
    if let Some(values) = schema["enum"].as_array() {
        let values: Vec<String> =
            values.iter().filter(|value| !value.is_null()).map(|value| format!("`{value}`")).collect();
        return values.join(", ");
    }
    for key in ["anyOf", "oneOf", "allOf"] {
        if let Some(variants) = schema[key].as_array() {
            let variants = variants.iter().filter(|variant| variant["type"] != "null");
            return variants.map(|variant| type_of(variant, page)).collect::<Vec<_>>().join(" or ");
        }
    }
    let named = match &schema["type"] {
        Value::String(name) => vec![name.as_str()],
        Value::Array(names) => names.iter().map(text).filter(|name| *name != "null").collect(),
        _ => return "any".to_owned(),
    };
    let described = named.into_iter().map(|name| match name {
        "array" => format!("list of {}", type_of(&schema["items"], page)),
        "object" if schema["additionalProperties"].is_object() => {
            format!("{} by name", type_of(&schema["additionalProperties"], page))
        }
        name => name.to_owned(),
    });
    described.collect::<Vec<_>>().join(" or ")
}

fn entries(object: &Value) -> impl Iterator<Item = (&String, &Value)> {
    object.as_object().into_iter().flatten()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn line(page: &mut String, text: &str) {
    page.push_str(text);
    page.push('\n');
}

/// Makes a text fit into a cell of a table.
fn cell(text: &str) -> String {
    escape_html(text).replace('|', "\\|").replace('\n', " ")
}

/// Escapes `<` outside code, where it would begin an element.
fn escape_html(text: &str) -> String {
    let mut in_code = false;
    let mut escaped = String::new();
    for letter in text.chars() {
        in_code ^= letter == '`';
        match letter {
            '<' if !in_code => escaped.push_str("&lt;"),
            _ => escaped.push(letter),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn types_are_described_in_words() {
        let describe = |schema: Value| type_of(&schema, "types.md");
        assert_eq!(describe(json!({"type": ["string", "null"]})), "string");
        assert_eq!(
            describe(json!({"type": "array", "items": {"$ref": "#/$defs/Tool"}})),
            "list of [Tool](types.md#tool)"
        );
        assert_eq!(
            describe(json!({"anyOf": [{"type": "integer"}, {"type": "null"}, {"enum": ["a", null]}]})),
            "integer or `\"a\"`"
        );
        assert_eq!(
            describe(json!({"type": "object", "additionalProperties": {"type": "string"}})),
            "string by name"
        );
        assert_eq!(describe(json!({})), "any");
    }

    #[test]
    fn operation_has_scope_parameters_and_statuses() {
        let document = json!({
            "tags": [{"name": "turns", "description": "Turns."}],
            "paths": {"/v1/turns/{id}": {"get": {
                "tags": ["turns"],
                "summary": "Returns a <turn>.",
                "security": [{"key": ["read"]}],
                "parameters": [{"name": "id", "in": "path", "required": true, "schema": {"type": "string"}}],
                "responses": {
                    "200": {"description": "OK", "content": {"application/json": {"schema": {"$ref": "#/c/Turn"}}}},
                    "404": {"description": "It does not exist."},
                },
            }}},
            "components": {"schemas": {"Turn": {
                "required": ["id"],
                "properties": {"id": {"type": "string", "description": "Its id."}, "n": {"type": "integer", "default": 3}},
            }}},
        });
        let pages = http(&document);
        assert_eq!(
            pages["reference/http/turns.md"],
            "# turns\n\nTurns.\n\n## GET `/v1/turns/{id}`\n\nReturns a &lt;turn>.\n\nScope of the key: `read`.\n\n\
             | parameter | in | type | description |\n|---|---|---|---|\n| `id` | path, required | string |  |\n\n\
             - **200**: OK. Body: [Turn](types.md#turn) as `application/json`.\n\
             - Errors: [404](../http.md#error-statuses)\n\n"
        );
        assert!(pages["reference/http.md"].contains("| [turns](http/turns.md) | Turns. |"));
        assert!(pages["reference/http.md"].contains("| 404 | It does not exist. |"));
        assert_eq!(
            pages["reference/http/types.md"].split_once("## ").unwrap().1,
            "Turn { #turn }\n\n| key | type | description |\n|---|---|---|\n| `id` | string, required | Its id. |\n\
             | `n` | integer |  Default: `3`. |\n\n".replace("  Default", " Default")
        );
    }

    #[test]
    fn commands_keep_placeholders_visible() {
        assert_eq!(
            commands("a <B> `<C>`\n```text\n<D>\n```\n")
                .split_once("\n\n")
                .unwrap()
                .1
                .split_once("\n\n")
                .unwrap()
                .1,
            "a &lt;B> `<C>`\n```text\n<D>\n```\n"
        );
    }

    #[test]
    fn error_list_says_what_happened() {
        let page = "# a.b\n\n## What happened\n\nIt broke, and\nstopped. Later more.\n\n## Why\n";
        let list = errors(&Pages::from([("docs/errors/a.b.md".to_owned(), page.to_owned())]));
        assert!(list.ends_with("| [`a.b`](../docs/errors/a.b.md) | It broke, and stopped. |\n"), "{list}");
    }
}
