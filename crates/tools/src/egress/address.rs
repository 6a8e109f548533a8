//! Classifies IP addresses by the part of the network they belong to.
//!
//! An address that embeds another one (IPv4 in IPv6, NAT64) is classified by the embedded one. Tunnels with an unknown
//! other end (6to4, Teredo, ISATAP) are not public. Unassigned addresses are reserved, not public.
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A part of the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressScope {
    /// Publicly reachable.
    Public,
    /// This machine.
    Loopback,
    /// A private network: `10/8`, `172.16/12`, `192.168/16`.
    Private,
    /// Carrier-grade NAT: `100.64/10`.
    Shared,
    /// A private IPv6 network: `fc00::/7`.
    UniqueLocal,
    /// The local link. Cloud metadata services, which serve the machine's secrets, are here.
    LinkLocal,
    /// Not an address of a host: `0/8` and `::`.
    Unspecified,
    /// Multicast or broadcast.
    Multicast,
    /// A tunnel with an unknown other end.
    Tunnel,
    /// For documentation, tests or protocols, or unassigned.
    Reserved,
}

impl AddressScope {
    /// Classifies an address.
    pub fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(address) => of_v4(address),
            IpAddr::V6(address) => of_v6(address),
        }
    }

    /// Returns the name for error messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Public => "public",
            Self::Loopback => "on this machine",
            Self::Private => "in a private network",
            Self::Shared => "in a carrier's shared network",
            Self::UniqueLocal => "in a private network of IPv6",
            Self::LinkLocal => "link-local",
            Self::Unspecified => "unspecified",
            Self::Multicast => "a multicast address",
            Self::Tunnel => "behind a tunnel",
            Self::Reserved => "reserved",
        }
    }

    /// Returns whether a host that is listed as private may have such an address. The remaining parts belong to no one.
    pub(super) const fn can_be_private_host(self) -> bool {
        matches!(self, Self::Public | Self::Loopback | Self::Private | Self::Shared | Self::UniqueLocal)
    }
}

fn of_v4(address: Ipv4Addr) -> AddressScope {
    match address.octets() {
        [0, ..] => AddressScope::Unspecified,
        [10, ..] | [172, 16..=31, ..] | [192, 168, ..] => AddressScope::Private,
        [100, 64..=127, ..] => AddressScope::Shared,
        [127, ..] => AddressScope::Loopback,
        // The second is the metadata service of one cloud provider (Azure).
        [169, 254, ..] | [168, 63, 129, 16] => AddressScope::LinkLocal,
        [192, 88, 99, _] => AddressScope::Tunnel,
        [224..=239, ..] | [255, 255, 255, 255] => AddressScope::Multicast,
        [192, 0, 0 | 2, _] | [198, 18 | 19, ..] | [198, 51, 100, _] | [203, 0, 113, _] | [240..=255, ..] => {
            AddressScope::Reserved
        }
        _ => AddressScope::Public,
    }
}

fn of_v6(address: Ipv6Addr) -> AddressScope {
    match address.segments() {
        [0, 0, 0, 0, 0, 0, 0, 0] => AddressScope::Unspecified,
        [0, 0, 0, 0, 0, 0, 0, 1] => AddressScope::Loopback,
        // Mapped, translated and NAT64: connections go to the embedded address.
        [0, 0, 0, 0, 0, 0xffff, high, low]
        | [0, 0, 0, 0, 0xffff, 0, high, low]
        | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => of_v4(v4(high, low)),
        [0xfc00..=0xfdff, ..] => AddressScope::UniqueLocal,
        // Site-local is deprecated but still routed in places.
        [0xfe80..=0xfeff, ..] => AddressScope::LinkLocal,
        [0xff00..=0xffff, ..] => AddressScope::Multicast,
        [0x2002, ..] | [0x2001, 0, ..] | [_, _, _, _, 0 | 0x200, 0x5efe, _, _] => AddressScope::Tunnel,
        [0x2001, 0..=0x1ff | 0xdb8, ..] | [0x3fff, 0..=0xfff, ..] => AddressScope::Reserved,
        [0x2000..=0x3fff, ..] => AddressScope::Public,
        _ => AddressScope::Reserved,
    }
}

fn v4(high: u16, low: u16) -> Ipv4Addr {
    let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
    Ipv4Addr::new(a, b, c, d)
}
