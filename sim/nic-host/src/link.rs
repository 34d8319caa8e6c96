//! Requests from driver threads to the thread that owns the simulated world and its time.
//!
//! [`host_link`] makes the two ends. The [`HostLink`] is cloned into one [`SimPciDevice`](crate::SimPciDevice) per card.
//! The world's thread owns the [`WorldLink`] and either hands it a [`World`] and lets it [`serve`](WorldLink::serve),
//! or takes one [`Job`] after the other itself.
//!
//! Time moves only while a request is served. So a test whose drivers all live on one thread is deterministic; with
//! several driver threads the order of their requests, and with it the time, depends on the scheduler.
//!
//! Nobody waits for ever: a job dropped without an answer, a world that ended or died, and a world that stands still
//! for longer than the caller's patience, are errors at the caller.

use std::fmt;
use std::sync::mpsc::{channel, Receiver, RecvTimeoutError, Sender, TryRecvError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use nic_driver::pci::{Direction, PciError, PciResult};

/// Which card of the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CardId(pub u32);

impl fmt::Display for CardId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "card {}", self.0)
    }
}

/// What a driver asks of the world.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// A register read; the answer is [`Job::answer_read`].
    MmioRead {
        /// Which card.
        card: CardId,
        /// Region index.
        region: u32,
        /// Offset in the region, a multiple of `len_bytes`.
        offset_bytes: u64,
        /// 4 or 8.
        len_bytes: usize,
    },
    /// A register write.
    MmioWrite {
        /// Which card.
        card: CardId,
        /// Region index.
        region: u32,
        /// Offset in the region, a multiple of the length.
        offset_bytes: u64,
        /// 4 or 8 bytes.
        bytes: Vec<u8>,
    },
    /// Let this many cycles of the card's clock pass, with everything else in the world.
    Idle {
        /// Which card's driver is idle.
        card: CardId,
        /// Cycles of the card's clock.
        cycles: u64,
    },
    /// Reset the card.
    Reset {
        /// Which card.
        card: CardId,
    },
}

impl Request {
    /// The card that the request is for.
    pub fn card(&self) -> CardId {
        match *self {
            Request::MmioRead { card, .. }
            | Request::MmioWrite { card, .. }
            | Request::Idle { card, .. }
            | Request::Reset { card } => card,
        }
    }
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Request::MmioRead { card, region, offset_bytes, len_bytes } => {
                write!(f, "{card}: read of {len_bytes} bytes at offset {offset_bytes:#x} of region {region}")
            }
            Request::MmioWrite { card, region, offset_bytes, bytes } => {
                write!(f, "{card}: write of {} bytes at offset {offset_bytes:#x} of region {region}", bytes.len())
            }
            Request::Idle { card, cycles } => write!(f, "{card}: {cycles} idle cycles"),
            Request::Reset { card } => write!(f, "{card}: reset"),
        }
    }
}

/// Why the world could not do what was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WorldError {
    /// The card answered with SLVERR or DECERR.
    #[error("bus error")]
    Bus,
    /// The world is at its end; nothing will work any more.
    #[error("{0}")]
    Ended(String),
}

/// The simulated world, as its thread serves it.
pub trait World {
    /// Reads `buf.len()` (4 or 8) bytes of a card's region; returns when the card has answered.
    fn mmio_read(&mut self, card: CardId, region: u32, offset_bytes: u64, buf: &mut [u8]) -> Result<(), WorldError>;

    /// Writes 4 or 8 bytes of a card's region; returns when the card has answered.
    fn mmio_write(&mut self, card: CardId, region: u32, offset_bytes: u64, bytes: &[u8]) -> Result<(), WorldError>;

    /// Lets time pass.
    fn idle(&mut self, card: CardId, cycles: u64) -> Result<(), WorldError>;

    /// Resets a card.
    fn reset(&mut self, card: CardId) -> Result<(), WorldError>;
}

type Answer = Result<Vec<u8>, WorldError>;

/// A request waiting for its answer. Dropped without one, the caller gets an error.
#[derive(Debug)]
pub struct Job {
    request: Request,
    reply: Sender<Answer>,
}

impl Job {
    /// What is asked.
    pub fn request(&self) -> &Request {
        &self.request
    }

    /// Answers a read with the bytes read, as many as were asked for.
    pub fn answer_read(self, bytes: Vec<u8>) {
        self.answer(Ok(bytes));
    }

    /// Answers anything but a read.
    pub fn answer_done(self) {
        self.answer(Ok(Vec::new()));
    }

    /// Answers that it could not be done.
    pub fn answer_error(self, error: WorldError) {
        self.answer(Err(error));
    }

    /// Lets `world` do what is asked and answers.
    pub fn run(self, world: &mut impl World) {
        let answer = match &self.request {
            &Request::MmioRead { card, region, offset_bytes, len_bytes } => {
                let mut bytes = vec![0; len_bytes];
                world.mmio_read(card, region, offset_bytes, &mut bytes).map(|()| bytes)
            }
            Request::MmioWrite { card, region, offset_bytes, bytes } => {
                world.mmio_write(*card, *region, *offset_bytes, bytes).map(|()| Vec::new())
            }
            &Request::Idle { card, cycles } => world.idle(card, cycles).map(|()| Vec::new()),
            &Request::Reset { card } => world.reset(card).map(|()| Vec::new()),
        };
        self.answer(answer);
    }

    fn answer(self, answer: Answer) {
        // A caller that lost its patience is not there any more; the world goes on without it.
        let _ = self.reply.send(answer);
    }
}

/// The drivers' end: sends requests and waits for the answers. Clones share the link.
#[derive(Clone, Debug)]
pub struct HostLink {
    jobs: Sender<Job>,
    end: Arc<Mutex<Option<String>>>,
    patience: Duration,
}

/// The world's end.
#[derive(Debug)]
pub struct WorldLink {
    jobs: Receiver<Job>,
    end: Arc<Mutex<Option<String>>>,
}

/// A link between drivers and a world. A driver waits for an answer for at most `patience` of real time.
pub fn host_link(patience: Duration) -> (HostLink, WorldLink) {
    let (sender, receiver) = channel();
    let end = Arc::new(Mutex::new(None));
    (HostLink { jobs: sender, end: end.clone(), patience }, WorldLink { jobs: receiver, end })
}

impl HostLink {
    /// Sends `request` and waits for the answer; the bytes are those of a read.
    ///
    /// # Errors
    /// [`PciError::Bus`] as the card answered, [`PciError::Gone`] at the end of the world, [`PciError::NoAnswer`] when
    /// the world stands still.
    pub fn call(&self, request: Request) -> PciResult<Vec<u8>> {
        let (reply, answer) = channel();
        self.jobs.send(Job { request: request.clone(), reply }).map_err(|_| self.gone(None))?;
        match answer.recv_timeout(self.patience) {
            Ok(Ok(bytes)) => Ok(bytes),
            Ok(Err(WorldError::Bus)) => Err(bus_error(&request)),
            Ok(Err(WorldError::Ended(reason))) => Err(self.gone(Some(reason))),
            Err(RecvTimeoutError::Disconnected) => Err(self.gone(None)),
            Err(RecvTimeoutError::Timeout) => {
                Err(PciError::NoAnswer { request: request.to_string(), waited_ms: self.patience.as_millis() })
            }
        }
    }

    fn gone(&self, reason: Option<String>) -> PciError {
        let known = || self.end.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let reason = reason.or_else(known).unwrap_or_else(|| "the simulated world ended without an answer".into());
        PciError::Gone { reason }
    }
}

impl WorldLink {
    /// The next request; blocks until there is one. `None` when all drivers are gone.
    pub fn next_job(&self) -> Option<Job> {
        self.jobs.recv().ok()
    }

    /// The next request if one waits. `Err` when all drivers are gone.
    pub fn poll_job(&self) -> Result<Option<Job>, DriversGone> {
        match self.jobs.try_recv() {
            Ok(job) => Ok(Some(job)),
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => Err(DriversGone),
        }
    }

    /// Serves requests with `world` until all drivers are gone.
    pub fn serve(&self, world: &mut impl World) {
        while let Some(job) = self.next_job() {
            job.run(world);
        }
    }

    /// Ends the world: what waits and what comes later fails with `reason`. Dropping the link does the same without a
    /// reason, also when the world's thread panics.
    pub fn close(self, reason: impl Into<String>) {
        *self.end.lock().unwrap_or_else(PoisonError::into_inner) = Some(reason.into());
    }
}

/// All drivers dropped their end of the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("all drivers of the simulated world are gone")]
pub struct DriversGone;

fn bus_error(request: &Request) -> PciError {
    match *request {
        Request::MmioRead { region, offset_bytes, len_bytes, .. } => {
            PciError::Bus { direction: Direction::Read, region, offset_bytes, len_bytes }
        }
        Request::MmioWrite { region, offset_bytes, ref bytes, .. } => {
            PciError::Bus { direction: Direction::Write, region, offset_bytes, len_bytes: bytes.len() }
        }
        Request::Idle { .. } | Request::Reset { .. } => {
            PciError::Gone { reason: format!("the simulated world answered '{request}' with a bus error") }
        }
    }
}
