//! A limit: a figure, or none.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A limit that may be explicitly absent. The runtime-spec writes the absence as -1,
/// cgroup v2 as `max`; neither leaves this type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Limit {
    /// Unlimited, said explicitly.
    Max,
    /// At most so much (bytes, processes or microseconds, as the field says).
    At(u64),
}

impl Limit {
    /// Reads the runtime-spec's notation: negative is unlimited, 0 is "not set".
    pub fn from_spec(value: i64) -> Option<Limit> {
        match value {
            0 => None,
            value => Some(u64::try_from(value).map_or(Limit::Max, Limit::At)),
        }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Limit::Max => f.pad("max"),
            Limit::At(value) => value.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_notation_of_the_runtime_spec() {
        for (value, expected) in [
            (0, None),
            (-1, Some(Limit::Max)),
            (i64::MIN, Some(Limit::Max)),
            (1, Some(Limit::At(1))),
            (i64::MAX, Some(Limit::At(i64::MAX.unsigned_abs()))),
        ] {
            assert_eq!(Limit::from_spec(value), expected, "{value}");
        }
    }

    #[test]
    fn shows_as_cgroup_v2_does() {
        assert_eq!(Limit::Max.to_string(), "max");
        assert_eq!(Limit::At(64).to_string(), "64");
    }
}
