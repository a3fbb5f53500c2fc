//! The sample users: searched, changed, and separate for every chat.

use super::super::tests::{call, run};
use super::*;

fn tools() -> (SearchDatabase, UpdateDatabase) {
    let users = Arc::new(SampleDatabase::new(None));
    (
        SearchDatabase::new(users.clone()),
        UpdateDatabase::new(users),
    )
}

#[tokio::test]
async fn a_search_is_a_text_or_a_column() {
    let (search, _) = tools();
    let cases = [
        ("users", Ok("Found 10 users")),
        ("*", Ok("Found 10 users")),
        ("tokyo", Ok("Found 2 users")),
        ("city = Tokyo", Ok("Found 2 users")),
        ("CITY='tokyo'", Ok("Found 2 users")),
        ("hanako", Ok("Found 1 user")),
        ("id = 1", Ok("Found 1 user")),
        ("id = 1 OR 1=1", Ok("Found 0 users")),
        (
            "' OR '1'='1",
            Err("there is no column \"' OR '1'\"; use id, name, email, city, status"),
        ),
        ("%", Ok("Found 0 users")),
        ("_", Ok("Found 0 users")),
        ("\\", Ok("Found 0 users")),
        ("SELECT * FROM users", Ok("Found 0 users")),
        (
            "password = x",
            Err("there is no column \"password\"; use id, name, email, city, status"),
        ),
        (
            "chat = x",
            Err("there is no column \"chat\"; use id, name, email, city, status"),
        ),
        ("city =", Err("a value is empty; name one")),
        ("", Err("`query` is missing")),
    ];
    for (query, expected) in cases {
        let result = run(&search, json!({"query": query})).await;
        let message = result.map(|found| found["message"].as_str().unwrap().to_owned());
        assert_eq!(
            message,
            expected.map(str::to_owned).map_err(str::to_owned),
            "{query}"
        );
    }
    let found = run(&search, json!({"query": "id = 1"})).await.unwrap();
    let hanako = json!({
        "id": 1, "name": "Hanako Sato", "email": "hanako@example.com", "city": "Tokyo", "status": "active",
    });
    assert_eq!(found["users"], json!([hanako]));
}

#[tokio::test]
async fn an_update_changes_what_a_search_finds() {
    let (search, update) = tools();
    let count = async |query: &str| {
        run(&search, json!({"query": query})).await.unwrap()["count"]
            .as_u64()
            .unwrap()
    };
    let cases = [
        (
            json!({"query": "users", "set": {"status": "reviewed"}}),
            Ok(10),
            "status = reviewed",
            10,
        ),
        (
            json!({"query": "city = Tokyo", "set": "city = Kyoto, status = moved"}),
            Ok(2),
            "kyoto",
            2,
        ),
        (
            json!({"query": "nobody", "set": {"city": "Rome"}}),
            Ok(0),
            "rome",
            0,
        ),
        (
            json!({"query": "id = 2", "set": {"name": "x'; DROP TABLE users; --"}}),
            Ok(1),
            "drop table",
            1,
        ),
        (
            json!({"query": "users", "set": {"id": "7"}}),
            Err("`id` cannot be changed"),
            "users",
            10,
        ),
        (
            json!({"query": "users", "set": {"age": "7"}}),
            Err("there is no column \"age\"; use id, name, email, city, status"),
            "users",
            10,
        ),
        (
            json!({"query": "users", "set": {"city": 7}}),
            Err("`set.city` must be a string"),
            "users",
            10,
        ),
        (
            json!({"query": "users", "set": {}}),
            Err("`set` must name a column and its value"),
            "users",
            10,
        ),
        (
            json!({"query": "users", "set": "reviewed"}),
            Err("`set` must name a column and its value"),
            "users",
            10,
        ),
        (
            json!({"query": "users"}),
            Err("`set` is missing"),
            "users",
            10,
        ),
    ];
    for (input, expected, query, found) in cases {
        let result = run(&update, input.clone()).await;
        let changed = result.map(|done| done["changed"].as_u64().unwrap());
        assert_eq!(changed, expected.map_err(str::to_owned), "{input}");
        assert_eq!(count(query).await, found, "{input}");
    }
}

#[tokio::test]
async fn chats_do_not_see_each_others_rows() {
    let (search, update) = tools();
    run(&update, json!({"query": "users", "set": {"city": "Rome"}}))
        .await
        .unwrap();
    let here = call(json!({"query": "Rome"}), &Arc::default());
    for (user, chat_id, found) in [
        (here.user.as_str(), "another chat", "Found 0 users"),
        ("somebody else", here.chat_id.as_str(), "Found 0 users"),
        (here.user.as_str(), here.chat_id.as_str(), "Found 10 users"),
    ] {
        let elsewhere = ToolCall {
            user: user.into(),
            chat_id: chat_id.into(),
            ..here.clone()
        };
        let Outcome::Output { value, .. } = search.run(elsewhere).await else {
            panic!("no output");
        };
        assert_eq!(value.to_value()["message"], found, "{user} {chat_id}");
        update
            .forget(&"nobody".into(), &chat_id.into())
            .await
            .unwrap();
    }
    // A chat that is created again starts from the beginning.
    update.forget(&here.user, &here.chat_id).await.unwrap();
    let again = run(&search, json!({"query": "Rome"})).await.unwrap();
    assert_eq!(again["message"], "Found 0 users");
}

#[tokio::test]
async fn a_file_outlives_its_database() {
    let directory = tempfile::tempdir().unwrap();
    let file = Some(directory.path().join("users.db"));
    let update = UpdateDatabase::new(Arc::new(SampleDatabase::new(file.clone())));
    run(&update, json!({"query": "id = 3", "set": {"city": "Rome"}}))
        .await
        .unwrap();
    drop(update);
    let search = SearchDatabase::new(Arc::new(SampleDatabase::new(file)));
    let found = run(&search, json!({"query": "city = Rome"})).await.unwrap();
    assert_eq!(found["message"], "Found 1 user");
}
