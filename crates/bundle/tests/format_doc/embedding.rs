//! The record of how a model makes vectors and scores of texts.

use super::assert_fields;
use cactus_bundle::{
    EMBEDDING_VERSION, Embedding, Expansion, Fill, Gives, Pair, Pooling, ScoreFn, Scores, Similarity, TokenTexts,
    TokenVectors, Vectors, WrittenPair,
};

fn embedder() -> Embedding {
    Embedding {
        version: EMBEDDING_VERSION,
        limit_tokens: 512,
        lower_case: true,
        fill: Some(Fill { token: 1, length: 512 }),
        gives: Gives::Vectors(Vectors {
            dimensions: 768,
            least_dimensions: Some(128),
            pooling: vec![Pooling::Mean, Pooling::First],
            normalized: true,
            similarity: Similarity::Cosine,
            prompts: [("query".to_owned(), "query: ".to_owned())].into(),
            default_prompt: Some("query".to_owned()),
        }),
    }
}

fn of_tokens() -> Embedding {
    let texts = TokenTexts {
        limit_tokens: 32,
        prompt: "query: ".into(),
        mark: Some(7),
        expansion: Some(Expansion {
            token: 4,
            length: 32,
            seen: false,
        }),
        skipped: vec![1, 2],
    };
    Embedding {
        fill: None,
        gives: Gives::TokenVectors(TokenVectors {
            dimensions: 128,
            query: texts.clone(),
            document: texts,
        }),
        ..embedder()
    }
}

fn ranker(pair: Pair) -> Embedding {
    Embedding {
        fill: None,
        gives: Gives::Scores(Scores {
            pair,
            activation: ScoreFn::Sigmoid,
        }),
        ..embedder()
    }
}

#[test]
fn fields_of_the_embedding_record_are_those_of_the_code() {
    let embedder = embedder();
    assert_fields("embedding", &embedder);
    assert_fields("fill", &embedder.fill);
    let Gives::Vectors(vectors) = &embedder.gives else {
        panic!("{embedder:?}");
    };
    assert_fields("vectors", vectors);
    let written = WrittenPair {
        before: "b".into(),
        instruct: "w".into(),
        instruction: "i".into(),
        query: "q".into(),
        document: "d".into(),
        after: "a".into(),
    };
    assert_fields("written", &written);
    let joined = ranker(Pair::Joined { token_types: true });
    let Gives::Scores(scores) = &joined.gives else {
        panic!("{joined:?}");
    };
    assert_fields("scores", scores);
    let of_tokens = of_tokens();
    let Gives::TokenVectors(token_vectors) = &of_tokens.gives else {
        panic!("{of_tokens:?}");
    };
    assert_fields("token vectors", token_vectors);
    assert_fields("token texts", &token_vectors.query);
    assert_fields("expansion", &token_vectors.query.expansion);
    for record in [&embedder, &of_tokens, &joined, &ranker(Pair::Written(written))] {
        let json = serde_json::to_value(record).unwrap();
        assert_eq!(serde_json::from_value::<Embedding>(json.clone()).unwrap(), *record);
        assert_eq!(record.check(), Ok(()));
        // What a newer program may write is refused, at every level.
        for at in [
            "",
            "/fill",
            "/gives",
            "/gives/pair",
            "/gives/query",
            "/gives/document/expansion",
        ] {
            let mut changed = json.clone();
            let Some(inside) = changed.pointer_mut(at).filter(|v| v.is_object()) else {
                continue;
            };
            inside["unknown"] = 1.into();
            assert!(serde_json::from_value::<Embedding>(changed).is_err(), "{at}");
        }
        let mut changed = json;
        changed["gives"]["kind"] = "sparse".into();
        assert!(serde_json::from_value::<Embedding>(changed).is_err());
    }
    // And what cannot be.
    let changed = |change: &dyn Fn(&mut Vectors)| {
        let mut vectors = vectors.clone();
        change(&mut vectors);
        let gives = Gives::Vectors(vectors);
        Embedding {
            gives,
            ..embedder.clone()
        }
    };
    let wrong = [
        Embedding {
            limit_tokens: 0,
            ..embedder.clone()
        },
        Embedding {
            fill: Some(Fill { token: 1, length: 511 }),
            ..embedder.clone()
        },
        Embedding {
            fill: embedder.fill,
            ..of_tokens.clone()
        },
        changed(&|v| v.dimensions = 0),
        changed(&|v| v.least_dimensions = Some(769)),
        changed(&|v| v.pooling.clear()),
        changed(&|v| v.default_prompt = Some("task".into())),
        changed(&|v| drop(v.prompts.insert("long".into(), "x".repeat((1 << 16) + 1)))),
    ];
    let mut too_wide = token_vectors.clone();
    too_wide.query.expansion = too_wide.query.expansion.map(|e| Expansion { length: 33, ..e });
    let too_wide = Embedding {
        fill: None,
        gives: Gives::TokenVectors(too_wide),
        ..embedder.clone()
    };
    for record in wrong.into_iter().chain([too_wide]) {
        assert!(record.check().is_err(), "{record:?}");
    }
}
