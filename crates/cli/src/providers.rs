//! Where models come from: the environment, and `outlast.toml`.
use clap::Args;
use outlast::Error;
use outlast::providers::Providers;
use std::path::{Path, PathBuf};

/// The file that is read when it is there.
const FILE: &str = "outlast.toml";

/// Which providers of models there are.
#[derive(Args)]
pub(crate) struct Configuration {
    /// The file that configures providers of models, beside the environment; `./outlast.toml` if it is there
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

impl Configuration {
    /// The providers of the environment and of the file.
    pub(crate) fn providers(&self) -> Result<Providers, Error> {
        match &self.config {
            Some(file) => Providers::from_file(file),
            None if Path::new(FILE).exists() => Providers::from_file(Path::new(FILE)),
            None => Providers::from_env(),
        }
    }
}
