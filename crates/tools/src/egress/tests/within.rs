//! The network access of an agent restricts every client.
use crate::egress::{EgressRules, HostRule};
use expect_test::expect;
use outlast_vocab::overlay::NetworkAllowList;
use std::fmt::Write;

fn hosts(names: &[&str]) -> Vec<HostRule> {
    names.iter().map(|name| name.parse().unwrap()).collect()
}

#[test]
fn allow_lists_only_narrow_egress() {
    let rules =
        EgressRules::public().only(hosts(&["*.example.com"])).and_private(hosts(&["db.local:5432"])).unwrap();
    let both = NetworkAllowList::only(["a.example.com", "b.example.com", "db.local", "other.com"])
        .intersect(NetworkAllowList::only(["*.example.com", "other.com"]));
    let narrowed = rules.clone().within(&both).unwrap();
    let nothing = rules.clone().within(&NetworkAllowList::only(Vec::<String>::new())).unwrap();
    let mut log = String::new();
    for url in [
        "https://a.example.com/x",
        "https://c.example.com/x",
        "https://other.com",
        "http://db.local:5432",
        "https://b.example.com:8443",
    ] {
        for (name, rules) in [("wide", &rules), ("narrowed", &narrowed), ("nothing", &nothing)] {
            let said = rules
                .check(url)
                .map_or_else(|error| error.detail().to_owned(), |url| format!("{url} is reached"));
            writeln!(log, "{name}: {said}").unwrap();
        }
    }
    expect![[r"
        wide: https://a.example.com/x is reached
        narrowed: https://a.example.com/x is reached
        nothing: `https://a.example.com/x` is not reached: the network of the agent is restricted to: none
        wide: https://c.example.com/x is reached
        narrowed: `https://c.example.com/x` is not reached: the network of the agent is restricted to: a.example.com, b.example.com, db.local, other.com
        nothing: `https://c.example.com/x` is not reached: the network of the agent is restricted to: none
        wide: `https://other.com/` is not reached: only these hosts are allowed: *.example.com
        narrowed: `https://other.com/` is not reached: only these hosts are allowed: *.example.com
        nothing: `https://other.com/` is not reached: the network of the agent is restricted to: none
        wide: http://db.local:5432/ is reached
        narrowed: `http://db.local:5432/` is not reached: the network of the agent is restricted to: *.example.com, other.com
        nothing: `http://db.local:5432/` is not reached: the network of the agent is restricted to: none
        wide: `https://b.example.com:8443/` is not reached: only these hosts are allowed: *.example.com
        narrowed: `https://b.example.com:8443/` is not reached: the network of the agent is restricted to: *.example.com, other.com
        nothing: `https://b.example.com:8443/` is not reached: the network of the agent is restricted to: none
    "]]
    .assert_eq(&log);
    assert!(rules.within(&NetworkAllowList::only(["no host"])).is_err());
}
