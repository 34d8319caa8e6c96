//! The table from IP and MAC addresses to hosts, looked up once per frame.
//!
//! Open addressing with a fixed hash: the lookup stands in the inner loop, and nothing ever iterates over it, so its
//! order cannot reach a result.

use std::net::IpAddr;

use crate::flow::{mix, Headers};

/// Marks a frame whose destination no host owns.
pub(crate) const HOST_UNKNOWN: u32 = u32::MAX;

const SLOT_EMPTY: u32 = u32::MAX;

/// Address to host index.
#[derive(Clone)]
pub(crate) struct AddressTable {
    slots: Vec<(u128, u32)>,
    count: usize,
}

impl AddressTable {
    pub(crate) fn new() -> AddressTable {
        AddressTable { slots: vec![(0, SLOT_EMPTY); 64], count: 0 }
    }

    pub(crate) fn insert_ip(&mut self, address: IpAddr, host: u32) {
        self.insert(ip_key(address), host);
    }

    pub(crate) fn insert_mac(&mut self, mac: [u8; 6], host: u32) {
        self.insert(mac_key(mac), host);
    }

    /// The host a frame is for: by IP destination, else by MAC destination.
    pub(crate) fn destination(&self, headers: &Headers) -> u32 {
        let by_ip = headers.ip.map_or(HOST_UNKNOWN, |ip| self.get(ip_key(ip.dst)));
        if by_ip != HOST_UNKNOWN {
            by_ip
        } else {
            self.get(mac_key(headers.dst_mac))
        }
    }

    fn insert(&mut self, key: u128, host: u32) {
        if (self.count + 1) * 2 > self.slots.len() {
            let doubled = vec![(0, SLOT_EMPTY); self.slots.len() * 2];
            let old = std::mem::replace(&mut self.slots, doubled);
            self.count = 0;
            for (key, host) in old.into_iter().filter(|slot| slot.1 != SLOT_EMPTY) {
                self.insert(key, host);
            }
        }
        let slot = self.find(key);
        if self.slots[slot].1 == SLOT_EMPTY {
            self.count += 1;
        }
        self.slots[slot] = (key, host);
    }

    fn get(&self, key: u128) -> u32 {
        self.slots[self.find(key)].1
    }

    /// The slot that holds the key, or the empty one where it would go. At least half of the slots are empty.
    fn find(&self, key: u128) -> usize {
        let mask = self.slots.len() - 1;
        let mut slot = mix(mix(0, (key >> 64) as u64), key as u64) as usize & mask;
        while self.slots[slot].1 != SLOT_EMPTY && self.slots[slot].0 != key {
            slot = (slot + 1) & mask;
        }
        slot
    }
}

/// IPv4 addresses stand where IPv6 has its IPv4-mapped ones.
fn ip_key(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => u128::from(v4.to_ipv6_mapped()),
        IpAddr::V6(v6) => u128::from(v6),
    }
}

/// MAC addresses stand in 0:0:1::/48, in a block reserved by the IETF, where no host address is.
fn mac_key(mac: [u8; 6]) -> u128 {
    1 << 80 | mac.iter().fold(0u128, |word, byte| word << 8 | *byte as u128)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_inserted_address_is_found_and_others_are_not() {
        let mut table = AddressTable::new();
        for host in 0..2000u32 {
            table.insert_ip(IpAddr::from((0x0a00_0000 + host).to_be_bytes()), host);
            let [a, b, c, d] = host.to_be_bytes();
            table.insert_mac([2, 0, a, b, c, d], host + 5000);
        }
        for host in 0..2000u32 {
            assert_eq!(table.get(ip_key(IpAddr::from((0x0a00_0000 + host).to_be_bytes()))), host);
            let [a, b, c, d] = host.to_be_bytes();
            assert_eq!(table.get(mac_key([2, 0, a, b, c, d])), host + 5000);
        }
        assert_eq!(table.get(ip_key("10.1.0.0".parse().unwrap())), HOST_UNKNOWN);
    }

    #[test]
    fn later_insertion_replaces_the_owner() {
        let mut table = AddressTable::new();
        let address: IpAddr = "fd00::1".parse().unwrap();
        table.insert_ip(address, 1);
        table.insert_ip(address, 2);
        assert_eq!(table.get(ip_key(address)), 2);
    }
}
