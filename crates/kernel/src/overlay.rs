//! Folds layers of configuration into one: harness chain, agent, session, turn.
//!
//! Pure: the same layers give the same result. Reading layers and building tools from their definitions
//! happens elsewhere.
use outlast_vocab::label::TrustGuard;
use outlast_vocab::overlay::{CapabilityLayer, Layer, NamedDefinition, NamedModels, Overlay};
use outlast_vocab::package::{OPEN_DOCUMENT, Package};
use outlast_vocab::policy::{PolicyDecision, PolicyPoint, Rule};
use outlast_vocab::rate::RateLimit;
use outlast_vocab::{Error, Kind};
use std::collections::{BTreeMap, BTreeSet};

/// The separator between the parts of a prompt.
pub const BETWEEN_PARTS: &str = "\n\n";

/// A layer and its origin, in the form shown to a person: `harness base`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OriginLayer {
    /// Where the layer comes from.
    pub from: String,
    /// The content of the layer.
    pub overlay: Overlay,
}

impl OriginLayer {
    /// Creates a layer with its origin.
    pub fn new(from: impl Into<String>, overlay: Overlay) -> Self {
        Self { from: from.into(), overlay }
    }
}

/// Puts one layer over another. Associative: of three layers, any two neighbours can be joined first.
#[must_use]
pub fn join(under: Overlay, over: Overlay) -> Overlay {
    let Overlay { mut system, mut capabilities, mut builtin, mut tools, .. } = under;
    let (mut mcp, mut documents, mut rules) = (under.mcp, under.documents, under.rules);
    let mut rates = under.rates;
    let mut settings = under.settings;
    system.extend(over.system);
    add_new(&mut capabilities, over.capabilities);
    add_new(&mut builtin, over.builtin);
    merge_definitions(&mut tools, over.tools, |one, other| one.name == other.name);
    let mut hooks = under.hooks;
    let same = |one: &NamedDefinition, other: &NamedDefinition| {
        one.name == other.name && one.definition.get("point") == other.definition.get("point")
    };
    merge_definitions(&mut hooks, over.hooks, same);
    mcp.extend(over.mcp);
    documents.extend(over.documents);
    rules.extend(over.rules);
    rates.extend(over.rates);
    settings.extend(over.settings);
    // A layer that names a model or a list of models replaces both, because a fallback belongs to its own
    // list.
    let names_models = over.model.is_some() || !over.models.is_empty();
    let (model, models) = if names_models { (over.model, over.models) } else { (under.model, under.models) };
    Overlay {
        system,
        model,
        models,
        provider_wait_s: over.provider_wait_s.or(under.provider_wait_s),
        model_calls: over.model_calls.or(under.model_calls),
        capabilities,
        builtin,
        tools,
        mcp,
        documents,
        network: under.network.intersect(over.network),
        guard: under.guard.max(over.guard),
        hooks,
        rules,
        rates,
        settings,
    }
}

/// Replaces definitions that are the same as a new one, and appends the others.
fn merge_definitions(
    known: &mut Vec<NamedDefinition>,
    more: Vec<NamedDefinition>,
    same: impl Fn(&NamedDefinition, &NamedDefinition) -> bool,
) {
    for one in more {
        match known.iter_mut().find(|other| same(other, &one)) {
            Some(other) => *other = one,
            None => known.push(one),
        }
    }
}

fn add_new(names: &mut Vec<String>, more: Vec<String>) {
    for name in more {
        if !names.contains(&name) {
            names.push(name);
        }
    }
}

/// Folds layers, the root first.
///
/// Two rules of the same name are an error, because a record names the rule that decided; so are two rates of
/// the same name. A rule that opens the guard of a lower layer is an error too, because a layer must not
/// loosen a lower one.
pub fn fold(layers: impl IntoIterator<Item = OriginLayer>) -> Result<Overlay, Error> {
    let mut named: BTreeMap<(&str, String), String> = BTreeMap::new();
    let mut folded = Overlay::default();
    let mut guarded_by: Option<String> = None;
    for OriginLayer { from, overlay } in layers {
        if let (Some(below), Some(rule)) = (&guarded_by, overlay.rules.iter().find(|rule| opens_guard(rule)))
        {
            let detail = format!(
                "the rule `{}` of {from} allows calls that untrusted text may have caused, but {below} has a guard against them; only {below} or a layer that it inherits from may allow them",
                rule.id
            );
            return Err(Error::new(Kind::ConfigInvalid, detail));
        }
        if guarded_by.is_none() && !overlay.guard.is_open() {
            guarded_by = Some(from.clone());
        }
        let rules = overlay.rules.iter().map(|Rule { id, .. }| ("rule", id.to_string()));
        let rates = overlay.rates.iter().map(|RateLimit { name, .. }| ("rate", name.to_string()));
        for (what, name) in rules.chain(rates) {
            if let Some(other) = named.insert((what, name.clone()), from.clone()) {
                let detail = format!(
                    "two {what}s are called `{name}`, in {other} and in {from}; names must be unique, and a {what} of a layer \
                     below cannot be replaced"
                );
                return Err(Error::new(Kind::ConfigInvalid, detail));
            }
        }
        folded = join(folded, overlay);
    }
    Ok(folded)
}

/// Returns whether a rule allows calls that a guard would stop.
fn opens_guard(rule: &Rule) -> bool {
    let runs = matches!(
        rule.then,
        PolicyDecision::Allow | PolicyDecision::Modify { .. } | PolicyDecision::Defer { .. }
    );
    rule.untrusted == Some(true) && runs
}

/// The harnesses that layers can extend, and the capabilities that they can enable.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LayerRegistry {
    /// Harnesses by name.
    pub harnesses: BTreeMap<String, Layer>,
    /// Capabilities by name.
    pub capabilities: BTreeMap<String, CapabilityLayer>,
}

impl LayerRegistry {
    /// Returns the layers under a layer, the layer itself and those over it, the root first. The capabilities
    /// of a layer come before it, so that the layer can override them. Each capability appears once, where it
    /// is first enabled.
    pub fn layers(
        &self,
        from: impl Into<String>,
        layer: Layer,
        over: impl IntoIterator<Item = OriginLayer>,
    ) -> Result<Vec<OriginLayer>, Error> {
        let from = from.into();
        let mut chain = self.chain(&from, layer.parent.as_deref())?;
        chain.push(OriginLayer::new(from, layer.overlay));
        chain.extend(over);
        let mut on = BTreeSet::new();
        let mut layers = Vec::new();
        for placed in chain {
            for name in &placed.overlay.capabilities {
                self.enable_capability(name, &placed.from, &mut on, &mut layers)?;
            }
            layers.push(placed);
        }
        Ok(layers)
    }

    /// Returns the harnesses from the root down to this one.
    fn chain(&self, from: &str, parent: Option<&str>) -> Result<Vec<OriginLayer>, Error> {
        let mut way: Vec<&str> = Vec::new();
        let mut chain = Vec::new();
        let (mut stands, mut next) = (from.to_owned(), parent);
        while let Some(name) = next {
            if way.contains(&name) {
                let circle: Vec<&str> = way.into_iter().skip_while(|step| *step != name).collect();
                let detail =
                    format!("the harness `{name}` inherits from itself: {} → {name}", circle.join(" → "));
                return Err(Error::new(Kind::HarnessCycle, detail));
            }
            let harness = self.harnesses.get(name).ok_or_else(|| {
                let detail = format!(
                    "{stands} inherits from the harness `{name}`, which does not exist; there are: {}",
                    listed(self.harnesses.keys())
                );
                Error::new(Kind::HarnessNotFound, detail)
            })?;
            way.push(name);
            stands = format!("harness {name}");
            chain.push(OriginLayer::new(stands.clone(), harness.overlay.clone()));
            next = harness.parent.as_deref();
        }
        chain.reverse();
        Ok(chain)
    }

    /// Adds a capability after those that it requires. A capability that is already on is not added again, so
    /// circular requirements end.
    fn enable_capability(
        &self,
        name: &str,
        by: &str,
        on: &mut BTreeSet<String>,
        layers: &mut Vec<OriginLayer>,
    ) -> Result<(), Error> {
        let capability = self.capabilities.get(name).ok_or_else(|| {
            let detail = format!(
                "{by} enables the capability `{name}`, which does not exist; there are: {}",
                listed(self.capabilities.keys())
            );
            Error::new(Kind::CapabilityUnknown, detail)
        })?;
        if !on.insert(name.to_owned()) {
            return Ok(());
        }
        let from = format!("capability {name}");
        for needed in &capability.needs.capabilities {
            self.enable_capability(needed, &from, on, layers)?;
        }
        let overlay = Overlay { capabilities: vec![name.to_owned()], ..capability.overlay.clone() };
        layers.push(OriginLayer::new(from, overlay));
        Ok(())
    }
}

fn listed<'a>(names: impl Iterator<Item = &'a String>) -> String {
    let names: Vec<&str> = names.map(String::as_str).collect();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

/// Applies the overlay of a session or a turn to the package of its agent.
///
/// The overlay can extend the prompt, choose another model, and restrict what may happen. Tools, servers and
/// settings are an error: they need objects of this process, which a turn cannot create.
pub fn over(package: &Package, overlay: Overlay) -> Result<Package, Error> {
    let named = overlay.named_models()?;
    let Overlay { system, provider_wait_s, model_calls, documents, network, guard, rules, rates, .. } =
        overlay;
    let mut others = [
        ("capabilities", overlay.capabilities.is_empty()),
        ("builtin", overlay.builtin.is_empty()),
        ("tools", overlay.tools.is_empty()),
        ("mcp", overlay.mcp.is_empty()),
        ("hooks", overlay.hooks.is_empty()),
    ]
    .into_iter()
    .filter_map(|(field, empty)| (!empty).then_some(field))
    .chain(overlay.settings.keys().map(String::as_str));
    if let Some(field) = others.next() {
        let detail = format!(
            "a session or a turn may set `system`, `model`, `models`, `provider_wait_s`, `model_calls`, `documents`, `network`, `guard`, \
             `rules` and `rates`, but this one sets `{field}`; set it for an agent"
        );
        return Err(Error::new(Kind::ConfigInvalid, detail));
    }
    let opens =
        package.tools.iter().any(|tool| tool.as_str() == OPEN_DOCUMENT) || !package.documents.is_empty();
    if !opens && !documents.is_empty() {
        let detail =
            format!("the agent `{}` has no tool `{OPEN_DOCUMENT}` that could open documents", package.agent);
        return Err(Error::new(Kind::ConfigInvalid, detail));
    }
    let known = |rule: &&Rule| package.policy.rules.iter().any(|other| other.id == rule.id);
    if let Some(rule) = rules.iter().find(known) {
        let detail =
            format!("the agent `{}` has a rule `{}`, which cannot be replaced", package.agent, rule.id);
        return Err(Error::new(Kind::ConfigInvalid, detail));
    }
    let known = |rate: &&RateLimit| package.rates.iter().any(|other| other.name == rate.name);
    if let Some(rate) = rates.iter().find(known) {
        let detail =
            format!("the agent `{}` has a rate `{}`, which cannot be replaced", package.agent, rate.name);
        return Err(Error::new(Kind::ConfigInvalid, detail));
    }
    if let Some(rule) = rules.iter().find(|rule| opens_guard(rule)) {
        let detail = format!(
            "the rule `{}` allows calls that untrusted text may have caused; only an agent may have such a rule",
            rule.id
        );
        return Err(Error::new(Kind::ConfigInvalid, detail));
    }
    // A call with changed arguments may do more than the agent's rules, which may not cover those arguments,
    // would allow.
    let rewrites =
        |rule: &&Rule| rule.at == PolicyPoint::Tool && matches!(rule.then, PolicyDecision::Modify { .. });
    if let Some(rule) = rules.iter().find(rewrites) {
        let detail = format!(
            "the rule `{}` changes the arguments of calls of the agent `{}`; only an agent may have such a rule",
            rule.id, package.agent
        );
        return Err(Error::new(Kind::ConfigInvalid, detail));
    }
    // A call that a person is asked about is no longer refused by a strict guard.
    let softens = |rule: &&Rule| {
        rule.at == PolicyPoint::Tool
            && rule.untrusted != Some(false)
            && matches!(rule.then, PolicyDecision::Ask(_))
    };
    if let Some(rule) = rules.iter().find(softens).filter(|_| package.guard == TrustGuard::Strict) {
        let detail = format!(
            "the rule `{}` asks about calls that the strict guard of the agent `{}` refuses; give it `untrusted = false`",
            rule.id, package.agent
        );
        return Err(Error::new(Kind::ConfigInvalid, detail));
    }
    let mut package = package.clone();
    package.system = join_prompt(std::iter::once(package.system).chain(system));
    if let Some(NamedModels { first, fallbacks }) = named {
        (package.model, package.fallback_models) = (first, fallbacks);
    }
    package.provider_wait_s = provider_wait_s.or(package.provider_wait_s);
    package.model_calls = model_calls.map_or(package.model_calls, std::num::NonZeroU32::get);
    package.documents.extend(documents);
    package.network = package.network.intersect(network);
    package.guard = package.guard.max(guard);
    package.policy.rules.extend(rules.into_iter().map(|rule| Rule { narrows: true, ..rule }));
    package.rates.extend(rates);
    Ok(package)
}

/// Joins the parts of a prompt into the text that a model reads.
pub fn join_prompt(parts: impl IntoIterator<Item = String>) -> String {
    let parts: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    parts.join(BETWEEN_PARTS)
}

/// Returns the origins of the folded values: for each name, the layers that set it, the root first.
pub fn origins(layers: &[OriginLayer]) -> BTreeMap<String, Vec<String>> {
    let mut origins: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for OriginLayer { from, overlay } in layers {
        for name in names(overlay) {
            origins.entry(name).or_default().push(from.clone());
        }
    }
    origins
}

/// Returns the names of all values that a layer sets.
fn names(overlay: &Overlay) -> Vec<String> {
    let mut names = Vec::new();
    let mut name_if = |is: bool, name: &str| {
        if is {
            names.push(name.to_owned());
        }
    };
    name_if(!overlay.system.is_empty(), "system");
    name_if(overlay.model.is_some(), "model");
    name_if(!overlay.models.is_empty(), "models");
    name_if(overlay.provider_wait_s.is_some(), "provider_wait_s");
    name_if(overlay.model_calls.is_some(), "model_calls");
    name_if(!overlay.network.is_open(), "network");
    name_if(!overlay.guard.is_open(), "guard");
    names.extend(overlay.capabilities.iter().map(|name| format!("capabilities.{name}")));
    names.extend(overlay.builtin.iter().map(|name| format!("builtin.{name}")));
    names.extend(overlay.tools.iter().map(|NamedDefinition { name, .. }| format!("tools.{name}")));
    names.extend(overlay.mcp.keys().map(|name| format!("mcp.{name}")));
    names.extend(overlay.documents.keys().map(|path| format!("documents.{path}")));
    names.extend(overlay.hooks.iter().map(|NamedDefinition { name, .. }| format!("hooks.{name}")));
    names.extend(overlay.rules.iter().map(|rule| format!("rules.{}", rule.id)));
    names.extend(overlay.rates.iter().map(|rate| format!("rates.{}", rate.name)));
    names.extend(overlay.settings.keys().cloned());
    names
}
