//! The JSON form of a list of floats. JSON has no infinities (a mask needs one) and no NaN, so these three are written
//! as the strings `inf`, `-inf` and `nan`; everything else is a number.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Element {
    Number(f32),
    Name(String),
}

pub(crate) fn serialize<S: Serializer>(values: &[f32], s: S) -> Result<S::Ok, S::Error> {
    s.collect_seq(values.iter().map(|&v| {
        if v.is_finite() {
            Element::Number(v)
        } else {
            // `f32` prints as `inf`, `-inf` and `NaN`.
            Element::Name(v.to_string().to_ascii_lowercase())
        }
    }))
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Vec<f32>, D::Error> {
    Vec::<Element>::deserialize(d)?
        .into_iter()
        .map(|e| match e {
            Element::Number(v) if v.is_finite() => Ok(v),
            Element::Number(v) => Err(de::Error::custom(format!("{v} does not fit f32"))),
            Element::Name(name) => match name.as_str() {
                "inf" => Ok(f32::INFINITY),
                "-inf" => Ok(f32::NEG_INFINITY),
                "nan" => Ok(f32::NAN),
                _ => Err(de::Error::custom(format!("`{name}` is not a float"))),
            },
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use crate::Literal;

    #[test]
    fn literal_with_infinities_round_trips_through_json() {
        let lit = Literal::F32(vec![0.1, f32::NEG_INFINITY, f32::INFINITY, f32::MIN, -0.0]);
        let json = serde_json::to_string(&lit).unwrap();
        assert!(json.contains(r#""-inf","inf""#), "{json}");
        assert_eq!(serde_json::from_str::<Literal>(&json).unwrap(), lit);
        let nan = serde_json::to_string(&Literal::F32(vec![f32::NAN])).unwrap();
        let Literal::F32(back) = serde_json::from_str(&nan).unwrap() else {
            panic!("another element type");
        };
        assert!(back[0].is_nan());
    }

    #[test]
    fn literal_with_other_words_or_huge_numbers_is_an_error() {
        for text in [r#"{"f32":["x"]}"#, r#"{"f32":[null]}"#, r#"{"f32":[1e99]}"#] {
            assert!(serde_json::from_str::<Literal>(text).is_err(), "{text}");
        }
    }
}
