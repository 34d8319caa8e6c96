//! What is wrong with a file, where, and what was expected there.

use std::fmt;

/// A place in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// A line of text, from 1.
    Line(u32),
    /// A byte of a binary file, from 0.
    Byte(u64),
    /// The file as a whole.
    Whole,
}

/// A file that is no workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    /// The file, as its caller named it.
    pub file: String,
    /// Where in it.
    pub place: Place,
    /// What should stand there.
    pub expected: String,
    /// What does.
    pub found: String,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.place {
            Place::Line(line) => write!(f, "{}:{line}: ", self.file)?,
            Place::Byte(byte) => write!(f, "{} at byte {byte}: ", self.file)?,
            Place::Whole => write!(f, "{}: ", self.file)?,
        }
        write!(f, "expected {}, found {}", self.expected, self.found)
    }
}

impl std::error::Error for ParseError {}

/// The file being read, so that every complaint names it.
#[derive(Clone, Copy)]
pub(crate) struct Source<'a> {
    pub file: &'a str,
}

impl Source<'_> {
    /// A complaint about a place.
    pub(crate) fn error(&self, place: Place, expected: impl Into<String>, found: impl Into<String>) -> ParseError {
        ParseError { file: self.file.into(), place, expected: expected.into(), found: found.into() }
    }

    /// A complaint about a line.
    pub(crate) fn at_line(&self, line: u32, expected: impl Into<String>, found: impl Into<String>) -> ParseError {
        self.error(Place::Line(line), expected, found)
    }
}

/// A word as an error shows it.
pub(crate) fn shown(word: Option<&str>) -> String {
    match word {
        Some(word) => format!("\"{word}\""),
        None => "the end of the line".into(),
    }
}

/// The words of one line, taken from the front.
pub(crate) struct Words<'a> {
    source: Source<'a>,
    line: u32,
    rest: std::str::SplitWhitespace<'a>,
}

impl<'a> Words<'a> {
    pub(crate) fn new(source: Source<'a>, line: u32, text: &'a str) -> Words<'a> {
        Words { source, line, rest: text.split_whitespace() }
    }

    pub(crate) fn next(&mut self) -> Option<&'a str> {
        self.rest.next()
    }

    pub(crate) fn error(&self, expected: impl Into<String>, found: Option<&str>) -> ParseError {
        self.source.at_line(self.line, expected, shown(found))
    }

    /// The next word, which must be this one.
    pub(crate) fn expect(&mut self, word: &str) -> Result<(), ParseError> {
        match self.next() {
            Some(found) if found == word => Ok(()),
            found => Err(self.error(format!("\"{word}\""), found)),
        }
    }

    /// The next word as a number of at most `max`.
    pub(crate) fn number(&mut self, what: &str, max: u64) -> Result<u64, ParseError> {
        let word = self.next();
        self.parse(word, word.unwrap_or(""), what, max)
    }

    /// Part of a word, `text`, as a number of at most `max`; `word` is what an error shows.
    pub(crate) fn parse(&self, word: Option<&str>, text: &str, what: &str, max: u64) -> Result<u64, ParseError> {
        let number = text.parse::<u64>().ok().filter(|number| *number <= max);
        number.ok_or_else(|| self.error(format!("{what} from 0 to {max}"), word))
    }

    /// Nothing may follow.
    pub(crate) fn end(&mut self) -> Result<(), ParseError> {
        match self.next() {
            None => Ok(()),
            found => Err(self.error("the end of the line", found)),
        }
    }
}

/// Lines with their numbers, without those that are empty or begin with `#` or `//`.
pub(crate) fn lines(text: &str) -> impl Iterator<Item = (u32, &str)> {
    let is_content = |line: &str| !line.is_empty() && !line.starts_with('#') && !line.starts_with("//");
    (1..).zip(text.lines()).map(|(number, line)| (number, line.trim())).filter(move |entry| is_content(entry.1))
}
