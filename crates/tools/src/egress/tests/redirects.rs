//! Each redirect is checked like a new URL.
use super::super::EgressRules;
use super::stage::{Names, Server, egress, get, get_with, line, moved, ok};
use expect_test::expect;
use reqwest::header::{ACCEPT, AUTHORIZATION, COOKIE, HeaderMap, HeaderValue};
use std::io::Write;
use url::Url;

#[test]
fn redirect_to_private_address_is_denied() {
    let inside = Server::says(ok("secret"));
    let places = [
        "http://10.0.0.1/".to_owned(),
        format!("http://127.0.0.1:{}/", inside.port()),
        format!("//127.1:{}/", inside.port()),
        format!("http:\\\\127.0.0.1:{}\\", inside.port()),
        format!("\\\\127.0.0.1:{}\\", inside.port()),
        "http://inside.test/".to_owned(),
        "http://[::1]/".to_owned(),
        "file:///etc/passwd".to_owned(),
        "gopher://127.0.0.1/".to_owned(),
        "http://user:secret@example.com/".to_owned(),
        "http://[".to_owned(),
    ];
    let log: String = places
        .iter()
        .map(|place| {
            let outside = Server::says(moved(place));
            let names = Names::of(&[("outside.test", &["127.0.0.1"]), ("inside.test", &["10.0.0.1"])]);
            let egress = egress(&names, &[format!("outside.test:{}", outside.port())]);
            let got = line(&get(&egress, &format!("http://outside.test:{}/", outside.port())));
            got.replace(&inside.port().to_string(), "PORT").replace(&outside.port().to_string(), "PORT")
        })
        .collect();
    expect![[r"
        egress.denied: `http://10.0.0.1/` is not reached: this address is in a private network
        egress.denied: `http://127.0.0.1:PORT/` is not reached: this address is on this machine
        egress.denied: `http://127.0.0.1:PORT/` is not reached: this address is on this machine
        egress.denied: `http://127.0.0.1:PORT/` is not reached: this address is on this machine
        egress.denied: `http://127.0.0.1:PORT/` is not reached: this address is on this machine
        egress.denied: `inside.test` resolves to an address that is in a private network
        egress.denied: `http://[::1]/` is not reached: this address is on this machine
        egress.denied: `file:` is not reached: only `https:` and `http:` are supported
        egress.denied: `gopher://127.0.0.1/` is not reached: only `https:` and `http:` are supported
        egress.denied: `http://example.com/` is not reached: a name or password in a URL is not sent; pass it in a header
        tool.failed: `http://outside.test:PORT/` redirects to an invalid URL
    "]].assert_eq(&log);
    assert_eq!(inside.asked(), [""; 0]);
}

#[test]
fn redirect_from_https_to_http_is_denied() {
    let from = Url::parse("https://example.com/a/b").unwrap();
    let places =
        ["http://example.com/", "https://example.org/x", "/c", "c", "?d", "//example.net", "http:/e"];
    let log = places.map(|place| match EgressRules::public().redirect(&from, place.as_bytes()) {
        Ok(url) => format!("{place} → {url}\n"),
        Err(error) => format!("{place} → {error}\n"),
    });
    expect![[r"
        http://example.com/ → egress.denied: `http://example.com/` is not reached: a redirect from an encrypted connection leads to an unencrypted one
        https://example.org/x → https://example.org/x
        /c → https://example.com/c
        c → https://example.com/a/c
        ?d → https://example.com/a/b?d
        //example.net → https://example.net/
        http:/e → egress.denied: `http://e/` is not reached: a redirect from an encrypted connection leads to an unencrypted one
    "]].assert_eq(&log.concat());
}

#[test]
fn more_than_five_redirects_are_not_followed() {
    let server = Server::start(|request, stream| {
        let number: u32 = request[5..].split(' ').next().unwrap().parse().unwrap();
        let answer = if number == 0 { ok("there") } else { moved(&format!("/{}", number - 1)) };
        drop(stream.write_all(&answer));
    });
    let names = Names::of(&[("hops.test", &["127.0.0.1"])]);
    let egress = egress(&names, &[format!("hops.test:{}", server.port())]);
    let log =
        [5, 6, 100].map(|hops| line(&get(&egress, &format!("http://hops.test:{}/{hops}", server.port()))));
    expect![[r"
        200 there
        limit.exceeded: redirects is limited to 5, but this needs 6
        limit.exceeded: redirects is limited to 5, but this needs 6
    "]]
    .assert_eq(&log.concat());
}

#[test]
fn redirects_do_not_forward_credentials_to_other_hosts() {
    let second = Server::says(ok("end"));
    let to_second = moved(&format!("http://second.test:{}/", second.port()));
    let first = Server::start(move |request, stream| {
        let answer = if request.starts_with("GET /start") { moved("/inside") } else { to_second.clone() };
        drop(stream.write_all(&answer));
    });
    let names = Names::of(&[("first.test", &["127.0.0.1"]), ("second.test", &["127.0.0.1"])]);
    let egress =
        egress(&names, &[format!("first.test:{}", first.port()), format!("second.test:{}", second.port())]);
    let mut headers = HeaderMap::new();
    headers.insert(AUTHORIZATION, HeaderValue::from_static("Bearer key"));
    headers.insert(COOKIE, HeaderValue::from_static("id=1"));
    headers.insert(ACCEPT, HeaderValue::from_static("text/plain"));
    let got = get_with(&egress, &format!("http://first.test:{}/start", first.port()), headers);
    assert_eq!(line(&got), "200 end\n");
    let sent = |request: &String| {
        ["authorization: Bearer key", "cookie: id=1", "accept: text/plain", "referer"]
            .map(|header| request.contains(&format!("\r\n{header}")))
    };
    let at_first: Vec<_> = first.asked().iter().map(sent).collect();
    let at_second: Vec<_> = second.asked().iter().map(sent).collect();
    assert_eq!(at_first, [[true, true, true, false]; 2]);
    assert_eq!(at_second, [[false, false, true, false]]);
}
