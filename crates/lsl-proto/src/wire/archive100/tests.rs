use super::*;
use crate::wire::sample110::DecodeLimits;

fn discard(_: Option<f64>, _: &[u8]) {}

/// Items of lsl-protocol §8, written and read back.
#[test]
fn integers_keep_their_sign_in_the_size_byte() {
    let check = |value: i64, expected: &[u8]| {
        let mut out = Vec::new();
        append_signed(&mut out, value);
        assert_eq!(out, expected, "{value}");
        let wire = [&[MAGIC, 1, 9, 0, 0, 0, 1, 1][..], expected].concat();
        let mut got = Vec::new();
        let mut sink = |_: Option<f64>, raw: &[u8]| got.extend_from_slice(raw);
        Decoder100::new(ChannelFormat::Int64, 1)
            .decode(&wire, &mut sink)
            .unwrap();
        assert_eq!(got, value.to_ne_bytes(), "{value}");
    };
    check(0, &[0]);
    check(128, &[1, 0x80]);
    check(255, &[1, 0xff]);
    check(256, &[2, 0, 1]);
    check(-1, &[0xff, 0xff]);
    check(-128, &[0xff, 0x80]);
    check(-129, &[0xff, 0x7f]);
    check(-256, &[0xff, 0]);
    check(-257, &[0xfe, 0xff, 0xfe]);
    check(
        i64::MAX,
        &[8, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f],
    );
    check(i64::MIN, &[0xf8, 0, 0, 0, 0, 0, 0, 0, 0x80]);
}

#[test]
fn floats_are_unsigned_items_of_their_bits() {
    let check = |value: f32, expected: &[u8]| {
        let mut out = Vec::new();
        append_f32(&mut out, value);
        assert_eq!(out, expected, "{value}");
    };
    check(1.0, &[4, 0, 0, 0x80, 0x3f]);
    check(0.0, &[0]);
    check(-0.0, &[4, 0, 0, 0, 0x80]);
    check(f32::from_bits(1), &[1, 1]);
    check(f32::from_bits(0xffc0_0001), &[4, 0xff, 0xff, 0xff, 0x7f]);
}

#[test]
fn archives_that_are_none_are_refused() {
    let check = |format, wire: &[u8], accepted: bool| {
        let limits = DecodeLimits {
            shortinfo_bytes: 1000,
            ..DecodeLimits::default()
        };
        let mut decoder = Decoder100::new(format, 1).with_limits(limits);
        let result = decoder.decode(wire, &mut discard);
        assert_eq!(result.is_ok(), accepted, "{wire:?}: {result:?}");
    };
    let float = ChannelFormat::Float32;
    check(float, &[0x7e], false);
    check(float, &[0x7f, 0], true); // version 0
    check(float, &[0x7f, 1, 17], true);
    check(float, &[0x7f, 1, 18], false);
    check(float, &[0x7f, 0xff, 0xff], false); // a negative version
    check(float, &[0x7f, 1, 9, 2, 0xe8, 3], true); // 1000 bytes of info to come
    check(float, &[0x7f, 1, 9, 2, 0xe9, 3], false);
    check(float, &[0x7f, 1, 9, 8, 0, 0, 0, 0, 0, 0, 0, 0x80], false);
    check(float, &[0x7f, 1, 9, 9], false); // nine-byte integer
    check(float, &[0x7f, 1, 9, 0x80], false);
    check(float, &[0x7f, 1, 9, 0, 0, 1, 1], false); // class of another version
    let after = |format, item: &[u8], accepted| {
        check(
            format,
            &[&[0x7f, 1, 9, 0, 0, 0, 1, 1][..], item].concat(),
            accepted,
        );
    };
    after(float, &[5], false);
    after(float, &[0xfc], false);
    after(ChannelFormat::Int16, &[2, 1, 1], true);
    after(ChannelFormat::Int16, &[0xfe, 1, 1], true);
    after(ChannelFormat::Int16, &[3], false);
    after(ChannelFormat::Int8, &[2], false);
    after(ChannelFormat::String, &[0xff], false);
    after(ChannelFormat::String, &[4, 0xff, 0xff, 0xff, 0xff], false);
}

#[test]
fn the_stream_info_can_be_had_before_any_sample() {
    let encoder = Encoder100::new(ChannelFormat::Int32, 2);
    let mut wire = Vec::new();
    encoder.encode_preamble(&mut wire, b"<info/>");
    let mut decoder = Decoder100::new(ChannelFormat::Int32, 2);
    let mut input = wire.as_slice();
    let mut head = &input[..5];
    assert_eq!(decoder.decode_up_to(0, &mut head, &mut discard).unwrap(), 0);
    assert_eq!((head.len(), decoder.shortinfo()), (0, None));
    input = &input[5..];
    assert_eq!(
        decoder.decode_up_to(0, &mut input, &mut discard).unwrap(),
        0
    );
    assert_eq!(decoder.shortinfo(), Some(&b"<info/>"[..]));
    assert_eq!(
        decoder.decode_up_to(5, &mut input, &mut discard).unwrap(),
        2
    );
    assert!(decoder.is_between_samples());
}

#[test]
fn the_wrong_number_of_values_is_refused_before_a_byte_is_written() {
    let encoder = Encoder100::new(ChannelFormat::Int32, 2);
    let mut out = Vec::new();
    assert!(encoder.encode_sample(&mut out, 1.0, &[1.0_f32]).is_err());
    assert!(encoder.encode_raw(&mut out, 1.0, &[0; 9]).is_err());
    assert_eq!(out, b"");
}
