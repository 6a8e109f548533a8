//! Sinks for the outputs of finished turns: [`Webhook`], [`Lines`] of a file, and [`Process`].
//!
//! All of them send the same message (`message`): the id of the delivery, and when and how the turn ended. They do not
//! know running turns, stores or retries. Whether there is another attempt depends only on their result.
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
