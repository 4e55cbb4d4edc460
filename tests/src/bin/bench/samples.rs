//! Samples of several contestants, taken in rounds that alternate.

use std::collections::BTreeMap;

use crate::{
    contestant::Contestant,
    statistics::{median, percentile},
};

/// Samples of one quantity by contestant, and of each by round.
#[derive(Debug, Default)]
pub(crate) struct Samples(BTreeMap<Contestant, Vec<Vec<f64>>>);

impl Samples {
    /// Adds what a contestant reached in one more round.
    pub(crate) fn add_round(&mut self, contestant: Contestant, samples: Vec<f64>) {
        self.0.entry(contestant).or_default().push(samples);
    }

    fn all(&self, contestant: Contestant) -> Option<impl Iterator<Item = f64>> {
        Some(self.0.get(&contestant)?.iter().flatten().copied())
    }

    /// The median of all samples of a contestant.
    pub(crate) fn median(&self, contestant: Contestant) -> Option<f64> {
        self.all(contestant).map(median)
    }

    /// What 95 % of the samples do not exceed.
    pub(crate) fn p95(&self, contestant: Contestant) -> Option<f64> {
        self.all(contestant).map(|all| percentile(all, 95.0))
    }

    /// The median over the rounds of the ratio of the medians within a round. Not the ratio of
    /// medians: rounds alternate, so what slows the machine down for a while slows both parts
    /// of a ratio.
    pub(crate) fn ratio(&self, one: Contestant, other: Contestant) -> Option<f64> {
        let rounds = self.0.get(&one)?.iter().zip(self.0.get(&other)?);
        Some(median(rounds.map(|(one, other)| {
            median(one.iter().copied()) / median(other.iter().copied())
        })))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_of_rounds_that_belong_together() {
        let mut samples = Samples::default();
        for load in [1.0, 10.0, 100.0] {
            samples.add_round(
                Contestant::StockRunc,
                vec![2.0 * load, 4.0 * load, 90.0 * load],
            );
            samples.add_round(Contestant::LazycgRunc, vec![load, load, load]);
        }
        let ratio = samples.ratio(Contestant::LazycgRunc, Contestant::StockRunc);
        assert_eq!(ratio, Some(0.25));
        assert_eq!(samples.median(Contestant::LazycgRunc), Some(10.0));
        assert_eq!(samples.median(Contestant::RuncAlone), None);
    }
}
