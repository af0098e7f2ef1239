//! Lines of 64 bytes past the caches: the inner loop of [`streaming`](super::streaming), per processor.
//!
//! A plain store first fetches the line that it is about to overwrite; a non-temporal one does not,
//! and leaves the caches to others. Two streams side by side are a quarter faster than one after the
//! other, since the memory works on both; with three and more the few buffers that gather the bytes
//! of a line get in each other's way.
//!
//! Assembler, not intrinsics: other processes may write to the source and the destination meanwhile,
//! and the compiler has no word in what becomes of such bytes.

use super::copy::Stretch;

/// Bytes of a line: all that non-temporal stores write at once, on the machines that have them.
pub(super) const LINE: usize = 64;

/// How one kind of processor moves lines.
#[derive(Clone, Copy)]
#[cfg_attr(test, derive(Debug))]
pub(super) struct Mover {
    /// For messages.
    #[cfg(test)]
    pub(super) name: &'static str,
    pair: unsafe fn(Stretch, Stretch, usize),
    finish: fn(),
}

impl Mover {
    /// The best one that this processor has. `None`: it has none, or none is known.
    pub(super) fn find() -> Option<Mover> {
        Mover::all().next()
    }

    /// All that this processor has, the best first.
    pub(super) fn all() -> impl Iterator<Item = Mover> {
        #[cfg(target_arch = "x86_64")]
        let found = std::is_x86_feature_detected!("avx2").then_some(x86::AVX2);
        #[cfg(target_arch = "aarch64")]
        let found = Some(aarch64::STNP);
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        let found = None;
        found.into_iter()
    }

    /// Copies the first `count` lines, at least one, of both; their destinations begin on a line.
    /// Where both write the same line, the second one's bytes stay.
    pub(super) fn pair(&self, first: Stretch, second: Stretch, count: usize) {
        let fits = |side: Stretch| side.to().is_multiple_of(LINE) && count <= side.len() / LINE;
        assert!(count > 0 && fits(first) && fits(second));
        // SAFETY: so much is mapped, by the promise that stretches are made of; the processor was
        // asked before this value was handed out.
        unsafe { (self.pair)(first, second, count) }
    }

    /// From here on whoever learns that the lines were copied sees their bytes. Ordinary stores
    /// do not wait for non-temporal ones.
    pub(super) fn finish(&self) {
        (self.finish)();
    }
}

/// Has a line fetched that is read soon. Any address will do.
pub(super) fn prefetch(address: usize) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint, which fails silently where nothing is mapped.
    unsafe {
        std::arch::asm!("prefetcht0 [{}]", in(reg) address, options(nostack, preserves_flags, readonly));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above.
    unsafe {
        std::arch::asm!("prfm pldl1strm, [{}]", in(reg) address, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = address;
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::asm;

    use super::{LINE, Mover, Stretch};

    pub(super) const AVX2: Mover = Mover {
        #[cfg(test)]
        name: "AVX2",
        pair: avx2,
        finish: sfence,
    };

    /// # Safety
    ///
    /// Both have `count` lines, at least one, and `to` of both is the start of one. The processor has
    /// AVX2.
    #[target_feature(enable = "avx2")]
    unsafe fn avx2(first: Stretch, second: Stretch, count: usize) {
        let bytes = count * LINE;
        // SAFETY: it reads and writes the lines, by the promise of the caller.
        unsafe {
            asm!(
                "2:",
                "vmovdqu ymm0, [{from1} + rcx]",
                "vmovdqu ymm1, [{from1} + rcx + 32]",
                "vmovdqu ymm2, [{from2} + rcx]",
                "vmovdqu ymm3, [{from2} + rcx + 32]",
                "vmovntdq [{to1} + rcx], ymm0",
                "vmovntdq [{to1} + rcx + 32], ymm1",
                "vmovntdq [{to2} + rcx], ymm2",
                "vmovntdq [{to2} + rcx + 32], ymm3",
                "add rcx, 64",
                "jnz 2b",
                // Else the next instruction of the SSE kind may be slow.
                "vzeroupper",
                // From the ends, so that the counter is the distance that is left.
                from1 = in(reg) first.from().wrapping_add(bytes),
                from2 = in(reg) second.from().wrapping_add(bytes),
                to1 = in(reg) first.to().wrapping_add(bytes),
                to2 = in(reg) second.to().wrapping_add(bytes),
                inout("rcx") bytes.wrapping_neg() => _,
                // vzeroupper changes all registers of vectors.
                clobber_abi("C"),
                options(nostack),
            );
        }
    }

    fn sfence() {
        // SAFETY: it only orders stores.
        unsafe { asm!("sfence", options(nostack, preserves_flags)) };
    }
}

#[cfg(target_arch = "aarch64")]
mod aarch64 {
    use std::arch::asm;
    use std::sync::atomic::{Ordering, fence};

    use super::{Mover, Stretch};

    pub(super) const STNP: Mover = Mover {
        #[cfg(test)]
        name: "STNP",
        pair: stnp,
        // dmb ish, for which these stores are like any.
        finish: || fence(Ordering::SeqCst),
    };

    /// # Safety
    ///
    /// Both have `count` lines, at least one.
    unsafe fn stnp(first: Stretch, second: Stretch, count: usize) {
        // SAFETY: it reads and writes the lines, by the promise of the caller.
        unsafe {
            asm!(
                "2:",
                "ldp {a:q}, {b:q}, [{from1}], #32",
                "ldp {c:q}, {d:q}, [{from1}], #32",
                "ldp {e:q}, {f:q}, [{from2}], #32",
                "ldp {g:q}, {h:q}, [{from2}], #32",
                "stnp {a:q}, {b:q}, [{to1}]",
                "stnp {c:q}, {d:q}, [{to1}, #32]",
                "stnp {e:q}, {f:q}, [{to2}]",
                "stnp {g:q}, {h:q}, [{to2}, #32]",
                "add {to1}, {to1}, #64",
                "add {to2}, {to2}, #64",
                "subs {count}, {count}, #1",
                "b.ne 2b",
                from1 = inout(reg) first.from() => _,
                from2 = inout(reg) second.from() => _,
                to1 = inout(reg) first.to() => _,
                to2 = inout(reg) second.to() => _,
                count = inout(reg) count => _,
                a = out(vreg) _,
                b = out(vreg) _,
                c = out(vreg) _,
                d = out(vreg) _,
                e = out(vreg) _,
                f = out(vreg) _,
                g = out(vreg) _,
                h = out(vreg) _,
                options(nostack),
            );
        }
    }
}
