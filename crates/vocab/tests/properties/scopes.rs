//! Tests that scopes form a lattice: unions and intersections are scopes again, and no operation adds
//! permissions.
use outlast_vocab::OrgId;
use outlast_vocab::access::{Access, OrgVisibility, Scope, Scopes};
use proptest::prelude::*;
use proptest::sample::subsequence;

fn scopes() -> impl Strategy<Value = Scopes> {
    subsequence(Scope::ALL.to_vec(), 0..=Scope::ALL.len()).prop_map(|some| some.into_iter().collect())
}

/// Returns whether the set contains every scope that its scopes include.
fn is_closed(scopes: Scopes) -> bool {
    let had = Scope::ALL.into_iter().filter(|scope| scopes.allow(*scope));
    had.into_iter().all(|scope| Scopes::from(scope).is_within(scopes))
}

proptest! {
    #[test]
    fn scopes_are_a_lattice(a in scopes(), b in scopes(), c in scopes()) {
        prop_assert_eq!(a.or(b), b.or(a));
        prop_assert_eq!(a.and(b), b.and(a));
        prop_assert_eq!(a.or(b).or(c), a.or(b.or(c)));
        prop_assert_eq!(a.and(b).and(c), a.and(b.and(c)));
        prop_assert_eq!(a.or(a.and(b)), a);
        prop_assert_eq!(a.and(a.or(b)), a);
        prop_assert_eq!(a.or(Scopes::NONE), a);
        prop_assert_eq!(a.and(Scopes::ALL), a);
        prop_assert_eq!(a.is_within(b), a.and(b) == a);
        prop_assert_eq!(a.is_within(b), a.or(b) == b);
    }

    #[test]
    fn scope_operations_keep_scopes_closed_downwards(a in scopes(), b in scopes()) {
        prop_assert!(is_closed(a) && is_closed(a.or(b)) && is_closed(a.and(b)));
        prop_assert_eq!(a.to_string().parse::<Scopes>().unwrap(), a);
    }

    #[test]
    fn derived_access_is_never_wider_than_source(a in scopes(), b in scopes(), own: u128, other: u128) {
        let (own, other) = (OrgId::from_u128(own), OrgId::from_u128(other));
        for visibility in [OrgVisibility::Everything, OrgVisibility::Org(own), OrgVisibility::Org(other)] {
            let from = Access { scopes: a, ..Access::to(own) };
            let narrowed = from.limit_to(Access { visibility, scopes: b, ..Access::operator() });
            prop_assert!(narrowed.scopes.is_within(a) && narrowed.scopes.is_within(b));
            prop_assert!(narrowed.visibility != OrgVisibility::Everything);
        }
    }
}
