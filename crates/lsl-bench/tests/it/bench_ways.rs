//! `lsl bench` through a relay and a server that it writes to: what is asserted is that everything arrived, by the way
//! that was asked for.

use std::fs;
use std::process::Command;

use serde_json::Value;

use crate::lab::Lab;

fn measured(lab: &Lab, name: &str) -> Value {
    let text = fs::read_to_string(lab.path(&format!("{name}/results.json"))).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// Checks that each of `ways` delivered everything in each of so many cells, once. Those that want a server say so where
/// there is none.
#[track_caller]
fn check(results: &Value, cells: usize, ways: &[&str], metric: &str) {
    let has_redis = Command::new("redis-server").arg("--version").output();
    let has_redis = has_redis.is_ok_and(|it| it.status.success());
    let subjects = results["subjects"].as_array().unwrap().iter();
    let names: Vec<&str> = subjects.map(|it| it["name"].as_str().unwrap()).collect();
    assert_eq!(names, ways);
    assert_eq!(results["cells"].as_array().unwrap().len(), cells);
    for cell in results["cells"].as_array().unwrap() {
        let rounds = cell["rounds"].as_array().unwrap();
        assert_eq!(rounds.len(), 1, "{cell}");
        for (name, turn) in names
            .iter()
            .zip(rounds[0]["measurements"].as_array().unwrap())
        {
            if ["packed", "river"].contains(name) && !has_redis {
                assert_eq!(turn["failure"], "there is no redis-server on this machine");
                continue;
            }
            assert_eq!(turn.get("failure"), None, "{name}: {turn}");
            assert!(turn["expected"].as_u64() > Some(0), "{name}: {turn}");
            assert_eq!(turn["expected"], turn["received"], "{name}: {turn}");
            assert!(
                turn["values"][metric].as_f64() > Some(0.0),
                "{name}: {turn}"
            );
            let relay = turn["values"]["relay_cpu_us_per_sample"].as_f64();
            assert_eq!(
                relay.is_some(),
                !name.starts_with("direct"),
                "{name}: {turn}"
            );
        }
    }
}

#[test]
fn every_way_delivers_and_those_without_a_server_encrypt_too() {
    let lab = Lab::new();
    let output = lab.path("results");
    let arguments = "bench fanout --via direct,relay,packed,river --secure off,on --readers 2 --bytes 8 --samples 100 \
                     --rounds 1 --output";
    let mut arguments: Vec<&str> = arguments.split_whitespace().collect();
    arguments.push(&output);
    lab.run(&arguments).ok();
    let ways = [
        "direct",
        "direct secure",
        "relay",
        "relay secure",
        "packed",
        "river",
    ];
    check(&measured(&lab, "results"), 1, &ways, "latency_p95_us");
}

#[test]
fn the_grid_goes_on_where_it_was_and_has_a_page() {
    let lab = Lab::new();
    let output = lab.path("results");
    let grid = "bench grid --quick --what max --samples 3000 --output";
    let mut grid: Vec<&str> = grid.split_whitespace().collect();
    grid.push(&output);
    lab.run(&grid).ok();
    let results = measured(&lab, "results");
    let ways = ["direct", "relay", "packed", "river"];
    check(&results, 2, &ways, "write_mib_per_s");
    let page = fs::read_to_string(lab.path("results/river.md")).unwrap();
    assert!(page.contains("| 128 | "), "{page}");
    assert!(page.contains("![river-write.svg](images/river-write.svg)"));
    assert!(fs::exists(lab.path("results/images/river-write.svg")).unwrap());
    // There is nothing left to do, but for what failed.
    let more = lab.run(&grid).ok();
    assert!(more.stderr.contains("going on with"), "{}", more.stderr);
    let again = measured(&lab, "results");
    check(&again, 2, &ways, "read_mib_per_s");
    if !results.to_string().contains("redis-server") {
        assert_eq!(again["cells"], results["cells"]);
    }
}
