//! Symbolic sizes: affine expressions over named symbols and over quotients of such expressions by fixed numbers, with
//! exact arithmetic. Products of symbols are not needed and not offered.

use crate::{Error, ErrorKind, Result};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// Values of symbols for one call, by name.
pub type Bindings = BTreeMap<String, usize>;

/// Quotients within quotients that an expression may have.
const MAX_DEPTH: usize = 8;
/// Longest text of an expression.
const MAX_TEXT_BYTES: usize = 1024;

/// What an expression counts.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Atom {
    Symbol(String),
    /// The expression divided by the number, rounded down.
    Quotient(Box<Dim>, i64),
}

/// Size of an axis: an expression `c + a*x + b*y + …` with integer coefficients, where `x`, `y`, … are named symbols or
/// quotients `(expression)//n`, rounded down.
///
/// Written `576`, `seq`, `past+seq`, `2*seq-1`, `(seq-1)//2+1`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Dim {
    /// Atom to non-zero coefficient.
    terms: BTreeMap<Atom, i64>,
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
            terms: BTreeMap::from([(Atom::Symbol(name.to_owned()), 1)]),
            constant: 0,
        }
    }

    /// A number, which may be negative.
    pub fn integer(n: i64) -> Self {
        Dim {
            terms: BTreeMap::new(),
            constant: n,
        }
    }

    /// The size, where it is fixed and not negative.
    pub fn as_known(&self) -> Option<usize> {
        usize::try_from(self.as_integer()?).ok()
    }

    /// The number, where it is fixed.
    pub fn as_integer(&self) -> Option<i64> {
        self.terms.is_empty().then_some(self.constant)
    }

    /// Whether the size is fixed at `n`.
    pub fn is(&self, n: usize) -> bool {
        self.as_known() == Some(n)
    }

    /// The symbols used, in order, those of quotients included; one may come several times.
    pub fn symbols(&self) -> impl Iterator<Item = &str> {
        let mut found = Vec::new();
        self.collect_symbols(&mut found);
        found.into_iter()
    }

    fn collect_symbols<'a>(&'a self, found: &mut Vec<&'a str>) {
        for atom in self.terms.keys() {
            match atom {
                Atom::Symbol(name) => found.push(name),
                Atom::Quotient(inner, _) => inner.collect_symbols(found),
            }
        }
    }

    /// The symbol, where the size is a symbol alone.
    pub fn as_symbol(&self) -> Option<&str> {
        match self.terms.first_key_value() {
            Some((Atom::Symbol(name), 1)) if self.terms.len() == 1 && self.constant == 0 => Some(name),
            _ => None,
        }
    }

    /// Quotients within quotients.
    fn depth(&self) -> usize {
        let inner = self.terms.keys().map(|atom| match atom {
            Atom::Symbol(_) => 0,
            Atom::Quotient(inner, _) => 1 + inner.depth(),
        });
        inner.max().unwrap_or(0)
    }

    fn overflow(&self, other: impl fmt::Display) -> Error {
        Error::new(ErrorKind::Dim, format!("`{self}` and `{other}` overflow"))
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
                .ok_or_else(|| self.overflow(other))
        };
        let mut out = self.clone();
        out.constant = step(out.constant, other.constant)?;
        for (atom, &c) in &other.terms {
            let slot = out.terms.entry(atom.clone()).or_insert(0);
            *slot = step(*slot, c)?;
        }
        out.terms.retain(|_, c| *c != 0);
        Ok(out)
    }

    /// `self * n`.
    ///
    /// # Errors
    /// [`ErrorKind::Dim`] on overflow.
    pub fn times(&self, n: usize) -> Result<Dim> {
        self.times_integer(i64::try_from(n).map_err(|_| self.overflow(n))?)
    }

    /// `self * n`, where `n` may be negative.
    ///
    /// # Errors
    /// [`ErrorKind::Dim`] on overflow.
    pub fn times_integer(&self, n: i64) -> Result<Dim> {
        let scaled = |c: i64| c.checked_mul(n).ok_or_else(|| self.overflow(n));
        let mut out = Dim::integer(scaled(self.constant)?);
        for (atom, &c) in &self.terms {
            out.terms.insert(atom.clone(), scaled(c)?);
        }
        out.terms.retain(|_, c| *c != 0);
        Ok(out)
    }

    /// `self / n`, rounded down. What `n` divides leaves the quotient, so equal sizes are equal expressions.
    ///
    /// # Errors
    /// [`ErrorKind::Dim`] where `n` is 0, or quotients nest too deeply.
    pub fn floor_div(&self, n: usize) -> Result<Dim> {
        let fail = |what: &str| Error::new(ErrorKind::Dim, format!("`{self}` divided by {n} {what}"));
        let n_signed = i64::try_from(n).ok().filter(|&n| n > 0);
        let n = n_signed.ok_or_else(|| fail("is not a size"))?;
        let mut out = Dim::integer(self.constant.div_euclid(n));
        let mut inner = Dim::integer(self.constant.rem_euclid(n));
        for (atom, &c) in &self.terms {
            for (part, c) in [(&mut out, c.div_euclid(n)), (&mut inner, c.rem_euclid(n))] {
                if c != 0 {
                    part.terms.insert(atom.clone(), c);
                }
            }
        }
        if inner.terms.is_empty() {
            return Ok(out);
        }
        // A quotient of a quotient is one: `(e//m + c)//n` is `(e + c*m)//(m*n)`.
        if let (Some((Atom::Quotient(e, m), 1)), 1) = (inner.terms.iter().next(), inner.terms.len())
            && let (Some(shift), Some(divisor)) = (inner.constant.checked_mul(*m), m.checked_mul(n))
            && let Ok(divisor) = usize::try_from(divisor)
        {
            let quotient = e.add(&Dim::integer(shift))?.floor_div(divisor)?;
            return out.add(&quotient);
        }
        if inner.depth() >= MAX_DEPTH {
            return Err(fail("nests too deeply"));
        }
        let quotient = Dim {
            terms: BTreeMap::from([(Atom::Quotient(Box::new(inner), n), 1)]),
            constant: 0,
        };
        out.add(&quotient)
    }

    /// The largest number that divides every coefficient: 1 where there is no larger.
    pub fn content(&self) -> usize {
        let gcd = |mut a: u64, mut b: u64| {
            while b != 0 {
                (a, b) = (b, a % b);
            }
            a
        };
        let all = self
            .terms
            .values()
            .fold(self.constant.unsigned_abs(), |g, c| gcd(g, c.unsigned_abs()));
        usize::try_from(all).unwrap_or(1).max(1)
    }

    /// The same with symbol `name` replaced by `by`.
    ///
    /// # Errors
    /// [`ErrorKind::Dim`] on overflow.
    pub fn substitute(&self, name: &str, by: &Dim) -> Result<Dim> {
        let mut out = Dim::integer(self.constant);
        for (atom, &c) in &self.terms {
            let term = match atom {
                Atom::Symbol(s) if s == name => by.clone(),
                Atom::Symbol(s) => Dim::symbol(s),
                Atom::Quotient(inner, n) => inner
                    .substitute(name, by)?
                    .floor_div(usize::try_from(*n).unwrap_or(0))?,
            };
            out = out.add(&term.times_integer(c)?)?;
        }
        Ok(out)
    }

    /// The size under `bindings`.
    ///
    /// # Errors
    /// [`ErrorKind::Dim`] where a symbol is unbound, the result is negative or overflows.
    pub fn eval(&self, bindings: &Bindings) -> Result<usize> {
        let sum = self.eval_integer(bindings)?;
        let what = || format!("`{self}` evaluates to {sum}, which is not a size");
        usize::try_from(sum).map_err(|_| Error::new(ErrorKind::Dim, what()))
    }

    /// The number under `bindings`, which may be negative.
    pub(crate) fn eval_integer(&self, bindings: &Bindings) -> Result<i128> {
        let mut sum = i128::from(self.constant);
        for (atom, &c) in &self.terms {
            let v = match atom {
                Atom::Symbol(name) => match bindings.get(name) {
                    Some(&v) => v as i128,
                    None => {
                        let what = format!("`{self}` needs a value for `{name}`");
                        return Err(Error::new(ErrorKind::Dim, what));
                    }
                },
                Atom::Quotient(inner, n) => inner.eval_integer(bindings)?.div_euclid(i128::from(*n)),
            };
            sum = sum.saturating_add(i128::from(c).saturating_mul(v));
        }
        Ok(sum)
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

impl fmt::Display for Atom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Atom::Symbol(name) => f.write_str(name),
            Atom::Quotient(inner, n) => write!(f, "({inner})//{n}"),
        }
    }
}

impl fmt::Display for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut first = true;
        for (atom, &c) in &self.terms {
            let sign = if c < 0 { "-" } else { "+" };
            if !first || c < 0 {
                f.write_str(sign)?;
            }
            if c.unsigned_abs() != 1 {
                write!(f, "{}*", c.unsigned_abs())?;
            }
            write!(f, "{atom}")?;
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
        let mut reader = Reader { rest: text };
        let parsed = match text.len() <= MAX_TEXT_BYTES {
            true => reader.sum(MAX_DEPTH),
            false => None,
        };
        parsed
            .filter(|_| reader.rest.is_empty())
            .ok_or_else(|| Error::new(ErrorKind::Dim, format!("`{text}` is not a dimension")))
    }
}

/// Reads the text form. `None` is a text that is none.
struct Reader<'a> {
    rest: &'a str,
}

impl Reader<'_> {
    fn take(&mut self, prefix: &str) -> bool {
        match self.rest.strip_prefix(prefix) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    /// `-a + b - c …`
    fn sum(&mut self, depth: usize) -> Option<Dim> {
        let mut out = Dim::default();
        let mut negative = self.take("-");
        loop {
            let term = self.term(depth)?;
            out = if negative { out.sub(&term) } else { out.add(&term) }.ok()?;
            negative = self.take("-");
            if !negative && !self.take("+") {
                return Some(out);
            }
        }
    }

    /// `3`, `x`, `3*x`
    fn term(&mut self, depth: usize) -> Option<Dim> {
        if !self.rest.starts_with(|c: char| c.is_ascii_digit()) {
            return self.atom(depth);
        }
        let factor = self.number()?;
        if self.take("*") {
            return self.atom(depth)?.times_integer(factor).ok();
        }
        Some(Dim::integer(factor))
    }

    /// `x`, `(sum)//3`
    fn atom(&mut self, depth: usize) -> Option<Dim> {
        if self.take("(") {
            let inner = self.sum(depth.checked_sub(1)?)?;
            if !self.take(")//") {
                return None;
            }
            return inner.floor_div(usize::try_from(self.number()?).ok()?).ok();
        }
        let end = self
            .rest
            .find(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '.'))
            .unwrap_or(self.rest.len());
        let (name, rest) = self.rest.split_at(end);
        let valid = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
        self.rest = rest;
        valid.then(|| Dim::symbol(name))
    }

    fn number(&mut self) -> Option<i64> {
        let end = self.rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(self.rest.len());
        let (digits, rest) = self.rest.split_at(end);
        self.rest = rest;
        digits.parse().ok()
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
        for text in [
            "0",
            "576",
            "seq",
            "past+seq",
            "2*seq-1",
            "-past+seq",
            "batch+3*seq+7",
            "seq+(seq+1)//2-2",
            "-3*(seq+(seq+2)//4)//3+5",
        ] {
            let d: Dim = text.parse().unwrap();
            assert_eq!(d.to_string(), text);
            let json = serde_json::to_string(&d).unwrap();
            assert_eq!(serde_json::from_str::<Dim>(&json).unwrap(), d);
        }
    }

    #[test]
    fn malformed_expressions_are_errors() {
        for text in [
            "",
            "+",
            "seq seq",
            "3*",
            "*seq",
            "seq++1",
            "1.5",
            "se/q",
            "+seq",
            "(seq)",
            "(seq)//0",
            "seq//2",
            "((seq)//2",
            "3*4",
        ] {
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

    #[test]
    fn quotients_round_down_and_have_one_form() {
        let seq = Dim::symbol("seq");
        let d = seq.times(4).unwrap().add(&Dim::known(7)).unwrap().floor_div(2).unwrap();
        assert_eq!(d.to_string(), "2*seq+3");
        let half = seq.sub(&Dim::known(1)).unwrap().floor_div(2).unwrap();
        for (n, want) in [(1usize, 0), (2, 0), (3, 1), (10, 4)] {
            assert_eq!(half.eval(&Bindings::from([("seq".into(), n)])).unwrap(), want, "{n}");
        }
        let text = half.to_string();
        assert_eq!(text, "(seq+1)//2-1", "what can leave the quotient does");
        let shifted = half
            .substitute("seq", &Dim::symbol("x").add(&Dim::known(2)).unwrap())
            .unwrap();
        assert_eq!(shifted.to_string(), "(x+1)//2");
        // Two terms, so that quotients of quotients stay.
        let mut deep = seq.clone();
        for _ in 0..MAX_DEPTH {
            deep = deep.add(&seq).unwrap().floor_div(3).unwrap();
        }
        assert!(deep.add(&seq).unwrap().floor_div(3).is_err());
    }
}
