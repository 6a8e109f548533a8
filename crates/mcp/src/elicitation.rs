//! Splits a server's elicitation form into questions with one answer each.
use serde_json::{Map, Value, json};

/// The maximum number of fields of a form.
const FIELDS: usize = 10;

/// A form: its message and its fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ElicitationForm {
    message: String,
    fields: Vec<FormField>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct FormField {
    name: String,
    title: String,
    kind: String,
    options: Vec<String>,
    required: bool,
}

/// The reason why an answer does not match its field.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct InvalidAnswer(pub(crate) String);

impl ElicitationForm {
    /// Parses a form from the JSON Schema of an elicitation; `None` if a person could not fill it in.
    pub(crate) fn read(message: &str, schema: &Value) -> Option<Self> {
        let nothing = Map::new();
        let properties = schema.get("properties").and_then(Value::as_object).unwrap_or(&nothing);
        let required = schema.get("required").and_then(Value::as_array);
        let is_required = |name: &str| required.is_some_and(|names| names.iter().any(|other| other == name));
        let fields = properties.iter().map(|(name, schema)| FormField::read(name, schema, is_required(name)));
        let fields: Option<Vec<FormField>> = fields.collect();
        Some(Self { message: message.to_owned(), fields: fields.filter(|fields| fields.len() <= FIELDS)? })
    }

    /// Returns the number of questions. A form without fields is one yes-or-no question.
    pub(crate) fn questions(&self) -> usize {
        self.fields.len().max(1)
    }

    /// Returns a question as JSON, for the clients that display it.
    pub(crate) fn question(&self, server: &str, index: usize, before: Option<&InvalidAnswer>) -> Value {
        let mut question = format!("the MCP server `{server}` asks: {}", self.message);
        let mut options = vec!["yes".to_owned(), "no".to_owned()];
        if let Some(field) = self.fields.get(index) {
            question = format!("{question}\n  {}", field.title);
            if !field.required {
                question.push_str(" (may be left empty)");
            }
            options.clone_from(&field.options);
        }
        if let Some(InvalidAnswer(why)) = before {
            question = format!("{question}\n  {why}");
        }
        json!({"question": question, "options": options})
    }

    /// Converts an answer to the value of its field; `None` if the field is left out.
    pub(crate) fn value(
        &self,
        index: usize,
        answer: &Value,
    ) -> Result<Option<(String, Value)>, InvalidAnswer> {
        let Some(field) = self.fields.get(index) else {
            return match answer.as_str().map(str::to_ascii_lowercase).as_deref() {
                Some("yes" | "y") => Ok(None),
                _ => Err(InvalidAnswer("expected yes or no".to_owned())),
            };
        };
        let text = match answer {
            Value::String(text) => text.trim(),
            other => return Ok(Some((field.name.clone(), other.clone()))),
        };
        if text.is_empty() && !field.required {
            return Ok(None);
        }
        field.value(text).map(|value| Some((field.name.clone(), value)))
    }
}

impl FormField {
    fn read(name: &str, schema: &Value, required: bool) -> Option<Self> {
        let text = |key: &str| schema.get(key).and_then(Value::as_str);
        let kind = text("type").unwrap_or("string").to_owned();
        if kind == "object" {
            return None;
        }
        let title = match (text("title"), text("description")) {
            (Some(title), Some(description)) => format!("{title}: {description}"),
            (Some(only), None) | (None, Some(only)) => only.to_owned(),
            (None, None) => name.to_owned(),
        };
        // A single choice is a list of values or constants. A multiple choice has that list in its items.
        let choices = schema.get("items").unwrap_or(schema);
        let named =
            ["enum", "oneOf", "anyOf"].iter().find_map(|key| choices.get(key).and_then(Value::as_array));
        let options =
            named.into_iter().flatten().filter_map(|choice| choice.get("const").unwrap_or(choice).as_str());
        let mut options: Vec<String> = options.map(str::to_owned).collect();
        if kind == "boolean" {
            options = vec!["yes".to_owned(), "no".to_owned()];
        }
        Some(Self { name: name.to_owned(), title, kind, options, required })
    }

    fn value(&self, text: &str) -> Result<Value, InvalidAnswer> {
        let expected = |what: &str| InvalidAnswer(format!("expected {what}, got `{text}`"));
        let chosen = |text: &str| match self.options.iter().any(|option| option == text) {
            true => Ok(Value::from(text)),
            false if self.options.is_empty() => Ok(Value::from(text)),
            false => Err(expected(&format!("one of {}", self.options.join(", ")))),
        };
        match self.kind.as_str() {
            "boolean" => match text.to_ascii_lowercase().as_str() {
                "yes" | "y" | "true" => Ok(Value::Bool(true)),
                "no" | "n" | "false" => Ok(Value::Bool(false)),
                _ => Err(expected("yes or no")),
            },
            "integer" => text.parse::<i64>().map(Value::from).map_err(|_| expected("a whole number")),
            "number" => text.parse::<f64>().map(Value::from).map_err(|_| expected("a number")),
            "array" => text.split(',').map(|choice| chosen(choice.trim())).collect(),
            _ => chosen(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    #[test]
    fn a_form_is_asked_field_by_field() {
        let schema = json!({"type": "object", "required": ["age", "colour"], "properties": {
            "age": {"type": "integer", "title": "Age", "description": "In years."},
            "colour": {"type": "string", "enum": ["red", "blue"]},
            "sure": {"type": "boolean"},
            "tags": {"type": "array", "items": {"enum": ["a", "b"]}},
            "weight": {"type": "number"},
        }});
        let form = ElicitationForm::read("Who are you?", &schema).unwrap();
        let typed = [
            (0, "42"),
            (0, "old"),
            (0, ""),
            (1, "red"),
            (1, "green"),
            (2, "Yes"),
            (2, ""),
            (2, "perhaps"),
            (3, "a, b"),
            (3, "a,c"),
            (4, "1.5"),
        ];
        let asked = (0..form.questions()).map(|index| form.question("bank", index, None).to_string());
        let answered = typed.map(|(index, text)| match form.value(index, &Value::from(text)) {
            Ok(Some((name, value))) => format!("{text} → {name} = {value}"),
            Ok(None) => format!("{text} → left out"),
            Err(InvalidAnswer(why)) => format!("{text} → {why}"),
        });
        let log = asked.chain(answered).collect::<Vec<_>>().join("\n");
        expect![[r#"
            {"options":[],"question":"the MCP server `bank` asks: Who are you?\n  Age: In years."}
            {"options":["red","blue"],"question":"the MCP server `bank` asks: Who are you?\n  colour"}
            {"options":["yes","no"],"question":"the MCP server `bank` asks: Who are you?\n  sure (may be left empty)"}
            {"options":["a","b"],"question":"the MCP server `bank` asks: Who are you?\n  tags (may be left empty)"}
            {"options":[],"question":"the MCP server `bank` asks: Who are you?\n  weight (may be left empty)"}
            42 → age = 42
            old → expected a whole number, got `old`
             → expected a whole number, got ``
            red → colour = "red"
            green → expected one of red, blue, got `green`
            Yes → sure = true
             → left out
            perhaps → expected yes or no, got `perhaps`
            a, b → tags = ["a","b"]
            a,c → expected one of a, b, got `a,c`
            1.5 → weight = 1.5"#]].assert_eq(&log);
    }

    #[test]
    fn unsupported_form_is_rejected() {
        assert_eq!(ElicitationForm::read("?", &json!({"properties": {"a": {"type": "object"}}})), None);
        let many: Map<String, Value> = (0..=FIELDS).map(|n| (n.to_string(), json!({}))).collect();
        assert_eq!(ElicitationForm::read("?", &json!({ "properties": many })), None);
        assert_eq!(ElicitationForm::read("?", &json!({})).unwrap().questions(), 1);
    }
}
