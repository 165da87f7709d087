//! Wall-clock time as RFC 3339, without a calendar library.

const SECONDS_A_DAY: u64 = 86_400;

/// Nanoseconds since 1970 as `2026-11-29T21:05:09.123456Z`.
pub(super) fn rfc3339(unix_ns: u64) -> String {
    let (seconds, micros) = (unix_ns / 1_000_000_000, unix_ns % 1_000_000_000 / 1_000);
    let (year, month, day) = civil(seconds / SECONDS_A_DAY);
    let of_day = seconds % SECONDS_A_DAY;
    let (hour, minute, second) = (of_day / 3_600, of_day / 60 % 60, of_day % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{micros:06}Z")
}

/// Year, month and day of a day number since 1970-01-01, in the proleptic Gregorian calendar.
fn civil(days: u64) -> (u64, u64, u64) {
    let is_leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    let (mut year, mut day) = (1970, days);
    loop {
        let length = if is_leap(year) { 366 } else { 365 };
        if day < length {
            break;
        }
        day -= length;
        year += 1;
    }
    let february = if is_leap(year) { 29 } else { 28 };
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if day < length {
            break;
        }
        day -= length;
        month += 1;
    }
    (year, month, day + 1)
}

#[cfg(test)]
mod tests {
    use super::rfc3339;

    #[test]
    fn times_are_written_as_rfc_3339_in_utc() {
        assert_eq!(rfc3339(0), "1970-01-01T00:00:00.000000Z");
        assert_eq!(
            rfc3339(951_782_400_000_001_999),
            "2000-02-29T00:00:00.000001Z"
        );
        assert_eq!(
            rfc3339(1_767_225_599_999_999_999),
            "2025-12-31T23:59:59.999999Z"
        );
        assert_eq!(
            rfc3339(4_107_542_400_000_000_000),
            "2100-03-01T00:00:00.000000Z"
        );
    }
}
