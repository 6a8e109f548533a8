//! `outlast models`: lists the configured model providers and checks whether each answers.
use crate::config_file::ConfigFile;
use crate::formatting::count;
use crate::global_args::GlobalArgs;
use crate::terminal;
use clap::Args;
use outlast::providers::ProviderStatus;
use outlast::{Error, Kind};
use serde_json::{Value, json};
use std::process::ExitCode;
use std::time::Duration;

/// Asks every provider for its models.
#[derive(Args)]
pub(crate) struct ModelsArgs {
    /// List the models of this provider, one per line; default: list the providers
    provider: Option<String>,
    /// Print one line of JSON per provider
    #[arg(long)]
    json: bool,
    /// Time limit for the answer of a provider
    #[arg(long, value_name = "SECONDS", default_value = "10")]
    patience: u32,
    #[command(flatten)]
    configuration: ConfigFile,
}

impl ModelsArgs {
    /// Runs the command. A configured provider that does not answer sets the exit code.
    pub(crate) async fn run(self, data: &GlobalArgs) -> Result<ExitCode, Error> {
        data.only_here("this command asks the providers with the keys of this machine")?;
        let providers = self.configuration.providers()?;
        let mut statuses = providers.check(Duration::from_secs(self.patience.into())).await;
        if let Some(wanted) = &self.provider {
            let names: Vec<String> = statuses.iter().map(|status| status.name.clone()).collect();
            statuses.retain(|status| status.name == *wanted);
            if statuses.is_empty() {
                let detail = format!("expected one of the providers {}, got `{wanted}`", names.join(", "));
                return Err(Error::new(Kind::InputInvalid, detail));
            }
        }
        let answers = statuses.iter().all(|status| status.base_url.is_none() || status.models.is_ok());
        if self.json {
            for status in &statuses {
                terminal::json(&as_json(status));
            }
        } else if self.provider.is_some() {
            for status in statuses {
                for model in status.models? {
                    terminal::say(&format!("{}/{model}", status.name));
                }
            }
        } else {
            terminal::table(
                &["PROVIDER", "SPEAKS", "AT", "ANSWERS"],
                &statuses.iter().map(row).collect::<Vec<_>>(),
            );
        }
        Ok(if answers { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

fn row(status: &ProviderStatus) -> Vec<String> {
    let answers = match &status.models {
        Ok(models) => count(models.len(), "model", "models"),
        Err(error) => error.detail().to_owned(),
    };
    let at = status.base_url.clone().unwrap_or_else(|| "-".to_owned());
    vec![status.name.clone(), status.api.name().to_owned(), at, answers]
}

fn as_json(status: &ProviderStatus) -> Value {
    let (models, error) = match &status.models {
        Ok(models) => (json!(models), Value::Null),
        Err(error) => (Value::Null, json!({ "code": error.kind().code(), "detail": error.detail() })),
    };
    json!({
        "provider": status.name,
        "speaks": status.api.name(),
        "base_url": status.base_url,
        "models": models,
        "error": error,
    })
}
