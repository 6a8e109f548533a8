//! Measures the HTTP path: its overhead per turn, many readers of one session, the list of many sessions, the console's
//! files, and the binary that serves them.
use crate::parked_sessions::rss_mb;
use crate::report::{BenchReport, median};
use futures_util::{StreamExt, TryStreamExt, stream};
use outlast::providers::Rehearsal;
use outlast::runtime::worker::system::{SystemClock, WorkerThreads};
use outlast::server::Server;
use outlast::vocab::access::Access;
use outlast::{Error, Outlast, SessionId};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, JoinSet};

/// The number of readers of one session.
const READERS: usize = 2_000;

/// The number of turns that the readers see in each measurement, and the number of rounds.
const TURNS_PER_ROUND: usize = 20;
const ROUNDS: usize = 3;

/// The number of turns before the readers connect, and the bytes of each: about 10 MB of history for a reader from the
/// start.
const HISTORY: usize = 320;
const HISTORY_TURN_BYTES: usize = 32 << 10;

/// The bytes that the stuck reader reads before it stops.
const STUCK_BYTES: u32 = 4 << 10;

/// The bytes that other readers read at once.
const READER_BUFFER_BYTES: usize = 4 << 10;

/// The maximum slowdown of a turn whose events go to two thousand readers.
const MAX_TURN_SLOWDOWN: f64 = 3.0;

/// The nice value of the readers' threads.
const READER_NICENESS: i32 = 19;

/// The timeout for readers to connect and to finish.
const PATIENCE: Duration = Duration::from_mins(2);

/// The number of file descriptors for the readers: one at each end.
const FILE_DESCRIPTORS: u64 = 8_192;

/// The environment variable in which `cargo xtask bench` passes the path of the binary.
const BINARY: &str = "OUTLAST_BINARY";

type HttpBenchResult<T> = Result<T, Box<dyn std::error::Error>>;

pub(crate) fn measure(report: &mut BenchReport, dir: &Path, quick: bool) -> HttpBenchResult<()> {
    raise_files()?;
    measure_console_bytes(report)?;
    // As in `outlast serve`: turns have dedicated threads, and the server leaves them a core.
    let mut threads = tokio::runtime::Builder::new_multi_thread();
    let tokio = threads.worker_threads(WorkerThreads::beside()).enable_all().build()?;
    tokio.block_on(measure_http_overhead(report, dir, if quick { 200 } else { 1_000 }))?;
    tokio.block_on(measure_readers(report, dir))?;
    tokio.block_on(measure_session_list(report, dir, if quick { 10_000 } else { 100_000 }))?;
    match std::env::var_os(BINARY) {
        Some(binary) => measure_binary(report, dir, binary.as_ref()),
        None => Ok(()),
    }
}

/// Raises the limit of open files to what the readers need.
fn raise_files() -> HttpBenchResult<()> {
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|current| current < FILE_DESCRIPTORS) {
        setrlimit(Resource::Nofile, Rlimit { current: Some(FILE_DESCRIPTORS), ..limit })?;
    }
    Ok(())
}

/// Measures the compressed size of the console's files.
fn measure_console_bytes(report: &mut BenchReport) -> HttpBenchResult<()> {
    let mut bytes = 0;
    for file in std::fs::read_dir("console/dist")? {
        let file = file?;
        if file.path().extension().is_some_and(|end| end == "gz") {
            bytes += file.metadata()?.len();
        }
    }
    report.put("http.console_bytes", bytes);
    let found = format!("{} KB", bytes / 1_000);
    report.judge("console, compressed", found, "≤ 250 KB".into(), bytes > 0 && bytes <= 250_000);
    Ok(())
}

/// An Outlast with its server on the loopback interface.
struct BenchServer {
    outlast: Outlast,
    url: String,
    stop: oneshot::Sender<()>,
    task: JoinHandle<Result<(), Error>>,
}

impl BenchServer {
    async fn at(database: &Path) -> HttpBenchResult<Self> {
        // A small window, so that long and short sessions send the model the same amount.
        let model = Rehearsal::scripted("any\nsay hello".parse()?, Arc::new(SystemClock))
            .with_window(4 * HISTORY_TURN_BYTES);
        let outlast =
            Outlast::at(database).provider(model).tasks(WorkerThreads::of_this_machine()?).start().await?;
        let address = "127.0.0.1:0".parse()?;
        let local = Access::to(outlast.runtime().access().visibility.home());
        let server = Server::bind(outlast.runtime(), address, local).await?;
        let url = format!("http://{}", server.address());
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(server.serve(async {
            // Dropping the sender also stops the server.
            let _ = stopped.await;
        }));
        Ok(Self { outlast, url, stop, task })
    }

    async fn end(self) -> HttpBenchResult<()> {
        drop(self.stop);
        self.task.await??;
        self.outlast.shut_down().await;
        Ok(())
    }
}

fn client() -> HttpBenchResult<reqwest::Client> {
    // The HTTP client has no cryptography provider. Another part of the process may have installed one.
    let _ = rustls::crypto::ring::default_provider().install_default();
    Ok(reqwest::Client::builder().no_proxy().tls_certs_only([]).tcp_nodelay(true).build()?)
}

async fn turn(outlast: &Outlast, session: SessionId) -> Result<f64, Error> {
    let began = Instant::now();
    outlast.session_by_id(session).send("hi").await?.answer().await?;
    Ok(began.elapsed().as_secs_f64() * 1e3)
}

async fn measure_http_overhead(report: &mut BenchReport, dir: &Path, turns: usize) -> HttpBenchResult<()> {
    let served = BenchServer::at(&dir.join("http.db")).await?;
    let session = served.outlast.runtime().open_session(None).await?;
    let (client, url) = (client()?, format!("{}/v1/sessions/{session}/turns?wait=30", served.url));
    let (mut library, mut http) = (Vec::new(), Vec::new());
    for _ in 0..turns + 20 {
        library.push(turn(&served.outlast, session).await?);
        let began = Instant::now();
        let answer = client.post(&url).header("content-type", "application/json").body(r#"{"text":"hi"}"#);
        answer.send().await?.error_for_status()?.bytes().await?;
        http.push(began.elapsed().as_secs_f64() * 1e3);
    }
    served.end().await?;
    // The first ones open the connection, the file and the caches.
    let (library, http) = (median(library.split_off(20)), median(http.split_off(20)));
    let more = http - library;
    report.put("http.turn_library_ms", library);
    report.put("http.turn_ms", http);
    report.put("http.turn_added_ms", more);
    let found = format!("{more:.2} ms on {library:.2} ms");
    report.judge("plain turn over HTTP, added, p50", found, "≤ 1 ms".into(), more <= 1.0);
    Ok(())
}

async fn measure_readers(report: &mut BenchReport, dir: &Path) -> HttpBenchResult<()> {
    let served = BenchServer::at(&dir.join("readers.db")).await?;
    let session = served.outlast.runtime().open_session(None).await?;
    for number in 0..HISTORY {
        let text = format!("{number} {}", "x".repeat(HISTORY_TURN_BYTES));
        served.outlast.session_by_id(session).send(text).await?.answer().await?;
    }
    let times = async |times: &mut Vec<f64>| -> HttpBenchResult<()> {
        for _ in 0..TURNS_PER_ROUND {
            times.push(turn(&served.outlast, session).await?);
        }
        Ok(())
    };
    let mut alone = Vec::new();
    for _ in 0..ROUNDS {
        times(&mut alone).await?;
    }
    let last = served.outlast.runtime().store().session(session).await?.last.seq.0;
    let before = rss_mb("self");
    let client = client()?;
    let address = served.url.trim_start_matches("http://").to_owned();
    let path = format!("/v1/sessions/{session}/events?after={last}");
    let elsewhere = low_priority_runtime()?;
    let mut tasks = JoinSet::new();
    for _ in 1..READERS {
        let reading = read(address.clone(), path.clone());
        let reading =
            async { tokio::time::timeout(2 * PATIENCE, reading).await.is_ok_and(|read| read.is_ok()) };
        tasks.spawn_on(reading, elsewhere.handle());
    }
    wait_for_streams(&client, &served.url, READERS - 1).await?;
    let (mut quick, mut with_slow, mut open) = (Vec::new(), Vec::new(), 0.0_f64);
    for _ in 0..ROUNDS {
        times(&mut quick).await?;
        let slow = connect_stuck_reader(&served.url, session).await?;
        wait_for_streams(&client, &served.url, READERS).await?;
        // While all of them are connected; they leave after the last turn.
        open = open.max(rss_mb("self"));
        times(&mut with_slow).await?;
        open = open.max(rss_mb("self"));
        drop(slow);
    }
    let mut missed = 0;
    while let Some(read) = tasks.join_next().await {
        missed += usize::from(!read?);
    }
    let grown = open - before;
    served.end().await?;
    elsewhere.shutdown_background();
    let (alone, quick, with_slow) = (median(alone), median(quick), median(with_slow));
    report.put("http.readers", READERS);
    report.put("http.readers_turn_alone_ms", alone);
    report.put("http.readers_turn_ms", quick);
    report.put("http.readers_turn_with_slow_ms", with_slow);
    report.put("http.readers_rss_growth_mb", grown);
    let found = format!("{quick:.2} ms, {alone:.2} ms without readers");
    let target = format!("≤ {MAX_TURN_SLOWDOWN:.0} ×, while two cores write 12,000 events for each");
    report.judge("a turn with 2,000 readers", found, target, quick <= alone * MAX_TURN_SLOWDOWN);
    let found = format!("{with_slow:.2} ms, {missed} readers missed an event");
    let target = format!("≤ {MAX_TURN_SLOWDOWN:.0} ×, no reader misses an event");
    report.judge(
        "the same, one of them stuck in 10 MB of history",
        found,
        target,
        missed == 0 && with_slow <= alone * MAX_TURN_SLOWDOWN,
    );
    let found = format!("{grown:.0} MB");
    report.judge(
        "memory while 2,000 readers read, both ends",
        found,
        "< 100 MB, 50 KB for each".into(),
        grown < 100.0,
    );
    Ok(())
}

/// Returns a runtime for the readers, on a thread with low priority, as if they were on another machine.
fn low_priority_runtime() -> HttpBenchResult<tokio::runtime::Runtime> {
    let behind = || {
        // If the priority cannot be lowered, the readers take time from the measured turns.
        let _ = rustix::process::nice(READER_NICENESS);
    };
    let mut threads = tokio::runtime::Builder::new_multi_thread();
    Ok(threads.worker_threads(1).on_thread_start(behind).enable_all().build()?)
}

/// Waits until this many streams are open.
async fn wait_for_streams(client: &reqwest::Client, url: &str, count: usize) -> HttpBenchResult<()> {
    let until = Instant::now() + PATIENCE;
    while streams(client, url).await? < count {
        if Instant::now() > until {
            return Err(format!("{count} readers did not come in within {} s", PATIENCE.as_secs()).into());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

/// Reads a session until the turns of both measurements have ended. Uses little memory.
async fn read(address: String, path: String) -> std::io::Result<()> {
    let mut stream = TcpStream::connect(&address).await?;
    stream.write_all(event_stream_request(&address, &path).as_bytes()).await?;
    let mut lines = tokio::io::BufReader::with_capacity(READER_BUFFER_BYTES, stream);
    let (mut ended, mut line) = (0, Vec::new());
    while lines.read_until(b'\n', &mut line).await? > 0 {
        ended += usize::from(line.starts_with(b"event: turn.ended"));
        if ended == 2 * ROUNDS * TURNS_PER_ROUND {
            return Ok(());
        }
        line.clear();
    }
    Err(std::io::Error::other(format!("the stream ended after {ended} turns")))
}

/// Returns the request for a stream.
fn event_stream_request(address: &str, path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nhost: {address}\r\naccept: text/event-stream\r\n\r\n")
}

/// Returns the number of open streams according to the server's metrics.
async fn streams(client: &reqwest::Client, url: &str) -> HttpBenchResult<usize> {
    let metrics = client.get(format!("{url}/metrics")).send().await?.error_for_status()?.text().await?;
    let line = metrics.lines().find_map(|line| line.strip_prefix("outlast_streams_open "));
    Ok(line.ok_or("the server does not say how many streams it has")?.trim().parse()?)
}

/// Returns a reader that requests everything and never reads. Its receive buffer is small, so that the server cannot
/// send the rest.
async fn connect_stuck_reader(url: &str, session: SessionId) -> HttpBenchResult<TcpStream> {
    let address = url.trim_start_matches("http://");
    let socket = TcpSocket::new_v4()?;
    socket.set_recv_buffer_size(STUCK_BYTES)?;
    let mut stream = socket.connect(address.parse()?).await?;
    stream
        .write_all(
            event_stream_request(address, &format!("/v1/sessions/{session}/events?after=0")).as_bytes(),
        )
        .await?;
    Ok(stream)
}

async fn measure_session_list(report: &mut BenchReport, dir: &Path, sessions: usize) -> HttpBenchResult<()> {
    let served = BenchServer::at(&dir.join("list.db")).await?;
    let outlast = &served.outlast;
    let said = stream::iter(0..sessions)
        .map(|n| async move { outlast.session(format!("customer {n}")).send("hi").await?.answer().await });
    said.buffer_unordered(256).try_for_each(async |_| Ok(())).await?;
    let client = client()?;
    let time = async |url: String| -> HttpBenchResult<f64> {
        let mut times = Vec::new();
        for _ in 0..50 {
            let began = Instant::now();
            client.get(&url).send().await?.error_for_status()?.bytes().await?;
            times.push(began.elapsed().as_secs_f64() * 1e3);
        }
        Ok(median(times))
    };
    let usual = time(format!("{}/v1/sessions", served.url)).await?;
    let most = time(format!("{}/v1/sessions?limit=500", served.url)).await?;
    served.end().await?;
    report.put("http.list_sessions", sessions);
    report.put("http.list_ms", usual);
    report.put("http.list_500_ms", most);
    let found = format!("{usual:.1} ms of {sessions}, each with a turn");
    report.judge("the list of sessions, p50", found, "≤ 50 ms".into(), usual <= 50.0);
    report.judge("500 of them at once, p50", format!("{most:.1} ms"), "≤ 50 ms".into(), most <= 50.0);
    Ok(())
}

/// Measures the binary: its size, its start-up time and its idle memory. Only the size of what ships has a target.
fn measure_binary(report: &mut BenchReport, dir: &Path, binary: &Path) -> HttpBenchResult<()> {
    let stripped = dir.join("stripped");
    let strip = Command::new("strip").arg("-o").arg(&stripped).arg(binary).status();
    let size = if strip.is_ok_and(|status| status.success()) { &stripped } else { binary };
    let megabytes = f64::from(u32::try_from(std::fs::metadata(size)?.len())?) / 1e6;
    let data = dir.join("served.db");
    let (mut starts, mut rss) = (Vec::new(), 0.0);
    for _ in 0..5 {
        let began = Instant::now();
        let mut child = Command::new(binary)
            .args(["serve", "--listen", "127.0.0.1:0", "--data"])
            .arg(&data)
            .stderr(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        let mut said = BufReader::new(child.stderr.take().ok_or("the server has no standard error")?);
        said.read_line(&mut line)?;
        let address = line.trim().strip_prefix("· http://").and_then(|rest| rest.split(',').next());
        let address = address.ok_or("the server does not say where it listens")?.to_owned();
        check_ready_endpoint(&address)?;
        starts.push(began.elapsed().as_secs_f64() * 1e3);
        std::thread::sleep(Duration::from_secs(1));
        rss = rss_mb(&child.id().to_string());
        child.kill()?;
        child.wait()?;
    }
    let start = median(starts);
    report.put("http.binary_mb", megabytes);
    report.put("http.start_ms", start);
    report.put("http.idle_rss_mb", rss);
    let is_shipped = binary.parent().is_some_and(|profile| profile.ends_with("dist"));
    let size = format!("{megabytes:.1} MB");
    if is_shipped {
        report.judge("binary, stripped", size, "≤ 32 MB".into(), megabytes <= 32.0);
    } else {
        report.add_plain_row("binary, stripped, of a quick build", size);
    }
    report.judge("start to the first answer", format!("{start:.0} ms"), "≤ 50 ms".into(), start <= 50.0);
    report.judge("idle server, memory", format!("{rss:.1} MB"), "≤ 40 MB".into(), rss <= 40.0);
    Ok(())
}

/// Sends one request on a new socket and reads the response.
fn check_ready_endpoint(address: &str) -> HttpBenchResult<()> {
    use std::io::{Read, Write};
    let mut stream = std::net::TcpStream::connect(address)?;
    write!(stream, "GET /health/ready HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    if answer.starts_with("HTTP/1.1 200") { Ok(()) } else { Err(answer.into()) }
}
