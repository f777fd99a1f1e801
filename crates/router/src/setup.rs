//! From what a user gives (a policy file, a target by name or address, options, the environment) to what a router works with.
//!
//! The file comes first, then flags, then options as the public Cactus engine names them. What switches handoffs off in the environment comes last and wins, so that nothing that a
//! program was given can take it back.

use crate::error::{Error, Result};
use crate::router::unix_seconds;
use cactus_cloud::{Base, Key, Protocol, catalog};
use cactus_hybrid::money::{Pico, Price};
use cactus_hybrid::policy::{self, CACTUS_OPTIONS, Handoff, KeySource, Leave, Policy, PolicyError, set_cactus_option};
use cactus_hybrid::redact::Class;
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::path::Path;

/// What a user gives.
#[derive(Clone, Debug, Default)]
pub struct Setup<'a> {
    /// A policy file.
    pub file: Option<&'a Path>,
    /// The text of one, where there is no file.
    pub text: Option<&'a str>,
    /// The policy as values ([`Policy::from_values_at`]), where there is neither.
    pub values: Option<&'a Map<String, Value>>,
    /// A target: a name of the policy file, of the table of targets, or `http://HOST:PORT/v1#MODEL`.
    pub target: Option<&'a str>,
    /// The key of `target`.
    pub key: Option<&'a SecretString>,
    /// Keys of targets by their names. A key that is given comes before what the policy says of keys. It is bound to the host of its
    /// target, written down nowhere, and overwritten in memory with the last router that has it.
    pub keys: BTreeMap<String, SecretString>,
    /// Whether `target` is to write down speech, where it is an address.
    pub hears: bool,
    /// Whether to hand off at all.
    pub handoff: Option<Handoff>,
    /// The most that a session may cost, in dollars as text.
    pub budget: Option<&'a str>,
    /// Classes that may leave without being asked about.
    pub consent: &'a [Class],
    /// Options under the names of the public Cactus engine ([`policy::CACTUS_OPTIONS`]).
    pub options: Map<String, Value>,
    /// A table of targets beside the one that is built in, in the same form.
    pub targets: Option<&'a Path>,
}

/// What a router works with.
#[derive(Clone, Debug, Default)]
pub struct Configured {
    /// What is allowed.
    pub policy: Policy,
    /// The target that was given.
    pub target: Option<String>,
    /// Targets of tables as they are there: with dialect, abilities, and prices with steps and hours.
    pub known: BTreeMap<String, cactus_cloud::Target>,
    /// Keys that were given, by the names of their targets.
    pub keys: BTreeMap<String, Key>,
}

impl Setup<'_> {
    /// Reads what was given. `variable` is the environment.
    ///
    /// # Errors
    /// [`Error::Policy`] with file and line; [`Error::Target`].
    pub fn read(&self, variable: &dyn Fn(&str) -> Option<String>) -> Result<Configured> {
        let mut configured = Configured::default();
        if let Some(file) = self.file {
            let text = read(file, "the policy")?;
            let policy = Policy::from_toml_at(&text, unix_seconds());
            configured.policy = policy.map_err(|e| Error::Policy(format!("the policy `{}`, {e}", file.display())))?;
        }
        if let Some(text) = self.text.filter(|_| self.file.is_none()) {
            let policy = Policy::from_toml_at(text, unix_seconds());
            configured.policy = policy.map_err(|e| Error::Policy(format!("the text of the policy, {e}")))?;
        }
        if let (None, None, Some(values)) = (self.file, self.text, self.values) {
            configured.policy = Policy::from_values_at(values, unix_seconds())
                .map_err(|e| Error::Policy(format!("the policy, {e}")))?;
        }
        if let Some(target) = self.target {
            let name = self.target(target, &mut configured)?;
            configured.policy.prefer = vec![name.clone()];
            configured.target = Some(name);
            if self.file.is_none() && self.text.is_none() && self.values.is_none() {
                // Whoever names a target wants it asked, and is asked what may leave.
                configured.policy.consent.classes = Class::ALL.map(|class| (class, Leave::Ask)).into();
                configured.policy.tool_default = policy::ToolUse::CloudMayCall;
            }
        }
        configured.keys = self.given_keys(&configured)?;
        let policy = &mut configured.policy;
        if let Some(handoff) = self.handoff {
            policy.handoff = handoff;
        }
        for class in self.consent {
            if let Some(line) = policy.consent.denied.get(class) {
                let name = class.name();
                let place = match self.file {
                    Some(file) => format!("the policy `{}`, line {line}", file.display()),
                    None => format!("the text of the policy, line {line}"),
                };
                return Err(Error::Policy(format!(
                    "{place}: `{name}` never leaves, and consent to it was given as an option; expected one of the two: leave `{name}` \
                     out of the option, or write `{name} = \"ask\"` in the file"
                )));
            }
            policy.consent.classes.insert(*class, Leave::Always);
        }
        if let Some(budget) = self.budget {
            let most: Pico = budget.parse().map_err(|e| Error::Policy(format!("the budget: {e}")))?;
            policy.caps.session = Some(most);
            policy.caps.request = Some(policy.caps.request.map_or(most, |request| request.min(most)));
        }
        let variables = CACTUS_OPTIONS.iter().map(|option| option.name);
        let variables = variables.filter(|name| name.starts_with("CACTUS_"));
        let variables = variables.filter_map(|name| Some((name, Value::from(variable(name)?))));
        let options = self.options.iter().map(|(name, value)| (name.as_str(), value.clone()));
        for (name, value) in options.chain(variables) {
            set_cactus_option(policy, name, &value).map_err(|e| Error::Policy(e.to_string()))?;
        }
        Ok(configured)
    }

    /// The keys that were given, each bound to its target. No message repeats what may be a key.
    fn given_keys(&self, configured: &Configured) -> Result<BTreeMap<String, Key>> {
        let alone = match (self.key, &configured.target) {
            (None, _) => None,
            (Some(key), Some(target)) => Some((target, key)),
            (Some(_), None) => {
                let message = "`key` is the key of `target`, which is not given; expected a target, or `keys` by the names of targets";
                return Err(Error::Target(message.to_owned()));
            }
        };
        let mut keys = BTreeMap::new();
        for (name, text) in self.keys.iter().chain(alone) {
            let Some(asked) = configured.policy.targets.get(name) else {
                let known: Vec<&str> = configured.policy.targets.keys().map(String::as_str).collect();
                let known = if known.is_empty() {
                    "none".to_owned()
                } else {
                    known.join(", ")
                };
                let message =
                    format!("`keys`: expected names of targets ({known}), each with its key; found another name");
                return Err(Error::Target(message));
            };
            let target = match configured.known.get(name) {
                Some(known) => known.clone(),
                None => crate::router::target(name, asked)?,
            };
            let key = Key::new(text.expose_secret(), &target);
            let key = key.map_err(|e| Error::Target(format!("the key of the target `{name}`: {e}")))?;
            keys.insert(name.clone(), key);
        }
        Ok(keys)
    }

    /// The name of a target, which is in the policy then.
    fn target(&self, given: &str, configured: &mut Configured) -> Result<String> {
        if configured.policy.targets.contains_key(given) {
            return Ok(given.to_owned());
        }
        if given.contains("://") {
            return self.address(given, &mut configured.policy);
        }
        let mut known: Vec<String> = configured.policy.targets.keys().cloned().collect();
        for target in table(self.targets)? {
            known.push(target.name.clone());
            if target.name == given {
                return Ok(add(target, configured));
            }
        }
        Err(Error::Target(format!(
            "there is no target `{given}`; expected an address with a model, such as `http://127.0.0.1:8081/v1#name`, or one of {}",
            known.join(", ")
        )))
    }

    /// A target at an address: `BASE#MODEL`, spoken to as OpenAI's chat completions, or its transcriptions.
    fn address(&self, given: &str, policy: &mut Policy) -> Result<String> {
        let Some((base, model)) = given.split_once('#').filter(|(_, model)| !model.is_empty()) else {
            let message = format!(
                "the target `{given}` has no model; expected an address with one, such as `http://127.0.0.1:8081/v1#name`"
            );
            return Err(Error::Target(message));
        };
        let parsed = Base::parse(base, true).map_err(|e| Error::Target(e.to_string()))?;
        if !parsed.is_private() {
            let message = format!(
                "nobody has said what `{given}` costs, and what has no price is not asked; describe it in a policy file (`--policy`)"
            );
            return Err(Error::Target(message));
        }
        let target = policy::Target {
            protocol: match self.hears {
                true => policy::Protocol::OpenaiTranscriptions,
                false => policy::Protocol::OpenaiChat,
            },
            base_url: base.to_owned(),
            model: model.to_owned(),
            key: KeySource::None,
            price: Price::default(),
            priced_on: None,
            max_output_tokens: MOST_TOKENS,
            images: false,
            audio: self.hears,
            word_times: self.hears,
            tools: !self.hears,
            accuracy: BTreeMap::new(),
            minute: self.hears.then_some(Pico::ZERO),
        };
        // A name that means somebody else already would stand for the wrong one in the record.
        let taken = matches!(model, "local" | "auto") || policy.targets.contains_key(model);
        let name = match taken {
            true => format!("{}#{model}", parsed.authority()),
            false => model.to_owned(),
        };
        policy.targets.insert(name.clone(), target);
        Ok(name)
    }
}

/// The targets of a user's own table, where there is one, and those that are built in.
///
/// # Errors
/// [`Error::Policy`] for a file that cannot be read; [`Error::Target`] for one that is wrong.
pub fn table(own: Option<&Path>) -> Result<Vec<cactus_cloud::Target>> {
    let of = |text: &str, what: &str| {
        catalog::read(text).map_err(|wrong| {
            let placed = PolicyError::at(text, wrong.at, &wrong.what);
            Error::Target(format!("{what}, {placed}"))
        })
    };
    let mut targets = match own.filter(|path| path.exists()) {
        Some(path) => of(
            &read(path, "the targets")?,
            &format!("the targets `{}`", path.display()),
        )?,
        None => Vec::new(),
    };
    targets.extend(of(catalog::BUILT_IN, "the targets that are built in")?);
    Ok(targets)
}

/// Most tokens of an answer where nobody has said.
const MOST_TOKENS: u32 = 2048;

/// A target of a table as the policy has it.
fn add(target: cactus_cloud::Target, configured: &mut Configured) -> String {
    let name = target.name.clone();
    let dearest = |of: fn(&cactus_cloud::Rates) -> cactus_cloud::Money| {
        let tiers = target.price.iter().flat_map(|price| &price.tiers);
        Pico(tiers.map(|tier| of(&tier.rates).pico()).max().unwrap_or_default())
    };
    let entry = policy::Target {
        protocol: match target.protocol {
            Protocol::Anthropic => policy::Protocol::Anthropic,
            Protocol::OpenAiChat => policy::Protocol::OpenaiChat,
            Protocol::OpenAiResponses => policy::Protocol::OpenaiResponses,
            Protocol::Gemini => policy::Protocol::Gemini,
            Protocol::OpenAiTranscriptions => policy::Protocol::OpenaiTranscriptions,
        },
        base_url: target.base.to_string(),
        model: target.model.clone(),
        key: KeySource::None,
        price: Price {
            input: dearest(|rates| rates.input),
            output: dearest(|rates| rates.output),
        },
        priced_on: match (&target.price, &target.minute) {
            (Some(price), _) => Some(price.date.clone()),
            (None, minute) => minute.as_ref().map(|minute| minute.date.clone()),
        },
        max_output_tokens: target
            .capabilities
            .max_output_tokens
            .unwrap_or(MOST_TOKENS)
            .min(MOST_TOKENS),
        images: target.capabilities.images,
        audio: target.capabilities.audio,
        word_times: target.capabilities.word_times,
        minute: target.minute.as_ref().map(|minute| Pico(minute.amount.pico())),
        tools: target.capabilities.tools,
        accuracy: BTreeMap::new(),
    };
    configured.policy.targets.insert(name.clone(), entry);
    configured.known.insert(name.clone(), target);
    name
}

fn read(path: &Path, what: &str) -> Result<String> {
    std::fs::read_to_string(path).map_err(|e| Error::Policy(format!("cannot read {what} `{}`: {e}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn none(_: &str) -> Option<String> {
        None
    }

    #[test]
    fn target_by_address_costs_nothing_at_home_and_is_asked_about() {
        let setup = Setup {
            target: Some("http://127.0.0.1:8081/v1#m"),
            budget: Some("0.005"),
            consent: &[Class::Text],
            ..Setup::default()
        };
        let Configured { policy, target, .. } = setup.read(&none).unwrap();
        assert_eq!(target.as_deref(), Some("m"));
        assert_eq!(policy.targets["m"].price, Price::default());
        assert_eq!(policy.caps.session, Some(Pico(5_000_000_000)));
        assert_eq!(policy.caps.request, Some(Pico(5_000_000_000)));
        assert_eq!(policy.consent.classes[&Class::Text], Leave::Always);
        assert_eq!(policy.consent.classes[&Class::Image], Leave::Ask);
    }

    #[test]
    fn target_of_the_table_has_its_steps_and_the_environment_wins() {
        let setup = Setup {
            target: Some("claude-haiku-5-5"),
            handoff: Some(Handoff::Always),
            ..Setup::default()
        };
        let configured = setup.read(&none).unwrap();
        assert_eq!(configured.policy.handoff, Handoff::Always);
        assert_eq!(
            configured.known["claude-haiku-5-5"].price.as_ref().unwrap().tiers.len(),
            2
        );
        let off = |name: &str| (name == "CACTUS_DISABLE_CLOUD_HANDOFF").then(|| "1".to_owned());
        assert_eq!(setup.read(&off).unwrap().policy.handoff, Handoff::Never);
    }

    #[test]
    fn what_a_file_denies_no_option_gives() {
        let text = "version = 1\n[targets.t]\nprotocol = \"openai_chat\"\nbase_url = \"http://127.0.0.1:1/v1\"\nmodel = \"m\"\n\
                    input_usd_per_million = 0\noutput_usd_per_million = 0\n[consent]\ntext = \"ask\"\ntool_result = \"never\"\n";
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("policy.toml");
        std::fs::write(&file, text).unwrap();
        let setup = Setup {
            consent: &[Class::Text, Class::ToolResult],
            ..Setup::default()
        };
        let error = |setup: &Setup<'_>| setup.read(&none).unwrap_err().to_string();
        let by_text = Setup {
            text: Some(text),
            ..setup.clone()
        };
        assert!(
            error(&by_text).starts_with("the text of the policy, line 10: `tool_result` never leaves"),
            "{}",
            error(&by_text)
        );
        let by_file = Setup {
            file: Some(&file),
            ..setup
        };
        let told = error(&by_file);
        assert!(
            told.contains("policy.toml`, line 10") && told.contains("tool_result = \"ask\""),
            "{told}"
        );
        // What it asks about, or says nothing of, may be said yes to.
        let fine = Setup {
            consent: &[Class::Text, Class::Image],
            ..by_file
        };
        let Configured { policy, .. } = fine.read(&none).unwrap();
        assert_eq!(policy.consent.classes[&Class::Text], Leave::Always);
        assert_eq!(policy.consent.classes[&Class::Image], Leave::Always);
    }

    #[test]
    fn wrong_table_is_named_with_its_line() {
        let folder = tempfile::tempdir().unwrap();
        let own = folder.path().join("targets.toml");
        let head = "date = \"2026-11-22\"\nsource = \"s\"\n[[target]]\nname = \"t\"\nprotocol = \"openai_chat\"\n";
        for (rest, want) in [
            ("base = 3", "line 6, column 8: expected text in quotes; found `3`"),
            (
                "base = \"https://x/v1?key=sk-1\"",
                "line 6, column 8: the address `https://x/v1?…` has a query",
            ),
            (
                "bas = \"https://x/v1\"",
                "line 6, column 1: expected an option: one of `name`",
            ),
            (
                "base = \"https://x/v1\"\nbase = \"\"",
                "line 7, column 1: expected each name once; found `base` again",
            ),
            (
                "model = \"m\"",
                "line 3, column 1: expected the option `base` in this table",
            ),
        ] {
            std::fs::write(&own, format!("{head}{rest}\n")).unwrap();
            let error = table(Some(&own)).unwrap_err().to_string();
            let place = format!("the targets `{}`, {want}", own.display());
            assert!(error.starts_with(&place), "{error}");
            assert!(!error.contains("sk-1"), "{error}");
        }
    }

    #[test]
    fn addresses_that_a_policy_takes_can_be_used_and_no_others() {
        for (address, fine) in [
            ("https://api.example.com/v1", true),
            ("https://api.example.com/v1/", true),
            ("http://127.0.0.1:8081/v1", true),
            ("http://10.0.0.2:80", true),
            ("https://[2001:db8::1]:8443/x", true),
            ("https://x/v1?key=1", false),
            ("https://x/v1#m", false),
            ("https://u:p@x/v1", false),
            ("https://x/v1/chat/completions", false),
            ("https://x/v1/messages/", false),
            ("https://x/v1/responses", false),
            ("https://x/v1/audio/transcriptions", false),
            ("https://x:99999/v1", false),
            ("http://8.8.8.8/v1", false),
            ("ftp://x", false),
            ("x", false),
            ("https://", false),
            ("https://a b/v1", false),
        ] {
            let text = format!(
                "version = 1\n[targets.t]\nprotocol = \"openai_chat\"\nbase_url = \"{address}\"\nplain_http = true\nmodel = \"m\"\n\
                 input_usd_per_million = 0\noutput_usd_per_million = 0\n"
            );
            let setup = Setup {
                text: Some(&text),
                ..Setup::default()
            };
            let read = setup.read(&none);
            assert_eq!(read.is_ok(), fine, "{address}: {read:?}");
            assert_eq!(Base::parse(address, true).is_ok(), fine, "{address}");
            if let Err(error) = read {
                let error = error.to_string();
                assert!(
                    error.starts_with("the text of the policy, line 4, column 12: expected"),
                    "{error}"
                );
                assert!(!error.contains("u:p"), "{error}");
            }
        }
    }

    #[test]
    fn own_table_keeps_what_it_says_of_a_target() {
        let folder = tempfile::tempdir().unwrap();
        let own = folder.path().join("targets.toml");
        let text = "date = \"2026-11-22\"\nsource = \"s\"\n[[target]]\nname = \"house\"\nprotocol = \"openai_chat\"\n\
                    base = \"https://house.example/v1\"\ndialect = \"openrouter\"\njson_schema = false\ncontext_tokens = 4096\n\
                    max_output_tokens = 100\nprice = [{ input = \"1\", output = \"2\" }]\n";
        std::fs::write(&own, text).unwrap();
        let setup = Setup {
            target: Some("house"),
            targets: Some(&own),
            ..Setup::default()
        };
        let keys = crate::Keys::new(folder.path().join("keys"));
        let router = crate::Router::new(setup.read(&none).unwrap(), folder.path(), &keys).unwrap();
        let target = &router.targets["house"].target;
        assert_eq!(target.dialect, cactus_cloud::Dialect::OpenRouter);
        let can = &target.capabilities;
        assert_eq!(
            (can.json_schema, can.context_tokens, can.max_output_tokens),
            (false, Some(4096), Some(100))
        );
        assert!(target.price.is_some());
    }

    #[test]
    fn keys_of_the_call_come_first_and_are_bound_to_their_hosts() {
        let folder = tempfile::tempdir().unwrap();
        let text = "version = 1\n[targets.house]\nprotocol = \"openai_chat\"\nbase_url = \"https://house.example/v1\"\n\
                    model = \"m\"\nkey = \"env:CACTUS_NO_SUCH_VARIABLE\"\ninput_usd_per_million = 1\noutput_usd_per_million = 1\n";
        let secret = |text: &str| SecretString::from(text.to_owned());
        let mut setup = Setup {
            text: Some(text),
            keys: [("house".to_owned(), secret("sk-given"))].into(),
            ..Setup::default()
        };
        let keys = crate::Keys::new(folder.path().join("keys"));
        let configured = setup.read(&none).unwrap();
        for shown in [format!("{setup:?}"), format!("{configured:?}")] {
            assert!(!shown.contains("sk-given"), "{shown}");
        }
        let router = crate::Router::new(configured, folder.path(), &keys).unwrap();
        router.check("house").unwrap();
        let key = router.targets["house"].key().unwrap().unwrap();
        assert_eq!(format!("{key:?}"), "Key(hidden, for house.example)");
        assert_eq!(key.place(), "given by the call");
        assert!(!format!("{router:?}").contains("sk-given"));
        assert!(keys.list().is_empty(), "it is not kept");

        setup.keys = [("sk-given".to_owned(), secret("house"))].into();
        let swapped = setup.read(&none).unwrap_err().to_string();
        assert!(
            swapped.contains("(house)") && !swapped.contains("sk-given"),
            "{swapped}"
        );
        setup.keys = [("house".to_owned(), secret("sk given"))].into();
        let wrong = setup.read(&none).unwrap_err().to_string();
        assert!(wrong.contains("`house`") && !wrong.contains("sk given"), "{wrong}");
        let (key, target) = (secret("sk-given"), "http://127.0.0.1:8081/v1#m");
        let mut alone = Setup {
            key: Some(&key),
            ..Setup::default()
        };
        assert!(alone.read(&none).unwrap_err().to_string().contains("`target`"));
        alone.target = Some(target);
        assert!(alone.read(&none).unwrap().keys.contains_key("m"));
    }

    #[test]
    fn options_as_cactus_names_them_come_after_flags_and_before_the_environment() {
        let options = |given: Value| given.as_object().cloned().unwrap_or_default();
        let setup = |given: Value| Setup {
            target: Some("http://127.0.0.1:8081/v1#m"),
            handoff: Some(Handoff::Auto),
            options: options(given),
            ..Setup::default()
        };
        let given = serde_json::json!({"confidence_threshold": "0.7", "cloud_timeout_ms": 900, "no_cloud_tele": true});
        let Configured { policy, .. } = setup(given).read(&none).unwrap();
        assert_eq!(policy.routing.confidence_threshold, Some(0.7));
        assert_eq!((policy.deadlines.total_ms, policy.handoff), (900, Handoff::Auto));
        let always = setup(serde_json::json!({"confidence_threshold": 1}));
        assert_eq!(always.read(&none).unwrap().policy.handoff, Handoff::Always);
        let off = |name: &str| (name == "CACTUS_DISABLE_CLOUD_HANDOFF").then(|| "1".to_owned());
        assert_eq!(always.read(&off).unwrap().policy.handoff, Handoff::Never);
        let error = setup(serde_json::json!({"confidence": 1})).read(&none).unwrap_err();
        assert!(error.to_string().contains("confidence_threshold"), "{error}");
    }

    #[test]
    fn wrong_targets_and_files_say_what_is_expected() {
        let cases = [
            ("nobody", "claude-haiku-5-5"),
            ("http://127.0.0.1:1/v1", "has no model"),
            ("https://api.example.com/v1#m", "costs"),
            ("http://example.com/v1#m", "costs"),
            ("http://8.8.8.8/v1#m", "private"),
        ];
        for (target, want) in cases {
            let setup = Setup {
                target: Some(target),
                ..Setup::default()
            };
            let error = setup.read(&none).unwrap_err().to_string();
            assert!(error.contains(want), "{target}: {error}");
        }
        let setup = Setup {
            file: Some(Path::new("/nowhere/policy.toml")),
            ..Setup::default()
        };
        assert!(
            setup
                .read(&none)
                .unwrap_err()
                .to_string()
                .contains("/nowhere/policy.toml")
        );
    }
}
