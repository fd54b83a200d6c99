//! All situations: what must never happen, and a file with what happens (`table.txt`, written by `UPDATE_EXPECT=1`).

use super::*;
use expect_test::expect_file;
use std::collections::BTreeMap;
use std::fmt::Write as _;

const STATES: [State; 9] = [
    State::Pending,
    State::Creating,
    State::Updating,
    State::Verifying,
    State::Completing,
    State::Succeeded,
    State::Recreating,
    State::Failed,
    State::Terminating,
];
const RESOURCE_STATES: [ResourceState; 8] = [
    ResourceState::Missing,
    ResourceState::Ready,
    ResourceState::UpdateRequired,
    ResourceState::RecreateRequired,
    ResourceState::InProgress,
    ResourceState::Deleting,
    ResourceState::Unreachable,
    ResourceState::Refused,
];
const DELETIONS: [Deletion; 4] = [Deletion::Waiting, Deletion::Now, Deletion::Abandoned, Deletion::Expired];
const DEPENDENCIES: [DependencyState; 4] =
    [DependencyState::Met, DependencyState::Missing, DependencyState::NotReady, DependencyState::Cycle];

/// Our resource, no hook, all dependencies met, and no time is up.
const USUAL: Situation = Situation {
    resource: ResourceState::Ready,
    permissions: Permissions::ALL,
    is_completion_due: false,
    dependencies: DependencyState::Met,
    deletion: None,
    is_ours: true,
    is_duplicate: false,
    is_identity_changed: false,
    is_deleted_by_us: true,
    may_retry: true,
    is_in_grace: false,
    is_late: false,
    is_contested: false,
    is_out_of_patience: false,
};

fn permissions() -> impl Iterator<Item = Permissions> {
    (0..8).map(|bits| Permissions { create: bits & 1 > 0, update: bits & 2 > 0, delete: bits & 4 > 0 })
}

fn deletions() -> impl Iterator<Item = Option<Deletion>> {
    [None].into_iter().chain(DELETIONS.map(Some))
}

/// Calls a function with every state in every situation: 11.8 million.
fn everywhere(mut check: impl FnMut(State, &Situation, Step)) {
    for flags in 0..1024_u32 {
        let flag = |bit: u32| flags & (1 << bit) > 0;
        for permissions in permissions() {
            for (dependencies, deletion) in
                DEPENDENCIES.into_iter().flat_map(|it| deletions().map(move |deletion| (it, deletion)))
            {
                for (state, resource) in
                    STATES.into_iter().flat_map(|state| RESOURCE_STATES.map(|resource| (state, resource)))
                {
                    let it = Situation {
                        resource,
                        permissions,
                        dependencies,
                        deletion,
                        is_completion_due: flag(0),
                        is_ours: flag(1),
                        is_duplicate: flag(2),
                        is_deleted_by_us: flag(3),
                        may_retry: flag(4),
                        is_in_grace: flag(5),
                        is_late: flag(6),
                        is_out_of_patience: flag(7),
                        is_contested: flag(8),
                        is_identity_changed: flag(9),
                    };
                    check(state, &it, transition(state, &it));
                }
            }
        }
    }
}

#[test]
fn no_call_without_its_permission_and_none_to_a_foreign_resource() {
    everywhere(|state, it, step| {
        let (may, resource) = (it.permissions, it.resource);
        let context = || format!("{state:?} {it:?} {step:?}");
        match step {
            Step::Create => assert!(may.create && resource == ResourceState::Missing, "{}", context()),
            Step::Update => {
                assert!(may.update && it.is_ours && !it.is_duplicate && !it.is_contested, "{}", context());
            }
            // What may not be created anew is not deleted for it.
            Step::Recreate => {
                assert!(may.delete && may.create && it.is_ours && !it.is_duplicate, "{}", context());
            }
            Step::Delete => {
                let is_deleted = it.deletion == Some(Deletion::Now) && state == State::Terminating;
                assert!(may.delete && it.is_ours && !it.is_duplicate && is_deleted, "{}", context());
            }
            Step::Complete => {
                assert!(resource == ResourceState::Ready && it.is_completion_due, "{}", context())
            }
            Step::Stay | Step::Enter(..) | Step::RemoveFinalizer => {}
        }
        let calls = !matches!(step, Step::Stay | Step::Enter(..) | Step::RemoveFinalizer);
        let is_held = it.dependencies != DependencyState::Met && it.deletion.is_none();
        assert!(!(calls && it.is_identity_changed), "a call for another resource: {}", context());
        assert!(!(calls && is_held), "a call while a dependency is not ready: {}", context());
        assert!(!(calls && state == State::Failed && !it.may_retry), "a call after a failure: {}", context());
    });
}

#[test]
fn the_finalizer_stays_while_our_resource_may_exist() {
    everywhere(|state, it, step| {
        if step == Step::RemoveFinalizer {
            let is_given_up = matches!(it.deletion, Some(Deletion::Abandoned | Deletion::Expired));
            let is_left = !it.permissions.delete || !it.is_ours || it.is_duplicate;
            let is_gone = it.deletion == Some(Deletion::Now)
                && it.resource == ResourceState::Missing
                && !it.is_in_grace;
            let context = format!("{state:?} {it:?}");
            assert!(it.deletion.is_some() && (is_given_up || is_left || is_gone), "{context}");
        }
    });
}

#[test]
fn an_unreachable_service_changes_no_state_while_one_is_patient() {
    everywhere(|state, it, step| {
        let is_plain = it.deletion.is_none()
            && it.dependencies == DependencyState::Met
            && !it.is_duplicate
            && !it.is_identity_changed
            && !it.is_out_of_patience;
        if is_plain && it.resource == ResourceState::Unreachable {
            assert_eq!(step, Step::Stay, "{state:?} {it:?}");
        }
    });
}

#[test]
fn every_situation_is_in_the_table() {
    let mut sections: Vec<(Vec<String>, String)> = Vec::new();
    for (title, situation) in situations() {
        let rows = rows(situation);
        match sections.iter_mut().find(|(_, other)| *other == rows) {
            Some((titles, _)) => titles.push(title),
            None => sections.push((vec![title], rows)),
        }
    }
    let sections: Vec<_> =
        sections.iter().map(|(titles, rows)| format!("## {}\n\n{rows}", titles.join("\n## "))).collect();
    expect_file!["table.txt"].assert_eq(&sections.join("\n"));
}

/// Returns each deletion with each state of the dependencies, with and without a due hook; and each other flag, in life and
/// in deletion.
fn situations() -> Vec<(String, Situation)> {
    let mut situations = Vec::new();
    for deletion in deletions() {
        let life = deletion.map_or("No deletion".to_owned(), |deletion| format!("Deletion: {deletion:?}"));
        for dependencies in DEPENDENCIES {
            for is_completion_due in [false, true] {
                let hook = if is_completion_due { ", a completion hook is due" } else { "" };
                let title = format!("{life}, dependencies: {dependencies:?}{hook}");
                situations.push((title, Situation { deletion, dependencies, is_completion_due, ..USUAL }));
            }
        }
        let usual = Situation { deletion, ..USUAL };
        let flags = [
            ("the resource is not ours", Situation { is_ours: false, ..usual }),
            ("an older object has the resource", Situation { is_duplicate: true, ..usual }),
            ("the identity has changed", Situation { is_identity_changed: true, ..usual }),
            ("somebody else deletes the resource", Situation { is_deleted_by_us: false, ..usual }),
            ("no retry", Situation { may_retry: false, ..usual }),
            (
                "no retry, a completion hook is due",
                Situation { may_retry: false, is_completion_due: true, ..usual },
            ),
            ("created a moment ago", Situation { is_in_grace: true, ..usual }),
            ("at work for too long", Situation { is_late: true, ..usual }),
            ("at work for too long, no retry", Situation { is_late: true, may_retry: false, ..usual }),
            ("somebody else keeps changing it", Situation { is_contested: true, ..usual }),
            ("out of patience", Situation { is_out_of_patience: true, ..usual }),
        ];
        situations.extend(flags.map(|(flag, situation)| (format!("{life}, {flag}"), situation)));
    }
    situations
}

/// Returns what happens in a situation, by what is seen.
fn rows(situation: Situation) -> String {
    let mut rows: Vec<(String, Vec<String>)> = Vec::new();
    for resource in RESOURCE_STATES {
        let mut states: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for state in STATES {
            let steps = steps(state, Situation { resource, ..situation });
            states.entry(steps).or_default().push(format!("{state:?}"));
        }
        for (steps, states) in states {
            let any = states.len() == STATES.len();
            let states = if any { "any state".to_owned() } else { states.join(", ") };
            let row = format!("in {states}: {steps}");
            match rows.iter_mut().find(|(other, _)| *other == row) {
                Some((_, all)) => all.push(format!("{resource:?}")),
                None => rows.push((row, vec![format!("{resource:?}")])),
            }
        }
    }
    let mut text = String::new();
    for (row, seen) in rows {
        let any = seen.len() == RESOURCE_STATES.len();
        let seen = if any { "Whatever is seen".to_owned() } else { seen.join(", ") };
        writeln!(text, "{seen} {row}").unwrap();
    }
    text
}

/// Returns the steps in a state by the permissions that lead to each, as in `Create (c, cu), Stay (u)`.
fn steps(state: State, situation: Situation) -> String {
    let mut steps: Vec<(String, Vec<String>)> = Vec::new();
    for permissions in permissions() {
        let step = match transition(state, &Situation { permissions, ..situation }) {
            Step::Enter(state, reason) => format!("{state:?} {reason:?}"),
            Step::RemoveFinalizer => "remove the finalizer".to_owned(),
            step @ (Step::Stay
            | Step::Create
            | Step::Update
            | Step::Recreate
            | Step::Complete
            | Step::Delete) => format!("{step:?}").to_lowercase(),
        };
        let letters = [(permissions.create, 'c'), (permissions.update, 'u'), (permissions.delete, 'd')];
        let letters: String = letters.iter().filter(|(is, _)| *is).map(|(_, letter)| letter).collect();
        let letters = if letters.is_empty() { "none".to_owned() } else { letters };
        match steps.iter_mut().find(|(other, _)| *other == step) {
            Some((_, all)) => all.push(letters),
            None => steps.push((step, vec![letters])),
        }
    }
    if let [(step, _)] = &steps[..] {
        return step.clone();
    }
    steps
        .iter()
        .map(|(step, letters)| format!("{step} ({})", letters.join(" ")))
        .collect::<Vec<_>>()
        .join(", ")
}
