//! Student's t distribution, by way of the incomplete beta function. Accurate to about 1e-12, far
//! beyond what a report prints.

/// Chance that |T| is at least `t` with `freedom` degrees of freedom.
pub(super) fn two_sided(t: f64, freedom: f64) -> f64 {
    if t.is_nan() {
        return f64::NAN;
    }
    if t.is_infinite() {
        return 0.0;
    }
    let square = t * t;
    incomplete_beta(
        freedom / (freedom + square),
        square / (freedom + square),
        freedom / 2.0,
        0.5,
    )
}

/// Chance that T is at least `t`.
pub(super) fn upper(t: f64, freedom: f64) -> f64 {
    let half = two_sided(t, freedom) / 2.0;
    if t < 0.0 { 1.0 - half } else { half }
}

/// The `t` that |T| stays below with the chance `level`, for example 2.776 for 0.95 and 4.
pub(super) fn critical(level: f64, freedom: f64) -> f64 {
    let tail = 1.0 - level;
    let (mut low, mut high) = (0.0, 1.0);
    while two_sided(high, freedom) > tail && high < f64::MAX / 4.0 {
        low = high;
        high *= 2.0;
    }
    while high - low > high * 1e-14 {
        let middle = f64::midpoint(low, high);
        if middle <= low || middle >= high {
            break;
        }
        if two_sided(middle, freedom) > tail {
            low = middle;
        } else {
            high = middle;
        }
    }
    f64::midpoint(low, high)
}

/// The regularised incomplete beta function of `x`, where `rest` is 1 - `x`: both, because near 1 the
/// difference would lose its digits.
fn incomplete_beta(x: f64, rest: f64, a: f64, b: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    if rest <= 0.0 {
        return 1.0;
    }
    let front = (ln_gamma(a + b) - ln_gamma(a) - ln_gamma(b) + a * x.ln() + b * rest.ln()).exp();
    // The fraction converges fast on this side of the mean only; the other side is its mirror.
    if x < (a + 1.0) / (a + b + 2.0) {
        front * fraction(x, a, b) / a
    } else {
        1.0 - front * fraction(rest, b, a) / b
    }
}

/// The continued fraction of DLMF 8.17.22, evaluated by Lentz's method.
fn fraction(x: f64, a: f64, b: f64) -> f64 {
    let guard = |value: f64| if value.abs() < TINY { TINY } else { value };
    let mut numerator = 1.0;
    let mut denominator = 1.0 / guard(1.0 - (a + b) * x / (a + 1.0));
    let mut result = denominator;
    for step in 1..=MOST_TERMS {
        let m = f64::from(step);
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        let mut factor = 1.0;
        for term in [even, odd] {
            denominator = 1.0 / guard(1.0 + term * denominator);
            numerator = guard(1.0 + term / numerator);
            factor = denominator * numerator;
            result *= factor;
        }
        if (factor - 1.0).abs() < 1e-15 {
            break;
        }
    }
    result
}

/// Logarithm of the gamma function for positive `x`, by Lanczos' series with g = 7.
fn ln_gamma(x: f64) -> f64 {
    let x = x - 1.0;
    let (first, others) = (LANCZOS[0], &LANCZOS[1..]);
    let mut sum = first;
    let mut index = x;
    for coefficient in others {
        index += 1.0;
        sum += coefficient / index;
    }
    let t = x + 7.5;
    0.5 * (2.0 * std::f64::consts::PI).ln() + (x + 0.5) * t.ln() - t + sum.ln()
}

const TINY: f64 = 1e-300;
const MOST_TERMS: u32 = 10_000;

/// Lanczos' coefficients for g = 7, n = 9.
const LANCZOS: [f64; 9] = [
    0.999_999_999_999_809_9,
    676.520_368_121_885_1,
    -1_259.139_216_722_402_8,
    771.323_428_777_653_1,
    -176.615_029_162_140_6,
    12.507_343_278_686_905,
    -0.138_571_095_265_720_12,
    9.984_369_578_019_572e-6,
    1.505_632_735_149_311_6e-7,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gamma_of_known_values() {
        for (x, gamma) in [
            (0.5, std::f64::consts::PI.sqrt()),
            (1.0, 1.0),
            (2.0, 1.0),
            (4.5, 11.631_728_396_567_448),
            (11.0, 3_628_800.0),
        ] {
            assert!((ln_gamma(x) - f64::ln(gamma)).abs() < 1e-12, "{x}");
        }
    }

    #[test]
    fn closed_forms() {
        // One degree of freedom is Cauchy's distribution, two have a closed form.
        for t in [0.001, 0.3, 1.0, 2.5, 40.0, 1e6_f64] {
            let cauchy = 1.0 - 2.0 / std::f64::consts::PI * t.atan();
            assert!((two_sided(t, 1.0) - cauchy).abs() < 1e-12, "{t}");
            let two = 1.0 - t / (2.0 + t * t).sqrt();
            assert!((two_sided(t, 2.0) - two).abs() < 1e-12, "{t}");
        }
        assert!((two_sided(0.0, 5.0) - 1.0).abs() < 1e-15);
        assert!((upper(-1.0, 1.0) - 0.75).abs() < 1e-12);
        assert!((upper(1.0, 1.0) - 0.25).abs() < 1e-12);
    }

    /// The printed tables of the t distribution.
    #[test]
    fn published_tables() {
        for (freedom, at_90, at_95, at_99) in [
            (1.0, 6.314, 12.706, 63.657),
            (2.0, 2.920, 4.303, 9.925),
            (4.0, 2.132, 2.776, 4.604),
            (5.0, 2.015, 2.571, 4.032),
            (9.0, 1.833, 2.262, 3.250),
            (10.0, 1.812, 2.228, 3.169),
            (30.0, 1.697, 2.042, 2.750),
            (120.0, 1.658, 1.980, 2.617),
            (1e7, 1.645, 1.960, 2.576),
        ] {
            for (level, expected) in [(0.90, at_90), (0.95, at_95), (0.99, at_99)] {
                let t = critical(level, freedom);
                assert!((t - expected).abs() < 6e-4, "{freedom} {level}: {t}");
            }
        }
    }
}
