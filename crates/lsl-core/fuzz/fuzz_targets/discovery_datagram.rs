#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| lsl_core_fuzz::discovery_datagram::check(input));
