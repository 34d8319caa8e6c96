//! The card: brought up, described, and the owner of everything created on it.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nic_spec::consts;
use nic_spec::csr::{self, conn, id, irq, port, stats::Counter, transport};
use nic_spec::desc::{Table, CTX_ROW_BYTES};
use nic_spec::num::Qpn;
use nic_spec::register::{BitField, Register};

use crate::address::MacAddr;
use crate::bar::{Bar, BlockAccess};
use crate::ctx::CtxWindow;
use crate::dma::DmaSpace;
use crate::error::{Error, Result};
use crate::irq::IrqEvent;
use crate::pci::{PciDevice, IRQ_MSIX};
use crate::pool::Pool;
use crate::stats::{self, Stats};

/// Most paths that a connection can have: what the path id on the wire can name.
pub const PATHS_MAX: u32 = 1 << nic_spec::num::PathId::BITS;

/// How large the card was built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Connections (queue pairs).
    pub conns: u32,
    /// Paths of each connection.
    pub paths: u32,
    /// Packets in flight on one path, at most.
    pub window_pkts: u32,
    /// Messages in flight on one stream, at most.
    pub msgs: u32,
    /// Memory regions.
    pub mrs: u32,
    /// Completion queues.
    pub cqs: u32,
    /// Width of the data path. Bits.
    pub data_bits: u32,
    /// Frequency of the core clock, in which the card counts time. kHz.
    pub clock_khz: u32,
}

/// Settings of the Ethernet port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortConfig {
    /// Its MAC address.
    pub mac: MacAddr,
    /// Its IP address.
    pub ip: IpAddr,
    /// UDP destination port sent and accepted.
    pub udp_dport: u16,
    /// Accept frames to any MAC address.
    pub is_promiscuous: bool,
}

impl PortConfig {
    /// These addresses, the protocol's UDP port, not promiscuous.
    pub fn new(mac: MacAddr, ip: IpAddr) -> Self {
        Self { mac, ip, udp_dport: consts::UDP_DPORT, is_promiscuous: false }
    }
}

/// Timers and limits of the transport. Ticks are cycles of [`DeviceInfo::clock_khz`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransportConfig {
    /// Retransmission timeout of a path before the first doubling. Ticks.
    pub rto_ticks: u32,
    /// Timeouts in a row on one path after which its connection fails. 0..=15.
    pub retry_limit: u32,
    /// Packets received on a path that make an ACK due. 0..=255, 0 acts as 1.
    pub ack_packets: u32,
    /// Payload received on a path that makes an ACK due. Bytes, 24 bits.
    pub ack_bytes: u32,
    /// Longest time an ACK is held back. Ticks.
    pub ack_delay_ticks: u32,
    /// Shortest time between two NAKs of a connection. Ticks.
    pub nak_interval_ticks: u32,
    /// Wait after a receiver-not-ready NAK. Ticks.
    pub rnr_ticks: u32,
}

/// A card that was brought up. Clones name the same card.
#[derive(Clone)]
pub struct Device {
    inner: Arc<Inner>,
}

struct Inner {
    bar: Bar,
    ctx: CtxWindow,
    dma: DmaSpace,
    info: DeviceInfo,
    port: PortConfig,
    pools: Mutex<Pools>,
    irqs: Mutex<BTreeMap<u8, IrqEvent>>,
    /// Held while registers are read that only make sense together.
    pairs: Mutex<()>,
}

/// Numbers in use.
pub(crate) struct Pools {
    pub(crate) pds: Pool,
    pub(crate) mrs: Pool,
    pub(crate) cqs: Pool,
    pub(crate) conns: Pool,
    /// Key of the last region in each row of the MR table.
    pub(crate) mr_keys: Vec<u8>,
    pub(crate) conn_rows: Vec<ConnRowUse>,
}

/// Use of a row of the connection table.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ConnRowUse {
    /// Connections it has had.
    users: u64,
    /// The last of them is there.
    is_in_use: bool,
}

impl Device {
    /// Resets the card, checks that it is one this driver knows, and opens its port.
    ///
    /// # Errors
    /// [`Error::Reset`], the errors of [`Bar::walk`], [`Error::BlockMissing`] and [`Error::BlockVersion`],
    /// [`Error::Parameter`] when the card reports a size that cannot be, [`Error::Config`] for a wrong port setting.
    pub fn open(pci: Arc<dyn PciDevice>, port: PortConfig) -> Result<Self> {
        if port.mac.is_multicast() {
            let reason = "a port has no group address";
            return Err(Error::Config { what: "MAC address of the port", value: port.mac.to_u64(), reason });
        }
        pci.reset().map_err(|source| Error::Reset { source })?;
        let bar = Bar::walk(pci.clone())?;
        for block in csr::BLOCKS {
            bar.block(block)?;
        }
        let info = read_info(bar.block(&id::BLOCK)?)?;
        let device = Self {
            inner: Arc::new(Inner {
                bar,
                ctx: CtxWindow::default(),
                dma: DmaSpace::new(pci),
                info,
                port,
                pools: Mutex::new(Pools {
                    // Domain 0 is what an unwritten row holds; so no object is in it.
                    pds: Pool::new(1..1 << nic_spec::num::Pd::BITS),
                    mrs: Pool::new(0..info.mrs),
                    cqs: Pool::new(0..info.cqs),
                    conns: Pool::new(0..info.conns),
                    mr_keys: vec![0; info.mrs as usize],
                    conn_rows: vec![ConnRowUse::default(); info.conns as usize],
                }),
                irqs: Mutex::default(),
                pairs: Mutex::default(),
            }),
        };
        device.open_port()?;
        Ok(device)
    }

    /// How large the card was built.
    pub fn info(&self) -> &DeviceInfo {
        &self.inner.info
    }

    /// Settings of the port.
    pub fn port(&self) -> &PortConfig {
        &self.inner.port
    }

    /// How the card is reached.
    pub fn pci(&self) -> &Arc<dyn PciDevice> {
        self.inner.bar.device()
    }

    /// The card's view of host memory.
    pub fn dma(&self) -> &DmaSpace {
        &self.inner.dma
    }

    /// Gives time to the card; to be called in every loop that waits for it.
    ///
    /// # Errors
    /// [`Error::Idle`] when the card is gone.
    pub fn idle(&self) -> Result<()> {
        self.pci().idle().map_err(|source| Error::Idle { source })
    }

    /// The card's clock: a free-running count modulo 2^32. Ticks.
    pub fn time_ticks(&self) -> Result<u32> {
        self.block(&id::BLOCK)?.read(id::TIME)
    }

    /// True when the port's link is up.
    pub fn is_link_up(&self) -> Result<bool> {
        Ok(port::STATUS_LINK_UP.get(self.block(&port::BLOCK)?.read(port::STATUS)?) != 0)
    }

    /// All counters.
    pub fn stats(&self) -> Result<Stats> {
        let _guard = self.pairs();
        stats::read_all(&self.inner.bar)
    }

    /// One counter.
    pub fn counter(&self, counter: Counter) -> Result<u64> {
        let _guard = self.pairs();
        stats::read_counter(&self.inner.bar, counter)
    }

    /// Timers and limits as the card has them.
    pub fn transport(&self) -> Result<TransportConfig> {
        let block = self.block(&transport::BLOCK)?;
        Ok(TransportConfig {
            rto_ticks: block.read(transport::RTO_TICKS)?,
            retry_limit: transport::RETRY_LIMIT_VALUE.get(block.read(transport::RETRY_LIMIT)?),
            ack_packets: transport::ACK_PACKETS_VALUE.get(block.read(transport::ACK_PACKETS)?),
            ack_bytes: transport::ACK_BYTES_VALUE.get(block.read(transport::ACK_BYTES)?),
            ack_delay_ticks: block.read(transport::ACK_DELAY_TICKS)?,
            nak_interval_ticks: block.read(transport::NAK_INTERVAL_TICKS)?,
            rnr_ticks: block.read(transport::RNR_TICKS)?,
        })
    }

    /// Sets timers and limits.
    ///
    /// # Errors
    /// [`Error::Config`] when a value does not fit its register; nothing is set then.
    pub fn set_transport(&self, config: &TransportConfig) -> Result<()> {
        let retry_limit = field("retry limit", transport::RETRY_LIMIT_VALUE, config.retry_limit)?;
        let ack_packets = field("ACK packet count", transport::ACK_PACKETS_VALUE, config.ack_packets)?;
        let ack_bytes = field("ACK byte count", transport::ACK_BYTES_VALUE, config.ack_bytes)?;
        let block = self.block(&transport::BLOCK)?;
        block.write(transport::RTO_TICKS, config.rto_ticks)?;
        block.write(transport::RETRY_LIMIT, retry_limit)?;
        block.write(transport::ACK_PACKETS, ack_packets)?;
        block.write(transport::ACK_BYTES, ack_bytes)?;
        block.write(transport::ACK_DELAY_TICKS, config.ack_delay_ticks)?;
        block.write(transport::NAK_INTERVAL_TICKS, config.nak_interval_ticks)?;
        block.write(transport::RNR_TICKS, config.rnr_ticks)
    }

    /// Indices of the connections in error, ascending.
    pub fn failed_connections(&self) -> Result<Vec<u32>> {
        let block = self.block(&conn::BLOCK)?;
        let mut failed = Vec::new();
        for word in 0..self.inner.info.conns.div_ceil(32) {
            let bits = block.read_at(conn::ERROR, word)?;
            failed.extend((0..32).filter(|bit| bits >> bit & 1 != 0).map(|bit| 32 * word + bit));
        }
        Ok(failed)
    }

    /// The event of an interrupt vector; the first call attaches it.
    ///
    /// # Errors
    /// [`Error::Irq`] when the card has no such vector.
    pub fn irq_event(&self, vector: u8) -> Result<IrqEvent> {
        let mut irqs = self.inner.irqs.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(event) = irqs.get(&vector) {
            return Ok(event.clone());
        }
        let event = IrqEvent::new();
        let attached = self.pci().set_irqs(IRQ_MSIX, u32::from(vector), std::slice::from_ref(&event));
        attached.map_err(|source| Error::Irq { vector: u32::from(vector), source })?;
        irqs.insert(vector, event.clone());
        Ok(event)
    }

    /// Holds the messages of a vector back, or lets them go again.
    pub fn mask_irq(&self, vector: u8, is_masked: bool) -> Result<()> {
        let (word, bit) = (u32::from(vector) / 32, u32::from(vector) % 32);
        let block = self.block(&irq::BLOCK)?;
        let _guard = self.pairs();
        let others = block.read_at(irq::MASK, word)? & !(1 << bit);
        block.write_at(irq::MASK, word, others | u32::from(is_masked) << bit)
    }

    /// True while a message of the vector waits behind its mask.
    pub fn is_irq_pending(&self, vector: u8) -> Result<bool> {
        let bits = self.block(&irq::BLOCK)?.read_at(irq::PENDING, u32::from(vector) / 32)?;
        Ok(bits >> (u32::from(vector) % 32) & 1 != 0)
    }

    pub(crate) fn bar(&self) -> &Bar {
        &self.inner.bar
    }

    pub(crate) fn pools(&self) -> MutexGuard<'_, Pools> {
        self.inner.pools.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn write_row(&self, table: Table, row: u32, bytes: &[u8; CTX_ROW_BYTES]) -> Result<()> {
        self.inner.ctx.write_row(&self.inner.bar, table, row, bytes)
    }

    pub(crate) fn is_same_as(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    /// A free row of the connection table, and the connection id for its next user.
    ///
    /// The low bits of the id are the row. The high bits count its users, so that a packet to an earlier one meets a
    /// stranger; they are never 0, so that no id is as small as a row.
    pub(crate) fn take_conn(&self) -> Result<(u32, Qpn)> {
        let have = self.inner.info.conns;
        let mut pools = self.pools();
        let index = pools.conns.take().ok_or(Error::Exhausted { what: "connections", have })?;
        let row = &mut pools.conn_rows[index as usize];
        let generation = self.generation(row.users);
        row.users += 1;
        row.is_in_use = true;
        Ok((index, Qpn::new(generation * have + index)))
    }

    /// The connection in row `index` is over. The row is used again if the card let go of it.
    pub(crate) fn end_conn(&self, index: u32, is_row_free: bool) {
        let mut pools = self.pools();
        pools.conn_rows[index as usize].is_in_use = false;
        if is_row_free {
            pools.conns.give_back(index);
        }
    }

    /// True when `qpn` is the id of a connection that there was and is not any more.
    pub(crate) fn is_conn_over(&self, qpn: Qpn) -> bool {
        let (index, generation) = (qpn.get() % self.inner.info.conns, qpn.get() / self.inner.info.conns);
        let row = self.pools().conn_rows[index as usize];
        let was_used = (1..=row.users.min(self.generations())).contains(&u64::from(generation));
        let is_latest = row.users.checked_sub(1).is_some_and(|latest| self.generation(latest) == generation);
        was_used && !(is_latest && row.is_in_use)
    }

    /// High bits of the id of a row's n-th connection, from 0 on.
    fn generation(&self, user: u64) -> u32 {
        (user % self.generations()) as u32 + 1
    }

    /// Values of the high bits of a connection id.
    fn generations(&self) -> u64 {
        u64::from((1 << Qpn::BITS) / self.inner.info.conns - 1)
    }

    /// True when connection `index` is in error.
    pub(crate) fn is_conn_failed(&self, index: u32) -> Result<bool> {
        let bits = self.block(&conn::BLOCK)?.read_at(conn::ERROR, index / 32)?;
        Ok(bits >> (index % 32) & 1 != 0)
    }

    /// Status code of connection `index`, 0 = no error.
    pub(crate) fn conn_status(&self, index: u32) -> Result<u8> {
        let block = self.block(&conn::BLOCK)?;
        let _guard = self.pairs();
        block.write(conn::ERROR_SELECT, conn::ERROR_SELECT_INDEX.put(0, index))?;
        Ok(conn::ERROR_STATUS_CODE.get(block.read(conn::ERROR_STATUS)?) as u8)
    }

    fn open_port(&self) -> Result<()> {
        let config = &self.inner.port;
        let block = self.block(&port::BLOCK)?;
        let mac = config.mac.to_u64();
        block.write(port::MAC_LO, mac as u32)?;
        block.write(port::MAC_HI, port::MAC_HI_VALUE.put(0, (mac >> 32) as u32))?;
        block.write(port::UDP_DPORT, port::UDP_DPORT_VALUE.put(0, config.udp_dport.into()))?;
        let control = port::CONTROL_PROMISCUOUS.put(0, config.is_promiscuous.into());
        block.write(port::CONTROL, port::CONTROL_RX_ENABLE.put(control, 1))
    }

    fn block(&self, block: &'static nic_spec::register::Block) -> Result<BlockAccess<'_>> {
        self.inner.bar.block(block)
    }

    fn pairs(&self) -> MutexGuard<'_, ()> {
        self.inner.pairs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Device({})", self.pci().name())
    }
}

/// The register word with `value` in `field`, or an error when it does not fit.
fn field(what: &'static str, field: BitField, value: u32) -> Result<u32> {
    let word = field.put(0, value);
    if field.get(word) == value {
        return Ok(word);
    }
    Err(Error::Config { what, value: value.into(), reason: "it does not fit its register" })
}

fn read_info(block: BlockAccess<'_>) -> Result<DeviceInfo> {
    let read = |register: Register, is_good: fn(u32) -> bool, reason| {
        let value = block.read(register)?;
        if is_good(value) {
            return Ok(value);
        }
        Err(Error::Parameter { register: register.name, value, reason })
    };
    let info = DeviceInfo {
        conns: read(
            id::CONNS,
            |n| n.is_power_of_two() && n <= csr::DOORBELL_PAGES,
            "not a power of two within the number of doorbell pages",
        )?,
        paths: read(id::PATHS, |n| (1..=PATHS_MAX).contains(&n), "not 1 to 256")?,
        window_pkts: read(id::WINDOW_PKTS, |n| (1..=consts::SACK_BITS).contains(&n), "not 1 to 256")?,
        msgs: read(id::MSGS, |n| n > 0, "a stream needs a message")?,
        mrs: read(id::MRS, |n| (1..=1 << 16).contains(&n), "not 1 to 65536")?,
        cqs: read(id::CQS, |n| (1..=csr::DOORBELL_PAGES).contains(&n), "not 1 to the number of doorbell pages")?,
        data_bits: read(id::DATA_BITS, |n| n > 0, "the data path has a width")?,
        clock_khz: read(id::CLOCK_KHZ, |n| n > 0, "the clock has a frequency")?,
    };
    Ok(info)
}
