//! The URIs that say where a process's output goes: `binary:///path?key=value`, `file:///path`,
//! or a plain path. Read as Go's net/url reads them, so that what the stock shim takes or
//! refuses is taken or refused here.

/// A URI's parts, as far as they mean something here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Uri {
    /// In lower case; empty for a plain path.
    pub(super) scheme: String,
    /// Decoded; empty if what follows the scheme does not begin with a slash.
    pub(super) path: String,
    /// Decoded, each key once and with its first value, in the order of appearance.
    pub(super) query: Vec<(String, String)>,
}

impl Uri {
    /// Reads a URI; on failure says what is wrong with it.
    pub(super) fn parse(text: &str) -> Result<Uri, String> {
        if text.bytes().any(|byte| byte < b' ' || byte == 0x7f) {
            return Err(format!("{text:?} has a control character"));
        }
        let without_fragment = text.split_once('#').map_or(text, |(before, _)| before);
        let (scheme, rest) = split_scheme(without_fragment)?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let path = if rest.starts_with('/') {
            let path = rest.strip_prefix("//").map_or(rest, |authority| {
                authority.find('/').map_or("", |slash| &authority[slash..])
            });
            decode(path, false)?
        } else if scheme.is_empty() {
            let first = rest.split('/').next().unwrap_or_default();
            if first.contains(':') {
                return Err(format!("{text:?} has a colon in its first segment"));
            }
            decode(rest, false)?
        } else {
            String::new()
        };
        Ok(Uri {
            scheme: scheme.to_ascii_lowercase(),
            path,
            query: read_query(query),
        })
    }
}

/// The scheme, and what follows its colon.
fn split_scheme(text: &str) -> Result<(&str, &str), String> {
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' => {}
            b'0'..=b'9' | b'+' | b'-' | b'.' if at > 0 => {}
            b':' if at > 0 => return Ok((&text[..at], &text[at + 1..])),
            b':' => return Err(format!("{text:?} has no scheme before its colon")),
            _ => break,
        }
    }
    Ok(("", text))
}

/// Pairs that cannot be read are passed over.
fn read_query(query: &str) -> Vec<(String, String)> {
    let mut pairs: Vec<(String, String)> = Vec::new();
    for part in query.split('&') {
        let (key, value) = part.split_once('=').unwrap_or((part, ""));
        if part.is_empty() || part.contains(';') {
            continue;
        }
        if let (Ok(key), Ok(value)) = (decode(key, true), decode(value, true))
            && !pairs.iter().any(|(known, _)| *known == key)
        {
            pairs.push((key, value));
        }
    }
    pairs
}

/// Undoes percent encoding. What is not UTF-8 then becomes U+FFFD, so that no file is found.
fn decode(text: &str, plus_is_space: bool) -> Result<String, String> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        decoded.push(match byte {
            b'%' => {
                let digit = |byte: Option<u8>| byte.and_then(|b| char::from(b).to_digit(16));
                match (digit(bytes.next()), digit(bytes.next())) {
                    (Some(high), Some(low)) => (high * 16 + low) as u8,
                    _ => return Err(format!("{text:?} has an invalid escape")),
                }
            }
            b'+' if plus_is_space => b' ',
            byte => byte,
        });
    }
    Ok(String::from_utf8_lossy(&decoded).into_owned())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn uri(scheme: &str, path: &str, query: &[(&str, &str)]) -> Uri {
        let pair = |(key, value): &(&str, &str)| (key.to_string(), value.to_string());
        Uri {
            scheme: scheme.to_owned(),
            path: path.to_owned(),
            query: query.iter().map(pair).collect(),
        }
    }

    #[test]
    fn uris_that_are_read() {
        let table = [
            ("", uri("", "", &[])),
            ("/run/fifo/1-stdout", uri("", "/run/fifo/1-stdout", &[])),
            ("relative/a:b", uri("", "relative/a:b", &[])),
            ("/a:b%20c", uri("", "/a:b c", &[])),
            ("fifo:///run/1", uri("fifo", "/run/1", &[])),
            ("file:///var/log/x#y", uri("file", "/var/log/x", &[])),
            ("FILE://host/x", uri("file", "/x", &[])),
            ("file://relative", uri("file", "", &[])),
            ("file:/x", uri("file", "/x", &[])),
            ("file:x", uri("file", "", &[])),
            (
                "binary:///usr/bin/logger?id=1&-v&path=%2Ftmp%2Fa+b&id=2&=&a;b=c&%zz=1",
                uri(
                    "binary",
                    "/usr/bin/logger",
                    &[("id", "1"), ("-v", ""), ("path", "/tmp/a b"), ("", "")],
                ),
            ),
            ("npipe:////./pipe/x", uri("npipe", "//./pipe/x", &[])),
        ];
        for (text, expected) in table {
            assert_eq!(Uri::parse(text).unwrap(), expected, "{text}");
        }
    }

    #[test]
    fn uris_that_are_refused() {
        for text in [
            "://x",
            ":",
            "a b:c",
            "1a://x/y",
            "/%",
            "/%1",
            "file:///%gg",
            "/a\nb",
        ] {
            assert!(Uri::parse(text).is_err(), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in ".*") {
            // The result does not matter: it must come, without a panic.
            let _ = Uri::parse(&text);
        }

        #[test]
        fn what_is_encoded_comes_back(key in ".{1,9}", value in ".{0,9}") {
            let encode = |text: &str| -> String {
                text.bytes().map(|byte| format!("%{byte:02X}")).collect()
            };
            let text = format!("binary:///{}?{}={}", encode(&key), encode(&key), encode(&value));
            let read = Uri::parse(&text).unwrap();
            prop_assert_eq!(read.path, format!("/{key}"));
            prop_assert_eq!(read.query, vec![(key, value)]);
        }
    }
}
