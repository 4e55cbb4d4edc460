//! The kernel's list format for processors and memory nodes (`0-3,8`, cpuset(7)).

use std::{fmt, str::FromStr};

/// Beyond every processor and node number that a kernel can be built for. It bounds what a
/// stride (`0-9:1/2`) is spread out to.
const HIGHEST: u32 = 65_535;

/// A set of processors or memory nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CpuList {
    /// Sorted, disjoint, not adjacent; both ends belong to it.
    ranges: Vec<(u32, u32)>,
}

impl CpuList {
    /// The set of these ranges (both ends belong to it), in any order.
    fn from_ranges(mut ranges: Vec<(u32, u32)>) -> CpuList {
        ranges.sort_unstable();
        let mut merged: Vec<(u32, u32)> = Vec::new();
        for (first, last) in ranges {
            match merged.last_mut() {
                Some(previous) if first <= previous.1.saturating_add(1) => {
                    previous.1 = previous.1.max(last);
                }
                _ => merged.push((first, last)),
            }
        }
        CpuList { ranges: merged }
    }

    /// Whether it has no member.
    pub(crate) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// The members, ascending.
    pub(crate) fn members(&self) -> impl Iterator<Item = u32> {
        self.ranges.iter().flat_map(|&(first, last)| first..=last)
    }

    /// Whether each member of `other` is a member.
    pub(crate) fn contains_all(&self, other: &CpuList) -> bool {
        other.ranges.iter().all(|(first, last)| {
            self.ranges
                .iter()
                .any(|(from, to)| from <= first && last <= to)
        })
    }
}

impl FromStr for CpuList {
    /// Which part is wrong, and why.
    type Err = String;

    /// Takes what the kernel takes (`bitmap_parselist`): numbers, ranges and ranges with a
    /// stride, separated by commas or blanks; nothing at all is the empty set. The kernel
    /// reads no further than a newline, so nothing may follow one.
    fn from_str(text: &str) -> Result<CpuList, String> {
        let mut ranges = Vec::new();
        for part in text.trim_end_matches('\n').split([',', ' ', '\t']) {
            if !part.is_empty() {
                parse_part(part, &mut ranges)?;
            }
        }
        Ok(CpuList::from_ranges(ranges))
    }
}

/// `N`, `FIRST-LAST` or `FIRST-LAST:USED/GROUP`: of each GROUP members the first USED.
fn parse_part(part: &str, ranges: &mut Vec<(u32, u32)>) -> Result<(), String> {
    let (range, stride) = match part.split_once(':') {
        Some((range, stride)) => (range, Some(stride)),
        None => (part, None),
    };
    let (first, last) = match range.split_once('-') {
        Some((first, last)) => (number(first, part)?, number(last, part)?),
        None => {
            let only = number(range, part)?;
            (only, only)
        }
    };
    if first > last {
        return Err(format!("{part:?} ends before it begins"));
    }
    let Some(stride) = stride else {
        ranges.push((first, last));
        return Ok(());
    };
    let (used, group) = stride
        .split_once('/')
        .ok_or_else(|| format!("{part:?} is not FIRST-LAST:USED/GROUP"))?;
    let (used, group) = (number(used, part)?, number(group, part)?);
    if used == 0 || used > group {
        return Err(format!(
            "{part:?} uses {used} of each {group}; it must be 1 to {group}"
        ));
    }
    let mut start = first;
    while start <= last {
        ranges.push((start, last.min(start + used - 1)));
        start += group;
    }
    Ok(())
}

fn number(digits: &str, part: &str) -> Result<u32, String> {
    if digits.is_empty() || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return Err(format!("{part:?} is not a number or a range of numbers"));
    }
    digits
        .parse()
        .ok()
        .filter(|number| *number <= HIGHEST)
        .ok_or_else(|| format!("{part:?} goes beyond {HIGHEST}"))
}

impl fmt::Display for CpuList {
    /// As the kernel shows it: ascending, with ranges.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (first, last)) in self.ranges.iter().enumerate() {
            if index > 0 {
                f.write_str(",")?;
            }
            if first == last {
                write!(f, "{first}")?;
            } else {
                write!(f, "{first}-{last}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn list(text: &str) -> CpuList {
        text.parse().unwrap()
    }

    #[test]
    fn shows_what_the_kernel_would_show() {
        for (text, shown) in [
            ("", ""),
            ("\n", ""),
            ("0", "0"),
            ("0-1\n", "0-1"),
            ("3,1,2", "1-3"),
            ("0,2, 4-5", "0,2,4-5"),
            ("1-4,3-8", "1-8"),
            ("1-2,3", "1-3"),
            (",,7,", "7"),
            ("0-9:2/4", "0-1,4-5,8-9"),
            ("0-8:1/4", "0,4,8"),
            ("007", "7"),
        ] {
            assert_eq!(list(text).to_string(), shown, "{text:?}");
        }
    }

    #[test]
    fn says_which_part_is_wrong() {
        for (text, part) in [
            ("a", "\"a\""),
            ("0\n1", "\"0\\n1\""),
            ("0,1-", "\"1-\""),
            ("0-1-2", "\"0-1-2\""),
            ("-1", "\"-1\""),
            ("+1", "\"+1\""),
            ("0,3-1", "\"3-1\""),
            ("0-3:2", "\"0-3:2\""),
            ("0-3:0/2", "\"0-3:0/2\""),
            ("0-3:3/2", "\"0-3:3/2\""),
            ("0-99999999999999999999", "65535"),
            ("65536", "65535"),
        ] {
            let error = text.parse::<CpuList>().unwrap_err();
            assert!(error.contains(part), "{text:?}: {error}");
        }
    }

    #[test]
    fn compares_as_sets() {
        assert!(list("0-3").contains_all(&list("1,3")));
        assert!(list("0-3").contains_all(&list("")));
        assert!(list("0-1,2-3").contains_all(&list("0-3")));
        assert!(!list("0,2").contains_all(&list("0-2")));
        assert!(!list("").contains_all(&list("0")));
        assert!(list("").is_empty());
        assert!(!list("0").is_empty());
    }

    fn of(members: &BTreeSet<u32>) -> CpuList {
        CpuList::from_ranges(members.iter().map(|member| (*member, *member)).collect())
    }

    fn any_members() -> impl Strategy<Value = BTreeSet<u32>> {
        proptest::collection::btree_set(0..40_u32, 0..20)
    }

    proptest! {
        #[test]
        fn a_shown_list_reads_back(members in any_members()) {
            let list = of(&members);
            prop_assert_eq!(&list.to_string().parse::<CpuList>().unwrap(), &list);
        }

        #[test]
        fn contains_all_is_inclusion(one in any_members(), other in any_members()) {
            prop_assert_eq!(of(&one).contains_all(&of(&other)), one.is_superset(&other));
        }

        #[test]
        fn arbitrary_text_does_not_panic(text in "[0-9,:/ -]{0,12}|.{0,12}") {
            let _ = text.parse::<CpuList>();
        }
    }
}
