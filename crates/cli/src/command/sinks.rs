//! `outlast sinks`: lists sinks with their pending and dead deliveries, retries dead ones, and tests a sink.
use crate::backend::CommandBackend;
use crate::config_file::ConfigFile;
use crate::formatting;
use crate::global_args::GlobalArgs;
use crate::sinks::ConfiguredSink;
use crate::terminal;
use clap::{Args, Subcommand};
use outlast::clock::{Clock, Entropy};
use outlast::outbox::{DeliveryView, SinkView};
use outlast::runtime::worker::system::{SystemClock, SystemEntropy};
use outlast::vocab::id::DeliveryId;
use outlast::{Error, Kind, Limits};
use outlast_client::SinkStatus;

/// The place of a sink that only another process has configured.
const ELSEWHERE: &str = "not configured here";

/// Lists the sinks, shows and retries undelivered outputs, or tests a webhook.
#[derive(Args)]
pub(crate) struct SinksArgs {
    #[command(subcommand)]
    what: Option<SinksCommand>,
    #[command(flatten)]
    configuration: ConfigFile,
}

#[derive(Subcommand)]
enum SinksCommand {
    /// List the sinks
    List,
    /// Show the undelivered outputs of a sink, oldest first
    Show {
        /// Name of the sink
        name: String,
    },
    /// Retry dead deliveries; a worker delivers them
    Retry {
        /// Name of the sink
        name: String,
        /// Retry only this delivery, even if it is not dead but waits for its next attempt
        delivery: Option<String>,
    },
    /// Send a signed message of type `outlast.test` to a webhook, and print the response
    Test {
        /// Name of the sink
        name: String,
    },
}

impl SinksArgs {
    pub(crate) async fn run(self, data: &GlobalArgs) -> Result<(), Error> {
        match &self.what {
            None | Some(SinksCommand::List) => self.list(data).await,
            Some(SinksCommand::Show { name }) => show(data, name).await,
            Some(SinksCommand::Retry { name, delivery }) => retry(data, name, delivery.as_deref()).await,
            Some(SinksCommand::Test { name }) => self.test(data, name).await,
        }
    }

    async fn list(&self, data: &GlobalArgs) -> Result<(), Error> {
        let rows = match data.operator_backend()? {
            CommandBackend::File(store) => self.rows(&store.sinks().await?)?,
            CommandBackend::Server(client) => client.sinks().await?.iter().map(there).collect(),
        };
        if rows.is_empty() {
            terminal::note("· there are no sinks; define one as `[[sinks]]` in outlast.toml");
            return Ok(());
        }
        terminal::table(&["SINK", "WHERE", "BEHIND", "DUE", "DEAD", "DELIVERED"], &rows);
        Ok(())
    }

    /// Tests a sink. Needs no database, so that an address can be tested before its first output.
    async fn test(&self, data: &GlobalArgs, name: &str) -> Result<(), Error> {
        let answered = match data.client()? {
            Some(client) => client.test_sink(name).await?,
            None => self.try_here(name).await?,
        };
        terminal::say(&answered);
        Ok(())
    }

    async fn try_here(&self, name: &str) -> Result<String, Error> {
        let written = self.configuration.sinks()?;
        let sink = written.iter().find(|sink| sink.name() == name).ok_or_else(|| {
            let detail = format!("no sink is called `{name}` here; define it as `[[sinks]]` in outlast.toml");
            Error::new(Kind::DeliveryNotFound, detail)
        })?;
        let now = SystemClock.now();
        let id = DeliveryId::fresh(now, SystemEntropy.random_id_bytes());
        sink.outlet()?.sink.send_test(id, now).await
    }

    /// Returns a row for each sink of the database, and for each configured sink that the database does not
    /// know yet.
    fn rows(&self, known: &[SinkView]) -> Result<Vec<Vec<String>>, Error> {
        let written = self.configuration.sinks()?;
        let traces = self.configuration.telemetry()?.and_then(|settings| settings.place());
        let new = written.iter().filter(|sink| known.iter().all(|known| known.name != sink.name()));
        let new: Vec<Vec<String>> = new.map(|sink| row(sink.name(), &written, None)).collect();
        let known = known.iter().map(|sink| row(&sink.name, &written, Some(sink)));
        Ok(known.chain(new).map(|row| placed(row, traces.as_deref())).collect())
    }
}

/// Returns the row of a server's sink.
fn there(SinkStatus { view, destination: place }: &SinkStatus) -> Vec<String> {
    let place = place.clone().unwrap_or_else(|| ELSEWHERE.to_owned());
    line(&view.name, place, Some(view))
}

/// Sets the place of the sink for traces, which has its own configuration table.
fn placed(mut row: Vec<String>, traces: Option<&str>) -> Vec<String> {
    if let (true, Some(place)) = (row[0] == outlast::telemetry::TRACE_SINK_NAME, traces) {
        place.clone_into(&mut row[1]);
    }
    row
}

/// Returns the row of a sink. `known` is `None` until the first worker registers it.
fn row(name: &str, written: &[ConfiguredSink], known: Option<&SinkView>) -> Vec<String> {
    let place = match written.iter().find(|sink| sink.name() == name).map(ConfiguredSink::outlet) {
        Some(Ok(outlet)) => outlet.sink.place(),
        Some(Err(error)) => error.detail().to_owned(),
        None => ELSEWHERE.to_owned(),
    };
    line(name, place, known)
}

fn line(name: &str, place: String, known: Option<&SinkView>) -> Vec<String> {
    let number = |of: fn(&SinkView) -> u64| known.map_or("-".to_owned(), |sink| of(sink).to_string());
    let numbers = [number(|sink| sink.behind), number(|sink| sink.due), number(|sink| sink.dead)];
    let mut row = vec![name.to_owned(), place];
    row.extend(numbers);
    row.push(number(|sink| sink.delivered));
    row
}

async fn show(data: &GlobalArgs, name: &str) -> Result<(), Error> {
    let deliveries = match data.operator_backend()? {
        CommandBackend::File(store) => store.deliveries(name.to_owned(), Limits::default().page_rows).await?,
        CommandBackend::Server(client) => client.deliveries(name).await?,
    };
    if deliveries.is_empty() {
        terminal::note("· no output is waiting to be delivered");
    }
    for DeliveryView { id, session, turn, topic, attempts, due_at, failure } in deliveries {
        let due = due_at.map_or("dead".to_owned(), |at| format!("due {}", formatting::when(at)));
        let attempts = formatting::count(attempts as usize, "attempt", "attempts");
        terminal::say(&format!("{id} {due} after {attempts}\n  {} of {turn} of {session}", topic.name()));
        if let Some(failure) = failure {
            terminal::say(&format!("  {failure}"));
        }
    }
    Ok(())
}

async fn retry(data: &GlobalArgs, name: &str, delivery: Option<&str>) -> Result<(), Error> {
    let only = delivery.map(str::parse).transpose()?;
    let (revived, who) = match data.operator_backend()? {
        CommandBackend::File(store) => {
            (store.redeliver(name.to_owned(), only, SystemClock.now()).await?, "`outlast work`")
        }
        CommandBackend::Server(client) => (client.redeliver(name, only).await?, "the server"),
    };
    let revived = formatting::count(usize::try_from(revived).unwrap_or(usize::MAX), "output", "outputs");
    terminal::say(&format!("{revived} will be delivered again by {who}"));
    Ok(())
}
