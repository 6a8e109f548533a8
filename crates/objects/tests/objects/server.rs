//! An S3-compatible server: moto, which `cargo xtask test` installs.
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The start-up timeout of the server.
const STARTS: Duration = Duration::from_mins(1);

/// A server with a bucket called `files`. It is stopped when the test ends.
pub(crate) struct Server {
    process: Child,
    port: u16,
}

impl Server {
    /// Starts the server on a free port.
    pub(crate) fn start() -> Self {
        let needs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/needs/moto/bin/moto_server");
        assert!(needs.exists(), "moto's server is not installed; `cargo xtask test` does that");
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = free.local_addr().unwrap().port();
        drop(free);
        let process = Command::new(needs)
            .args(["-H", "127.0.0.1", "-p", &port.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let server = Self { process, port };
        let began = Instant::now();
        while !server.makes_bucket() {
            assert!(began.elapsed() < STARTS, "the server does not answer");
            std::thread::sleep(Duration::from_millis(50));
        }
        server
    }

    fn makes_bucket(&self) -> bool {
        let Ok(mut socket) = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)) else { return false };
        let request = format!(
            "PUT /files HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
            self.port
        );
        let mut answer = String::new();
        socket.write_all(request.as_bytes()).unwrap();
        socket.read_to_string(&mut answer).is_ok() && answer.starts_with("HTTP/1.1 200")
    }

    /// Returns its address.
    pub(crate) fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ended = self.process.kill();
        let _reaped = self.process.wait();
    }
}
