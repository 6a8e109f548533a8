//! Computes an upper bound of the work of a validation before it runs.
//!
//! A validation visits a part of a schema once for every path to it: with two references at each of forty
//! levels, 2^40 times. This module visits each pair of a part and a value once, and adds up the cost of a
//! visit with everything below it. The sum counts every path without walking all of them.
use crate::schema_graph::{BYTES_PER_STEP, PatternCost, SchemaGraph, SchemaPart};
use outlast_vocab::limits::VALIDATION_STEPS;
use serde_json::Value;
use std::collections::HashMap;

/// The base steps of every visit.
const VISIT: u64 = 10;

/// The depth of a validation that fits on the stack of any thread.
pub(crate) const DEPTH_INLINE: usize = 96;

/// The greatest depth, where each level is a reference, a combination, or a step into the value.
const DEPTH: usize = 2_000;

/// The backtracking steps after which a match of one text is given up.
pub(crate) const BACKTRACKS: u64 = 5_000;

/// How often a validation may be repeated after matches were given up: once for each possible outcome of
/// them.
const REPEATED: u64 = 65;

/// Steps for each part of a list whose elements must be unique.
const UNIQUE_STEPS: u64 = 4;

/// The states of a pattern that are followed in one step.
const STATES_PER_STEP: u64 = 8;

/// The most steps of a validation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ValidationCost {
    /// Steps to decide whether the value is valid.
    pub(crate) valid: u64,
    /// Steps to track which members and elements were evaluated.
    mark: u64,
    /// Steps to list the errors.
    pub(crate) errors: u64,
}

impl ValidationCost {
    const fn of(steps: u64) -> Self {
        Self { valid: steps, mark: steps, errors: steps }
    }
}

/// The error for work beyond the limit.
#[derive(Debug)]
pub(crate) struct WorkLimitExceeded;

/// The limits of an estimate.
#[derive(Clone, Copy)]
pub(crate) struct EstimateLimits {
    pub(crate) steps: u64,
    pub(crate) depth: usize,
}

impl EstimateLimits {
    /// The limits of every validation.
    pub(crate) const MOST: Self = Self { steps: VALIDATION_STEPS, depth: DEPTH };
}

/// Returns the most steps that validating a value takes. Fails if the validation or the estimate itself would
/// exceed the limit.
pub(crate) fn estimate(
    graph: &SchemaGraph,
    value: &Value,
    allowed: EstimateLimits,
) -> Result<ValidationCost, WorkLimitExceeded> {
    let mut estimate =
        WorkEstimate { graph, allowed, spent: 0, known: HashMap::new(), sizes: HashMap::new() };
    let cost = estimate.visit(0, ValidationSubject::Value(value), 0)?;
    let times = if graph.backtracks { REPEATED } else { 1 };
    let cost = ValidationCost {
        valid: cost.valid.saturating_mul(times),
        errors: cost.errors.saturating_mul(times),
        ..cost
    };
    if cost.valid > allowed.steps { Err(WorkLimitExceeded) } else { Ok(cost) }
}

/// The subject of a validation.
#[derive(Clone, Copy)]
enum ValidationSubject<'v> {
    Value(&'v Value),
    /// The name of a member.
    Name(&'v str),
}

impl<'v> ValidationSubject<'v> {
    fn address(self) -> (usize, bool) {
        match self {
            Self::Value(value) => (std::ptr::from_ref(value) as usize, false),
            Self::Name(name) => (name.as_ptr() as usize, true),
        }
    }

    fn text(self) -> Option<&'v str> {
        match self {
            Self::Value(value) => value.as_str(),
            Self::Name(name) => Some(name),
        }
    }
}

struct WorkEstimate<'g> {
    graph: &'g SchemaGraph,
    allowed: EstimateLimits,
    spent: u64,
    known: HashMap<(usize, (usize, bool)), ValidationCost>,
    sizes: HashMap<usize, u64>,
}

impl WorkEstimate<'_> {
    fn spend(&mut self, steps: u64) -> Result<(), WorkLimitExceeded> {
        self.spent = self.spent.saturating_add(steps);
        if self.spent > self.allowed.steps { Err(WorkLimitExceeded) } else { Ok(()) }
    }

    fn visit(
        &mut self,
        part: usize,
        subject: ValidationSubject<'_>,
        depth: usize,
    ) -> Result<ValidationCost, WorkLimitExceeded> {
        let key = (part, subject.address());
        if let Some(cost) = self.known.get(&key) {
            return Ok(*cost);
        }
        if depth > self.allowed.depth {
            return Err(WorkLimitExceeded);
        }
        let graph = self.graph;
        let read = &graph.parts[part];
        let own = self.part_cost(read, subject)?;
        self.spend(VISIT)?;
        let mut cost = ValidationCost { mark: VISIT, ..ValidationCost::of(own) };
        for below in &read.in_place {
            self.spend(1)?;
            let below = self.visit(*below, subject, depth + 1)?;
            cost.valid = cost.valid.saturating_add(below.valid);
            cost.mark = cost.mark.saturating_add(below.valid).saturating_add(below.mark);
            cost.errors = cost.errors.saturating_add(below.errors);
        }
        match subject {
            ValidationSubject::Value(Value::Object(members)) => {
                for (name, value) in members {
                    self.member(read, name, value, depth, &mut cost)?;
                }
            }
            ValidationSubject::Value(Value::Array(values)) => {
                for (at, value) in values.iter().enumerate() {
                    self.element(read, at, value, depth, &mut cost)?;
                }
            }
            _ => {}
        }
        if read.tracks_evaluated() {
            cost.valid = cost.valid.saturating_add(cost.mark);
        }
        cost.errors = cost.errors.saturating_add(cost.valid);
        self.known.insert(key, cost);
        Ok(cost)
    }

    /// Returns the cost of a part itself.
    fn part_cost(
        &mut self,
        part: &SchemaPart,
        subject: ValidationSubject<'_>,
    ) -> Result<u64, WorkLimitExceeded> {
        let mut own = VISIT + part.steps;
        if let Some(text) = subject.text() {
            own += (text.len() / BYTES_PER_STEP) as u64;
            own = own.saturating_add(part.pattern.map_or(0, |pattern| steps_to_match(pattern, text)));
        }
        if part.steps_for_each > 0 {
            own = own.saturating_add(part.steps_for_each.saturating_mul(self.size(subject)?));
        }
        if matches!(subject, ValidationSubject::Value(Value::Array(_))) && part.unique {
            own = own.saturating_add(self.size(subject)?.saturating_mul(UNIQUE_STEPS));
        }
        Ok(own)
    }

    fn member(
        &mut self,
        part: &SchemaPart,
        name: &str,
        value: &Value,
        depth: usize,
        cost: &mut ValidationCost,
    ) -> Result<(), WorkLimitExceeded> {
        self.spend(1)?;
        let mut own = 1;
        for (pattern, _) in &part.pattern_properties {
            own = steps_to_match(*pattern, name).saturating_add(own);
        }
        add(cost, ValidationCost::of(own));
        cost.mark = cost.mark.saturating_add(own);
        let value = ValidationSubject::Value(value);
        let listed = part.properties.get(name);
        let others = part.other_members.iter().filter(|_| listed.is_none());
        let patterns = part.pattern_properties.iter().map(|(_, below)| below);
        for below in listed.into_iter().chain(others).chain(patterns) {
            add(cost, self.visit(*below, value, depth + 1)?);
        }
        if let Some(names) = part.property_names {
            add(cost, self.visit(names, ValidationSubject::Name(name), depth + 1)?);
        }
        if let Some(below) = part.unevaluated_members {
            let below = self.visit(below, value, depth + 1)?;
            add(cost, below);
            cost.mark = cost.mark.saturating_add(below.valid);
        }
        Ok(())
    }

    fn element(
        &mut self,
        part: &SchemaPart,
        at: usize,
        value: &Value,
        depth: usize,
        cost: &mut ValidationCost,
    ) -> Result<(), WorkLimitExceeded> {
        self.spend(1)?;
        add(cost, ValidationCost::of(1));
        let value = ValidationSubject::Value(value);
        let listed = part.prefix_items.get(at);
        let others = part.other_items.iter().filter(|_| listed.is_none());
        for below in listed.into_iter().chain(others) {
            add(cost, self.visit(*below, value, depth + 1)?);
        }
        for below in part.all_items.iter().chain(&part.unevaluated_items) {
            let below = self.visit(*below, value, depth + 1)?;
            add(cost, below);
            cost.mark = cost.mark.saturating_add(below.valid);
        }
        Ok(())
    }

    /// Returns the number of parts of a value plus the steps for its text.
    fn size(&mut self, subject: ValidationSubject<'_>) -> Result<u64, WorkLimitExceeded> {
        let ValidationSubject::Value(value) = subject else { return Ok(1) };
        let address = std::ptr::from_ref(value) as usize;
        if let Some(size) = self.sizes.get(&address) {
            return Ok(*size);
        }
        let (mut size, mut rest) = (0, vec![value]);
        while let Some(value) = rest.pop() {
            let text = value.as_str().map_or(0, |text| (text.len() / BYTES_PER_STEP) as u64);
            size += 1 + text;
            self.spend(1)?;
            match value {
                Value::Array(values) => rest.extend(values),
                Value::Object(members) => rest.extend(members.values()),
                _ => {}
            }
        }
        self.sizes.insert(address, size);
        Ok(size)
    }
}

/// Adds the cost of a value within to that of the value around it. Marks do not carry over from within.
fn add(cost: &mut ValidationCost, below: ValidationCost) {
    cost.valid = cost.valid.saturating_add(below.valid);
    cost.errors = cost.errors.saturating_add(below.errors);
}

fn steps_to_match(pattern: PatternCost, text: &str) -> u64 {
    let bytes = text.len() as u64 + 16;
    let once = pattern.states.saturating_mul(bytes) / STATES_PER_STEP;
    if pattern.backtracks { once.saturating_add(BACKTRACKS * bytes / 64) } else { once }
}
