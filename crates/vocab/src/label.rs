//! Labels: where what a model has read comes from, as far as that must not be trusted (R11.4).
//!
//! A model that has read untrusted text may do what the text says. So everything it asks for afterwards carries the labels of
//! all it had read by then, whatever the words are: labels follow the conversation and never the spelling of a value.
use crate::message::{HookName, ToolName};
use crate::{Error, Kind};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

/// What an agent does with calls that untrusted text may have asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Guard {
    /// Nothing. Labels are kept only where a rule or an engine may ask for them.
    #[default]
    Open,
    /// Somebody is asked before such a call runs.
    Guarded,
    /// Such a call does not run, unless a rule has somebody asked.
    Strict,
}

impl Guard {
    /// Whether nothing is kept or checked.
    pub fn is_open(&self) -> bool {
        *self == Self::Open
    }
}

/// Where untrusted text came from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Source {
    /// The results of a tool.
    Tool(ToolName),
    /// What a hook told the model.
    Hook(HookName),
    /// A file that somebody attached.
    Attachment,
    /// Nobody knows: it was read before labels were kept, or elsewhere.
    Before,
}

impl Source {
    /// Whether any source can be like a pattern in which `*` stands for anything.
    pub fn may_be_like(pattern: &str) -> bool {
        let Some((head, _)) = pattern.split_once('*') else { return pattern.parse::<Self>().is_ok() };
        let begins = |source: &str| source.starts_with(head);
        ["tool:", "hook:", "attachment", "before"].into_iter().any(begins)
            || pattern.replace('*', "x").parse::<Self>().is_ok()
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tool(tool) => write!(f, "tool:{tool}"),
            Self::Hook(hook) => write!(f, "hook:{hook}"),
            Self::Attachment => f.write_str("attachment"),
            Self::Before => f.write_str("before"),
        }
    }
}

impl FromStr for Source {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        match text {
            "attachment" => Ok(Self::Attachment),
            "before" => Ok(Self::Before),
            _ => match text.split_once(':') {
                Some(("tool", tool)) => tool.parse().map(Self::Tool),
                Some(("hook", hook)) => hook.parse().map(Self::Hook),
                _ => Err(Error::new(Kind::InputInvalid, format!("`{text}` is no source of text"))),
            },
        }
    }
}

impl TryFrom<String> for Source {
    type Error = Error;

    fn try_from(text: String) -> Result<Self, Error> {
        text.parse()
    }
}

impl From<Source> for String {
    fn from(source: Source) -> Self {
        source.to_string()
    }
}

/// The untrusted sources that had a say in something. They only ever grow.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Labels(BTreeSet<Source>);

impl Labels {
    /// Whether all of them are among others.
    pub fn is_within(&self, others: &Self) -> bool {
        self.0.is_subset(&others.0)
    }

    /// Whether nothing untrusted had a say.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a source.
    pub fn add(&mut self, source: Source) {
        self.0.insert(source);
    }

    /// The sources, in order.
    pub fn sources(&self) -> impl Iterator<Item = &Source> {
        self.0.iter()
    }
}

impl FromIterator<Source> for Labels {
    fn from_iter<I: IntoIterator<Item = Source>>(sources: I) -> Self {
        Self(sources.into_iter().collect())
    }
}

impl Extend<Source> for Labels {
    fn extend<I: IntoIterator<Item = Source>>(&mut self, sources: I) {
        self.0.extend(sources);
    }
}

impl IntoIterator for Labels {
    type Item = Source;
    type IntoIter = std::collections::btree_set::IntoIter<Source>;

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_reads_as_it_is_written() {
        let (tool, hook) = (Source::Tool("fetch".parse().unwrap()), Source::Hook("notes".parse().unwrap()));
        for source in [tool, hook, Source::Attachment, Source::Before] {
            assert_eq!(source.to_string().parse::<Source>().unwrap(), source);
        }
        assert!("web".parse::<Source>().is_err());
    }

    #[test]
    fn a_pattern_that_no_source_can_be_like_is_known() {
        for pattern in ["tool:fetch", "tool:wiki.*", "hook:*", "attachment", "*", "att*", "*.read", "t*h"] {
            assert!(Source::may_be_like(pattern), "{pattern}");
        }
        for pattern in ["", "web", "fetch", "web:*", "tool", "tool:", "tool:a b*", "attachment:*"] {
            assert!(!Source::may_be_like(pattern), "{pattern}");
        }
    }
}
