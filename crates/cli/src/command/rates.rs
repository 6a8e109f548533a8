//! `outlast rates`: shows rate limits and the remaining capacity.
use crate::formatting::when;
use crate::global_args::GlobalArgs;
use crate::terminal;
use clap::Args;
use outlast::Error;
use outlast::clock::Clock;
use outlast::rate::RateView;
use outlast::runtime::worker::system::SystemClock;
use outlast::vocab::Millis;
use serde_json::json;

/// List rate limits with their remaining calls
#[derive(Args)]
pub(crate) struct RatesArgs {
    /// Print the rate limits as JSON
    #[arg(long)]
    json: bool,
}

impl RatesArgs {
    pub(crate) async fn run(self, data: &GlobalArgs) -> Result<(), Error> {
        let rates = data.backend().await?.rates().await?;
        let now = SystemClock.now();
        if self.json {
            list_json(&rates, now);
        } else {
            list(&rates, now);
        }
        Ok(())
    }
}

fn list_json(rates: &[RateView], now: Millis) {
    for rate in rates {
        let RateView { org, name, every, burst, state: standing, taken, refused, asked } = rate;
        let line = json!({
            "org": org, "name": name, "every_us": every, "burst": burst, "next_us": standing.next, "line_us": standing.queue_end, "taken": taken,
            "refused": refused, "asked": asked, "room": rate.calls_available(now),
        });
        terminal::json(&line);
    }
}

fn list(rates: &[RateView], now: Millis) {
    if rates.is_empty() {
        terminal::note(
            "· no rate limit has been used yet; define rate limits as `[[rates]]` in an agent or outlast.toml",
        );
        return;
    }
    let width = rates.iter().map(|rate| rate.name.chars().count()).max().unwrap_or(0).max(4);
    terminal::say(&format!("{:width$}  FREE    EVERY       CALLS     REJECTED  NEXT", "NAME"));
    for rate in rates {
        let RateView { name, every, burst, state: standing, taken, refused, .. } = rate;
        let free = format!("{}/{burst}", rate.calls_available(now));
        let next = Millis(standing.next.max(standing.queue_end).div_ceil(1_000));
        let next = if next <= now { "now".to_owned() } else { when(next) };
        let every = seconds(*every);
        terminal::say(&format!("{name:width$}  {free:<6}  {every:<10}  {taken:>5}  {refused:>11}  {next}"));
    }
}

/// Formats a duration in microseconds.
fn seconds(micros: u64) -> String {
    if micros < 1_000_000 {
        format!("{} ms", micros.div_ceil(1_000))
    } else {
        format!("{} s", micros / 1_000_000)
    }
}
