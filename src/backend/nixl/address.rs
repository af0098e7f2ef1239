//! The form of a UCX worker address, as far as it can be judged from outside.
//!
//! UCX reads an address without knowing its length, and trusts the lengths in it. Nothing here
//! knows UCX's transports: an address is compared with this process's own, which has the same form
//! wherever two processes can talk to each other. What has another form than the one that is known
//! here (`UCX_ADDRESS_VERSION`, which NIXL sets itself on hosts with EFA, `UCX_UNIFIED_MODE`) is left to
//! UCX.
//!
//! An address is a header, the worker's id, and a list of devices with their transports, each of
//! which carries a checksum of its name, some attributes and an address of its own.

use std::collections::BTreeMap;

const LAST: u8 = 0x80;
/// Of a device's memory domain: no transport follows.
const EMPTY_DEVICE: u8 = 0x80;
/// Of a device: one more byte each.
const NUM_PATHS: u8 = 0x40;
const SYS_DEVICE: u8 = 0x20;
const DEVICE_LEN: u8 = 0x1f;
/// Of a transport: addresses of endpoints follow, which a worker's address does not have.
const HAS_EP_ADDRESS: u8 = 0x40;
const TRANSPORT_LEN: u8 = 0x3f;
/// In the header: another id, and the worker's name.
const CLIENT_ID: u8 = 0x40;
const DEBUG_NAME: u8 = 0x10;
const VERSION: u8 = 0x0f;
const NO_DEVICES: u8 = 0xff;

/// Lengths of a transport's device address and own address.
type Lengths = (usize, usize);

/// One transport of an address.
struct Transport<'a> {
    /// The checksum of its name.
    name: u16,
    device_len: usize,
    own: &'a [u8],
}

/// Bytes of attributes that a transport may have. An index follows 16 of them, depending on UCX's
/// settings.
const ATTRIBUTES: [usize; 2] = [16, 17];

/// Where an address of the known form can be reached over IP: a socket transport's own address is its
/// port, in network order.
pub fn ports(address: &[u8]) -> Vec<u16> {
    let transports = ATTRIBUTES
        .into_iter()
        .find_map(|attributes| walk(address, attributes));
    let own = transports.into_iter().flatten().map(|found| found.own);
    own.filter_map(|own| own.try_into().ok().map(u16::from_be_bytes))
        .collect()
}

/// What addresses look like here.
pub struct Form {
    /// First four bits.
    version: u8,
    /// Bytes of a transport's attributes, if the form is known.
    attributes: Option<usize>,
    /// The shortest lengths that this process's own transports have.
    transports: BTreeMap<u16, Lengths>,
}

impl Form {
    /// False when addresses are left to UCX.
    pub fn is_known(&self) -> bool {
        self.attributes.is_some()
    }

    /// The form of this process's own address.
    pub fn of(own: &[u8]) -> Form {
        let version = own.first().map_or(0, |first| first & VERSION);
        let known = ATTRIBUTES
            .into_iter()
            .find_map(|attributes| Some((attributes, walk(own, attributes)?)));
        let (attributes, transports) = match known {
            Some((attributes, found)) if version == 0 => (Some(attributes), shortest(found)),
            _ => (None, BTreeMap::new()),
        };
        Form {
            version,
            attributes,
            transports,
        }
    }

    /// False if UCX could read beyond the end of `address`, or take it for another version's.
    pub fn fits(&self, address: &[u8]) -> bool {
        if address.first().map(|first| first & VERSION) != Some(self.version) {
            return false;
        }
        let Some(attributes) = self.attributes else {
            return true;
        };
        walk(address, attributes).is_some_and(|found| {
            found.iter().all(|other| {
                // A transport that this side does not have is ignored.
                self.transports
                    .get(&other.name)
                    .is_none_or(|least| other.device_len >= least.0 && other.own.len() >= least.1)
            })
        })
    }
}

fn shortest(found: Vec<Transport>) -> BTreeMap<u16, Lengths> {
    let mut transports = BTreeMap::new();
    for one in found {
        let lengths = (one.device_len, one.own.len());
        let least: &mut Lengths = transports.entry(one.name).or_insert(lengths);
        *least = (least.0.min(lengths.0), least.1.min(lengths.1));
    }
    transports
}

/// The transports of an address; `None` unless it ends exactly where its last one does.
fn walk(address: &[u8], attributes: usize) -> Option<Vec<Transport<'_>>> {
    let mut left = address;
    let header = byte(&mut left)?;
    skip(&mut left, 8)?;
    if header & CLIENT_ID != 0 {
        skip(&mut left, 8)?;
    }
    if header & DEBUG_NAME != 0 {
        let name = byte(&mut left)?;
        skip(&mut left, usize::from(name))?;
    }
    let mut transports = Vec::new();
    if left.first() == Some(&NO_DEVICES) {
        return (left.len() == 1).then_some(transports);
    }
    loop {
        let memory_domain = byte(&mut left)?;
        let device = byte(&mut left)?;
        for extra in [NUM_PATHS, SYS_DEVICE] {
            if device & extra != 0 {
                skip(&mut left, 1)?;
            }
        }
        let device_len = usize::from(device & DEVICE_LEN);
        skip(&mut left, device_len)?;
        let mut last_transport = memory_domain & EMPTY_DEVICE != 0;
        while !last_transport {
            let name = u16::from_le_bytes([byte(&mut left)?, byte(&mut left)?]);
            skip(&mut left, attributes)?;
            let transport = byte(&mut left)?;
            if transport & HAS_EP_ADDRESS != 0 {
                return None;
            }
            let (own, rest) = left.split_at_checked(usize::from(transport & TRANSPORT_LEN))?;
            left = rest;
            transports.push(Transport {
                name,
                device_len,
                own,
            });
            last_transport = transport & LAST != 0;
        }
        if device & LAST != 0 {
            return left.is_empty().then_some(transports);
        }
    }
}

fn byte(left: &mut &[u8]) -> Option<u8> {
    let (first, rest) = left.split_first()?;
    *left = rest;
    Some(*first)
}

fn skip(left: &mut &[u8], count: usize) -> Option<()> {
    *left = left.get(count..)?;
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// One device with one transport, and an empty last one, as agents over sockets export it.
    fn address(device: &[u8], own: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0x20, 1, 2, 3, 4, 5, 6, 7, 8];
        bytes.extend([0, NUM_PATHS | device.len() as u8, 2]);
        bytes.extend(device);
        bytes.extend([0xcd, 0xab]);
        bytes.extend([9; 16]);
        bytes.push(LAST | own.len() as u8);
        bytes.extend(own);
        bytes.extend([EMPTY_DEVICE | 3, LAST]);
        bytes
    }

    #[test]
    fn takes_its_like_and_no_shorter_ones() {
        let own = address(b"10.0.0", b"port");
        let form = Form::of(&own);
        assert_eq!(form.attributes, Some(16));
        assert_eq!(form.transports, BTreeMap::from([(0xabcd, (6, 4))]));
        assert!(form.fits(&own));
        assert!(form.fits(&address(b"10.0.0.longer", b"port2")));
        assert!(!form.fits(&address(b"10", b"port")));
        assert!(!form.fits(&address(b"10.0.0", b"")));
        for len in 0..own.len() {
            assert!(!form.fits(&own[..len]), "cut to {len}");
        }
        let mut versions = own.clone();
        versions[0] |= 1;
        assert!(!form.fits(&versions));
        let longer: Vec<u8> = own.iter().copied().chain([0]).collect();
        assert!(!form.fits(&longer));
    }

    #[test]
    fn a_socket_is_reached_at_its_port() {
        assert_eq!(ports(&address(b"10.0.0", &[0x9c, 0x41])), [40001]);
        assert_eq!(ports(&address(b"10.0.0", b"more")), [0u16; 0]);
        assert_eq!(ports(&[0x01, 0xff, 0xff]), [0u16; 0]);
    }

    #[test]
    fn an_unknown_form_is_left_to_ucx() {
        let form = Form::of(&[0x01, 0xff, 0xff]);
        assert!(form.fits(&[0x21, 7, 7, 7]));
        assert!(!form.fits(&[0x20, 7, 7, 7]) && !form.fits(&[]));
    }

    proptest! {
        #[test]
        fn walks_end(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let form = Form::of(&address(b"10.0.0", b"port"));
            form.fits(&bytes);
            Form::of(&bytes);
        }
    }
}
