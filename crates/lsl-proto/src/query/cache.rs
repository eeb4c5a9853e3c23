//! Parsed queries by text. Resolvers repeat a query every second or two, and outlets of one process
//! share the cache. Knows no lock: the owner provides one. Spec: lsl-protocol §4.

use std::collections::HashMap;
use std::sync::Arc;

use super::{ParseError, Query};

/// A bounded cache of parsed queries that forgets the one not used for longest.
///
/// Spec: lsl-protocol §4, §12 (`MaxCachedQueries`).
#[derive(Debug)]
pub struct QueryCache {
    capacity: usize,
    queries: HashMap<Arc<[u8]>, Entry>,
    /// Counts uses; the smallest stamp is the oldest.
    clock: u64,
}

#[derive(Debug)]
struct Entry {
    query: Arc<Query>,
    used: u64,
}

impl QueryCache {
    /// Creates a cache of at most `capacity` queries; with 0 every query is parsed anew.
    pub fn new(capacity: usize) -> Self {
        Self {
            capacity,
            queries: HashMap::new(),
            clock: 0,
        }
    }

    /// Returns the parsed query, from the cache or added to it. A text that does not parse is not cached.
    ///
    /// # Errors
    /// As [`Query::parse`].
    pub fn parse(&mut self, text: impl AsRef<[u8]>) -> Result<Arc<Query>, ParseError> {
        let text = text.as_ref();
        if let Some(query) = self.get(text) {
            return Ok(query);
        }
        let query = Arc::new(Query::parse(text)?);
        if self.capacity > 0 {
            if self.queries.len() >= self.capacity {
                self.forget_oldest();
            }
            let entry = Entry {
                query: Arc::clone(&query),
                used: self.clock,
            };
            self.queries.insert(Arc::clone(&query.text), entry);
        }
        Ok(query)
    }

    /// Returns the parsed query if it is in the cache.
    pub fn get(&mut self, text: impl AsRef<[u8]>) -> Option<Arc<Query>> {
        self.clock += 1;
        let entry = self.queries.get_mut(text.as_ref())?;
        entry.used = self.clock;
        Some(Arc::clone(&entry.query))
    }

    /// Returns the number of cached queries.
    pub fn len(&self) -> usize {
        self.queries.len()
    }

    /// Returns whether no query is cached.
    pub fn is_empty(&self) -> bool {
        self.queries.is_empty()
    }

    /// Removes the oldest. Scanning is dear only in a flood of new queries, and parsing those costs more.
    fn forget_oldest(&mut self) {
        let oldest = self.queries.iter().min_by_key(|(_, entry)| entry.used);
        if let Some(text) = oldest.map(|(text, _)| Arc::clone(text)) {
            self.queries.remove(&text);
        }
    }
}

impl Default for QueryCache {
    fn default() -> Self {
        Self::new(DEFAULT_CAPACITY)
    }
}

/// Default of the key `MaxCachedQueries`, in queries.
const DEFAULT_CAPACITY: usize = 100;
