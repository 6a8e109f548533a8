//! `outlast keys`: creates, lists, checks and revokes the API keys of an organisation.
use crate::formatting;
use crate::global_args::GlobalArgs;
use crate::input;
use crate::terminal;
use clap::{Args, Subcommand};
use outlast::clock::Clock;
use outlast::orgs::KeyView;
use outlast::runtime::worker::keys::{ApiKeyGrant, issue};
use outlast::runtime::worker::system::{SystemClock, SystemEntropy};
use outlast::vocab::Millis;
use outlast::vocab::access::{Principal, Scope, Scopes};
use outlast::vocab::id::KeyId;
use outlast::{Error, Kind};
use outlast_client::ClientApiKey;
use outlast_client::api::about::CallerIdentity;
use outlast_client::api::access::NewApiKey;
use serde_json::{Value, json};
use std::time::Duration;

/// Lists, creates, checks and revokes API keys.
#[derive(Args)]
pub(crate) struct KeysArgs {
    #[command(subcommand)]
    what: Option<KeysCommand>,
}

#[derive(Subcommand)]
enum KeysCommand {
    /// List the keys, without their secrets
    List,
    /// Create a key and print it once
    Create(KeyCreateArgs),
    /// Print what the key on standard input gives access to
    Check,
    /// Revoke a key at once
    Revoke {
        /// Id of the key
        key: KeyId,
    },
}

#[derive(Args)]
struct KeyCreateArgs {
    /// Name that the key acts under
    name: String,
    /// Scope of the key: read, run, approve, operate or admin; repeatable
    #[arg(long = "scope", value_name = "SCOPE", default_value = "run")]
    scopes: Vec<Scope>,
    /// The key acts for a person, not for a program
    #[arg(long)]
    person: bool,
    /// How long the key is valid, like `90d`; default: forever
    #[arg(long, value_name = "SPAN")]
    expires: Option<String>,
}

impl KeysArgs {
    pub(crate) async fn run(self, data: &GlobalArgs) -> Result<(), Error> {
        match self.what {
            None | Some(KeysCommand::List) => list(data).await,
            Some(KeysCommand::Create(create)) => create.run(data).await,
            Some(KeysCommand::Check) => check(data).await,
            Some(KeysCommand::Revoke { key }) => revoke(data, key).await,
        }
    }
}

impl KeyCreateArgs {
    async fn run(self, data: &GlobalArgs) -> Result<(), Error> {
        let expires = self.expires.as_deref().map(|text| input::span("--expires", text)).transpose()?;
        if expires == Some(Duration::ZERO) {
            let detail = "`--expires` must be more than 0; remove it for a key that never expires";
            return Err(Error::new(Kind::InputInvalid, detail));
        }
        let name = input::name("NAME", &self.name)?;
        let by = if self.person { Principal::Person(name) } else { Principal::Service(name) };
        let scopes = self.scopes.into_iter().collect();
        let (id, key) = match data.client_of_any()? {
            Some(client) => {
                let expires_in_s = expires.map(|span| span.as_secs());
                let new = NewApiKey { by, scopes, expires_in_s, org: data.org.clone() };
                client.create_key(&new).await?
            }
            None => make(data, by, scopes, expires).await?,
        };
        if data.json {
            terminal::json(&json!({ "id": id, "key": key }));
        } else {
            terminal::say(&key);
        }
        terminal::note(&format!("· {id} is shown only once and is not stored; keep it as a secret"));
        Ok(())
    }
}

/// Creates a key in a database file.
async fn make(
    data: &GlobalArgs,
    by: Principal,
    scopes: Scopes,
    expires: Option<Duration>,
) -> Result<(KeyId, String), Error> {
    let now = SystemClock.now();
    // The first key of a server is created before the database exists.
    let store = data.open_or_create().await?;
    let secret = data.operator()?.secret().await?;
    let org = data.org_in(store.as_ref()).await?;
    let grant = ApiKeyGrant { org, by, scopes, expires: expires.map(|span| now.after(span)) };
    let key = issue(store.as_ref(), &secret, grant, now, &SystemEntropy).await?;
    Ok((key.id, key.reveal()))
}

async fn list(data: &GlobalArgs) -> Result<(), Error> {
    let keys = data.backend().await?.keys().await?;
    if data.json {
        for key in &keys {
            terminal::json(&key_json(key));
        }
        return Ok(());
    }
    if keys.is_empty() {
        terminal::note("· there are no API keys; `outlast keys create NAME --scope SCOPE` makes one");
        return Ok(());
    }
    let now = SystemClock.now();
    let rows: Vec<Vec<String>> = keys.iter().map(|key| row(key, now)).collect();
    terminal::table(&["KEY", "FOR", "MAY", "MADE", "STATE"], &rows);
    Ok(())
}

fn key_json(key: &KeyView) -> Value {
    let KeyView { id, org, by, scopes, created, expires, revoked } = key;
    json!({
        "id": id, "org": org, "by": by.to_string(), "scopes": scopes.to_string(), "created": created,
        "expires": expires, "revoked": revoked,
    })
}

fn row(key: &KeyView, now: Millis) -> Vec<String> {
    let state = match (key.revoked, key.expires) {
        (Some(at), _) => format!("revoked {}", formatting::when(at)),
        (None, Some(at)) if at <= now => format!("expired {}", formatting::when(at)),
        (None, Some(at)) => format!("until {}", formatting::when(at)),
        (None, None) => "for ever".to_owned(),
    };
    vec![key.id.to_string(), key.by.to_string(), key.scopes.to_string(), formatting::when(key.created), state]
}

/// Checks a key from standard input. Arguments would be visible in process lists and shell histories.
async fn check(data: &GlobalArgs) -> Result<(), Error> {
    let key = input::text("-")?;
    let opened = match data.client_with(&ClientApiKey::new(key.trim()))? {
        Some(client) => client.whoami().await?,
        None => opened(data, &key).await?,
    };
    let CallerIdentity { org, name, by, scopes } = opened;
    if data.json {
        terminal::json(&json!({ "by": by, "scopes": scopes, "org": org, "name": name }));
    } else {
        terminal::say(&format!("{by} may {scopes} in {name} ({org})"));
    }
    Ok(())
}

/// Returns what a key gives access to in a database file.
async fn opened(data: &GlobalArgs, key: &str) -> Result<CallerIdentity, Error> {
    let store = data.operator()?;
    let access = store.authenticate(key.trim().parse()?, SystemClock.now()).await?;
    let org = store.org(access.visibility.home()).await?;
    let (by, scopes) = (access.by.to_string(), access.scopes.to_string());
    Ok(CallerIdentity { org: org.id, name: org.name.to_string(), by, scopes })
}

async fn revoke(data: &GlobalArgs, key: KeyId) -> Result<(), Error> {
    let key = data.backend().await?.revoke_key(key).await?;
    if data.json {
        terminal::json(&key_json(&key));
        return Ok(());
    }
    let when = key.revoked.map(formatting::when).unwrap_or_default();
    terminal::say(&format!("{} of {} is invalid since {when}", key.id, key.by));
    Ok(())
}
