//! The date that templates ask for with `strftime_now`, without a time zone database.

use std::time::{SystemTime, UNIX_EPOCH};

/// Longest format that is accepted.
const MAX_FORMAT_BYTES: usize = 256;

/// What `strftime_now` reads. `transformers` uses the machine's local time; a library cannot know the zone
/// without reading system files, so the caller says how far local time is from UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clock {
    /// The system's clock, at this offset east of UTC in minutes.
    System {
        /// Minutes east of UTC, such as 120 for UTC+2.
        utc_offset_minutes: i32,
    },
    /// Always this moment: seconds since 1970-01-01 00:00, taken as local time. For reproducible prompts.
    Fixed {
        /// Seconds since 1970-01-01 00:00.
        unix_seconds: i64,
    },
}

impl Default for Clock {
    fn default() -> Self {
        Self::System { utc_offset_minutes: 0 }
    }
}

impl Clock {
    fn seconds(self) -> i64 {
        match self {
            Self::Fixed { unix_seconds } => unix_seconds,
            Self::System { utc_offset_minutes } => {
                let now = SystemTime::now().duration_since(UNIX_EPOCH);
                let now = now.map_or(0, |d| i64::try_from(d.as_secs()).unwrap_or(i64::MAX));
                now.saturating_add(i64::from(utc_offset_minutes) * 60)
            }
        }
    }

    /// C's `strftime` in its English form, of this clock's moment. Unknown directives stay as they are.
    ///
    /// # Errors
    /// A format of more than 256 bytes, or a moment outside the years 1 to 9999.
    pub(super) fn format(self, format: &str) -> Result<String, String> {
        if format.len() > MAX_FORMAT_BYTES {
            return Err(format!(
                "date format has {} bytes, expected at most {MAX_FORMAT_BYTES}",
                format.len()
            ));
        }
        let moment = Moment::new(self.seconds()).ok_or("the clock is outside the years 1 to 9999")?;
        let mut out = String::new();
        moment.write(format, &mut out);
        Ok(out)
    }
}

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] = [
    "Sunday",
    "Monday",
    "Tuesday",
    "Wednesday",
    "Thursday",
    "Friday",
    "Saturday",
];

/// A moment of the Gregorian calendar.
struct Moment {
    unix_seconds: i64,
    year: i64,
    /// 1 to 12.
    month: i64,
    /// 1 to 31.
    day: i64,
    /// 0 is the first of January.
    day_of_year: i64,
    /// 0 is Sunday.
    weekday: i64,
    hour: i64,
    minute: i64,
    second: i64,
}

impl Moment {
    fn new(unix_seconds: i64) -> Option<Self> {
        // From 0001-01-01 to 9999-12-31, which also keeps the arithmetic below from overflowing.
        if !(-62_135_596_800..253_402_300_800).contains(&unix_seconds) {
            return None;
        }
        let (days, seconds) = (unix_seconds.div_euclid(86_400), unix_seconds.rem_euclid(86_400));
        // Hinnant, "chrono-compatible low-level date algorithms": years begin in March, eras have 400.
        let shifted = days + 719_468;
        let (era, day_of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
        let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_march_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month_from_march = (5 * day_of_march_year + 2) / 153;
        let day = day_of_march_year - (153 * month_from_march + 2) / 5 + 1;
        let month = if month_from_march < 10 {
            month_from_march + 3
        } else {
            month_from_march - 9
        };
        let year = year_of_era + era * 400 + i64::from(month <= 2);
        let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
        let day_of_year = match month {
            1 => day - 1,
            2 => 30 + day,
            _ => day_of_march_year + 59 + i64::from(leap),
        };
        Some(Self {
            unix_seconds,
            year,
            month,
            day,
            day_of_year,
            weekday: (days + 4).rem_euclid(7),
            hour: seconds / 3_600,
            minute: seconds / 60 % 60,
            second: seconds % 60,
        })
    }

    fn write(&self, format: &str, out: &mut String) {
        let mut chars = format.chars();
        while let Some(c) = chars.next() {
            if c != '%' {
                out.push(c);
                continue;
            }
            match chars.next() {
                Some('-') => match chars.next() {
                    // glibc's extension, common in templates: no padding.
                    Some(directive) => {
                        let mut padded = String::new();
                        if !self.directive(directive, &mut padded) {
                            out.extend(['%', '-', directive]);
                            continue;
                        }
                        let bare = padded.trim_start_matches(['0', ' ']);
                        out.push_str(if bare.is_empty() { "0" } else { bare });
                    }
                    None => out.push_str("%-"),
                },
                Some(directive) => {
                    if !self.directive(directive, out) {
                        out.extend(['%', directive]);
                    }
                }
                None => out.push('%'),
            }
        }
    }

    /// Whether the directive is known.
    fn directive(&self, directive: char, out: &mut String) -> bool {
        let name = |names: &[&'static str], index: i64| names[index.unsigned_abs() as usize % names.len()];
        let hour12 = (self.hour + 11) % 12 + 1;
        let text = match directive {
            'Y' => self.year.to_string(),
            'C' => format!("{:02}", self.year / 100),
            'y' => format!("{:02}", self.year % 100),
            'm' => format!("{:02}", self.month),
            'B' => name(&MONTHS, self.month - 1).to_owned(),
            'b' | 'h' => name(&MONTHS, self.month - 1)[..3].to_owned(),
            'd' => format!("{:02}", self.day),
            'e' => format!("{:2}", self.day),
            'j' => format!("{:03}", self.day_of_year + 1),
            'A' => name(&DAYS, self.weekday).to_owned(),
            'a' => name(&DAYS, self.weekday)[..3].to_owned(),
            'w' => self.weekday.to_string(),
            'u' => ((self.weekday + 6) % 7 + 1).to_string(),
            'U' => format!("{:02}", (self.day_of_year + 7 - self.weekday) / 7),
            'W' => format!("{:02}", (self.day_of_year + 7 - (self.weekday + 6) % 7) / 7),
            'H' => format!("{:02}", self.hour),
            'I' => format!("{hour12:02}"),
            'M' => format!("{:02}", self.minute),
            'S' => format!("{:02}", self.second),
            'f' => "000000".to_owned(),
            'p' => if self.hour < 12 { "AM" } else { "PM" }.to_owned(),
            's' => self.unix_seconds.to_string(),
            // Without a zone, Python prints nothing here.
            'z' | 'Z' => String::new(),
            'n' => "\n".to_owned(),
            't' => "\t".to_owned(),
            '%' => "%".to_owned(),
            composite => {
                let format = match composite {
                    'F' => "%Y-%m-%d",
                    'D' | 'x' => "%m/%d/%y",
                    'T' | 'X' => "%H:%M:%S",
                    'R' => "%H:%M",
                    'r' => "%I:%M:%S %p",
                    'c' => "%a %b %e %H:%M:%S %Y",
                    _ => return false,
                };
                self.write(format, out);
                return true;
            }
        };
        out.push_str(&text);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn format_is_that_of_strftime() {
        // Right: Python's datetime.fromtimestamp(.., timezone.utc).strftime.
        let everything = "%Y %y %C %m %B %b %d %e %j %A %a %w %u %U %W %H %I %M %S %p %F %D %T %R %c|%-d %-m %-I %-j%%";
        let cases = [
            (
                1_721_952_000,
                "2024 24 20 07 July Jul 26 26 208 Friday Fri 5 5 29 30 00 12 00 00 AM 2024-07-26 07/26/24 00:00:00 \
                 00:00 Fri Jul 26 00:00:00 2024|26 7 12 208%",
            ),
            (
                1_709_211_909,
                "2024 24 20 02 February Feb 29 29 060 Thursday Thu 4 4 08 09 13 01 05 09 PM 2024-02-29 02/29/24 \
                 13:05:09 13:05 Thu Feb 29 13:05:09 2024|29 2 1 60%",
            ),
            (
                -1,
                "1969 69 19 12 December Dec 31 31 365 Wednesday Wed 3 3 52 52 23 11 59 59 PM 1969-12-31 12/31/69 \
                 23:59:59 23:59 Wed Dec 31 23:59:59 1969|31 12 11 365%",
            ),
            (
                4_102_444_800,
                "2100 00 21 01 January Jan 01  1 001 Friday Fri 5 5 00 00 00 12 00 00 AM 2100-01-01 01/01/00 00:00:00 \
                 00:00 Fri Jan  1 00:00:00 2100|1 1 12 1%",
            ),
        ];
        for (unix_seconds, expected) in cases {
            assert_eq!(Clock::Fixed { unix_seconds }.format(everything).unwrap(), expected);
        }
    }

    #[test]
    fn format_unknown_directives_stay() {
        let clock = Clock::Fixed { unix_seconds: 0 };
        assert_eq!(clock.format("%Q %-Q % %").unwrap(), "%Q %-Q % %");
        assert!(clock.format(&"%Y".repeat(200)).is_err());
        for unix_seconds in [i64::MIN, i64::MAX, 253_402_300_800] {
            assert!(Clock::Fixed { unix_seconds }.format("%Y").is_err());
        }
    }
}
