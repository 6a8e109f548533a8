//! The keyword `uniqueItems` in linear time.
//!
//! The validator's own implementation hashes lists without their ends, and compares elements with equal hashes. An
//! attacker can construct such elements, so that each is compared with every other.
use jsonschema::{Keyword, ValidationError};
use outlast_vocab::canonical_json;
use serde_json::Value;
use std::collections::HashMap;

/// The keyword, and whether elements must be unique.
pub(crate) struct UniqueItems(pub(crate) bool);

impl UniqueItems {
    /// Returns the indices of the first two equal elements.
    fn equal_elements(&self, value: &Value) -> Option<(usize, usize)> {
        let values = value.as_array().filter(|values| self.0 && values.len() > 1)?;
        let mut seen = HashMap::with_capacity(values.len());
        values
            .iter()
            .enumerate()
            .find_map(|(at, value)| Some((seen.insert(canonical_json::fingerprint(value), at)?, at)))
    }
}

impl<'i> Keyword<'i> for UniqueItems {
    fn validate(&self, value: &'i Value) -> Result<(), ValidationError<'i>> {
        match self.equal_elements(value) {
            None => Ok(()),
            Some((one, other)) => {
                let detail = format!("elements must be unique, but those at {one} and {other} are equal");
                Err(ValidationError::custom(detail))
            }
        }
    }

    fn is_valid(&self, value: &'i Value) -> bool {
        self.equal_elements(value).is_none()
    }
}
