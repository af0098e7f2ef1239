#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| datatransport::fuzz::descriptor(data));
