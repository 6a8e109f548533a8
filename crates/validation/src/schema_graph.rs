//! A schema as a graph: its parts, which parts apply to the same value or to values within it, and their
//! sizes.
//!
//! References become edges. If identifiers below the root make a reference ambiguous, it has an edge to each
//! possible target. So sizes and work are upper bounds.
use crate::pattern::measure;
use outlast_vocab::limits::{SCHEMA_NESTING, SCHEMA_SIZE};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, HashMap};

/// Keywords whose value is a list of schemas for the same value.
const LISTS_IN_PLACE: [&str; 3] = ["allOf", "anyOf", "oneOf"];

/// Keywords whose value is a schema for the same value.
const IN_PLACE: [&str; 4] = ["not", "if", "then", "else"];

/// Keywords whose value has a schema for the same value under each name.
const NAMED_IN_PLACE: [&str; 2] = ["dependentSchemas", "dependencies"];

/// Keywords that refer to a schema for the same value.
const REFERENCES: [&str; 3] = ["$ref", "$dynamicRef", "$recursiveRef"];

/// Keywords that give a schema a name within its document.
const ANCHORS: [&str; 2] = ["$anchor", "$dynamicAnchor"];

/// Steps of validating one part of a value against a built-in schema of the JSON Schema project.
const BUILT_IN_STEPS: u64 = 1_000;

/// The host of the built-in schemas.
const BUILT_IN_HOST: &str = "json-schema.org";

/// Steps of dividing a number exactly, for `multipleOf`.
const DIVISION_STEPS: u64 = 50;

/// Bytes of text that are compared in one step.
pub(crate) const BYTES_PER_STEP: usize = 32;

/// A pattern for a text or for names of members.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PatternCost {
    /// Its size with repetitions expanded.
    pub(crate) states: u64,
    /// Whether a backtracking engine matches it.
    pub(crate) backtracks: bool,
}

/// One part of a schema.
#[derive(Debug, Default)]
pub(crate) struct SchemaPart {
    /// Steps that it takes whatever the value is.
    pub(crate) steps: u64,
    /// Steps for each part of the value, if it refers to a built-in schema.
    pub(crate) steps_for_each: u64,
    /// The pattern that a text must match.
    pub(crate) pattern: Option<PatternCost>,
    /// The parts that apply to the same value.
    pub(crate) in_place: Vec<usize>,
    pub(crate) properties: BTreeMap<String, usize>,
    pub(crate) pattern_properties: Vec<(PatternCost, usize)>,
    /// The parts that apply to members that `properties` does not name.
    pub(crate) other_members: Vec<usize>,
    pub(crate) property_names: Option<usize>,
    pub(crate) prefix_items: Vec<usize>,
    /// The parts that apply to elements after `prefix_items`.
    pub(crate) other_items: Vec<usize>,
    /// The parts that apply to every element.
    pub(crate) all_items: Vec<usize>,
    /// The part that applies to members, or elements, that no other keyword evaluated.
    pub(crate) unevaluated_members: Option<usize>,
    pub(crate) unevaluated_items: Option<usize>,
    /// Whether elements must be unique.
    pub(crate) unique: bool,
}

impl SchemaPart {
    /// Returns whether validation must track which members and elements other keywords evaluated.
    pub(crate) fn tracks_evaluated(&self) -> bool {
        self.unevaluated_members.is_some() || self.unevaluated_items.is_some()
    }

    fn within(&self) -> impl Iterator<Item = usize> {
        let members = self.properties.values().chain(self.pattern_properties.iter().map(|(_, part)| part));
        let others = self.other_members.iter().chain(&self.property_names).chain(&self.unevaluated_members);
        let items = self.prefix_items.iter().chain(&self.other_items).chain(&self.all_items);
        members.chain(others).chain(items).chain(&self.unevaluated_items).copied()
    }

    fn size(&self) -> u64 {
        let patterns = self.pattern.iter().chain(self.pattern_properties.iter().map(|(pattern, _)| pattern));
        patterns.fold(1, |sum: u64, pattern| sum.saturating_add(pattern.states / 8))
    }
}

/// The reason why a schema is refused before it is compiled.
#[derive(Debug)]
pub(crate) enum SchemaRejection {
    /// It is malformed, or has a reference without a target.
    Invalid(String),
    /// It exceeds the limit of this name.
    Exceeds { name: &'static str, most: u64, needs: u64 },
}

/// A schema as a graph of its parts. The first part is the schema itself.
#[derive(Debug)]
pub(crate) struct SchemaGraph {
    pub(crate) parts: Vec<SchemaPart>,
    /// Whether a backtracking engine matches one of its patterns.
    pub(crate) backtracks: bool,
    /// Its size with its references expanded.
    pub(crate) size: u64,
}

impl SchemaGraph {
    /// Reads a schema and measures it.
    pub(crate) fn new(schema: &Value) -> Result<Self, SchemaRejection> {
        let mut reader = SchemaReader::new(schema);
        let first = reader.part(schema);
        while let Some((part, schema)) = reader.unread.pop() {
            let read = reader.read(schema).map_err(SchemaRejection::Invalid)?;
            reader.graph.parts[part] = read;
        }
        debug_assert_eq!(first, 0);
        let (graph, resources) = (reader.graph, reader.resources.len());
        let size = graph.measure(resources)?;
        Ok(Self { size, ..graph })
    }

    /// Returns the size of the schema with its references expanded.
    fn measure(&self, resources: usize) -> Result<u64, SchemaRejection> {
        let exceeds = |name, most, needs| Err(SchemaRejection::Exceeds { name, most, needs });
        let in_place = components(self.parts.len(), |part| self.parts[part].in_place.clone());
        if in_place.iter().any(|found| found.is_cycle) {
            let what = "a `$ref` leads back to its own schema for the same value";
            return Err(SchemaRejection::Invalid(what.to_owned()));
        }
        let (mut nesting, mut expanded) = (vec![0_u64; self.parts.len()], vec![0_u64; self.parts.len()]);
        for part in in_place.iter().flat_map(|found| &found.parts).copied() {
            let below = &self.parts[part].in_place;
            nesting[part] = 1 + below.iter().map(|below| nesting[*below]).max().unwrap_or_default();
            expanded[part] =
                below.iter().fold(self.parts[part].size(), |sum, below| sum.saturating_add(expanded[*below]));
        }
        let widest = expanded.iter().copied().max().unwrap_or_default();
        // The parts that track unevaluated members and elements are compiled again for each keyword that
        // needs them.
        let marking = self.parts.iter().zip(&expanded).filter(|(part, _)| part.tracks_evaluated());
        let marking = marking.fold(0_u64, |sum, (_, expanded)| sum.saturating_add(*expanded));
        let total = [self.expanded(), widest, marking, self.compiled(resources)];
        let total = total.into_iter().max().unwrap_or_default();
        if total > SCHEMA_SIZE {
            return exceeds("schema_size", SCHEMA_SIZE, total);
        }
        let deepest = nesting.into_iter().max().unwrap_or_default();
        if deepest > SCHEMA_NESTING { exceeds("schema_nesting", SCHEMA_NESTING, deepest) } else { Ok(total) }
    }

    /// Returns the size with every reference expanded. Parts that refer to each other in a cycle are expanded
    /// once.
    fn expanded(&self) -> u64 {
        let below = |part: usize| self.parts[part].in_place.iter().copied().chain(self.parts[part].within());
        let mut sizes = vec![0_u64; self.parts.len()];
        for found in components(self.parts.len(), |part| below(part).collect()) {
            let mut size = 0_u64;
            for part in &found.parts {
                size = size.saturating_add(self.parts[*part].size());
                let outside = below(*part).filter(|below| !found.contains(*below));
                size = outside.fold(size, |sum, below| sum.saturating_add(sizes[below]));
            }
            for part in found.parts {
                sizes[part] = size;
            }
        }
        sizes.first().copied().unwrap_or_default()
    }

    /// Returns how many parts are compiled. A part is compiled once for each order in which references can
    /// enter the resources of the schema, because dynamic references depend on the order.
    fn compiled(&self, resources: usize) -> u64 {
        let mut orders = 1_u64;
        for chosen in 1..resources as u64 {
            orders = orders.saturating_mul(chosen).saturating_add(1);
        }
        orders.saturating_mul(self.parts.len() as u64)
    }
}

/// Parts that can reach each other.
struct Component {
    /// In ascending order.
    parts: Vec<usize>,
    is_cycle: bool,
}

impl Component {
    fn contains(&self, part: usize) -> bool {
        self.parts.binary_search(&part).is_ok()
    }
}

/// Returns the strongly connected components of a graph, each after those that it reaches (Tarjan's
/// algorithm). Does not recurse, because a chain of references may be as long as the schema.
fn components(count: usize, below: impl Fn(usize) -> Vec<usize>) -> Vec<Component> {
    const UNSEEN: usize = usize::MAX;
    let (mut order, mut low) = (vec![UNSEEN; count], vec![UNSEEN; count]);
    let (mut is_open, mut open) = (vec![false; count], Vec::new());
    let (mut found, mut next) = (Vec::new(), 0);
    for start in 0..count {
        if order[start] != UNSEEN {
            continue;
        }
        let mut path: Vec<(usize, Vec<usize>)> = Vec::new();
        let mut enter = Some(start);
        loop {
            if let Some(part) = enter.take() {
                (order[part], low[part], is_open[part]) = (next, next, true);
                next += 1;
                open.push(part);
                path.push((part, below(part)));
            }
            let Some((part, rest)) = path.last_mut() else { break };
            let part = *part;
            match rest.pop() {
                Some(to) if order[to] == UNSEEN => enter = Some(to),
                Some(to) if is_open[to] => low[part] = low[part].min(order[to]),
                Some(_) => {}
                None => {
                    path.pop();
                    if let Some((above, _)) = path.last() {
                        low[*above] = low[*above].min(low[part]);
                    }
                    if low[part] == order[part] {
                        let first = open.iter().rposition(|one| *one == part).unwrap_or_default();
                        let mut parts = open.split_off(first);
                        for one in &parts {
                            is_open[*one] = false;
                        }
                        parts.sort_unstable();
                        let is_cycle = parts.len() > 1 || below(part).contains(&part);
                        found.push(Component { parts, is_cycle });
                    }
                }
            }
        }
    }
    found
}

/// Reads a schema into a graph.
struct SchemaReader<'s> {
    graph: SchemaGraph,
    /// The part of each known schema, by address.
    known: HashMap<*const Value, usize>,
    unread: Vec<(usize, &'s Value)>,
    /// The document, and every schema in it that has an identifier.
    resources: Vec<&'s Value>,
    anchors: HashMap<&'s str, Vec<&'s Value>>,
    /// Whether an identifier makes it unclear which references lead to a built-in schema.
    hides_built_in: bool,
}

impl<'s> SchemaReader<'s> {
    fn new(document: &'s Value) -> Self {
        let graph = SchemaGraph { parts: Vec::new(), backtracks: false, size: 0 };
        let (known, unread, anchors) = (HashMap::new(), Vec::new(), HashMap::new());
        let (resources, hides_built_in) = (vec![document], false);
        let mut reader = Self { graph, known, unread, resources, anchors, hides_built_in };
        // A schema within the document may be written in another draft than the document.
        let is_old = |schema: &&Map<String, Value>| {
            schema.get("$schema").and_then(Value::as_str).is_some_and(|name| name.contains("draft-04"))
        };
        let objects = objects_within(document);
        let old = objects.iter().filter_map(|schema| schema.as_object()).any(|schema| is_old(&schema));
        for schema in objects {
            reader.register_names(schema, old);
        }
        let mut ids = reader.resources.iter().map(|schema| lower_case_id(schema));
        reader.hides_built_in = ids.any(|id| id.contains(BUILT_IN_HOST) || !is_plain(&id));
        reader
    }

    /// Records the names under which references find a schema.
    fn register_names(&mut self, schema: &'s Value, old: bool) {
        let text = |name: &str| schema.get(name).and_then(Value::as_str);
        for id in [text("$id"), text("id").filter(|_| old)].into_iter().flatten() {
            let anchor = id.split_once('#').map(|(_, anchor)| anchor).filter(|anchor| !anchor.is_empty());
            if let Some(anchor) = anchor {
                self.anchors.entry(anchor).or_default().push(schema);
            }
            if !id.starts_with('#') && !std::ptr::eq(schema, self.resources[0]) {
                self.resources.push(schema);
            }
        }
        for anchor in ANCHORS.into_iter().filter_map(text) {
            self.anchors.entry(anchor).or_default().push(schema);
        }
    }

    fn part(&mut self, schema: &'s Value) -> usize {
        let next = self.graph.parts.len();
        let part = *self.known.entry(std::ptr::from_ref(schema)).or_insert(next);
        if part == next {
            self.graph.parts.push(SchemaPart::default());
            self.unread.push((part, schema));
        }
        part
    }

    fn pattern(&mut self, pattern: &str) -> Result<PatternCost, String> {
        let size = measure(pattern)?;
        self.graph.backtracks |= size.backtracks;
        Ok(PatternCost { states: size.states, backtracks: size.backtracks })
    }

    fn read(&mut self, schema: &'s Value) -> Result<SchemaPart, String> {
        let Value::Object(members) = schema else {
            return Ok(SchemaPart { steps: 1, ..SchemaPart::default() });
        };
        let mut part = SchemaPart { steps: 4 + members.len() as u64, ..SchemaPart::default() };
        for (keyword, value) in members {
            self.keyword(&mut part, keyword, value)?;
        }
        Ok(part)
    }

    fn keyword(&mut self, part: &mut SchemaPart, keyword: &str, value: &'s Value) -> Result<(), String> {
        let is_schema = value.is_object() || value.is_boolean();
        let list = value.as_array().map(Vec::as_slice).unwrap_or_default();
        let named = || value.as_object().into_iter().flatten();
        match keyword {
            "enum" | "const" | "required" | "dependentRequired" => part.steps += steps_to_compare(value),
            "multipleOf" => part.steps += DIVISION_STEPS,
            "uniqueItems" => part.unique = value == &Value::Bool(true),
            "pattern" => part.pattern = value.as_str().map(|text| self.pattern(text)).transpose()?,
            "properties" => {
                part.properties = named().map(|(name, schema)| (name.clone(), self.part(schema))).collect();
            }
            "patternProperties" => {
                for (pattern, schema) in named() {
                    let pattern = self.pattern(pattern)?;
                    part.pattern_properties.push((pattern, self.part(schema)));
                }
            }
            "additionalProperties" if is_schema => part.other_members.push(self.part(value)),
            "propertyNames" if is_schema => part.property_names = Some(self.part(value)),
            "unevaluatedProperties" if is_schema => part.unevaluated_members = Some(self.part(value)),
            "unevaluatedItems" if is_schema => part.unevaluated_items = Some(self.part(value)),
            "prefixItems" | "items" if value.is_array() => {
                part.prefix_items.extend(list.iter().map(|schema| self.part(schema)));
            }
            // Before `prefixItems`, a list and the schema of the remaining elements had these names.
            "items" | "additionalItems" if is_schema => part.other_items.push(self.part(value)),
            "contains" if is_schema => part.all_items.push(self.part(value)),
            _ if IN_PLACE.contains(&keyword) && is_schema => part.in_place.push(self.part(value)),
            _ if LISTS_IN_PLACE.contains(&keyword) => {
                part.in_place.extend(list.iter().map(|schema| self.part(schema)));
            }
            _ if NAMED_IN_PLACE.contains(&keyword) => {
                for (_, schema) in named() {
                    if schema.is_array() {
                        part.steps += steps_to_compare(schema);
                    } else {
                        part.in_place.push(self.part(schema));
                    }
                }
            }
            _ if REFERENCES.contains(&keyword) => {
                if let Some(reference) = value.as_str() {
                    self.refer(part, reference)?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn refer(&mut self, part: &mut SchemaPart, reference: &str) -> Result<(), String> {
        let (address, fragment) = reference.split_once('#').unwrap_or((reference, ""));
        if fragment.contains('#') {
            return Err(format!("the reference `{reference}` has two fragments"));
        }
        let address = address.to_ascii_lowercase();
        let is_built_in = is_built_in(&address);
        if is_built_in || (self.hides_built_in && !address.is_empty()) {
            part.steps_for_each = part.steps_for_each.saturating_add(BUILT_IN_STEPS);
        }
        let is_foreign = is_built_in && !self.hides_built_in;
        let found = if is_foreign { Vec::new() } else { self.targets(&address, fragment) };
        if found.is_empty() && !is_built_in {
            return Err(format!("the reference `{reference}` points to nothing in the schema"));
        }
        part.in_place.extend(found.into_iter().map(|schema| self.part(schema)));
        Ok(())
    }

    /// Returns the schemas that a reference may lead to.
    fn targets(&self, address: &str, fragment: &str) -> Vec<&'s Value> {
        let pointer = decoded(fragment);
        if pointer.is_empty() || pointer.starts_with('/') {
            let resources = self.resources_at(address);
            return resources.into_iter().filter_map(|resource| value_at(resource, &pointer)).collect();
        }
        // An anchor is found as it is written.
        let names = [Some(fragment), Some(pointer.as_str()).filter(|pointer| *pointer != fragment)];
        names.into_iter().flatten().filter_map(|name| self.anchors.get(name)).flatten().copied().collect()
    }

    /// Returns the resources that an address in lower case may refer to: those whose identifier has the same end, or
    /// all.
    fn resources_at(&self, address: &str) -> Vec<&'s Value> {
        let name = last_segment(address);
        if name.is_empty() || !is_plain(address) {
            return self.resources.clone();
        }
        let may_match = |resource: &&&'s Value| {
            let id = lower_case_id(resource);
            let is_root = std::ptr::eq::<Value>(**resource, self.resources[0]);
            let end = last_segment(&id);
            // The address of a resource without a last segment depends on the resource around it.
            end == name || (end.is_empty() && !is_root) || !is_plain(&id)
        };
        self.resources.iter().filter(may_match).copied().collect()
    }
}

/// Returns every object in a value, including the value itself.
fn objects_within(value: &Value) -> Vec<&Value> {
    let (mut objects, mut rest) = (Vec::new(), vec![value]);
    while let Some(value) = rest.pop() {
        match value {
            Value::Array(values) => rest.extend(values),
            Value::Object(members) => {
                objects.push(value);
                rest.extend(members.values());
            }
            _ => {}
        }
    }
    objects
}

/// Returns the identifier of a resource in lower case, without an empty fragment, or an empty text.
fn lower_case_id(schema: &Value) -> String {
    let id = schema.get("$id").or_else(|| schema.get("id")).and_then(Value::as_str);
    id.unwrap_or_default().trim_end_matches('#').to_ascii_lowercase()
}

/// Returns whether an address in lower case keeps its last segment when it is resolved and normalized.
fn is_plain(address: &str) -> bool {
    let is_plain = |one: char| one.is_ascii_alphanumeric() || matches!(one, '.' | '_' | '-' | ':' | '/');
    let has_port = address.split_once("//").is_some_and(|(_, rest)| rest.contains(':'));
    address.chars().all(is_plain)
        && !has_port
        && !address.split('/').any(|segment| segment == "." || segment == "..")
}

/// Returns what follows the last separator of an address.
fn last_segment(address: &str) -> &str {
    address.rsplit(['/', ':']).next().unwrap_or_default()
}

/// Returns whether an address in lower case belongs to the JSON Schema project, whose schemas are built in.
fn is_built_in(address: &str) -> bool {
    let rest = address.strip_prefix("https://").or_else(|| address.strip_prefix("http://"));
    rest.and_then(|rest| rest.strip_prefix(BUILT_IN_HOST)).is_some_and(|path| path.starts_with('/'))
}

/// Returns the value at a JSON pointer. Unlike [`Value::pointer`], reads the index `01` as 1, as the validator does.
fn value_at<'s>(value: &'s Value, pointer: &str) -> Option<&'s Value> {
    pointer.split('/').skip(1).try_fold(value, |value, segment| match value {
        Value::Array(values) => values.get(segment.parse::<usize>().ok()?),
        Value::Object(members) => members.get(&segment.replace("~1", "/").replace("~0", "~")),
        _ => None,
    })
}

/// Decodes the percent-encoding of a fragment.
fn decoded(fragment: &str) -> String {
    let mut bytes = Vec::with_capacity(fragment.len());
    let mut rest = fragment.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        let hex = behind.get(..2).and_then(|hex| str::from_utf8(hex).ok());
        let byte = hex.filter(|_| *first == b'%').and_then(|hex| u8::from_str_radix(hex, 16).ok());
        bytes.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { &behind[2..] } else { behind };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Returns the most steps that a comparison of any value with this one takes.
fn steps_to_compare(value: &Value) -> u64 {
    let (mut steps, mut rest) = (0_u64, vec![value]);
    while let Some(value) = rest.pop() {
        steps += 1;
        match value {
            Value::String(text) => steps += (text.len() / BYTES_PER_STEP) as u64,
            Value::Array(values) => rest.extend(values),
            Value::Object(members) => rest.extend(members.values()),
            _ => {}
        }
    }
    steps
}
