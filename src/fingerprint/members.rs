//! The members of objects, brought into order.
//!
//! The canonical text is written in source order first, with the brackets of every object where
//! they stood. Only an object whose keys are out of order, or repeated, needs more: a list of the
//! pieces of that text that are its members, in the order in which they belong. One pass at the end
//! then copies each byte at most once, however deep such objects stand in each other, and no tree
//! is built that would have to be walked or dropped.

use std::ops::Range;

/// The members of all objects of one text.
#[derive(Default)]
pub(super) struct Members {
    /// Of the objects that are open, outer before inner.
    pending: Vec<Member>,
    /// The keys of `pending`, unescaped, in bytes that sort.
    keys: Vec<u8>,
    /// The objects that were closed and are not yet right, inner before outer.
    disordered: Vec<Disordered>,
    /// What `disordered` consists of.
    pieces: Vec<Range<usize>>,
}

struct Member {
    /// Within `keys`.
    key: Range<usize>,
    /// Key, colon and value, within the text in source order.
    text: Range<usize>,
}

/// An object whose members do not stand as they should.
struct Disordered {
    /// From its opening bracket up to its closing one, within the text in source order. The bracket
    /// is part of it so that no member begins where its object does.
    span: Range<usize>,
    /// Its members in their right order, within `pieces`.
    members: Range<usize>,
}

/// An object whose closing bracket has not been seen.
pub(super) struct OpenObject {
    first_member: usize,
    first_key: usize,
    start: usize,
}

impl Members {
    /// An object opens, with the bracket at `start` in the text.
    pub(super) fn open(&self, start: usize) -> OpenObject {
        OpenObject {
            first_member: self.pending.len(),
            first_key: self.keys.len(),
            start,
        }
    }

    /// A key begins, at `at` in the text; its bytes go to [`Members::key_bytes`].
    pub(super) fn begin(&mut self, at: usize) {
        let key = self.keys.len();
        self.pending.push(Member {
            key: key..key,
            text: at..at,
        });
    }

    /// Where the bytes of the key that begins are appended.
    pub(super) fn key_bytes(&mut self) -> &mut Vec<u8> {
        &mut self.keys
    }

    /// The key that began is complete.
    pub(super) fn end_key(&mut self) {
        self.current().key.end = self.keys.len();
    }

    /// The value of the innermost object's last member ends at `at` in the text.
    pub(super) fn end_value(&mut self, at: usize) {
        self.current().text.end = at;
    }

    fn current(&mut self) -> &mut Member {
        self.pending.last_mut().expect("a member has begun")
    }

    /// The innermost object, `object`, closes, with the bracket at `end` in the text.
    pub(super) fn close(&mut self, object: OpenObject, end: usize) {
        let keys = &self.keys;
        let key = |member: &Member| &keys[member.key.clone()];
        let members = &mut self.pending[object.first_member..];
        if !members.is_sorted_by(|a, b| key(a) < key(b)) {
            // Stable, so that of equal keys the last in the text is the last of its group: the one
            // whose value counts.
            members.sort_by(|a, b| key(a).cmp(key(b)));
            let first_piece = self.pieces.len();
            for group in members.chunk_by(|a, b| key(a) == key(b)) {
                self.pieces
                    .extend(group.last().map(|member| member.text.clone()));
            }
            self.disordered.push(Disordered {
                span: object.start..end,
                members: first_piece..self.pieces.len(),
            });
        }
        self.pending.truncate(object.first_member);
        self.keys.truncate(object.first_key);
    }

    /// `text`, which is in source order, with every object's members in order.
    pub(super) fn arrange(mut self, text: String) -> String {
        if self.disordered.is_empty() {
            return text;
        }
        self.disordered
            .sort_unstable_by_key(|object| object.span.start);
        let mut arranged = String::with_capacity(text.len());
        // What is still to be copied, last first; with a comma in front where one belongs.
        let mut rest = vec![(0..text.len(), "")];
        while let Some((piece, comma)) = rest.pop() {
            arranged.push_str(comma);
            let next = self
                .disordered
                .partition_point(|object| object.span.start < piece.start);
            let inside = self
                .disordered
                .get(next)
                .filter(|object| object.span.start < piece.end);
            let Some(object) = inside else {
                arranged.push_str(&text[piece]);
                continue;
            };
            arranged.push_str(&text[piece.start..=object.span.start]);
            rest.push((object.span.end..piece.end, ""));
            let members = &self.pieces[object.members.clone()];
            for (place, member) in members.iter().enumerate().rev() {
                rest.push((member.clone(), if place == 0 { "" } else { "," }));
            }
        }
        arranged
    }
}
