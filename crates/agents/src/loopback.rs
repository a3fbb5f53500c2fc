//! Whether a server is on this machine: requests to it must not go through the environment's proxies.

use std::net::IpAddr;

use reqwest::Url;

pub(crate) fn is_loopback(url: &Url) -> bool {
    url.host_str().is_some_and(|host| {
        let address = host.trim_start_matches('[').trim_end_matches(']');
        host == "localhost"
            || host.ends_with(".localhost")
            || address
                .parse::<IpAddr>()
                .is_ok_and(|address| address.to_canonical().is_loopback())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_this_machine_are_its_own() {
        for (url, here) in [
            ("http://localhost:8000", true),
            ("http://LOCALHOST", true),
            ("http://gemini.localhost", true),
            ("http://127.0.0.1:1/v1", true),
            ("http://127.8.8.8", true),
            ("http://[::1]:8000", true),
            ("http://[::ffff:127.0.0.1]", true),
            ("http://127.evil.example", false),
            ("http://localhost.evil.example", false),
            ("http://10.0.0.1", false),
            ("https://generativelanguage.googleapis.com", false),
        ] {
            assert_eq!(
                Url::parse(url).is_ok_and(|url| is_loopback(&url)),
                here,
                "{url}"
            );
        }
    }
}
