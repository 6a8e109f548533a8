//! Egress against real servers on this machine, and names whose addresses change with every look-up.
mod places;
mod redirects;
mod replies;
mod stage;
mod targets;
mod within;
