//! Name resolution: one lookup, all addresses checked, and the connection goes to a checked address.
use super::stage::{Names, Server, egress, get, line, ok};
use expect_test::expect;
use std::io::Read;
use std::net::TcpListener;
use std::process::Command;

#[test]
fn checked_address_is_used_without_second_lookup() {
    let good = Server::says(ok("good"));
    let bad = Server::at(&format!("127.0.0.2:{}", good.port()), {
        let answer = ok("bad");
        move |_, stream| drop(std::io::Write::write_all(stream, &answer))
    });
    let names = Names::of(&[("flip.test", &["127.0.0.1", "127.0.0.2"])]);
    let egress = egress(&names, &[format!("flip.test:{}", good.port())]);
    let got = get(&egress, &format!("http://flip.test:{}/", good.port()));
    assert_eq!(line(&got), "200 good\n");
    assert_eq!(names.asked(), ["flip.test"]);
    assert_eq!(bad.asked(), [""; 0]);
    // The request keeps the name.
    assert!(
        good.asked()[0].contains(&format!("\r\nhost: flip.test:{}\r\n", good.port())),
        "{:?}",
        good.asked()
    );
}

#[test]
fn name_resolving_to_non_public_address_is_denied() {
    let names = Names::of(&[
        ("public.test", &["10.0.0.1"]),
        ("mixed.test", &["93.184.216.34 10.0.0.1"]),
        ("mixed6.test", &["2606:4700::1 fd00::1"]),
        ("mapped.test", &["::ffff:127.0.0.1"]),
        ("nat64.test", &["64:ff9b::a9fe:a9fe"]),
        ("metadata.test", &["169.254.169.254"]),
        ("zero.test", &["0.0.0.0"]),
        ("none.test", &[""]),
        ("named.test", &["169.254.169.254"]),
        ("localhost", &["127.0.0.1"]),
    ]);
    let egress = egress(&names, &["named.test".to_owned()]);
    let hosts = [
        "public.test",
        "mixed.test",
        "mixed6.test",
        "mapped.test",
        "nat64.test",
        "metadata.test",
        "zero.test",
        "none.test",
        "named.test",
        "localhost",
        "unknown.test",
    ];
    let log: String = hosts.iter().map(|host| line(&get(&egress, &format!("http://{host}/")))).collect();
    expect![[r"
        egress.denied: `public.test` resolves to an address that is in a private network
        egress.denied: `mixed.test` resolves to an address that is in a private network
        egress.denied: `mixed6.test` resolves to an address that is in a private network of IPv6
        egress.denied: `mapped.test` resolves to an address that is on this machine
        egress.denied: `nat64.test` resolves to an address that is link-local
        egress.denied: `metadata.test` resolves to an address that is link-local
        egress.denied: `zero.test` resolves to an address that is unspecified
        egress.unreachable: `none.test` has no address
        egress.denied: `named.test` resolves to an address that is link-local
        egress.denied: `localhost` resolves to an address that is on this machine
        egress.unreachable: `unknown.test` cannot be resolved: it is not on stage
    "]]
    .assert_eq(&log);
    assert_eq!(names.asked(), hosts);
}

#[test]
fn every_new_connection_checks_its_address() {
    let server = Server::start(|_, stream| {
        let _ = std::io::Write::write_all(
            stream,
            b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nhi",
        );
        let _ = stream.shutdown(std::net::Shutdown::Both);
    });
    let names = Names::of(&[("flip.test", &["127.0.0.1", "169.254.169.254"])]);
    let egress = egress(&names, &[format!("flip.test:{}", server.port())]);
    let url = format!("http://flip.test:{}/", server.port());
    let log = [get(&egress, &url), get(&egress, &url)].map(|got| line(&got)).concat();
    assert_eq!(log, "200 hi\negress.denied: `flip.test` resolves to an address that is link-local\n");
}

#[test]
fn tls_uses_the_host_name_not_the_address() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let request = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut acceptor = rustls::server::Acceptor::default();
        loop {
            acceptor.read_tls(&mut stream.by_ref()).unwrap();
            if let Some(accepted) = acceptor.accept().unwrap() {
                return accepted.client_hello().server_name().map(str::to_owned);
            }
        }
    });
    let names = Names::of(&[("named.test", &["127.0.0.1"])]);
    let egress = egress(&names, &[format!("named.test:{port}")]);
    let got = get(&egress, &format!("https://named.test:{port}/"));
    assert_eq!(request.join().unwrap(), Some("named.test".to_owned()));
    assert_eq!(got.unwrap_err().kind(), outlast_vocab::Kind::EgressUnreachable);
}

#[test]
fn proxy_environment_variables_are_ignored() {
    const CHILD: &str = "OUTLAST_TEST_BEHIND_PROXY";
    if let Ok(port) = std::env::var(CHILD) {
        let names = Names::of(&[("direct.test", &["127.0.0.1"])]);
        let egress = egress(&names, &[format!("direct.test:{port}")]);
        assert_eq!(line(&get(&egress, &format!("http://direct.test:{port}/"))), "200 direct\n");
        return;
    }
    let (direct, proxy) = (Server::says(ok("direct")), Server::says(ok("proxy")));
    let proxy_url = format!("http://{}", proxy.address);
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "egress::tests::places::proxy_environment_variables_are_ignored"]);
    for name in ["HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"] {
        child.env(name, &proxy_url);
    }
    let ended =
        child.env_remove("NO_PROXY").env_remove("no_proxy").env(CHILD, direct.port().to_string()).status();
    assert!(ended.unwrap().success());
    assert_eq!((direct.asked().len(), proxy.asked().len()), (1, 0));
}
