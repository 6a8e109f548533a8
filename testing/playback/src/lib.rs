//! A server on a real socket that plays byte scripts: what a provider might send, chunk by chunk, with pauses and cuts.
//!
//! Each connection has a thread and one request, so that a script controls every byte. The server knows just enough of
//! HTTP/1.1 to read a request; the script defines the response.
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// The maximum size of a request's head in bytes.
const HEAD_BYTES: usize = 64 << 10;

/// A received request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedRequest {
    /// The method.
    pub method: String,
    /// The path with its query.
    pub path: String,
    /// The headers, names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
}

impl RecordedRequest {
    /// Returns a header, by its name in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

/// The bytes and pauses sent to one connection.
#[derive(Clone, Debug, Default)]
pub struct ResponseScript(Vec<PlaybackStep>);

#[derive(Clone, Debug)]
enum PlaybackStep {
    Send(Vec<u8>),
    Pause(Duration),
    KeepOpen,
}

impl ResponseScript {
    /// Creates a complete response with a body of known length.
    pub fn answer(status: u16, headers: &[(&str, &str)], body: &str) -> Self {
        let lines: Vec<String> = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let head = format!("HTTP/1.1 {status} -\r\ncontent-length: {}\r\nconnection: close\r\n", body.len());
        let head = head + &lines.concat();
        Self(vec![PlaybackStep::Send(format!("{head}\r\n{body}").into_bytes())])
    }

    /// Creates an empty event stream.
    pub fn events() -> Self {
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\
                    connection: close\r\n\r\n";
        Self(vec![PlaybackStep::Send(head.as_bytes().to_vec())])
    }

    /// Creates a complete event stream, one chunk per item.
    pub fn stream<C: AsRef<[u8]>>(chunks: impl IntoIterator<Item = C>) -> Self {
        chunks.into_iter().fold(Self::events(), Self::chunk).end()
    }

    /// Adds a chunk of the body.
    #[must_use]
    pub fn chunk(mut self, chunk: impl AsRef<[u8]>) -> Self {
        let chunk = chunk.as_ref();
        // An empty chunk would be the last one.
        if !chunk.is_empty() {
            let framed = [format!("{:x}\r\n", chunk.len()).as_bytes(), chunk, b"\r\n"].concat();
            self.0.push(PlaybackStep::Send(framed));
        }
        self
    }

    /// Adds a pause.
    #[must_use]
    pub fn pause(mut self, pause: Duration) -> Self {
        self.0.push(PlaybackStep::Pause(pause));
        self
    }

    /// Keeps the connection open until the client closes it.
    #[must_use]
    pub fn hold_open(mut self) -> Self {
        self.0.push(PlaybackStep::KeepOpen);
        self
    }

    /// Adds the end of the body. Without it the connection is cut.
    #[must_use]
    pub fn end(mut self) -> Self {
        self.0.push(PlaybackStep::Send(b"0\r\n\r\n".to_vec()));
        self
    }
}

type ScriptSelector = dyn Fn(usize, &RecordedRequest) -> ResponseScript + Send + Sync;

/// A server that runs until it is dropped.
pub struct Playback {
    address: SocketAddr,
    shared: Arc<PlaybackState>,
    listener: Option<JoinHandle<()>>,
}

struct PlaybackState {
    select_script: Box<ScriptSelector>,
    recorded_requests: Mutex<Vec<RecordedRequest>>,
    stop_requested: AtomicBool,
    posts_only: AtomicBool,
}

impl Playback {
    /// Plays one script per request, in order. The last one repeats.
    ///
    /// # Panics
    /// If there is no script.
    pub fn of(scripts: impl IntoIterator<Item = ResponseScript>) -> Self {
        let scripts: Vec<ResponseScript> = scripts.into_iter().collect();
        assert!(!scripts.is_empty(), "a server without a script has nothing to play");
        Self::with_selector(move |number, _| scripts[number.min(scripts.len() - 1)].clone())
    }

    /// Plays the script chosen for each request, given its number counted from 0.
    ///
    /// # Panics
    /// If the system has no free port.
    pub fn with_selector(
        choose: impl Fn(usize, &RecordedRequest) -> ResponseScript + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("the loopback has a free port");
        let address = listener.local_addr().expect("a listener has an address");
        let shared = Arc::new(PlaybackState {
            select_script: Box::new(choose),
            recorded_requests: Mutex::default(),
            stop_requested: AtomicBool::new(false),
            posts_only: AtomicBool::new(false),
        });
        let listens = shared.clone();
        let listener = thread::spawn(move || listens.listen(&listener));
        Self { address, shared, listener: Some(listener) }
    }

    /// Answers every request except POST with 404, and does not count it. A model provider may ask for properties of the
    /// server before its first call.
    #[must_use]
    pub fn posts_only(self) -> Self {
        self.shared.posts_only.store(true, Ordering::SeqCst);
        self
    }

    /// Returns its address, such as `http://127.0.0.1:4711`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns every request so far.
    pub fn requests(&self) -> Vec<RecordedRequest> {
        self.shared.recorded_requests.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Playback {
    fn drop(&mut self) {
        self.shared.stop_requested.store(true, Ordering::SeqCst);
        // Wakes the listener, which then notices the end.
        drop(TcpStream::connect(self.address));
        if let Some(listener) = self.listener.take() {
            // If the listener panicked, that was already reported.
            drop(listener.join());
        }
    }
}

impl PlaybackState {
    fn listen(self: &Arc<Self>, listener: &TcpListener) {
        for stream in listener.incoming() {
            if self.stop_requested.load(Ordering::SeqCst) {
                return;
            }
            let Ok(stream) = stream else { continue };
            let shared = self.clone();
            // Ends with its connection, which the client or the script closes.
            thread::spawn(move || shared.serve(stream));
        }
    }

    fn serve(&self, mut stream: TcpStream) -> Option<()> {
        stream.set_nodelay(true).ok()?;
        let request = read_request(&mut stream)?;
        if self.posts_only.load(Ordering::SeqCst) && request.method != "POST" {
            let not_found = b"HTTP/1.1 404 -\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
            stream.write_all(not_found).ok()?;
            return stream.shutdown(Shutdown::Write).ok();
        }
        let number = {
            let mut requests = self.recorded_requests.lock().unwrap_or_else(PoisonError::into_inner);
            requests.push(request.clone());
            requests.len() - 1
        };
        for act in (self.select_script)(number, &request).0 {
            match act {
                PlaybackStep::Send(bytes) => stream.write_all(&bytes).ok()?,
                PlaybackStep::Pause(pause) => thread::sleep(pause),
                PlaybackStep::KeepOpen => drop(stream.read(&mut [0])),
            }
        }
        stream.shutdown(Shutdown::Write).ok()
    }
}

fn read_request(stream: &mut TcpStream) -> Option<RecordedRequest> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        if head.len() > HEAD_BYTES || stream.read(&mut byte).ok()? == 0 {
            return None;
        }
        head.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let mut lines = head.lines();
    let mut words = lines.next()?.split(' ');
    let (method, path) = (words.next()?.to_owned(), words.next()?.to_owned());
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    let length = headers.iter().find(|(name, _)| name == "content-length");
    let mut body = vec![0; length.and_then(|(_, value)| value.parse().ok()).unwrap_or(0)];
    stream.read_exact(&mut body).ok()?;
    Some(RecordedRequest { method, path, headers, body })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(server: &Playback, request: &str) -> String {
        let mut stream = TcpStream::connect(server.address).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn scripts_play_in_order_and_requests_are_recorded() {
        let server = Playback::of([
            ResponseScript::answer(503, &[("retry-after", "1")], "busy"),
            ResponseScript::stream(["ab", "c"]),
        ]);
        let post = "POST /v1/x HTTP/1.1\r\nContent-Length: 2\r\n\r\nhi";
        assert_eq!(
            ask(&server, post),
            "HTTP/1.1 503 -\r\ncontent-length: 4\r\nconnection: close\r\nretry-after: 1\r\n\r\nbusy"
        );
        assert!(ask(&server, post).ends_with("\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n"));
        let requests = RecordedRequest {
            method: "POST".to_owned(),
            path: "/v1/x".to_owned(),
            headers: vec![("content-length".to_owned(), "2".to_owned())],
            body: b"hi".to_vec(),
        };
        assert_eq!(server.requests(), [requests.clone(), requests]);
    }
}
