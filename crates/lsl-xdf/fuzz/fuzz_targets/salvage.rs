#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| lsl_xdf_fuzz::salvage::check(input));
