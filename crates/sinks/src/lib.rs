//! Where finished outputs go: [`Webhook`], [`Lines`] of a file, [`Process`]es.
//!
//! All of them send the same message (`message`): the id of the delivery, when the turn ended and how. They know nothing of
//! turns that run, of stores or of retries: what they say of one attempt is all that decides whether there is another.
mod file;
mod message;
#[cfg(unix)]
mod process;
mod signature;
mod webhook;

pub use file::Lines;
#[cfg(unix)]
pub use process::{ATTEMPT, DELIVERY_ID, Process};
pub use signature::{Secrets, Signed};
pub use webhook::Webhook;
