//! Sizes, rates, times and fractions as people write them, read without floating point.

/// One million: the unit of fractions.
const PPM: u64 = 1_000_000;

/// Splits `1.25GiB` into the digits before and after the point and the unit.
fn split(text: &str) -> Option<(u64, &str, &str)> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() || fraction.contains('.') || fraction.len() > 12 {
        return None;
    }
    let whole = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    Some((whole, fraction, unit.trim()))
}

/// `whole.fraction · scale`, if it is a whole number.
fn scaled(whole: u64, fraction: &str, scale: u64) -> Option<u64> {
    let mut total = u128::from(whole) * u128::from(scale);
    if !fraction.is_empty() {
        let part = fraction.parse::<u128>().ok()? * u128::from(scale);
        let unit = 10u128.pow(fraction.len() as u32);
        if part % unit != 0 {
            return None;
        }
        total += part / unit;
    }
    total.try_into().ok()
}

fn with_units(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let (whole, fraction, unit) = split(text)?;
    let scale = units.iter().find(|u| u.0.eq_ignore_ascii_case(unit))?.1;
    scaled(whole, fraction, scale)
}

/// A fraction in parts per million: `1%`, `0.1%`, `250ppm`, `0`.
pub fn fraction_ppm(text: &str) -> Result<u32, String> {
    let value = match text.trim() {
        "0" => Some(0),
        text => with_units(text, &[("%", PPM / 100), ("ppm", 1)]),
    };
    match value {
        Some(ppm) if ppm <= PPM => Ok(ppm as u32),
        _ => Err(format!(
            "`{text}` is no fraction between 0% and 100% in steps of 1 ppm (write for example 1%, 0.1% or 250ppm)"
        )),
    }
}

/// A size in bytes: `4096`, `64KiB`, `1MiB`.
pub fn size_bytes(text: &str) -> Result<u64, String> {
    with_units(
        text,
        &[("", 1), ("B", 1), ("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30), ("kB", 1000), ("MB", 1_000_000)],
    )
    .ok_or_else(|| format!("`{text}` is no size (write for example 4096, 64KiB or 1MiB)"))
}

/// A rate in Mb/s: `100Gbps`, `400Gb/s`, `2500Mbps`.
pub fn rate_mbps(text: &str) -> Result<u64, String> {
    with_units(text, &[("Gbps", 1000), ("Gb/s", 1000), ("G", 1000), ("Mbps", 1), ("Mb/s", 1)])
        .filter(|r| (1..=1_600_000).contains(r))
        .ok_or_else(|| format!("`{text}` is no rate between 1Mbps and 1600Gbps (write for example 100Gbps)"))
}

/// A time in picoseconds: `500ns`, `1us`, `2ms`.
pub fn time_ps(text: &str) -> Result<u64, String> {
    with_units(text, &[("ps", 1), ("ns", 1000), ("us", 1_000_000), ("ms", 1_000_000_000), ("s", 1_000_000_000_000)])
        .ok_or_else(|| format!("`{text}` is no time (write for example 500ns, 1us or 2ms)"))
}

/// A range of clock cycles: `1000..5000`, `..5000`, `1000..`.
pub fn cycle_range(text: &str) -> Result<(u64, u64), String> {
    let parse = || {
        let (from, to) = text.split_once("..")?;
        let from = if from.is_empty() { 0 } else { from.parse().ok()? };
        let to = if to.is_empty() { u64::MAX } else { to.parse().ok()? };
        (from < to).then_some((from, to))
    };
    parse().ok_or_else(|| format!("`{text}` is no range of cycles (write for example 1000..5000)"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fractions_are_exact_parts_per_million() {
        assert_eq!(fraction_ppm("1%"), Ok(10_000));
        assert_eq!(fraction_ppm("0.1%"), Ok(1_000));
        assert_eq!(fraction_ppm(" 250 ppm"), Ok(250));
        assert_eq!(fraction_ppm("100%"), Ok(1_000_000));
        assert_eq!(fraction_ppm("0"), Ok(0));
        for bad in ["", "%", "101%", "-1%", "1", "0.00001%", "1e-3", "1.2.3%", "one"] {
            assert!(fraction_ppm(bad).unwrap_err().contains("write for example"), "{bad}");
        }
    }

    #[test]
    fn sizes_rates_and_times_need_units_that_exist() {
        assert_eq!(size_bytes("1.5KiB"), Ok(1536));
        assert_eq!(size_bytes("4096"), Ok(4096));
        assert_eq!(rate_mbps("100Gbps"), Ok(100_000));
        assert_eq!(rate_mbps("2.5G"), Ok(2_500));
        assert_eq!(time_ps("1.5us"), Ok(1_500_000));
        for bad in ["1.0001B", "10 XiB", "", "99999999999999999999"] {
            assert!(size_bytes(bad).is_err(), "{bad}");
        }
        assert!(rate_mbps("0Gbps").is_err() && rate_mbps("100").is_err() && time_ps("3").is_err());
    }

    #[test]
    fn cycle_ranges_may_be_open_but_not_empty() {
        assert_eq!(cycle_range("10..20"), Ok((10, 20)));
        assert_eq!(cycle_range("..20"), Ok((0, 20)));
        assert_eq!(cycle_range("5.."), Ok((5, u64::MAX)));
        assert!(cycle_range("20..10").is_err() && cycle_range("7").is_err());
    }
}
