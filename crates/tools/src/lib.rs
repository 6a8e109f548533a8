//! Built-in tools, and programs as tools.
//!
//! | name | class | what it does | needs |
//! |---|---|---|---|
//! | `clock` | pure | tells the time | [`WallClock`] |
//! | `calculator` | pure | calculates exactly | |
//! | `value_set`, `value_get`, `value_list` | transactional | keeps named values with the session | |
//! | `file_read`, `file_list` | pure | reads and lists files below a directory | [`FileRoot`] |
//! | `file_write` | idempotent | writes files below it | [`FileRoot`] |
//!
//! Tools of other languages are programs: [`command`].
//!
//! [`builtin`] adds those that need nothing but a clock, [`files`] the rest. Tools do not know turns or stores: they
//! name the services they need, and the runtime hands them over.
mod calculator;
mod clock;
#[cfg(unix)]
pub mod command;
mod files;
mod values;

#[cfg(test)]
mod trial;

pub use calculator::Calculator;
pub use clock::{Clock, WallClock};
pub use files::root::{FILE_BYTES, FileRoot, LISTED_MOST, PATH_BYTES};
pub use files::{FileList, FileRead, FileWrite};
pub use values::{ValueGet, ValueList, ValueSet};

use outlast_ports::tool::Toolbox;
use outlast_vocab::Error;

/// Adds clock, calculator and values. A [`WallClock`] must be granted.
pub fn builtin(toolbox: &mut Toolbox) -> Result<(), Error> {
    toolbox.add(Clock)?;
    toolbox.add(Calculator)?;
    toolbox.add(ValueSet)?;
    toolbox.add(ValueGet)?;
    toolbox.add(ValueList)
}

/// Adds the tools for files. A [`FileRoot`] must be granted.
pub fn files(toolbox: &mut Toolbox) -> Result<(), Error> {
    toolbox.add(FileRead)?;
    toolbox.add(FileWrite)?;
    toolbox.add(FileList)
}
