//! The `[cedar]` table of `outlast.toml`: Cedar policies that apply to all agents, in addition to their
//! rules.
use crate::config::document::Document;
use outlast::{Builder, Error};
use schemars::JsonSchema;
use serde::Deserialize;
use std::path::PathBuf;

/// Cedar policies, evaluated in addition to the rules of every agent. Paths are relative to this file.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "[cedar]")]
pub(crate) struct CedarTable {
    /// The file with the policies.
    policies: PathBuf,
    /// The file with principals and resources, as JSON.
    entities: Option<PathBuf>,
    /// A schema that policies and requests must match.
    schema: Option<PathBuf>,
}

/// Adds the Cedar policies of the configuration to a builder, if there are any.
pub(crate) fn add_policies(builder: Builder, document: Option<&Document>) -> Result<Builder, Error> {
    let Some(document) = document else { return Ok(builder) };
    let table: Option<CedarTable> = document.value(&["cedar"])?;
    match table {
        Some(table) => load_policies(builder, document, table),
        None => Ok(builder),
    }
}

/// Returns the files of the Cedar policies, whether or not they exist.
pub(crate) fn files(document: &Document) -> Result<Vec<PathBuf>, Error> {
    let home = document.home()?;
    let table: Option<CedarTable> = document.value(&["cedar"]).ok().flatten();
    let named = table.map(|CedarTable { policies, entities, schema }| [Some(policies), entities, schema]);
    Ok(named.into_iter().flatten().flatten().map(|path| home.join(path)).collect())
}

#[cfg(feature = "cedar")]
fn load_policies(builder: Builder, document: &Document, table: CedarTable) -> Result<Builder, Error> {
    let home = document.home()?;
    let CedarTable { policies, entities, schema } = table;
    let placed = |path: Option<PathBuf>| path.map(|path| home.join(path));
    let files = outlast::cedar::PolicyFiles {
        policies: home.join(policies),
        entities: placed(entities),
        schema: placed(schema),
    };
    Ok(builder.policy_engine(outlast::cedar::Cedar::load(&files)?))
}

#[cfg(not(feature = "cedar"))]
fn load_policies(_: Builder, document: &Document, table: CedarTable) -> Result<Builder, Error> {
    let CedarTable { policies, entities, schema } = table;
    let files = [Some(policies), entities, schema].into_iter().flatten();
    let files: Vec<String> = files.map(|path| path.display().to_string()).collect();
    let what = format!(
        "this program was built without Cedar and cannot read {}; build it with `--features cedar`",
        files.join(", ")
    );
    Err(document.invalid(&["cedar"], &what))
}
