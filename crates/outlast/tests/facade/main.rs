//! Tests of the façade as programs use it: sessions, attachments, the rehearsal agent, models over HTTP, organisations,
//! shared databases, sinks and typed answers.
mod agent;
mod attachments;
mod layers;
mod models;
mod orgs;
mod points;
mod rerun;
mod sessions;
mod shared;
mod sinks;
mod stage;
mod threads;
mod tool;
mod typed;
