//! The ports of an AXI4 interface, found by their customary names.

use super::AXI_BYTES_MAX;
use crate::{
    error::SimError,
    port::{Direction, Port},
    sim::Handle,
};

/// The ports of an address channel (AW or AR).
#[derive(Clone, Debug)]
pub struct AddressPorts {
    /// Transaction id; absent if all transactions are of one id.
    pub id: Option<Port>,
    /// Byte address.
    pub addr: Port,
    /// Beats less one; absent if all bursts have one beat.
    pub len: Option<Port>,
    /// log2 of the bytes per beat; absent if always the whole width.
    pub size: Option<Port>,
    /// Kind of burst; absent if always incrementing.
    pub burst: Option<Port>,
    /// The manager offers a transaction.
    pub valid: Port,
    /// The subordinate takes it.
    pub ready: Port,
}

/// The ports of the write data channel.
#[derive(Clone, Debug)]
pub struct WriteDataPorts {
    /// Data.
    pub data: Port,
    /// One bit per byte to write; absent if all are written.
    pub strb: Option<Port>,
    /// Marks the last beat.
    pub last: Option<Port>,
    /// The manager offers a beat.
    pub valid: Port,
    /// The subordinate takes it.
    pub ready: Port,
}

/// The ports of the write response channel.
#[derive(Clone, Debug)]
pub struct ResponsePorts {
    /// Transaction id.
    pub id: Option<Port>,
    /// The response.
    pub resp: Option<Port>,
    /// The subordinate offers a response.
    pub valid: Port,
    /// The manager takes it.
    pub ready: Port,
}

/// The ports of the read data channel.
#[derive(Clone, Debug)]
pub struct ReadDataPorts {
    /// Transaction id.
    pub id: Option<Port>,
    /// Data.
    pub data: Port,
    /// The response.
    pub resp: Option<Port>,
    /// Marks the last beat.
    pub last: Option<Port>,
    /// The subordinate offers a beat.
    pub valid: Port,
    /// The manager takes it.
    pub ready: Port,
}

/// The ports of an AXI4 interface.
#[derive(Clone, Debug)]
pub struct Axi4Ports {
    /// What the interface is called in messages.
    pub name: String,
    /// Write address.
    pub aw: AddressPorts,
    /// Write data.
    pub w: WriteDataPorts,
    /// Write response.
    pub b: ResponsePorts,
    /// Read address.
    pub ar: AddressPorts,
    /// Read data.
    pub r: ReadDataPorts,
}

impl Axi4Ports {
    /// The ports named `{prefix}_awaddr`, `{prefix}_wdata` and so on. Ports beyond those here (lock, cache, prot, qos,
    /// region, user) are left alone.
    ///
    /// # Errors
    /// A needed port is missing, or widths do not fit each other.
    pub fn find(handle: &Handle, prefix: &str) -> Result<Self, SimError> {
        let optional = |signal: &str| handle.find_port(&format!("{prefix}_{signal}"));
        let needed = |signal: &str| handle.port(&format!("{prefix}_{signal}"));
        let address = |channel: &str| -> Result<AddressPorts, SimError> {
            let optional = |signal: &str| optional(&format!("{channel}{signal}"));
            let needed = |signal: &str| needed(&format!("{channel}{signal}"));
            Ok(AddressPorts {
                id: optional("id"),
                addr: needed("addr")?,
                len: optional("len"),
                size: optional("size"),
                burst: optional("burst"),
                valid: needed("valid")?,
                ready: needed("ready")?,
            })
        };
        let ports = Axi4Ports {
            name: prefix.to_owned(),
            aw: address("aw")?,
            w: WriteDataPorts {
                data: needed("wdata")?,
                strb: optional("wstrb"),
                last: optional("wlast"),
                valid: needed("wvalid")?,
                ready: needed("wready")?,
            },
            b: ResponsePorts {
                id: optional("bid"),
                resp: optional("bresp"),
                valid: needed("bvalid")?,
                ready: needed("bready")?,
            },
            ar: address("ar")?,
            r: ReadDataPorts {
                id: optional("rid"),
                data: needed("rdata")?,
                resp: optional("rresp"),
                last: optional("rlast"),
                valid: needed("rvalid")?,
                ready: needed("rready")?,
            },
        };
        ports.check()?;
        Ok(ports)
    }

    /// Bytes per beat at full width.
    pub fn width_bytes(&self) -> usize {
        self.w.data.width_bits() as usize / 8
    }

    fn check(&self) -> Result<(), SimError> {
        let wrong = |reason: String| Err(SimError::PortShape { name: self.name.clone(), reason });
        let bits = self.w.data.width_bits();
        if !bits.is_power_of_two() || bits < 8 || self.width_bytes() > AXI_BYTES_MAX {
            return wrong(format!("data has {bits} bits; a power of two from 8 to {} is needed", AXI_BYTES_MAX * 8));
        }
        if self.r.data.width_bits() != bits {
            return wrong("read and write data differ in width".into());
        }
        if self.w.strb.is_some_and(|strb| strb.width_bits() * 8 != bits) {
            return wrong("there must be one strobe bit per byte of write data".into());
        }
        if [&self.aw, &self.ar].iter().any(|channel| channel.addr.width_bits() > 64) {
            return wrong("an address is wider than 64 bits".into());
        }
        let is_too_wide = |port: Option<Port>, bits| port.is_some_and(|port| port.width_bits() > bits);
        for channel in [&self.aw, &self.ar] {
            let fields = [(channel.len, 8), (channel.size, 3), (channel.burst, 2), (channel.id, 64)];
            if fields.into_iter().any(|(port, bits)| is_too_wide(port, bits)) {
                return wrong("len has at most 8 bits, size 3, burst 2 and id 64".into());
            }
        }
        let pairs = [(self.aw.id, self.b.id), (self.ar.id, self.r.id)];
        if pairs.iter().any(|(request, response)| request.map(Port::width_bits) != response.map(Port::width_bits)) {
            return wrong("the ids of requests and responses differ in width".into());
        }
        Ok(())
    }

    /// Checks that the design is the manager (requests are its outputs), or the subordinate.
    pub(super) fn check_direction(&self, requests: Direction) -> Result<(), SimError> {
        let request =
            [self.aw.addr, self.aw.valid, self.w.data, self.w.valid, self.ar.valid, self.r.ready, self.b.ready];
        let response = [self.aw.ready, self.w.ready, self.b.valid, self.ar.ready, self.r.valid, self.r.data];
        let is_right = request.iter().all(|port| port.direction() == requests)
            && response.iter().all(|port| port.direction() != requests);
        if is_right {
            return Ok(());
        }
        let role = if requests == Direction::Output { "manager" } else { "subordinate" };
        Err(SimError::PortShape { name: self.name.clone(), reason: format!("the design is no {role} here") })
    }
}

impl AddressPorts {
    /// All ports that must not change while a transaction waits.
    pub(super) fn payload(&self) -> impl Iterator<Item = Port> {
        [self.id, Some(self.addr), self.len, self.size, self.burst].into_iter().flatten()
    }
}

impl WriteDataPorts {
    /// All ports that must not change while a beat waits.
    pub(super) fn payload(&self) -> impl Iterator<Item = Port> {
        [Some(self.data), self.strb, self.last].into_iter().flatten()
    }
}
