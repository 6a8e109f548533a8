//! Full-text search: messages are found by their words, only by callers that may see them, and until they are deleted.
use super::RuleResult;
use super::store_under_test::{ALL, NOW, StoreUnderTest, reply};
use outlast_ports::journal::FeedCursor;
use outlast_ports::search::{MessageMatch, SearchQuery};
use outlast_vocab::search_terms::SearchTerms;
use outlast_vocab::{Error, SessionId};

async fn find(
    s: &StoreUnderTest<'_>,
    text: &str,
    session: Option<SessionId>,
) -> Result<Vec<MessageMatch>, Error> {
    s.find(SearchQuery { terms: SearchTerms::parse(text)?, session, before: None, limit: ALL }).await
}

fn texts(found: &[MessageMatch]) -> Vec<&str> {
    found.iter().map(|found| found.text.as_str()).collect()
}

pub(super) async fn search_matches_all_words_newest_first(s: &StoreUnderTest<'_>) -> RuleResult {
    let one = s.begin("The invoice of Zürich").await?;
    s.end(&one.lease).await?;
    let two = s.begin("another INVOICE, of Bern").await?;
    s.end(&two.lease).await?;
    assert_eq!(
        texts(&find(s, "invoice of", None).await?),
        ["another INVOICE, of Bern", "The invoice of Zürich"]
    );
    assert_eq!(texts(&find(s, "of invo", None).await?).len(), 2);
    assert_eq!(texts(&find(s, "invoice zür", None).await?), ["The invoice of Zürich"]);
    assert_eq!(texts(&find(s, "voice", None).await?), [""; 0]);
    let found = find(s, "invoice", Some(two.lease.session)).await?;
    assert_eq!(texts(&found), ["another INVOICE, of Bern"]);
    let MessageMatch { session, turn, is_input, at, .. } = found[0];
    assert_eq!((session, turn, is_input, at), (two.lease.session, two.lease.turn, true, NOW));
    Ok(())
}

pub(super) async fn search_pages_continue_without_gaps(s: &StoreUnderTest<'_>) -> RuleResult {
    for text in ["word one", "word two", "word three"] {
        let work = s.begin(text).await?;
        s.end(&work.lease).await?;
    }
    let (mut before, mut seen): (Option<FeedCursor>, Vec<String>) = (None, Vec::new());
    loop {
        let page = s
            .find(SearchQuery { terms: SearchTerms::parse("word")?, session: None, before, limit: 2 })
            .await?;
        let Some(last) = page.last() else { break };
        before = Some(last.position);
        seen.extend(page.into_iter().map(|found| found.text));
    }
    assert_eq!(seen, ["word three", "word two", "word one"]);
    Ok(())
}

pub(super) async fn search_omits_deleted_sessions(s: &StoreUnderTest<'_>) -> RuleResult {
    let remaining = s.begin("a secret of ann").await?;
    s.end(&remaining.lease).await?;
    let gone = s.begin("a secret of bob").await?;
    s.end(&gone.lease).await?;
    s.delete(gone.lease.session, NOW).await?;
    assert_eq!(texts(&find(s, "secret", None).await?), ["a secret of ann"]);
    assert_eq!(texts(&find(s, "bob", None).await?), [""; 0]);
    Ok(())
}

/// A store may index many messages at a time.
pub(super) async fn old_messages_remain_searchable_and_deletable(s: &StoreUnderTest<'_>) -> RuleResult {
    let old = s.begin("a needle of ann").await?;
    s.end(&old.lease).await?;
    let remaining = s.begin("a needle of bob").await?;
    s.end(&remaining.lease).await?;
    let lease = s.begin("hay").await?.lease;
    for _ in 0..6 {
        s.add(&lease, vec![reply("more hay"); 100]).await?;
    }
    s.add(&lease, vec![reply("the last needle")]).await?;
    let all = ["the last needle", "a needle of bob", "a needle of ann"];
    assert_eq!(texts(&find(s, "needle", None).await?), all);
    let wanted = SearchTerms::parse("needle")?;
    let page = s.find(SearchQuery { terms: wanted.clone(), session: None, before: None, limit: 2 }).await?;
    let rest = s
        .find(SearchQuery { terms: wanted, session: None, before: Some(page[1].position), limit: 2 })
        .await?;
    assert_eq!((texts(&page), texts(&rest)), (all[..2].to_vec(), all[2..].to_vec()));
    s.delete(old.lease.session, NOW).await?;
    assert_eq!(texts(&find(s, "needle", None).await?), all[..2]);
    Ok(())
}
