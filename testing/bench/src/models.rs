//! Measures models over HTTP: the overhead for the first token, many concurrent streams, and the decoding rate.
//!
//! The server plays byte scripts on the loopback interface in this process. A raw HTTP client on the same server is the
//! baseline.
use crate::report::{BenchReport, median};
use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, future, stream};
use outlast::providers::sse::{SseBody, SseEvents};
use outlast::providers::{Api, RemoteProvider, decode};
use outlast::vocab::event::{Event, LiveEventKind};
use outlast::vocab::record::Fact;
use outlast::{Error, Outlast};
use outlast_playback::{Playback, ResponseScript};
use std::path::Path;
use std::time::{Duration, Instant};

/// The size of a chunk from a socket in bytes.
const CHUNK: usize = 16 << 10;

/// The number of concurrent streams.
const STREAMS: usize = 200;

/// The pause between two tokens of a stream: 100 tokens per second.
const PACE: Duration = Duration::from_millis(10);

type ModelBenchResult<T> = Result<T, Box<dyn std::error::Error>>;

pub(crate) fn measure(report: &mut BenchReport, dir: &Path, quick: bool) -> ModelBenchResult<()> {
    let tokio = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    measure_decoding(report, &tokio);
    tokio.block_on(measure_first_token(report, dir, if quick { 50 } else { 300 }))?;
    tokio.block_on(measure_concurrent_streams(report, dir, if quick { 200 } else { 500 }))
}

/// Returns a token in the format of Chat Completions.
fn token(text: &str) -> String {
    format!(
        "data: {{\"id\":\"chatcmpl-B9MHDbslfkBeAs8l4bebGdFOJ6PeG\",\"object\":\"chat.completion.chunk\",\
         \"created\":1741570283,\"model\":\"m\",\"service_tier\":\"default\",\"system_fingerprint\":\"fp_50cad350e4\",\
         \"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{text}\"}},\"logprobs\":null,\"finish_reason\":null}}]}}\n\n"
    )
}

/// The end of a reply.
const END: &str =
    "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";

fn measure_decoding(report: &mut BenchReport, tokio: &tokio::runtime::Runtime) {
    let body = Bytes::from(token(" word").repeat((32 << 20) / token(" word").len()) + END);
    let megabytes = f64::from(u32::try_from(body.len()).expect("a body is small")) / 1e6;
    let chunks = || -> SseBody<'static> {
        let body = body.clone();
        let cuts = (0..body.len()).step_by(CHUNK);
        Box::pin(stream::iter(cuts.map(move |at| Ok(body.slice(at..body.len().min(at + CHUNK))))))
    };
    let rate = |count: &dyn Fn() -> usize| {
        let times = (0..5).map(|_| {
            let began = Instant::now();
            assert!(count() > 1_000);
            megabytes / began.elapsed().as_secs_f64()
        });
        median(times.collect())
    };
    let sse = rate(&|| tokio.block_on(SseEvents::of(chunks()).count()));
    let whole = rate(&|| tokio.block_on(decode(Api::OpenAi, &[], chunks()).count()));
    report.put("models.sse_mb_per_s", sse);
    report.put("models.decode_mb_per_s", whole);
    report.judge("server-sent events, one core", format!("{sse:.0} MB/s"), "≥ 100 MB/s".into(), sse >= 100.0);
    report.add_plain_row("the same, decoded to parts of a reply", format!("{whole:.0} MB/s"));
}

/// Returns a durable Outlast that uses the server as its model.
async fn outlast(server: &Playback, database: &Path) -> ModelBenchResult<Outlast> {
    let remote = RemoteProvider::new("local", Api::OpenAiCompatible, server.url(), None)?;
    Ok(Outlast::at(database).provider(remote).model("local/m").start().await?)
}

fn raw_client() -> ModelBenchResult<reqwest::Client> {
    // The HTTP client has no cryptography provider. Another part of the process may have installed one.
    let _ = rustls::crypto::ring::default_provider().install_default();
    Ok(reqwest::Client::builder().no_proxy().tls_certs_only([]).tcp_nodelay(true).build()?)
}

async fn measure_first_token(report: &mut BenchReport, dir: &Path, turns: usize) -> ModelBenchResult<()> {
    let server = Playback::of([ResponseScript::stream([token("Hello"), END.to_owned()])]);
    let outlast = outlast(&server, &dir.join("first.db")).await?;
    let session = outlast.session("bench");
    let (raw, url) = (raw_client()?, format!("{}/chat/completions", server.url()));
    let (mut raws, mut ours) = (Vec::new(), Vec::new());
    for _ in 0..turns + 10 {
        let began = Instant::now();
        let answer = raw.post(&url).body("{}").send().await?;
        answer.bytes_stream().try_next().await?;
        raws.push(began.elapsed().as_secs_f64() * 1e3);
        let began = Instant::now();
        let (turn, mut events) = session.send("hi").watched().await?;
        while !matches!(events.next().await?, Event::Live(live) if matches!(live.what, LiveEventKind::Text { .. }))
        {
        }
        ours.push(began.elapsed().as_secs_f64() * 1e3);
        turn.answer().await?;
    }
    outlast.shut_down().await;
    // The first ones open the connection, the file and the caches.
    let (raw, ours) = (median(raws.split_off(10)), median(ours.split_off(10)));
    let added = ours - raw;
    report.put("models.first_token_raw_ms", raw);
    report.put("models.first_token_ms", ours);
    report.put("models.first_token_added_ms", added);
    let found = format!("{added:.2} ms on {raw:.2} ms");
    report.judge("added to a model's first token, p50", found, "≤ 2 ms".into(), added <= 2.0);
    Ok(())
}

async fn measure_concurrent_streams(
    report: &mut BenchReport,
    dir: &Path,
    tokens: usize,
) -> ModelBenchResult<()> {
    let paced =
        (0..tokens).fold(ResponseScript::events(), |script, _| script.chunk(token(" word")).pause(PACE));
    let server = Playback::of([paced.chunk(END).end()]);
    let (raw, url) = (raw_client()?, format!("{}/chat/completions", server.url()));
    let began = Instant::now();
    let read = async || -> Result<(), reqwest::Error> {
        let mut body = raw.post(&url).body("{}").send().await?.bytes_stream();
        while body.try_next().await?.is_some() {}
        Ok(())
    };
    future::try_join_all((0..STREAMS).map(|_| read())).await?;
    let raw = began.elapsed().as_secs_f64();

    let outlast = outlast(&server, &dir.join("many.db")).await?;
    let began = Instant::now();
    let listen = async |number: usize| -> Result<usize, Error> {
        let session = outlast.session(format!("bench {number}"));
        let (_, mut events) = session.send("go").watched().await?;
        let mut received = 0;
        loop {
            match events.next().await? {
                Event::Live(live) if matches!(live.what, LiveEventKind::Text { .. }) => received += 1,
                Event::Durable(record) if matches!(record.fact, Fact::Ended { .. }) => return Ok(received),
                _ => {}
            }
        }
    };
    let received = future::try_join_all((0..STREAMS).map(listen)).await?;
    let ours = began.elapsed().as_secs_f64();
    outlast.shut_down().await;
    let missed = received.iter().filter(|received| **received < tokens).count();
    report.put("models.streams", STREAMS);
    report.put("models.streams_raw_s", raw);
    report.put("models.streams_s", ours);
    let found = format!("{ours:.2} s, raw client {raw:.2} s, {missed} listeners missed text");
    let target = "as long as the raw client, 5 % more at most".into();
    report.judge(
        "200 streams of 100 tokens/s to their end",
        found,
        target,
        ours <= raw * 1.05 && missed == 0,
    );
    Ok(())
}
