//! Each format of the input accepts what is harmless, and says in words what is wrong with the rest: tables of files and of arguments.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;

fn market_sim(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_market-sim")).args(arguments).output().expect("the tool starts")
}

fn said(out: &Output) -> String {
    String::from_utf8(out.stderr.clone()).expect("text")
}

/// A folder of files that a test makes.
struct Files(TempDir);

impl Files {
    fn new() -> Files {
        Files(tempfile::tempdir().expect("a folder"))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn file(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        std::fs::write(self.path(name), content).expect("written");
        self.path(name).to_str().expect("a name").to_owned()
    }
}

fn gzip(content: impl AsRef<[u8]>) -> Vec<u8> {
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    packed.write_all(content.as_ref()).expect("packed");
    packed.finish().expect("packed")
}

/// A kind of trace: the command that reads it, its heading and two rows.
struct Kind {
    command: &'static [&'static str],
    heading: &'static str,
    rows: [&'static str; 2],
}

const DEMAND: Kind = Kind {
    command: &["replay-demand", "--in-process", "--capacity", "4"],
    heading: "submit_time,job_id,tenant,instance_class,nodes,gpus,duration_s,priority,bid_proxy,deadline",
    rows: [
        "2021-03-23T12:00:00Z,j1,t,gpu,1,8,60,low,0.5,2021-03-23T13:00:00Z",
        "2021-03-23T12:00:01Z,j2,t,gpu,1,8,60,,,",
    ],
};
const PRICES: Kind = Kind {
    command: &["replay-prices", "--on-demand", "g=1"],
    heading: "timestamp,instance_type,region,price_usd_per_hour",
    rows: ["2021-03-23T12:00:00Z,g,a,0.5", "2021-03-23T13:00:00Z,g,a,0.25"],
};
const NODES: Kind = Kind {
    command: &["replay-supply"],
    heading: "timestamp,instance_type,region,available",
    rows: ["2021-03-23T12:00:00Z,v,a,2", "2021-03-23T13:00:00Z,v,a,1"],
};
const GPUS: Kind = Kind {
    command: &["replay-supply"],
    heading: "timestamp,pool,capacity_gpus,running_gpus",
    rows: ["2021-03-23T12:00:00Z,p,64,0", "2021-03-23T13:00:00Z,p,64,32"],
};
const LIFETIMES: Kind = Kind {
    command: &["replay-supply"],
    heading: "start_time,instance_type,region,lifetime_s",
    rows: ["2021-03-23T12:00:00Z,v,a,3600", "2021-03-23T13:00:00Z,v,a,60"],
};
const KINDS: [Kind; 5] = [DEMAND, PRICES, NODES, GPUS, LIFETIMES];

impl Kind {
    fn text(&self) -> String {
        format!("{}\n{}\n{}\n", self.heading, self.rows[0], self.rows[1])
    }

    fn run(&self, path: &str) -> Output {
        market_sim(&[self.command, &["--trace", path]].concat())
    }

    /// Checks that a file is refused, and what is said of it.
    #[track_caller]
    fn refuses(&self, path: &str, says: &str) {
        let out = self.run(path);
        assert_eq!(out.status.code(), Some(1), "{path}: {}", said(&out));
        assert!(said(&out).contains(says), "{} says\n{}not\n{says}", self.heading, said(&out));
    }

    /// Checks that a file is read as the plain one is.
    #[track_caller]
    fn reads_as_the_plain_one(&self, files: &Files, path: &str) {
        let plain = self.run(&files.file("plain.csv", self.text()));
        let out = self.run(path);
        assert!(out.status.success() && plain.status.success(), "{path}: {}{}", said(&out), said(&plain));
        let text = |out: Output| {
            let text = String::from_utf8(out.stdout).expect("text");
            // The report of a demand replay has the seconds that it took.
            text.lines().filter(|line| !line.contains("wall")).map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(text(out), text(plain), "{path}");
    }
}

#[test]
fn what_is_harmless_is_read_in_every_trace() {
    for kind in KINDS {
        let files = Files::new();
        let text = kind.text();
        let marked = format!("\u{feff}{text}");
        let shouted = text.replacen(kind.heading, &kind.heading.to_uppercase().replace(',', " , "), 1);
        for (name, content) in [
            ("mark.csv", marked.clone().into_bytes()),
            ("mark.csv.gz", gzip(&marked)),
            ("packed.csv", gzip(&text)),
            ("PACKED.CSV.GZ", gzip(&text)),
            ("shouted.csv", shouted.into_bytes()),
            ("returns.csv", text.replace('\n', "\r\n").into_bytes()),
            ("mac.csv", text.replace('\n', "\r").into_bytes()),
            ("padded.csv", text.replace(',', " ,\t").into_bytes()),
            ("blank.csv", text.replace('\n', "\n\n  \n\r\n").into_bytes()),
            ("no end.csv", text.trim_end().as_bytes().to_vec()),
            ("more.csv", text.replace('\n', ",ä \"x\"\n").into_bytes()),
        ] {
            kind.reads_as_the_plain_one(&files, &files.file(name, content));
        }
    }
}

#[test]
fn a_file_that_is_no_csv_is_called_what_it_is_with_what_to_do() {
    let files = Files::new();
    let swf = "; Version: 2.2\n; UnixStartTime: 0\n1 0 5 60 8 -1 -1 8 60 -1 1 1 1 1 1 -1 -1 -1\n";
    let utf16: Vec<u8> = PRICES.text().encode_utf16().flat_map(u16::to_le_bytes).collect();
    let mut tar = vec![b'x'; 512];
    tar[257..262].copy_from_slice(b"ustar");
    for (name, content, says) in [
        ("a.zip", b"PK\x03\x04\x14\0".to_vec(), "is a zip archive or an Excel workbook"),
        ("a.parquet", b"PAR1\x15\x04".to_vec(), "is a Parquet file"),
        ("a.zst", b"\x28\xb5\x2f\xfd\x04".to_vec(), "unpack it with `zstd -d`"),
        ("a.bz2", b"BZh91AY".to_vec(), "unpack it with `bunzip2`"),
        ("a.xz", b"\xfd7zXZ\0\0".to_vec(), "unpack it with `unxz`"),
        ("a.tar.gz", gzip(&tar), "is a tar archive"),
        ("twice.csv.gz", gzip(gzip(PRICES.text())), "is packed twice by gzip"),
        ("a.xls", b"\xd0\xcf\x11\xe0\xa1".to_vec(), "is an Excel workbook of the old format"),
        ("a.db", b"SQLite format 3\0".to_vec(), "is a SQLite database"),
        ("a.feather", b"ARROW1\0\0".to_vec(), "is an Arrow (Feather) file"),
        ("a.json", b"\n [{\"timestamp\": 1}]".to_vec(), "is JSON; a trace is CSV with commas"),
        ("a.jsonl", gzip("{\"timestamp\": 1}\n"), "is JSON;"),
        ("a.swf", swf.as_bytes().to_vec(), "is a log in the Standard Workload Format (SWF)"),
        (
            "b.swf",
            swf.lines().last().expect("a job").into(),
            "is a log in the Standard Workload Format (SWF)",
        ),
        ("a.html", b"<!DOCTYPE html>".to_vec(), "is a web page or XML"),
        ("lfs.csv", b"version https://git-lfs.github.com/spec/v1\n".to_vec(), "git lfs pull"),
        ("utf16.csv", [b"\xff\xfe".to_vec(), utf16].concat(), "is text in UTF-16"),
        ("zeros.csv", vec![b'a', 0, 0, 7], "is binary data of an unknown format"),
        ("semicolons.csv", PRICES.text().replace(',', ";").into_bytes(), "is CSV with semicolons"),
        ("tabs.tsv", PRICES.text().replace(',', "\t").into_bytes(), "is CSV with tabs"),
        ("bars.csv", PRICES.text().replace(',', "|").into_bytes(), "is CSV with vertical bars"),
        ("plain.csv.gz", PRICES.text().into_bytes(), "is called .gz and is no gzip file"),
        ("empty.csv", Vec::new(), "is empty; a trace is CSV with commas"),
        ("empty.csv.gz", gzip(""), "is empty"),
        ("mark only.csv", "\u{feff}".as_bytes().to_vec(), "is empty"),
        ("blank.csv", b"\n\r\n\n".to_vec(), "the trace has no line that is not blank"),
    ] {
        let path = files.file(name, content);
        for kind in [DEMAND, PRICES, NODES] {
            kind.refuses(&path, says);
        }
    }
    for kind in KINDS {
        kind.refuses(files.0.path().to_str().expect("a name"), "is a folder; a trace is a file");
        kind.refuses(files.path("nowhere.csv").to_str().expect("a name"), "cannot open");
    }
}

#[test]
fn a_heading_that_lacks_columns_is_shown_with_those_that_are_wanted() {
    let files = Files::new();
    let path = files.file("a.csv", "Timestamp,instance_type,price\n2021-03-23T12:00:00Z,g,1\n");
    PRICES.refuses(
        &path,
        "the heading has the columns timestamp, instance_type, price; a price trace has the columns timestamp, \
         instance_type, region, price_usd_per_hour; missing: region, price_usd_per_hour\n",
    );
    let others = files.file("prices.csv", PRICES.text());
    DEMAND.refuses(&others, "; it is a price trace\n");
    NODES.refuses(
        &others,
        "a supply trace of GPUs has the columns timestamp, pool, capacity_gpus, running_gpus;",
    );
    NODES.refuses(&others, "missing: available; it is a price trace\n");
    PRICES.refuses(&files.file("demand.csv", DEMAND.text()), "; it is a demand trace\n");
    // A backtest reads two kinds, and names both.
    let out = market_sim(&["backtest", "--on-demand", "g=1", "--trace", &path]);
    assert_eq!(out.status.code(), Some(1));
    assert!(said(&out).contains("a demand trace has the columns submit_time,"), "{}", said(&out));
    assert!(said(&out).contains("a price trace has the columns timestamp,"), "{}", said(&out));
    let twice = PRICES.text().replace("region", "timestamp ,region");
    PRICES.refuses(&files.file("twice.csv", twice), "line 1: the column timestamp is there twice");
    let many: Vec<String> = (0..500).map(|n| format!("column_{n}")).collect();
    PRICES.refuses(&files.file("many.csv", many.join(",")), "column_19 and 480 more; a price trace");
}

#[test]
fn a_trace_of_a_heading_alone_has_no_rows() {
    for kind in KINDS {
        let files = Files::new();
        for (name, end) in [("a.csv", ""), ("b.csv", "\n"), ("c.csv", "\n\n \r\n")] {
            let path = files.file(name, format!("{}{end}", kind.heading));
            kind.refuses(&path, "the trace has a heading and no rows");
        }
    }
}

/// Puts a bad row after good ones, and says on which line it is.
fn with_bad_row(kind: &Kind, bad: &[u8]) -> [(&'static str, Vec<u8>, u64); 6] {
    let good = [kind.heading, kind.rows[0], ""].join("\n");
    let quoted = good.replacen("\n", ",note\n", 1);
    let quoted = format!("{},\"a\nb\n\nc\"\n", quoted.trim_end());
    let with = |text: &str| [text.as_bytes(), bad, b"\n"].concat();
    let noted = [quoted.as_bytes(), bad, b",\"x\"\n"].concat();
    [
        ("plain.csv", with(&good), 3),
        ("blank.csv", with(&format!("\n{good}\n\n  \n")), 7),
        ("returns.csv", with(&good.replace('\n', "\r\n\r\n")), 5),
        ("mac.csv", with(&good.replace('\n', "\r")), 3),
        ("quoted.csv", noted, 6),
        ("packed.csv.gz", gzip(with(&format!("{good}\r\n"))), 4),
    ]
}

#[test]
fn a_bad_row_is_named_by_its_line_and_field_however_lines_are_broken() {
    let at = "2021-03-23T12:00:00Z";
    let demand = |field: &str, value: &str| {
        let names: Vec<&str> = DEMAND.heading.split(',').collect();
        let place = names.iter().position(|name| *name == field).expect("a column");
        let mut values: Vec<&str> = DEMAND.rows[1].split(',').collect();
        values[place] = value;
        values.join(",").into_bytes()
    };
    let rows: Vec<(Kind, Vec<u8>, &str)> = vec![
        (
            DEMAND,
            demand("submit_time", "yesterday"),
            "submit_time: \"yesterday\" is not a time with its zone",
        ),
        (
            DEMAND,
            demand("submit_time", "2021-03-23T11:59:59Z"),
            "submit_time: 2021-03-23T11:59:59Z is earlier",
        ),
        (DEMAND, demand("job_id", ""), "job_id: \"\" is not a name"),
        (DEMAND, demand("job_id", " j1 "), "job_id: \"j1\" is in line"),
        (DEMAND, demand("nodes", "0"), "nodes: \"0\" is not a whole number of nodes from 1 to 1000000"),
        (DEMAND, demand("nodes", "1.5"), "nodes: \"1.5\""),
        (DEMAND, demand("nodes", "-1"), "nodes: \"-1\""),
        (DEMAND, demand("nodes", "4294967297"), "nodes: \"4294967297\""),
        (DEMAND, demand("gpus", "64"), "gpus: 64 GPUs do not fit on 1 node of 8: give the job more nodes,"),
        (DEMAND, demand("gpus", "-1"), "gpus: \"-1\" is not a number of GPUs"),
        (DEMAND, demand("gpus", "NaN"), "gpus: \"NaN\""),
        (DEMAND, demand("duration_s", "inf"), "duration_s: \"inf\" is not a number of seconds"),
        (DEMAND, demand("duration_s", "-1"), "duration_s: \"-1\""),
        (DEMAND, demand("duration_s", ""), "duration_s: \"\""),
        (DEMAND, demand("priority", "urgent"), "priority: \"urgent\" is not low, normal or high"),
        (DEMAND, demand("bid_proxy", "NaN"), "bid_proxy: \"NaN\" is not a share of the on-demand price"),
        (DEMAND, demand("bid_proxy", "-0.5"), "bid_proxy: \"-0.5\""),
        (DEMAND, demand("bid_proxy", "1001"), "bid_proxy: \"1001\""),
        (DEMAND, demand("deadline", "soon"), "deadline: \"soon\""),
        (
            DEMAND,
            demand("deadline", "2021-03-23T12:00:00Z"),
            "deadline: 2021-03-23T12:00:00Z is before the submit_time",
        ),
        (DEMAND, b"2021-03-23T12:00:01Z,j2,\xff,gpu,1,8,60,,,".to_vec(), "tenant: a byte is not UTF-8"),
        (PRICES, format!("{at},g,a,free").into(), "price_usd_per_hour: \"free\" is not a price in dollars"),
        (PRICES, format!("{at},g,a,-1").into(), "price_usd_per_hour: \"-1\""),
        (PRICES, format!("{at},g,a,nan").into(), "price_usd_per_hour: \"nan\""),
        (PRICES, format!("{at},g,a,inf").into(), "price_usd_per_hour: \"inf\""),
        (PRICES, "2021-03-23T11:00:00Z,g,a,1".into(), "timestamp: 2021-03-23T11:00:00Z is earlier"),
        (PRICES, b"2021-03-23T12:00:00Z,\xe9,a,1".to_vec(), "instance_type: a byte is not UTF-8"),
        (NODES, format!("{at},v,a,many").into(), "available: \"many\" is not a number of nodes"),
        (NODES, format!("{at},v,a,1.5").into(), "available: \"1.5\""),
        (NODES, format!("{at},v,a,1e18").into(), "available: \"1e18\""),
        (NODES, "2021-03-23T11:00:00Z,v,a,1".into(), "timestamp: 2021-03-23T11:00:00Z is earlier"),
        (GPUS, format!("{at},p,NaN,0").into(), "capacity_gpus: \"NaN\" is not a number of GPUs"),
        (GPUS, format!("{at},p,64,-8").into(), "running_gpus: \"-8\""),
        (LIFETIMES, format!("{at},v,a,long").into(), "lifetime_s: \"long\" is not a number of seconds"),
        (LIFETIMES, format!("{at},v,a,-1").into(), "lifetime_s: \"-1\""),
        (LIFETIMES, "2021-03-23T11:00:00Z,v,a,1".into(), "start_time: 2021-03-23T11:00:00Z is earlier"),
    ];
    let files = Files::new();
    for (kind, bad, says) in rows {
        for (name, content, line) in with_bad_row(&kind, &bad) {
            kind.refuses(&files.file(name, content), &format!("line {line}, {says}"));
        }
    }
}

#[test]
fn a_row_that_is_too_short_too_long_or_never_ends_is_named_by_its_line() {
    for kind in KINDS {
        let files = Files::new();
        let columns = kind.heading.split(',').count();
        let begin = format!("{}\n\n{}\n", kind.heading, kind.rows[0]);
        for (name, row, says) in [
            ("short.csv", "a,b\n".to_owned(), format!("line 4: 2 fields, and the heading has {columns}\n")),
            ("one.csv", "a\n".to_owned(), format!("line 4: 1 field, and the heading has {columns}\n")),
            (
                "more.csv",
                format!("{},x\n", kind.rows[1]),
                format!("line 4: {} fields, and the heading has {columns}\n", columns + 1),
            ),
            (
                "open.csv",
                format!("\"{}\n{}\n", kind.rows[1], kind.rows[1]),
                format!("line 4: 1 field, and the heading has {columns}; is a quotation mark not closed?"),
            ),
            (
                "long.csv",
                format!("\"{}", "x\n".repeat(1 << 20)),
                "line 4: a row of more than 1024 KiB; is a quotation mark not closed?".to_owned(),
            ),
            ("wide.csv", "x".repeat(2 << 20), "line 4: a row of more than 1024 KiB".to_owned()),
        ] {
            kind.refuses(&files.file(name, format!("{begin}{row}")), &says);
        }
        let packed = gzip(kind.text());
        let cut = files.file("cut.csv.gz", &packed[..packed.len() - 9]);
        assert_eq!(kind.run(&cut).status.code(), Some(1), "{}", kind.heading);
    }
}

#[test]
fn prices_as_pandas_writes_them_are_rounded_and_counted_once() {
    let files = Files::new();
    let text = format!(
        "{}\n2021-03-23 12:00:00+00:00,g,a,0.30000000000000004\n2021-03-23 13:00:00+00:00,g,a,1e-05\n\
         2021-03-23 14:00:00+00:00,g,a,0.1234567\n2021-03-23 15:00:00+00:00,g,a,0.5\n",
        PRICES.heading
    );
    let out = PRICES.run(&files.file("pandas.csv", text));
    assert!(out.status.success(), "{}", said(&out));
    let note =
        "market-sim: 2 prices of the trace have more than 6 decimals and are rounded to micro-dollars\n";
    assert_eq!(said(&out), note);
    let out = PRICES.run(&files.file("exact.csv", PRICES.text()));
    assert_eq!(said(&out), "");
}

#[test]
fn gpus_that_no_node_has_run_on_larger_nodes_or_uncounted() {
    let files = Files::new();
    let path = files.file("demand.csv", DEMAND.text().replace(",1,8,", ",1,64,"));
    DEMAND.refuses(&path, "line 2, gpus: 64 GPUs do not fit on 1 node of 8");
    for option in [&["--gpus-per-node", "64"][..], &["--whole-nodes"]] {
        let out = market_sim(&[DEMAND.command, &["--trace", &path], option].concat());
        assert!(out.status.success(), "{}", said(&out));
    }
}

/// A command, and what is added to it with words of the refusal.
type WrongArguments<'a> = (&'a [&'a str], &'a [(&'a str, &'a str)]);

#[test]
fn wrong_arguments_are_refused_with_the_option_that_is_wrong() {
    let files = Files::new();
    let (demand, prices) = (files.file("demand.csv", DEMAND.text()), files.file("prices.csv", PRICES.text()));
    let supply = files.file("supply.csv", NODES.text());
    let commands: [WrongArguments<'_>; 6] = [
        (
            &["replay-prices", "--trace", &prices],
            &[
                ("--on-demand x=1 --on-demand x=2", "--on-demand has x twice"),
                ("--on-demand x=1,x=1", "--on-demand has x twice"),
                ("--on-demand x", "say TYPE=DOLLARS"),
                ("--on-demand =1", "say TYPE=DOLLARS"),
                ("--on-demand x=0", "a share of 0 dollars is nothing"),
                ("--on-demand x=1.1234567", "at most 6 decimals"),
                ("--on-demand x=-1", "is not a price"),
                ("--on-demand x=NaN", "is not a price"),
                ("--on-demand g=1 --bids 0.2,0.20", "--bids has 0.2 twice"),
                ("--on-demand g=1 --bids NaN", "is not a share of the on-demand price"),
                ("--on-demand g=1 --bids inf", "is not a share of the on-demand price"),
                ("--on-demand g=1 --bids=-1", "is not a share of the on-demand price"),
                ("--on-demand g=1 --region a --region a", "--region has a twice"),
                ("--on-demand g=1 --longest-gap 0", "--longest-gap"),
                ("--on-demand g=1 --longest-gap 1 --longest-gap 2", "cannot be used multiple times"),
            ],
        ),
        (
            &["replay-supply", "--trace", &supply],
            &[
                ("--bids 1,1.0", "--bids has 1 twice"),
                ("--nodes 0", "--nodes"),
                ("--nodes 1 --nodes 2", "cannot be used multiple times"),
                ("--on-demand 0", "a share of 0 dollars is nothing"),
                ("--notice=-1", "--notice"),
            ],
        ),
        (
            &["replay-demand", "--in-process", "--trace", &demand],
            &[
                ("--capacity 0", "--capacity"),
                ("--capacity 1 --capacity 2", "cannot be used multiple times"),
                ("--capacity 1 --limit 0", "--limit"),
                ("--capacity 1 --boot 18446744073709551615", "--boot"),
                ("--capacity 1 --notice 18446744073709551615", "--notice"),
                ("--capacity 1 --min-runtime 18446744073709551615", "--min-runtime"),
                ("--capacity 1 --on-demand 0", "a share of 0 dollars is nothing"),
                ("--capacity 1 --gpus-per-node 0", "--gpus-per-node"),
            ],
        ),
        (
            &["backtest", "--trace", &demand, "--on-demand", "gpu=32", "--capacity", "2"],
            &[
                ("--on-demand x=2", "cannot be used multiple times"),
                ("--trying 5", "\"5\" is not a fraction, like 0.1, from 0 to 1"),
                ("--trying=-0.1", "is not a fraction"),
                ("--trying NaN", "is not a fraction"),
                ("--slack 4,1.5", "is not LEAST,MOST"),
                ("--slack 0.5,2", "is not LEAST,MOST"),
                ("--slack 2,inf", "is not LEAST,MOST"),
                ("--slack 2,NaN", "is not LEAST,MOST"),
                ("--strategy balanced,balanced", "--strategy has balanced twice"),
                ("--region a,a", "--region has a twice"),
                ("--work inf", "is not a number of hours from 0.01 to 10000"),
                ("--work-spread 11", "is not a standard deviation from 0 to 10"),
                ("--max-bid NaN", "is not a share of the on-demand price"),
                ("--reserve=-1", "is not a share of the on-demand price"),
                ("--checkpoint 0", "--checkpoint"),
            ],
        ),
        (
            &["experiment", "--seeds", "1"],
            &[
                ("notice notice", "EXPERIMENTS has notice twice"),
                ("--load NaN", "is not a share from 0.1 to 10"),
                ("--worth-spread inf", "is not a standard deviation"),
                ("--units 0", "--units"),
            ],
        ),
        (
            &["simulate", "--markets", "1"],
            &[
                ("--days 0", "--days"),
                ("--days 1 --days 2", "cannot be used multiple times"),
                ("--sample 0", "--sample"),
                ("--threads 0", "--threads"),
                ("--lose-every 0", "--lose-every"),
            ],
        ),
    ];
    for (command, wrong) in commands {
        for (options, says) in wrong {
            let options: Vec<&str> = options.split(' ').collect();
            let out = market_sim(&[command, &options].concat());
            assert_eq!(out.status.code(), Some(2), "{options:?}: {}", said(&out));
            assert!(said(&out).contains(says), "{options:?} says\n{}not\n{says}", said(&out));
        }
    }
}

#[test]
fn a_world_that_is_wrong_is_refused_with_the_field_that_is_wrong() {
    let files = Files::new();
    let folder = files.path("folder");
    std::fs::create_dir(&folder).expect("a folder");
    let simulate = |path: &str| market_sim(&["simulate", "--days", "1", "--markets", "1", "--world", path]);
    let worlds: &[(&[u8], &str)] = &[
        (b"", "is empty; a world is a JSON or YAML object"),
        (b"[1]", "it is not an object with fields"),
        (b"{\"seed\": 1,}", "it cannot be read as JSON or YAML"),
        (b"{\"seed\": 1, \"seed\": 2}", "seed: it is there twice"),
        (b"{\"rushes\": {\"hours\": 1, \"hours\": 2}}", "rushes.hours: it is there twice"),
        (b"seed: 1\nseed: 2\n", "seed"),
        (b"rushes:\n  hours: 1\n  hours: 2\n", "hours"),
        (b"seed: \xff\n", "line 1: a byte is not UTF-8"),
        (b"days: 1\n\nseed: \xff\n", "line 3: a byte is not UTF-8"),
        (b"PAR1\x15", "is a Parquet file; a world is a JSON or YAML object"),
        (
            b"{\"rushes\": {\"hours_least\": 3, \"hours_most\": 2}}",
            "rushes.hours_least: 3 is above rushes.hours_most, which is 2",
        ),
        (
            b"{\"rushes\": {\"hours_least\": 13}}",
            "rushes.hours_least: 13 is above rushes.hours_most, which is 12",
        ),
        (b"{\"rushes\": {\"worth\": 10}}", "rushes.worth: 10 is above rushes.worth_most, which is 9"),
        (
            b"{\"supply\": {\"reserve\": [0.3, 0.2]}}",
            "supply.reserve: the first number is above the second one",
        ),
        (b"{\"supply\": {\"outage_share\": [0.9, 0.2]}}", "supply.outage_share: the first number is above"),
        (b"{\"supply\": {\"outage_share\": [0, 1.5]}}", "supply.outage_share: 1.5 is not from 0 to 1"),
        (b"{\"supply\": {\"churn_share\": 1.01}}", "supply.churn_share: 1.01 is not from 0 to 1"),
        (b"{\"rushes\": {\"hot_share\": -0.1}}", "rushes.hot_share: -0.1 is not from 0 to 1"),
        (b"{\"jobs\": {\"together\": 1}}", "jobs.together: 1"),
        (b"rushes: {hot_share: .nan}", "line 1 column 21: non-finite float `.nan`"),
        (b"rushes: {worth_most: .inf}", "line 1 column 22: non-finite float `.inf`"),
        (b"{\"rushes\": {\"worth_most\": 1e999}}", "number out of range"),
        (b"{\"jobs\": {\"kinds\": [[\"sniper\", 1], [\"sniper\", 2]]}}", "jobs.kinds: sniper is there twice"),
        (b"{\"jobs\": {\"kinds\": [[\"sniper\", -1]]}}", "jobs.kinds: the share of sniper is -1"),
        (b"{\"colour\": 1}", "colour"),
    ];
    for (content, says) in worlds {
        let out = simulate(&files.file("world", content));
        assert_eq!(out.status.code(), Some(1), "{}: {}", String::from_utf8_lossy(content), said(&out));
        assert!(
            said(&out).contains(says),
            "{} says\n{}not\n{says}",
            String::from_utf8_lossy(content),
            said(&out)
        );
    }
    let out = simulate(folder.to_str().expect("a name"));
    assert!(
        out.status.code() == Some(1) && said(&out).contains("is a folder; a world is a file"),
        "{}",
        said(&out)
    );
    for (name, content) in [
        ("mark.json", "\u{feff}{\"seed\": 7}".as_bytes().to_vec()),
        ("returns.yaml", b"seed: 7\r\nmarkets: 1\r\n".to_vec()),
        ("packed.yaml.gz", gzip("seed: 7\n")),
    ] {
        let out = simulate(&files.file(name, content));
        assert!(out.status.success(), "{name}: {}", said(&out));
    }
}

fn play(file: Option<&str>, input: &[u8]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_market-sim"));
    command.arg("play").args(file).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut tool = command.spawn().expect("the tool starts");
    // The tool may refuse the first lines before it has all of them.
    let _ = tool.stdin.take().expect("piped").write_all(input);
    tool.wait_with_output().expect("it ends")
}

#[test]
fn commands_that_are_wrong_are_named_by_line_and_field() {
    let open = r#"{"at_us": 0, "command": "OpenMarket", "market": "h100/eu", "rules": {}}"#;
    let files = Files::new();
    let lines: &[(&[u8], &str)] = &[
        (br#"{"at_us": 1, "at_us": 2, "command": "AdvanceTime"}"#, "field `at_us`: it is there twice"),
        (
            br#"{"at_us": 1, "command": "ChangeRules", "market": "h100/eu", "rules": {"tick": 1, "tick": 2}}"#,
            "field `rules.tick`: it is there twice",
        ),
        (br#"{"at_us": 1, "command": "AdvanceTime"} {}"#, "trailing characters"),
        (br#"{"at_us": NaN, "command": "AdvanceTime"}"#, "expected value"),
        (br#"{"at_us": 1e999, "command": "AdvanceTime"}"#, "number out of range"),
        (br#"{"at_us": -1, "command": "AdvanceTime"}"#, "field `at_us`: invalid value"),
        (br#"{"at_us": 1, "command": "Close"#, "EOF"),
        (b"at_us,command\n", "expected value"),
        (b"7", "it is no JSON object"),
        (b"{\"at_us\": 1, \"command\": \"\xff\"}", "byte 26 is not UTF-8"),
    ];
    for (bad, says) in lines {
        let input = [b"\xef\xbb\xbf", open.as_bytes(), b"\r\n\r\n \n", bad, b"\n"].concat();
        for file in [None, Some(files.file("commands.jsonl", &input))] {
            let out = play(file.as_deref(), &input);
            assert_eq!(out.status.code(), Some(2), "{}", said(&out));
            let begin = format!("market-sim: line 4: {says}");
            assert!(
                said(&out).starts_with(&begin),
                "{} says\n{}not\n{says}",
                String::from_utf8_lossy(bad),
                said(&out)
            );
            assert_eq!(String::from_utf8(out.stdout).expect("text").lines().count(), 1);
        }
    }
    let long = format!("{open}\n{{\"x\": \"{}", "x".repeat(2 << 20));
    let out = play(Some(&files.file("long.jsonl", long)), b"");
    assert!(
        out.status.code() == Some(2) && said(&out).contains("line 2: it is longer than 1024 KiB"),
        "{}",
        said(&out)
    );
    let exact = format!("{open}{}\n", " ".repeat((1 << 20) - open.len() - 1));
    assert_eq!(play(Some(&files.file("exact.jsonl", exact)), b"").status.code(), Some(0));
}

#[test]
fn a_file_of_commands_of_another_format_is_called_that() {
    let files = Files::new();
    let open = r#"{"at_us": 0, "command": "OpenMarket", "market": "h100/eu", "rules": {}}"#;
    let others: &[(&[u8], &str)] = &[
        (b"PK\x03\x04\x14", "is a zip archive"),
        (b"PAR1\x15", "is a Parquet file; commands are JSON objects, one a line"),
        (b"\xff\xfe{\0", "is text in UTF-16"),
    ];
    for (content, says) in others {
        let out = play(Some(&files.file("commands", content)), b"");
        assert!(out.status.code() == Some(1) && said(&out).contains(says), "{}", said(&out));
        let out = play(None, content);
        assert!(out.status.code() == Some(1) && said(&out).contains("standard input is "), "{}", said(&out));
    }
    let out = play(Some(files.0.path().to_str().expect("a name")), b"");
    assert!(said(&out).contains("is a folder; a list of commands is a file"), "{}", said(&out));
    for content in [Vec::new(), gzip(""), b"\n\n".to_vec()] {
        let out = play(Some(&files.file("empty", content)), b"");
        assert!(out.status.success() && out.stdout.is_empty(), "{}", said(&out));
    }
    let out = play(Some(&files.file("packed", gzip(open))), b"");
    let complaint = said(&out);
    assert_eq!(String::from_utf8(out.stdout).expect("text").lines().count(), 1, "{complaint}");
}
