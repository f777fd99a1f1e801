//! Symbolic sizes and guards: SymPy expressions in the form of `srepr`, and the comparisons that torch writes as Python.

use crate::{Error, Result};
use cactus_ir::{Constraint, Dim};

/// Calls within calls that an expression may have.
const MAX_DEPTH: usize = 24;
/// Bytes of an expression.
const MAX_BYTES: usize = 1 << 14;
/// Multiples of a size that a guard is tried with.
const MAX_MULTIPLE: i64 = 4096;

fn fail(text: &str, what: &str) -> Error {
    let shown: String = text.chars().take(160).collect();
    Error::unsupported(format!("the expression `{shown}` {what}"))
}

/// A part of an expression.
#[derive(Debug)]
enum Term {
    Size(Dim),
    Flag,
    Name(String),
}

/// Reads `srepr`: calls with positional and keyword arguments, names in quotes, integers.
struct Reader<'a> {
    text: &'a str,
    rest: &'a str,
    rename: &'a dyn Fn(&str) -> String,
    bounds: &'a dyn Bounds,
}

/// What is known of the symbols of a graph, by its names.
pub(crate) trait Bounds {
    /// The least that a symbol is.
    fn least(&self, symbol: &str) -> i64;
    /// The most that it is, where that is known.
    fn most(&self, symbol: &str) -> Option<i64>;
    /// Keeps that `size` must not be negative, which the program does not say.
    fn require(&self, size: Dim);
}

/// Of sizes nothing is known, but that they are no less than 0.
pub(crate) struct Unbounded;

impl Bounds for Unbounded {
    fn least(&self, _: &str) -> i64 {
        0
    }

    fn most(&self, _: &str) -> Option<i64> {
        None
    }

    fn require(&self, _: Dim) {}
}

/// The size that `text` describes; `rename` gives the graph's name of a symbol.
pub(crate) fn size(text: &str, rename: &dyn Fn(&str) -> String, bounds: &dyn Bounds) -> Result<Dim> {
    if text.len() > MAX_BYTES {
        return Err(fail(text, "is too long"));
    }
    let mut reader = Reader {
        text,
        rest: text,
        rename,
        bounds,
    };
    let term = reader.term(MAX_DEPTH)?;
    reader.space();
    match term {
        Term::Size(d) if reader.rest.is_empty() => Ok(d),
        _ => Err(fail(text, "is not a size")),
    }
}

impl Reader<'_> {
    fn space(&mut self) {
        self.rest = self.rest.trim_start();
    }

    fn take(&mut self, c: char) -> bool {
        self.space();
        match self.rest.strip_prefix(c) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn word(&mut self) -> &str {
        self.space();
        let end = self
            .rest
            .find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
            .unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        word
    }

    fn term(&mut self, depth: usize) -> Result<Term> {
        let Some(depth) = depth.checked_sub(1) else {
            return Err(fail(self.text, "nests too deeply"));
        };
        if self.take('\'') {
            let Some((name, rest)) = self.rest.split_once('\'') else {
                return Err(fail(self.text, "ends within quotes"));
            };
            self.rest = rest;
            return Ok(Term::Name(name.to_owned()));
        }
        let negative = self.take('-');
        let word = self.word().to_owned();
        if word.starts_with(|c: char| c.is_ascii_digit()) {
            let n: i64 = word.parse().map_err(|_| fail(self.text, "has a number out of range"))?;
            return Ok(Term::Size(Dim::integer(if negative { -n } else { n })));
        }
        if negative || word.is_empty() {
            return Err(fail(self.text, "is not readable"));
        }
        if !self.take('(') {
            return match word.as_str() {
                "true" | "True" | "False" | "false" => Ok(Term::Flag),
                _ => Err(fail(self.text, &format!("has `{word}`, which is unknown"))),
            };
        }
        let mut arguments = Vec::new();
        while !self.take(')') {
            if !arguments.is_empty() && !self.take(',') {
                return Err(fail(self.text, "is not readable"));
            }
            let before = self.rest;
            let keyword = !self.word().is_empty() && self.take('=');
            if !keyword {
                self.rest = before;
            }
            let value = self.term(depth)?;
            // Assumptions such as positive=True.
            arguments.push(if keyword { Term::Flag } else { value });
        }
        self.call(&word, arguments)
    }

    fn call(&self, name: &str, arguments: Vec<Term>) -> Result<Term> {
        let overflow = |e: cactus_ir::Error| fail(self.text, "cannot be followed").caused_by(e);
        if name == "Symbol" {
            let Some(Term::Name(symbol)) = arguments.first() else {
                return Err(fail(self.text, "has a symbol without a name"));
            };
            if symbol.starts_with('u') || symbol.starts_with("zuf") {
                let what = "has a size that depends on data, which cannot be planned";
                return Err(fail(self.text, what));
            }
            return Ok(Term::Size(Dim::symbol(&(self.rename)(symbol))));
        }
        let sizes: Option<Vec<Dim>> = arguments
            .into_iter()
            .map(|a| match a {
                Term::Size(d) => Some(d),
                _ => None,
            })
            .collect();
        let sizes = sizes.ok_or_else(|| fail(self.text, "is not readable"))?;
        let size = match (name, &sizes[..]) {
            ("Integer", [n]) => n.clone(),
            ("Add", all) => all
                .iter()
                .try_fold(Dim::integer(0), |a, b| a.add(b))
                .map_err(overflow)?,
            ("Mul", all) => {
                let mut product = Dim::integer(1);
                for factor in all {
                    product = match (product.as_integer(), factor.as_integer()) {
                        (Some(n), _) => factor.times_integer(n),
                        (_, Some(n)) => product.times_integer(n),
                        _ => {
                            return Err(fail(
                                self.text,
                                "multiplies two sizes that vary; make one of them fixed",
                            ));
                        }
                    }
                    .map_err(overflow)?;
                }
                product
            }
            ("FloorDiv" | "CleanDiv", [a, b]) => match b.as_known() {
                Some(n) => a.floor_div(n).map_err(overflow)?,
                None => return Err(fail(self.text, "divides by a size that varies; make it fixed")),
            },
            ("Mod" | "PythonMod", [a, b]) => match b.as_known() {
                Some(n) => {
                    let quotient = a.floor_div(n).and_then(|q| q.times(n)).map_err(overflow)?;
                    a.sub(&quotient).map_err(overflow)?
                }
                None => return Err(fail(self.text, "divides by a size that varies; make it fixed")),
            },
            ("Max" | "Min", [first, rest @ ..]) => {
                let mut out = first.clone();
                for next in rest {
                    out = self.extreme(name == "Max", &out, next)?;
                }
                out
            }
            _ => return Err(fail(self.text, &format!("has `{name}`, which is unknown"))),
        };
        Ok(Term::Size(size))
    }
}

impl Reader<'_> {
    /// The larger of two sizes, or the smaller: the one that it is for every length; of a number and a length it is the number
    /// that is taken for the smaller, and lengths for which it is not are refused.
    fn extreme(&self, largest: bool, a: &Dim, b: &Dim) -> Result<Dim> {
        let overflow = |e: cactus_ir::Error| fail(self.text, "cannot be followed").caused_by(e);
        let (above, below) = (a.sub(b).map_err(overflow)?, b.sub(a).map_err(overflow)?);
        let never_negative = |d: &Dim| self.least(d).is_some_and(|n| n >= 0);
        let first_is_larger = match (never_negative(&above), never_negative(&below)) {
            (true, _) => true,
            (_, true) => false,
            // A number and a length: the smaller is taken for the number, the larger for the length, which then is no less.
            _ if a.as_known().is_some() => {
                self.bounds.require(below);
                false
            }
            _ if b.as_known().is_some() => {
                self.bounds.require(above);
                true
            }
            _ => {
                let which = if largest { "larger" } else { "smaller" };
                return Err(fail(
                    self.text,
                    &format!("takes the {which} of two sizes, which depends on the length"),
                ));
            }
        };
        Ok(if first_is_larger == largest {
            a.clone()
        } else {
            b.clone()
        })
    }

    /// The least that a sum of multiples of one symbol is.
    fn least(&self, d: &Dim) -> Option<i64> {
        if let Some(n) = d.as_integer() {
            return Some(n);
        }
        let mut symbols = d.symbols();
        let symbol = symbols.next()?.to_owned();
        if symbols.any(|s| s != symbol) {
            return None;
        }
        let at = |n: i64| d.substitute(&symbol, &Dim::integer(n)).ok()?.as_integer();
        let least = self.bounds.least(&symbol);
        // Linear: at one of the ends.
        let (a, b, c) = (at(least)?, at(least.checked_add(1)?)?, at(least.checked_add(1 << 20)?)?);
        let slope = b.checked_sub(a)?;
        if c.checked_sub(a)? != slope.checked_mul(1 << 20)? {
            return None;
        }
        if slope >= 0 {
            Some(a)
        } else {
            at(self.bounds.most(&symbol)?)
        }
    }
}

/// The condition of a guard such as `L['x'].size()[1] <= 64`; `axis` gives the size of an axis of an input, by name.
pub(crate) fn guard(text: &str, axis: &dyn Fn(&str, usize) -> Option<Dim>) -> Result<Vec<Constraint>> {
    if text.len() > MAX_BYTES {
        return Err(fail(text, "is too long for a guard"));
    }
    let mut out = Vec::new();
    for part in text.split(" and ") {
        if let Some(found) = beyond_sums(part, axis) {
            out.push(found);
            continue;
        }
        let mut reader = Guard {
            text,
            rest: part,
            axis,
            taken: Vec::new(),
        };
        let a = reader.sum(MAX_DEPTH)?;
        reader.rest = reader.rest.trim_start();
        let operators = ["<=", ">=", "==", "!=", "<", ">"];
        let Some(operator) = operators.into_iter().find(|o| reader.rest.starts_with(o)) else {
            return Err(fail(text, "is a guard that cannot be read"));
        };
        reader.rest = &reader.rest[operator.len()..];
        let b = reader.sum(MAX_DEPTH)?;
        if !reader.rest.trim().is_empty() {
            return Err(fail(text, "is a guard that cannot be read"));
        }
        out.extend(reader.taken.drain(..).map(|d| Constraint::at_least(d, 0)));
        let overflow = |e: cactus_ir::Error| fail(text, "cannot be followed").caused_by(e);
        let difference = a.sub(&b).map_err(overflow)?;
        let at_least = |d: Dim, n: i64| Constraint::at_least(d, n);
        let opposite = difference.times_integer(-1).map_err(overflow)?;
        match operator {
            "<=" => out.push(at_least(opposite, 0)),
            "<" => out.push(at_least(opposite, 1)),
            ">=" => out.push(at_least(difference, 0)),
            ">" => out.push(at_least(difference, 1)),
            "==" => out.extend([at_least(opposite, 0), at_least(difference, 0)]),
            _ => out.push(Constraint::not(difference, 0)),
        }
    }
    Ok(out)
}

/// Guards with a product or remainder of two sizes that vary, as torch writes them for shapes it has divided: what implies
/// them, where that is one condition on a size.
fn beyond_sums(part: &str, axis: &dyn Fn(&str, usize) -> Option<Dim>) -> Option<Constraint> {
    let read = |text: &str| -> Option<(Dim, char, Dim, String)> {
        let mut reader = Guard {
            text,
            rest: text,
            axis,
            taken: Vec::new(),
        };
        let a = reader.atom(MAX_DEPTH).ok()?;
        let op = ['*', '%'].into_iter().find(|op| reader.take(&op.to_string()))?;
        let b = reader.atom(MAX_DEPTH).ok()?;
        Some((a, op, b, reader.rest.trim().to_owned()))
    };
    let part = part.trim();
    let inner = || {
        let (a, op, b, rest) = read(part.strip_prefix('(')?)?;
        Some((a, op, b, rest.strip_prefix(')')?.trim().to_owned()))
    };
    let (a, op, b, rest) = inner().or_else(|| read(part))?;
    if b.as_integer().is_some() || (op == '*' && a.as_integer().is_some()) {
        return None;
    }
    let (relation, number) = ["==", "!=", ">="]
        .into_iter()
        .find_map(|r| Some((r, rest.strip_prefix(r)?)))?;
    let number: i64 = number.trim().parse().ok()?;
    match (op, relation, number) {
        // What a multiple of the size leaves of the other: nothing, or a number that a larger size does not divide. A size is
        // at least 1 where something is divided by it.
        ('%', "==" | "!=", 0) => {
            let beyond = |n: i64| a.sub(&b.times_integer(n).ok()?).ok()?.as_integer();
            let rest = (0..=MAX_MULTIPLE).find_map(beyond)?;
            match (relation, rest) {
                ("==", 0) => Some(Constraint::at_least(b, 1)),
                ("!=", rest) if rest != 0 => Some(Constraint::at_least(b, rest.checked_abs()?.checked_add(1)?)),
                _ => None,
            }
        }
        // A square, of a size that is not negative.
        ('*', ">=", n) if a == b && (1..1 << 20).contains(&n) => {
            let least = (1..=n).find(|m| m.checked_mul(*m).is_none_or(|square| square >= n))?;
            Some(Constraint::at_least(a, least))
        }
        _ => None,
    }
}

/// Reads the Python of a guard: sums, products and quotients of integers and `L['x'].size()[1]`.
struct Guard<'a> {
    text: &'a str,
    rest: &'a str,
    axis: &'a dyn Fn(&str, usize) -> Option<Dim>,
    /// What is not negative, so that a smaller or larger of two sizes is what it is taken for.
    taken: Vec<Dim>,
}

impl Guard<'_> {
    fn unreadable(&self) -> Error {
        fail(self.text, "is a guard that cannot be read")
    }

    fn take(&mut self, prefix: &str) -> bool {
        self.rest = self.rest.trim_start();
        match self.rest.strip_prefix(prefix) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn sum(&mut self, depth: usize) -> Result<Dim> {
        let Some(depth) = depth.checked_sub(1) else {
            return Err(self.unreadable());
        };
        let negative = self.take("-");
        let mut out = self.product(depth)?;
        let overflow = |_| fail(self.text, "overflows");
        if negative {
            out = out.times_integer(-1).map_err(overflow)?;
        }
        loop {
            if self.take("+") {
                out = out.add(&self.product(depth)?).map_err(|_| self.unreadable())?;
            } else if self.take("-") {
                out = out.sub(&self.product(depth)?).map_err(|_| self.unreadable())?;
            } else {
                return Ok(out);
            }
        }
    }

    fn product(&mut self, depth: usize) -> Result<Dim> {
        let mut out = self.atom(depth)?;
        loop {
            let (divide, remainder) = if self.take("//") {
                (true, false)
            } else if self.take("%") {
                (true, true)
            } else if self.take("*") {
                (false, false)
            } else {
                return Ok(out);
            };
            let by = self.atom(depth)?;
            let result = match (divide, out.as_integer(), by.as_integer()) {
                (false, Some(n), _) => by.times_integer(n),
                (false, _, Some(n)) => out.times_integer(n),
                (true, _, Some(n)) if n > 0 => {
                    let n = usize::try_from(n).unwrap_or(usize::MAX);
                    out.floor_div(n).and_then(|q| match remainder {
                        true => out.sub(&q.times(n)?),
                        false => Ok(q),
                    })
                }
                _ => return Err(self.unreadable()),
            };
            out = result.map_err(|_| self.unreadable())?;
        }
    }

    /// The smaller of a number and a length is taken for the number, the larger for the length: the length is at least so.
    fn extreme(&mut self, depth: usize, largest: bool) -> Result<Dim> {
        let Some(depth) = depth.checked_sub(1) else {
            return Err(self.unreadable());
        };
        let a = self.sum(depth)?;
        if !self.take(",") {
            return Err(self.unreadable());
        }
        let b = self.sum(depth)?;
        let (number, length) = match (a.as_known(), b.as_known()) {
            (Some(_), None) => (a, b),
            (None, Some(_)) => (b, a),
            _ => return Err(self.unreadable()),
        };
        if !self.take(")") {
            return Err(self.unreadable());
        }
        self.taken.push(length.sub(&number).map_err(|_| self.unreadable())?);
        Ok(if largest { length } else { number })
    }

    fn atom(&mut self, depth: usize) -> Result<Dim> {
        for (name, largest) in [("torch.sym_min(", false), ("torch.sym_max(", true)] {
            if self.take(name) {
                return self.extreme(depth, largest);
            }
        }
        if self.take("(") {
            let inner = self.sum(depth)?;
            return if self.take(")") {
                Ok(inner)
            } else {
                Err(self.unreadable())
            };
        }
        if self.take("L['") || self.take("L[\"") {
            let Some((name, rest)) = self.rest.split_once(['\'', '"']) else {
                return Err(self.unreadable());
            };
            let name = name.to_owned();
            self.rest = rest;
            if !self.take("].size()[") {
                return Err(self.unreadable());
            }
            let axis = self.number()?;
            if !self.take("]") {
                return Err(self.unreadable());
            }
            let axis = usize::try_from(axis).map_err(|_| self.unreadable())?;
            return (self.axis)(&name, axis).ok_or_else(|| {
                let what = format!("is a guard on axis {axis} of `{name}`, which is not an input");
                fail(self.text, &what)
            });
        }
        Ok(Dim::integer(self.number()?))
    }

    fn number(&mut self) -> Result<i64> {
        self.rest = self.rest.trim_start();
        let end = self.rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(self.rest.len());
        let (digits, rest) = self.rest.split_at(end);
        let n = digits.parse().map_err(|_| self.unreadable())?;
        self.rest = rest;
        Ok(n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_reads_the_expressions_of_torch() {
        let s = "Symbol('s70', positive=True, integer=True)";
        let cases = [
            (s.to_owned(), "s70"),
            (format!("Mul(Integer(96), {s})"), "96*s70"),
            (format!("Add({s}, Integer(-1))"), "s70-1"),
            (format!("FloorDiv(Add({s}, Integer(7)), Integer(24))"), "(s70+7)//24"),
            (format!("Mod({s}, Integer(4))"), "s70-4*(s70)//4"),
        ];
        for (text, want) in cases {
            assert_eq!(
                size(&text, &|n| n.to_owned(), &Unbounded).unwrap().to_string(),
                want,
                "{text}"
            );
        }
    }

    #[test]
    fn size_refuses_what_it_cannot_follow() {
        let deep = format!("{}Integer(1){}", "Add(".repeat(40), ")".repeat(40));
        for text in [
            "",
            "Symbol()",
            "Symbol('u0')",
            "Mul(Symbol('a'), Symbol('b'))",
            "Pow(Symbol('a'), Integer(2))",
            "Integer(1",
            "Integer(1) x",
            &deep,
        ] {
            assert!(size(text, &|n| n.to_owned(), &Unbounded).is_err(), "{text}");
        }
    }

    /// Lengths are at least 2.
    struct Lengths(std::cell::RefCell<Vec<String>>);

    impl Bounds for Lengths {
        fn least(&self, _: &str) -> i64 {
            2
        }

        fn most(&self, _: &str) -> Option<i64> {
            Some(512)
        }

        fn require(&self, size: Dim) {
            self.0.borrow_mut().push(size.to_string());
        }
    }

    #[test]
    fn larger_and_smaller_of_two_sizes_are_decided_by_what_is_known() {
        let s = "Symbol('s', integer=True)";
        let cases = [
            (
                format!("Max(Integer(0), Add(Integer(1), Mul(Integer(-1), {s})))"),
                "0",
                "",
            ),
            (format!("Max(Integer(1), {s})"), "s", ""),
            (
                format!("Max(Integer(0), Add(Integer(512), Mul(Integer(-1), {s})))"),
                "-s+512",
                "",
            ),
            (format!("Min(Integer(2), {s}, Add({s}, Integer(1)))"), "2", ""),
            (format!("Min({s}, Integer(4))"), "4", "s-4"),
            (format!("Max({s}, Integer(9))"), "s", "s-9"),
        ];
        for (text, want, required) in cases {
            let bounds = Lengths(Vec::new().into());
            let found = size(&text, &|n| n.to_owned(), &bounds).unwrap();
            assert_eq!(found.to_string(), want, "{text}");
            assert_eq!(bounds.0.borrow().join(", "), required, "{text}");
        }
        let text = format!("Max({s}, Add(Integer(9), Mul(Integer(-1), {s})))");
        assert!(size(&text, &|n| n.to_owned(), &Lengths(Vec::new().into())).is_err());
    }

    #[test]
    fn guard_becomes_constraints() {
        let axis = |name: &str, i: usize| (name == "x" && i == 1).then(|| Dim::symbol("n"));
        let one = |text: &str| {
            guard(text, &axis)
                .unwrap()
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join(", ")
        };
        assert_eq!(one("L['x'].size()[1] <= 64"), "-n+64 >= 0");
        assert_eq!(
            one("(L['x'].size()[1] + 63) // 64 == 1"),
            "-(n+63)//64+1 >= 0, (n+63)//64-1 >= 0"
        );
        assert_eq!(one("L['x'].size()[1] != 9"), "n-9 != 0");
        assert_eq!(
            one("L['x'].size()[1] % 4 == 0 and 2 < L['x'].size()[1]"),
            "-n+4*(n)//4 >= 0, n-4*(n)//4 >= 0, n-2 >= 1"
        );
        assert_eq!(
            one("torch.sym_min(4, L['x'].size()[1]) <= L['x'].size()[1]"),
            "n-4 >= 0, n-4 >= 0"
        );
        // Remainders and squares of sizes that vary become what implies them.
        assert_eq!(
            one("((64 + 64*(L['x'].size()[1] // 8)) % (1 + (L['x'].size()[1] // 8))) == 0"),
            "(n)//8+1 >= 1"
        );
        assert_eq!(one("(1 % (1 + L['x'].size()[1])) != 0"), "n+1 >= 2");
        assert_eq!(
            one("((1 + 3*L['x'].size()[1]) % (1 + L['x'].size()[1])) != 0"),
            "n+1 >= 3"
        );
        assert_eq!(
            one("((-1) + L['x'].size()[1])*((-1) + L['x'].size()[1]) >= 5"),
            "n-1 >= 3"
        );
        for text in [
            "((63 + 64*L['x'].size()[1]) % (1 + L['x'].size()[1])) == 0",
            "((2 + 2*L['x'].size()[1]) % (1 + L['x'].size()[1])) != 0",
            "L['x'].size()[1]*(1 + L['x'].size()[1]) >= 5",
            "L['y'].size()[1] <= 64",
            "L['x'].size()[1]",
            "f(x) == 1",
            "L['x'].size()[1] <= 64 or True",
            "",
        ] {
            assert!(guard(text, &axis).is_err(), "{text}");
        }
    }
}
