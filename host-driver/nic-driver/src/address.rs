//! Ethernet addresses.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A MAC address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct MacAddr(pub [u8; 6]);

impl MacAddr {
    /// As the number that registers and context rows hold: the first byte is the most significant.
    pub fn to_u64(self) -> u64 {
        self.0.iter().fold(0, |number, &byte| number << 8 | u64::from(byte))
    }

    /// True for a group address, which no port can have.
    pub fn is_multicast(self) -> bool {
        self.0[0] & 1 != 0
    }
}

impl fmt::Display for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

/// A text that is no MAC address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no MAC address (write it as 02:00:00:00:00:01)")]
pub struct BadMacAddr(String);

impl FromStr for MacAddr {
    type Err = BadMacAddr;

    fn from_str(text: &str) -> Result<Self, BadMacAddr> {
        let bad = || BadMacAddr(text.to_owned());
        let is_byte = |part: &str| part.len() == 2 && part.bytes().all(|c| c.is_ascii_hexdigit());
        let parts: Vec<&str> = text.split(':').collect();
        if !parts.iter().all(|part| is_byte(part)) {
            return Err(bad());
        }
        let bytes: Vec<u8> = parts.iter().filter_map(|part| u8::from_str_radix(part, 16).ok()).collect();
        bytes.try_into().map(Self).map_err(|_| bad())
    }
}

impl From<MacAddr> for String {
    fn from(mac: MacAddr) -> Self {
        mac.to_string()
    }
}

impl TryFrom<String> for MacAddr {
    type Error = BadMacAddr;

    fn try_from(text: String) -> Result<Self, BadMacAddr> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_text_and_a_number_with_the_first_byte_on_top() {
        let mac: MacAddr = "02:aB:00:00:03:0f".parse().unwrap();
        assert_eq!((mac.to_string(), mac.to_u64()), ("02:ab:00:00:03:0f".into(), 0x02ab_0000_030f));
        assert!(!mac.is_multicast() && MacAddr([1, 0, 0, 0, 0, 0]).is_multicast());
    }

    #[test]
    fn a_text_that_is_no_address_is_refused() {
        for text in
            ["", "02:00:00:00:00", "02:00:00:00:00:00:00", "2:00:00:00:00:00", "02:00:00:00:00:g0", "+2:00:00:00:00:00"]
        {
            let err = text.parse::<MacAddr>().unwrap_err();
            assert_eq!(err.to_string(), format!("{text:?} is no MAC address (write it as 02:00:00:00:00:01)"));
        }
    }
}
