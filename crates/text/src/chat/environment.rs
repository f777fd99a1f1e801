//! The Jinja environment of chat templates: `transformers`' settings, Python's methods, and the filters that
//! could make much out of little, with their result estimated first.

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Rest, StringInput, Tuple, ValueKind, ValueOrKwargs, from_args};
use minijinja::{Environment, Error, ErrorKind, State, UndefinedBehavior, Value};

use super::guard::{self, Guard, check_format};
use super::json::tojson;
use super::{Clock, Limits};

/// Deepest macro calls and recursive loops, in minijinja's units.
const MAX_RECURSION: usize = 200;
/// Most slices or batches that a list is cut into.
const MAX_PARTS: usize = 100_000;
/// Begins the detail of the error that `raise_exception` makes.
pub(super) const RAISED: &str = "raise_exception: ";

fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidOperation, message.into())
}

/// Blocks and their lines vanish, as `transformers` sets it.
pub(super) fn syntax() -> Result<SyntaxConfig, Error> {
    SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()
}

pub(super) fn environment(limits: Limits) -> Result<Environment<'static>, Error> {
    let guard = Guard::new(limits)?;
    let mut env = Environment::new();
    env.set_syntax(syntax()?);
    env.set_undefined_behavior(UndefinedBehavior::Lenient);
    env.set_recursion_limit(MAX_RECURSION);
    env.set_fuel(Some(limits.fuel));
    env.set_debug(false);
    // It prints the state of the machine.
    env.remove_global("debug");

    env.set_formatter(move |out, state, value| {
        if value.is_undefined() {
            return Ok(());
        }
        match value.as_str() {
            Some(text) => {
                guard.check_text(state, text.len())?;
                out.write_str(text)?;
            }
            None => {
                let text = value.to_string();
                guard.check_text(state, text.len())?;
                out.write_str(&text)?;
            }
        }
        Ok(())
    });

    env.add_filter(guard::CHECKED, move |state: &mut State<'_, '_>, value: Value| {
        guard.check(state, value)
    });
    env.add_filter(guard::STORED, move |state: &mut State<'_, '_>, value: Value| {
        guard.check_stored(state, value)
    });
    env.add_filter(
        guard::CONCAT,
        move |state: &mut State<'_, '_>, left: &Value, right: &Value| {
            let value = concat(&guard, left, right)?;
            guard.check(state, value)
        },
    );
    env.add_filter(
        guard::MULTIPLY,
        move |state: &mut State<'_, '_>, left: &Value, right: &Value| {
            let value = multiply(&guard, left, right)?;
            guard.check(state, value)
        },
    );

    env.add_filter("tojson", tojson);
    env.add_filter(
        "join",
        move |state: &mut State<'_, '_>,
              value: &Value,
              joiner: Option<StringInput<'_>>,
              attribute: Option<&str>,
              options: Kwargs| {
            let separator = joiner.as_ref().map_or(0, |text| text.as_str().len());
            let count = || value.try_iter().map_or(0, Iterator::count);
            let items = value.len().unwrap_or_else(count);
            guard.check_length(items.checked_mul(separator))?;
            minijinja::filters::join(state, value, joiner, attribute, options)
        },
    );
    env.add_filter(
        "replace",
        move |state: &mut State<'_, '_>, value: StringInput<'_>, from: StringInput<'_>, to: StringInput<'_>| {
            guard.check_length(replaced_length(value.as_str(), from.as_str(), to.as_str()))?;
            minijinja::filters::replace(state, value, from, to)
        },
    );
    env.add_filter(
        "indent",
        move |value: StringInput<'_>,
              width: Option<usize>,
              first: Option<bool>,
              blank: Option<bool>,
              options: Kwargs| {
            let columns = width
                .or(options.peek::<Option<usize>>("width").unwrap_or(None))
                .unwrap_or(4);
            let lines = value.as_str().matches('\n').count() + 1;
            guard.check_length(lines.checked_mul(columns))?;
            minijinja::filters::indent(value, width, first, blank, options)
        },
    );
    env.add_filter(
        "format",
        move |state: &mut State<'_, '_>, format: &Value, args: Rest<ValueOrKwargs>| {
            let values: Vec<Value> = args.iter().map(|arg| arg.clone().into_value()).collect();
            check_formatting(&guard, format.as_str().unwrap_or_default(), &values)?;
            minijinja::filters::format(state, format, args)
        },
    );
    env.add_filter(
        "batch",
        |state: &State<'_, '_>, value: Value, count: usize, fill: Option<Value>| {
            check_parts(count)?;
            minijinja::filters::batch(state, value, count, fill)
        },
    );
    env.add_filter(
        "slice",
        |state: &State<'_, '_>, value: Value, count: usize, fill: Option<Value>| {
            check_parts(count)?;
            minijinja::filters::slice(state, value, count, fill)
        },
    );
    env.set_unknown_method_callback(move |state, value, method, args| call_method(&guard, state, value, method, args));

    // Python's ideas: a sequence has a length and items, and `none` is not iterable while the undefined is.
    env.add_test("sequence", |value: &Value| {
        matches!(value.kind(), ValueKind::Seq | ValueKind::Map | ValueKind::String) || value.is_undefined()
    });
    env.add_test("iterable", |value: &Value| {
        let kind = value.kind();
        matches!(
            kind,
            ValueKind::Seq | ValueKind::Map | ValueKind::String | ValueKind::Iterable
        ) || value.is_undefined()
    });
    env.add_function("raise_exception", |message: &Value| -> Result<Value, Error> {
        Err(invalid(format!("{RAISED}{message}")))
    });
    Ok(env)
}

/// `strftime_now` of a rendering; the clock differs between renderings.
pub(super) fn strftime_now(clock: Clock) -> Value {
    Value::from_function(move |format: &str| clock.format(format).map_err(invalid))
}

fn concat(guard: &Guard, left: &Value, right: &Value) -> Result<Value, Error> {
    let text = |value: &Value| value.to_str().unwrap_or_else(|| value.to_string().into());
    let (left, right) = (text(left), text(right));
    guard.check_length(left.len().checked_add(right.len()))?;
    Ok(Value::from([&*left, &*right].concat()))
}

/// Python's `*`: numbers, and the repetition of texts, lists and tuples.
fn multiply(guard: &Guard, left: &Value, right: &Value) -> Result<Value, Error> {
    let unsupported = || {
        invalid(format!(
            "tried to use * operator on unsupported types {} and {}",
            left.kind(),
            right.kind()
        ))
    };
    let repeats = |value: &Value| -> Result<usize, Error> {
        let count = i64::try_from(value.clone()).map_err(|_| unsupported())?;
        // Python makes nothing of a negative count.
        Ok(usize::try_from(count.max(0)).unwrap_or(usize::MAX))
    };
    let repeated = |value: &Value| matches!(value.kind(), ValueKind::String | ValueKind::Seq | ValueKind::Iterable);
    let (items, count) = match (repeated(left), repeated(right)) {
        (true, false) => (left, repeats(right)?),
        (false, true) => (right, repeats(left)?),
        (true, true) => return Err(unsupported()),
        (false, false) => return multiply_numbers(left, right).ok_or_else(unsupported),
    };
    if let Some(text) = items.as_str() {
        guard.check_length(text.len().checked_mul(count))?;
        return Ok(Value::from(text.repeat(count)));
    }
    let values: Vec<Value> = items.try_iter()?.collect();
    let length = values.len().checked_mul(count);
    guard.check_length(length.and_then(|len| len.checked_mul(size_of::<Value>())))?;
    let values: Vec<Value> = std::iter::repeat_n(values, count).flatten().collect();
    Ok(if items.is_tuple() {
        Value::from(Tuple::from(values))
    } else {
        Value::from(values)
    })
}

fn multiply_numbers(left: &Value, right: &Value) -> Option<Value> {
    let whole = |value: &Value| match value.kind() {
        ValueKind::Bool => Some(i128::from(value.is_true())),
        _ if value.is_integer() => i128::try_from(value.clone()).ok(),
        _ => None,
    };
    if let (Some(left), Some(right)) = (whole(left), whole(right)) {
        let product = left.checked_mul(right)?;
        return Some(i64::try_from(product).map_or_else(|_| Value::from(product), Value::from));
    }
    let float = |value: &Value| {
        whole(value)
            .map(|v| v as f64)
            .or_else(|| f64::try_from(value.clone()).ok())
    };
    Some(Value::from(float(left)? * float(right)?))
}

fn replaced_length(text: &str, from: &str, to: &str) -> Option<usize> {
    text.matches(from)
        .count()
        .checked_mul(to.len())?
        .checked_add(text.len())
}

fn check_parts(count: usize) -> Result<(), Error> {
    if count > MAX_PARTS {
        return Err(guard::limit_error(format!(
            "{count} slices or batches, at most {MAX_PARTS} are made"
        )));
    }
    Ok(())
}

fn check_formatting(guard: &Guard, format: &str, args: &[Value]) -> Result<(), Error> {
    check_format(format)?;
    let places = format.matches(['{', '%']).count();
    let longest = args
        .iter()
        .map(|arg| arg.as_str().map_or_else(|| arg.to_string().len(), str::len))
        .max();
    let filled = places.checked_mul(longest.unwrap_or(0));
    guard.check_length(filled.and_then(|bytes| bytes.checked_add(format.len())))
}

/// Python's methods. Those of `minijinja-contrib`, guarded where they can grow, and a few that it lacks.
fn call_method(
    guard: &Guard,
    state: &mut State<'_, '_>,
    value: &Value,
    method: &str,
    args: &[Value],
) -> Result<Value, Error> {
    let contrib = minijinja_contrib::pycompat::unknown_method_callback;
    let Some(text) = value.as_str() else {
        return contrib(state, value, method, args);
    };
    match method {
        "replace" => {
            if let [from, to, ..] = args
                && let (Some(from), Some(to)) = (from.as_str(), to.as_str())
            {
                guard.check_length(replaced_length(text, from, to))?;
            }
        }
        "join" => {
            let items = args
                .first()
                .map_or(0, |items| items.try_iter().map_or(0, Iterator::count));
            guard.check_length(items.checked_mul(text.len()))?;
        }
        "format" => check_formatting(guard, text, args)?,
        "removeprefix" => {
            let (prefix,): (&str,) = from_args(args)?;
            return Ok(Value::from(text.strip_prefix(prefix).unwrap_or(text)));
        }
        "removesuffix" => {
            let (suffix,): (&str,) = from_args(args)?;
            return Ok(Value::from(text.strip_suffix(suffix).unwrap_or(text)));
        }
        "partition" | "rpartition" => {
            let (separator,): (&str,) = from_args(args)?;
            let first = method == "partition";
            let parts = if first {
                text.split_once(separator)
            } else {
                text.rsplit_once(separator)
            };
            let parts = match parts {
                Some((before, after)) => [before, separator, after],
                None if first => [text, "", ""],
                None => ["", "", text],
            };
            return Ok(Value::from(Tuple::from(parts.map(Value::from))));
        }
        "rsplit" => {
            let (separator, most): (&str, Option<usize>) = from_args(args)?;
            let mut parts: Vec<Value> = match most {
                Some(most) => text
                    .rsplitn(most.saturating_add(1), separator)
                    .map(Value::from)
                    .collect(),
                None => text.rsplit(separator).map(Value::from).collect(),
            };
            parts.reverse();
            return Ok(Value::from(parts));
        }
        _ => {}
    }
    contrib(state, value, method, args)
}
