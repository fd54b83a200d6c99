//! The rows of the edge: accounts, tokens, labels, instance types.

use std::collections::{BTreeMap, BTreeSet};

use kubebid_engine::store::{Account, InstanceType, Labels, Limits, NewToken, Role, Rows};

use crate::place::TestPlace;

crate::on_both! {
    an_account_comes_back
    putting_an_account_again_changes_everything_except_its_age
    accounts_are_listed_in_pages
    a_token_opens_until_it_is_revoked
    a_token_needs_an_account
    tokens_are_listed_by_account
    labels_come_back
    bids_are_found_by_label
    putting_labels_again_changes_nothing
    many_labels_go_in_at_once
    numbers_too_large_for_the_store_are_not_found
    an_instance_type_comes_back
}

fn account(name: &str) -> Account {
    Account {
        name: name.to_owned(),
        limits: Limits { open_bids: Some(7), nodes_wanted: None, ..Limits::default() },
        created_at_us: 5,
    }
}

fn token(account: &str, byte: u8) -> NewToken {
    NewToken {
        sha256: [byte; 32],
        account: account.to_owned(),
        roles: BTreeSet::from([Role::Tenant, Role::Provider]),
        note: "the laptop".to_owned(),
        created_at_us: 6,
    }
}

fn words(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

async fn an_account_comes_back(place: TestPlace) {
    let store = place.open().await;
    assert_eq!(store.rows().account("acme").await.unwrap(), None);
    let full = Limits {
        open_bids: Some(1),
        nodes_wanted: Some(2),
        ceiling_micros: Some(3),
        requests_per_second: Some(4),
        units_offered: Some(5),
        units_per_command: Some(6),
        refusals_per_second: Some(7),
        commands_per_day: Some(8),
    };
    for account in [
        account("acme"),
        Account { limits: Limits::default(), ..account("nobody ' % é") },
        Account { limits: full, ..account("") },
    ] {
        store.rows().put_account(&account).await.unwrap();
        assert_eq!(store.rows().account(&account.name).await.unwrap(), Some(account));
    }
}

async fn putting_an_account_again_changes_everything_except_its_age(place: TestPlace) {
    let store = place.open().await;
    store.rows().put_account(&account("acme")).await.unwrap();
    let other = Account { limits: Limits::default(), ..account("acme") };
    store.rows().put_account(&Account { created_at_us: 99, ..other.clone() }).await.unwrap();
    assert_eq!(store.rows().account("acme").await.unwrap(), Some(other));
}

async fn accounts_are_listed_in_pages(place: TestPlace) {
    let store = place.open().await;
    for name in ["b", "a", "Z", "é", "c"] {
        store.rows().put_account(&account(name)).await.unwrap();
    }
    let page = async |after: &str| {
        let accounts = store.rows().accounts(after, 2).await.unwrap();
        accounts.into_iter().map(|account| account.name).collect::<Vec<_>>()
    };
    assert_eq!(page("").await, ["Z", "a"]);
    assert_eq!(page("a").await, ["b", "c"]);
    assert_eq!(page("c").await, ["é"]);
    assert!(page("é").await.is_empty());
}

async fn a_token_opens_until_it_is_revoked(place: TestPlace) {
    let store = place.open().await;
    store.rows().put_account(&account("acme")).await.unwrap();
    let id = store.rows().add_token(&token("acme", 1)).await.unwrap().unwrap();
    let found = store.rows().token(&[1; 32]).await.unwrap().unwrap();
    assert_eq!((found.id, &found.account[..]), (id, "acme"));
    assert_eq!(found.roles, BTreeSet::from([Role::Tenant, Role::Provider]));
    assert_eq!((&found.note[..], found.created_at_us, found.revoked_at_us), ("the laptop", 6, None));
    assert_eq!(store.rows().token(&[2; 32]).await.unwrap(), None);
    assert_eq!(store.rows().token_numbered(id).await.unwrap().as_ref(), Some(&found));
    assert_eq!(store.rows().live_tokens(0, 10).await.unwrap(), [([1; 32], found)]);

    assert!(store.rows().revoke_token(id, 9).await.unwrap());
    assert!(!store.rows().revoke_token(id, 10).await.unwrap());
    assert!(!store.rows().revoke_token(id + 1, 10).await.unwrap());
    assert!(store.rows().live_tokens(0, 10).await.unwrap().is_empty());
    assert_eq!(store.rows().token(&[1; 32]).await.unwrap().unwrap().revoked_at_us, Some(9));
    assert_eq!(store.rows().tokens(None, 0, 10).await.unwrap()[0].revoked_at_us, Some(9));
}

async fn a_token_needs_an_account(place: TestPlace) {
    let store = place.open().await;
    assert_eq!(store.rows().add_token(&token("acme", 1)).await.unwrap(), None);
    assert!(store.rows().tokens(None, 0, 10).await.unwrap().is_empty());
}

async fn tokens_are_listed_by_account(place: TestPlace) {
    let store = place.open().await;
    let mut ids = Vec::new();
    for (byte, name) in ["acme", "umbra", "acme", "acme"].into_iter().enumerate() {
        store.rows().put_account(&account(name)).await.unwrap();
        ids.push(store.rows().add_token(&token(name, byte as u8)).await.unwrap().unwrap());
    }
    let page = async |account: Option<&'static str>, after: u64, limit: u32| {
        let tokens = store.rows().tokens(account, after, limit).await.unwrap();
        tokens.into_iter().map(|token| token.id).collect::<Vec<_>>()
    };
    assert_eq!(page(None, 0, 10).await, ids);
    assert_eq!(page(Some("acme"), 0, 2).await, [ids[0], ids[2]]);
    assert_eq!(page(Some("acme"), ids[2], 2).await, [ids[3]]);
    assert!(page(Some("nobody"), 0, 2).await.is_empty());
}

async fn put(rows: &Rows, labels: &[(u64, &Labels)]) {
    rows.put_labels(labels.iter().copied()).await.unwrap();
}

async fn labels_come_back(place: TestPlace) {
    let store = place.open().await;
    let (one, three) = (words(&[("app", "x"), ("", "")]), words(&[("app", "é\u{1f980}")]));
    put(store.rows(), &[]).await;
    put(store.rows(), &[(1, &one), (2, &Labels::new()), (3, &three)]).await;
    let found = store.rows().labels_of(&[1, 2, 3, 4]).await.unwrap();
    assert_eq!(found, BTreeMap::from([(1, one), (3, three)]));
    assert!(store.rows().labels_of(&[]).await.unwrap().is_empty());
}

async fn bids_are_found_by_label(place: TestPlace) {
    let store = place.open().await;
    put(
        store.rows(),
        &[
            (1, &words(&[("node", "x"), ("zone", "a")])),
            (2, &words(&[("node", "y"), ("zone", "a")])),
            (3, &words(&[("node", "x"), ("zone", "b")])),
            (4, &words(&[("node", "x"), ("zone", "a"), ("more", "")])),
        ],
    )
    .await;
    let find = async |wanted: &[(&str, &str)], after, limit| {
        store.rows().bids_labelled(&words(wanted), after, limit).await.unwrap()
    };
    assert_eq!(find(&[("node", "x")], 0, 10).await, [1, 3, 4]);
    assert_eq!(find(&[("node", "x")], 0, 2).await, [1, 3]);
    assert_eq!(find(&[("node", "x")], 3, 2).await, [4]);
    assert_eq!(find(&[("node", "x"), ("zone", "a")], 0, 10).await, [1, 4]);
    assert_eq!(find(&[("node", "x"), ("zone", "a"), ("more", "")], 0, 10).await, [4]);
    assert!(find(&[("node", "a")], 0, 10).await.is_empty());
    assert!(find(&[("node", "y"), ("zone", "b")], 0, 10).await.is_empty());
    assert_eq!(find(&[], 0, 10).await, [1, 2, 3, 4]);
}

async fn putting_labels_again_changes_nothing(place: TestPlace) {
    let store = place.open().await;
    let labels = words(&[("app", "x")]);
    for _ in 0..2 {
        put(store.rows(), &[(1, &labels), (1, &labels)]).await;
        assert_eq!(store.rows().labels_of(&[1]).await.unwrap()[&1], labels);
    }
}

async fn many_labels_go_in_at_once(place: TestPlace) {
    let store = place.open().await;
    let labels: Vec<(u64, Labels)> =
        (1..=700).map(|bid| (bid, words(&[("all", "yes"), ("a", "b"), ("bid", &bid.to_string())]))).collect();
    store.rows().put_labels(labels.iter().map(|(bid, labels)| (*bid, labels))).await.unwrap();
    let bids: Vec<u64> = (1..=1400).collect();
    assert_eq!(store.rows().labels_of(&bids).await.unwrap(), labels.into_iter().collect());
    assert_eq!(store.rows().bids_labelled(&words(&[("all", "yes")]), 0, 1000).await.unwrap(), bids[..700]);
}

async fn numbers_too_large_for_the_store_are_not_found(place: TestPlace) {
    let store = place.open().await;
    let rows = store.rows();
    rows.put_account(&account("acme")).await.unwrap();
    rows.add_token(&token("acme", 1)).await.unwrap().unwrap();
    let labels = words(&[("app", "x")]);
    put(rows, &[(1, &labels)]).await;
    for beyond in [1 << 63, u64::MAX] {
        assert_eq!(rows.token_numbered(beyond).await.unwrap(), None);
        assert!(rows.tokens(None, beyond, 10).await.unwrap().is_empty());
        assert!(rows.unrevoked_tokens(Some("acme"), beyond, 10).await.unwrap().is_empty());
        assert!(rows.live_tokens(beyond, 10).await.unwrap().is_empty());
        assert!(!rows.revoke_token(beyond, 9).await.unwrap());
        assert_eq!(rows.labels_of(&[1, beyond]).await.unwrap(), BTreeMap::from([(1, labels.clone())]));
        assert!(rows.bids_labelled(&labels, beyond, 10).await.unwrap().is_empty());
    }
}

async fn an_instance_type_comes_back(place: TestPlace) {
    let store = place.open().await;
    assert_eq!(store.rows().instance_type("gpu.large").await.unwrap(), None);
    let mut large = InstanceType {
        name: "gpu.large".to_owned(),
        allocatable: words(&[("cpu", "8"), ("memory", "32Gi"), ("nvidia.com/gpu", "1")]),
        node_labels: words(&[("quote", "\"\\")]),
        on_demand_price_micros: None,
    };
    store.rows().put_instance_type(&large).await.unwrap();
    assert_eq!(store.rows().instance_type("gpu.large").await.unwrap().as_ref(), Some(&large));
    large.on_demand_price_micros = Some(3_060_000);
    large.node_labels.clear();
    store.rows().put_instance_type(&large).await.unwrap();
    let small = InstanceType { name: "cpu.small".to_owned(), ..large.clone() };
    store.rows().put_instance_type(&small).await.unwrap();
    assert_eq!(store.rows().instance_types("", 10).await.unwrap(), [small, large.clone()]);
    assert_eq!(store.rows().instance_types("cpu.small", 10).await.unwrap(), [large]);
}
