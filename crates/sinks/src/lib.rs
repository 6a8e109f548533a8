//! Sinks for the outputs of finished turns: [`WebhookSink`], [`JsonLinesFile`] of a file, and [`ProcessSink`].
//!
//! All of them send the same message (`message`): the id of the delivery, and when and how the turn ended. They do not
//! know running turns, stores or retries. Whether there is another attempt depends only on their result.
mod file;
mod message;
#[cfg(unix)]
mod process;
mod signature;
mod webhook;

pub use file::JsonLinesFile;
#[cfg(unix)]
pub use process::{ATTEMPT, DELIVERY_ID, ProcessSink};
pub use signature::{SignatureHeaders, WebhookSecrets};
pub use webhook::WebhookSink;
