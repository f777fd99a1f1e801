//! Secrets by their names and forms: what is found behind which, and what is left.

use super::tests::found;
use super::*;
use serde_json::json;

fn key(text: &str, secret: &str) {
    assert_eq!(found(text), [(Kind::Key, secret)], "{text}");
}

#[test]
fn headers_in_json_are_found() {
    let all = json!({
        "headers": {"Cookie": "sid=abc123def456", "set-cookie": ["id=zyx987; Path=/"], "authorization": "Token 0a1b2c3d4e",
            "Proxy-Authorization": "Digest username=\"bo\", response=\"6629fae49393a0\"", "x-api-key": "qwer1234"},
        "raw": {"Authorization": "f00dcafe12345678"},
        "log": [{"name": "Cookie", "value": "sid=hargle99bargle"}, {"name": "DB_PASSWORD", "value": "swordfish"}],
        "cookies": [{"name": "sid", "value": "grault4711", "path": "/path/12345"}],
        "args": ["login", "--password", "tr0ub4dor", "--verbose", "file-12345678"],
        "client_secret": "plugh xyzzy", "ENCRYPTION_KEY": "0123456789abcdefXY", "Mot de passe": "corge",
    });
    let mut redactor = Redactor::default();
    let mut sent = all.clone();
    redactor.redact_json(&mut sent).unwrap();
    let text = sent.to_string();
    for secret in [
        "abc123",
        "zyx987",
        "0a1b2c",
        "6629fae",
        "qwer1234",
        "f00dcafe",
        "hargle",
        "swordfish",
        "grault",
        "tr0ub4dor",
        "plugh",
        "0123456789abcdefXY",
        "corge",
    ] {
        assert!(!text.contains(secret), "{secret} in {text}");
    }
    for other in ["/path/12345", "file-12345678", "DB_PASSWORD", "\"sid\""] {
        assert!(text.contains(other), "{other} is not in {text}");
    }
    redactor.restore_json(&mut sent);
    assert_eq!(sent, all);
}

#[test]
fn json_that_names_no_secret_is_left() {
    let all = json!({
        "cookie": "chocolate", "cookies": 12, "authorization": "required", "Authorization": "see page twelve",
        "max_tokens": 4096, "tokens": [12345, 67890], "cache_key": "user:12345678", "PUBLIC_KEY": "0123456789abcdefXY",
        "primary_key": "order_12345678", "key": "c-sharp-minor-123456", "resenha": "livro 1984", "bypass": "valve 12",
        "clave": "de sol", "enclave": "Kaliningrad 12", "palabra clave": "uno2tres", "name": "password", "value1": "x1",
        "pairs": [{"name": "colour", "value": "red 12345"}], "args": ["--colour", "red12345"],
        "schema": {"properties": {"client_secret": {"type": "string", "description": "secret of the client, 12 letters"}}},
    });
    let mut redactor = Redactor::default();
    let mut sent = all.clone();
    redactor.redact_json(&mut sent).unwrap();
    assert_eq!(sent, all);
}

#[test]
fn private_keys_of_each_form_are_found_whole() {
    for (text, behind) in [
        (
            "-----BEGIN PGP PRIVATE KEY BLOCK-----\n\nlQOYBF\n=njUN\n-----END PGP PRIVATE KEY BLOCK-----",
            "\nBob",
        ),
        (
            "-----BEGIN ENCRYPTED PRIVATE KEY-----\nMIIE\n-----END ENCRYPTED PRIVATE KEY-----",
            " is it",
        ),
        (
            "PuTTY-User-Key-File-3: ssh-ed25519\nEncryption: none\nComment: me\nPublic-Lines: 2\nAAAAC3Nz\nZ\n\
             Private-Lines: 1\nAAAAIEiB\nPrivate-MAC: 0a1b",
            "\nBob",
        ),
        (
            "PuTTY-User-Key-File-2: ssh-rsa\r\nPublic-Lines: 0\r\nPrivate-Lines: 2\r\nAB\r\nCD",
            "\r\nBob",
        ),
    ] {
        assert_eq!(found(&format!("a {text}{behind}")), [(Kind::Key, text)]);
    }
    for text in [
        "-----BEGIN PGP PUBLIC KEY BLOCK-----\nmQ\n-----END PGP PUBLIC KEY BLOCK-----",
        "PuTTY-User-Key-File-3 is the first line of such a file",
    ] {
        assert_eq!(found(text), [], "{text}");
    }
}

#[test]
fn tokens_with_a_known_form_are_found() {
    // In pieces, so that this file holds nothing that looks like one.
    for (prefix, rest) in [
        (
            "hooks.slack",
            ".com/services/T01234567/B01234567/abcdefghijklmnopqrstuvwx",
        ),
        ("discord", ".com/api/webhooks/123456789012345678/AbCd_ef-GhIj"),
        ("123456789", ":AAabcdefghijklmnopqrstuvwxyz0123456"),
        ("bot123456789", ":AAabcdefghijklmnopqrstuvwxyz-_23456"),
        ("dckr_pat", "_abcdefghijklmnopqrstuvwxyz1"),
        ("shpat", "_0123456789abcdef0123456789abcdef"),
        ("shpss", "_0123456789abcdef0123456789abcdef"),
        ("r8", "_abcdefghijklmnopqrstuvwxyz01234567890"),
        ("hf", "_abcdefghijklmnopqrstuvwxyzABCDEFGH"),
        ("npm", "_abcdefghijklmnopqrstuvwxyz0123456789"),
        ("pypi", "-AgEIcHlwaS5vcmcCJDAwMDAwMDAw"),
        ("glpat", "-abcdefghij0123456789"),
        ("xoxe.xoxp", "-1-abcdefghij0123456789"),
        ("hvs", ".CAESIJabcdefghijklmnop0123"),
        ("GOCSPX", "-abcdefghijklmnopqrstu_vwxyz"),
    ] {
        let token = format!("{prefix}{rest}");
        for text in [
            token.clone(),
            format!("https://{token}/x"),
            format!("use {token}, please"),
        ] {
            let found = found(&text);
            let path = prefix.starts_with("hooks") || prefix.starts_with("discord");
            let right = matches!(found[..], [(Kind::Key, t)] if t == token || (path && t.starts_with(&token)));
            assert!(right, "{found:?} in {text}");
        }
    }
    for text in [
        "bot1234:AAabc",
        "r8_short",
        "hooks.slack.com/services/",
        "12345678:AA",
        "xoxo-ly",
    ] {
        assert_eq!(found(text), [], "{text}");
    }
}

#[test]
fn secrets_behind_names_of_many_forms_are_found() {
    key(
        "user: bo\npassword: |\n  my dog 1\n\n  two\nport: 1",
        "my dog 1\n\n  two",
    );
    key("  api_key: >-\n    abcdef\n    123456\n", "abcdef\n    123456");
    key("secret_token=\"abc def\"", "abc def");
    key("ENCRYPTION_KEY=abcdef1234567890", "abcdef1234567890");
    key("SIGNING_KEY: abcd1234", "abcd1234");
    key(
        "DefaultEndpointsProtocol=https;AccountKey=Zm9vYmFy+1/==;EndpointSuffix=x",
        "Zm9vYmFy+1/==",
    );
    key("https://h.example/maps?key=abcdefghij123456&x=1", "abcdefghij123456");
    key(
        "https://h.example/b?sv=2022-11-02&sig=abcdefghij%2B123456",
        "abcdefghij%2B123456",
    );
    key("https://h.example/b?a=1&token=abcd1234", "abcd1234");
    key("mysql --user bo --password hunter2 db", "hunter2");
    key("login --token \"abcd1234\"", "abcd1234");
    key("<user>bo</user><password>correct horse</password>", "correct horse");
    key("<wsse:Password Type=\"text\">\n hunter2 </wsse:Password>", "hunter2");
    key("'password' => 'hunter2',", "hunter2");
    key("password := \"hunter2\"", "hunter2");
    key("password (old): hunter2", "hunter2");
    key("Passwort (WLAN): hunter2", "hunter2");
    key("my password is hunter2.", "hunter2.");
    key("The api key is \"abcd1234\"", "abcd1234");
    key("password：hunter2", "hunter2");
    key("passwords: hunter2", "hunter2");
    key("password1: hunter2", "hunter2");
    key("Passwort lautet: hunter2", "hunter2");
    key("das Passwort lautet hunter2", "hunter2");
    key("**Password:** hunter2", "hunter2");
    key("**Password**: hunter2", "hunter2");
    key("password: “my dog, 1” and", "my dog, 1");
    key("Authorization: Token abcd1234efgh", "abcd1234efgh");
    key("curl -H 'authorization: ApiKey abcd1234efgh' https://x", "abcd1234efgh");
    key("{\"Authorization\": \"Token abcd1234efgh\", \"a\": 1}", "abcd1234efgh");
    key("Set-Cookie: sid=abc123; Path=/", "sid=abc123; Path=/");
    key("pass\u{ad}word: hunter2", "hunter2");
    key("password\u{200b}: hun\u{2060}ter2", "hun\u{2060}ter2");
}

#[test]
fn names_of_passwords_in_many_languages_are_known() {
    for name in [
        "mot de passe",
        "Mot de passe ",
        "mdp",
        "пароль",
        "Пароль от почты (новый)",
        "密码",
        "我的密码",
        "密碼",
        "口令",
        "パスワード",
        "暗証番号",
        "비밀번호",
        "hasło",
        "haslo",
        "wachtwoord",
        "lösenord",
        "adgangskode",
        "passord",
        "salasana",
        "şifre",
        "Şifre",
        "parola",
        "contrasena",
        "contrasen\u{303}a",
        "clave",
        "senha",
        "palavra-passe",
        "Kennwort",
        "heslo",
        "jelszó",
        "mật khẩu",
        "κωδικός",
        "كلمة المرور",
        "סיסמה",
        "पासवर्ड",
        "รหัสผ่าน",
        "API-Schlüssel",
        "密钥",
    ] {
        for separator in [": ", "：", " = "] {
            let text = format!("{name}{separator}hunter42");
            key(&text, "hunter42");
        }
    }
    key("password for the wifi: hunter2", "hunter2");
    key("mot de passe du wifi : hunter2", "hunter2");
    key("das Passwort für den Router ist hunter2", "hunter2");
    key("mon mot de passe est hunter2", "hunter2");
    key("mi contraseña es hunter2", "hunter2");
    key("我的密码是hunter2", "hunter2");
    key("パスワードは hunter2 です", "hunter2");
    key("пароль - hunter2", "hunter2");
}

#[test]
fn prose_and_code_about_secrets_are_left() {
    for text in [
        "the password is required, the password is 8 characters long and your token is invalid",
        "password is case-sensitive; the secret is safe; my password was wrong.",
        "  --password string   the password to use\n  --token TOKEN  one of yours",
        "--password-stdin x1, --password $PASSWORD, --password <pa55>, a - b1234",
        "<token>a parser eats it</token> <secret/> <password></password> Vec<Token>x1</x>",
        "password => hash(password), token => token.length > 12345678",
        "fun getPassword(id): Future12, password |= x1, password: |x",
        "?key=page-12 and &sig=no and cache_key: user:12345678, PUBLIC_KEY=abcdef1234567890",
        "clave: de sol, resenha: livro, enclave: Kaliningrad, parola: chiave",
        "authorization: granted on 2026-11-22; Authorization: see below",
        "the 密码是什么？ 密码：请输入",
        "cookie: chocolate, Cookie: none",
        "password for the following: none; a token of thanks: 12 words",
        "match kind { Password => 12345678, Token => 3 }",
    ] {
        assert_eq!(found(text), [], "{text}");
    }
}
