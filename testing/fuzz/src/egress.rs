//! URLs as a model might write them, compared with a slow reference implementation of public addresses.
use outlast_tools::egress::{AddressScope, EgressRules, HostRule};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Every network that is not public, in the notation of the registries. The order does not matter.
const NOT_PUBLIC: &[(&str, u32)] = &[
    ("0.0.0.0", 8),
    ("10.0.0.0", 8),
    ("100.64.0.0", 10),
    ("127.0.0.0", 8),
    ("168.63.129.16", 32),
    ("169.254.0.0", 16),
    ("172.16.0.0", 12),
    ("192.0.0.0", 24),
    ("192.0.2.0", 24),
    ("192.88.99.0", 24),
    ("192.168.0.0", 16),
    ("198.18.0.0", 15),
    ("198.51.100.0", 24),
    ("203.0.113.0", 24),
    ("224.0.0.0", 3),
    ("2001::", 23),
    ("2001:db8::", 32),
    ("2002::", 16),
    ("3fff::", 20),
];

/// IPv6 prefixes whose last 32 bits are the IPv4 address that is reached.
const IPV4_EMBEDDING_PREFIXES: &[&str] = &["::ffff:0:0", "::ffff:0:0:0", "64:ff9b::"];

/// Reads any bytes as addresses, and as a URL or a rule if they are text.
pub(crate) fn url_policy(data: &[u8]) {
    if let Some(first) = data.first_chunk::<4>() {
        check_scope(IpAddr::V4(Ipv4Addr::from(*first)));
    }
    if let Some(first) = data.first_chunk::<16>() {
        check_scope(IpAddr::V6(Ipv6Addr::from(*first)));
    }
    let Ok(text) = str::from_utf8(data) else { return };
    if let Ok(rule) = text.parse::<HostRule>() {
        assert_eq!(rule.to_string().parse::<HostRule>().ok(), Some(rule), "of `{text}`");
    }
    let Ok(url) = EgressRules::public().check(text) else { return };
    assert_eq!(EgressRules::public().check(url.as_str()).ok().as_ref(), Some(&url), "of `{text}`");
    assert!(matches!(url.scheme(), "http" | "https"), "`{text}` is {url}");
    assert_eq!((url.username(), url.password(), url.fragment(), url.port()), ("", None, None, None));
    let host = url.host_str().expect("a URL that may be asked for has a host");
    if let Ok(address) = host.trim_matches(['[', ']']).parse::<IpAddr>() {
        assert!(is_public(address), "`{text}` leads to {address}");
    } else {
        // Anything that a resolver could take for an address was already parsed as one.
        let last = host.rsplit('.').next().unwrap_or_default();
        assert!(!last.is_empty() && !last.bytes().all(|byte| byte.is_ascii_digit()), "`{text}` is {host}");
        assert!(host.bytes().all(|byte| byte.is_ascii_graphic() && !byte.is_ascii_uppercase()), "{host}");
    }
}

fn check_scope(address: IpAddr) {
    assert_eq!(AddressScope::of(address) == AddressScope::Public, is_public(address), "{address}");
}

fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(_) => !is_listed(address),
        IpAddr::V6(v6) => {
            let bits = v6.to_bits();
            let carried = IPV4_EMBEDDING_PREFIXES
                .iter()
                .map(|carrier| carrier.parse::<Ipv6Addr>().expect("it is an address").to_bits());
            if carried.into_iter().any(|carrier| carrier >> 32 == bits >> 32) {
                let inside = u32::try_from(bits & u128::from(u32::MAX)).expect("32 bits are left");
                return is_public(IpAddr::V4(Ipv4Addr::from_bits(inside)));
            }
            let is_global = bits >> 125 == 1;
            let is_isatap = matches!((bits >> 32) & u128::from(u32::MAX), 0x5efe | 0x0200_5efe);
            is_global && !is_isatap && !is_listed(address)
        }
    }
}

fn is_listed(address: IpAddr) -> bool {
    NOT_PUBLIC.iter().any(|(network, bits)| match (address, network.parse().expect("it is an address")) {
        (IpAddr::V4(address), IpAddr::V4(network)) => {
            (address.to_bits() ^ network.to_bits()).checked_shr(32 - bits).unwrap_or(0) == 0
        }
        (IpAddr::V6(address), IpAddr::V6(network)) => {
            (address.to_bits() ^ network.to_bits()) >> (128 - bits) == 0
        }
        _ => false,
    })
}
