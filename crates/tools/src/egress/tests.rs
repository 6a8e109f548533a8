//! Tests egress against real local servers, and against names whose addresses change with every lookup.
mod places;
mod redirects;
mod replies;
mod stage;
mod targets;
mod within;
