//! How the server's seats are shared among its priority levels: by their shares, and every ten seconds by what they
//! needed of late, within what each may lend and borrow.

use super::queue_set::Observed;

/// How fast a high demand is forgotten.
const SMOOTHING: f64 = 0.977;
/// No demand is still some, or nothing could be divided by it.
const LEAST_TARGET: f64 = 0.001;

/// The seats of one priority level.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Seats {
    pub exempt: bool,
    /// Its share of all.
    pub nominal: u32,
    /// What is left of that when all that may be lent is.
    pub least: u32,
    /// And when all that may be borrowed is.
    pub most: u32,
    /// What it has now.
    pub current: u32,
    pub demand: Demand,
}

/// The recent demand of a level.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Demand {
    pub average: f64,
    pub deviation: f64,
    pub peak: f64,
    pub smoothed: f64,
}

impl Demand {
    pub fn note(&mut self, observed: Observed) {
        self.peak = observed.most.round();
        if observed.seconds > 0.0 {
            (self.average, self.deviation) = (observed.average, observed.deviation);
            let envelope = observed.average + observed.deviation;
            self.smoothed = envelope.max(SMOOTHING * self.smoothed + (1.0 - SMOOTHING) * envelope);
        }
    }
}

/// What the configuration of a level says of its seats.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Shares {
    pub exempt: bool,
    pub nominal: u32,
    pub lendable_percent: u32,
    /// Without a limit all of the server's seats may be borrowed.
    pub borrowing_percent: Option<u32>,
}

impl Seats {
    /// The part that `shares` are of all `sum` shares, of a server with `total` seats.
    pub fn of(shares: Shares, sum: f64, total: u32) -> Self {
        let nominal = if sum > 0.0 { (f64::from(total) * f64::from(shares.nominal) / sum).ceil() } else { 0.0 };
        let percent = |percent: u32| (nominal * f64::from(percent) / 100.0).round() as u32;
        let (nominal, lendable) = (nominal as u32, percent(shares.lendable_percent));
        let borrowed = shares.borrowing_percent.map_or(total, percent);
        Self {
            exempt: shares.exempt,
            nominal,
            least: nominal - lendable.min(nominal),
            most: nominal.saturating_add(borrowed),
            current: nominal - (lendable / 2).min(nominal),
            demand: Demand::default(),
        }
    }

    /// The least it gets this time: what it needed at its peak, but no more than its share for that reason alone.
    fn floor(&self) -> u32 {
        let peak = self.demand.peak as u32;
        if self.exempt { self.least.max(peak) } else { self.least.max(peak.min(self.nominal)) }
    }

    /// The most seats that one request may take.
    pub fn widest(&self, hand: usize) -> u32 {
        let part = (f64::from(self.nominal) * 0.15).ceil() as u32;
        part.min(self.nominal / hand.max(1) as u32).max(1)
    }
}

/// Adjusts what each level has to what it needed. The sum is that of the shares.
pub fn adjust(levels: &mut [&mut Seats]) {
    let sum: u32 = levels.iter().map(|level| level.nominal).sum();
    let taken: u32 = levels.iter().filter(|level| level.exempt).map(|level| level.floor()).sum();
    let limited = || levels.iter().filter(|level| !level.exempt);
    let least: u32 = limited().map(|level| level.least).sum();
    let floors: u32 = limited().map(|level| level.floor()).sum();
    let left = sum.saturating_sub(taken);
    let given: Vec<u32> = if left <= least {
        levels.iter().map(|level| if level.exempt { level.floor() } else { level.least }).collect()
    } else if left <= floors {
        let part = f64::from(left - least) / f64::from(floors - least);
        let between = |level: &Seats| level.least + (f64::from(level.floor() - level.least) * part).round() as u32;
        levels.iter().map(|level| if level.exempt { level.floor() } else { between(level) }).collect()
    } else {
        let proportion = proportion(limited().map(|level| &**level), sum);
        let share = |level: &Seats| level.at(proportion).round() as u32;
        levels.iter().map(|level| if level.exempt { level.floor() } else { share(level) }).collect()
    };
    for (level, given) in levels.iter_mut().zip(given) {
        level.current = given;
    }
}

impl Seats {
    fn target(&self) -> f64 {
        f64::from(self.floor()).max(self.demand.smoothed).max(LEAST_TARGET)
    }

    fn at(&self, proportion: f64) -> f64 {
        (self.target() * proportion).clamp(f64::from(self.floor()), f64::from(self.most.max(self.floor())))
    }
}

/// By how much every target is multiplied so that, within everybody's bounds, all seats are given out. The sum grows with
/// it, so it is found by halving.
fn proportion<'a>(levels: impl Iterator<Item = &'a Seats> + Clone, sum: u32) -> f64 {
    let given = |proportion: f64| levels.clone().map(|level| level.at(proportion)).sum::<f64>();
    let (mut low, mut high) = (0.0, 1.0);
    while given(high) < f64::from(sum) && high < 1e9 {
        high *= 2.0;
    }
    for _ in 0..80 {
        let middle = (low + high) / 2.0;
        if given(middle) < f64::from(sum) { low = middle } else { high = middle }
    }
    high
}

#[cfg(test)]
mod tests {
    use super::*;

    fn level(nominal: u32, lendable: u32, borrowing: Option<u32>, peak: f64, smoothed: f64) -> Seats {
        let shares = Shares { exempt: false, nominal, lendable_percent: lendable, borrowing_percent: borrowing };
        let mut seats = Seats::of(shares, 100.0, 100);
        seats.demand = Demand { peak, smoothed, ..Demand::default() };
        seats
    }

    fn adjusted(mut levels: Vec<Seats>) -> Vec<u32> {
        adjust(&mut levels.iter_mut().collect::<Vec<_>>());
        levels.iter().map(|level| level.current).collect()
    }

    /// The seats of Kubernetes' own levels on a server of 600.
    #[test]
    fn shares_become_seats() {
        let sum = 245.0;
        let of = |nominal, lendable_percent| {
            let seats =
                Seats::of(Shares { exempt: false, nominal, lendable_percent, borrowing_percent: None }, sum, 600);
            (seats.nominal, seats.least, seats.most, seats.current)
        };
        assert_eq!(of(5, 0), (13, 13, 613, 13));
        assert_eq!(of(20, 50), (49, 24, 649, 37));
        assert_eq!(of(40, 25), (98, 73, 698, 86));
        assert_eq!(of(100, 90), (245, 24, 845, 135));
        assert_eq!(of(0, 0), (0, 0, 600, 0));
    }

    #[test]
    fn whoever_needs_seats_gets_those_that_others_lend() {
        // Nobody needs anything: everybody is at what they do not lend, and the rest is spread.
        let idle = adjusted(vec![level(60, 50, None, 0.0, 0.0), level(40, 50, None, 0.0, 0.0)]);
        assert_eq!(idle.iter().sum::<u32>(), 100);
        // One is flooded, the other idle: it lends what it may, and no more.
        let flooded = adjusted(vec![level(60, 50, None, 500.0, 500.0), level(40, 50, None, 0.0, 0.0)]);
        assert_eq!(flooded, [80, 20]);
        // The borrowing limit holds.
        let bounded = adjusted(vec![level(60, 50, Some(10), 500.0, 500.0), level(40, 50, None, 0.0, 0.0)]);
        assert_eq!(bounded, [66, 34]);
        // Whoever needs its own share has it back at once.
        let both = adjusted(vec![level(60, 50, None, 500.0, 500.0), level(40, 50, None, 40.0, 40.0)]);
        assert_eq!(both, [60, 40]);
    }

    #[test]
    fn the_exempt_take_what_they_need_and_others_keep_their_least() {
        let mut exempt = level(0, 0, None, 70.0, 70.0);
        exempt.exempt = true;
        assert_eq!(
            adjusted(vec![exempt, level(60, 50, None, 60.0, 60.0), level(40, 50, None, 40.0, 40.0)]),
            [70, 30, 20]
        );
        exempt.demand.peak = 40.0;
        assert_eq!(
            adjusted(vec![exempt, level(60, 50, None, 60.0, 60.0), level(40, 50, None, 40.0, 40.0)]),
            [40, 36, 24]
        );
    }

    #[test]
    fn a_high_demand_is_forgotten_slowly() {
        let mut demand = Demand::default();
        demand.note(Observed { seconds: 10.0, average: 100.0, deviation: 0.0, most: 100.0 });
        for _ in 0..10 {
            demand.note(Observed { seconds: 10.0, average: 0.0, deviation: 0.0, most: 0.0 });
        }
        assert!((79.0..80.0).contains(&demand.smoothed), "{}", demand.smoothed);
        assert_eq!(demand.peak, 0.0);
    }

    #[test]
    fn no_request_takes_a_whole_level() {
        assert_eq!(level(49, 0, None, 0.0, 0.0).widest(6), 8);
        assert_eq!(level(5, 0, None, 0.0, 0.0).widest(6), 1);
    }
}
