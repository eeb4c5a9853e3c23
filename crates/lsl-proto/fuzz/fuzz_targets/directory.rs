#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| lsl_proto_fuzz::directory::check(input));
