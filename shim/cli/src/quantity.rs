//! Quantities on the command line, as docker users write them: sizes, counts, processors.

use std::num::IntErrorKind;

use lazy_cgroups::limit::Limit;

/// What docker and the runtime-spec write for "no limit".
const UNLIMITED: &str = "-1";

/// Microseconds of a quota's period when only a number of processors is given: the
/// kernel's default, and docker's.
pub(crate) const CPUS_PERIOD: u64 = 100_000;

/// The kernel takes no quota below 1 ms.
const LEAST_QUOTA: u128 = 1_000;

/// Reads a size in bytes: a number, perhaps with a fraction, and a unit `b`, `k`, `m`, `g`,
/// `t` or `p` in multiples of 1024, itself perhaps followed by `b` or `ib`: `64m`, `1.5g`,
/// `64MiB`. Without a unit it is bytes. A fraction of a byte is cut off.
pub(crate) fn bytes(text: &str) -> Result<u64, String> {
    let invalid = || format!("{text:?} is not a size such as 64m, 1.5g or 67108864");
    let unit_at = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(unit_at);
    let unit = unit.strip_prefix(' ').unwrap_or(unit).to_ascii_lowercase();
    let shift = match unit.as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        "p" | "pb" | "pib" => 50,
        _ => return Err(invalid()),
    };
    // The runtime-spec's sizes are signed, so half of 64 bits is what can be said.
    scaled(number, 1 << shift)
        .ok_or_else(invalid)?
        .try_into()
        .ok()
        .filter(|size| i64::try_from(*size).is_ok())
        .ok_or_else(|| format!("{text:?} is too large"))
}

/// Reads a size that limits something: [`bytes`], or -1 for no limit.
pub(crate) fn size_limit(text: &str) -> Result<Limit, String> {
    limit(text, bytes)
}

/// Reads a count that limits something: a number, or -1 for no limit.
pub(crate) fn count_limit(text: &str) -> Result<Limit, String> {
    limit(text, count)
}

/// Reads a plain number that is not 0: runtimes take 0 for "not said", so that the flag
/// would silently do nothing.
pub(crate) fn positive(text: &str) -> Result<u64, String> {
    match count(text)? {
        0 => Err("0 would change nothing".to_string()),
        value => Ok(value),
    }
}

/// Reads a plain number that the runtime-spec can say.
pub(crate) fn count(text: &str) -> Result<u64, String> {
    match text.parse::<i64>().map(u64::try_from) {
        Ok(Ok(number)) => Ok(number),
        Err(error) if *error.kind() == IntErrorKind::PosOverflow => {
            Err(format!("{text:?} is too large"))
        }
        _ => Err(format!("{text:?} is not a number")),
    }
}

/// Reads a number of processors, perhaps with a fraction, as a quota in microseconds per
/// [`CPUS_PERIOD`]; 0 is no limit, as docker has it.
pub(crate) fn cpus(text: &str) -> Result<Limit, String> {
    let quota = scaled(text, u128::from(CPUS_PERIOD))
        .ok_or_else(|| format!("{text:?} is not a number of processors such as 1.5"))?;
    let none = text.chars().all(|c| matches!(c, '0' | '.'));
    match u64::try_from(quota) {
        Ok(_) if none => Ok(Limit::Max),
        Ok(_) if quota < LEAST_QUOTA => Err(format!(
            "{text:?} is less than the kernel can limit to, which is 0.01"
        )),
        Ok(quota) if i64::try_from(quota).is_ok() => Ok(Limit::At(quota)),
        _ => Err(format!("{text:?} is too large")),
    }
}

/// Reads what limits something, as [`positive`].
fn limit(text: &str, read: fn(&str) -> Result<u64, String>) -> Result<Limit, String> {
    if text == UNLIMITED {
        return Ok(Limit::Max);
    }
    match read(text)? {
        0 => Err("0 would change nothing; -1 takes the limit away".to_string()),
        value => Ok(Limit::At(value)),
    }
}

/// `number` (digits, perhaps with one point among or around them) times `factor`, cut to a
/// whole. In integers: 0.1 has no exact binary form, and a limit must be what was asked for.
/// What is too large for 128 bits is said to be as large as they go.
fn scaled(number: &str, factor: u128) -> Option<u128> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
    if whole.len() + fraction.len() == 0 || !digits(whole) || !digits(fraction) {
        return None;
    }
    let value = |part: &str| match part {
        "" => 0,
        part => part.parse::<u128>().unwrap_or(u128::MAX),
    };
    // Digits beyond these are worth less than a millionth of a byte in the largest unit.
    let fraction = fraction.get(..21).unwrap_or(fraction);
    let scale = 10_u128.pow(u32::try_from(fraction.len()).unwrap_or(0));
    let below = value(fraction) * factor / scale;
    Some(value(whole).saturating_mul(factor).saturating_add(below))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const UNITS: [(&str, u32); 6] = [
        ("b", 0),
        ("k", 10),
        ("m", 20),
        ("g", 30),
        ("t", 40),
        ("p", 50),
    ];

    #[test]
    fn sizes_are_read_as_docker_reads_them() {
        for (text, size) in [
            ("32", 32),
            ("32b", 32),
            ("32B", 32),
            ("32k", 32 << 10),
            ("32K", 32 << 10),
            ("32kb", 32 << 10),
            ("32KiB", 32 << 10),
            ("64m", 64 << 20),
            ("64mb", 64 << 20),
            ("64MiB", 64 << 20),
            ("64 MiB", 64 << 20),
            ("1.5g", 3 << 29),
            ("32.3", 32),
            (".5k", 512),
            ("2.k", 2 << 10),
            ("0.1k", 102),
            ("0", 0),
            ("7p", 7 << 50),
            ("0.000000000000000000000000000000000000001p", 0),
        ] {
            assert_eq!(bytes(text), Ok(size), "{text}");
        }
    }

    #[test]
    fn what_is_no_size_is_named() {
        for text in [
            "",
            "m",
            ".",
            "1.2.3",
            "-2",
            "64x",
            "64mx",
            "64bb",
            "64mibs",
            "64  m",
            " 64m",
            "64m ",
            "1e3",
            "+5",
            "0x10",
            "６４m",
            "8192p",
            "99999999999999999999999999999999999999999k",
        ] {
            let error = bytes(text).unwrap_err();
            assert!(error.contains(text), "{text}: {error}");
        }
    }

    #[test]
    fn limits_know_unlimited_and_refuse_zero() {
        assert_eq!(size_limit("-1"), Ok(Limit::Max));
        assert_eq!(size_limit("64m"), Ok(Limit::At(64 << 20)));
        assert_eq!(count_limit("-1"), Ok(Limit::Max));
        assert_eq!(count_limit("100"), Ok(Limit::At(100)));
        for wrong in ["0", "-2", "64m", ""] {
            assert!(count_limit(wrong).is_err(), "{wrong}");
        }
        for wrong in ["0", "0k", "-2", "-1m"] {
            assert!(size_limit(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn processors_become_a_quota() {
        assert_eq!(cpus("1.5"), Ok(Limit::At(150_000)));
        assert_eq!(cpus("2"), Ok(Limit::At(200_000)));
        assert_eq!(cpus(".29"), Ok(Limit::At(29_000)));
        assert_eq!(cpus("0.01"), Ok(Limit::At(1_000)));
        assert_eq!(cpus("0"), Ok(Limit::Max));
        assert_eq!(cpus("0.0"), Ok(Limit::Max));
        for wrong in [
            "0.009",
            "0.000000001",
            "-1",
            "",
            ".",
            "one",
            "1e2",
            "99999999999999999999",
        ] {
            assert!(cpus(wrong).is_err(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn a_written_size_reads_back(
            number in 0_u64..8192,
            (unit, shift) in proptest::sample::select(UNITS.to_vec()),
            tail in proptest::sample::select(vec!["", "b", "ib", "B", "iB"]),
            space in proptest::sample::select(vec!["", " "]),
        ) {
            let tail = if unit == "b" { "" } else { tail };
            let size = u128::from(number) << shift;
            prop_assert_eq!(
                bytes(&format!("{number}{space}{unit}{tail}")).ok().map(u128::from),
                i64::try_from(size).is_ok().then_some(size)
            );
        }

        #[test]
        fn any_number_of_bytes_reads_back(size in 0_u64..=i64::MAX as u64) {
            prop_assert_eq!(bytes(&size.to_string()), Ok(size));
        }

        #[test]
        fn a_fraction_is_exact(
            whole in 0_u64..1000,
            thousandths in 0_u64..1000,
            (unit, shift) in proptest::sample::select(UNITS[..4].to_vec()),
        ) {
            let size = ((whole * 1000 + thousandths) << shift) / 1000;
            prop_assert_eq!(bytes(&format!("{whole}.{thousandths:03}{unit}")), Ok(size));
        }

        #[test]
        fn nothing_panics(text in "\\PC*") {
            let _ = (bytes(&text), size_limit(&text), count_limit(&text), cpus(&text));
        }
    }
}
