//! The committed header is the one that the sources give.

#[test]
fn the_committed_header_is_up_to_date() {
    let generated = include_str!(concat!(env!("OUT_DIR"), "/dt.h"));
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/include/dt.h");
    let committed = std::fs::read_to_string(path).unwrap_or_default();
    if let Some(at) = (1..)
        .zip(generated.lines().zip(committed.lines()))
        .find(|(_, (a, b))| a != b)
    {
        let (line, (generated, committed)) = at;
        panic!(
            "include/dt.h differs from the sources in line {line}:\n  sources:   {generated}\n  \
             committed: {committed}\nrun `DT_UPDATE_HEADER=1 cargo build` and commit include/dt.h"
        );
    }
    assert_eq!(
        generated.len(),
        committed.len(),
        "include/dt.h is not as long as what the sources give; \
         run `DT_UPDATE_HEADER=1 cargo build` and commit include/dt.h"
    );
}
