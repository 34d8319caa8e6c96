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
#[derive(Clone, Default)]
pub(crate) struct AddressTable {
    /// IPv4 addresses, and what IPv6 maps to them.
    ipv4: Table<u32>,
    ipv6: Table<u128>,
    mac: Table<u64>,
}

impl AddressTable {
    pub(crate) fn insert_ip(&mut self, address: IpAddr, host: u32) {
        match address.to_canonical() {
            IpAddr::V4(v4) => self.ipv4.insert(v4.into(), host),
            IpAddr::V6(v6) => self.ipv6.insert(v6.into(), host),
        }
    }

    pub(crate) fn insert_mac(&mut self, mac: [u8; 6], host: u32) {
        self.mac.insert(mac_key(mac), host);
    }

    /// The host a frame is for: by IP destination, else by MAC destination.
    pub(crate) fn destination(&self, headers: &Headers) -> u32 {
        let by_ip = match headers.ip.map(|ip| ip.dst.to_canonical()) {
            Some(IpAddr::V4(v4)) => self.host_of_ipv4(v4.into()),
            Some(IpAddr::V6(v6)) => self.ipv6.get(v6.into()),
            None => HOST_UNKNOWN,
        };
        if by_ip != HOST_UNKNOWN {
            by_ip
        } else {
            self.mac.get(mac_key(headers.dst_mac))
        }
    }

    /// The host that owns an IPv4 address.
    #[inline]
    pub(crate) fn host_of_ipv4(&self, address: u32) -> u32 {
        self.ipv4.get(address)
    }
}

/// What a table finds a host by.
trait Key: Copy + Eq + Default {
    fn hash(self) -> u64;
}

impl Key for u32 {
    #[inline]
    fn hash(self) -> u64 {
        // Fibonacci hashing: neighbours spread over the table, and one multiplication does it.
        u64::from(self).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32
    }
}

impl Key for u64 {
    fn hash(self) -> u64 {
        mix(0, self)
    }
}

impl Key for u128 {
    fn hash(self) -> u64 {
        mix(mix(0, (self >> 64) as u64), self as u64)
    }
}

#[derive(Clone)]
struct Table<K> {
    slots: Vec<(K, u32)>,
    count: usize,
}

impl<K: Key> Default for Table<K> {
    fn default() -> Table<K> {
        Table { slots: vec![(K::default(), SLOT_EMPTY); 64], count: 0 }
    }
}

impl<K: Key> Table<K> {
    fn insert(&mut self, key: K, host: u32) {
        if (self.count + 1) * 2 > self.slots.len() {
            let doubled = vec![(K::default(), SLOT_EMPTY); self.slots.len() * 2];
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

    #[inline]
    fn get(&self, key: K) -> u32 {
        self.slots[self.find(key)].1
    }

    /// The slot that holds the key, or the empty one where it would go. At least half of the slots are empty.
    #[inline]
    fn find(&self, key: K) -> usize {
        let mask = self.slots.len() - 1;
        let mut slot = key.hash() as usize & mask;
        while self.slots[slot].1 != SLOT_EMPTY && self.slots[slot].0 != key {
            slot = (slot + 1) & mask;
        }
        slot
    }
}

fn mac_key(mac: [u8; 6]) -> u64 {
    mac.iter().fold(0, |word, byte| word << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::IpHeaders;

    /// Where a frame with these destinations goes.
    fn find(table: &AddressTable, dst: IpAddr, dst_mac: [u8; 6]) -> u32 {
        let ip = IpHeaders { offset_bytes: 14, src: dst, dst, protocol: 17, dscp: 0, ecn: 0, src_port: 0, dst_port: 0 };
        table.destination(&Headers { dst_mac, src_mac: [0; 6], ip: Some(ip) })
    }

    #[test]
    fn every_inserted_address_is_found_and_others_are_not() {
        let mut table = AddressTable::default();
        for host in 0..2000u32 {
            table.insert_ip(IpAddr::from((0x0a00_0000 + host).to_be_bytes()), host);
            let [a, b, c, d] = host.to_be_bytes();
            table.insert_mac([2, 0, a, b, c, d], host + 5000);
        }
        let mac = |host: u32| {
            let [a, b, c, d] = host.to_be_bytes();
            [2, 0, a, b, c, d]
        };
        for host in 0..2000u32 {
            assert_eq!(find(&table, IpAddr::from((0x0a00_0000 + host).to_be_bytes()), mac(host)), host);
            assert_eq!(find(&table, "10.1.0.0".parse().unwrap(), mac(host)), host + 5000);
        }
        assert_eq!(find(&table, "10.1.0.0".parse().unwrap(), mac(2000)), HOST_UNKNOWN);
    }

    #[test]
    fn later_insertion_replaces_the_owner() {
        let mut table = AddressTable::default();
        let address: IpAddr = "fd00::1".parse().unwrap();
        table.insert_ip(address, 1);
        table.insert_ip(address, 2);
        assert_eq!(find(&table, address, [0; 6]), 2);
    }

    #[test]
    fn an_ipv4_address_is_the_same_written_as_ipv6() {
        let mut table = AddressTable::default();
        table.insert_ip("::ffff:10.0.0.1".parse().unwrap(), 4);
        assert_eq!(find(&table, "10.0.0.1".parse().unwrap(), [0; 6]), 4);
        assert_eq!(find(&table, "::ffff:10.0.0.1".parse().unwrap(), [0; 6]), 4);
        assert_eq!(table.host_of_ipv4(0x0a00_0001), 4);
    }
}
