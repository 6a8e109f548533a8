//! Where everything is kept, and how commands reach it.
use clap::Args;
use outlast::sqlite::{Options, Sqlite};
use outlast::{Builder, Error, Kind, Outlast};
use std::path::PathBuf;

/// Which database, and what an acknowledged write of this process survives.
#[derive(Args)]
pub(crate) struct Data {
    /// The database file
    #[arg(
        long = "data",
        global = true,
        env = "OUTLAST_DATA",
        value_name = "FILE",
        default_value = "./outlast.db"
    )]
    pub(crate) path: PathBuf,
    /// Give up durability against power loss for speed
    #[arg(long, global = true)]
    pub(crate) unsafe_durability: bool,
}

impl Data {
    /// A runtime on the database, which is made if it is not there.
    pub(crate) fn builder(&self) -> Builder {
        let builder = Outlast::at(&self.path);
        if self.unsafe_durability { builder.unsafe_durability() } else { builder }
    }

    /// The database for a look or a single write. It must be there, and no worker starts.
    pub(crate) fn open(&self) -> Result<Sqlite, Error> {
        if !self.path.exists() {
            let detail = format!(
                "there is no database at {}; `outlast run` makes one, `--data FILE` names another",
                self.path.display()
            );
            return Err(Error::new(Kind::IoFailed, detail));
        }
        let options = Options { unsafe_durability: self.unsafe_durability, ..Options::default() };
        Sqlite::open_with(&self.path, options)
    }
}
