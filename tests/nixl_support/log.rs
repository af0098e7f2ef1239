//! What the library says, kept.

use std::sync::{Arc, Mutex};

use datatransport::log::{Level, set_sink};

/// All that the log says as long as this lives, from level info on. One at a time.
pub struct Log(Arc<Mutex<Vec<(Level, String)>>>);

impl Log {
    pub fn new() -> Log {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&lines);
        let keep = move |level: Level, line: &std::ffi::CStr| {
            let line = line.to_string_lossy().into_owned();
            sink.lock().unwrap().push((level, line));
        };
        set_sink(Some(Arc::new(keep)), Level::Info as i32);
        Log(lines)
    }

    pub fn lines(&self) -> Vec<(Level, String)> {
        self.0.lock().unwrap().clone()
    }

    /// How many lines of this level have all these words.
    pub fn count(&self, level: Level, words: &[&str]) -> usize {
        let fits = |(at, line): &(Level, String)| {
            *at == level && words.iter().all(|word| line.contains(word))
        };
        self.lines().iter().filter(|line| fits(line)).count()
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        set_sink(None, 0);
        if std::thread::panicking() {
            println!("{:#?}", self.lines());
        }
    }
}
