//! `lsl/resolver.h`.

/// A continuous resolver that C holds.
#[derive(Debug)]
pub(crate) struct ResolverObject {}
