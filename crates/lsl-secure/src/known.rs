//! `known_secure`: outlets that were encrypted once and must never be read in plaintext again while
//! the policy is `migrate`. Spec: LSS/1 §4.3.
