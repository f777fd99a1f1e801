//! Vectors of pictures, from the command line.

#![allow(clippy::print_stderr, reason = "a skipped test must be seen")]

use crate::cactus::Cactus;
use serde_json::Value;
use std::path::{Path, PathBuf};

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden").join(name)
}

/// A model of texts and pictures `sees`, and one of texts alone `t`.
fn models() -> Cactus {
    let c = Cactus::new();
    for (model, name) in [("clip_pictures", "sees"), ("bert", "t")] {
        c.ok(&["convert", golden("embedding").join(model).to_str().unwrap(), name]);
    }
    c
}

#[test]
fn pictures_and_texts_get_vectors_of_one_space() {
    let c = models();
    let file = |name: &str| golden("pictures/files").join(name).to_str().unwrap().to_owned();
    let (png, jpeg) = (file("rgba.png"), file("turned_6.jpg"));
    let json = c.ok(&["embed", "sees", "--image", &png, "--image", &jpeg, "--json"]);
    let made: Value = serde_json::from_str(&json).unwrap();
    let vectors = made["vectors"].as_array().unwrap();
    assert_eq!((vectors.len(), &made["patches"]), (2, &serde_json::json!([9, 9])));
    for vector in vectors {
        let squares: f64 = vector
            .as_array()
            .unwrap()
            .iter()
            .map(|x| x.as_f64().unwrap().powi(2))
            .sum();
        assert!((squares - 1.0).abs() < 1e-5, "{squares}");
    }
    // One alone, as a line of numbers.
    let line = c.ok(&["embed", "sees", "--image", &jpeg]);
    let alone: Vec<f64> = line.split_whitespace().map(|x| x.parse().unwrap()).collect();
    let beside: Vec<f64> = vectors[1]
        .as_array()
        .unwrap()
        .iter()
        .map(|x| x.as_f64().unwrap())
        .collect();
    assert_eq!(alone.len(), beside.len());
    assert!(
        alone
            .iter()
            .zip(&beside)
            .all(|(a, b)| (*a as f32).to_bits() == (*b as f32).to_bits())
    );
    let text: Value = serde_json::from_str(&c.ok(&["embed", "sees", "the cat", "--json"])).unwrap();
    assert_eq!(text["vectors"][0].as_array().unwrap().len(), beside.len());
    c.ok(&["embed", "sees", "--image", &png, "--npy", "a.npy"]);
    assert!(c.0.path().join("a.npy").exists());
}

#[test]
fn what_is_no_picture_is_refused_by_its_name() {
    let c = models();
    std::fs::write(c.0.path().join("phone.heic"), b"\0\0\0\x18ftypheic\0\0\0\0mif1heic").unwrap();
    let png = golden("pictures/files/rgb.png").to_str().unwrap().to_owned();
    let cases: &[(&[&str], &str)] = &[
        (
            &["embed", "sees", "--image", "phone.heic"],
            "`phone.heic` is a HEIC picture",
        ),
        (&["embed", "sees", "--image", "absent.png"], "cannot read `absent.png`"),
        (&["embed", "t", "--image", &png], "makes no vectors of pictures"),
        (&["embed", "sees", "a text", "--image", &png], "cannot be used with"),
    ];
    for (arguments, said) in cases {
        let out = c.run(arguments);
        let error = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(!out.status.success() && error.contains(said), "{arguments:?}: {error}");
    }
}

/// Where the system has a program that reads it.
#[test]
fn heic_pictures_are_read_by_the_system() {
    let programs = ["heif-dec", "heif-convert", "sips", "magick"];
    let is_here = |program: &&str| std::process::Command::new(program).arg("--version").output().is_ok();
    if !programs.iter().any(is_here) {
        eprintln!("skipped: none of {programs:?} is installed");
        return;
    }
    let c = models();
    let vector = |file: &str| -> Vec<f64> {
        let file = golden(&format!("pictures/{file}"));
        let found = c.ok(&["embed", "sees", "--json", "--image", file.to_str().unwrap()]);
        let found: Value = serde_json::from_str(&found).unwrap();
        let numbers = found["vectors"][0].as_array().unwrap();
        numbers.iter().map(|x| x.as_f64().unwrap()).collect()
    };
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let [phone, same, other] = ["heic/phone.heic", "heic/phone.png", "files/wide.png"].map(vector);
    assert!(dot(&phone, &same) > 0.99, "{}", dot(&phone, &same));
    assert!(dot(&phone, &other) < dot(&phone, &same));
}

#[test]
fn run_shows_a_model_pictures() {
    let c = Cactus::new();
    let png = golden("pictures/files/wide.png");
    let jpeg = golden("pictures/files/smooth.jpg");
    let (png, jpeg) = (png.to_str().unwrap(), jpeg.to_str().unwrap());
    c.ok(&["convert", golden("seeing/smolvlm").to_str().unwrap(), "vlm"]);
    let base = [
        "run",
        "vlm",
        "--prompt",
        "What is this?",
        "--temperature",
        "0",
        "--max-tokens",
        "6",
        "--ignore-eos",
        "--json",
    ];
    let ask = |more: &[&str]| -> serde_json::Value {
        let args: Vec<&str> = base.iter().chain(more).copied().collect();
        serde_json::from_str(&c.ok(&args)).unwrap()
    };
    let tokens = |answer: &serde_json::Value| answer["prefill_tokens"].as_u64().unwrap();
    let (none, one, two) = (
        ask(&[]),
        ask(&["--image", png]),
        ask(&["--image", png, "--image-file", jpeg]),
    );
    assert!(
        tokens(&none) + 20 < tokens(&one) && tokens(&one) < tokens(&two),
        "{one} {two}"
    );
    assert_eq!(one["response"], ask(&["--image", png])["response"]);
    let out = c.run(&[
        "run",
        "vlm",
        "--prompt",
        "x",
        "--max-tokens",
        "2",
        "--image",
        png,
        "--show-image-tokens",
    ]);
    let told = String::from_utf8_lossy(&out.stderr).into_owned() + &String::from_utf8_lossy(&out.stdout);
    assert!(
        out.status.success() && told.contains("wide.png") && told.contains("the whole, in small"),
        "{told}"
    );
    // The tiles and the whole, each with the squares of its tokens.
    c.ok(&[
        "run",
        "vlm",
        "--prompt",
        "x",
        "--max-tokens",
        "2",
        "--image",
        png,
        "--show-image-tokens=drawn",
    ]);
    let drawn = |i: usize| {
        let file = std::fs::read(c.0.path().join(format!("drawn/wide.{i}.png"))).ok()?;
        cactus_vision::decode::decode(&file, &cactus_vision::Limits::default(), cactus_vision::Alpha::Drop).ok()
    };
    let views: Vec<_> = (1..).map_while(drawn).collect();
    assert!(
        views.len() > 1 && views.iter().all(|view| (view.width(), view.height()) == (32, 32)),
        "{views:?}"
    );

    let inspected = c.ok(&["inspect", "vlm"]);
    assert!(inspected.contains("pictures"), "{inspected}");

    for (args, words) in [
        (&["run", "m", "--prompt", "x", "--image", png][..], "sees no pictures"),
        (
            &["run", "m", "--prompt", "x", "--image-tokens", "70"],
            "sees no pictures",
        ),
        (
            &["run", "vlm", "--prompt", "x", "--image", png, "--image-tokens", "70"],
            "one size",
        ),
        (
            &["run", "vlm", "--prompt", "x", "--image", "absent.png"],
            "cannot read `absent.png`",
        ),
        (
            &["run", "vlm", "--prompt", "x", "--image", "vlm/config.json"],
            "config.json",
        ),
        (
            &["run", "vlm", "--prompt", "x", "--image", png, "--context", "40"],
            "the context holds 40",
        ),
        (
            &["run", "vlm", "--raw", "--prompt", "x", "--image", png],
            "cannot be used with",
        ),
    ] {
        let out = c.run(args);
        let error = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(!out.status.success() && error.contains(words), "{args:?}: {error}");
    }
}
