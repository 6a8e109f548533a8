//! Responses are bounded, even from a malicious server.
use super::super::{EgressLimits, GetResponse};
use super::stage::{Names, Server, capped, get, line};
use expect_test::expect;
use flate2::Compression;
use flate2::write::{GzEncoder, ZlibEncoder};
use outlast_vocab::Error;
use std::io::Write;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

/// Small limits, so that the tests are quick.
const CAPS: EgressLimits = EgressLimits {
    bytes: 64 << 10,
    ratio: 20,
    redirects: 5,
    connect: Duration::from_secs(5),
    idle: Duration::from_millis(300),
    total: Duration::from_millis(1_500),
};

fn got(server: &Server) -> Result<GetResponse, Error> {
    let names = Names::of(&[("far.test", &["127.0.0.1"])]);
    let egress = capped(&names, &[format!("far.test:{}", server.port())], CAPS);
    get(&egress, &format!("http://far.test:{}/", server.port()))
}

fn shown(server: &Server) -> String {
    line(&got(server)).replace(&server.port().to_string(), "PORT")
}

fn encoded(encoding: &str, body: &[u8]) -> Vec<u8> {
    let head =
        format!("HTTP/1.1 200 OK\r\ncontent-encoding: {encoding}\r\ncontent-length: {}\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

fn gzip(body: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(body).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn an_encoded_answer_is_decoded() {
    let mut zlib = ZlibEncoder::new(Vec::new(), Compression::best());
    zlib.write_all(b"zlib").unwrap();
    let log = [
        shown(&Server::says(encoded("gzip", &gzip(b"gzip")))),
        shown(&Server::says(encoded("GZIP", &[gzip(b"two "), gzip(b"members")].concat()))),
        shown(&Server::says(encoded("deflate", &zlib.finish().unwrap()))),
        shown(&Server::says(encoded("identity", b"plain"))),
        shown(&Server::says(encoded("br", b"brotli"))),
        shown(&Server::says(encoded("gzip, gzip", &gzip(&gzip(b"twice"))))),
        shown(&Server::says(encoded("gzip", b"no gzip at all"))),
        shown(&Server::says(encoded("gzip", &gzip(b"half of it")[..15]))),
    ];
    expect![[r"
        200 gzip
        200 two members
        200 zlib
        200 plain
        tool.failed: the response has the encoding `br`, which is not supported
        tool.failed: the response has the encoding `gzip, gzip`, which is not supported
        egress.unreachable: the response cannot be decoded: invalid gzip header
        egress.unreachable: the response cannot be decoded: corrupt gzip stream does not have a matching checksum
    "]].assert_eq(&log.concat());
}

#[test]
fn decompression_bomb_is_stopped_early() {
    // A hundred megabytes in a hundred kilobytes.
    let bomb = gzip(&vec![0; 100 << 20]);
    assert!(bomb.len() < 128 << 10, "{}", bomb.len());
    assert_eq!(
        shown(&Server::says(encoded("gzip", &bomb[..1_500]))),
        "limit.exceeded: decoded_ratio is limited to 20, but 1500 bytes already expanded to 65536\n"
    );
    // With enough received bytes the ratio is fine, and the size limit applies.
    let fetched = got(&Server::says(encoded("gzip", &bomb))).unwrap();
    assert_eq!((fetched.body.len(), fetched.cut), (CAPS.bytes, true));
}

#[test]
fn endless_response_is_cut_at_the_limit() {
    let sent = Arc::new(AtomicUsize::new(0));
    let counted = sent.clone();
    let server = Server::start(move |_, stream| {
        let mut write =
            |bytes: &[u8]| stream.write_all(bytes).map(|()| counted.fetch_add(bytes.len(), SeqCst));
        let piece = [b"4000\r\n".as_slice(), &[b'a'; 0x4000], b"\r\n"].concat();
        let mut sent = write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n");
        while sent.is_ok() {
            sent = write(&piece);
        }
    });
    let fetched = got(&server).unwrap();
    assert_eq!((fetched.body.len(), fetched.cut), (CAPS.bytes, true));
    // Bytes in the system's buffers were sent but not read.
    assert!(sent.load(SeqCst) < 16 << 20, "{} bytes were taken", sent.load(SeqCst));
}

#[test]
fn announced_content_length_is_not_preallocated() {
    let server = Server::says(b"HTTP/1.1 200 OK\r\ncontent-length: 10737418240\r\n\r\nfirst".to_vec());
    assert_eq!(
        shown(&server),
        "egress.unreachable: `http://far.test:PORT/` cannot be reached: sent nothing for too long\n"
    );
}

#[test]
fn slow_response_times_out() {
    fn drip(stream: &mut TcpStream, pause: Duration) {
        let mut sent = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n");
        while sent.is_ok() {
            std::thread::sleep(pause);
            sent = stream.write_all(b"a");
        }
    }
    let log = [
        shown(&Server::start(|_, stream| drip(stream, Duration::from_millis(100)))),
        shown(&Server::start(|_, stream| drip(stream, Duration::from_secs(2)))),
        shown(&Server::start(|_, _| std::thread::sleep(Duration::from_secs(2)))),
    ];
    expect![[r"
        egress.unreachable: `http://far.test:PORT/` took longer than 1.5 s
        egress.unreachable: `http://far.test:PORT/` cannot be reached: sent nothing for too long
        egress.unreachable: `http://far.test:PORT/` cannot be reached: sent nothing for too long
    "]]
    .assert_eq(&log.concat());
}

#[test]
fn interrupted_response_is_an_error() {
    let log = [
        shown(&Server::start(|_, stream| {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\nhalf");
            let _ = stream.shutdown(std::net::Shutdown::Both);
        })),
        shown(&Server::start(|_, stream| drop(stream.shutdown(std::net::Shutdown::Both)))),
        shown(&Server::says(b"SSH-2.0-OpenSSH_9.6\r\n\r\n".to_vec())),
    ];
    expect![[r"
        egress.unreachable: `http://far.test:PORT/` cannot be reached: end of file before message length reached
        egress.unreachable: `http://far.test:PORT/` cannot be reached: connection closed before message completed
        egress.unreachable: `http://far.test:PORT/` cannot be reached: invalid HTTP version parsed
    "]].assert_eq(&log.concat());
}
