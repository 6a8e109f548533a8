//! History: the turns before a message, newest first, up to a size limit.
use super::RuleResult;
use super::store_under_test::{
    ALL, NOW, StoreUnderTest, answer, answered, call, joined, performed, refused, reply, session_id, settled,
};
use outlast_ports::branches::ForkRequest;
use outlast_ports::turns::TurnTransition;
use outlast_views::{ForkTo, HistoryTurn};
use outlast_vocab::effect::{Sleep, SleepOutcome, ToolOutcome};
use outlast_vocab::message::ToolResult;
use outlast_vocab::record::{CallSettled, Fact, NodeRef, OutcomeVerdict, Seq};
use outlast_vocab::{Kind, ReplayKey};
use serde_json::json;

/// Returns the size of a turn's records in bytes.
fn size(turn: &HistoryTurn) -> usize {
    turn.records.iter().map(|record| record.fact.encode().len()).sum()
}

pub(super) async fn history_is_read_newest_first(s: &StoreUnderTest<'_>) -> RuleResult {
    let session = s.fresh_session().await?;
    let mut nodes = Vec::new();
    for text in ["one", "two", "three"] {
        nodes.push(s.whole_turn(session, text).await?);
    }
    let cuts =
        |turns: Vec<HistoryTurn>| turns.into_iter().map(|turn| turn.last_in_branch).collect::<Vec<Seq>>();
    let seqs: Vec<Seq> = nodes.iter().map(|node| node.seq).collect();
    assert_eq!(cuts(s.history(nodes[2], ALL).await?), [seqs[2], seqs[1], seqs[0]]);
    assert_eq!(cuts(s.history(nodes[1], ALL).await?), [seqs[1], seqs[0]]);
    Ok(())
}

pub(super) async fn history_lists_messages_of_each_turn_in_order(s: &StoreUnderTest<'_>) -> RuleResult {
    let lease = s.begin("hi").await?.lease;
    let sleep = performed(ReplayKey::turn(0).sleep(0), Sleep { until: NOW }, SleepOutcome {});
    let claims = s.ask(&lease, &[call("a"), call("b")]).await?;
    s.add(&lease, vec![sleep, settled(claims[1]), answered(claims[0], ToolOutcome::Unknown)]).await?;
    let input = s.queue_to_join(lease.session, "steer").await?;
    s.add(&lease, vec![joined(&[input])]).await?;
    s.end(&lease).await?;
    let own = s.turn_records(lease.turn).await?;
    let messages: Vec<_> = own.into_iter().filter(|record| record.fact.is_node()).collect();
    let last = NodeRef { session: lease.session, seq: messages[messages.len() - 1].seq };
    let turns = s.history(last, ALL).await?;
    assert_eq!(turns.len(), 1);
    assert_eq!(turns[0].records, messages);
    assert_eq!(messages.len(), 6);
    Ok(())
}

pub(super) async fn history_fits_its_budget_except_newest_turn(s: &StoreUnderTest<'_>) -> RuleResult {
    let session = s.fresh_session().await?;
    let mut last = None;
    for text in ["one", "number two", "number three is longer"] {
        last = Some(s.whole_turn(session, text).await?);
    }
    let last = last.expect("there are three");
    let sizes: Vec<usize> = s.history(last, ALL).await?.iter().map(size).collect();
    let two = sizes[0] + sizes[1];
    for (bytes, turns) in [
        (0, 1),
        (sizes[0] - 1, 1),
        (sizes[0], 1),
        (two - 1, 1),
        (two, 2),
        (two + sizes[2] - 1, 2),
        (two + sizes[2], 3),
    ] {
        assert_eq!(s.history(last, bytes).await?.len(), turns, "{bytes} of {sizes:?} bytes");
    }
    Ok(())
}

pub(super) async fn large_messages_count_their_full_size(s: &StoreUnderTest<'_>) -> RuleResult {
    let session = s.fresh_session().await?;
    s.whole_turn(session, &"long ".repeat(20_000)).await?;
    let last = s.whole_turn(session, &"wide ".repeat(20_000)).await?;
    assert_eq!(s.history(last, 150_000).await?.len(), 1);
    assert_eq!(s.history(last, 250_000).await?.len(), 2);
    Ok(())
}

pub(super) async fn history_of_a_fork_includes_parent_sessions(s: &StoreUnderTest<'_>) -> RuleResult {
    let session = s.fresh_session().await?;
    let one = s.whole_turn(session, "one").await?;
    s.whole_turn(session, "elsewhere").await?;
    let to = ForkTo::Session { fresh: session_id(), key: None };
    let fork = s.fork(ForkRequest { from: session, at: Some(one.seq), to, now: NOW }).await?;
    let two = s.whole_turn(fork, "two").await?;
    let turns = s.history(two, ALL).await?;
    assert_eq!(turns.iter().map(|turn| turn.last_in_branch).collect::<Vec<_>>(), [two.seq, one.seq]);
    assert_eq!(turns[1].records, s.history(one, ALL).await?[0].records);
    Ok(())
}

pub(super) async fn mid_turn_history_reports_its_last_record(s: &StoreUnderTest<'_>) -> RuleResult {
    let lease = s.begin("hi").await?.lease;
    let claims = s.ask(&lease, &[call("a")]).await?;
    s.add(&lease, vec![settled(claims[0])]).await?;
    s.end(&lease).await?;
    let at = NodeRef { session: lease.session, seq: claims[0].asked };
    let turns = s.history(at, ALL).await?;
    assert_eq!((turns.len(), turns[0].last_in_branch), (1, at.seq));
    assert!(turns[0].records.iter().any(|record| record.fact == settled(claims[0])));
    Ok(())
}

pub(super) async fn running_turn_has_a_history(s: &StoreUnderTest<'_>) -> RuleResult {
    let session = s.fresh_session().await?;
    s.whole_turn(session, "one").await?;
    let work = s.begin_in(session, "two").await?;
    let half = s.add(&work.lease, vec![reply("half")]).await?.places[0].seq;
    let turns = s.history(NodeRef { session, seq: half }, ALL).await?;
    assert_eq!(turns.iter().map(|turn| turn.records.len()).collect::<Vec<_>>(), [2, 2]);
    Ok(())
}

pub(super) async fn operator_verdict_becomes_part_of_history(s: &StoreUnderTest<'_>) -> RuleResult {
    let session = s.fresh_session().await?;
    let call = call("send");
    s.call_of_unknown_outcome(session, &call, NOW).await?;
    let claim = s.unknown(1).await?[0].claim;
    let last = s.whole_turn(session, "next").await?;
    let verdict = OutcomeVerdict::Happened(ToolResult::Ok(json!("sent")));
    s.settle(call.id, verdict.clone(), NOW).await?;
    let turns = s.history(last, ALL).await?;
    let word = Fact::Settled(CallSettled { claim, verdict });
    assert_eq!(turns[1].records.last().map(|record| &record.fact), Some(&word));
    Ok(())
}

pub(super) async fn history_of_a_non_message_is_not_found(s: &StoreUnderTest<'_>) -> RuleResult {
    let lease = s.begin("hi").await?.lease;
    let session = lease.session;
    s.write(&lease, vec![reply("bye")], TurnTransition::End(answer("bye"))).await?;
    for seq in [0, 1, 5, u64::MAX] {
        refused(s.history(NodeRef { session, seq: Seq(seq) }, ALL).await, Kind::NodeNotFound);
    }
    let nowhere = NodeRef { session: session_id(), seq: Seq(1) };
    refused(s.history(nowhere, ALL).await, Kind::SessionNotFound);
    Ok(())
}
