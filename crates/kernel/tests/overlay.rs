//! Tests of folding layers of configuration.
use outlast_kernel::overlay::{LayerRegistry, OriginLayer, fold, join, join_prompt, origins, over};
use outlast_vocab::label::TrustGuard;
use outlast_vocab::overlay::{CapabilityLayer, CapabilityRequirements, Layer, NetworkAllowList, Overlay};
use outlast_vocab::package::Package;
use outlast_vocab::{Error, Kind};
use proptest::collection::{btree_set, vec};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::collections::BTreeMap;

fn overlay(value: Value) -> Overlay {
    Overlay::from_json(value).unwrap()
}

fn layer(value: Value) -> Layer {
    serde_json::from_value(value).unwrap()
}

fn folded(layers: &[Value]) -> Overlay {
    let placed =
        |(at, value): (usize, &Value)| OriginLayer::new(format!("layer {at}"), overlay(value.clone()));
    fold(layers.iter().enumerate().map(placed)).unwrap()
}

fn registry(harnesses: &[(&str, Value)], capabilities: &[(&str, Value)]) -> LayerRegistry {
    let named = |(name, value): &(&str, Value)| ((*name).to_owned(), layer(value.clone()));
    let able = |(name, value): &(&str, Value)| {
        ((*name).to_owned(), serde_json::from_value::<CapabilityLayer>(value.clone()).unwrap())
    };
    LayerRegistry {
        harnesses: harnesses.iter().map(named).collect(),
        capabilities: capabilities.iter().map(able).collect(),
    }
}

fn said(error: &Error) -> (Kind, &str) {
    (error.kind(), error.detail())
}

#[test]
fn overlay_joins_prompts_replaces_names_and_overrides_values() {
    let agent = folded(&[
        json!({"system": "Be kind.", "model": "a/one", "model_calls": 9, "files": "notes", "builtin": ["clock", "todo"],
               "tools": [{"name": "pay", "class": "pure"}, {"name": "ship"}], "mcp": {"web": {"url": "a"}, "db": {}},
               "documents": {"a.md": "1", "b.md": "2"}, "rules": [{"id": "x", "then": "allow"}]}),
        json!({"system": ["Sell cakes.", "Be brief."], "model": "a/two", "builtin": ["todo", "values"],
               "tools": [{"name": "pay", "class": "idempotent"}, {"name": "bake"}], "mcp": {"web": {"url": "b"}},
               "documents": {"b.md": "3"}, "rules": [{"id": "y", "then": "allow"}], "fetch": {}}),
        json!({"files": "other"}),
    ]);
    let want = json!({
        "system": ["Be kind.", "Sell cakes.", "Be brief."], "model": "a/two", "model_calls": 9, "files": "other", "fetch": {},
        "builtin": ["clock", "todo", "values"],
        "tools": [{"name": "pay", "class": "idempotent"}, {"name": "ship"}, {"name": "bake"}],
        "mcp": {"web": {"url": "b"}, "db": {}}, "documents": {"a.md": "1", "b.md": "3"},
        "rules": [{"id": "x", "then": "allow"}, {"id": "y", "then": "allow"}]
    });
    assert_eq!(serde_json::to_value(agent).unwrap(), want);
}

#[test]
fn lower_layer_rule_cannot_be_replaced() {
    let layers = ["harness base", "agent shop"]
        .map(|from| OriginLayer::new(from, overlay(json!({"rules": [{"id": "no", "then": "allow"}]}))));
    assert_eq!(
        said(&fold(layers).unwrap_err()),
        (
            Kind::ConfigInvalid,
            "two rules are called `no`, in harness base and in agent shop; names must be unique, and a rule of a layer \
             below cannot be replaced"
        )
    );
}

#[test]
fn layers_join_rates_without_replacing_lower_ones() {
    let rate = |name: &str| json!({ "rates": [{ "name": name, "tool": "*", "calls": 5, "per": "minute" }] });
    let names =
        |overlay: Overlay| overlay.rates.into_iter().map(|rate| rate.name.to_string()).collect::<Vec<_>>();
    assert_eq!(names(folded(&[rate("mail"), rate("pay")])), ["mail", "pay"]);
    let layers = ["harness base", "agent shop"].map(|from| OriginLayer::new(from, overlay(rate("mail"))));
    assert_eq!(
        said(&fold(layers).unwrap_err()),
        (
            Kind::ConfigInvalid,
            "two rates are called `mail`, in harness base and in agent shop; names must be unique, and a rate of a layer \
             below cannot be replaced"
        )
    );
    let package = Package::new("shop", "a/one".parse().unwrap(), "");
    let package = over(&package, overlay(rate("mail"))).unwrap();
    let refused = over(&package, overlay(rate("mail"))).unwrap_err();
    assert_eq!(refused.detail(), "the agent `shop` has a rate `mail`, which cannot be replaced");
}

#[test]
fn guard_only_tightens_even_by_turn() {
    let guard = |guard: &str| json!({ "guard": guard });
    let strict = folded(&[guard("strict"), guard("open"), guard("guarded")]);
    assert_eq!(strict.guard, TrustGuard::Strict);
    let package =
        Package { guard: TrustGuard::Guarded, ..Package::new("shop", "a/one".parse().unwrap(), "") };
    assert_eq!(over(&package, overlay(guard("strict"))).unwrap().guard, TrustGuard::Strict);
    assert_eq!(over(&package, overlay(guard("open"))).unwrap().guard, TrustGuard::Guarded);
    let opens = overlay(json!({"rules": [{"id": "mine", "untrusted": true, "then": "allow"}]}));
    assert_eq!(
        said(&over(&package, opens).unwrap_err()),
        (
            Kind::ConfigInvalid,
            "the rule `mine` allows calls that untrusted text may have caused; only an agent may have such a rule"
        )
    );
}

#[test]
fn higher_layer_cannot_open_lower_guard() {
    let opens = |then: &str| json!({"rules": [{"id": "mine", "untrusted": true, "then": then}]});
    let joined = |layers: [(&str, Value); 2]| {
        fold(layers.map(|(from, value)| OriginLayer::new(from, overlay(value)))).map(drop)
    };
    let guard = || json!({"guard": "guarded"});
    assert_eq!(
        said(&joined([("harness house", guard()), ("agent shop", opens("allow"))]).unwrap_err()),
        (
            Kind::ConfigInvalid,
            "the rule `mine` of agent shop allows calls that untrusted text may have caused, but harness house has a guard against them; only harness house or a layer that it inherits from may allow them"
        )
    );
    let both = json!({"guard": "strict", "rules": opens("allow")["rules"]});
    assert!(joined([("harness house", both), ("agent shop", json!({}))]).is_ok());
    assert!(joined([("capability mail", opens("allow")), ("agent shop", guard())]).is_ok());
    let asks = json!({"rules": [{"id": "mine", "untrusted": true, "then": {"ask": {}}}]});
    assert!(joined([("harness house", guard()), ("agent shop", asks)]).is_ok());
}

#[test]
fn turn_rules_only_narrow_and_modify_no_arguments() {
    let package = Package::new("shop", "a/one".parse().unwrap(), "");
    let rule = |at: &str, then: Value| overlay(json!({"rules": [{"id": "mine", "at": at, "then": then}]}));
    let allows = over(&package, rule("tool", json!("allow"))).unwrap();
    assert!(allows.policy.rules.iter().all(|rule| rule.narrows));
    let set = |path: &str, value: Value| json!({"modify": {"set": {path: value}}});
    assert_eq!(
        said(&over(&package, rule("tool", set("/to", json!("eve")))).unwrap_err()),
        (
            Kind::ConfigInvalid,
            "the rule `mine` changes the arguments of calls of the agent `shop`; only an agent may have such a rule"
        )
    );
    assert!(over(&package, rule("model", set("/options/tokens_most", json!(9)))).is_ok());
}

#[test]
fn session_cannot_ask_where_strict_guard_refuses() {
    let asks = |more: Value| {
        let mut rule = json!({"id": "mine", "tool": "pay", "then": {"ask": {}}});
        rule.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        overlay(json!({ "rules": [rule] }))
    };
    let package = |guard| Package { guard, ..Package::new("shop", "a/one".parse().unwrap(), "") };
    for more in [json!({}), json!({"untrusted": true})] {
        assert_eq!(
            said(&over(&package(TrustGuard::Strict), asks(more.clone())).unwrap_err()),
            (
                Kind::ConfigInvalid,
                "the rule `mine` asks about calls that the strict guard of the agent `shop` refuses; give it \
                 `untrusted = false`"
            )
        );
        assert!(over(&package(TrustGuard::Guarded), asks(more)).is_ok());
    }
    assert!(over(&package(TrustGuard::Strict), asks(json!({"untrusted": false}))).is_ok());
    assert!(over(&package(TrustGuard::Strict), asks(json!({"at": "payment"}))).is_ok());
}

#[test]
fn rule_with_unknown_field_is_refused() {
    for (rule, unknown) in [
        (json!({"id": "x", "then": "allow", "test": []}), "test"),
        (
            json!({"id": "x", "then": "allow", "tests": [{"path": "/a", "is": {"over": 1}, "not": true}]}),
            "not",
        ),
        (json!({"id": "x", "then": {"deny": {"reason": "no", "why": "no"}}}), "why"),
        (json!({"id": "x", "then": {"ask": {"whom": ["ann"]}}}), "whom"),
        (
            json!({"id": "x", "then": {"ask": {"escalate": {"after": {"secs": 1, "nanos": 0}, "to": ["bob"], "cc": []}}}}),
            "cc",
        ),
        (
            json!({"id": "x", "at": "output", "then": {"modify": {"redact": [{"pattern": "a", "with": "b", "all": true}]}}}),
            "all",
        ),
        (json!({"id": "x", "then": "allow", "times": {"zone": "UTC", "days": ["mon"], "day": "tue"}}), "day"),
    ] {
        let error = Overlay::from_json(json!({ "rules": [rule] })).unwrap_err();
        assert!(error.to_string().contains(&format!("unknown field `{unknown}`")), "{error}");
    }
    let rate = json!({"name": "r", "tool": "*", "calls": 5, "per": "minute", "cals": 1});
    assert!(Overlay::from_json(json!({ "rates": [rate] })).is_err());
}

#[test]
fn chain_folds_from_root_with_capabilities_first() {
    let registry = registry(
        &[("root", json!({"system": "root"})), ("leaf", json!({"parent": "root", "capabilities": ["sums"]}))],
        &[
            (
                "sums",
                json!({"needs": {"capabilities": ["base"]}, "builtin": ["calculator"], "model_calls": 3}),
            ),
            ("base", json!({"system": "base"})),
        ],
    );
    let agent = layer(json!({"parent": "leaf", "capabilities": ["sums", "base"], "model_calls": 5}));
    let layers = registry.layers("agent shop", agent, []).unwrap();
    let order: Vec<&str> = layers.iter().map(|placed| placed.from.as_str()).collect();
    assert_eq!(order, ["harness root", "capability base", "capability sums", "harness leaf", "agent shop"]);
    assert_eq!(origins(&layers)["model_calls"], ["capability sums".to_owned(), "agent shop".to_owned()],);
    let agent = fold(layers).unwrap();
    assert_eq!(agent.model_calls.unwrap().get(), 5);
    assert_eq!(agent.capabilities, ["base", "sums"]);
}

#[test]
fn layer_cycle_and_missing_parent_are_distinct_errors() {
    let registry = registry(
        &[
            ("a", json!({"parent": "b"})),
            ("b", json!({"parent": "c"})),
            ("c", json!({"parent": "b"})),
            ("d", json!({"parent": "e"})),
        ],
        &[],
    );
    let refused =
        |parent: &str| registry.layers("agent x", layer(json!({"parent": parent})), []).unwrap_err();
    assert_eq!(said(&refused("a")), (Kind::HarnessCycle, "the harness `b` inherits from itself: b → c → b"));
    assert_eq!(
        said(&refused("d")),
        (
            Kind::HarnessNotFound,
            "harness d inherits from the harness `e`, which does not exist; there are: a, b, c, d"
        )
    );
    assert_eq!(refused("f").kind(), Kind::HarnessNotFound);
}

#[test]
fn unknown_capability_error_lists_known_ones() {
    let registry =
        registry(&[], &[("sums", json!({})), ("web", json!({"needs": {"capabilities": ["net"]}}))]);
    let refused =
        |name: &str| registry.layers("agent x", layer(json!({"capabilities": [name]})), []).unwrap_err();
    assert_eq!(
        said(&refused("some")),
        (
            Kind::CapabilityUnknown,
            "agent x enables the capability `some`, which does not exist; there are: sums, web"
        )
    );
    assert_eq!(
        said(&refused("web")).1,
        "capability web enables the capability `net`, which does not exist; there are: sums, web"
    );
}

#[test]
fn mutually_dependent_capabilities_are_enabled_once() {
    let needs = |name: &str| CapabilityLayer {
        needs: CapabilityRequirements {
            capabilities: vec![name.to_owned()],
            ..CapabilityRequirements::default()
        },
        ..CapabilityLayer::default()
    };
    let capabilities = BTreeMap::from([("a".to_owned(), needs("b")), ("b".to_owned(), needs("a"))]);
    let registry = LayerRegistry { capabilities, ..LayerRegistry::default() };
    let layers = registry.layers("agent x", layer(json!({"capabilities": ["a"]})), []).unwrap();
    assert_eq!(layers.len(), 3);
}

#[test]
fn turn_overlay_restricts_but_defines_no_tools() {
    let model = "a/one".parse().unwrap();
    let package =
        Package { network: NetworkAllowList::only(["a", "b"]), ..Package::new("shop", model, "Be kind.") };
    let said = overlay(json!({"system": "Be brief.", "model": "a/two", "network": ["b", "c"]}));
    let turned = over(&package, said).unwrap();
    assert_eq!((turned.system.as_str(), turned.model.as_str()), ("Be kind.\n\nBe brief.", "a/two"));
    assert_eq!(
        turned.network,
        NetworkAllowList::only(["a", "b"]).intersect(NetworkAllowList::only(["b", "c"]))
    );
    assert_eq!(over(&package, Overlay::default()).unwrap(), package);
    let refused = over(&package, overlay(json!({"tools": [{"name": "pay"}]}))).unwrap_err();
    assert_eq!(
        refused.detail(),
        "a session or a turn may set `system`, `model`, `models`, `provider_wait_s`, `model_calls`, `documents`, `network`, `guard`, `rules` and `rates`, but this one sets `tools`; set it for an agent"
    );
}

fn names() -> impl Strategy<Value = Vec<String>> {
    vec("[a-d]", 0..4)
}

prop_compose! {
    fn any_overlay()(
        system in vec("[a-c]{1,2}", 0..3),
        model in proptest::option::of("p/[ab]"),
        calls in proptest::option::of(1_u32..4),
        capabilities in names(),
        builtin in names(),
        tools in vec(("[a-d]", 0..3), 0..4),
        documents in proptest::collection::btree_map("[a-d]", "[x-z]", 0..3),
        network in proptest::option::of(btree_set("[a-d]", 0..4)),
        guard in prop::sample::select(vec!["open", "guarded", "strict"]),
        mcp in proptest::collection::btree_map("[a-d]", 0..3, 0..3),
        hooks in vec(("[ab]", prop::sample::select(vec!["before_tool", "after_tool"]), 0..3), 0..3),
        names in vec(any::<u64>(), 0..3),
        settings in proptest::collection::btree_map("set_[a-d]", 0..3, 0..3),
    ) -> Overlay {
        let mcp: BTreeMap<String, Value> = mcp.into_iter().map(|(name, is)| (name, json!({"is": is}))).collect();
        // Another test covers duplicate names.
        let rules: Vec<Value> = names.iter().map(|name| json!({"id": format!("r{name}"), "then": "allow"})).collect();
        let rate = |name: &u64| json!({"name": format!("r{name}"), "tool": "*", "calls": 5, "per": "minute"});
        let rates: Vec<Value> = names.iter().map(rate).collect();
        let mut value = json!({
            "system": system, "documents": documents, "guard": guard, "mcp": mcp, "rules": rules, "rates": rates
        });
        let members = value.as_object_mut().unwrap();
        if let Some(model) = model { members.insert("model".into(), json!(model)); }
        if let Some(calls) = calls { members.insert("model_calls".into(), json!(calls)); }
        if let Some(network) = network { members.insert("network".into(), json!(network)); }
        members.extend(settings.into_iter().map(|(name, value)| (name, json!(value))));
        let mut overlay = overlay(value);
        for (name, is) in tools {
            overlay = join(overlay, self::overlay(json!({"tools": [{"name": name, "is": is}]})));
        }
        for (name, point, is) in hooks {
            let hook = json!({"name": name, "point": point, "is": is});
            overlay = join(overlay, self::overlay(json!({"hooks": [hook]})));
        }
        for name in capabilities {
            overlay = join(overlay, Overlay { capabilities: vec![name], ..Overlay::default() });
        }
        for name in builtin {
            overlay = join(overlay, Overlay { builtin: vec![name], ..Overlay::default() });
        }
        overlay
    }
}

/// Returns whether the network allow-lists permit a host.
fn reaches(network: &NetworkAllowList, host: &str) -> bool {
    network.lists().all(|list| list.contains(host))
}

proptest! {
    #[test]
    fn layer_join_is_associative(
        a in any_overlay(), b in any_overlay(), c in any_overlay()
    ) {
        let left = join(join(a.clone(), b.clone()), c.clone());
        prop_assert_eq!(left, join(a, join(b, c)));
    }

    #[test]
    fn empty_layer_changes_nothing(a in any_overlay()) {
        prop_assert_eq!(&join(a.clone(), Overlay::default()), &a);
        prop_assert_eq!(&join(Overlay::default(), a.clone()), &a);
    }

    #[test]
    fn network_allow_lists_intersect_and_empty_blocks_all(
        layers in vec(any_overlay(), 1..5)
    ) {
        let placed = layers.iter().map(|layer| OriginLayer::new("x", layer.clone()));
        let folded = fold(placed).unwrap();
        for host in ["a", "b", "c", "d"] {
            let all = layers.iter().all(|layer| reaches(&layer.network, host));
            prop_assert_eq!(reaches(&folded.network, host), all);
        }
        if layers.iter().any(|layer| layer.network == NetworkAllowList::only(Vec::<String>::new())) {
            prop_assert!(["a", "b", "c", "d"].iter().all(|host| !reaches(&folded.network, host)));
        }
    }

    #[test]
    fn no_overlay_loosens_guard_or_network(
        layers in vec(any_overlay(), 1..4), said in vec(any_overlay(), 1..4)
    ) {
        let folded = fold(layers.iter().map(|layer| OriginLayer::new("x", layer.clone()))).unwrap();
        prop_assert_eq!(Some(folded.guard), layers.iter().map(|layer| layer.guard).max());
        let mut package = Package {
            guard: folded.guard,
            network: folded.network,
            ..Package::new("shop", "a/one".parse().unwrap(), "")
        };
        for overlay in said {
            // Other tests cover the settings that a session or a turn may not change.
            let said = Overlay { guard: overlay.guard, network: overlay.network, ..Overlay::default() };
            let now = over(&package, said.clone()).unwrap();
            prop_assert_eq!(now.guard, package.guard.max(said.guard));
            for host in ["a", "b", "c", "d"] {
                let both = reaches(&package.network, host) && reaches(&said.network, host);
                prop_assert_eq!(reaches(&now.network, host), both);
            }
            package = now;
        }
    }

    #[test]
    fn prompt_parts_keep_layer_order(layers in vec(any_overlay(), 1..5)) {
        let parts: Vec<String> = layers.iter().flat_map(|layer| layer.system.clone()).collect();
        let folded = fold(layers.into_iter().map(|layer| OriginLayer::new("x", layer))).unwrap();
        prop_assert_eq!(&folded.system, &parts);
        prop_assert_eq!(join_prompt(folded.system), parts.join("\n\n"));
    }

    #[test]
    fn folded_overlay_round_trips_through_json(a in any_overlay(), b in any_overlay()) {
        let folded = join(a, b);
        prop_assert_eq!(Overlay::from_json(serde_json::to_value(&folded).unwrap()).unwrap(), folded);
    }
}
