//! What two hosts tell each other, outside the card, before their queue pairs can talk.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use nic_spec::consts::{PMTU_LOG2_MAX, PMTU_LOG2_MIN};
use nic_spec::desc::ConnRow;
use nic_spec::num::{Epoch, Msn, Plane, Psn, Qpn, Rsn};

use crate::address::MacAddr;
use crate::error::{Error, Result};

/// Version of [`ConnInfo`].
pub const CONN_INFO_VERSION: u32 = 1;

/// Most paths of a connection: what its context row can hold.
pub const CONN_PATHS_MAX: u64 = match ConnRow::LAYOUT.field("path_count").value_max() {
    Some(count) => count,
    None => panic!("the count is a number"),
};

/// One side of a connection. Written as JSON by `to_string`, read by `parse`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnInfo {
    /// [`CONN_INFO_VERSION`].
    pub version: u32,
    /// Connection id that packets to this side carry.
    pub qpn: u32,
    /// MAC address of its port.
    pub mac: MacAddr,
    /// IP address of its port.
    pub ip: IpAddr,
    /// UDP port it receives on.
    pub udp_dport: u16,
    /// Logarithm of the largest payload of a packet.
    pub pmtu_log2: u8,
    /// Partition key.
    pub pkey: u16,
    /// Stream of all messages.
    pub stream_id: u16,
    /// First MSEQ, both ways.
    pub init_msn: u32,
    /// First RSN, both ways.
    pub init_rsn: u32,
    /// The paths it sends on.
    pub paths: Vec<PathInfo>,
}

/// A path as its sender has set it up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathInfo {
    /// UDP source port of its packets.
    pub sport: u16,
    /// Plane they leave by.
    pub plane: u8,
    /// Epoch of the path's aim.
    pub epoch: u8,
    /// PSEQ of the first packet.
    pub init_pseq: u32,
}

/// What two sides agree on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Agreement {
    pub(crate) pmtu_log2: u8,
    pub(crate) path_count: u32,
}

impl ConnInfo {
    /// Checks what a peer sent against this side. PMTU and path count are the smaller of both; the rest must be equal.
    pub(crate) fn agree(&self, remote: &Self) -> Result<Agreement> {
        remote.check()?;
        let same = |what, local: &dyn ToString, remote: &dyn ToString| {
            let (local, remote) = (local.to_string(), remote.to_string());
            if local == remote {
                Ok(())
            } else {
                Err(Error::Mismatch { what, local, remote })
            }
        };
        let ip_version = |ip: IpAddr| if ip.is_ipv6() { 6 } else { 4 };
        same("the version of connection data", &self.version, &remote.version)?;
        same("the IP version", &ip_version(self.ip), &ip_version(remote.ip))?;
        same("the UDP destination port", &self.udp_dport, &remote.udp_dport)?;
        same("the partition key", &self.pkey, &remote.pkey)?;
        same("the stream", &self.stream_id, &remote.stream_id)?;
        same("the first MSEQ", &self.init_msn, &remote.init_msn)?;
        same("the first RSN", &self.init_rsn, &remote.init_rsn)?;
        Ok(Agreement {
            pmtu_log2: self.pmtu_log2.min(remote.pmtu_log2),
            path_count: self.paths.len().min(remote.paths.len()) as u32,
        })
    }

    /// Checks that every number fits where it has to go.
    pub(crate) fn check(&self) -> Result<()> {
        let fits = |what, value: u32, bits: u32| {
            if value >> bits == 0 {
                Ok(())
            } else {
                Err(Error::Config { what, value: value.into(), reason: "the field on the wire is narrower" })
            }
        };
        fits("connection id", self.qpn, Qpn::BITS)?;
        fits("first MSEQ", self.init_msn, Msn::BITS)?;
        fits("first RSN", self.init_rsn, Rsn::BITS)?;
        for path in &self.paths {
            fits("plane of a path", path.plane.into(), Plane::BITS)?;
            fits("epoch of a path", path.epoch.into(), Epoch::BITS)?;
            fits("first PSEQ of a path", path.init_pseq, Psn::BITS)?;
        }
        let paths = self.paths.len() as u64;
        if paths == 0 || paths > CONN_PATHS_MAX {
            let reason = "a connection has at least one path, and not more than its context row can count";
            return Err(Error::Config { what: "path count", value: paths, reason });
        }
        if !(PMTU_LOG2_MIN..=PMTU_LOG2_MAX).contains(&self.pmtu_log2) {
            let reason = "the PMTU is 2^10 to 2^13 bytes";
            return Err(Error::Config { what: "PMTU logarithm", value: self.pmtu_log2.into(), reason });
        }
        if self.mac.is_multicast() {
            let reason = "a port has no group address";
            return Err(Error::Config { what: "MAC address", value: self.mac.to_u64(), reason });
        }
        Ok(())
    }
}

impl fmt::Display for ConnInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&serde_json::to_string(self).map_err(|_| fmt::Error)?)
    }
}

impl FromStr for ConnInfo {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        serde_json::from_str(text).map_err(|source| Error::ConnInfo { source })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Change = fn(&mut ConnInfo);

    fn info() -> ConnInfo {
        let path = PathInfo { sport: 0xc001, plane: 1, epoch: 2, init_pseq: 0xff_fffe };
        ConnInfo {
            version: CONN_INFO_VERSION,
            qpn: 0x11,
            mac: MacAddr([2, 0, 0, 0, 0, 1]),
            ip: "10.0.0.1".parse().unwrap(),
            udp_dport: 4791,
            pmtu_log2: 12,
            pkey: 0xffff,
            stream_id: 1,
            init_msn: 0,
            init_rsn: 0,
            paths: vec![path; 4],
        }
    }

    #[test]
    fn connection_data_survive_the_way_as_text() {
        let text = info().to_string();
        assert!(text.contains("\"mac\":\"02:00:00:00:00:01\""), "{text}");
        assert_eq!(text.parse::<ConnInfo>().unwrap(), info());
        let err = "{\"version\":1}".parse::<ConnInfo>().unwrap_err();
        assert_eq!(err.to_string(), "cannot read the peer's connection data");
    }

    #[test]
    fn pmtu_and_path_count_become_the_smaller_of_both_sides() {
        let mut remote = info();
        remote.pmtu_log2 = 10;
        remote.paths.truncate(3);
        let expected = Agreement { pmtu_log2: 10, path_count: 3 };
        assert_eq!([info().agree(&remote).unwrap(), remote.agree(&info()).unwrap()], [expected; 2]);
    }

    #[test]
    fn settings_that_must_be_equal_are_named_when_they_are_not() {
        let cases: [(&str, Change); 7] = [
            ("the version of connection data is 1 here and 2", |c| c.version = 2),
            ("the IP version is 4 here and 6", |c| c.ip = "fe80::1".parse().unwrap()),
            ("the UDP destination port is 4791 here and 4792", |c| c.udp_dport = 4792),
            ("the partition key is 65535 here and 1", |c| c.pkey = 1),
            ("the stream is 1 here and 2", |c| c.stream_id = 2),
            ("the first MSEQ is 0 here and 9", |c| c.init_msn = 9),
            ("the first RSN is 0 here and 9", |c| c.init_rsn = 9),
        ];
        for (text, change) in cases {
            let mut remote = info();
            change(&mut remote);
            let err = info().agree(&remote).unwrap_err();
            assert_eq!(err.to_string(), format!("cannot connect: {text} at the peer (configure both alike)"));
        }
    }

    #[test]
    fn numbers_of_a_peer_that_fit_nowhere_are_refused() {
        let cases: [(&str, Change); 9] = [
            ("connection id", |c| c.qpn = 1 << 24),
            ("first MSEQ", |c| c.init_msn = 1 << 24),
            ("first RSN", |c| c.init_rsn = u32::MAX),
            ("plane of a path", |c| c.paths[3].plane = 16),
            ("epoch of a path", |c| c.paths[0].epoch = 16),
            ("first PSEQ of a path", |c| c.paths[1].init_pseq = 1 << 24),
            ("path count", |c| c.paths.clear()),
            ("PMTU logarithm", |c| c.pmtu_log2 = 14),
            ("MAC address", |c| c.mac = MacAddr([1, 0, 0, 0, 0, 0])),
        ];
        for (what, change) in cases {
            let mut remote = info();
            change(&mut remote);
            let err = info().agree(&remote).unwrap_err();
            assert!(err.to_string().starts_with(&format!("{what} cannot be ")), "{err}");
        }
    }
}
