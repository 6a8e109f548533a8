//! Scripted servers and scripted name resolution.
use super::super::{Egress, EgressLimits, EgressRules, GetResponse, HostRule, NameResolver};
use outlast_ports::ResultFuture;
use outlast_vocab::{Error, Kind};
use reqwest::header::HeaderMap;
use std::collections::BTreeMap;
use std::future::ready;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// A server on a free port. Its threads end with their connections.
pub(super) struct Server {
    pub(super) address: SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Server {
    /// Starts a server. The function receives each request as text and writes the response to the connection.
    pub(super) fn start(play: impl Fn(&str, &mut TcpStream) + Send + Sync + 'static) -> Self {
        Self::at("127.0.0.1:0", play)
    }

    pub(super) fn at(place: &str, play: impl Fn(&str, &mut TcpStream) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind(place).unwrap();
        let (address, asked) = (listener.local_addr().unwrap(), Arc::<Mutex<Vec<String>>>::default());
        let (play, requests) = (Arc::new(play), asked.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (Ok(mut stream), play, requests) = (stream, play.clone(), requests.clone()) else {
                    return;
                };
                std::thread::spawn(move || {
                    while let Some(request) = request(&mut stream) {
                        requests.lock().unwrap().push(request.clone());
                        play(&request, &mut stream);
                    }
                });
            }
        });
        Self { address, asked }
    }

    /// Starts a server that answers every request with these bytes.
    pub(super) fn says(answer: impl Into<Vec<u8>>) -> Self {
        let answer = answer.into();
        Self::start(move |_, stream| drop(stream.write_all(&answer)))
    }

    pub(super) fn port(&self) -> u16 {
        self.address.port()
    }

    /// Returns the requests received so far.
    pub(super) fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

fn request(stream: &mut TcpStream) -> Option<String> {
    let mut bytes = Vec::new();
    while !bytes.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        if stream.read(&mut byte).ok()? == 0 {
            return None;
        }
        bytes.extend(byte);
    }
    String::from_utf8(bytes).ok()
}

/// Returns a response with this body.
pub(super) fn ok(body: &str) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: {}\r\n\r\n{body}", body.len())
        .into()
}

/// Returns a redirect.
pub(super) fn moved(to: &str) -> Vec<u8> {
    format!("HTTP/1.1 302 Found\r\nlocation: {to}\r\ncontent-length: 0\r\n\r\n").into()
}

/// Names with the addresses of their first lookup, second lookup, and so on. The last addresses repeat.
#[derive(Default)]
pub(super) struct Names {
    addresses: BTreeMap<&'static str, Vec<Vec<IpAddr>>>,
    asked: Mutex<Vec<String>>,
}

impl Names {
    pub(super) fn of(names: &[(&'static str, &[&str])]) -> Arc<Self> {
        let each = |look_up: &&str| look_up.split_whitespace().map(|text| text.parse().unwrap()).collect();
        let addresses = names.iter().map(|(name, answers)| (*name, answers.iter().map(each).collect()));
        Arc::new(Self { addresses: addresses.collect(), asked: Mutex::default() })
    }

    /// Returns the names looked up so far.
    pub(super) fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

impl NameResolver for Names {
    fn addresses<'a>(&'a self, name: &'a str) -> ResultFuture<'a, Vec<IpAddr>> {
        let mut asked = self.asked.lock().unwrap();
        let before = asked.iter().filter(|other| *other == name).count();
        asked.push(name.to_owned());
        let found = self.addresses.get(name).and_then(|answers| answers.get(before).or(answers.last()));
        Box::pin(ready(found.cloned().ok_or_else(|| {
            Error::new(Kind::EgressUnreachable, format!("`{name}` cannot be resolved: it is not on stage"))
        })))
    }
}

/// Creates a client that may reach these hosts although they are local.
pub(super) fn egress(names: &Arc<Names>, private: &[String]) -> Egress {
    capped(names, private, EgressLimits::default())
}

pub(super) fn capped(names: &Arc<Names>, private: &[String], caps: EgressLimits) -> Egress {
    let private: Vec<HostRule> = private.iter().map(|rule| rule.parse().unwrap()).collect();
    Egress::with(EgressRules::public().and_private(private).unwrap(), caps, names.clone()).unwrap()
}

/// Sends a GET request without headers.
pub(super) fn get(egress: &Egress, url: &str) -> Result<GetResponse, Error> {
    get_with(egress, url, HeaderMap::new())
}

pub(super) fn get_with(egress: &Egress, url: &str, headers: HeaderMap) -> Result<GetResponse, Error> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(egress.get(url, headers))
}

/// Formats a result as one line.
pub(super) fn line(got: &Result<GetResponse, Error>) -> String {
    match got {
        Ok(fetched) => format!("{} {}\n", fetched.status, String::from_utf8_lossy(&fetched.body)),
        Err(error) => format!("{error}\n"),
    }
}
