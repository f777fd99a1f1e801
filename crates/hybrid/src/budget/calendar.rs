//! Days and months of UTC as numbers.

const DAY_SECONDS: u64 = 86_400;

/// Days since 1970-01-01 at so many seconds after its beginning.
#[must_use]
pub fn day_of(seconds: u64) -> u64 {
    seconds / DAY_SECONDS
}

/// Months since January 1970 at so many seconds after its beginning, by the Gregorian calendar.
#[must_use]
pub fn month_of(seconds: u64) -> u64 {
    month_and_day(seconds).0
}

/// Year, month and day, the latter from 1 on, at so many seconds after the beginning of 1970.
#[must_use]
pub fn date_of(seconds: u64) -> (u64, u64, u64) {
    let (month, day) = month_and_day(seconds);
    (1970 + month / 12, month % 12 + 1, day)
}

/// Months since January 1970, and the day of the month from 1 on. (The count of days from a 1st of March, after H. Hinnant,
/// "chrono-compatible low-level date algorithms".)
fn month_and_day(seconds: u64) -> (u64, u64) {
    // Days since 0000-03-01, in eras of 400 years.
    let days = day_of(seconds) + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day_of_year = day - (365 * year + year / 4 - year / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    // March of year 0 is 1970 years and -2 months from January 1970.
    let month = (era * 400 + year) * 12 + from_march + 2 - 1970 * 12;
    (month, day_of_year - (153 * from_march + 2) / 5 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn month_of_every_day_follows_the_lengths_of_months() {
        let (mut seconds, mut month) = (0, 0);
        for year in 1970..2400 {
            let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
            for days in [31, 28 + u64::from(leap), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
                for day in 1..=days {
                    assert_eq!(month_of(seconds), month, "year {year}");
                    assert_eq!(date_of(seconds), (year, month % 12 + 1, day));
                    assert_eq!(month_of(seconds + DAY_SECONDS - 1), month);
                    seconds += DAY_SECONDS;
                }
                month += 1;
            }
        }
        assert_eq!(day_of(DAY_SECONDS - 1), 0);
    }
}
