//! Just enough of the protocol buffer wire format to read trace files, with the byte of every mistake.

use crate::workload::error::{ParseError, Place, Source};

/// The value of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Value<'a> {
    Varint(u64),
    /// Fixed 32 or 64 bits.
    Fixed,
    /// A string, a message, or packed numbers.
    Bytes(Message<'a>),
}

/// A message, or part of one, and where it lies in its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Message<'a> {
    bytes: &'a [u8],
    /// Place of its first byte in the file.
    base: u64,
}

impl<'a> Message<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Message<'a> {
        Message { bytes, base: 0 }
    }

    pub(crate) fn place(&self) -> Place {
        Place::Byte(self.base)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub(crate) fn text(&self, source: Source<'_>) -> Result<&'a str, ParseError> {
        std::str::from_utf8(self.bytes).map_err(|_| source.error(self.place(), "UTF-8 text", "other bytes"))
    }

    fn error(&self, source: Source<'_>, expected: &str) -> ParseError {
        source.error(self.place(), expected, "the end of the data")
    }

    /// Takes a number from the front.
    pub(crate) fn varint(&mut self, source: Source<'_>) -> Result<u64, ParseError> {
        let mut number = 0u64;
        for (index, byte) in self.bytes.iter().enumerate() {
            let bits = u64::from(byte & 0x7f);
            if index == 9 && bits > 1 || index > 9 {
                return Err(source.error(self.place(), "a number of at most 64 bits", "a longer one"));
            }
            number |= bits << (7 * index);
            if byte & 0x80 == 0 {
                self.skip(index + 1);
                return Ok(number);
            }
        }
        Err(self.error(source, "a number"))
    }

    /// Takes bytes, led by their number, from the front.
    pub(crate) fn delimited(&mut self, source: Source<'_>) -> Result<Message<'a>, ParseError> {
        let at = *self;
        let len = self.varint(source)?;
        let Some(bytes) = usize::try_from(len).ok().and_then(|len| self.bytes.get(..len)) else {
            let found = format!("{} left", self.bytes.len());
            return Err(source.error(at.place(), format!("{len} bytes, as their length says"), found));
        };
        let part = Message { bytes, base: self.base };
        self.skip(bytes.len());
        Ok(part)
    }

    /// Takes the next field from the front: its number and value.
    pub(crate) fn field(&mut self, source: Source<'_>) -> Result<Option<(u64, Value<'a>)>, ParseError> {
        if self.is_empty() {
            return Ok(None);
        }
        let at = *self;
        let key = self.varint(source)?;
        let fixed_bytes = match key & 7 {
            0 => return Ok(Some((key >> 3, Value::Varint(self.varint(source)?)))),
            2 => return Ok(Some((key >> 3, Value::Bytes(self.delimited(source)?)))),
            1 => 8,
            5 => 4,
            other => return Err(source.error(at.place(), "a field of wire type 0, 1, 2 or 5", other.to_string())),
        };
        if self.bytes.len() < fixed_bytes {
            return Err(self.error(source, "a number of fixed size"));
        }
        self.skip(fixed_bytes);
        Ok(Some((key >> 3, Value::Fixed)))
    }

    fn skip(&mut self, count: usize) {
        self.bytes = &self.bytes[count..];
        self.base += count as u64;
    }
}

impl Value<'_> {
    /// A repeated number, packed or one by one.
    pub(crate) fn numbers(self, source: Source<'_>, numbers: &mut Vec<u64>) -> Result<(), ParseError> {
        match self {
            Value::Varint(number) => numbers.push(number),
            Value::Bytes(mut packed) => {
                while !packed.is_empty() {
                    numbers.push(packed.varint(source)?);
                }
            }
            Value::Fixed => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: Source<'_> = Source { file: "x" };

    #[test]
    fn fields_of_every_wire_type_are_read() {
        let bytes = [0x08, 0x96, 0x01, 0x12, 0x02, b'h', b'i', 0x1d, 1, 2, 3, 4, 0x21, 1, 2, 3, 4, 5, 6, 7, 8];
        let mut message = Message::new(&bytes);
        assert_eq!(message.field(SOURCE).unwrap(), Some((1, Value::Varint(150))));
        let Some((2, Value::Bytes(text))) = message.field(SOURCE).unwrap() else { panic!("field 2 is text") };
        assert_eq!((text.text(SOURCE).unwrap(), text.place()), ("hi", Place::Byte(5)));
        assert_eq!(message.field(SOURCE).unwrap(), Some((3, Value::Fixed)));
        assert_eq!(message.field(SOURCE).unwrap(), Some((4, Value::Fixed)));
        assert_eq!(message.field(SOURCE).unwrap(), None);
    }

    #[test]
    fn mistakes_are_reported_with_their_byte() {
        let check = |bytes: &[u8], expected: &str| {
            let mut message = Message::new(bytes);
            let error = loop {
                match message.field(SOURCE) {
                    Ok(Some(_)) => {}
                    Ok(None) => panic!("{bytes:x?} was accepted"),
                    Err(error) => break error,
                }
            };
            assert_eq!(error.to_string(), expected);
        };
        check(&[0x08, 0x80], "x at byte 1: expected a number, found the end of the data");
        check(&[0x08, 0x01, 0x12, 0x05, 0x00], "x at byte 3: expected 5 bytes, as their length says, found 1 left");
        check(&[0x0b], "x at byte 0: expected a field of wire type 0, 1, 2 or 5, found 3");
        check(&[0x0d, 1, 2], "x at byte 1: expected a number of fixed size, found the end of the data");
        check(
            &[0x08, 255, 255, 255, 255, 255, 255, 255, 255, 255, 2],
            "x at byte 1: expected a number of at most 64 bits, found a longer one",
        );
    }
}
