//! The table of results, as text and as JSON.

use std::time::Duration;

use serde_json::{Map, Value, json};

use super::way::Way;

/// The results of one column in all turns of a row.
#[derive(Default)]
pub struct Cell {
    /// The duration of each turn, or of each step of one.
    pub times: Vec<Duration>,
    /// Durations that are counted separately, such as that of ending.
    pub others: Vec<Duration>,
    /// The processor time of the proxy for one message.
    pub cpu: Vec<Duration>,
    pub peak_kib: u64,
    /// The private memory at rest; then the proportional set size.
    pub private_kib: u64,
    pub pss_kib: u64,
    pub lost: usize,
    /// Whether a turn did not end.
    pub stalled: bool,
}

/// The requested columns, and the rows that have been printed.
pub struct Table {
    pub columns: Vec<Way>,
    rows: Vec<Value>,
}

/// A line of a row: its name in the table, its name in JSON, its value.
pub type Line = (
    &'static str,
    &'static str,
    fn(&Cell) -> Option<f64>,
    fn(f64) -> String,
);

/// The lines that most rows have.
pub const TIME: Line = ("median", "median_s", |cell| median(&cell.times), show);
pub const CPU: Line = ("CPU of one", "cpu_s", |cell| median(&cell.cpu), show);
pub const PEAK: Line = ("peak MB", "peak_kib", peak, megabytes);

impl Table {
    /// Prints the head.
    pub fn begin(columns: Vec<Way>) -> Self {
        print!("{:<42}", "");
        for way in &columns {
            print!("{:>11}", way.name());
        }
        println!();
        Self {
            columns,
            rows: Vec::new(),
        }
    }

    /// Prints a row: its lines, and the ratios of the times to those of the first column.
    pub fn row(&mut self, name: &str, cells: &[Cell], lines: &[Line]) {
        println!("{name}");
        let mut json: Vec<Map<String, Value>> = vec![Map::new(); cells.len()];
        for (at, (words, key, value, show)) in lines.iter().enumerate() {
            let values: Vec<_> = cells.iter().map(value).collect();
            if values.iter().all(Option::is_none) {
                continue;
            }
            self.print(words, &values, show);
            for (json, value) in json.iter_mut().zip(&values) {
                json.insert((*key).to_owned(), json!(value));
            }
            // Only the times are compared with those of the direct column.
            if at == 0
                && self.columns.first() == Some(&Way::Direct)
                && let Some(Some(first)) = values.first()
            {
                let ratios = values.iter().skip(1).map(|value| Some((*value)? / first));
                let ratios: Vec<_> = std::iter::once(None).chain(ratios).collect();
                self.print("times direct", &ratios, |ratio| format!("{ratio:.2}"));
            }
        }
        let lost: Vec<_> = cells.iter().map(|cell| Some(cell.lost as f64)).collect();
        if cells.iter().any(|cell| cell.lost > 0) {
            self.print("lost", &lost, |lost| format!("{lost}"));
        }
        let mut columns = Map::new();
        for ((way, cell), mut json) in self.columns.iter().zip(cells).zip(json) {
            json.insert("lost".to_owned(), json!(cell.lost));
            json.insert("stalled".to_owned(), json!(cell.stalled));
            columns.insert(way.name().to_owned(), Value::Object(json));
        }
        self.rows.push(json!({ "row": name, "columns": columns }));
    }

    fn print(&self, words: &str, values: &[Option<f64>], show: impl Fn(f64) -> String) {
        print!("  {words:<40}");
        for value in values {
            let text = value.map_or("–".to_owned(), &show);
            print!("{text:>11}");
        }
        println!();
    }

    /// Prints everything once more, as JSON.
    pub fn end(self) {
        println!("\n{}", Value::Array(self.rows));
    }
}

/// Formats seconds with three significant digits.
pub fn show(seconds: f64) -> String {
    match seconds * 1e6 {
        micros if micros < 1_000.0 => format!("{micros:.1} µs"),
        micros if micros < 1_000_000.0 => format!("{:.2} ms", micros / 1e3),
        micros => format!("{:.2} s", micros / 1e6),
    }
}

fn megabytes(kib: f64) -> String {
    format!("{:.1}", kib / 1024.0)
}

fn peak(cell: &Cell) -> Option<f64> {
    (cell.peak_kib > 0).then_some(cell.peak_kib as f64)
}

/// Returns the median, in seconds.
pub fn median(times: &[Duration]) -> Option<f64> {
    quantile(times, 50)
}

/// Returns the percentile `of_hundred`, in seconds.
pub fn quantile(times: &[Duration], of_hundred: usize) -> Option<f64> {
    let mut times = times.to_vec();
    times.sort_unstable();
    let at = times.len() * of_hundred / 100;
    times.get(at).map(Duration::as_secs_f64)
}
