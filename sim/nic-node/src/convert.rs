//! Frames of the model and frames of the network: the same three parts, so a payload is passed on and never copied.

use nic_fabric::frame as fabric;
use nic_model::wire::frame as model;

/// The model's frame as the network carries it.
#[inline]
pub fn to_fabric(frame: &model::Frame) -> fabric::Frame {
    let out = fabric::Frame::new(frame.header()).with_trailer(frame.trailer());
    match &frame.payload {
        model::Payload::Virtual(0) => out,
        model::Payload::Virtual(len) => out.with_virtual_payload(*len),
        model::Payload::Bytes { buffer, start, len } => {
            out.with_payload_range(buffer.clone(), *start as usize, *len as usize)
        }
    }
}

/// The network's frame as the model takes it, in the place of another.
#[inline]
pub fn to_model(frame: &fabric::Frame, out: &mut model::Frame) {
    let payload = match frame.payload() {
        fabric::Payload::Empty => model::Payload::EMPTY,
        fabric::Payload::Virtual(len) => model::Payload::Virtual(*len),
        fabric::Payload::Bytes { data, offset, len } => {
            model::Payload::Bytes { buffer: data.clone(), start: *offset, len: *len }
        }
    };
    out.assign(frame.header(), payload, frame.trailer());
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn a_frame_comes_back_from_the_network_as_it_went() {
        let buffer: Arc<[u8]> = (0..100).collect::<Vec<u8>>().into();
        let payloads = [
            model::Payload::EMPTY,
            model::Payload::Virtual(4096),
            model::Payload::Bytes { buffer: buffer.clone(), start: 7, len: 50 },
        ];
        let mut back = model::Frame::new(&[9; 99], model::Payload::EMPTY, &[9; 8]);
        for payload in payloads {
            let frame = model::Frame::new(&[1, 2, 3], payload, &[0, 9]);
            let carried = to_fabric(&frame);
            assert_eq!(carried.to_bytes(), frame.to_bytes());
            assert_eq!(carried.is_virtual(), frame.is_virtual());
            to_model(&carried, &mut back);
            assert_eq!(back, frame);
        }
    }

    #[test]
    fn payload_bytes_are_shared_and_not_copied() {
        let buffer: Arc<[u8]> = vec![5; 64].into();
        let payload = model::Payload::Bytes { buffer: buffer.clone(), start: 1, len: 2 };
        let there = to_fabric(&model::Frame::new(&[], payload, &[]));
        let mut back = model::Frame::empty();
        to_model(&there, &mut back);
        let model::Payload::Bytes { buffer: same, .. } = back.payload else { panic!("bytes stay bytes") };
        assert!(Arc::ptr_eq(&buffer, &same));
    }
}
