//! Decides what a turn may do: policy points, hooks, approvals, and grants.

pub mod approval_links;
pub mod approvals;
pub(crate) mod grants;
pub mod hooks;
pub(crate) mod policy_evaluator;
pub(crate) mod policy_points;
