//! Reads, parses and validates policy files. Errors name the file and the line.
use crate::{decision_of, rule_of};
use cedar_policy::{Effect, Entities, Policy, PolicySet, Schema, ValidationMode, Validator};
use miette::Diagnostic;
use outlast_vocab::{Error, Kind};
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// The maximum size of a file in bytes.
const FILE_BYTES: u64 = 1 << 20;

/// The content of a file.
pub(crate) struct PolicySource {
    path: PathBuf,
    text: String,
}

/// Creates the error for a failed decision.
pub(crate) fn invalid(what: impl Into<String>) -> Error {
    Error::new(Kind::PolicyFailed, what)
}

impl PolicySource {
    pub(crate) fn read(path: &Path) -> Result<Self, Error> {
        let unread = |cause| {
            let detail = format!("the Cedar file {} cannot be read: {cause}", path.display());
            Error::new(Kind::IoFailed, detail).because(cause)
        };
        let bytes = std::fs::metadata(path).map_err(unread)?.len();
        if bytes > FILE_BYTES {
            let detail = format!("{}: expected at most {FILE_BYTES} bytes, found {bytes}", path.display());
            return Err(Error::new(Kind::ConfigInvalid, detail));
        }
        let text = std::fs::read_to_string(path).map_err(unread)?;
        Ok(Self { path: path.to_owned(), text })
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        self.text.as_bytes()
    }

    pub(crate) fn schema(&self) -> Result<Schema, Error> {
        let parsed = Schema::from_cedarschema_str(&self.text);
        parsed.map(|(schema, _)| schema).map_err(|error| self.wrong(&error))
    }

    /// Parses the policies and validates their annotations and, if present, the schema.
    pub(crate) fn policies(&self, schema: Option<&Schema>) -> Result<PolicySet, Error> {
        let policies = PolicySet::from_str(&self.text).map_err(|error| self.wrong(&error))?;
        for policy in policies.policies() {
            let forbids = policy.effect() == Effect::Forbid;
            let decided = if forbids { decision_of(policy).map(drop) } else { Ok(()) };
            let named = rule_of(policy).map(drop).map_err(|error| error.detail().to_owned());
            decided.and(named).map_err(|what| self.at(self.line_of(policy), &what))?;
        }
        if let Some(schema) = schema {
            let result = Validator::new(schema.clone()).validate(&policies, ValidationMode::Strict);
            if let Some(error) = result.validation_errors().next() {
                return Err(self.wrong(error));
            }
        }
        Ok(policies)
    }

    pub(crate) fn entities(&self, schema: Option<&Schema>) -> Result<Entities, Error> {
        Entities::from_json_str(&self.text, schema).map_err(|error| self.wrong(&error))
    }

    /// Returns the line where a policy starts.
    fn line_of(&self, policy: &Policy) -> usize {
        let text = policy.to_string();
        self.text.find(&text).map_or(1, |at| self.line(at))
    }

    fn line(&self, at: usize) -> usize {
        self.text.get(..at).map_or(1, |before| before.matches('\n').count() + 1)
    }

    fn wrong(&self, error: &dyn Diagnostic) -> Error {
        let at = error.labels().and_then(|mut labels| labels.next()).map_or(0, |label| label.offset());
        let cause = std::iter::successors(error.source(), |error| error.source()).last();
        let cause = cause.map(|cause| format!(": {cause}")).unwrap_or_default();
        self.at(self.line(at), &format!("{error}{cause}"))
    }

    fn at(&self, line: usize, what: &str) -> Error {
        let what = what.trim().replace('\n', ", ");
        Error::new(Kind::ConfigInvalid, format!("{}:{line}: {what}", self.path.display()))
    }
}
