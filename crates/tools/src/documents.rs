//! `open_document`: reads a document of the agent, such as the body of a skill.
use outlast_ports::service::Agent;
use outlast_ports::tool::{Call, Tool, ToolRunOutcome, ToolSpec, done};
use outlast_vocab::Error;
use outlast_vocab::package::OPEN_DOCUMENT;
use schemars::JsonSchema;
use serde::Deserialize;

/// The tool that returns a document of the agent. A turn sees the documents as they were when it was accepted.
pub struct OpenDocument;

/// What the model passes to `open_document`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DocumentArgs {
    /// The document's path, as the instructions name it.
    path: String,
}

impl Tool for OpenDocument {
    type Args = DocumentArgs;
    type Needs = Agent;

    fn spec(&self) -> ToolSpec {
        ToolSpec::new(OPEN_DOCUMENT, "Opens a document that your instructions name, by its path.").pure()
    }

    async fn run(&self, agent: Agent, _: Call, args: DocumentArgs) -> Result<ToolRunOutcome, Error> {
        done(agent.document(&args.path)?)
    }
}
