//! Arguments as they should not be, and what they make of a call.

use std::ffi::{CStr, CString, c_char};
use std::ptr;

use crate::backend::MAX_NAME;
use crate::ffi::handle::dt_transport;
use crate::ffi::last_error::dt_last_error;
use crate::ffi::status::*;
use crate::fuzz::Input;

/// Of results that a call must not touch.
pub(super) const SENTINEL: u64 = 0xdead_beef_dead_beef;

/// What is wrong with a call that is being made up.
#[derive(Default)]
pub(super) struct Faults(Vec<dt_status>);

impl Faults {
    /// The call may be refused for this.
    pub(super) fn add(&mut self, status: dt_status) {
        self.0.push(status);
    }

    pub(super) fn add_if(&mut self, wrong: bool, status: dt_status) {
        if wrong {
            self.add(status);
        }
    }

    pub(super) fn is_none(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the call, which gave `status`, was taken. It must have been if nothing is wrong with
    /// it, but for `perhaps`, which is up to what happens behind the model's back.
    pub(super) fn judge(&self, name: &str, status: dt_status, perhaps: &[dt_status]) -> bool {
        if status == DT_OK {
            assert!(self.is_none(), "{name} took what is {:?}", self.0);
            return true;
        }
        let sentence = last_error();
        assert!(!sentence.is_empty() && sentence.len() < 512, "{sentence}");
        assert!(!sentence.contains(char::is_control), "{sentence:?}");
        assert!(
            self.0.contains(&status) || perhaps.contains(&status),
            "{name} is {status}, expected {:?} or {perhaps:?}: {sentence}",
            self.0
        );
        false
    }
}

pub(super) fn last_error() -> String {
    // SAFETY: a string of the library, which nothing changes before it is copied.
    let text = unsafe { CStr::from_ptr(dt_last_error()) };
    text.to_str().expect("sentences are UTF-8").to_owned()
}

/// A pointer that is mostly right.
pub(super) fn pointer<T>(input: &mut Input, faults: &mut Faults, right: *mut T) -> *mut T {
    let wrong = match input.below(24) {
        23 => ptr::null_mut(),
        22 if align_of::<T>() > 1 => right.wrapping_byte_add(1),
        _ => return right,
    };
    faults.add(DT_ERR_INVALID_ARG);
    wrong
}

/// As [`pointer`], to an array that may be NULL when it is empty.
pub(super) fn array<T>(
    input: &mut Input,
    faults: &mut Faults,
    right: *mut T,
    count: usize,
) -> *mut T {
    if count > 0 {
        return pointer(input, faults, right);
    }
    if input.one_in(2) {
        ptr::null_mut()
    } else {
        right
    }
}

/// A handle that is mostly `right`.
pub(super) fn handle(
    input: &mut Input,
    faults: &mut Faults,
    right: *mut dt_transport,
) -> *mut dt_transport {
    /// What is no transport.
    static OTHER: [u64; 64] = [7; 64];
    let wrong = match input.below(32) {
        31 => ptr::null_mut(),
        30 => ptr::from_ref(&OTHER).cast_mut().cast(),
        29 => right.wrapping_byte_add(1),
        _ => return right,
    };
    faults.add(DT_ERR_INVALID_ARG);
    wrong
}

/// A name of a peer.
pub(super) enum Name {
    Null,
    Text(CString),
}

impl Name {
    /// One of a few, or one that cannot be.
    pub(super) fn choose(input: &mut Input) -> Name {
        let text = match input.below(16) {
            0..6 => b"a".to_vec(),
            6..10 => b"b".to_vec(),
            10 => "\u{e9}\u{1f600}".into(),
            11 => vec![b'n'; MAX_NAME],
            12 => vec![b'n'; MAX_NAME + 1],
            13 => b"\xff\xfe".to_vec(),
            14 => Vec::new(),
            _ => return Name::Null,
        };
        Name::Text(CString::new(text).expect("no NUL"))
    }

    pub(super) fn as_ptr(&self) -> *const c_char {
        match self {
            Name::Null => ptr::null(),
            Name::Text(text) => text.as_ptr(),
        }
    }

    /// The name, if it can be one.
    pub(super) fn valid(&self, faults: &mut Faults) -> Option<String> {
        let valid = match self {
            Name::Text(text) => text.to_str().ok(),
            Name::Null => None,
        };
        let valid = valid.filter(|name| (1..=MAX_NAME).contains(&name.len()));
        faults.add_if(valid.is_none(), DT_ERR_INVALID_ARG);
        valid.map(str::to_owned)
    }
}
