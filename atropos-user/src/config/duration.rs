//! Lengths of time as people write them: `20ms`, `5s`, `1h`.

/// Units with their nanoseconds, in rising order.
const UNITS: [(&str, u64); 6] = [
    ("ns", 1),
    ("us", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// What is allowed, for error messages.
pub(crate) const ALLOWED: &str =
    "a number and one of the units ns, us, ms, s, m, h, such as `20ms` or `1.5s`";

/// Reads a length of time in nanoseconds, rounded down; the error says what is wrong with it.
pub(crate) fn parse_ns(text: &str) -> Result<u64, String> {
    let digits = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    if number.is_empty() {
        return Err(match text {
            "" => "a length of time is missing".to_owned(),
            _ => format!("`{text}` is not a length of time"),
        });
    }
    if unit.trim_start() != unit {
        return Err(format!("there is a blank in `{text}`"));
    }
    if unit.is_empty() {
        return Err(format!("`{text}` has no unit"));
    }
    let Some((_, unit_ns)) = UNITS.iter().find(|(name, _)| *name == unit) else {
        return Err(format!("unknown unit `{unit}` in `{text}`"));
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty()
        || (number.contains('.') && fraction.is_empty())
        || fraction.len() > 9
        || fraction.contains('.')
    {
        return Err(format!("`{number}` is not a number"));
    }
    let too_long = || format!("`{text}` is too long");
    let whole: u64 = whole.parse().map_err(|_| too_long())?;
    let whole_ns = whole.checked_mul(*unit_ns).ok_or_else(too_long)?;
    let fraction_ns = match fraction.parse::<u64>() {
        Ok(part) => {
            (u128::from(part) * u128::from(*unit_ns) / 10u128.pow(fraction.len() as u32)) as u64
        }
        Err(_) => 0,
    };
    whole_ns.checked_add(fraction_ns).ok_or_else(too_long)
}
