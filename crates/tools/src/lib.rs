//! The built-in tools, and programs as tools.
//!
//! | name | class | what it does | service |
//! |---|---|---|---|
//! | `clock` | pure | returns the time | [`WallClock`] |
//! | `calculator` | pure | calculates exactly | |
//! | `value_set`, `value_get`, `value_list` | transactional | stores named values of the session | |
//! | `read_more` | pure | reads more of an attachment | |
//! | `todo` | transactional | stores the to-do list of the session | |
//! | `ask_user` | idempotent | asks the user and parks until the answer | |
//! | `file_read`, `file_list`, `file_grep` | pure | reads, lists and searches files below a directory | [`FileRoot`] |
//! | `file_write`, `file_edit` | idempotent | writes files below it | [`FileRoot`] |
//! | `open_document` | pure | reads a document of the agent | |
//! | `fetch` | pure | reads a web page | [`egress::Egress`] |
//! | `shell` | at most once | runs a command in a sandbox, on Linux | `shell::Shell` |
//!
//! Tools in other languages are programs: see [`command`].
//!
//! [`Builtin`] lists the groups that need at most a clock, [`files`] adds the file tools, and [`egress`] restricts what
//! `fetch` may reach. Tools do not know turns or stores. They name the services they need, and the runtime injects
//! them.
//!
//! Two features bring heavy dependencies: `fetch` (the tool `fetch` and the egress rules) and `commands` (the shell, and
//! programs as tools).
mod ask_user;
mod calculator;
mod clock;
#[cfg(all(unix, feature = "commands"))]
pub mod command;
mod documents;
#[cfg(feature = "fetch")]
pub mod egress;
#[cfg(feature = "fetch")]
mod fetch;
mod files;
mod read_more;
#[cfg(all(target_os = "linux", feature = "commands"))]
pub mod sandbox;
#[cfg(all(target_os = "linux", feature = "commands"))]
pub mod shell;
mod todo;
mod values;

#[cfg(test)]
mod tool_tester;

pub use ask_user::{ASK_USER, AskUser, QUESTION_BYTES, QUESTION_OPTIONS, UserQuestion};
pub use calculator::Calculator;
pub use clock::{Clock, WallClock};
pub use documents::{DocumentArgs, OpenDocument};
#[cfg(feature = "fetch")]
pub use fetch::Fetch;
pub use files::edit::FileEdit;
pub use files::file_root::{FILE_BYTES, FileRoot, LISTED_MOST, PATH_BYTES};
pub use files::grep::{FileGrep, GREP_FILES, GREP_LINES, GREP_PATTERN_BYTES, GREP_WORK};
pub use files::link_free_open::{is_link_refusal, open_without_links};
pub use files::protected_files::ProtectedFiles;
pub use files::{FileList, FileRead, FileWrite};
pub use read_more::{READ_BYTES, ReadMore};
pub use todo::{TODO_BYTES, TODO_ITEMS, Todo, TodoItem, TodoState};
pub use values::{ValueGet, ValueList, ValueSet};

use outlast_ports::tool::Toolbox;
use outlast_vocab::Error;
use serde::Deserialize;

/// A group of tools that needs at most a clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Builtin {
    /// `clock`. Requires the service [`WallClock`].
    Clock,
    /// `calculator`.
    Calculator,
    /// `value_set`, `value_get` and `value_list`.
    Values,
    /// `read_more`. If it is enabled, results that are too large are attached instead of cut.
    ReadMore,
    /// `todo`.
    Todo,
    /// `ask_user`.
    AskUser,
}

impl Builtin {
    /// All groups.
    pub const ALL: &'static [Self] =
        &[Self::Clock, Self::Calculator, Self::Values, Self::ReadMore, Self::Todo, Self::AskUser];

    /// Adds the tools of the group.
    pub fn add_to(self, toolbox: &mut Toolbox) -> Result<(), Error> {
        match self {
            Self::Clock => toolbox.add(Clock),
            Self::Calculator => toolbox.add(Calculator),
            Self::Values => {
                toolbox.add(ValueSet)?;
                toolbox.add(ValueGet)?;
                toolbox.add(ValueList)
            }
            Self::ReadMore => toolbox.add(ReadMore),
            Self::Todo => toolbox.add(Todo),
            Self::AskUser => toolbox.add(AskUser),
        }
    }
}

/// Adds the file tools. Requires the service [`FileRoot`].
pub fn files(toolbox: &mut Toolbox) -> Result<(), Error> {
    toolbox.add(FileRead)?;
    toolbox.add(FileWrite)?;
    toolbox.add(FileList)?;
    toolbox.add(FileGrep)?;
    toolbox.add(FileEdit)
}
