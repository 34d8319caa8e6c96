//! Content of the connection management packets as values.

use super::packet::Address;
use alloc::vec::Vec;
use nic_spec::num::{Msn, Psn, Qpn, Rsn};
use nic_spec::wire::{CmParam, CmParamKind, CmStatus, Cmth, CM_VERSION};

/// What a connection management packet says. What is absent is `None` or empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CmContent {
    /// Answer to a request.
    pub status: u8,
    /// What the request wants to reach.
    pub service: u16,
    /// Drawn by who asked.
    pub nonce: u64,
    /// Id of the connection at the sender.
    pub conn_id: Qpn,
    /// Logarithm of the PMTU.
    pub pmtu_log2: Option<u8>,
    /// Paths each way.
    pub paths: Option<u16>,
    /// Stream ids.
    pub streams: Vec<u16>,
    /// First numbers.
    pub first: Option<(Psn, Msn, Rsn)>,
    /// Addresses: plane, is it IPv6, address.
    pub addresses: Vec<(u8, bool, Address)>,
}

/// Why a content was not understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CmError {
    /// It ends before its fixed part or within a parameter.
    Truncated,
    /// Another version.
    Version(u8),
    /// A parameter of this type has an impossible length.
    BadParam(u8),
}

/// Bytes of an address parameter.
const ADDRESS_BYTES: usize = 24;

impl CmContent {
    /// A content without parameters.
    pub const fn new(service: u16, nonce: u64, conn_id: Qpn) -> Self {
        Self {
            status: CmStatus::Ok.code(),
            service,
            nonce,
            conn_id,
            pmtu_log2: None,
            paths: None,
            streams: Vec::new(),
            first: None,
            addresses: Vec::new(),
        }
    }

    /// As bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut h = Cmth::zeroed();
        h.set_version(CM_VERSION).set_status(self.status).set_service(self.service).set_nonce(self.nonce);
        h.set_conn_id(self.conn_id);
        let mut out = h.0.to_vec();
        let mut put = |kind: CmParamKind, value: &[u8]| {
            let mut p = CmParam::zeroed();
            p.set_kind(kind.code()).set_value_len(value.len() as u8);
            out.extend_from_slice(&p.0);
            out.extend_from_slice(value);
        };
        if let Some(pmtu) = self.pmtu_log2 {
            put(CmParamKind::PmtuLog2, &[pmtu]);
        }
        if let Some(paths) = self.paths {
            put(CmParamKind::Paths, &paths.to_be_bytes());
        }
        // A parameter holds 127 ids; more of them make more parameters.
        for ids in self.streams.chunks(127) {
            put(CmParamKind::Streams, &ids.iter().flat_map(|id| id.to_be_bytes()).collect::<Vec<_>>());
        }
        if let Some((psn, msn, rsn)) = self.first {
            let value: Vec<u8> = [psn.get(), msn.get(), rsn.get()].iter().flat_map(|n| n.to_be_bytes()).collect();
            put(CmParamKind::First, &value);
        }
        for (plane, is_ipv6, address) in &self.addresses {
            let mut value = [0; ADDRESS_BYTES];
            (value[0], value[1]) = (*plane, u8::from(*is_ipv6));
            value[2..8].copy_from_slice(&address.mac.to_be_bytes()[2..]);
            value[8..].copy_from_slice(&address.ip.to_be_bytes());
            put(CmParamKind::Address, &value);
        }
        out
    }

    /// From bytes; parameters of unknown type are passed over.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, CmError> {
        let (h, mut rest) = Cmth::split(bytes).map_err(|_| CmError::Truncated)?;
        if h.version() != CM_VERSION {
            return Err(CmError::Version(h.version()));
        }
        let mut c = Self { status: h.status(), ..Self::new(h.service(), h.nonce(), h.conn_id()) };
        while !rest.is_empty() {
            let (p, after) = CmParam::split(rest).map_err(|_| CmError::Truncated)?;
            let value = after.get(..usize::from(p.value_len())).ok_or(CmError::Truncated)?;
            rest = &after[value.len()..];
            c.take(p.kind(), value).ok_or(CmError::BadParam(p.kind()))?;
        }
        Ok(c)
    }

    fn take(&mut self, kind: u8, value: &[u8]) -> Option<()> {
        let word = |at: usize| Some(u32::from_be_bytes(value.get(at..at + 4)?.try_into().ok()?));
        match CmParamKind::try_from(kind) {
            Ok(CmParamKind::PmtuLog2) => self.pmtu_log2 = Some(*value.first()?),
            Ok(CmParamKind::Paths) => self.paths = Some(u16::from_be_bytes(value.get(..2)?.try_into().ok()?)),
            Ok(CmParamKind::Streams) if value.len() % 2 == 0 => {
                self.streams.extend(value.chunks_exact(2).map(|id| u16::from_be_bytes([id[0], id[1]])));
            }
            Ok(CmParamKind::Streams) => return None,
            Ok(CmParamKind::First) => {
                self.first = Some((Psn::new(word(0)?), Msn::new(word(4)?), Rsn::new(word(8)?)));
            }
            Ok(CmParamKind::Address) => {
                let value: &[u8; ADDRESS_BYTES] = value.get(..ADDRESS_BYTES)?.try_into().ok()?;
                let mac = value[2..8].iter().fold(0, |acc, b| acc << 8 | u64::from(*b));
                let ip = value[8..].iter().fold(0, |acc, b| acc << 8 | u128::from(*b));
                self.addresses.push((value[0], value[1] & 1 != 0, Address { mac, ip }));
            }
            Err(_) => {}
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full() -> CmContent {
        let address = |n: u8| Address { mac: 0x0200_0000_0000 | u64::from(n), ip: u128::MAX - u128::from(n) };
        CmContent {
            status: 3,
            pmtu_log2: Some(13),
            paths: Some(256),
            streams: (1..=300).collect(),
            first: Some((Psn::new(0xff_ffff), Msn::new(1), Rsn::new(2))),
            addresses: (0..16).map(|n| (n, n % 2 == 1, address(n))).collect(),
            ..CmContent::new(0xabcd, u64::MAX, Qpn::new(0xff_fffe))
        }
    }

    #[test]
    fn a_content_survives_its_bytes() {
        for c in [full(), CmContent::new(0, 0, Qpn::new(0))] {
            assert_eq!(CmContent::from_bytes(&c.to_bytes()), Ok(c));
        }
    }

    #[test]
    fn unknown_parameters_are_passed_over_and_broken_ones_refused() {
        let mut bytes = CmContent::new(7, 8, Qpn::new(9)).to_bytes();
        bytes.extend([200, 3, 1, 2, 3, CmParamKind::PmtuLog2.code(), 1, 12]);
        assert_eq!(CmContent::from_bytes(&bytes).map(|c| c.pmtu_log2), Ok(Some(12)));
        bytes.extend([CmParamKind::Streams.code(), 3, 0, 1, 0]);
        assert_eq!(CmContent::from_bytes(&bytes), Err(CmError::BadParam(3)));
        bytes[0] = 2;
        assert_eq!(CmContent::from_bytes(&bytes), Err(CmError::Version(2)));
    }

    #[test]
    fn every_cut_is_an_error_or_ends_between_parameters() {
        let bytes = full().to_bytes();
        for len in 0..bytes.len() {
            match CmContent::from_bytes(&bytes[..len]) {
                Ok(c) => assert_eq!(c.to_bytes().len(), len),
                Err(e) => assert_eq!(e, CmError::Truncated, "{len}"),
            }
        }
    }
}
