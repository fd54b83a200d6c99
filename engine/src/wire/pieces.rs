//! A message in pieces, so that large shared parts are not copied for each receiver.

use bytes::Bytes;
use std::mem;

/// The size in bytes from which a piece is shared instead of copied. Each piece becomes an HTTP/2 frame
/// of its own.
pub(crate) const WORTH_SHARING: usize = 4096;

#[derive(Debug)]
pub(crate) struct Pieces {
    done: Vec<Bytes>,
    open: Vec<u8>,
}

impl Pieces {
    /// Makes an empty message with room for its own bytes.
    pub(crate) fn with_capacity(own: usize) -> Pieces {
        Pieces { done: Vec::new(), open: Vec::with_capacity(own) }
    }

    /// Returns the buffer for the message's own bytes.
    pub(crate) fn own(&mut self) -> &mut Vec<u8> {
        &mut self.open
    }

    /// Adds bytes that other receivers get too.
    pub(crate) fn share(&mut self, bytes: Bytes) {
        if bytes.len() < WORTH_SHARING {
            self.open.extend_from_slice(&bytes);
        } else {
            self.close();
            self.done.push(bytes);
        }
    }

    fn close(&mut self) {
        if !self.open.is_empty() {
            self.done.push(mem::take(&mut self.open).into());
        }
    }

    pub(crate) fn finish(mut self) -> Vec<Bytes> {
        self.close();
        self.done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_pieces_are_not_copied() {
        let large = Bytes::from(vec![7; WORTH_SHARING]);
        let mut pieces = Pieces::with_capacity(8);
        pieces.own().push(1);
        pieces.share(Bytes::from_static(&[2]));
        pieces.share(large.clone());
        pieces.own().push(3);
        let pieces = pieces.finish();
        assert_eq!((&pieces[0][..], &pieces[2][..]), (&[1, 2][..], &[3][..]));
        assert_eq!(pieces[1].as_ptr(), large.as_ptr());
        assert!(Pieces::with_capacity(0).finish().is_empty());
    }
}
