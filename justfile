# What CI runs, in the same words. `just --list` shows all.

# everything CI checks
check: fmt clippy test docs

fmt:
    cargo fmt --all --check

clippy:
    cargo clippy --workspace --all-targets --locked -- -D warnings

# all tests; installs what they need on Debian
test:
    scripts/test

# the Kubernetes of the operator's tests, built once (some minutes; needs Go)
testplane:
    testplane/build

# a thousand external resources: creation, and five minutes at rest
external *objects:
    cargo bench -p kubebid-controller --bench external -- {{objects}}

# notices and fleets of the operator on a real control plane (some minutes)
fleet *sizes:
    cargo bench -p kubebid-operator --bench fleet -- {{sizes}}

# random clusters of pods, BidNodes and nodes that come late, smaller or never: the plans until nothing changes (some minutes)
worlds count="1000":
    KUBEBID_WORLDS={{quote(count)}} cargo test --release -p kubebid-operator --test worlds -- --nocapture

# a BidNode that is idle for five minutes is not written
idle:
    cargo test -p kubebid-operator --test plane -- --ignored idle

# a thousand objects of the example operator: a cold start, and five minutes in which nothing happens (eight minutes)
rest *sizes:
    cargo bench -p kubebid-mysql-operator --bench rest -- {{sizes}}

# the .proto files against those of the last release, and the OpenAPI document (Node.js; scripts/setup installs the rest)
api:
    cargo test -p kubebid --test api

# the examples of clients in Python, TypeScript, Go and Rust, against a live engine
examples:
    cargo build -p kubebid-job
    cargo test -p kubebid --test examples

# an upgrade from an earlier revision of the operator and its definitions, and the way back, while twenty nodes run
upgrade revision:
    scripts/upgrade {{quote(revision)}}

# webhooks of the example operator: conversions at 200/s, lists of 5,000 objects, a migration (three minutes)
webhooks *sizes:
    cargo bench -p kubebid-cache-operator --bench webhooks -- {{sizes}}

# the compose file, the unit of systemd, Prometheus' settings, alert rules and their tests
deploy-check:
    scripts/deploy-check

# the whole stack of the compose file, for real (some minutes; Docker, or root to start it)
compose-smoke *arguments:
    scripts/compose-smoke {{arguments}}

# the same with Compose v2, built from its source where it is missing (some minutes more, once; needs Go)
compose-smoke-v2 *arguments:
    tool=$(scripts/compose-v2) && KUBEBID_COMPOSE=$tool scripts/compose-smoke {{arguments}}

# what is in the programs, as CycloneDX in target/sbom
sbom:
    mkdir -p target/sbom
    for program in kubebid market-sim kubebid-operator; do scripts/sbom $program > target/sbom/$program.cdx.json; done

# the archives of a release for this machine, and an installation from them (as long as a release build). `scripts/release --help`
release *arguments="--dry-run":
    scripts/release {{arguments}}

# the Helm chart, linted and installed in a real control plane
chart:
    scripts/helm
    cargo test -p kubebid-testkit --test chart

docs:
    RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked

# licences, bans, sources (cargo install cargo-deny --locked)
deny:
    cargo deny check licenses bans sources

# each rule of the market broken on purpose, and the test that notices
mutants:
    scripts/mutants

# what a step of the core costs, in instructions (needs valgrind)
instructions:
    scripts/instructions

# what one tenant's worst takes from another: a table (half an hour; needs PostgreSQL). `just abuse --help`
abuse *arguments:
    cargo build --release -p kubebid
    cargo run --release -p benches --no-default-features --features abuse --bin abuse -- {{arguments}}

# how the core's cost grows with bids, nodes and markets: a table and docs/performance/growth.svg (a few minutes)
growth:
    cargo run --release -p benches --no-default-features --bin growth -- --picture docs/performance/growth.svg

# how long events take to ever more readers: a table and docs/performance/subscribers.svg (about two minutes)
subscribers:
    cargo build --release -p kubebid
    cargo run --release -p benches --no-default-features --bin subscribers -- --picture docs/performance/subscribers.svg

# PostgreSQL crashes 50 times under an engine, and under a standby that takes over (about ten minutes)
crashes times="50":
    KUBEBID_CRASHES={{times}} cargo test -p kubebid --test engine postgres_crashes -- --nocapture

# core and model side by side, ten million commands, and as many with funds (about half an hour)
same commands="10000000" seed="1000000":
    KUBEBID_COMMANDS={{commands}} KUBEBID_SEED={{seed}} cargo test --release -p market-sim --test same -- --nocapture

# the real traces, whole, in the folder of the sets (which is not part of the project)
traces data=env("KUBEBID_DATA", "../shared/data"):
    KUBEBID_DATA={{quote(absolute_path(data))}} cargo test --release -p market-sim --test real_traces

# tables and pictures of docs/experiments.md (some minutes)
experiments:
    cargo run --release -p market-sim -- experiment --seeds 200 --into docs/experiments.md --pictures docs/experiments
    cargo run --release -p market-sim -- experiment increment min-runtime notice waiting-rule --seeds 40 --hours 24 --boot 14 --work 1 \
        --worth-spread 0.15 --into docs/experiments.md --section costly-restarts --pictures docs/experiments/costly-restarts

# attacks on the market: 2,000 policies with 20 seeds each, into docs/attacks.md (a minute). `market-sim attack --help`
attack *arguments="--search 2000":
    cargo run --release -p market-sim -- attack {{arguments}} --into docs/attacks.md --picture docs/attacks.svg

# prices and demand of a world beside those of published traces: 60 days, 12 markets, twice
calibrate seed="1":
    cargo run --release -p market-sim -- calibrate --days 60 --markets 12 --seed {{seed}}

# the commands of one page, with all that they print
page page:
    cargo build -p market-sim
    KUBEBID_PAGE={{quote(page)}} cargo test -p kubebid --test book -- every_command --nocapture

# docs/reference/, made from the API and the programs
reference:
    cargo build -p market-sim -p kubebid-operator
    UPDATE_EXPECT=1 cargo test -p kubebid --test book -- reference

# the picture of docs/introduction.md
picture:
    cargo run --release -p market-sim -- simulate --days 3 --markets 2 --seed 4 --sample 600 --picture docs/market.svg

# the pictures of docs/page.md (needs Chromium)
screenshots:
    scripts/screenshots

# what the market page costs: bytes, first paint, a core, memory (four views, so many seconds each)
page-figures seconds="60":
    cargo build --release -p kubebid
    KUBEBID_BINARY=target/release/kubebid node web/measure.mjs {{seconds}}

# docs/ as a website in target/book (cargo install mdbook --version 0.5.4 --locked)
book *args="build":
    mdbook {{args}}
