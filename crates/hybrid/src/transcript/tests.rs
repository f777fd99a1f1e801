//! Recorded events, and what must hold for any.

use super::*;
use proptest::prelude::*;

/// Words of 300 ms from `start_ms` on: `word` or `word@confidence`.
fn words(text: &str, start_ms: u64) -> Vec<Word> {
    let one = |(i, word): (usize, &str)| {
        let (text, confidence) = word.split_once('@').unwrap_or((word, ""));
        let start_ms = start_ms + 300 * i as u64;
        Word {
            text: text.to_owned(),
            start_ms,
            end_ms: start_ms + 300,
            confidence: confidence.parse().ok(),
        }
    };
    text.split_whitespace().enumerate().map(one).collect()
}

fn segment(text: &str) -> Segment {
    let words = words(text, 1000);
    Segment {
        id: 7,
        revision: 0,
        start_ms: 1000,
        end_ms: words.last().map_or(1000, |word| word.end_ms),
        speech: true,
        logprob: None,
        words,
        amended: false,
    }
}

fn heard(text: &str) -> Heard {
    Heard {
        id: 7,
        revision: 0,
        words: words(text, 1000),
        heard: true,
    }
}

fn merged(ours: &str, theirs: &str) -> Result<String, Refused> {
    // Speech ends a little after the last word, so another word has room.
    let mut segment = segment(ours);
    segment.end_ms += 3000;
    merge(&segment, &heard(theirs), 0, &Rules::default()).map(|segment| segment.text())
}

#[test]
fn doubt_is_of_many_words_or_of_one_that_matters() {
    let rules = Rules::default();
    let cases = [
        ("all@0.99 is@0.95 well@0.9", None),
        ("who@0.5 knows@0.6 what@0.5", Some(Doubt::Errors(1.4))),
        ("call@0.95 15@0.6 now@0.9", Some(Doubt::Word("15".into()))),
        ("ask@0.95 Meyer@0.6 now@0.9", Some(Doubt::Word("Meyer".into()))),
        // The first word of a sentence has a capital letter anyway.
        ("Ask@0.6 him.@0.95 Then@0.6 go@0.9", None),
        ("nobody says", None),
    ];
    for (text, want) in cases {
        let found = doubt(&segment(text), &rules);
        match (&found, &want) {
            (Some(Doubt::Errors(a)), Some(Doubt::Errors(b))) => assert!((a - b).abs() < 1e-9, "{text}"),
            _ => assert_eq!(found, want, "{text}"),
        }
    }
}

#[test]
fn doubtful_words_are_replaced_and_sure_ones_stay() {
    let cases = [
        (
            "meet@0.95 me@0.6 at@0.95 for@0.4",
            "meet me at four",
            Ok("meet me at four"),
        ),
        // The target has misheard what we are sure of.
        ("turn@0.95 left@0.97 hear@0.5", "turn right here", Ok("turn left here")),
        ("we@0.6 go@0.6", "we all go", Ok("we all go")),
        ("we@0.6 uh@0.3 go@0.6 home@0.8", "we go home", Ok("we go home")),
        // Case and points alone are no correction.
        ("we@0.6 go@0.6", "We go.", Ok("we go")),
        (
            "one@0.5 two@0.5",
            "something that is much longer than it can be",
            Err(Refused::Length),
        ),
        ("something@0.5 long@0.5", "a", Err(Refused::Length)),
    ];
    for (ours, theirs, want) in cases {
        assert_eq!(merged(ours, theirs), want.map(str::to_owned), "{ours}");
    }
}

#[test]
fn what_is_of_another_state_or_of_silence_is_refused() {
    let rules = Rules::default();
    let ours = segment("a@0.5 b@0.5");
    let other = Heard { id: 8, ..heard("a c") };
    assert_eq!(merge(&ours, &other, 0, &rules), Err(Refused::Other));
    let once = merge(&ours, &heard("a c"), 0, &rules).unwrap();
    assert_eq!((once.id, once.revision, once.amended), (7, 1, false));
    assert_eq!(merge(&once, &heard("a d"), 0, &rules), Err(Refused::Stale));
    let silent = Segment {
        speech: false,
        words: Vec::new(),
        ..ours.clone()
    };
    assert_eq!(merge(&silent, &heard("thank you"), 0, &rules), Err(Refused::Silence));
    assert!(merge(&ours, &heard("a c"), 3_001, &rules).unwrap().amended);
}

#[test]
fn who_has_not_heard_changes_no_numbers() {
    let ours = segment("call@0.6 15@0.5 tomorow@0.5");
    let read = Heard {
        heard: false,
        ..heard("call 50 tomorrow")
    };
    assert_eq!(
        merge(&ours, &read, 0, &Rules::default()).unwrap().text(),
        "call 15 tomorrow"
    );
}

#[test]
fn words_of_the_margins_belong_to_the_neighbors() {
    let ours = segment("be@0.5 see@0.5");
    let theirs = Heard {
        words: words("A. B C D.", 700),
        ..heard("")
    };
    assert_eq!(
        merge(
            &ours,
            &theirs,
            0,
            &Rules {
                length: [0.0, 9.0],
                ..Rules::default()
            }
        )
        .unwrap()
        .text(),
        "B C"
    );
}

#[test]
fn unlikely_text_is_doubtful_whatever_its_words_say() {
    let rules = Rules::default();
    let of = |logprob| Segment {
        logprob,
        ..segment("all@0.99 right@0.99")
    };
    assert_eq!(doubt(&of(Some(-0.71)), &rules), Some(Doubt::Unlikely(-0.71)));
    assert_eq!(
        doubt(&of(Some(f64::NEG_INFINITY)), &rules),
        Some(Doubt::Unlikely(f64::NEG_INFINITY))
    );
    assert_eq!((doubt(&of(Some(-0.7)), &rules), doubt(&of(None), &rules)), (None, None));
}

/// A transcript as it was shown, step by step.
#[test]
fn recorded_events_give_the_same_transcript_again() {
    let mut shown = [
        Segment {
            id: 1,
            ..segment("good@0.98 morning@0.97")
        },
        Segment {
            id: 2,
            ..segment("flight@0.9 LH@0.5 4@0.4 30@0.5")
        },
        Segment {
            id: 3,
            ..segment("to@0.95 Oslow@0.55")
        },
    ];
    let rules = Rules::default();
    let asked: Vec<u64> = shown
        .iter()
        .filter(|s| doubt(s, &rules).is_some())
        .map(|s| s.id)
        .collect();
    assert_eq!(asked, [2, 3]);
    let events = [
        (3, 900, "to Oslo"),
        (2, 3_500, "flight LH 430"),
        (2, 3_600, "flight LH 431"),
    ];
    for (id, after_ms, text) in events {
        let heard = Heard { id, ..heard(text) };
        for segment in shown.iter_mut().filter(|s| s.id == id) {
            if let Ok(revised) = merge(segment, &heard, after_ms, &rules) {
                *segment = revised;
            }
        }
    }
    let seen: Vec<_> = shown.iter().map(|s| (s.id, s.revision, s.amended, s.text())).collect();
    let want = [
        (1, 0, false, "good morning"),
        (2, 1, true, "flight LH 430"),
        (3, 1, false, "to Oslo"),
    ];
    assert_eq!(
        seen,
        want.map(|(id, revision, amended, text)| (id, revision, amended, text.to_owned()))
    );
}

fn any_words() -> impl Strategy<Value = Vec<Word>> {
    let word = (
        "[a-c1 ]{0,3}",
        0..5_000_u64,
        0..600_u64,
        proptest::option::of(0.0..=1.0_f64),
    );
    let word = word.prop_map(|(text, start_ms, length, confidence)| Word {
        text,
        start_ms,
        end_ms: start_ms + length,
        confidence,
    });
    proptest::collection::vec(word, 0..12)
}

proptest! {
    #[test]
    fn sure_words_are_never_lost_and_the_same_again_changes_nothing(ours in any_words(), theirs in any_words(), read in any::<bool>()) {
        let rules = Rules::default();
        let segment = Segment { id: 1, revision: 4, start_ms: 0, end_ms: 6_000, speech: true, logprob: None, words: ours, amended: false };
        let heard = Heard { id: 1, revision: 4, words: theirs, heard: !read };
        if let Ok(revised) = merge(&segment, &heard, 0, &rules) {
            let sure = |s: &Segment| -> Vec<String> {
                s.words.iter().filter(|w| w.confidence.is_some_and(|p| p >= rules.kept)).map(|w| w.text.clone()).collect()
            };
            let mut left = sure(&revised).into_iter();
            for word in sure(&segment) {
                prop_assert!(left.any(|other| other == word), "{word} is lost");
            }
            let again = Heard { revision: revised.revision, words: revised.words.clone(), ..heard };
            if let Ok(same) = merge(&revised, &again, 0, &rules) {
                prop_assert_eq!(same.revision, revised.revision);
            }
        }
    }
}
