//! Frames of the model and frames of the network: the same three parts, so a payload is passed on and never copied.

use nic_fabric::frame as fabric;
use nic_model::wire::frame as model;

/// The model's frame as the network carries it.
#[inline]
pub fn to_fabric(frame: &model::Frame) -> fabric::Frame {
    let payload = match &frame.payload {
        model::Payload::Virtual(0) => fabric::Payload::Empty,
        model::Payload::Virtual(len) => fabric::Payload::Virtual(*len),
        model::Payload::Bytes { buffer, start, len } => {
            let len = u16::try_from(*len).expect("the payload of a frame is not as long as that");
            fabric::Payload::Bytes { data: buffer.clone(), offset: *start, len }
        }
    };
    let (header, trailer) = frame.rooms();
    fabric::Frame::from_rooms((header, frame.header().len()), payload, (trailer, frame.trailer().len()))
}

/// The payload of a frame of the network as the model takes it.
#[inline]
pub fn to_model(payload: &fabric::Payload) -> model::Payload {
    match payload {
        fabric::Payload::Empty => model::Payload::EMPTY,
        fabric::Payload::Virtual(len) => model::Payload::Virtual(*len),
        fabric::Payload::Bytes { data, offset, len } => {
            model::Payload::Bytes { buffer: data.clone(), start: *offset, len: u32::from(*len) }
        }
    }
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
        for payload in payloads {
            let frame = model::Frame::new(&[1, 2, 3], payload, &[0, 9]);
            let carried = to_fabric(&frame);
            assert_eq!(carried.to_bytes(), frame.to_bytes());
            assert_eq!(carried.is_virtual(), frame.is_virtual());
            let payload = to_model(carried.payload());
            assert_eq!(model::Frame::new(carried.header(), payload, carried.trailer()), frame);
        }
    }

    #[test]
    fn payload_bytes_are_shared_and_not_copied() {
        let buffer: Arc<[u8]> = vec![5; 64].into();
        let payload = model::Payload::Bytes { buffer: buffer.clone(), start: 1, len: 2 };
        let there = to_fabric(&model::Frame::new(&[], payload, &[]));
        let model::Payload::Bytes { buffer: same, .. } = to_model(there.payload()) else { panic!("bytes stay bytes") };
        assert!(Arc::ptr_eq(&buffer, &same));
    }
}
