//! Finds the points where policies can only permit, from their scopes alone. In doubt, the engine decides.
use crate::{entity, resource_kind};
use cedar_policy::{
    ActionConstraint, Effect, Entities, EntityUid, Policy, PolicySet, PrincipalConstraint, ResourceConstraint,
};
use outlast_vocab::Error;
use outlast_vocab::policy::PolicyPoint;

/// Returns whether every request of an agent at a point is permitted, for any resource.
pub(crate) fn permits_all(
    policies: &PolicySet,
    entities: &Entities,
    at: PolicyPoint,
    agent: &str,
) -> Result<bool, Error> {
    let request = PointRequests {
        principal: entity("Agent", agent)?,
        action: entity("Action", at.name())?,
        // At these points the resource is fixed; at the others it is only known from the request.
        resource: entity(resource_kind(at), at.name())?,
        is_one: matches!(at, PolicyPoint::Turn | PolicyPoint::Output),
        entities,
    };
    let mut permitted = false;
    for policy in policies.policies() {
        let fit = request.fit(policy);
        if fit == ScopeMatch::Never {
            continue;
        }
        // A condition may be false, and fails if a fact is missing.
        if policy.effect() == Effect::Forbid || policy.has_non_scope_constraint() {
            return Ok(false);
        }
        permitted |= fit == ScopeMatch::Always;
    }
    Ok(permitted)
}

/// The possible requests of an agent at a point.
struct PointRequests<'a> {
    principal: EntityUid,
    action: EntityUid,
    resource: EntityUid,
    is_one: bool,
    entities: &'a Entities,
}

/// Whether a scope matches these requests.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ScopeMatch {
    Always,
    Perhaps,
    Never,
}

impl PointRequests<'_> {
    fn fit(&self, policy: &Policy) -> ScopeMatch {
        if self.fits_action(&policy.action_constraint())
            && self.fits_principal(&policy.principal_constraint())
        {
            self.fit_resource(&policy.resource_constraint())
        } else {
            ScopeMatch::Never
        }
    }

    fn fits_action(&self, scope: &ActionConstraint) -> bool {
        match scope {
            ActionConstraint::Any => true,
            ActionConstraint::Eq(action) => *action == self.action,
            ActionConstraint::In(actions) => actions.iter().any(|group| self.is_in(&self.action, group)),
        }
    }

    fn fits_principal(&self, scope: &PrincipalConstraint) -> bool {
        let principal = &self.principal;
        match scope {
            PrincipalConstraint::Any => true,
            PrincipalConstraint::Eq(agent) => agent == principal,
            PrincipalConstraint::In(group) => self.is_in(principal, group),
            PrincipalConstraint::Is(kind) => kind == principal.type_name(),
            PrincipalConstraint::IsIn(kind, group) => {
                kind == principal.type_name() && self.is_in(principal, group)
            }
        }
    }

    fn fit_resource(&self, scope: &ResourceConstraint) -> ScopeMatch {
        let resource = &self.resource;
        let (fits_kind, fits) = match scope {
            ResourceConstraint::Any => return ScopeMatch::Always,
            ResourceConstraint::Is(kind) if kind == resource.type_name() => return ScopeMatch::Always,
            ResourceConstraint::Is(_) => (false, false),
            ResourceConstraint::Eq(one) => (one.type_name() == resource.type_name(), one == resource),
            ResourceConstraint::In(group) => (true, self.is_in(resource, group)),
            ResourceConstraint::IsIn(kind, group) => {
                (kind == resource.type_name(), self.is_in(resource, group))
            }
        };
        match (fits_kind, self.is_one, fits) {
            (true, false, _) => ScopeMatch::Perhaps,
            (true, true, true) => ScopeMatch::Always,
            _ => ScopeMatch::Never,
        }
    }

    fn is_in(&self, one: &EntityUid, group: &EntityUid) -> bool {
        one == group || self.entities.is_ancestor_of(group, one)
    }
}
