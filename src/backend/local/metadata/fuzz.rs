//! LOCAL metadata of any bytes: what is taken is possible, and comes back when it is written again.

use serde_json::Value;

use super::*;
use crate::fuzz::SENTENCE;
use crate::fuzz::meter::measured;

/// Bytes that claim to be metadata, or the body of it: no fuzzer makes checksums.
pub fn local_metadata(data: &[u8]) {
    read(data);
    read(&frame(VERSION, data));
}

fn read(blob: &[u8]) {
    let (result, peak) = measured(|| Metadata::parse(blob));
    assert!(peak <= 4 * blob.len() + SENTENCE, "{peak} bytes");
    let metadata = match result {
        Ok(metadata) => metadata,
        Err(error) => {
            return assert!(
                matches!(error.status, Status::InvalidArg | Status::Incompatible),
                "{error}"
            );
        }
    };
    let again = metadata.encode().expect("its name was checked");
    assert_eq!(Metadata::parse(&again).as_ref(), Ok(&metadata));
    let body = &blob[HEADER..blob.len() - CHECKSUM];
    same(&metadata, &serde_json::from_slice(body).expect("a body"));
}

/// `body` says the same to a reader that knows nothing of the format.
fn same(metadata: &Metadata, body: &Value) {
    assert_eq!(body["agent_name"], metadata.agent_name);
    assert_eq!(body["boot_id"], metadata.host.boot_id);
    assert_eq!(body["pid_ns"], metadata.host.pid_ns);
    assert_eq!(body["pid"], metadata.process.pid());
    assert_eq!(body["start_time"], metadata.process.start());
    let incarnation = body["incarnation"].as_str().expect("text").to_lowercase();
    assert_eq!(incarnation, format!("{:032x}", metadata.incarnation));
    assert_eq!(body["base"], metadata.region.base());
    assert_eq!(body["num_blocks"], metadata.region.num_blocks());
    assert_eq!(body["block_len"], metadata.region.block_len());
    assert_eq!(body["fuse"], metadata.fuse);
    let same_file = |body: &Value, file: &FileRef| {
        assert!(file.fd >= 0);
        assert_eq!(body["fd"], file.fd);
        assert_eq!(body["dev"], file.dev);
        assert_eq!(body["ino"], file.ino);
    };
    same_file(&body["control"], &metadata.control);
    same_file(&body["mail"], &metadata.mail);
    match &metadata.region_file {
        None => assert!(body["region_fd"].is_null()),
        Some(RegionFile { file, offset }) => {
            same_file(&body["region_fd"], file);
            assert_eq!(body["region_fd"]["offset"], *offset);
            // What mmap takes.
            assert!(offset % page_size() == metadata.region.base() % page_size());
            assert!(offset + metadata.region.bytes() <= i64::MAX as u64);
        }
    }
}
