//! Host memory as an AXI4 memory: an IOMMU fault is a slave error.

use cocotb_rs::axi::{Memory, Response};
use nic_host::{DeviceMemory, HostMemory};

/// The adapter.
pub struct BusMemory(pub HostMemory);

impl Memory for BusMemory {
    fn read(&mut self, addr: u64, data: &mut [u8]) -> Response {
        // The fault itself is recorded by the IOMMU.
        DeviceMemory::read(&self.0, addr, data).map_or(Response::SubordinateError, |()| Response::Okay)
    }

    fn write(&mut self, addr: u64, data: &[u8]) -> Response {
        DeviceMemory::write(&self.0, addr, data).map_or(Response::SubordinateError, |()| Response::Okay)
    }
}
