//! The keys of `outlast.toml` and of agent files, as JSON Schema.
//!
//! The schema is generated from the types that are deserialized, so it includes new fields automatically.
//! Tests compare it with `docs/outlast.schema.json` and the guide.
use crate::agent::definition::AgentTable;
use crate::agent::layers::CapabilityTable;
use crate::agent::rates::RateTable;
use crate::sinks::SinkTable;
use outlast::providers::ProviderTable;
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator, json_schema};
use serde_json::Value;

fn generator() -> SchemaGenerator {
    SchemaSettings::draft2020_12().into_generator()
}

/// Returns the schema of `outlast.toml`.
pub(crate) fn configuration() -> Value {
    let mut generator = generator();
    let tables = [
        ("providers", "Where models come from, by name.", by_name::<ProviderTable>(&mut generator)),
        ("agents", "Agents, by name.", by_name::<AgentTable>(&mut generator)),
        (
            "harnesses",
            "Layers that agents and other harnesses inherit from, by name.",
            by_name::<AgentTable>(&mut generator),
        ),
        (
            "capabilities",
            "Bundles that agents can enable, by name.",
            by_name::<CapabilityTable>(&mut generator),
        ),
        (
            "attachments",
            "Where attachments are stored.",
            described::<crate::config_file::AttachmentsTable>(&mut generator),
        ),
        ("telemetry", "Where traces go.", described::<crate::telemetry::TelemetryTable>(&mut generator)),
        (
            "cedar",
            "Cedar policies, evaluated in addition to the rules of every agent.",
            described::<crate::cedar::CedarTable>(&mut generator),
        ),
        ("server", "Settings of `outlast serve`.", described::<super::server::ServerTable>(&mut generator)),
        ("sinks", "Where outputs go.", list::<SinkTable>(&mut generator)),
        ("rates", "Rate limits for the calls of all agents.", list::<RateTable>(&mut generator)),
    ];
    let mut properties = serde_json::Map::new();
    for (name, description, mut schema) in tables {
        schema["description"] = description.into();
        properties.insert(name.to_owned(), schema);
    }
    let mut schema = json_schema!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "outlast.toml",
        "type": "object",
        "properties": properties,
        "additionalProperties": false,
    })
    .to_value();
    schema["$defs"] = Value::Object(generator.take_definitions(true));
    schema
}

/// Returns the schema of an agent file.
pub(crate) fn agent() -> Value {
    generator().into_root_schema_for::<AgentTable>().to_value()
}

fn described<T: JsonSchema>(generator: &mut SchemaGenerator) -> Value {
    generator.subschema_for::<T>().to_value()
}

fn by_name<T: JsonSchema>(generator: &mut SchemaGenerator) -> Value {
    serde_json::json!({ "type": "object", "additionalProperties": described::<T>(generator) })
}

fn list<T: JsonSchema>(generator: &mut SchemaGenerator) -> Value {
    serde_json::json!({ "type": "array", "items": described::<T>(generator) })
}
