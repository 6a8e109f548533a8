//! `outlast sessions export`.
use crate::data::Data;
use crate::find;
use crate::providers::Configuration;
use crate::terminal;
use clap::Args;
use outlast::clock::Clock;
use outlast::runtime::attachments::Attachments;
use outlast::runtime::system::SystemClock;
use outlast::{Error, Export as Written, Kind, Limits};
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Makes one file of a session.
#[derive(Args)]
pub(crate) struct Export {
    /// The session, by id or key
    session: String,
    /// The file; standard output without it. One that is there is not overwritten
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    configuration: Configuration,
}

impl Export {
    /// Does it.
    pub(crate) async fn run(self, data: &Data) -> Result<(), Error> {
        let store = data.open().await?;
        let session = find::session(store.as_ref(), &self.session).await?.id;
        let contents = data.contents(data.operator()?.as_ref(), &self.configuration).await?;
        let attachments = Attachments::new(store.clone(), contents, Limits::default());
        let export = Written::begin(store, attachments, session, SystemClock.now()).await?;
        let Some(path) = &self.output else {
            let out = io::stdout();
            return write(export, &mut out.lock(), Path::new("standard output")).await;
        };
        to_file(export, path).await
    }
}

/// Writes a file that has its name only once it is whole.
async fn to_file(export: Written, path: &Path) -> Result<(), Error> {
    if path.exists() {
        let detail = format!("{} is there already; name another file or remove it", path.display());
        return Err(Error::new(Kind::IoFailed, detail));
    }
    let mut partial = path.as_os_str().to_owned();
    partial.push(".partial");
    let partial = PathBuf::from(partial);
    let mut file = File::create(&partial).map_err(|cause| unwritten(&partial, cause))?;
    let written = write(export, &mut file, &partial).await;
    let named = written.and_then(|()| {
        let synced = file.sync_all().and_then(|()| std::fs::rename(&partial, path));
        synced.map_err(|cause| unwritten(path, cause))
    });
    if named.is_err() {
        // What is left is of no use; whether it can be removed changes nothing.
        let _ = std::fs::remove_file(&partial);
    }
    named
}

async fn write(mut export: Written, to: &mut impl Write, path: &Path) -> Result<(), Error> {
    while let Some(piece) = export.piece().await? {
        to.write_all(piece.as_bytes()).map_err(|cause| unwritten(path, cause))?;
        let (written, of) = export.progress();
        terminal::bar(written, of, "records");
    }
    terminal::progress(None);
    to.flush().map_err(|cause| unwritten(path, cause))
}

fn unwritten(path: &Path, cause: io::Error) -> Error {
    Error::new(Kind::IoFailed, format!("{} cannot be written: {cause}", path.display())).because(cause)
}
