//! Axes of charts, and thinning of long series.

/// Longer series are thinned to about this many points.
pub(super) const MAX_POINTS: usize = 2000;
/// Positive values get a logarithmic axis if the largest is more than this many times the smallest.
const LOG_RATIO: f64 = 50.0;

/// An epoch and the value measured in it.
pub(super) type Point = (u64, f64);

/// Returns about `most` of the points: minimum and maximum of each of equally long intervals, and both ends.
pub(super) fn thin(points: &[Point], most: usize) -> Vec<Point> {
    if points.len() <= most {
        return points.to_vec();
    }
    let bucket = points.len().div_ceil((most / 2).max(1));
    let mut kept = vec![points[0]];
    for interval in points.chunks(bucket) {
        let by_value = |a: &&Point, b: &&Point| a.1.total_cmp(&b.1);
        let extremes = [interval.iter().min_by(by_value), interval.iter().max_by(by_value)];
        let mut extremes: Vec<Point> = extremes.into_iter().flatten().copied().collect();
        extremes.sort_by_key(|point| point.0);
        kept.extend(extremes);
    }
    kept.extend(points.last());
    kept.dedup_by_key(|point| point.0);
    kept
}

/// The range of an axis and its ticks.
#[derive(Debug, Clone)]
pub(super) struct Axis {
    low: f64,
    high: f64,
    log: bool,
    /// Labelled values.
    pub ticks: Vec<f64>,
    step: f64,
}

impl Axis {
    /// Returns an axis for measured values; `None` if there are none.
    pub fn values(values: impl Iterator<Item = f64> + Clone) -> Option<Axis> {
        let (low, high) = extent(values)?;
        if low > 0.0 && high / low > LOG_RATIO {
            return Some(Axis::logarithmic(low, high));
        }
        let (low, high) = if low == high { (low - spread(low), high + spread(low)) } else { (low, high) };
        let step = nice((high - low) / 4.0);
        let (first, last) = ((low / step).floor(), (high / step).ceil());
        let ticks = multiples(first, last, step);
        Some(Axis { low: first * step, high: last * step, log: false, ticks, step })
    }

    /// Returns an axis for epochs, with whole numbers as ticks; `None` if there are none.
    pub fn epochs(epochs: impl Iterator<Item = f64> + Clone) -> Option<Axis> {
        let (low, high) = extent(epochs)?;
        let (low, high) = if low == high { (low - 1.0, high + 1.0) } else { (low, high) };
        let step = nice((high - low) / 5.0).max(1.0);
        let ticks = multiples((low / step).ceil(), (high / step).floor(), step);
        Some(Axis { low, high, log: false, ticks, step })
    }

    /// Returns an axis from 0 to exactly `length`.
    pub fn time(length: f64) -> Axis {
        let high = if length > 0.0 { length } else { 1.0 };
        let step = nice(high / 8.0);
        Axis { low: 0.0, high, log: false, ticks: multiples(0.0, (high / step).floor(), step), step }
    }

    fn logarithmic(low: f64, high: f64) -> Axis {
        let margin = (high / low).powf(0.04);
        let (low, high) = (low / margin, high * margin);
        let decades = low.log10().floor() as i32..=high.log10().ceil() as i32;
        let few = high / low < 1e3;
        let factors: &[f64] = if few { &[1.0, 2.0, 5.0] } else { &[1.0] };
        let every = ((high / low).log10() / 6.0).ceil().max(1.0) as usize;
        let ticks = decades.step_by(every).flat_map(|d| factors.iter().map(move |f| f * 10f64.powi(d)));
        let ticks = ticks.filter(|&tick| tick >= low && tick <= high).collect();
        Axis { low, high, log: true, ticks, step: 0.0 }
    }

    /// Returns whether the axis is logarithmic.
    pub fn is_logarithmic(&self) -> bool {
        self.log
    }

    /// Returns the position of a value: 0 at the start of the axis, 1 at the end.
    pub fn place(&self, value: f64) -> f64 {
        if self.log {
            return (value / self.low).ln() / (self.high / self.low).ln();
        }
        (value - self.low) / (self.high - self.low)
    }

    /// Returns a tick with enough digits to distinguish it from its neighbours.
    pub fn label(&self, tick: f64) -> String {
        let size = tick.abs().max(self.step);
        if tick != 0.0 && !(1e-4..1e6).contains(&size) {
            return format!("{tick:e}").chars().take(9).collect();
        }
        if self.log {
            return format!("{tick}");
        }
        let decimals = (-self.step.log10().floor()).clamp(0.0, 9.0) as usize;
        // A rounded zero may be negative.
        format!("{:.decimals$}", if tick.abs() < self.step / 2.0 { 0.0 } else { tick })
    }
}

fn extent(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    values.map(|x| (x, x)).reduce(|(low, high), (x, _)| (low.min(x), high.max(x)))
}

/// Returns the space on either side of a single value.
fn spread(value: f64) -> f64 {
    if value == 0.0 { 1.0 } else { value.abs() / 10.0 }
}

/// Rounds up to 1, 2 or 5 times a power of ten.
fn nice(step: f64) -> f64 {
    let power = 10f64.powf(step.log10().floor());
    let factor = [1.0, 2.0, 5.0, 10.0].into_iter().find(|f| f * power >= step * (1.0 - 1e-9));
    factor.unwrap_or(10.0) * power
}

fn multiples(first: f64, last: f64, step: f64) -> Vec<f64> {
    let count = (last - first).clamp(0.0, 50.0) as u64;
    (0..=count).map(|k| (first + k as f64) * step).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thinning_keeps_extremes_and_ends() {
        let mut points: Vec<Point> = (1..=100_000).map(|e| (e, 1.0 / e as f64)).collect();
        points[54_321].1 = 77.0;
        points[76_543].1 = -3.0;
        let thinned = thin(&points, MAX_POINTS);
        assert!(thinned.len() <= MAX_POINTS + 2 && thinned.len() > MAX_POINTS / 2, "{}", thinned.len());
        for point in [points[0], points[54_321], points[76_543], points[99_999]] {
            assert!(thinned.contains(&point), "{point:?}");
        }
        assert!(thinned.windows(2).all(|w| w[0].0 < w[1].0) && thinned.iter().all(|p| points.contains(p)));
        assert_eq!(thin(&points[..5], MAX_POINTS), points[..5]);
    }

    fn labels(axis: &Axis) -> Vec<String> {
        axis.ticks.iter().map(|&tick| axis.label(tick)).collect()
    }

    #[test]
    fn axes_start_and_end_at_round_values() {
        let axis = Axis::values([0.31, 0.78].into_iter()).unwrap();
        assert_eq!(labels(&axis), ["0.2", "0.4", "0.6", "0.8"]);
        assert!(axis.place(0.2).abs() < 1e-12 && (axis.place(0.8) - 1.0).abs() < 1e-12);
        assert_eq!(
            labels(&Axis::values([-1.0, 1.0].into_iter()).unwrap()),
            ["-1.0", "-0.5", "0.0", "0.5", "1.0"]
        );
        assert!(Axis::values(std::iter::empty()).is_none());
    }

    #[test]
    fn wide_ranges_get_a_logarithmic_axis() {
        let axis = Axis::values([0.001, 10.0].into_iter()).unwrap();
        assert!(axis.is_logarithmic());
        assert_eq!(labels(&axis), ["0.001", "0.01", "0.1", "1", "10"]);
        assert!((axis.place(0.1) - 0.5).abs() < 1e-9);
        let extreme = Axis::values([1e-300, 1e300].into_iter()).unwrap();
        assert!(extreme.ticks.len() < 10, "{:?}", extreme.ticks);
    }

    #[test]
    fn single_values_have_space_around_them() {
        for value in [0.0, 0.5, -2.0, 1e-12, 1e12] {
            let axis = Axis::values(std::iter::once(value)).unwrap();
            let place = axis.place(value);
            assert!(place > 0.0 && place < 1.0 && axis.ticks.len() < 15, "{value}: {axis:?}");
        }
        let axis = Axis::epochs(std::iter::once(1.0)).unwrap();
        assert_eq!((axis.place(1.0), labels(&axis)), (0.5, vec!["0".into(), "1".into(), "2".into()]));
    }
}
