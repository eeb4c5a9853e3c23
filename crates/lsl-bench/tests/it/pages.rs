//! What packages carry: the pages and completions of `lsl`, with those of the benchmarks.

use crate::lab::Lab;

#[test]
fn pages_and_completions_cover_the_benchmarks() {
    let lab = Lab::new();
    let folder = lab.path("man");
    lab.run(&["bench", "man", &folder]).ok();
    let page = |name: &str| std::fs::read_to_string(format!("{folder}/{name}")).unwrap();
    assert!(page("lsl.1").contains("lsl\\-bench(1)"));
    assert!(page("lsl-gen.1").contains("lsl gen \\-\\-name"));
    assert!(page("lsl-bench.1").contains("lsl\\-bench\\-latency(1)"));
    let server = page("lsl-bench-net-server.1");
    assert!(server.contains("lsl bench net server"), "{server}");
    assert!(server.contains("known\\-peer"), "{server}");
    for hidden in [
        "endpoint",
        "swarm",
        "atrest-end",
        "evidence",
        "man",
        "completions",
    ] {
        assert!(!std::path::Path::new(&format!("{folder}/lsl-bench-{hidden}.1")).exists());
    }
    let script = lab.run(&["bench", "completions", "bash"]).ok().stdout;
    for part in ["complete -F _lsl", "--write-then-read", "--pattern"] {
        assert!(script.contains(part), "{part} in {script}");
    }
}
