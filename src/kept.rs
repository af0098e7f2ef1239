//! How much memory is kept when what it was needed for is over: enough that a steady flow of transfers
//! allocates nothing, little enough that a burst leaves nothing to speak of.

use std::collections::VecDeque;
use std::hash::Hash;

use rustc_hash::{FxHashMap, FxHashSet};

/// Room for so many elements is kept, whatever they are.
const KEPT: usize = 4096;

/// The room that is left to `len` elements, if they have far too much. Twice what is kept is not too
/// much: a flow that goes up and down around it would allocate each time.
fn relaxed(capacity: usize, len: usize) -> Option<usize> {
    (capacity > 2 * KEPT && len < capacity / 8).then(|| KEPT.max(2 * len))
}

/// Gives back the memory of a map from which something was removed, if it has far too much. It takes as
/// long as it took to remove what is not there any more.
pub fn relax_map<K: Eq + Hash, V>(map: &mut FxHashMap<K, V>) {
    if let Some(room) = relaxed(map.capacity(), map.len()) {
        map.shrink_to(room);
    }
}

/// The same for a set.
pub fn relax_set<K: Eq + Hash>(set: &mut FxHashSet<K>) {
    if let Some(room) = relaxed(set.capacity(), set.len()) {
        set.shrink_to(room);
    }
}

/// The same for a queue.
pub fn relax_queue<T>(queue: &mut VecDeque<T>) {
    if let Some(room) = relaxed(queue.capacity(), queue.len()) {
        queue.shrink_to(room);
    }
}

/// The same for a list.
pub fn relax_list<T>(list: &mut Vec<T>) {
    if let Some(room) = relaxed(list.capacity(), list.len()) {
        list.shrink_to(room);
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
        }
        relax_queue(&mut self.places);
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
            assert!((100..=2 * KEPT).contains(&kept), "{kept}");
        }
    }

    /// Others go on coming, so that it is never empty.
    #[test]
    fn a_burst_before_a_steady_flow_is_given_back_too() {
        let mut line = Line::default();
        for id in 0..100_000 {
            line.push(id, |_| true);
        }
        for id in 0..99_990 {
            assert_eq!(line.first(|other| other >= id), Some(id));
            line.leave();
        }
        for id in 99_990..100_100 {
            line.push(id + 10, |other| other >= id);
            assert_eq!(line.first(|other| other >= id), Some(id));
            line.leave();
        }
        assert!(!line.is_empty());
        let kept = line.places.capacity();
        assert!((KEPT..=2 * KEPT).contains(&kept), "{kept}");
    }

    #[test]
    fn what_is_used_again_and_again_is_not_allocated_again() {
        let mut queue: VecDeque<u64> = (0..5000).collect();
        let mut list: Vec<u64> = (0..5000).collect();
        let mut set: FxHashSet<u64> = (0..5000).collect();
        queue.clear();
        list.clear();
        set.clear();
        let room = (queue.capacity(), list.capacity(), set.capacity());
        relax_queue(&mut queue);
        relax_list(&mut list);
        relax_set(&mut set);
        assert_eq!(room, (queue.capacity(), list.capacity(), set.capacity()));
        queue.reserve(100_000);
        list.reserve(100_000);
        set.reserve(100_000);
        relax_queue(&mut queue);
        relax_list(&mut list);
        relax_set(&mut set);
        for room in [queue.capacity(), list.capacity(), set.capacity()] {
            assert!((KEPT..=2 * KEPT).contains(&room), "{room}");
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
