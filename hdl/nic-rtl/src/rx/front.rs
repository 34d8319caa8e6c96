//! Start of the receive pipeline: takes beats from the MAC, tells each frame's shape and length.
//!
//! | port | width | handshake | meaning |
//! |---|---|---|---|
//! | `s_axis` | 512-bit AXI-Stream | valid/ready | frames without FCS, byte 0 in bits 7:0; `user` on the last beat = bad frame |
//! | `room` | 1 | | the pipeline takes a beat: `ready` of `s_axis` |
//! | `enable` | 1 | | sampled at a frame's first beat; frames begun while it is 0 vanish uncounted |
//! | `beats` | [`Beats`] | valid only | beats with the shape of their frame, bytes beyond the end zero |
//! | `end` | [`FrameEnd`] | with the last beat | length and what the MAC said |
//!
//! Latency 2 cycles from the first register; 1 beat per cycle. Reset clears the valid bits. Keeps are ones from byte 0
//! on and full before the last beat (AXI-Stream without null bytes). State: registers. Drops: none here; conditions
//! for `rx_too_many_tags_count` and `rx_not_ip_count` come from here.

use super::chain::{rx_links, Link, BEAT_BYTES};
use crate::prim::{
    lanes::{gather, keep_len, mask_bytes},
    Axis,
};
use nic_spec::{
    consts::VLAN_TAGS_MAX,
    wire::{Eth, Vlan, ETHERTYPE_IPV4, ETHERTYPE_IPV6, ETHERTYPE_VLAN, ETHERTYPE_VLAN_SERVICE},
};
use rtl_graph::*;

/// Bits of a beat.
pub const BEAT_BITS: u32 = 8 * BEAT_BYTES as u32;
/// Shapes of the headers before UDP.
pub const LINKS: u32 = 2 * (VLAN_TAGS_MAX as u32 + 1);
/// Bits of a frame's length: up to 16,383 bytes, beyond which a frame is too long in any case.
pub const LEN_BITS: u32 = 14;

bundle! {
    /// Beats of frames inside the receive pipeline: one may come every cycle and nobody can stop it.
    pub struct Beats {
        fwd
        /// The bytes, byte 0 in bits 7:0.
        data: BEAT_BITS,
        /// First beat of a frame.
        first: 1,
        /// Last beat of a frame.
        last: 1,
        /// One-hot shape of the frame, in the order of `rx_links`; zero when it is none of them.
        link: LINKS,
        /// A beat is there.
        valid: 1
    }
}

bundle! {
    /// What is known of a frame with its last beat.
    pub struct FrameEnd {
        fwd
        /// Length. Bytes; modulo 2^14 when `is_over`.
        len: LEN_BITS,
        /// Longer than the length can say.
        is_over: 1,
        /// The MAC calls the frame bad.
        is_bad: 1,
        /// More VLAN tags than allowed.
        too_many_tags: 1,
        /// Neither IPv4 nor IPv6.
        not_ip: 1
    }
}

module! {
    /// Start of the receive pipeline.
    pub struct Front = "nic_rx_front" () {
        s_axis: in Axis(BEAT_BYTES as u32),
        room: in Uint(1),
        enable: in Uint(1),
        beats: out Beats,
        end: out FrameEnd,
    } |b| {
        // s0: the beat as it came.
        s_axis.tready.set(room);
        let fire = (s_axis.tvalid & room).named("fire");
        let (mid_frame, is_on) = (b.reg_reset("mid_frame", 1, 0), b.reg_reset("is_on", 1, 0));
        mid_frame.set_en(fire, !s_axis.tlast);
        let on = mid_frame.mux(is_on, enable).named("on");
        is_on.set_en(fire, on);
        let s0_valid = (fire & on).delay_reset("s0_valid", 1);
        let s0_data = s_axis.tdata.delay("s0_data", 1);
        let s0_keep = s_axis.tkeep.delay("s0_keep", 1);
        let s0_first = (!mid_frame).delay("s0_first", 1);
        let s0_last = s_axis.tlast.delay("s0_last", 1);
        let s0_bad = s_axis.tuser.delay("s0_bad", 1);
        b.assert("keep_is_contiguous", !s0_valid | (s0_keep & s0_keep.inc()).is_zero());
        b.assert("only_the_last_beat_is_partial", !s0_valid | s0_last | s0_keep.all());

        // s1: length of the beat; the types that stand where tags may end.
        let s1_valid = s0_valid.delay_reset("s1_valid", 1);
        let s0_masked = mask_bytes(s0_data, s0_keep);
        let s1_data = s0_masked.delay("s1_data", 1);
        let s1_len = keep_len(s0_keep).delay("s1_len", 1);
        let s1_first = s0_first.delay("s1_first", 1);
        let s1_last = s0_last.delay("s1_last", 1);
        let s1_bad = s0_bad.delay("s1_bad", 1);
        let type_behind = |tags: usize| match tags.checked_sub(1) {
            None => gather(s0_masked, Eth::LAYOUT.field("ethertype").lanes(0)),
            Some(before) => gather(s0_masked, Vlan::LAYOUT.field("ethertype").lanes(Eth::LEN + before * Vlan::LEN)),
        };
        let types: Vec<S> = (0..=VLAN_TAGS_MAX).map(type_behind).collect();
        let is_one_of = |tags: usize, codes: &[u16], name: &str| {
            let hits: Vec<S> = codes.iter().map(|code| types[tags].eq(*code)).collect();
            b.or_tree(&hits).delay(&format!("s1_{name}_{tags}"), 1)
        };
        let all_tags = 0..=VLAN_TAGS_MAX;
        let tags = [ETHERTYPE_VLAN, ETHERTYPE_VLAN_SERVICE];
        let s1_tag: Vec<S> = all_tags.clone().map(|t| is_one_of(t, &tags, "tag")).collect();
        let s1_ipv4: Vec<S> = all_tags.clone().map(|t| is_one_of(t, &[ETHERTYPE_IPV4], "ipv4")).collect();
        let s1_ipv6: Vec<S> = all_tags.map(|t| is_one_of(t, &[ETHERTYPE_IPV6], "ipv6")).collect();

        // s2: shape of the frame, kept from its first beat on; length so far.
        let behind = |tags: usize| if tags == 0 { b.high() } else { b.and_tree(&s1_tag[..tags]) };
        let is_ip = |l: &Link| if l.is_ipv6 { s1_ipv6[l.tags] } else { s1_ipv4[l.tags] };
        let shape: Vec<S> = rx_links().iter().map(|l| behind(l.tags) & is_ip(l)).collect();
        let s2_valid = s1_valid.delay_reset("s2_valid", 1);
        let s2_data = s1_data.delay("s2_data", 1);
        let s2_first = s1_first.delay("s2_first", 1);
        let s2_last = s1_last.delay("s2_last", 1);
        let s2_bad = s1_bad.delay("s2_bad", 1);
        let begins = (s1_valid & s1_first).named("s1_begins");
        let s2_link = b.reg("s2_link", LINKS);
        s2_link.set_en(begins, b.cat(&shape.iter().rev().copied().collect::<Vec<_>>()));
        let s2_too_many_tags = b.reg("s2_too_many_tags", 1);
        s2_too_many_tags.set_en(begins, b.and_tree(&s1_tag));
        let s2_not_ip = b.reg("s2_not_ip", 1);
        s2_not_ip.set_en(begins, !b.or_tree(&shape));
        let (s2_len, s2_over) = (b.reg("s2_len", LEN_BITS), b.reg("s2_over", 1));
        let sum = s2_len.add_carry(s1_len.zext(LEN_BITS)).named("s1_len_sum");
        s2_len.set_en(s1_valid, s1_first.mux(s1_len.zext(LEN_BITS), sum.trunc(LEN_BITS)));
        s2_over.set_en(s1_valid, !s1_first & (s2_over | sum.msb()));

        beats.data.set(s2_data);
        beats.first.set(s2_first);
        beats.last.set(s2_last);
        beats.link.set(s2_link);
        beats.valid.set(s2_valid);
        end.len.set(s2_len);
        end.is_over.set(s2_over);
        end.is_bad.set(s2_bad);
        end.too_many_tags.set(s2_too_many_tags);
        end.not_ip.set(s2_not_ip);
    }
}
