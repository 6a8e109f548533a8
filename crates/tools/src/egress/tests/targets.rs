//! Parses and checks URLs, without name resolution.
use super::super::{AddressScope, EgressRules, HostRule, Network};
use expect_test::{Expect, expect};

fn check(rules: &EgressRules, urls: &[&str], expected: &Expect) {
    let line = |url: &&str| match rules.check(url) {
        Ok(checked) => format!("{} → {checked}\n", url.escape_debug()),
        Err(error) => format!("{} → {error}\n", url.escape_debug()),
    };
    expected.assert_eq(&urls.iter().map(line).collect::<String>());
}

fn hosts(names: &[&str]) -> Vec<HostRule> {
    names.iter().map(|name| name.parse().unwrap()).collect()
}

/// The expected classes of addresses, with both ends of every network.
const ADDRESSES: &str = "\
0.0.0.0 is unspecified
0.0.0.1 is unspecified
0.255.255.255 is unspecified
1.1.1.1 is public
8.8.8.8 is public
9.255.255.255 is public
10.0.0.0 is in a private network
10.255.255.255 is in a private network
11.0.0.0 is public
100.63.255.255 is public
100.64.0.0 is in a carrier's shared network
100.100.100.200 is in a carrier's shared network
100.127.255.255 is in a carrier's shared network
100.128.0.0 is public
126.255.255.255 is public
127.0.0.1 is on this machine
127.255.255.255 is on this machine
128.0.0.0 is public
168.63.129.15 is public
168.63.129.16 is link-local
169.253.255.255 is public
169.254.0.0 is link-local
169.254.169.254 is link-local
169.254.255.255 is link-local
169.255.0.0 is public
172.15.255.255 is public
172.16.0.0 is in a private network
172.31.255.255 is in a private network
172.32.0.0 is public
191.255.255.255 is public
192.0.0.1 is reserved
192.0.1.0 is public
192.0.2.1 is reserved
192.0.3.0 is public
192.88.99.1 is behind a tunnel
192.167.255.255 is public
192.168.0.0 is in a private network
192.168.255.255 is in a private network
192.169.0.0 is public
198.17.255.255 is public
198.18.0.0 is reserved
198.19.255.255 is reserved
198.20.0.0 is public
198.51.100.1 is reserved
203.0.113.1 is reserved
223.255.255.255 is public
224.0.0.1 is a multicast address
239.255.255.255 is a multicast address
240.0.0.1 is reserved
255.255.255.254 is reserved
255.255.255.255 is a multicast address
:: is unspecified
::1 is on this machine
::2 is reserved
::7f00:1 is reserved
::ffff:127.0.0.1 is on this machine
::ffff:8.8.8.8 is public
::ffff:169.254.169.254 is link-local
::ffff:0:10.0.0.1 is in a private network
64:ff9b::7f00:1 is on this machine
64:ff9b::808:808 is public
64:ff9b:1::1 is reserved
100::1 is reserved
2000::1 is public
2001::1 is behind a tunnel
2001:0:4136:e378:: is behind a tunnel
2001:1ff::1 is reserved
2001:200::1 is public
2001:db8::1 is reserved
2001:4860:4860::8888 is public
2002:7f00:1:: is behind a tunnel
2002:808:808::1 is behind a tunnel
2606:4700::5efe:a00:1 is behind a tunnel
2a00:1450::200:5efe:808:808 is behind a tunnel
2606:4700:4700::1111 is public
3ffe::1 is public
3fff::1 is reserved
3fff:1000::1 is public
4000::1 is reserved
5f00::1 is reserved
fbff::1 is reserved
fc00::1 is in a private network of IPv6
fd00:ec2::254 is in a private network of IPv6
fe00::1 is reserved
fe80::1 is link-local
febf::1 is link-local
fec0::1 is link-local
ff02::1 is a multicast address
";

#[test]
fn only_public_addresses_are_reached() {
    for line in ADDRESSES.lines() {
        let (address, expected) = line.split_once(" is ").unwrap();
        let scope = AddressScope::of(address.parse().unwrap());
        assert_eq!(scope.name(), expected, "{address}");
        let host = if address.contains(':') { format!("[{address}]") } else { address.to_owned() };
        let reached = EgressRules::public().check(&format!("http://{host}/")).is_ok();
        assert_eq!(reached, scope == AddressScope::Public, "{address}");
    }
}

#[test]
fn address_checks_cover_every_spelling() {
    check(
        &EgressRules::public(),
        &[
            "http://127.0.0.1/",
            "http://0x7f.1/",
            "http://2130706433/",
            "http://0177.0.0.1/",
            "http://127.1/",
            "http://0x7f000001/",
            "http://017700000001/",
            "http://127.0.0.1./",
            "http://127.0.0.1../",
            "http://①②⑦.⓪.⓪.①/",
            "http://127。0。0。1/",
            "http://１２７.0.0.1/",
            "http://%31%32%37.0.0.1/",
            "http://[::ffff:7f00:1]/",
            "http://[::ffff:127.0.0.1]/",
            "http://[::]/",
            "http://[::1]/",
            "http://[0:0:0:0:0:0:0:1]/",
            "http://[::127.0.0.1]/",
            "http://[64:ff9b::7f00:1]/",
            "http://[2002:7f00:1::]/",
            "http://[2001:0:7f00:1::]/",
            "http://[fe80::1%25eth0]/",
            "http://[fe80::1%eth0]/",
            "http://0/",
            "http://0.0.0.0/",
            "http://1/",
            "http://4294967296/",
            "http://256.0.0.1/",
            "http://0x100.1/",
            "http:\\\\127.0.0.1\\",
            "http:/127.0.0.1/",
            "http:127.0.0.1/",
            "http://\t127.0.0.1/",
            "http://example.com@127.0.0.1/",
            "http://127.0.0.1:80@example.com/",
            "http://127.0.0.1#@example.com/",
            "http://127.0.0.1\\@example.com/",
            "http://3232235521/",
            "http://0xA9FEA9FE/",
        ],
        &expect![[r"
            http://127.0.0.1/ → egress.denied: `http://127.0.0.1/` is not reached: this address is on this machine
            http://0x7f.1/ → egress.denied: `http://127.0.0.1/` is not reached: this address is on this machine
            http://2130706433/ → egress.denied: `http://127.0.0.1/` is not reached: this address is on this machine
            http://0177.0.0.1/ → egress.denied: `http://127.0.0.1/` is not reached: this address is on this machine
            http://127.1/ → egress.denied: `http://127.0.0.1/` is not reached: this address is on this machine
            http://0x7f000001/ → egress.denied: `http://127.0.0.1/` is not reached: this address is on this machine
            http://017700000001/ → egress.denied: `http://127.0.0.1/` is not reached: this address is on this machine
            http://127.0.0.1./ → egress.denied: `http://127.0.0.1/` is not reached: this address is on this machine
            http://127.0.0.1../ → egress.denied: `http://127.0.0.1/` is not reached: this address is on this machine
            http://①②⑦.⓪.⓪.①/ → egress.denied: `http://127.0.0.1/` is not reached: this address is on this machine
            http://127。0。0。1/ → egress.denied: `http://127.0.0.1/` is not reached: this address is on this machine
            http://１２７.0.0.1/ → egress.denied: `http://127.0.0.1/` is not reached: this address is on this machine
            http://%31%32%37.0.0.1/ → egress.denied: `http://127.0.0.1/` is not reached: this address is on this machine
            http://[::ffff:7f00:1]/ → egress.denied: `http://[::ffff:7f00:1]/` is not reached: this address is on this machine
            http://[::ffff:127.0.0.1]/ → egress.denied: `http://[::ffff:7f00:1]/` is not reached: this address is on this machine
            http://[::]/ → egress.denied: `http://[::]/` is not reached: this address is unspecified
            http://[::1]/ → egress.denied: `http://[::1]/` is not reached: this address is on this machine
            http://[0:0:0:0:0:0:0:1]/ → egress.denied: `http://[::1]/` is not reached: this address is on this machine
            http://[::127.0.0.1]/ → egress.denied: `http://[::7f00:1]/` is not reached: this address is reserved
            http://[64:ff9b::7f00:1]/ → egress.denied: `http://[64:ff9b::7f00:1]/` is not reached: this address is on this machine
            http://[2002:7f00:1::]/ → egress.denied: `http://[2002:7f00:1::]/` is not reached: this address is behind a tunnel
            http://[2001:0:7f00:1::]/ → egress.denied: `http://[2001:0:7f00:1::]/` is not reached: this address is behind a tunnel
            http://[fe80::1%25eth0]/ → input.invalid: expected a URL like `https://example.com/page`, got `http://[fe80::1%25eth0]/`: invalid IPv6 address
            http://[fe80::1%eth0]/ → input.invalid: expected a URL like `https://example.com/page`, got `http://[fe80::1%eth0]/`: invalid IPv6 address
            http://0/ → egress.denied: `http://0.0.0.0/` is not reached: this address is unspecified
            http://0.0.0.0/ → egress.denied: `http://0.0.0.0/` is not reached: this address is unspecified
            http://1/ → egress.denied: `http://0.0.0.1/` is not reached: this address is unspecified
            http://4294967296/ → input.invalid: expected a URL like `https://example.com/page`, got `http://4294967296/`: invalid IPv4 address
            http://256.0.0.1/ → input.invalid: expected a URL like `https://example.com/page`, got `http://256.0.0.1/`: invalid IPv4 address
            http://0x100.1/ → input.invalid: expected a URL like `https://example.com/page`, got `http://0x100.1/`: invalid IPv4 address
            http:\\\\127.0.0.1\\ → egress.denied: `http://127.0.0.1/` is not reached: this address is on this machine
            http:/127.0.0.1/ → egress.denied: `http://127.0.0.1/` is not reached: this address is on this machine
            http:127.0.0.1/ → egress.denied: `http://127.0.0.1/` is not reached: this address is on this machine
            http://\t127.0.0.1/ → egress.denied: `http://127.0.0.1/` is not reached: this address is on this machine
            http://example.com@127.0.0.1/ → egress.denied: `http://127.0.0.1/` is not reached: a name or password in a URL is not sent; pass it in a header
            http://127.0.0.1:80@example.com/ → egress.denied: `http://example.com/` is not reached: a name or password in a URL is not sent; pass it in a header
            http://127.0.0.1#@example.com/ → egress.denied: `http://127.0.0.1/` is not reached: this address is on this machine
            http://127.0.0.1\\@example.com/ → egress.denied: `http://127.0.0.1/@example.com/` is not reached: this address is on this machine
            http://3232235521/ → egress.denied: `http://192.168.0.1/` is not reached: this address is in a private network
            http://0xA9FEA9FE/ → egress.denied: `http://169.254.169.254/` is not reached: this address is link-local
        "]],
    );
}

#[test]
fn only_http_urls_on_standard_ports_are_reached() {
    check(
        &EgressRules::public(),
        &[
            "https://example.com",
            "http://example.com:80/a?b#c",
            "https://EXAMPLE.com./",
            "https://bücher.example/",
            "https://example.com:443/",
            "http://example.com:443/",
            "https://example.com:8443/",
            "http://example.com:0/",
            "ftp://example.com/",
            "file:///etc/passwd",
            "unix:/var/run/docker.sock",
            "http+unix://%2Fvar%2Frun%2Fdocker.sock/",
            "gopher://example.com/",
            "data:text/plain,hi",
            "javascript:alert(1)",
            "ws://example.com/",
            "https://user:secret@example.com/",
            "https://user@example.com/",
            "https://a..b/",
            "https://",
            "https:///path",
            "example.com",
            "",
            "https://exa mple.com/",
            "http://xn--0.example/",
            "http://localhost/",
            "http://metadata.google.internal/",
        ],
        &expect![[r"
            https://example.com → https://example.com/
            http://example.com:80/a?b#c → http://example.com/a?b
            https://EXAMPLE.com./ → https://example.com/
            https://bücher.example/ → https://xn--bcher-kva.example/
            https://example.com:443/ → https://example.com/
            http://example.com:443/ → egress.denied: `http://example.com:443/` is not reached: port 443 is allowed only for hosts that are listed with it
            https://example.com:8443/ → egress.denied: `https://example.com:8443/` is not reached: port 8443 is allowed only for hosts that are listed with it
            http://example.com:0/ → egress.denied: `http://example.com:0/` is not reached: port 0 is allowed only for hosts that are listed with it
            ftp://example.com/ → egress.denied: `ftp://example.com/` is not reached: only `https:` and `http:` are supported
            file:///etc/passwd → egress.denied: `file:` is not reached: only `https:` and `http:` are supported
            unix:/var/run/docker.sock → egress.denied: `unix:` is not reached: only `https:` and `http:` are supported
            http+unix://%2Fvar%2Frun%2Fdocker.sock/ → egress.denied: `http+unix://%2Fvar%2Frun%2Fdocker.sock/` is not reached: only `https:` and `http:` are supported
            gopher://example.com/ → egress.denied: `gopher://example.com/` is not reached: only `https:` and `http:` are supported
            data:text/plain,hi → egress.denied: `data:` is not reached: only `https:` and `http:` are supported
            javascript:alert(1) → egress.denied: `javascript:` is not reached: only `https:` and `http:` are supported
            ws://example.com/ → egress.denied: `ws://example.com/` is not reached: only `https:` and `http:` are supported
            https://user:secret@example.com/ → egress.denied: `https://example.com/` is not reached: a name or password in a URL is not sent; pass it in a header
            https://user@example.com/ → egress.denied: `https://example.com/` is not reached: a name or password in a URL is not sent; pass it in a header
            https://a..b/ → egress.denied: `https://a..b/` is not reached: this is not a valid host name
            https:// → input.invalid: expected a URL like `https://example.com/page`, got `https://`: empty host
            https:///path → https://path/
            example.com → input.invalid: expected a URL like `https://example.com/page`, got `example.com`: relative URL without a base
             → input.invalid: expected a URL like `https://example.com/page`, got ``: relative URL without a base
            https://exa mple.com/ → input.invalid: expected a URL like `https://example.com/page`, got `https://exa mple.com/`: invalid international domain name
            http://xn--0.example/ → input.invalid: expected a URL like `https://example.com/page`, got `http://xn--0.example/`: invalid international domain name
            http://localhost/ → http://localhost/
            http://metadata.google.internal/ → http://metadata.google.internal/
        "]],
    );
    let long = format!("https://example.com/{}", "a".repeat(super::super::URL_BYTES));
    check(
        &EgressRules::public(),
        &[&format!("https://{}.com/", "a".repeat(64))],
        &expect![[r"
        https://aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa.com/ → egress.denied: `https://aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa.com/` is not reached: this is not a valid host name
    "]],
    );
    assert_eq!(
        EgressRules::public().check(&long).unwrap_err().to_string(),
        "limit.exceeded: url_bytes is limited to 8192, but this needs 8212"
    );
}

#[test]
fn allow_list_limits_reachable_hosts() {
    let rules = EgressRules::public().only(hosts(&[
        "example.com",
        "*.example.org",
        "api.example.net:8443",
        "1.1.1.1:*",
    ]));
    check(
        &rules,
        &[
            "https://example.com/",
            "https://EXAMPLE.com./",
            "https://www.example.com/",
            "https://example.com.evil.net/",
            "https://example.com:8443/",
            "https://a.example.org/",
            "https://a.b.example.org/",
            "https://example.org/",
            "https://evilexample.org/",
            "https://.example.org/",
            "https://api.example.net/",
            "https://api.example.net:8443/",
            "http://1.1.1.1:81/",
            "http://0x1010101:81/",
            "http://1.0.0.1/",
        ],
        &expect![[r"
            https://example.com/ → https://example.com/
            https://EXAMPLE.com./ → https://example.com/
            https://www.example.com/ → egress.denied: `https://www.example.com/` is not reached: only these hosts are allowed: example.com, *.example.org, api.example.net:8443, 1.1.1.1:*
            https://example.com.evil.net/ → egress.denied: `https://example.com.evil.net/` is not reached: only these hosts are allowed: example.com, *.example.org, api.example.net:8443, 1.1.1.1:*
            https://example.com:8443/ → egress.denied: `https://example.com:8443/` is not reached: only these hosts are allowed: example.com, *.example.org, api.example.net:8443, 1.1.1.1:*
            https://a.example.org/ → https://a.example.org/
            https://a.b.example.org/ → https://a.b.example.org/
            https://example.org/ → egress.denied: `https://example.org/` is not reached: only these hosts are allowed: example.com, *.example.org, api.example.net:8443, 1.1.1.1:*
            https://evilexample.org/ → egress.denied: `https://evilexample.org/` is not reached: only these hosts are allowed: example.com, *.example.org, api.example.net:8443, 1.1.1.1:*
            https://.example.org/ → egress.denied: `https://.example.org/` is not reached: this is not a valid host name
            https://api.example.net/ → egress.denied: `https://api.example.net/` is not reached: only these hosts are allowed: example.com, *.example.org, api.example.net:8443, 1.1.1.1:*
            https://api.example.net:8443/ → https://api.example.net:8443/
            http://1.1.1.1:81/ → http://1.1.1.1:81/
            http://0x1010101:81/ → http://1.1.1.1:81/
            http://1.0.0.1/ → egress.denied: `http://1.0.0.1/` is not reached: only these hosts are allowed: example.com, *.example.org, api.example.net:8443, 1.1.1.1:*
        "]],
    );
}

#[test]
fn private_host_is_reached_only_when_listed() {
    let rules = EgressRules::public()
        .and_private(hosts(&["intranet.example", "127.0.0.1:8080", "[::1]:*", "10.0.0.1"]))
        .unwrap();
    check(
        &rules,
        &[
            "https://intranet.example/",
            "https://intranet.example:22/",
            "http://127.0.0.1:8080/",
            "http://127.1:8080/",
            "http://127.0.0.1/",
            "http://127.0.0.1:6379/",
            "http://127.0.0.2:8080/",
            "http://[::1]:9/",
            "http://10.0.0.1/",
            "http://10.0.0.2/",
            "https://example.com/",
        ],
        &expect![[r"
            https://intranet.example/ → https://intranet.example/
            https://intranet.example:22/ → egress.denied: `https://intranet.example:22/` is not reached: this private host is not allowed on port 22
            http://127.0.0.1:8080/ → http://127.0.0.1:8080/
            http://127.1:8080/ → http://127.0.0.1:8080/
            http://127.0.0.1/ → egress.denied: `http://127.0.0.1/` is not reached: this private host is not allowed on port 80
            http://127.0.0.1:6379/ → egress.denied: `http://127.0.0.1:6379/` is not reached: this private host is not allowed on port 6379
            http://127.0.0.2:8080/ → egress.denied: `http://127.0.0.2:8080/` is not reached: this address is on this machine
            http://[::1]:9/ → http://[::1]:9/
            http://10.0.0.1/ → http://10.0.0.1/
            http://10.0.0.2/ → egress.denied: `http://10.0.0.2/` is not reached: this address is in a private network
            https://example.com/ → https://example.com/
        "]],
    );
}

#[test]
fn rules_for_a_url_allow_only_its_host() {
    let rules = EgressRules::for_url("https://example.com:8443/mcp", Network::Public).unwrap();
    assert!(rules.check("https://example.com:8443/other").is_ok());
    assert!(rules.check("https://example.com/mcp").is_err());
    assert!(rules.check("https://example.org:8443/mcp").is_err());
    let refused = EgressRules::for_url("http://127.0.0.1:3001/mcp", Network::Public).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "egress.denied: `http://127.0.0.1:3001/mcp` is not reached: this address is on this machine"
    );
    let rules = EgressRules::for_url("http://127.0.0.1:3001/mcp", Network::Any).unwrap();
    assert!(rules.check("http://127.0.0.1:3001/").is_ok());
    assert!(rules.check("http://127.0.0.1:3002/").is_err());
    assert!(rules.check("https://example.com/").is_err());
}

#[test]
fn private_host_rule_rejects_wildcards() {
    let error = EgressRules::public().and_private(hosts(&["intranet.example", "*.example"])).unwrap_err();
    assert_eq!(
        error.to_string(),
        "config.invalid: expected the exact name of a private host, got `*.example`"
    );
}

#[test]
fn host_rule_round_trips_or_is_refused() {
    let rules = [
        "example.com",
        "EXAMPLE.com.",
        "*.example.com",
        "*",
        "*:*",
        "*.example.com:8080",
        "127.1:80",
        "[::1]",
        "[::1]:8080",
        "bücher.example",
        "exa*mple.com",
        "*.*.com",
        "*.127.0.0.1",
        "",
        ":80",
        "example.com:http",
        "example.com:99999",
        "https://example.com",
        "a/b",
        "*.",
        "example..",
    ];
    let read = rules.map(|rule| match rule.parse::<HostRule>() {
        Ok(read) => format!("{rule} → {read}\n"),
        Err(error) => format!("{rule} → {error}\n"),
    });
    expect![[r"
        example.com → example.com
        EXAMPLE.com. → example.com
        *.example.com → *.example.com
        * → *
        *:* → *:*
        *.example.com:8080 → *.example.com:8080
        127.1:80 → 127.0.0.1:80
        [::1] → [::1]
        [::1]:8080 → [::1]:8080
        bücher.example → xn--bcher-kva.example
        exa*mple.com → config.invalid: expected a host like `example.com`, `*.example.com` or `example.com:8080`, got `exa*mple.com`
        *.*.com → config.invalid: expected a host like `example.com`, `*.example.com` or `example.com:8080`, got `*.*.com`
        *.127.0.0.1 → config.invalid: expected a host like `example.com`, `*.example.com` or `example.com:8080`, got `*.127.0.0.1`
         → config.invalid: expected a host like `example.com`, `*.example.com` or `example.com:8080`, got ``
        :80 → config.invalid: expected a host like `example.com`, `*.example.com` or `example.com:8080`, got `:80`
        example.com:http → config.invalid: expected a host like `example.com`, `*.example.com` or `example.com:8080`, got `example.com:http`
        example.com:99999 → config.invalid: expected a host like `example.com`, `*.example.com` or `example.com:8080`, got `example.com:99999`
        https://example.com → config.invalid: expected a host like `example.com`, `*.example.com` or `example.com:8080`, got `https://example.com`
        a/b → config.invalid: expected a host like `example.com`, `*.example.com` or `example.com:8080`, got `a/b`
        *. → config.invalid: expected a host like `example.com`, `*.example.com` or `example.com:8080`, got `*.`
        example.. → config.invalid: expected a host like `example.com`, `*.example.com` or `example.com:8080`, got `example..`
    "]].assert_eq(&read.concat());
}
