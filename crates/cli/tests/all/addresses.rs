//! Models from plain addresses, as a user of `cactus` names them.

use crate::cactus::Cactus;
use cactus_testkit::http::Server;

#[test]
fn model_at_an_address_is_downloaded_run_listed_and_removed() {
    let cactus = Cactus::new();
    let server = Server::of_folder(cactus.0.path());
    let address = format!("http://127.0.0.1:{}/m", server.port());
    let path = cactus.ok(&["download", &address]);
    assert!(path.contains("cache") && path.contains("url--127.0.0.1"), "{path}");
    let asked = server.asked();
    let args = ["--prompt", "Hello", "--max-new-tokens", "4", "--seed", "1"];
    let run = |model: &str| cactus.ok(&[&["run", model, "--offline"][..], &args].concat());
    assert_eq!(run(&address), run("m"));
    assert_eq!(server.asked(), asked, "what is here is not asked for again");
    assert!(cactus.ok(&["list"]).contains("url--127.0.0.1"));
    cactus.ok(&["remove", &address]);
    let gone = cactus.run(&["run", &address, "--offline", "--prompt", "Hello"]);
    let said = String::from_utf8_lossy(&gone.stderr);
    assert!(
        !gone.status.success() && said.contains("leave out `--offline`"),
        "{said}"
    );
}

#[test]
fn address_without_a_model_says_what_belongs_there() {
    let cactus = Cactus::new();
    let server = Server::of_folder(cactus.0.path());
    let address = |file: &str| format!("http://127.0.0.1:{}/{file}", server.port());
    for (name, words) in [
        (address("absent"), ["components/manifest.json", "check the address"]),
        (address("absent.gguf"), ["a GGUF file at", "check the address"]),
        (
            "http://h.example/m.gguf".to_owned(),
            ["plain `http://`", "use `https://`"],
        ),
    ] {
        let out = cactus.run(&["download", &name]);
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(!out.status.success());
        for word in words {
            assert!(said.contains(word), "{name}: {said}");
        }
    }
}
