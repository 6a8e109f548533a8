//! `outlast audit`: who did what (S55).
use crate::data::Data;
use crate::input;
use crate::terminal;
use crate::words;
use clap::Args;
use outlast::clock::Clock;
use outlast::orgs::AuditRange;
use outlast::runtime::system::SystemClock;
use outlast::vocab::Millis;
use outlast::{Error, Limits};
use serde_json::json;

/// Prints who did what, the oldest first; over every organisation unless `--org` names one.
#[derive(Args)]
pub(crate) struct Audit {
    /// Begin there: how long ago (`2h`), a day or a time
    #[arg(long, value_name = "WHEN")]
    since: Option<String>,
    /// Begin after this number
    #[arg(long, value_name = "N", default_value_t = 0)]
    after: u64,
    /// Print every act as a line of JSON
    #[arg(long)]
    json: bool,
}

impl Audit {
    /// Does it.
    pub(crate) async fn run(self, data: &Data) -> Result<(), Error> {
        let since = self.since.as_deref().map(|text| input::moment("--since", text, SystemClock.now()));
        let since = since.transpose()?.unwrap_or(Millis(0));
        let desk = data.desk_widely().await?;
        let mut range = AuditRange { after: self.after, since, limit: Limits::default().page_rows };
        loop {
            let page = desk.audit(range).await?;
            let Some(last) = page.last() else { break };
            range.after = last.no;
            for act in &page {
                if self.json {
                    terminal::json(&json!({
                        "no": act.no, "at": act.at, "org": act.org, "by": act.by, "act": act.act,
                        "subject": act.subject, "detail": act.detail,
                    }));
                } else {
                    let line = format!(
                        "{} {} {} {} {} {}",
                        act.no,
                        words::when(act.at),
                        act.by,
                        act.act,
                        act.subject,
                        act.detail
                    );
                    terminal::say(line.trim_end());
                }
            }
        }
        if range.after == self.after && !self.json {
            terminal::note("· nothing was done that is noted here");
        }
        Ok(())
    }
}
