//! A small HTTP client that sends exactly what a test specifies.
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::LazyLock;
use std::time::Duration;

/// An answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|cause| panic!("{cause}: {}", self.body))
    }

    /// Returns the error code, from a problem or from an error in the format of another provider.
    #[track_caller]
    pub(crate) fn code(&self) -> String {
        if let Some(code) = self.json()["error"]["code"].as_str() {
            return code.to_owned();
        }
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{self:?}");
        self.json()["code"].as_str().unwrap().to_owned()
    }

    /// Returns the result in the answer to an MCP client: JSON, or the last event of a stream.
    #[track_caller]
    pub(crate) fn mcp(&self) -> Value {
        let said = self.body.lines().rev().find_map(|line| line.strip_prefix("data: ")).unwrap_or(&self.body);
        let said: Value = serde_json::from_str(said).unwrap_or_else(|cause| panic!("{cause}: {self:?}"));
        said["result"].clone()
    }

    #[track_caller]
    pub(crate) fn ok(self) -> Value {
        assert!((200..300).contains(&self.status), "{self:?}");
        if self.body.is_empty() { Value::Null } else { self.json() }
    }
}

/// A request that is not sent yet.
#[derive(Clone)]
pub(crate) struct Request {
    address: SocketAddr,
    method: String,
    path: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Request {
    pub(crate) fn new(address: SocketAddr, method: &str, path: &str) -> Self {
        let headers = vec![("host".to_owned(), address.to_string())];
        Self { address, method: method.to_owned(), path: path.to_owned(), headers, body: Vec::new() }
    }

    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.retain(|(known, _)| known != name);
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Adds a header and keeps others with the same name.
    pub(crate) fn again(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn key(self, key: &str) -> Self {
        self.header("authorization", &format!("Bearer {key}"))
    }

    pub(crate) fn json(self, body: &Value) -> Self {
        self.bytes("application/json", body.to_string().into_bytes())
    }

    pub(crate) fn bytes(self, media_type: &str, body: impl Into<Vec<u8>>) -> Self {
        Self { body: body.into(), ..self.header("content-type", media_type) }
    }

    fn open(&self) -> BufReader<TcpStream> {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let mut head = format!("{} {} HTTP/1.1\r\n", self.method, self.path);
        for (name, value) in &self.headers {
            head = format!("{head}{name}: {value}\r\n");
        }
        if !self.body.is_empty() || self.method != "GET" {
            head = format!("{head}content-length: {}\r\n", self.body.len());
        }
        head += "\r\n";
        stream.write_all(head.as_bytes()).unwrap();
        // A server that rejects the request early may close the connection. Its answer still arrives.
        let _ = stream.write_all(&self.body);
        BufReader::new(stream)
    }

    /// Sends the request and reads the complete answer, on a blocking thread.
    pub(crate) async fn send(self) -> Answer {
        let request = self.header("connection", "close");
        let (method, path) = (request.method.clone(), request.path.clone());
        let answer = tokio::task::spawn_blocking(move || whole(&mut request.open())).await.unwrap();
        check_documented(&method, &path, &answer);
        answer
    }

    /// Sends the request and returns the stream of its answer.
    pub(crate) async fn stream(self) -> Stream {
        let request = self.header("accept", "text/event-stream");
        tokio::task::spawn_blocking(move || {
            let mut reader = request.open();
            let (status, headers) = head(&mut reader);
            assert_eq!(status, 200, "{headers:?}");
            Stream { reader, rest: String::new() }
        })
        .await
        .unwrap()
    }
}

/// A connection whose answer is not read yet.
pub(crate) struct OpenConnection {
    _stream: BufReader<TcpStream>,
}

impl Request {
    /// Sends the request and keeps the connection open. Dropping the connection closes it.
    pub(crate) async fn begin(self) -> OpenConnection {
        tokio::task::spawn_blocking(move || OpenConnection { _stream: self.open() }).await.unwrap()
    }
}

/// A download of which only the head was read.
pub(crate) struct Download {
    reader: BufReader<TcpStream>,
    headers: Vec<(String, String)>,
}

impl Request {
    /// Sends the request and reads the head of its answer.
    pub(crate) async fn download(self) -> Download {
        let request = self.header("connection", "close");
        tokio::task::spawn_blocking(move || {
            let mut reader = request.open();
            let (status, headers) = head(&mut reader);
            assert_eq!(status, 200, "{headers:?}");
            Download { reader, headers }
        })
        .await
        .unwrap()
    }
}

impl Download {
    /// Reads until the server closes the connection. Returns the number of bytes, and whether the file is
    /// complete.
    pub(crate) async fn rest(mut self) -> (usize, bool) {
        let read = move || {
            let announced = self.headers.iter().find(|(name, _)| name == "content-length");
            let announced: Option<usize> = announced.map(|(_, value)| value.parse().unwrap());
            let mut all = Vec::new();
            // Tests expect the connection to break, so errors are fine.
            let _ = self.reader.read_to_end(&mut all);
            (all.len(), announced.map_or(all.ends_with(b"\r\n0\r\n\r\n"), |bytes| all.len() == bytes))
        };
        tokio::task::spawn_blocking(read).await.unwrap()
    }
}

/// Checks that the OpenAPI document lists the status of an answer. Runs for every answer of every test.
fn check_documented(method: &str, path: &str, answer: &Answer) {
    static DOCUMENT: LazyLock<Value> =
        LazyLock::new(|| serde_json::to_value(outlast_server::document()).unwrap());
    let path: Vec<&str> = path.split('?').next().unwrap_or_default().split('/').collect();
    let fits = |route: &str| {
        let route: Vec<&str> = route.split('/').collect();
        let same = |(named, word): (&&str, &&str)| named == word || named.starts_with('{');
        route.len() == path.len() && route.iter().zip(&path).all(same)
    };
    // Prefer the route with the fewest parameters.
    let routes = DOCUMENT["paths"].as_object().unwrap();
    let route =
        routes.iter().filter(|(route, _)| fits(route)).min_by_key(|(route, _)| route.matches('{').count());
    // Methods are case-sensitive: another spelling is a method that no route has.
    let spelt = method.to_lowercase();
    let known = |item: &'static Value| item.get(&spelt).filter(|_| *method == spelt.to_uppercase());
    let Some((route, Some(operation))) = route.map(|(route, item)| (route, known(item))) else { return };
    // A rejected head is answered before routing.
    if answer.header("x-request-id").is_none() {
        return;
    }
    let documented = operation["responses"].get(answer.status.to_string());
    assert!(documented.is_some(), "{method} {route} does not tell of this: {answer:?}");
}

/// An open event stream.
pub(crate) struct Stream {
    reader: BufReader<TcpStream>,
    rest: String,
}

/// One event of a stream.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Event {
    pub(crate) id: Option<u64>,
    pub(crate) name: String,
    pub(crate) data: Value,
}

impl Stream {
    /// Reads events up to and including the first for which `last` returns true.
    pub(crate) async fn until(
        mut self,
        last: impl Fn(&Event) -> bool + Send + 'static,
    ) -> (Vec<Event>, Self) {
        tokio::task::spawn_blocking(move || {
            let mut events = Vec::new();
            while let Some(event) = self.next() {
                let done = last(&event);
                events.push(event);
                if done {
                    break;
                }
            }
            (events, self)
        })
        .await
        .unwrap()
    }

    /// Reads every byte until the server ends the stream, including comments.
    pub(crate) async fn raw(mut self) -> String {
        let read = move || {
            while let Some(chunk) = chunk(&mut self.reader) {
                self.rest += &String::from_utf8(chunk).unwrap();
            }
            self.rest
        };
        tokio::task::spawn_blocking(read).await.unwrap()
    }

    fn next(&mut self) -> Option<Event> {
        loop {
            if let Some((block, rest)) = self.rest.clone().split_once("\n\n") {
                rest.clone_into(&mut self.rest);
                if let Some(event) = event(block) {
                    return Some(event);
                }
                continue;
            }
            let chunk = chunk(&mut self.reader)?;
            self.rest += &String::from_utf8(chunk).unwrap();
        }
    }
}

fn event(block: &str) -> Option<Event> {
    let field = |name: &str| block.lines().find_map(|line| line.strip_prefix(&format!("{name}: ")));
    let data = serde_json::from_str(field("data")?).unwrap();
    let id = field("id").map(|id| id.parse().unwrap());
    Some(Event { id, name: field("event")?.to_owned(), data })
}

fn head(reader: &mut impl BufRead) -> (u16, Vec<(String, String)>) {
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    let status = line.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap_or(0) == 0 || line == "\r\n" {
            return (status, headers);
        }
        if let Some((name, value)) = line.trim_end().split_once(": ") {
            headers.push((name.to_ascii_lowercase(), value.to_owned()));
        }
    }
}

/// Returns the next chunk of a body, or `None` at its end.
fn chunk(reader: &mut impl BufRead) -> Option<Vec<u8>> {
    let mut line = String::new();
    if reader.read_line(&mut line).ok()? == 0 {
        return None;
    }
    let size = usize::from_str_radix(line.trim(), 16).ok().filter(|size| *size > 0)?;
    let mut bytes = vec![0; size + 2];
    reader.read_exact(&mut bytes).ok()?;
    bytes.truncate(size);
    Some(bytes)
}

fn whole(reader: &mut impl BufRead) -> Answer {
    let (status, headers) = head(reader);
    let chunked = headers.iter().any(|(name, value)| name == "transfer-encoding" && value == "chunked");
    let mut bytes = Vec::new();
    if chunked {
        while let Some(chunk) = chunk(reader) {
            bytes.extend(chunk);
        }
    } else {
        let length = headers.iter().find(|(name, _)| name == "content-length");
        let length = length.and_then(|(_, length)| length.parse().ok()).unwrap_or(0);
        reader.take(length).read_to_end(&mut bytes).unwrap_or(0);
    }
    Answer { status, headers, body: String::from_utf8_lossy(&bytes).into_owned() }
}
