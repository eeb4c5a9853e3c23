#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| lsl_doctor_fuzz::pair::check(input));
