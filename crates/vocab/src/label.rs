//! Labels: the untrusted sources of what a model has read.
//!
//! A model that has read untrusted text may follow its instructions. So everything that it asks for
//! afterwards carries the labels of all it had read by then. In addition to the labels of a call,
//! [`Provenance`] says for each sink argument whether its exact value appears in trusted text.
use crate::message::{HookName, ToolName};
use crate::{Error, Kind};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

/// The treatment of calls that untrusted text may have caused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TrustGuard {
    /// Nothing. Labels are recorded only if a rule or an engine may use them.
    #[default]
    Open,
    /// A person must approve such a call.
    Guarded,
    /// Such a call does not run, unless a rule asks a person.
    Strict,
}

impl TrustGuard {
    /// Returns whether nothing is recorded or checked.
    pub fn is_open(&self) -> bool {
        *self == Self::Open
    }
}

/// The source of untrusted text.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum UntrustedSource {
    /// The results of a tool.
    Tool(ToolName),
    /// Messages of a hook to the model.
    Hook(HookName),
    /// The tool definitions of an MCP server, which the server wrote.
    Server(String),
    /// An attached file.
    Attachment,
    /// Unknown: the text was read before labels were recorded, or elsewhere.
    Before,
}

impl UntrustedSource {
    /// Returns whether any source can match a pattern in which `*` stands for any text.
    pub fn may_be_like(pattern: &str) -> bool {
        let Some((head, _)) = pattern.split_once('*') else { return pattern.parse::<Self>().is_ok() };
        let begins = |source: &str| source.starts_with(head);
        ["tool:", "hook:", "mcp:", "attachment", "before"].into_iter().any(begins)
            || pattern.replace('*', "x").parse::<Self>().is_ok()
    }
}

impl fmt::Display for UntrustedSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tool(tool) => write!(f, "tool:{tool}"),
            Self::Hook(hook) => write!(f, "hook:{hook}"),
            Self::Server(server) => write!(f, "mcp:{server}"),
            Self::Attachment => f.write_str("attachment"),
            Self::Before => f.write_str("before"),
        }
    }
}

impl FromStr for UntrustedSource {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        match text {
            "attachment" => Ok(Self::Attachment),
            "before" => Ok(Self::Before),
            _ => match text.split_once(':') {
                Some(("tool", tool)) => tool.parse().map(Self::Tool),
                Some(("hook", hook)) => hook.parse().map(Self::Hook),
                Some(("mcp", server)) if is_server_name(server) => Ok(Self::Server(server.to_owned())),
                _ => Err(Error::new(Kind::InputInvalid, format!("`{text}` is not a source of text"))),
            },
        }
    }
}

/// Returns whether a text is a valid name of an MCP server, which is the first part of the names of its
/// tools.
fn is_server_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte))
}

impl TryFrom<String> for UntrustedSource {
    type Error = Error;

    fn try_from(text: String) -> Result<Self, Error> {
        text.parse()
    }
}

impl From<UntrustedSource> for String {
    fn from(source: UntrustedSource) -> Self {
        source.to_string()
    }
}

/// The untrusted sources that may have influenced something. The set only grows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Labels(BTreeSet<UntrustedSource>);

impl Labels {
    /// Returns whether the other set contains all of these sources.
    pub fn is_within(&self, others: &Self) -> bool {
        self.0.is_subset(&others.0)
    }

    /// Returns whether no untrusted source is involved.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a source.
    pub fn add(&mut self, source: UntrustedSource) {
        self.0.insert(source);
    }

    /// Returns the sources, in order.
    pub fn sources(&self) -> impl Iterator<Item = &UntrustedSource> {
        self.0.iter()
    }
}

impl FromIterator<UntrustedSource> for Labels {
    fn from_iter<I: IntoIterator<Item = UntrustedSource>>(sources: I) -> Self {
        Self(sources.into_iter().collect())
    }
}

impl Extend<UntrustedSource> for Labels {
    fn extend<I: IntoIterator<Item = UntrustedSource>>(&mut self, sources: I) {
        self.0.extend(sources);
    }
}

impl IntoIterator for Labels {
    type Item = UntrustedSource;
    type IntoIter = std::collections::btree_set::IntoIter<UntrustedSource>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl fmt::Display for Labels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sources: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&sources.join(", "))
    }
}

/// The origin of the value of a sink argument.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Origin {
    /// The user typed it.
    User,
    /// It is in the system prompt of the agent.
    Agent,
    /// A trusted tool returned it.
    Tool(ToolName),
    /// The value does not appear in trusted text, or is of a kind that never clears a sink.
    Unknown,
    /// The call itself is the sink, so no value can clear it.
    Call,
}

impl Origin {
    /// Returns whether the value appears in trusted text.
    pub fn is_trusted(&self) -> bool {
        matches!(self, Self::User | Self::Agent | Self::Tool(_))
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User => f.write_str("user"),
            Self::Agent => f.write_str("agent"),
            Self::Tool(tool) => write!(f, "tool:{tool}"),
            Self::Unknown => f.write_str("unknown"),
            Self::Call => f.write_str("call"),
        }
    }
}

impl FromStr for Origin {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        match text {
            "user" => Ok(Self::User),
            "agent" => Ok(Self::Agent),
            "unknown" => Ok(Self::Unknown),
            "call" => Ok(Self::Call),
            _ => match text.split_once(':') {
                Some(("tool", tool)) => tool.parse().map(Self::Tool),
                _ => Err(Error::new(Kind::InputInvalid, format!("`{text}` is not the origin of a value"))),
            },
        }
    }
}

impl TryFrom<String> for Origin {
    type Error = Error;

    fn try_from(text: String) -> Result<Self, Error> {
        text.parse()
    }
}

impl From<Origin> for String {
    fn from(origin: Origin) -> Self {
        origin.to_string()
    }
}

/// One sink argument of a call, and the origin of its value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SinkArgument {
    /// The JSON pointer to the argument. Empty if the call itself is the sink.
    pub path: String,
    /// The origin of its value.
    pub origin: Origin,
}

/// The origins of the sink arguments of a call. Empty if the call has none, or if no untrusted text was read
/// before it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Provenance(Vec<SinkArgument>);

impl Provenance {
    /// Returns the provenance of a call that is itself the sink.
    pub fn of_call() -> Self {
        Self(vec![SinkArgument { path: String::new(), origin: Origin::Call }])
    }

    /// Returns whether the call has no sink, or no untrusted text was read before it.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the sink arguments, in the order in which the tool lists them.
    pub fn arguments(&self) -> &[SinkArgument] {
        &self.0
    }

    /// Returns whether untrusted text may have chosen the value of a sink, or the call itself.
    pub fn is_tainted(&self) -> bool {
        self.0.iter().any(|argument| !argument.origin.is_trusted())
    }
}

impl FromIterator<SinkArgument> for Provenance {
    fn from_iter<I: IntoIterator<Item = SinkArgument>>(arguments: I) -> Self {
        Self(arguments.into_iter().collect())
    }
}

/// Formats the sink arguments for people: `/to from user, /cc from unknown`.
impl fmt::Display for Provenance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, SinkArgument { path, origin }) in self.0.iter().enumerate() {
            f.write_str(if n == 0 { "" } else { ", " })?;
            match origin {
                Origin::Call => f.write_str("the call itself")?,
                Origin::Unknown => write!(f, "{path} not from trusted text")?,
                origin => write!(f, "{path} from {origin}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_reads_as_it_is_written() {
        let (tool, hook) = (
            UntrustedSource::Tool("fetch".parse().unwrap()),
            UntrustedSource::Hook("notes".parse().unwrap()),
        );
        let server = UntrustedSource::Server("wiki".to_owned());
        for source in [tool, hook, server, UntrustedSource::Attachment, UntrustedSource::Before] {
            assert_eq!(source.to_string().parse::<UntrustedSource>().unwrap(), source);
        }
        assert!("web".parse::<UntrustedSource>().is_err());
        assert!("mcp:".parse::<UntrustedSource>().is_err());
    }

    #[test]
    fn origins_read_as_they_are_written() {
        let tool = Origin::Tool("contacts".parse().unwrap());
        for origin in [Origin::User, Origin::Agent, tool, Origin::Unknown, Origin::Call] {
            assert_eq!(origin.to_string().parse::<Origin>().unwrap(), origin);
        }
        assert!("tool:".parse::<Origin>().is_err());
    }

    #[test]
    fn pattern_matching_no_source_is_detected() {
        for pattern in
            ["tool:fetch", "tool:wiki.*", "hook:*", "attachment", "*", "att*", "*.read", "t*h", "mcp:*"]
        {
            assert!(UntrustedSource::may_be_like(pattern), "{pattern}");
        }
        for pattern in ["", "web", "fetch", "web:*", "tool", "tool:", "tool:a b*", "attachment:*"] {
            assert!(!UntrustedSource::may_be_like(pattern), "{pattern}");
        }
    }
}
