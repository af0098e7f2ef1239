//! How much memory is kept when what it was needed for is over: enough that a steady flow of transfers
//! allocates nothing, little enough that a burst leaves nothing to speak of.

use std::collections::VecDeque;
use std::hash::Hash;

use rustc_hash::FxHashMap;

/// Room for so many elements is kept, whatever they are.
const KEPT: usize = 4096;

/// Gives back the memory of a map from which something was removed, if it has far too much. It takes as
/// long as it took to remove what is not there any more.
pub fn relax_map<K: Eq + Hash, V>(map: &mut FxHashMap<K, V>) {
    if map.capacity() > 2 * KEPT && map.len() < map.capacity() / 8 {
        map.shrink_to(KEPT.max(2 * map.len()));
    }
}

/// The same for an empty queue.
pub fn relax_empty<T>(queue: &mut VecDeque<T>) {
    debug_assert!(queue.is_empty());
    if queue.capacity() > KEPT {
        *queue = VecDeque::new();
    }
}

/// The same for an empty list.
pub fn relax_list<T>(list: &mut Vec<T>) {
    debug_assert!(list.is_empty());
    if list.capacity() > KEPT {
        *list = Vec::new();
    }
}

/// Ids in the order in which they came. An id can leave from anywhere: whoever has them knows which wait,
/// the place of one that does not is skipped, and nothing is allocated for each.
#[derive(Debug, Default)]
pub struct Line {
    places: VecDeque<u64>,
    /// How many of the places are taken.
    waiting: usize,
}

impl Line {
    /// `id` waits, too.
    pub fn push(&mut self, id: u64, waits: impl Fn(u64) -> bool) {
        self.places.push_back(id);
        self.waiting += 1;
        // Few enough to be cheap, many enough to be rare.
        if self.places.len() > 2 * self.waiting + 64 {
            self.places.retain(|id| waits(*id));
        }
    }

    /// The id that has waited longest.
    pub fn first(&mut self, waits: impl Fn(u64) -> bool) -> Option<u64> {
        while let Some(id) = self.places.front() {
            if waits(*id) {
                return Some(*id);
            }
            self.places.pop_front();
        }
        None
    }

    /// One that waited does not wait any more.
    pub fn leave(&mut self) {
        self.waiting -= 1;
        if self.waiting == 0 {
            self.places.clear();
            relax_empty(&mut self.places);
        }
    }

    /// True when none waits.
    pub fn is_empty(&self) -> bool {
        self.waiting == 0
    }

    /// Those that wait, oldest first.
    pub fn into_ids(self, waits: impl Fn(u64) -> bool) -> impl Iterator<Item = u64> {
        self.places.into_iter().filter(move |id| waits(*id))
    }

    /// Places, taken or not.
    #[cfg(test)]
    pub fn places(&self) -> usize {
        self.places.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_gives_back_what_a_burst_took() {
        let mut map: FxHashMap<u64, u64> = (0..100_000).map(|id| (id, id)).collect();
        let most = map.capacity();
        for id in 0..99_000 {
            map.remove(&id);
            relax_map(&mut map);
        }
        assert!(map.capacity() < most / 8, "{} of {most}", map.capacity());
        assert!(map.capacity() >= KEPT);
        let few = map.capacity();
        assert!((99_000..100_000).all(|id| map.remove(&id) == Some(id)));
        relax_map(&mut map);
        assert_eq!(map.capacity(), few, "so little is kept");
    }

    #[test]
    fn a_line_gives_back_what_a_burst_took() {
        let mut line = Line::default();
        for burst in [100, 100_000] {
            for id in 0..burst {
                line.push(id, |_| true);
            }
            for left in 1..=burst {
                assert_eq!(line.first(|id| id >= left), (left < burst).then_some(left));
                line.leave();
            }
            assert!(line.is_empty() && line.places() == 0);
            let kept = line.places.capacity();
            assert_eq!((100..=KEPT).contains(&kept), burst == 100, "{kept}");
        }
    }

    #[test]
    fn who_left_is_skipped() {
        let mut line = Line::default();
        let odd = |id| id % 2 == 1;
        for id in 0..6 {
            line.push(id, |_| true);
        }
        for _ in 0..3 {
            line.leave();
        }
        assert_eq!(line.first(odd), Some(1));
        assert!(!line.is_empty());
        assert!(line.into_ids(odd).eq([1, 3, 5]));
    }
}
