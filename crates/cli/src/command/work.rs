//! `outlast work`: drives all unfinished turns.
use crate::agent::AgentArgs;
use crate::follow::interrupt;
use crate::formatting;
use crate::global_args::GlobalArgs;
use crate::terminal;
use clap::Args;
use outlast::runtime::delivery::feed::newest;
use outlast::runtime::delivery::live::ReplyProgress;
use outlast::store::{FeedCursor, Store};
use outlast::vocab::event::{Event, EventFrame};
use outlast::vocab::record::Fact;
use outlast::vocab::{ReplayKey, TurnId};
use outlast::{Error, Limits, Outlast};
use serde_json::json;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// How often the feed is read.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// How often the progress of a long reply is printed.
const REPORT_EVERY: Duration = Duration::from_secs(5);

/// Runs unfinished turns until none can continue now, or until Ctrl-C.
#[derive(Args)]
pub(crate) struct WorkArgs {
    /// Keep running until Ctrl-C
    #[arg(long)]
    follow: bool,
    #[command(flatten)]
    agent: AgentArgs,
}

impl WorkArgs {
    pub(crate) async fn run(self, data: &GlobalArgs) -> Result<(), Error> {
        let mut feed = FeedPrinter { after: newest(data.operator()?.as_ref()).await? };
        // A worker drives the turns of every organisation.
        let outlast = self.agent.start(data).await?.operator();
        let ran = self.until_done(&outlast, &mut feed).await;
        let store = outlast.store().clone();
        outlast.shut_down().await;
        feed.print(store.as_ref()).await?;
        if ran.is_ok() && !self.follow {
            terminal::note("· no turn can continue now");
        }
        ran
    }

    async fn until_done(&self, outlast: &Outlast, feed: &mut FeedPrinter) -> Result<(), Error> {
        let done = async {
            if self.follow {
                interrupt().await;
                return Ok(());
            }
            outlast.runtime().idle().await?;
            // A turn that was just claimed may not have started. After this pause it has.
            tokio::time::sleep(LOOK_AGAIN).await;
            outlast.runtime().idle().await
        };
        tokio::pin!(done);
        let mut long_replies = LongReplies::default();
        loop {
            tokio::select! {
                done = &mut done => return done,
                () = tokio::time::sleep(LOOK_AGAIN) => feed.print(outlast.store().as_ref()).await?,
            }
            for report in long_replies.due(outlast.runtime().replies_in_progress(), Instant::now()) {
                report.print();
            }
        }
    }
}

/// The replies that models write now, and when each was reported.
#[derive(Default)]
struct LongReplies(HashMap<(TurnId, ReplayKey), ReplyTimes>);

#[derive(Clone, Copy)]
struct ReplyTimes {
    began: Instant,
    reported: Instant,
}

/// The progress of a reply that takes long.
#[derive(Debug, PartialEq, Eq)]
struct ProgressReport {
    reply: ReplyProgress,
    seconds: u64,
}

impl LongReplies {
    /// Returns the reports that are due, and forgets the replies that are complete.
    fn due(&mut self, replies: Vec<ReplyProgress>, now: Instant) -> Vec<ProgressReport> {
        let mut current = HashMap::new();
        let mut due = Vec::new();
        for reply in replies {
            let id = (reply.turn, reply.key.clone());
            let mut times = self.0.get(&id).copied().unwrap_or(ReplyTimes { began: now, reported: now });
            if now.duration_since(times.reported) >= REPORT_EVERY {
                times.reported = now;
                due.push(ProgressReport { reply, seconds: now.duration_since(times.began).as_secs() });
            }
            current.insert(id, times);
        }
        self.0 = current;
        due.sort_by_key(|report| report.reply.session);
        due
    }
}

impl ProgressReport {
    fn print(&self) {
        if terminal::is_json() {
            terminal::json(&self.frame());
        } else {
            terminal::say(&self.line());
        }
    }

    fn line(&self) -> String {
        let Self { reply: ReplyProgress { session, words, .. }, seconds } = self;
        match words {
            0 => format!("{session} waits for text of its model, {seconds} s"),
            words => format!("{session} writes: {}, {seconds} s", formatting::count(*words, "word", "words")),
        }
    }

    fn frame(&self) -> EventFrame {
        let Self { reply: ReplyProgress { session, turn, key, words }, seconds } = self;
        EventFrame {
            v: 1,
            session: *session,
            seq: None,
            turn: Some(*turn),
            at: None,
            name: "progress".into(),
            data: json!({ "key": key, "words": words, "seconds": seconds }),
        }
    }
}

/// Prints the ends, waits and failures of turns.
struct FeedPrinter {
    after: FeedCursor,
}

impl FeedPrinter {
    async fn print(&mut self, store: &dyn Store) -> Result<(), Error> {
        loop {
            let page = store.feed(self.after, Limits::default().page_rows).await?;
            let Some(last) = page.last() else { return Ok(()) };
            self.after = last.cursor;
            for fed in page {
                if terminal::is_json() {
                    terminal::json(&Event::Durable(Box::new(fed.record)).frame(fed.session));
                } else if is_told(&fed.record.fact) {
                    terminal::say(&format!("{} {}", fed.session, formatting::record(&fed.record)));
                }
            }
        }
    }
}

/// Returns whether a fact is printed.
fn is_told(fact: &Fact) -> bool {
    matches!(
        fact,
        Fact::Ended { .. }
            | Fact::Parked { .. }
            | Fact::Stuck { .. }
            | Fact::Reminded { .. }
            | Fact::Escalated { .. }
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use outlast::vocab::SessionId;

    fn reply(session: u128, words: usize) -> ReplyProgress {
        let turn = TurnId::from_u128(session);
        ReplyProgress {
            session: SessionId::from_u128(session),
            turn,
            key: ReplayKey::turn(0).model(1),
            words,
        }
    }

    #[test]
    fn long_reply_is_reported_every_five_seconds() {
        let (mut replies, began) = (LongReplies::default(), Instant::now());
        let mut lines = |seconds: u64, now: Vec<ReplyProgress>| -> Vec<String> {
            let due = replies.due(now, began + Duration::from_secs(seconds));
            due.iter().map(|report| report.line().replace(&"0".repeat(31), "")).collect()
        };
        assert!(lines(0, vec![reply(1, 0)]).is_empty());
        assert!(lines(4, vec![reply(1, 3)]).is_empty());
        assert_eq!(lines(5, vec![reply(1, 40), reply(2, 1)]), ["ses_1 writes: 40 words, 5 s"]);
        assert!(lines(9, vec![reply(1, 80), reply(2, 1)]).is_empty());
        let both = ["ses_1 writes: 90 words, 10 s", "ses_2 waits for text of its model, 5 s"];
        assert_eq!(lines(10, vec![reply(2, 0), reply(1, 90)]), both);
        // Five seconds pass again before the first line of the next reply.
        assert!(lines(15, vec![]).is_empty());
        assert!(lines(20, vec![reply(1, 1)]).is_empty());
    }

    #[test]
    fn progress_frame_names_session_and_turn() {
        let frame = ProgressReport { reply: reply(1, 40), seconds: 5 }.frame();
        assert_eq!(
            serde_json::to_string(&frame).unwrap(),
            r#"{"v":1,"session":"ses_00000000000000000000000000000001","turn":"trn_00000000000000000000000000000001","type":"progress","data":{"key":"turn/0/model/1","seconds":5,"words":40}}"#
        );
    }
}
