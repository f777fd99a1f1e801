//! Option names, flags and variables of the public Cactus engine, and what each changes here.

use super::{Handoff, Leave, Policy};
use crate::redact::Class;
use serde_json::Value;

/// An option of the public Cactus engine.
#[derive(Debug)]
pub struct CactusOption {
    /// Its name in options, as a flag with hyphens, or as a variable in capitals.
    pub name: &'static str,
    /// What its value is.
    pub expects: &'static str,
    /// What it does here.
    pub effect: &'static str,
    /// Whether it is a switch: on where it is named without a value.
    pub is_switch: bool,
    set: fn(&mut Policy, &Value) -> bool,
}

/// No telemetry exists that could be switched.
/// What does nothing fails with no value.
fn nothing(_: &mut Policy, _: &Value) -> bool {
    true
}

fn switch(value: &Value) -> Option<bool> {
    match value {
        Value::Bool(on) => Some(*on),
        Value::Number(n) => n.as_i64().map(|n| n != 0),
        Value::String(text) => match text.to_ascii_lowercase().as_str() {
            "1" | "true" | "on" | "yes" => Some(true),
            "" | "0" | "false" | "off" | "no" => Some(false),
            _ => None,
        },
        _ => None,
    }
}

fn number(value: &Value) -> Option<f64> {
    value
        .as_f64()
        .or_else(|| value.as_str()?.trim().parse().ok())
        .filter(|n: &f64| n.is_finite())
}

fn never_if(policy: &mut Policy, off: bool) {
    if off {
        policy.handoff = Handoff::Never;
    }
}

/// All of them, in the order of the documentation.
pub const CACTUS_OPTIONS: &[CactusOption] = &[
    CactusOption {
        name: "auto_handoff",
        expects: "true or false",
        effect: "`false` sets `handoff = \"never\"`; `true` leaves what the policy says.",
        is_switch: true,
        set: |policy, value| switch(value).map(|on| never_if(policy, !on)).is_some(),
    },
    CactusOption {
        name: "confidence_threshold",
        expects: "a number up to 1; below 0 is the default",
        effect: "Sets `routing.confidence_threshold`. From 1 on it sets `handoff = \"always\"`, unless that is `never`.",
        is_switch: false,
        set: |policy, value| {
            let Some(threshold) = number(value) else { return false };
            policy.routing.confidence_threshold = (0.0..1.0).contains(&threshold).then_some(threshold);
            if threshold >= 1.0 && policy.handoff != Handoff::Never {
                policy.handoff = Handoff::Always;
            }
            true
        },
    },
    CactusOption {
        name: "cloud_timeout_ms",
        expects: "milliseconds, from 1 on",
        effect: "Sets `deadlines.total_ms`, and lowers the others to it. It is the time for all targets and tries of a request.",
        is_switch: false,
        set: |policy, value| {
            let Some(ms) = number(value).filter(|ms| (1.0..=86_400_000.0).contains(ms)) else {
                return false;
            };
            let ms = ms as u64;
            let deadlines = &mut policy.deadlines;
            deadlines.total_ms = ms;
            for part in [
                &mut deadlines.connect_ms,
                &mut deadlines.first_payload_ms,
                &mut deadlines.gap_ms,
            ] {
                *part = ms.min(*part);
            }
            true
        },
    },
    CactusOption {
        name: "handoff_with_images",
        expects: "true or false",
        effect: "`false` sets `consent.image = \"never\"`; `true` leaves what the policy says, as an option is no consent.",
        is_switch: true,
        set: |policy, value| {
            let on = switch(value);
            if on == Some(false) {
                policy.consent.classes.insert(Class::Image, Leave::Never);
            }
            on.is_some()
        },
    },
    CactusOption {
        name: "telemetry_enabled",
        expects: "true or false",
        effect: "Nothing: there is no telemetry.",
        is_switch: true,
        set: nothing,
    },
    CactusOption {
        name: "no_cloud_handoff",
        expects: "true or false",
        effect: "`true` sets `handoff = \"never\"`.",
        is_switch: true,
        set: |policy, value| switch(value).map(|on| never_if(policy, on)).is_some(),
    },
    CactusOption {
        name: "no_cloud_tele",
        expects: "true or false",
        effect: "Nothing: there is no telemetry.",
        is_switch: true,
        set: nothing,
    },
    CactusOption {
        name: "CACTUS_DISABLE_CLOUD_HANDOFF",
        expects: "1 or 0",
        effect: "`1` sets `handoff = \"never\"`.",
        is_switch: true,
        set: |policy, value| switch(value).map(|on| never_if(policy, on)).is_some(),
    },
    CactusOption {
        name: "CACTUS_NO_CLOUD_TELE",
        expects: "1 or 0",
        effect: "Nothing: there is no telemetry.",
        is_switch: true,
        set: nothing,
    },
    CactusOption {
        name: "CACTUS_CLOUD_STRICT_SSL",
        expects: "1 or 0",
        effect: "Nothing: certificates are always verified.",
        is_switch: true,
        set: nothing,
    },
    CactusOption {
        name: "CACTUS_CLOUD_INSECURE_SSL",
        expects: "1 or 0",
        effect: "Nothing: certificates are always verified.",
        is_switch: true,
        set: nothing,
    },
];

/// An option that is not known, or has a value that it cannot have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{name}`: expected {expected}; found {found}")]
pub struct UnknownOption {
    name: String,
    expected: String,
    found: String,
}

/// Changes a policy as an option of the public Cactus engine says. It comes after the policy file and flags of ours, and wins over
/// them; none of these options lets anything leave that the policy keeps.
///
/// # Errors
/// [`UnknownOption`] for a name that is not in [`CACTUS_OPTIONS`], or a value of another kind.
pub fn set_cactus_option(policy: &mut Policy, name: &str, value: &Value) -> Result<(), UnknownOption> {
    let refuse = |expected: String, found: String| UnknownOption {
        name: name.to_owned(),
        expected,
        found,
    };
    let Some(option) = CACTUS_OPTIONS.iter().find(|option| option.name == name) else {
        let names: Vec<&str> = CACTUS_OPTIONS.iter().map(|option| option.name).collect();
        return Err(refuse(
            format!("one of {}", names.join(", ")),
            "another name".to_owned(),
        ));
    };
    if (option.set)(policy, value) {
        Ok(())
    } else {
        Err(refuse(option.expects.to_owned(), value.to_string()))
    }
}
