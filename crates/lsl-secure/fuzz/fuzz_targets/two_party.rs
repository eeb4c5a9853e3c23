#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| lsl_secure_fuzz::two_party::check(input));
