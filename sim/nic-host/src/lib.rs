//! Host side in memory: address space, IOMMU with faults, interrupt sink.
