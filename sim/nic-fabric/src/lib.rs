//! A deterministic packet-level network: links, queues, switches, loss.
