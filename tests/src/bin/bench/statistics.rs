//! Medians and percentiles.

/// The middle of the values; of an even number of them, the mean of the middle two. NaN if
/// there are none.
pub(crate) fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => f64::NAN,
        length if length % 2 == 1 => values[middle],
        _ => (values[middle - 1] + values[middle]) / 2.0,
    }
}

/// The smallest value that `percent` of the values do not exceed. NaN if there are none.
pub(crate) fn percentile(values: impl IntoIterator<Item = f64>, percent: f64) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    let rank = (values.len() as f64 * percent / 100.0).ceil() as usize;
    values.get(rank.max(1) - 1).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values() {
        let hundred = (1..=100).map(f64::from);
        assert_eq!(percentile(hundred, 95.0), 95.0);
        assert_eq!(percentile([2.0, 1.0], 95.0), 2.0);
        assert_eq!(percentile([7.0], 5.0), 7.0);
        assert!(percentile([], 95.0).is_nan());
    }

    #[test]
    fn median_is_the_middle() {
        assert_eq!(median([3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median([4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median([]).is_nan());
    }
}
