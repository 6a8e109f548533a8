//! `outlast audit`: prints the audit log.
use crate::formatting;
use crate::global_args::GlobalArgs;
use crate::input;
use crate::terminal;
use clap::Args;
use outlast::clock::Clock;
use outlast::orgs::AuditRange;
use outlast::runtime::worker::system::SystemClock;
use outlast::views::AuditRow;
use outlast::vocab::Millis;
use outlast::{Error, Limits};
use serde_json::json;
use std::num::NonZeroUsize;

/// Prints the audit log, oldest first, for all organisations unless `--org` names one.
#[derive(Args)]
pub(crate) struct AuditArgs {
    /// Start at this time: a duration ago (`2h`), a day or a time
    #[arg(long, value_name = "WHEN")]
    since: Option<String>,
    /// Start after the entry with this number
    #[arg(long, value_name = "N", default_value_t = 0)]
    after: u64,
    /// Maximum number of entries; default: all
    #[arg(long, value_name = "NUMBER")]
    limit: Option<NonZeroUsize>,
    /// Print each entry as a line of JSON
    #[arg(long)]
    json: bool,
}

impl AuditArgs {
    pub(crate) async fn run(self, data: &GlobalArgs) -> Result<(), Error> {
        let since = self.since.as_deref().map(|text| input::moment("--since", text, SystemClock.now()));
        let since = since.transpose()?.unwrap_or(Millis(0));
        let backend = data.backend_for_all_orgs().await?;
        let (rows, mut left) =
            (Limits::default().page_rows, self.limit.map_or(usize::MAX, NonZeroUsize::get));
        let mut after = self.after;
        loop {
            // One extra row shows whether there are more.
            let range = AuditRange { after, since, limit: left.saturating_add(1).min(rows) };
            let page = backend.audit(range).await?;
            for act in page.iter().take(left) {
                self.print(act);
                after = act.no;
            }
            if page.len() > left {
                terminal::note(&format!("· there is more; continue with `--after {after}`"));
                return Ok(());
            }
            if page.is_empty() {
                break;
            }
            left -= page.len();
        }
        if after == self.after && !self.json {
            terminal::note("· the audit log has no entries");
        }
        Ok(())
    }

    fn print(&self, act: &AuditRow) {
        let AuditRow { no, at, org, by, act, subject, detail } = act;
        if self.json {
            return terminal::json(&json!({
                "no": no, "at": at, "org": org, "by": by, "act": act, "subject": subject, "detail": detail,
            }));
        }
        let line = format!("{no} {} {by} {act} {subject} {detail}", formatting::when(*at));
        terminal::say(line.trim_end());
    }
}
