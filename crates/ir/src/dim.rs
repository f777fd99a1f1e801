//! Symbolic sizes: affine expressions over named symbols, with exact arithmetic. Products of symbols are not needed and
//! not offered.

use crate::{Error, ErrorKind, Result};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// Values of symbols for one call, by name.
pub type Bindings = BTreeMap<String, usize>;

/// Size of an axis: an affine expression `c + a*x + b*y + …` over named symbols with integer coefficients.
///
/// Written `576`, `seq`, `past+seq`, `2*seq-1`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Dim {
    /// Symbol to non-zero coefficient.
    terms: BTreeMap<String, i64>,
    constant: i64,
}

impl Dim {
    /// A fixed size.
    pub fn known(n: usize) -> Self {
        Dim {
            terms: BTreeMap::new(),
            constant: i64::try_from(n).unwrap_or(i64::MAX),
        }
    }

    /// A size named by a symbol.
    pub fn symbol(name: &str) -> Self {
        Dim {
            terms: BTreeMap::from([(name.to_owned(), 1)]),
            constant: 0,
        }
    }

    /// The size, where it is fixed and not negative.
    pub fn as_known(&self) -> Option<usize> {
        if self.terms.is_empty() {
            usize::try_from(self.constant).ok()
        } else {
            None
        }
    }

    /// Whether the size is fixed at `n`.
    pub fn is(&self, n: usize) -> bool {
        self.as_known() == Some(n)
    }

    /// The symbols used, in order.
    pub fn symbols(&self) -> impl Iterator<Item = &str> {
        self.terms.keys().map(String::as_str)
    }

    /// `self + other`.
    ///
    /// # Errors
    /// [`ErrorKind::Dim`] on overflow.
    pub fn add(&self, other: &Dim) -> Result<Dim> {
        self.combine(other, 1)
    }

    /// `self - other`.
    ///
    /// # Errors
    /// [`ErrorKind::Dim`] on overflow.
    pub fn sub(&self, other: &Dim) -> Result<Dim> {
        self.combine(other, -1)
    }

    fn combine(&self, other: &Dim, sign: i64) -> Result<Dim> {
        let step = |a: i64, b: i64| {
            b.checked_mul(sign)
                .and_then(|b| a.checked_add(b))
                .ok_or_else(|| Error::new(ErrorKind::Dim, format!("`{self}` and `{other}` overflow")))
        };
        let mut out = self.clone();
        out.constant = step(out.constant, other.constant)?;
        for (name, &c) in &other.terms {
            let slot = out.terms.entry(name.clone()).or_insert(0);
            *slot = step(*slot, c)?;
        }
        out.terms.retain(|_, c| *c != 0);
        Ok(out)
    }

    /// The size under `bindings`.
    ///
    /// # Errors
    /// [`ErrorKind::Dim`] where a symbol is unbound, the result is negative or overflows.
    pub fn eval(&self, bindings: &Bindings) -> Result<usize> {
        let fail = |what: String| Error::new(ErrorKind::Dim, format!("`{self}` {what}"));
        let mut sum = i128::from(self.constant);
        for (name, &c) in &self.terms {
            let v = *bindings
                .get(name)
                .ok_or_else(|| fail(format!("needs a value for `{name}`")))?;
            sum = sum.saturating_add(i128::from(c).saturating_mul(v as i128));
        }
        usize::try_from(sum).map_err(|_| fail(format!("evaluates to {sum}, which is no size")))
    }
}

impl From<usize> for Dim {
    fn from(n: usize) -> Self {
        Dim::known(n)
    }
}

impl From<&str> for Dim {
    /// A symbol; use [`str::parse`] for expressions.
    fn from(name: &str) -> Self {
        Dim::symbol(name)
    }
}

impl fmt::Display for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut first = true;
        for (name, &c) in &self.terms {
            let sign = if c < 0 { "-" } else { "+" };
            if !first || c < 0 {
                f.write_str(sign)?;
            }
            if c.unsigned_abs() != 1 {
                write!(f, "{}*", c.unsigned_abs())?;
            }
            f.write_str(name)?;
            first = false;
        }
        if first {
            write!(f, "{}", self.constant)
        } else if self.constant != 0 {
            write!(f, "{:+}", self.constant)
        } else {
            Ok(())
        }
    }
}

impl FromStr for Dim {
    type Err = Error;

    fn from_str(text: &str) -> Result<Dim> {
        let fail = || Error::new(ErrorKind::Dim, format!("`{text}` is no dimension"));
        if text.is_empty() || text.len() > 256 {
            return Err(fail());
        }
        let mut out = Dim::default();
        let mut rest = text;
        while !rest.is_empty() {
            let (negative, body) = match rest.as_bytes()[0] {
                b'-' => (true, &rest[1..]),
                b'+' if rest.len() < text.len() => (false, &rest[1..]),
                _ if rest.len() == text.len() => (false, rest),
                _ => return Err(fail()),
            };
            let end = body.find(['+', '-']).unwrap_or(body.len());
            let (term, tail) = body.split_at(end);
            rest = tail;
            let (factor, name) = match term.split_once('*') {
                Some((n, s)) => (n.parse::<i64>().map_err(|_| fail())?, Some(s)),
                None => match term.parse::<i64>() {
                    Ok(n) => (n, None),
                    Err(_) => (1, Some(term)),
                },
            };
            if factor < 0 || term.starts_with('+') {
                return Err(fail());
            }
            let one = match name {
                None => Dim {
                    terms: BTreeMap::new(),
                    constant: factor,
                },
                Some(s) => {
                    let mut chars = s.chars();
                    let ok = chars.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
                        && chars.all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '.');
                    if !ok {
                        return Err(fail());
                    }
                    let mut d = Dim {
                        terms: BTreeMap::from([(s.to_owned(), factor)]),
                        constant: 0,
                    };
                    d.terms.retain(|_, c| *c != 0);
                    d
                }
            };
            out = if negative { out.sub(&one)? } else { out.add(&one)? };
        }
        Ok(out)
    }
}

impl Serialize for Dim {
    fn serialize<S: Serializer>(&self, s: S) -> std::result::Result<S::Ok, S::Error> {
        match self.as_known() {
            Some(n) => s.serialize_u64(n as u64),
            None => s.collect_str(self),
        }
    }
}

impl<'de> Deserialize<'de> for Dim {
    fn deserialize<D: Deserializer<'de>>(d: D) -> std::result::Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = Dim;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a size or an expression such as \"past+seq\"")
            }
            fn visit_u64<E: de::Error>(self, n: u64) -> std::result::Result<Dim, E> {
                i64::try_from(n).map_err(E::custom)?;
                usize::try_from(n).map(Dim::known).map_err(E::custom)
            }
            fn visit_i64<E: de::Error>(self, n: i64) -> std::result::Result<Dim, E> {
                usize::try_from(n).map(Dim::known).map_err(E::custom)
            }
            fn visit_str<E: de::Error>(self, s: &str) -> std::result::Result<Dim, E> {
                s.parse().map_err(E::custom)
            }
        }
        d.deserialize_any(Visitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_round_trip_through_text() {
        for text in ["0", "576", "seq", "past+seq", "2*seq-1", "-past+seq", "batch+3*seq+7"] {
            let d: Dim = text.parse().unwrap();
            assert_eq!(d.to_string(), text);
            let json = serde_json::to_string(&d).unwrap();
            assert_eq!(serde_json::from_str::<Dim>(&json).unwrap(), d);
        }
    }

    #[test]
    fn malformed_expressions_are_errors() {
        for text in ["", "+", "seq seq", "3*", "*seq", "seq++1", "1.5", "se/q", "+seq"] {
            assert!(text.parse::<Dim>().is_err(), "{text}");
        }
    }

    #[test]
    fn eval_checks_bindings_and_sign() {
        let b = Bindings::from([("seq".into(), 3), ("past".into(), 10)]);
        assert_eq!("past+seq".parse::<Dim>().unwrap().eval(&b).unwrap(), 13);
        assert!("seq-past".parse::<Dim>().unwrap().eval(&b).is_err());
        assert!("batch".parse::<Dim>().unwrap().eval(&b).is_err());
    }

    #[test]
    fn equal_terms_cancel() {
        let a: Dim = "past+seq".parse().unwrap();
        assert_eq!(a.sub(&Dim::symbol("past")).unwrap(), Dim::symbol("seq"));
    }
}
