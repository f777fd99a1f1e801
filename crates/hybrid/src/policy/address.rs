//! The address of a target, as a policy file has it.

/// Says what was expected of an address, where it is not that.
pub(super) fn check(url: &str, plain_http: bool) -> Result<(), String> {
    check_form(url)?;
    check_scheme(url, plain_http).map_err(str::to_owned)
}

const FORM: &str =
    "an address such as `https://api.example.com` or `http://127.0.0.1:8080/v1`, without user or password";

/// What protocols put behind an address.
const PATHS: [&str; 5] = [
    "/chat/completions",
    "/responses",
    "/messages",
    "/audio/transcriptions",
    "/models",
];

/// An address without what may be a password or a key in it.
pub(super) fn shown(url: &str) -> String {
    if url.contains('@') {
        return "one with `@`".to_owned();
    }
    match url.find(['?', '#']) {
        Some(at) => format!("`{}…`", &url[..=at]),
        None => format!("`{url}`"),
    }
}

fn check_form(url: &str) -> Result<(), String> {
    if url.contains(['?', '#']) {
        let what = "an address without `?` and `#` and what follows them (`key` says where a key is, and `model` which model is meant)";
        return Err(what.to_owned());
    }
    let path = url.trim_end_matches('/');
    if let Some(end) = PATHS.iter().find(|end| path.ends_with(*end)) {
        return Err(format!(
            "the address without its end `{end}`, which is added to it: leave it off"
        ));
    }
    Ok(())
}

fn check_scheme(url: &str, plain_http: bool) -> Result<(), &'static str> {
    let (scheme, rest) = url.split_once("://").ok_or(FORM)?;
    let authority = rest.split(['/', '?', '#']).next().unwrap_or("");
    let host = match authority.strip_prefix('[') {
        Some(v6) => v6.split(']').next().unwrap_or(""),
        None => authority.split(':').next().unwrap_or(""),
    };
    let clean = url.bytes().all(|b| b.is_ascii_graphic()) && !authority.contains('@');
    let port = authority.rsplit_once(':').filter(|(_, port)| !port.ends_with(']'));
    let port_fits = port.is_none_or(|(_, port)| port.parse::<u16>().is_ok());
    if host.is_empty() || !clean || !port_fits {
        return Err(FORM);
    }
    let (loopback, private) = match host.parse::<std::net::IpAddr>() {
        Ok(std::net::IpAddr::V4(v4)) => (v4.is_loopback(), v4.is_private() || v4.is_link_local()),
        Ok(std::net::IpAddr::V6(v6)) => (v6.is_loopback(), v6.is_unique_local() || v6.is_unicast_link_local()),
        Err(_) => (host == "localhost", false),
    };
    match scheme {
        "https" => Ok(()),
        "http" if loopback || (private && plain_http) => Ok(()),
        "http" if private => Err("`https`, or `plain_http = true` beside it if what is sent may be read on the way"),
        "http" => Err(
            "`https`: plain `http` can be read on the way, so it is only for this machine and, with `plain_http = true`, for numeric \
             addresses of private networks such as 192.168.1.20",
        ),
        _ => Err(FORM),
    }
}
