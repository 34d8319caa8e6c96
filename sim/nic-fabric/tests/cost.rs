//! What a hop costs, in counts that no machine changes: events, and records allocated for frames.

use nic_fabric::{Context, Ecn, Fabric, Frame, LeafSpine, LinkSpec, Node, NodeId, PlaneLinks, Topology};

const HOSTS: u32 = 16;
const WINDOW_FRAMES: u32 = 32;
const FRAMES: u32 = 400;

/// Keeps a window of frames under way to one host and answers those of others with short ones.
struct Talker {
    to: u32,
    frames_left: u32,
}

impl Talker {
    fn send(&mut self, ctx: &mut Context<'_>) {
        if self.frames_left > 0 {
            self.frames_left -= 1;
            ctx.send(0, frame(self.to, ctx.node().0).with_virtual_payload(4096));
        }
    }
}

impl Node for Talker {
    fn on_start(&mut self, ctx: &mut Context<'_>) {
        (0..WINDOW_FRAMES).for_each(|_| self.send(ctx));
    }

    fn on_frame(&mut self, ctx: &mut Context<'_>, port: u16, frame: Frame) {
        if frame.len_bytes() < 100 {
            return self.send(ctx);
        }
        let from = u32::from(frame.header()[11]) - 1;
        drop(frame);
        ctx.send(port, self::frame(from, ctx.node().0));
    }

    fn on_timer(&mut self, _: &mut Context<'_>, _: u32) {}
}

/// A UDP frame without content; the last byte of its source MAC address names the sender.
fn frame(to: u32, from: u32) -> Frame {
    let mut header = [0; 82];
    header[..6].copy_from_slice(&Topology::mac_of(to, 0));
    header[6..12].copy_from_slice(&Topology::mac_of(from, 0));
    header[12..16].copy_from_slice(&[8, 0, 0x45, 2]);
    header[23] = 17;
    header[26..30].copy_from_slice(&Topology::ipv4_of(from, 0).octets());
    header[30..34].copy_from_slice(&Topology::ipv4_of(to, 0).octets());
    Frame::new(&header)
}

fn fabric() -> Fabric {
    let link = LinkSpec::new(400_000, 500_000).with_buffer_bytes(2 << 20).with_ecn(Ecn::step(64 << 10));
    let planes = vec![PlaneLinks { host: link.clone(), core: link }];
    let topology = Topology::leaf_spine(&LeafSpine { leaf_count: 4, hosts_per_leaf: 4, spine_count: 4, planes });
    Fabric::new(&topology, 1).expect("a valid topology")
}

fn attach(fabric: &mut Fabric, frames: u32) {
    for host in 0..HOSTS {
        let talker = Talker { to: (host * 5 + 3) % HOSTS, frames_left: frames };
        fabric.attach(NodeId(host), talker);
    }
}

#[test]
fn a_hop_is_one_event_whatever_queues_marks_and_load() {
    let mut fabric = fabric();
    attach(&mut fabric, FRAMES);
    fabric.run_until_idle(u64::MAX);
    let stats = fabric.stats();
    assert_eq!(stats.delivered, u64::from(2 * HOSTS * FRAMES));
    assert!(stats.ecn_marked > 0, "queues were long enough to mark");
    assert_eq!(stats.events, stats.link_hops);
}

#[test]
fn records_of_frames_are_used_again_and_not_allocated_for_each() {
    let before = Frame::made_count();
    let mut fabric = fabric();
    attach(&mut fabric, FRAMES);
    fabric.run_until_idle(u64::MAX);
    let made = Frame::made_count() - before;
    // The window of every host, and the frame that a node looks at while it sends another.
    assert!(made <= u64::from(HOSTS * WINDOW_FRAMES) + 1, "{made} records");
    // A second run finds all it needs.
    let before = Frame::made_count();
    attach(&mut fabric, FRAMES);
    fabric.run_until_idle(u64::MAX);
    assert_eq!(fabric.stats().delivered, u64::from(4 * HOSTS * FRAMES));
    assert_eq!(Frame::made_count(), before);
}
