//! `lsl/common.h`: versions, clock, configuration, strings, last error.
