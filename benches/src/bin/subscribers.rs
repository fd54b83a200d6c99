//! How long an event takes to its readers as these become more: a table, and a picture of it.
//!
//! ```sh
//! cargo build --release -p kubebid
//! cargo run --release -p benches --no-default-features --bin subscribers -- --picture docs/performance/subscribers.svg
//! ```

use benches::curves::{Curve, chart, draw};
use clap::Parser;
use serde_json::Value;
use std::error::Error;
use std::path::PathBuf;
use std::process::Command;

/// Watch one market with ever more readers, and draw how long events take to them
#[derive(Debug, Parser)]
struct Arguments {
    /// The program that is measured, by its own `bench watch`, on a SQLite store of its own
    #[arg(long, value_name = "FILE", default_value = "target/release/kubebid")]
    kubebid: PathBuf,
    /// Where the picture goes (SVG)
    #[arg(long, value_name = "FILE")]
    picture: Option<PathBuf>,
    /// Seconds that each point is measured
    #[arg(long, default_value_t = 5, value_name = "N")]
    seconds: u32,
}

const READERS: [usize; 7] = [1, 3, 10, 30, 100, 300, 1000];

fn main() -> Result<(), Box<dyn Error>> {
    let arguments = Arguments::parse();
    let everything = arguments.curves("everything", &["--callers", "4", "--frame", "50", "--rate", "20"])?;
    let own = arguments.curves("own", &["--own", "--frame", "10", "--rate", "1000"])?;
    if let Some(path) = &arguments.picture {
        let delay = "microseconds from the engine's clock to the reader";
        let charts = [
            chart("readers of all of 1,000 events a second", delay, &everything),
            chart("tenants who read their own of 10,000 a second", delay, &own),
        ];
        draw(path, "Delay of events as readers become more", &charts)?;
    }
    Ok(())
}

impl Arguments {
    /// Half of the events take no longer than the first, and 99 in 100 no longer than the second.
    fn curves(&self, what: &str, load: &[&str]) -> Result<[Curve; 2], Box<dyn Error>> {
        let mut curves = ["p50", "p99"].map(|name| Curve { name, points: Vec::new() });
        for readers in READERS {
            let delays = self.watch(readers, load)?;
            for curve in &mut curves {
                let delay = delays[curve.name].as_f64().ok_or("`kubebid bench watch` told no delay")?;
                curve.points.push((readers, delay));
            }
            eprintln!("{what}: {readers} readers");
        }
        println!("{what}");
        curves.iter().for_each(|curve| curve.print("µs"));
        Ok(curves)
    }

    fn watch(&self, readers: usize, load: &[&str]) -> Result<Value, Box<dyn Error>> {
        let mut command = Command::new(&self.kubebid);
        command.args([
            "bench",
            "watch",
            "-o",
            "json",
            "--subscribers",
            &readers.to_string(),
            "--warmup",
            "3",
        ]);
        command.args(["--seconds", &self.seconds.to_string()]).args(load);
        let done = command.output().map_err(|error| format!("{}: {error}", self.kubebid.display()))?;
        if !done.status.success() {
            return Err(String::from_utf8_lossy(&done.stderr).into());
        }
        Ok(serde_json::from_slice::<Value>(&done.stdout)?["watch"]["delay_us"].take())
    }
}
