use clap::Parser;

use super::*;

#[derive(Debug, Parser)]
struct TestCommand {
    #[command(flatten)]
    generate: Generate,
}

fn parse(arguments: &[&str]) -> Result<Generate, clap::Error> {
    let arguments = std::iter::once(&"gen").chain(arguments);
    TestCommand::try_parse_from(arguments).map(|line| line.generate)
}

#[test]
fn totals() {
    let check = |arguments: &[&str], total| {
        assert_eq!(parse(arguments).unwrap().total(), total, "{arguments:?}");
    };
    check(&[], u64::MAX);
    check(&["--count", "7"], 7);
    check(&["--duration", "2"], 500);
    check(&["--duration", "2", "--rate", "333"], 666);
    check(&["--duration", "0.1", "--rate", "7"], 1);
    check(&["--duration", "10", "--rate", "0"], 10);
    check(
        &["--duration", "10", "--rate", "0", "--interval", "0.1"],
        100,
    );
    check(&["--duration", "0"], 0);
    check(&["--duration", "2", "--count", "9"], 9);
}

#[test]
fn unusable_options_are_refused() {
    for arguments in [
        ["--rate", "-1"],
        ["--rate", "nan"],
        ["--rate", "inf"],
        ["--channels", "0"],
        ["--chunk", "0"],
        ["--streams", "0"],
        ["--format", "float16"],
        ["--interval", "0"],
        ["--desc", "novalue"],
        ["--desc", "a//b=x"],
        ["--desc", "1a=x"],
        ["--desc", "a b=x"],
    ] {
        parse(&arguments).expect_err(&format!("{arguments:?}"));
    }
}

#[test]
fn channels_and_metadata_are_described() {
    let arguments = [
        "--channels",
        "2",
        "--desc",
        "acquisition/model=X=1",
        "--desc",
        "cap=large",
    ];
    let info = parse(&arguments).unwrap().info(1).unwrap();
    let desc = info.desc_ref().unwrap();
    let channels: Vec<_> = desc
        .child("channels")
        .unwrap()
        .children_named("channel")
        .map(|channel| ["label", "unit", "type"].map(|name| channel.get(name).unwrap()))
        .collect();
    assert_eq!(
        channels,
        [["Fp1", "microvolts", "EEG"], ["Fp2", "microvolts", "EEG"]]
    );
    assert_eq!(
        desc.child("acquisition").unwrap().get("model").unwrap(),
        "X=1"
    );
    assert_eq!(desc.get("cap").unwrap(), "large");
}

#[test]
fn values_of_a_push() {
    let mut values = Vec::new();
    let generate = parse(&["--channels", "2", "--pattern", "counter"]).unwrap();
    generate.fill::<i8>(&mut values, 127, 2, &mut Eeg::new(1.0));
    assert_eq!(values, [127, 127, -128, -128]);
}

#[test]
fn several_streams_have_names_and_identities_of_their_own() {
    let identities = |arguments: &[&str], numbers: &[u32]| -> Vec<String> {
        let generate = parse(arguments).unwrap();
        let text = |number: &u32| {
            let info = generate.info(*number).unwrap();
            format!("{} {}", info.name(), info.source_id())
        };
        numbers.iter().map(text).collect()
    };
    let one = ["--name", "Amp", "--source-id", "x"];
    assert_eq!(identities(&one, &[1]), ["Amp x"]);
    let many = [&one[..], &["--streams", "12"]].concat();
    assert_eq!(identities(&many, &[1, 12]), ["Amp-1 x-1", "Amp-12 x-12"]);
    let many = parse(&many).unwrap();
    assert_eq!(many.stream_on("host"), ["Amp-1", "x-1"]);
    let unnamed = parse(&["--streams", "2"]).unwrap();
    assert_eq!(unnamed.stream_on("host"), ["Test-1", "lsl-gen-Test-host-1"]);
}
