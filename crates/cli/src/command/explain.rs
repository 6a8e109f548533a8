//! `outlast explain`: prints the documentation page of an error code.
use crate::terminal;
use clap::Args;
use outlast::{Error, Kind};
use serde_json::json;

/// Explains an error code, or lists all codes.
#[derive(Args)]
pub(crate) struct ExplainArgs {
    /// Error code, like `lease.lost`; default: list all codes
    code: Option<String>,
}

impl ExplainArgs {
    pub(crate) fn run(self) -> Result<(), Error> {
        if let Some(code) = self.code {
            let kind: Kind = code.parse()?;
            if terminal::is_json() {
                let (code, class, status) = (kind.code(), kind.class().name(), kind.status());
                terminal::json(
                    &json!({ "code": code, "class": class, "status": status, "page": kind.page() }),
                );
            } else {
                terminal::say(kind.page().trim_end());
            }
            return Ok(());
        }
        let rows: Vec<Vec<String>> = Kind::ALL
            .iter()
            .map(|kind| vec![kind.code().to_owned(), kind.class().name().to_owned(), what(*kind)])
            .collect();
        terminal::table(&["CODE", "CLASS", "WHAT HAPPENED"], &rows);
        Ok(())
    }
}

/// Returns the first sentence of the section "What happened".
fn what(kind: Kind) -> String {
    let (_, section) = kind.page().split_once("## What happened").unwrap_or_default();
    let section = section.trim().replace('\n', " ");
    let end = section.find(". ").map_or(section.len(), |end| end + 1);
    section[..end].to_owned()
}
