//! Each phase of a rotation, and a random walk of replicas that crash, stand still and lead at the same time.

use super::*;
use std::collections::VecDeque;

const TARGETS: usize = 2;

fn lifetimes() -> Lifetimes {
    let seconds = SignedDuration::from_secs;
    Lifetimes { authority: seconds(90), leaf: seconds(30), settle: seconds(6), skew: seconds(2) }
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn ca(name: &str, now: Timestamp) -> Ca {
    Ca {
        certificate: name.to_owned(),
        key: String::new(),
        common_name: name.to_owned(),
        made: now,
        not_after: now + lifetimes().authority,
        leaf_seconds: lifetimes().leaf.as_secs(),
    }
}

#[test]
fn lifetimes_by_which_a_certificate_expires_without_a_successor_are_refused() {
    let seconds = SignedDuration::from_secs;
    assert_eq!(Lifetimes::default().check(), Ok(()));
    let fits = Lifetimes { authority: seconds(24), leaf: seconds(12), settle: seconds(1), skew: seconds(1) };
    assert_eq!(fits.check(), Ok(()));
    let refused = |lifetimes: Lifetimes| lifetimes.check().unwrap_err();
    let short = refused(Lifetimes { leaf: seconds(3), ..fits });
    assert_eq!(short, LifetimesError::Leaf(seconds(3), seconds(1)));
    let text = "the lifetime of a certificate, 3s, must be more than three times the clock skew, 1s";
    assert_eq!(short.to_string(), text);
    assert_eq!(
        refused(Lifetimes { authority: seconds(12), ..fits }),
        LifetimesError::Authority(seconds(12), seconds(12))
    );
    assert_eq!(
        refused(Lifetimes { settle: seconds(7), ..fits }),
        LifetimesError::Rotation(seconds(24), seconds(8))
    );
    assert_eq!(refused(Lifetimes { settle: seconds(-1), ..fits }), LifetimesError::Negative);
}

#[test]
fn a_rotation_announces_uses_and_retires() {
    let lifetimes = lifetimes();
    let step = |content: &Content, bundles: &[&str], now: i64| {
        let bundles: Vec<String> = bundles.iter().map(|text| (*text).to_owned()).collect();
        plan(Some(content), &bundles, at(now), &lifetimes)
    };
    assert_eq!(plan(None, &[], at(0), &lifetimes), Step::Create);
    let content = Content::first(ca("a", at(0)));
    assert_eq!(step(&content, &["", "a\n"], 0), Step::WriteBundles(vec![0]));
    assert_eq!(step(&content, &["a\n"], 0), Step::Wait(at(60)));
    assert_eq!(step(&content, &["a\n"], 60), Step::Announce);

    let content = content.announce(ca("b", at(60)));
    assert_eq!(step(&content, &["a\n"], 61), Step::WriteBundles(vec![0]));
    assert_eq!(step(&content, &["a\nb\n"], 62), Step::Seen);
    let content = content.seen(at(62));
    assert_eq!(step(&content, &["a\nb\n"], 62), Step::Wait(at(68)));
    assert_eq!(step(&content, &["a\n"], 67), Step::Unseen, "it is taken away meanwhile");
    let content = content.seen(None);
    assert_eq!(step(&content, &["a\n"], 67), Step::WriteBundles(vec![0]));
    assert_eq!(step(&content, &["a\nb\n"], 67), Step::Seen);
    let content = content.seen(at(67));
    assert_eq!(
        step(&content, &["a\nb\n"], 72),
        Step::Wait(at(73)),
        "clients may still have the bundle without it"
    );
    assert_eq!(step(&content, &["a\nb\n"], 73), Step::Use);

    let content = content.use_next(at(73), &lifetimes);
    assert_eq!(content.current.certificate, "b");
    // Its own end comes before that of the last certificate that it can have signed.
    let content = Content { former: vec![Former { until: at(92), ..content.former[0].clone() }], ..content };
    assert_eq!(step(&content, &["a\nb\n"], 69), Step::Wait(at(92)), "the bundle stays as it is");
    assert_eq!(step(&content, &["a\nb\n"], 92), Step::Retire);
    let content = content.retire(at(92));
    assert_eq!(step(&content, &["a\nb\n"], 92), Step::WriteBundles(vec![0]));
    assert_eq!(step(&content, &["b\n"], 92), Step::Wait(at(120)));
}

#[test]
fn a_former_authority_stays_until_the_last_certificate_it_can_have_signed_expires() {
    let rotated = |now: i64| {
        let content = Content::first(ca("a", at(0))).announce(ca("b", at(now)));
        content.seen(at(now)).use_next(at(now), &lifetimes()).former[0].until
    };
    assert_eq!(rotated(40), at(40 + 30 + 2));
    assert_eq!(rotated(80), at(90 + 2), "nothing that it signed is valid for longer than itself");
}

#[test]
fn an_authority_without_targets_rotates_as_well() {
    let content = Content::first(ca("a", at(0))).announce(ca("b", at(60)));
    assert_eq!(plan(Some(&content), &[], at(60), &lifetimes()), Step::Seen);
}

#[test]
fn the_content_of_a_secret_is_read_as_it_was_written() {
    let content = Content::first(ca("a", at(0))).announce(ca("b", at(60))).seen(at(61));
    let content = content.use_next(at(70), &lifetimes()).announce(ca("c", at(80)));
    let text = serde_json::to_string(&content).unwrap();
    assert_eq!(serde_json::from_str::<Content>(&text).unwrap(), content);
}

/// An object of the cluster with its version.
#[derive(Clone, Debug, Default)]
struct Stored<T> {
    version: u64,
    value: T,
}

impl<T> Stored<T> {
    /// Writes if nobody has written since a version.
    fn write(&mut self, seen: u64, value: T) -> bool {
        let is_seen = self.version == seen;
        if is_seen {
            *self = Stored { version: seen + 1, value };
        }
        is_seen
    }
}

/// A replica that believes that it leads, with what it has read so far. It may stand still between any two of its steps.
#[derive(Debug, Default)]
enum Leader {
    #[default]
    Idle,
    ReadTargets([Stored<String>; TARGETS]),
    ReadAll([Stored<String>; TARGETS], Stored<Option<Content>>),
    WritingBundles([Stored<String>; TARGETS], Content, Vec<usize>),
}

/// A replica that serves, with its certificate.
#[derive(Debug, Default)]
struct Replica {
    /// The CA and the end of the certificate in use.
    leaf: Option<(String, Timestamp)>,
    /// A certificate that is being made: the time before the Secret was read, and what it said.
    signing: Option<(Timestamp, Content)>,
}

#[derive(Debug, Default)]
struct World {
    now: i64,
    secret: Stored<Option<Content>>,
    targets: [Stored<String>; TARGETS],
    /// The bundles that each target has had, with the time from which another one stood there.
    past: [VecDeque<(i64, String)>; TARGETS],
    leaders: [Leader; 2],
    replicas: [Replica; 3],
    made: usize,
    used: usize,
    renewed: usize,
}

impl World {
    fn write_target(&mut self, place: usize, seen: u64, bundle: String) {
        let before = self.targets[place].value.clone();
        if self.targets[place].write(seen, bundle) {
            self.past[place].push_back((self.now, before));
        }
    }

    fn lead(&mut self, number: usize, random: &mut fastrand::Rng) {
        let now = at(self.now);
        self.leaders[number] = match std::mem::take(&mut self.leaders[number]) {
            // A crash.
            _ if random.u8(..100) < 5 => Leader::Idle,
            Leader::Idle => Leader::ReadTargets(self.targets.clone()),
            Leader::ReadTargets(targets) => Leader::ReadAll(targets, self.secret.clone()),
            Leader::ReadAll(targets, secret) => {
                let bundles: Vec<String> = targets.iter().map(|target| target.value.clone()).collect();
                let step = plan(secret.value.as_ref(), &bundles, now, &lifetimes());
                let mut another = || {
                    self.made += 1;
                    ca(&format!("ca-{}", self.made), now)
                };
                let content = secret.value.clone();
                let changed = match (step, content) {
                    (Step::Create, _) => Some(Content::first(another())),
                    (Step::Announce, Some(content)) => Some(content.announce(another())),
                    (Step::Seen, Some(content)) => Some(content.seen(now)),
                    (Step::Unseen, Some(content)) => Some(content.seen(None)),
                    (Step::Use, Some(content)) => Some(content.use_next(now, &lifetimes())),
                    (Step::Retire, Some(content)) => Some(content.retire(now)),
                    (Step::WriteBundles(places), Some(content)) => {
                        self.leaders[number] = Leader::WritingBundles(targets, content, places);
                        return;
                    }
                    (Step::Wait(_), _) => None,
                    (step, None) => panic!("{step:?} without a Secret"),
                };
                if let Some(content) = changed {
                    let current = content.current.certificate.clone();
                    let was = secret.value.as_ref().map(|content| content.current.certificate.clone());
                    if self.secret.write(secret.version, Some(content))
                        && was.is_some_and(|was| was != current)
                    {
                        self.used += 1;
                    }
                }
                Leader::Idle
            }
            Leader::WritingBundles(targets, content, mut places) => match places.pop() {
                Some(place) => {
                    self.write_target(place, targets[place].version, content.bundle());
                    Leader::WritingBundles(targets, content, places)
                }
                None => Leader::Idle,
            },
        };
    }

    fn serve(&mut self, number: usize, random: &mut fastrand::Rng) {
        let (now, secret) = (at(self.now), self.secret.value.clone());
        let replica = &mut self.replicas[number];
        if random.u8(..100) < 2 {
            *replica = Replica::default();
        }
        match replica.signing.take() {
            Some((begun, content)) => {
                let leaf = (content.current.certificate.clone(), content.current.leaf_until(begun));
                replica.leaf = Some(leaf);
                self.renewed += 1;
            }
            None => {
                let is_due = replica.leaf.as_ref().is_none_or(|(_, until)| until.as_second() < self.now + 10);
                replica.signing = secret.filter(|_| is_due).map(|content| (now, content));
            }
        }
    }

    /// Checks every certificate in use against every bundle that a client may have.
    fn check(&self) {
        let leaves = self.replicas.iter().filter_map(|replica| replica.leaf.as_ref());
        for (authority, _) in leaves.filter(|(_, until)| *until > at(self.now)) {
            for (target, past) in self.targets.iter().zip(&self.past) {
                let recent = past.iter().filter(|(until, _)| until + lifetimes().settle.as_secs() > self.now);
                let bundles = recent.map(|(_, bundle)| bundle).chain([&target.value]);
                for bundle in bundles.filter(|bundle| !bundle.is_empty()) {
                    assert!(
                        bundle.lines().any(|line| line == authority),
                        "{authority} is not in {bundle:?}: {self:#?}"
                    );
                }
            }
        }
    }
}

#[test]
fn every_certificate_in_use_verifies_against_every_bundle_of_a_client_whatever_crashes() {
    let (mut used, mut renewed) = (0, 0);
    for seed in 0..60 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut world = World::default();
        while world.now < 1_500 {
            match random.u8(..8) {
                0 | 1 => world.now += 1,
                2..=4 => world.lead(random.usize(..2), &mut random),
                5 | 6 => world.serve(random.usize(..3), &mut random),
                // All stand still.
                _ if random.u8(..100) == 0 => world.now += random.i64(1..120),
                _ => {}
            }
            world.check();
        }
        (used, renewed) = (used + world.used, renewed + world.renewed);
    }
    assert!(
        used > 300 && renewed > 3_000,
        "{used} rotations and {renewed} renewals are too few to tell anything"
    );
}
