//! Formats of strings as expressions.
//!
//! Those of `llguidance` are taken where they are exact. Dates are not: they have to know leap years. Leap seconds are left
//! out, because whether one is valid depends on the date and offset.

/// How a format is enforced.
pub(super) enum Enforced {
    /// By the library, under the same name.
    ByName,
    /// By an expression in Rust's syntax.
    By(String),
}

/// Days of all months, leap years observed.
const DATE: &str = concat!(
    r"(?:[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))",
    r"|(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)-02-29)"
);
const TIME: &str =
    r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,9})?(?:[zZ]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])";
/// A label of a host name, of 63 letters at most. Two hyphens in a row stand for other alphabets, which have rules of their own.
const LABEL: &str = r"[a-zA-Z0-9](?:-?[a-zA-Z0-9]){0,31}";

/// The formats that are enforced.
pub(super) const NAMES: &str = "date, date-time, time, duration, email, hostname, ipv4, ipv6, uuid, uri";

/// How `format` is enforced; `None` for one that is not.
pub(super) fn enforced(format: &str) -> Option<Enforced> {
    Some(match format {
        "date" => Enforced::By(format!("^{DATE}$")),
        "time" => Enforced::By(format!("^{TIME}$")),
        "date-time" => Enforced::By(format!("^{DATE}[tT]{TIME}$")),
        // Four labels of 63 with dots may be more than the 253 letters that a name may have, three are not.
        "hostname" => Enforced::By(format!(r"^{LABEL}(?:\.{LABEL}){{0,2}}$")),
        "email" => Enforced::By(format!(
            r"^[a-zA-Z0-9!#$%&'*+/=?^_`{{|}}~-]{{1,30}}(?:\.[a-zA-Z0-9!#$%&'*+/=?^_`{{|}}~-]{{1,16}}){{0,2}}@{LABEL}(?:\.{LABEL}){{0,2}}$"
        )),
        "duration" | "ipv4" | "ipv6" | "uuid" | "uri" => Enforced::ByName,
        _ => return None,
    })
}
