#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| lsl_relay_fuzz::river::check(input));
