//! What this machine alone does under a policy, and what is told where a target is refused.

use super::{ALWAYS, chat, under, with};
use crate::support::Server;
use cactus_serve::router::Log;
use cactus_serve::router::hybrid::route::Reason;
use cactus_testkit::http::{After, Server as Target, json_answer};
use serde_json::json;
use std::io::Write as _;

#[test]
fn what_only_this_machine_does_says_so_of_targets_and_tells_why_it_answers() {
    let cloud = Server::new();
    let (server, folder) = under(cloud.address, ALWAYS);
    let questions = json!([{"type": "predicate", "name": "q", "instructions": "Is it good?"}]);
    let message = json!([{"role": "user", "content": "Hi"}]);
    let asked = [
        ("/v1/decisions", json!({"input": "It is.", "questions": questions})),
        ("/v1/messages/count_tokens", json!({"messages": message})),
        ("/tokenize", json!({"content": "Hi"})),
        ("/detokenize", json!({"tokens": [1]})),
        ("/api/show", json!({})),
    ];
    for (path, body) in &asked {
        let named = |name: &str| server.post(path, &with(body.clone(), json!({"model": name})));
        let own = named("tiny").json();
        for name in ["local", "auto", "auto:latest"] {
            let mut same = named(name).json();
            let mut own = own.clone();
            for answer in [&mut own, &mut same] {
                // Times, and what was in the cache.
                answer
                    .as_object_mut()
                    .unwrap()
                    .retain(|name, _| !["cactus", "usage", "id", "created_at"].contains(&name.as_str()));
            }
            assert_eq!(same, own, "{path} {name}");
        }
        let error = named("cloud:near").error(400).to_string();
        assert!(error.contains("by models on this machine only"), "{path}: {error}");
        assert!(
            error.contains("`local`, `auto` or the name of a model here"),
            "{path}: {error}"
        );
        named("cloud:nobody").error(404);
    }
    let decide = |name: &str| server.post("/v1/decisions", &with(asked[0].1.clone(), json!({"model": name})));
    for (name, reason) in [("auto", "no_target"), ("local", "named"), ("tiny", "named")] {
        let reply = decide(name);
        assert_eq!(reply.header("x-cactus-route"), Some("local"), "{name}");
        assert_eq!(reply.header("x-cactus-reason"), Some(reason), "{name}");
        assert_eq!(reply.header("x-cactus-cost-usd"), Some("0.0"), "{name}");
        let told = &reply.json()["cactus"];
        assert_eq!(
            (&told["answered_by"], &told["reason"], &told["route"]),
            (&json!("local"), &json!(reason), &json!("local"))
        );
    }
    let (ring, _) = Log::new(folder.path()).read(100).unwrap();
    assert!(
        ring.records().all(|record| record.reason == Reason::NoTarget),
        "auto alone is recorded"
    );
    let tags = server.get("/api/tags").json();
    let models = tags["models"].as_array().unwrap();
    let names: Vec<&str> = models.iter().map(|model| model["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["tiny", "second", "local", "auto", "cloud:near"]);
    assert_eq!(models[2]["size"], models[0]["size"]);
    assert_eq!(models[4]["size"], 0);
    assert!(models[0]["size"].as_u64() > Some(0));
}

#[test]
fn refused_key_is_the_reason_now_and_later() {
    let target = Target::new(|_, stream| {
        let _ = stream.write_all(&json_answer("401 Unauthorized", &json!({"error": {"message": "no"}})));
        After::Close
    });
    let (server, folder) = under(([127, 0, 0, 1], target.port()).into(), ALWAYS);
    for _ in 0..2 {
        let reply = server.post("/v1/chat/completions", &chat("auto"));
        assert_eq!(reply.header("x-cactus-reason"), Some("key_refused"));
        assert_eq!(reply.json()["cactus"]["answered_by"], "local");
    }
    let (ring, _) = Log::new(folder.path()).read(2).unwrap();
    let [first, second] = ring.records().collect::<Vec<_>>()[..] else {
        panic!("two decisions")
    };
    assert_eq!((first.reason, second.reason), (Reason::KeyRefused, Reason::KeyRefused));
    assert_eq!((first.attempts, second.attempts), (1, 0));
    let [tried] = &first.tries[..] else { panic!("{first:?}") };
    assert_eq!(
        (tried.target.as_str(), tried.failed.as_deref()),
        ("near", Some("unauthorized"))
    );
    assert!(tried.cost.is_some_and(|cost| cost.0 == 0), "a refusal is not billed");
    assert!(tried.ms <= first.total_ms && second.tries.is_empty());
}
