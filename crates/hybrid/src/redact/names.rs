//! What a name says of the value behind it, in text, in a key of JSON or in an option: that it is a password, a key, a cookie.

use super::fold;

/// What a name says of its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Named {
    /// A password, which may be anything.
    Password,
    /// A password, where the value has a digit: the word means other things, too.
    Perhaps,
    /// A key: a digit, and some length.
    Key,
    /// A secret that may be words in quotes, as `secret_token`.
    Secret,
    /// Something that ends in `key`, as a variable of the environment: a digit and much length.
    Long,
    /// The value of a header `Cookie` or `Set-Cookie`.
    Cookie,
    /// The value of a header `Authorization`.
    Authorization,
}

/// Ends of names of passwords, without accents; words apart or together are the same, as in `userPassword` and `user password`.
const PASSWORDS: &[&str] = &[
    "password",
    "passwd",
    "passphrase",
    "pwd",
    "passcode",
    // German.
    "passwort",
    "kennwort",
    "passworter",
    "kennworter",
    // French.
    "motdepasse",
    "motsdepasse",
    // Spanish and Portuguese.
    "contrasena",
    "palavrapasse",
    // Dutch, Swedish, Danish, Norwegian, Finnish.
    "wachtwoord",
    "losenord",
    "adgangskode",
    "passord",
    "salasana",
    // Vietnamese and Indonesian.
    "matkhau",
    "katasandi",
    // Russian, Ukrainian, Bulgarian.
    "пароль",
    "пароля",
    "пароли",
    // Chinese, Japanese, Korean.
    "密码",
    "密碼",
    "口令",
    "パスワード",
    "パスコード",
    "暗証番号",
    "비밀번호",
    "패스워드",
    "암호",
    // Arabic, Persian, Hebrew, Hindi, Thai, Greek.
    "كلمةالمرور",
    "كلمةالسر",
    "رمزعبور",
    "סיסמה",
    "סיסמא",
    "पासवर्ड",
    "รหัสผ่าน",
    "κωδικοσπροσβασησ",
];

/// Names of passwords that are words of their own: others end in them, as `bypass` and `resenha`.
const WORDS: &[&str] = &[
    "pass", "pw", "mdp", "senha", "haslo", "heslo", "jelszo", "sifre", "sifresi", "kodeord",
];

/// Words that name a password among other things.
const PERHAPS: &[&str] = &["clave", "parola", "парола", "гасло", "κωδικοσ"];

/// Ends of names of keys.
const KEYS: &[&str] = &[
    "secret",
    "token",
    "apikey",
    "accesskey",
    "secretkey",
    "privatekey",
    "authkey",
    "appkey",
    "aeskey",
    "hmackey",
    "encryptionkey",
    "signingkey",
    "masterkey",
    "accountkey",
    "sharedkey",
    "sessionkey",
    "storagekey",
    "subscriptionkey",
    "consumerkey",
    "deploykey",
    "servicekey",
    "serverkey",
    "webhookkey",
    "recoverykey",
    "licensekey",
    "secretkeybase",
    "credential",
    "apischlussel",
    "apisleutel",
    "cleapi",
    "clavedeapi",
    "clavesecreta",
    "chavedeapi",
    "chiaveapi",
    "密钥",
    "密鑰",
    "秘密鍵",
    "apiキー",
    "api키",
    "ключapi",
    "apiключ",
    "токен",
];

/// Names of a query that sign it.
const OF_QUERIES: &[&str] = &["key", "sig", "signature", "xamzsignature", "xgoogsignature"];

/// What stands before `_KEY` of keys that everybody may know.
const OPEN_KEYS: &[&str] = &[
    "PUBLIC",
    "PRIMARY",
    "FOREIGN",
    "SORT",
    "PARTITION",
    "CACHE",
    "IDEMPOTENCY",
];

/// Schemes of the header `Authorization`.
const SCHEMES: &[&str] = &[
    "basic",
    "bearer",
    "token",
    "apikey",
    "key",
    "digest",
    "negotiate",
    "ntlm",
    "hawk",
    "oauth",
    "dpop",
    "bot",
    "splunk",
    "ssokey",
    "geniekey",
    "sharedkey",
    "sharedkeylite",
    "signature",
    "aws4hmacsha256",
    "googlelogin",
    "mac",
];

/// What JSON Schema says of a value, which is no part of one.
const SCHEMA: &[&str] = &[
    "$comment",
    "$ref",
    "$schema",
    "contentEncoding",
    "contentMediaType",
    "description",
    "format",
    "maxItems",
    "maxLength",
    "maxProperties",
    "maximum",
    "minItems",
    "minLength",
    "minProperties",
    "minimum",
    "multipleOf",
    "pattern",
    "propertyOrdering",
    "required",
    "title",
    "type",
];

/// What a cookie has beside its value.
const OF_COOKIES: &[&str] = &[
    "name",
    "domain",
    "path",
    "expires",
    "expirationDate",
    "expiry",
    "sameSite",
    "maxAge",
];

/// Words between the name of a password and what it is for.
const FOR: &[&str] = &[
    "for", "of", "to", "fur", "vom", "von", "zum", "du", "de", "del", "della", "di", "da", "do", "para", "per", "pour",
    "от", "для", "к", "voor", "van", "till", "til",
];

/// What a name says, if anything.
pub(super) fn of(name: &str) -> Option<Named> {
    let plain = fold::plain(name);
    let named = of_plain(&plain);
    // `password for the wifi`: the first words are the name.
    let purpose = || {
        let spaces = plain.match_indices(' ').map(|(at, _)| at).rev();
        let mut heads = spaces.filter(|at| {
            let behind = plain[at + 1..].split(' ').next();
            behind.is_some_and(|word| FOR.contains(&word))
        });
        heads.by_ref().take(4).find_map(|at| of_plain(&plain[..at]))
    };
    named.or_else(|| match purpose()? {
        Named::Password | Named::Perhaps => Some(Named::Perhaps),
        named @ (Named::Key | Named::Secret) => Some(named),
        _ => None,
    })
}

fn of_plain(plain: &str) -> Option<Named> {
    let name = plain.trim_end_matches(|c: char| c.is_ascii_digit());
    let joined = name.replace(['_', '-', ' ', '.'], "");
    let last = name.rsplit(['_', '-', ' ', '.']).next().unwrap_or_default();
    let singular = joined.strip_suffix('s').unwrap_or(&joined);
    let ends = |list: &[&str]| list.iter().any(|known| joined.ends_with(known));
    let end = |list: &[&str]| list.iter().any(|known| singular.ends_with(known));
    // Tokens are counted, as in `max_tokens`.
    if ends(PASSWORDS) || end(PASSWORDS) || WORDS.contains(&last) {
        Some(Named::Password)
    } else if PERHAPS.contains(&last) && !joined.ends_with("palabraclave") {
        Some(Named::Perhaps)
    } else if singular.ends_with("cookie") {
        Some(Named::Cookie)
    } else if joined.ends_with("authorization") {
        Some(Named::Authorization)
    } else if ends(KEYS) || (end(KEYS) && !singular.ends_with("token")) {
        let words = singular != "secret" && joined.contains("secret");
        Some(if words { Named::Secret } else { Named::Key })
    } else {
        None
    }
}

/// As [`of`], of a variable, or of a part of a query where `query` says so.
pub(super) fn of_assigned(name: &str, query: bool) -> Option<Named> {
    let is_query = || query && OF_QUERIES.contains(&fold::plain(name).replace(['_', '-'], "").as_str());
    let is_variable = || {
        let upper = name
            .bytes()
            .all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_');
        let before = name.strip_suffix("_KEY").filter(|_| upper)?;
        let kind = before.rsplit('_').next().unwrap_or_default();
        (!OPEN_KEYS.contains(&kind)).then_some(())
    };
    of(name).or_else(|| (is_query() || is_variable().is_some()).then_some(Named::Long))
}

/// The key of JSON that says what a value is.
#[derive(Clone, Copy, Default)]
pub(super) struct Under<'a> {
    key: &'a str,
    /// Whether objects lie between the key and the value.
    deep: bool,
}

impl<'a> Under<'a> {
    /// What says what the value of `key` is, in an object that is under this.
    pub(super) fn entry(self, key: &'a str) -> Under<'a> {
        let says = of(self.key);
        let beside = SCHEMA.contains(&key) || (says == Some(Named::Cookie) && OF_COOKIES.contains(&key));
        if of_key(key).is_none() && says.is_some() && !beside {
            return Under { deep: true, ..self };
        }
        Under { key, deep: false }
    }

    /// Whether the key names a secret, and the value is one.
    pub(super) fn names(self, value: &str) -> bool {
        let digit = value.bytes().any(|b| b.is_ascii_digit());
        // Beside a secret there may be sentences about it.
        if self.deep && !digit && value.contains(char::is_whitespace) {
            return false;
        }
        of_key(self.key).is_some_and(|named| fits(named, value, self.deep))
    }
}

/// The name of a pair that is an object, as `{"name": "Cookie", "value": "…"}`, where it says what the value is.
pub(super) fn pair(map: &serde_json::Map<String, serde_json::Value>) -> Option<String> {
    let mut names = ["name", "key", "header", "Name", "Key"]
        .iter()
        .filter_map(|name| map.get(*name)?.as_str());
    names.find(|name| of_key(name).is_some()).map(str::to_owned)
}

fn of_key(key: &str) -> Option<Named> {
    of_assigned(key, false)
}

/// Whether a whole value is what its name says: in JSON, or between tags.
pub(super) fn fits(named: Named, value: &str, deep: bool) -> bool {
    let digit = value.bytes().any(|b| b.is_ascii_digit());
    match named {
        Named::Password => !value.is_empty(),
        Named::Perhaps | Named::Key => value.len() >= 4 && digit,
        Named::Secret => (value.len() >= 4 && digit) || value.len() >= 6,
        Named::Long => value.len() >= 16 && digit && !value.contains(char::is_whitespace),
        Named::Cookie => value.len() >= 8 && (value.contains('=') && !deep || digit),
        Named::Authorization => authorization(value).is_some(),
    }
}

/// The credentials in the value of a header: where they begin, and how long they are.
pub(super) fn authorization(value: &str) -> Option<(usize, usize)> {
    let trimmed = value.trim();
    let lead = value.len() - value.trim_start().len();
    let is_token = |word: &str| {
        let digit = word.bytes().any(|b| b.is_ascii_digit());
        word.is_ascii() && ((word.len() >= 8 && digit) || word.len() >= 16)
    };
    let Some((scheme, rest)) = trimmed.split_once(char::is_whitespace) else {
        return is_token(trimmed).then_some((lead, trimmed.len()));
    };
    let scheme = fold::plain(scheme).replace('-', "");
    let rest = rest.trim_start();
    let start = lead + trimmed.len() - rest.len();
    let first = rest.split(char::is_whitespace).next().unwrap_or_default();
    // Several parts, as of `Digest username="…", response="…"`.
    let length = if first.contains('=') && first.ends_with(',') {
        rest.len()
    } else {
        first.len()
    };
    let right = match scheme.as_str() {
        "basic" => length >= 4 && rest.as_bytes()[0].is_ascii_alphanumeric(),
        _ => SCHEMES.contains(&scheme.as_str()) && rest[..length].split(char::is_whitespace).any(is_token),
    };
    right.then_some((start, length))
}
