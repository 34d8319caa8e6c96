//! AXI4-Lite: a manager that reads and writes the design's registers.

use super::Response;
use crate::{
    agent::{Agent, Io},
    error::SimError,
    pace::Pace,
    port::{Direction, Port},
    queue::{reply, Replier, Reply},
    sim::{Clock, Handle},
};
use std::{cell::RefCell, collections::VecDeque, rc::Rc};

/// Cycles an access may take unless [`AxiLiteManager::set_timeout_cycles`] says otherwise.
const TIMEOUT_CYCLES_DEFAULT: u64 = 10_000;

/// The ports of an AXI4-Lite interface.
#[derive(Clone, Debug)]
pub struct AxiLitePorts {
    /// What the interface is called in messages.
    pub name: String,
    /// Write address.
    pub awaddr: Port,
    /// Write address valid.
    pub awvalid: Port,
    /// Write address ready.
    pub awready: Port,
    /// Write data, 32 or 64 bits.
    pub wdata: Port,
    /// Write strobes.
    pub wstrb: Option<Port>,
    /// Write data valid.
    pub wvalid: Port,
    /// Write data ready.
    pub wready: Port,
    /// Write response.
    pub bresp: Option<Port>,
    /// Write response valid.
    pub bvalid: Port,
    /// Write response ready.
    pub bready: Port,
    /// Read address.
    pub araddr: Port,
    /// Read address valid.
    pub arvalid: Port,
    /// Read address ready.
    pub arready: Port,
    /// Read data.
    pub rdata: Port,
    /// Read response.
    pub rresp: Option<Port>,
    /// Read data valid.
    pub rvalid: Port,
    /// Read data ready.
    pub rready: Port,
}

impl AxiLitePorts {
    /// The ports named `{prefix}_awaddr` and so on.
    ///
    /// # Errors
    /// A needed port is missing, is driven by the wrong side, or has a width no register access fits.
    pub fn find(handle: &Handle, prefix: &str) -> Result<Self, SimError> {
        let optional = |signal: &str| handle.find_port(&format!("{prefix}_{signal}"));
        let needed = |signal: &str| handle.port(&format!("{prefix}_{signal}"));
        let ports = AxiLitePorts {
            name: prefix.to_owned(),
            awaddr: needed("awaddr")?,
            awvalid: needed("awvalid")?,
            awready: needed("awready")?,
            wdata: needed("wdata")?,
            wstrb: optional("wstrb"),
            wvalid: needed("wvalid")?,
            wready: needed("wready")?,
            bresp: optional("bresp"),
            bvalid: needed("bvalid")?,
            bready: needed("bready")?,
            araddr: needed("araddr")?,
            arvalid: needed("arvalid")?,
            arready: needed("arready")?,
            rdata: needed("rdata")?,
            rresp: optional("rresp"),
            rvalid: needed("rvalid")?,
            rready: needed("rready")?,
        };
        let wrong = |reason: &str| Err(SimError::PortShape { name: prefix.to_owned(), reason: reason.to_owned() });
        if ![32, 64].contains(&ports.wdata.width_bits()) || ports.rdata.width_bits() != ports.wdata.width_bits() {
            return wrong("data must have 32 or 64 bits in both directions");
        }
        if ports.awaddr.width_bits() > 64 || ports.araddr.width_bits() > 64 {
            return wrong("an address is wider than 64 bits");
        }
        let driven = [ports.awaddr, ports.awvalid, ports.wdata, ports.wvalid, ports.bready, ports.araddr, ports.rready];
        if driven.iter().any(|port| port.direction() != Direction::Input) {
            return wrong("the design is no subordinate here");
        }
        Ok(ports)
    }
}

/// A register access that did not succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AxiLiteError {
    /// The design answered with an error.
    #[error("access to register {addr:#x} was answered with {response:?}")]
    Refused {
        /// Byte address.
        addr: u64,
        /// The response.
        response: Response,
    },
    /// The design did not answer in time. The interface cannot be used again before a reset.
    #[error("access to register {addr:#x} was not answered within {cycles} cycles")]
    NoAnswer {
        /// Byte address.
        addr: u64,
        /// The limit.
        cycles: u64,
    },
}

enum Access {
    Read { addr: u64, replier: Replier<Result<u64, AxiLiteError>> },
    Write { addr: u64, data: u64, replier: Replier<Result<(), AxiLiteError>> },
}

impl Access {
    fn addr(&self) -> u64 {
        match self {
            Access::Read { addr, .. } | Access::Write { addr, .. } => *addr,
        }
    }

    fn fail(self, error: AxiLiteError) {
        match self {
            Access::Read { replier, .. } => replier.send(Err(error)),
            Access::Write { replier, .. } => replier.send(Err(error)),
        }
    }
}

struct Shared {
    waiting: VecDeque<Access>,
    timeout_cycles: u64,
    pace: Pace,
}

/// Reads and writes registers of the design, one access after the other. Clones are the same manager.
///
/// An access begins with the call, not when its [`Reply`] is awaited, so synchronous code can start one, step the
/// simulation, and look for the result.
#[derive(Clone)]
pub struct AxiLiteManager {
    shared: Rc<RefCell<Shared>>,
}

impl AxiLiteManager {
    /// Drives the interface at every edge of `clock`. Each channel begins to offer, or to accept, when `pace` says so.
    pub fn attach(handle: &Handle, clock: Clock, ports: AxiLitePorts, pace: Pace) -> Self {
        let shared = Shared { waiting: VecDeque::new(), timeout_cycles: TIMEOUT_CYCLES_DEFAULT, pace };
        let shared = Rc::new(RefCell::new(shared));
        let driver = Driver { ports, shared: shared.clone(), current: None, state: State::default() };
        handle.attach(clock, driver);
        AxiLiteManager { shared }
    }

    /// Starts to read the register at a byte address.
    pub fn read(&self, addr: u64) -> Reply<Result<u64, AxiLiteError>> {
        let (replier, result) = reply();
        self.shared.borrow_mut().waiting.push_back(Access::Read { addr, replier });
        result
    }

    /// Starts to write a whole register at a byte address.
    pub fn write(&self, addr: u64, data: u64) -> Reply<Result<(), AxiLiteError>> {
        let (replier, result) = reply();
        self.shared.borrow_mut().waiting.push_back(Access::Write { addr, data, replier });
        result
    }

    /// Accesses not yet answered, without the one under way.
    pub fn pending(&self) -> usize {
        self.shared.borrow().waiting.len()
    }

    /// Sets how many cycles an access may take.
    pub fn set_timeout_cycles(&self, cycles: u64) {
        self.shared.borrow_mut().timeout_cycles = cycles;
    }
}

/// What the access under way has on the bus.
#[derive(Default)]
struct State {
    cycles: u64,
    is_address_offered: bool,
    is_address_taken: bool,
    is_data_offered: bool,
    is_data_taken: bool,
    is_ready: bool,
}

struct Driver {
    ports: AxiLitePorts,
    shared: Rc<RefCell<Shared>>,
    current: Option<Access>,
    state: State,
}

impl Agent for Driver {
    fn on_edge(&mut self, io: &mut Io<'_>) {
        if io.is_in_reset() {
            self.release(io);
            self.state = State::default();
            return;
        }
        let shared = self.shared.clone();
        let mut shared = shared.borrow_mut();
        if let Some(access) = self.current.take() {
            self.state.cycles += 1;
            let timeout_cycles = shared.timeout_cycles;
            self.current = match access {
                Access::Read { addr, replier } => self.observe_read(io, addr, replier),
                Access::Write { addr, data, replier } => self.observe_write(io, addr, data, replier),
            };
            if self.state.cycles >= timeout_cycles {
                if let Some(access) = self.current.take() {
                    let addr = access.addr();
                    access.fail(AxiLiteError::NoAnswer { addr, cycles: timeout_cycles });
                    self.release(io);
                }
            }
        }
        if self.current.is_none() {
            let Some(next) = shared.waiting.pop_front() else { return };
            (self.current, self.state) = (Some(next), State::default());
        }
        self.drive(io, &mut shared.pace);
    }
}

impl Driver {
    /// Takes back everything offered.
    fn release(&self, io: &mut Io<'_>) {
        let ports = &self.ports;
        for port in [ports.awvalid, ports.wvalid, ports.bready, ports.arvalid, ports.rready] {
            io.set(port, 0);
        }
    }

    fn observe_read(
        &mut self,
        io: &mut Io<'_>,
        addr: u64,
        replier: Replier<Result<u64, AxiLiteError>>,
    ) -> Option<Access> {
        let ports = &self.ports;
        if self.state.is_address_offered && io.is_set(ports.arready) {
            (self.state.is_address_offered, self.state.is_address_taken) = (false, true);
            io.set(ports.arvalid, 0);
        }
        if !(self.state.is_ready && io.is_set(ports.rvalid)) {
            return Some(Access::Read { addr, replier });
        }
        if !self.state.is_address_taken {
            io.fail(format!("{}: read data before the address {addr:#x} was taken", ports.name));
        }
        io.set(ports.rready, 0);
        replier.send(result(addr, io.get(ports.rdata), ports.rresp.map(|resp| io.get(resp))));
        None
    }

    fn observe_write(
        &mut self,
        io: &mut Io<'_>,
        addr: u64,
        data: u64,
        replier: Replier<Result<(), AxiLiteError>>,
    ) -> Option<Access> {
        let ports = &self.ports;
        if self.state.is_address_offered && io.is_set(ports.awready) {
            (self.state.is_address_offered, self.state.is_address_taken) = (false, true);
            io.set(ports.awvalid, 0);
        }
        if self.state.is_data_offered && io.is_set(ports.wready) {
            (self.state.is_data_offered, self.state.is_data_taken) = (false, true);
            io.set(ports.wvalid, 0);
        }
        if !(self.state.is_ready && io.is_set(ports.bvalid)) {
            return Some(Access::Write { addr, data, replier });
        }
        if !(self.state.is_address_taken && self.state.is_data_taken) {
            io.fail(format!("{}: a response before the write of {addr:#x} was taken", ports.name));
        }
        io.set(ports.bready, 0);
        replier.send(result(addr, (), ports.bresp.map(|resp| io.get(resp))));
        None
    }

    fn drive(&mut self, io: &mut Io<'_>, pace: &mut Pace) {
        let ports = &self.ports;
        let state = &mut self.state;
        let (addr_port, addr_valid, ready, addr, data) = match &self.current {
            Some(Access::Read { addr, .. }) => (ports.araddr, ports.arvalid, ports.rready, *addr, None),
            Some(Access::Write { addr, data, .. }) => (ports.awaddr, ports.awvalid, ports.bready, *addr, Some(*data)),
            None => return,
        };
        if !state.is_address_taken && !state.is_address_offered && pace.goes() {
            state.is_address_offered = true;
            io.set(addr_port, addr);
            io.set(addr_valid, 1);
        }
        if let Some(data) = data.filter(|_| !state.is_data_taken && !state.is_data_offered) {
            if pace.goes() {
                state.is_data_offered = true;
                io.set(ports.wdata, data);
                io.set(ports.wvalid, 1);
                if let Some(strobe) = ports.wstrb {
                    io.set(strobe, (1 << strobe.width_bits()) - 1);
                }
            }
        }
        if !state.is_ready && pace.goes() {
            state.is_ready = true;
            io.set(ready, 1);
        }
    }
}

fn result<T>(addr: u64, value: T, code: Option<u64>) -> Result<T, AxiLiteError> {
    match code.map_or(Response::Okay, Response::of_code) {
        response if response.is_error() => Err(AxiLiteError::Refused { addr, response }),
        _ => Ok(value),
    }
}
