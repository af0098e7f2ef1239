//! Handshake blobs of any bytes: a blob that is taken is the one and only blob of what it says.

use super::{Facts, VERSION, check, export, frame, parse};
use crate::backend::Kind;
use crate::error::Status;
use crate::fingerprint;
use crate::fuzz::SENTENCE;
use crate::fuzz::meter::measured;

/// Bytes that claim to be a handshake blob, or the body of one: no fuzzer makes digests.
pub fn handshake(data: &[u8]) {
    read(data);
    read(&frame(VERSION, data));
}

fn read(blob: &[u8]) {
    let (result, peak) = measured(|| parse(blob));
    assert!(peak <= blob.len() + SENTENCE, "{peak} bytes");
    let facts = match result {
        Ok(facts) => facts,
        Err(error) => {
            return assert!(
                matches!(error.status, Status::InvalidArg | Status::Incompatible),
                "{error}"
            );
        }
    };
    assert!(export(&facts) == blob, "another blob says the same");
    assert!(facts.region.base() != 0 && facts.region.end() > facts.region.base());
    assert!(fingerprint::compatible(
        &facts.fingerprint,
        &facts.fingerprint
    ));
    judge(&facts);
}

/// Both sides come to the same, and only by what they must agree on.
fn judge(facts: &Facts) {
    let others = [Kind::Local, Kind::Nixl]
        .into_iter()
        .flat_map(|backend| ["", "0123456789abcdef"].map(|digits| (backend, digits)));
    for (backend, digits) in others {
        let other = Facts {
            backend,
            fingerprint: digits.to_owned(),
            region: facts.region,
            metadata: Vec::new(),
        };
        let fits = backend == facts.backend
            && (digits.is_empty() || facts.fingerprint.is_empty() || digits == facts.fingerprint);
        for result in [check(facts, &other), check(&other, facts)] {
            match result {
                Ok(()) => assert!(fits),
                Err(error) => assert!(!fits && error.status == Status::Incompatible, "{error}"),
            }
        }
    }
    assert_eq!(check(facts, facts), Ok(()));
}
