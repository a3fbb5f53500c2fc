//! Interprets plain sentences, in English and, for the same requests, in Japanese.

use serde_json::{Value, json};

use super::phrase::{Phrase, first_number};
use super::request::Conversation;
use super::script::{Call, Step};

/// The model's steps for a sentence.
pub(super) fn understand(conversation: &Conversation) -> Vec<Step> {
    let prompt = conversation.prompt.trim();
    let phrase = Phrase::new(prompt);
    if let Some(steps) = built_in(&phrase) {
        return steps;
    }
    if let Some(steps) = database(&phrase) {
        return steps;
    }
    if let Some(rounds) = rounds(prompt) {
        return rounds;
    }
    if !conversation.attachments.is_empty() {
        return vec![Step::Describe];
    }
    if phrase.has(&["image", "picture", "photo", "画像"])
        && phrase.has(&["what", "describe", "何", "説明"])
    {
        return vec![Step::Describe];
    }
    if phrase.is_payment() {
        return vec![Step::Say(
            "How much shall I pay, and to whom? Try \"pay Hanako 50 dollars\".".into(),
        )];
    }
    if phrase.has(&["weather", "天気"]) {
        return vec![Step::Say(
            "For which city? Try \"what is the weather in Tokyo\".".into(),
        )];
    }
    vec![Step::Say(small_talk(&phrase))]
}

fn built_in(phrase: &Phrase<'_>) -> Option<Vec<Step>> {
    if let Some(query) = phrase.after(&[
        "search the web for",
        "search the web",
        "google for",
        "look up",
    ]) {
        return Some(vec![Step::Search(query.to_owned())]);
    }
    if let Some(query) = phrase.before(&["をウェブで検索", "をネットで検索", "をググって"])
    {
        return Some(vec![Step::Search(query.to_owned())]);
    }
    if let Some(sum) = phrase
        .after(&["compute", "calculate"])
        .or_else(|| phrase.before(&["を計算"]))
    {
        return Some(vec![Step::Compute(sum.to_owned())]);
    }
    let subject = phrase
        .after(&["think about", "think hard about"])
        .or_else(|| phrase.before(&["について考えて"]))?;
    Some(vec![
        Step::Think(format!(
            "The user wants me to think about {subject}. I look at it from two sides before I answer. \
             One side is what it is, the other is what it is for."
        )),
        Step::Say(format!(
            "I have thought about {subject}: there is more to it than meets the eye."
        )),
    ])
}

/// The search comes first; the update follows its result.
fn database(phrase: &Phrase<'_>) -> Option<Vec<Step>> {
    if !phrase.has(&["database", "データベース"]) {
        return None;
    }
    let looks = phrase.has(&["search", "find", "look", "query", "検索", "探"]);
    let changes = phrase.has(&["update", "change", "modify", "更新", "変更"]);
    let query = phrase
        .after(&["database for", "find"])
        .map(|query| query.split(" in the database").next().unwrap_or(query))
        .map(|query| query.split(" and update").next().unwrap_or(query))
        .map(|query| query.trim_end_matches([',', ' ']))
        .filter(|query| !query.is_empty())
        .unwrap_or("users");
    let search = call("search_database", json!({"query": query}));
    let update = call(
        "update_database",
        json!({"query": query, "set": {"status": "reviewed"}}),
    );
    match (looks, changes) {
        (_, false) => Some(vec![Step::Calls(vec![search])]),
        (true, true) => Some(vec![Step::Calls(vec![search]), Step::Calls(vec![update])]),
        (false, true) => Some(vec![Step::Calls(vec![update])]),
    }
}

/// Requests joined by "and" are parallel calls, those joined by "then" are calls one after the other.
fn rounds(prompt: &str) -> Option<Vec<Step>> {
    let rounds = prompt
        .replace(" and then ", " then ")
        .replace(", then ", " then ");
    let rounds: Option<Vec<_>> = rounds.split(" then ").map(parallel).collect();
    let whole = || parallel(prompt).map(|calls| vec![calls]);
    Some(
        rounds
            .or_else(whole)?
            .into_iter()
            .map(Step::Calls)
            .collect(),
    )
}

fn parallel(text: &str) -> Option<Vec<Call>> {
    let clauses: Vec<_> = match text.contains(" and ") {
        true => text
            .split(" and ")
            .flat_map(|clause| clause.split(", "))
            .collect(),
        false => vec![text],
    };
    let mut calls: Vec<Call> = Vec::new();
    for clause in &clauses {
        let phrase = Phrase::new(clause);
        match wish(&phrase).or_else(|| continued(&phrase, calls.last()?)) {
            Some(mut wished) => calls.append(&mut wished),
            None => return wish(&Phrase::new(text)),
        }
    }
    Some(calls)
}

/// "Tokyo and Paris", "Hanako 50 dollars and Bob 20": the second half repeats the request of the first.
fn continued(phrase: &Phrase<'_>, before: &Call) -> Option<Vec<Call>> {
    match before.name.as_str() {
        "get_weather" => Some(vec![weather_in(phrase.text)?]),
        "process_payment" => Some(vec![payment(phrase)?]),
        _ => None,
    }
}

fn wish(phrase: &Phrase<'_>) -> Option<Vec<Call>> {
    if phrase.is_payment()
        && let Some(payment) = payment(phrase)
    {
        return Some(vec![payment]);
    }
    if phrase.has(&["weather", "天気"]) {
        return weather(phrase);
    }
    if phrase.has(&[
        "where am i",
        "my location",
        "where i am",
        "どこにいる",
        "現在地",
        "位置情報",
    ]) {
        return Some(vec![call("get_location", json!({}))]);
    }
    if phrase.has(&["take", "撮"]) && phrase.has(&["photo", "picture", "selfie", "写真"]) {
        return Some(vec![call("take_photo", json!({}))]);
    }
    if phrase.has(&["roll", "サイコロ"]) && phrase.has(&["die", "dice", "サイコロ"])
        || phrase.has(&["roll"]) && dice_in(phrase).is_some()
    {
        return Some(vec![call("roll_dice", dice(phrase))]);
    }
    if let Some(subject) = drawing(phrase) {
        return Some(vec![call("generate_image", json!({"prompt": subject}))]);
    }
    music(phrase).map(|track| vec![call("change_bgm", json!({"track_name": track}))])
}

fn weather(phrase: &Phrase<'_>) -> Option<Vec<Call>> {
    if let Some(cities) = phrase.before(&["の天気"]) {
        return cities
            .split(['と', '、'])
            .map(|city| weather_in(city.trim_start_matches("今日の")))
            .collect();
    }
    let city = phrase.after(&[
        "weather in",
        "weather for",
        "weather like in",
        "weather at",
        "in",
    ])?;
    Some(vec![weather_in(city)?])
}

fn weather_in(city: &str) -> Option<Call> {
    const TAIL: [&str; 7] = [
        "today",
        "now",
        "right now",
        "please",
        "tomorrow",
        "at the moment",
        "like",
    ];
    let mut city = city.trim().trim_end_matches(['?', '.', '!', ',']);
    while let Some(shorter) = TAIL
        .iter()
        .find_map(|tail| city.strip_suffix(tail)?.strip_suffix([' ', ',']))
    {
        city = shorter.trim_end_matches([' ', ',']);
    }
    let city = city.strip_prefix("in ").unwrap_or(city).trim();
    (!city.is_empty() && city.chars().count() <= 60)
        .then(|| call("get_weather", json!({"location": city})))
}

fn payment(phrase: &Phrase<'_>) -> Option<Call> {
    let (number, amount) = first_number(phrase.text)?;
    let recipient = recipient(phrase, &number)?;
    let mut args = json!({"amount": amount, "recipient": recipient});
    const CURRENCIES: [(&str, &[&str]); 4] = [
        ("USD", &["$", "dollar", "dollars", "usd", "bucks", "ドル"]),
        ("EUR", &["€", "euro", "euros", "eur", "ユーロ"]),
        ("GBP", &["£", "pound", "pounds", "gbp", "ポンド"]),
        ("JPY", &["¥", "yen", "jpy", "円"]),
    ];
    if let Some((code, _)) = CURRENCIES
        .iter()
        .find(|(_, names)| phrase.has(names) || phrase.lower.contains(names[0]))
    {
        args["currency"] = json!(code);
    }
    if let Some(what) = phrase.after(&["for"]) {
        args["description"] = json!(what);
    }
    Some(call("process_payment", args))
}

fn recipient<'t>(phrase: &Phrase<'t>, number: &std::ops::Range<usize>) -> Option<&'t str> {
    let clean = |name: &'t str| {
        let name = name.split(" for ").next().unwrap_or(name);
        let name = name
            .trim()
            .trim_end_matches("さん")
            .trim_end_matches(['$', '€', '£', '¥', ',', '.', ' ']);
        Some(name).filter(|name| !name.is_empty() && name.chars().count() <= 60)
    };
    if let Some(at) = phrase
        .text
        .find('に')
        .filter(|_| !phrase.has(&["pay", "send"]))
    {
        return clean(&phrase.text[..at]);
    }
    if let Some(name) = phrase.after(&["to"]) {
        return clean(&phrase.text[phrase.text.len() - name.len()..])
            .filter(|name| first_number(name).is_none());
    }
    // "pay Hanako 50": the name is before the amount; "Bob 20" has no verb.
    let start = ["pay", "send", "transfer"]
        .iter()
        .find_map(|verb| Some(phrase.find(verb)? + verb.len()))
        .unwrap_or(0);
    clean(phrase.text.get(start..number.start)?)
}

fn dice(phrase: &Phrase<'_>) -> Value {
    let mut args = json!({});
    const WORDS: [(&str, u64); 7] = [
        ("two", 2),
        ("three", 3),
        ("four", 4),
        ("five", 5),
        ("six", 6),
        ("二", 2),
        ("三", 3),
    ];
    if let Some((count, sides)) = dice_in(phrase) {
        args = json!({"sides": sides});
        if count > 1 {
            args["count"] = json!(count);
        }
    } else if let Some((_, count)) = WORDS.iter().find(|(word, _)| phrase.has(&[word])) {
        args["count"] = json!(count);
    } else if let Some((_, count)) = first_number(phrase.text) {
        args["count"] = count;
    }
    args
}

/// `d20` and `3d6`.
fn dice_in(phrase: &Phrase<'_>) -> Option<(u64, u64)> {
    phrase.lower.split_whitespace().find_map(|word| {
        let (count, sides) = word.split_once('d')?;
        let count = if count.is_empty() {
            1
        } else {
            count.parse().ok()?
        };
        Some((count, sides.parse().ok()?))
    })
}

fn drawing<'t>(phrase: &Phrase<'t>) -> Option<&'t str> {
    phrase
        .after(&[
            "draw me",
            "draw",
            "paint",
            "generate an image of",
            "generate a picture of",
            "make a picture of",
            "create an image of",
        ])
        .or_else(|| phrase.before(&["の絵を描", "を描", "の絵"]))
}

fn music<'t>(phrase: &Phrase<'t>) -> Option<&'t str> {
    let about = phrase.has(&["music", "bgm", "song", "track", "音楽", "曲"]);
    if let Some(track) = phrase
        .before(&["をかけて", "を流して", "に変えて"])
        .filter(|_| !phrase.lower.is_ascii())
    {
        return Some(
            track
                .trim_start_matches("音楽を")
                .trim_start_matches("BGMを"),
        );
    }
    if about && let Some(track) = phrase.after(&["to"]) {
        return Some(track);
    }
    if let Some(track) = phrase.after(&["play some", "play the", "play"]) {
        let track = track.strip_suffix(" music").unwrap_or(track);
        return Some(if track == "music" { "jazz" } else { track });
    }
    (about && phrase.has(&["change", "switch", "play", "変", "流", "かけ"])).then_some("jazz")
}

fn small_talk(phrase: &Phrase<'_>) -> String {
    const HELP: &str = "Try \"what is the weather in Tokyo\", \"pay Hanako 50 dollars\", \"search the database and \
        update it\", \"where am I\", \"draw a cat\" or \"roll two dice\".";
    if phrase.text.is_empty() {
        return format!("I did not get any words. {HELP}");
    }
    if phrase.has(&[
        "hello",
        "hi",
        "hey",
        "good morning",
        "こんにちは",
        "おはよう",
        "はじめまして",
    ]) {
        return format!("Hello! I am the demo's scripted model. {HELP}");
    }
    if phrase.has(&["thanks", "thank you", "ありがとう"]) {
        return "You are welcome.".into();
    }
    format!(
        "You said: \"{}\". I am the demo's scripted model and know only a few things. {HELP}",
        phrase.text
    )
}

fn call(name: &str, args: Value) -> Call {
    Call {
        name: name.to_owned(),
        args: args.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(prompt: &str) -> Vec<Step> {
        understand(&Conversation {
            prompt: prompt.into(),
            attachments: Vec::new(),
            rounds: Vec::new(),
        })
    }

    /// The rounds of calls as text: `name{args} name{args}; name{args}`.
    fn calls(prompt: &str) -> String {
        let rounds = steps(prompt).into_iter().map(|step| match step {
            Step::Calls(calls) => {
                let calls = calls
                    .iter()
                    .map(|call| format!("{}{}", call.name, call.args));
                calls.collect::<Vec<_>>().join(" ")
            }
            other => format!("{other:?}"),
        });
        rounds.collect::<Vec<_>>().join("; ")
    }

    #[test]
    fn sentences_become_calls() {
        let cases = [
            (
                "what is the weather in Tokyo",
                r#"get_weather{"location":"Tokyo"}"#,
            ),
            (
                "What's the weather like in New York today?",
                r#"get_weather{"location":"New York"}"#,
            ),
            (
                "weather in Tokyo and Paris",
                r#"get_weather{"location":"Tokyo"} get_weather{"location":"Paris"}"#,
            ),
            (
                "weather in Tokyo, Paris and London",
                r#"get_weather{"location":"Tokyo"} get_weather{"location":"Paris"} get_weather{"location":"London"}"#,
            ),
            ("東京の天気は？", r#"get_weather{"location":"東京"}"#),
            (
                "東京と大阪の天気を教えて",
                r#"get_weather{"location":"東京"} get_weather{"location":"大阪"}"#,
            ),
            (
                "pay Hanako 50 dollars",
                r#"process_payment{"amount":50,"recipient":"Hanako","currency":"USD"}"#,
            ),
            (
                "Please pay Hanako Sato $50.",
                r#"process_payment{"amount":50,"recipient":"Hanako Sato","currency":"USD"}"#,
            ),
            (
                "send 20 to Bob",
                r#"process_payment{"amount":20,"recipient":"Bob"}"#,
            ),
            (
                "send 12.50 euros to Bob for lunch",
                r#"process_payment{"amount":12.5,"recipient":"Bob","currency":"EUR","description":"lunch"}"#,
            ),
            (
                "pay Hanako 50 dollars and Bob 20 dollars",
                r#"process_payment{"amount":50,"recipient":"Hanako","currency":"USD"} process_payment{"amount":20,"recipient":"Bob","currency":"USD"}"#,
            ),
            (
                "花子に50ドル支払って",
                r#"process_payment{"amount":50,"recipient":"花子","currency":"USD"}"#,
            ),
            (
                "花子さんに5000円送金して",
                r#"process_payment{"amount":5000,"recipient":"花子","currency":"JPY"}"#,
            ),
            (
                "search the database and update it",
                r#"search_database{"query":"users"}; update_database{"query":"users","set":{"status":"reviewed"}}"#,
            ),
            (
                "search the database for hanako",
                r#"search_database{"query":"hanako"}"#,
            ),
            (
                "update the database",
                r#"update_database{"query":"users","set":{"status":"reviewed"}}"#,
            ),
            (
                "データベースを検索して更新して",
                r#"search_database{"query":"users"}; update_database{"query":"users","set":{"status":"reviewed"}}"#,
            ),
            ("where am I?", "get_location{}"),
            ("現在地は？", "get_location{}"),
            ("take a photo", "take_photo{}"),
            ("写真を撮って", "take_photo{}"),
            ("play some jazz", r#"change_bgm{"track_name":"jazz"}"#),
            ("change the music", r#"change_bgm{"track_name":"jazz"}"#),
            (
                "change the bgm to lofi",
                r#"change_bgm{"track_name":"lofi"}"#,
            ),
            ("ジャズをかけて", r#"change_bgm{"track_name":"ジャズ"}"#),
            ("draw a cat", r#"generate_image{"prompt":"a cat"}"#),
            ("猫の絵を描いて", r#"generate_image{"prompt":"猫"}"#),
            ("roll two dice", r#"roll_dice{"count":2}"#),
            ("roll a die", "roll_dice{}"),
            ("roll 3d20", r#"roll_dice{"sides":20,"count":3}"#),
            (
                "pay Hanako 50 dollars and where am I and roll two dice",
                r#"process_payment{"amount":50,"recipient":"Hanako","currency":"USD"} get_location{} roll_dice{"count":2}"#,
            ),
            (
                "take a photo and then draw a dog",
                r#"take_photo{}; generate_image{"prompt":"a dog"}"#,
            ),
            (
                "draw a cat and a dog",
                r#"generate_image{"prompt":"a cat and a dog"}"#,
            ),
        ];
        for (prompt, expected) in cases {
            assert_eq!(calls(prompt), expected, "{prompt}");
        }
    }

    #[test]
    fn other_sentences_are_answered_in_words() {
        let cases = [
            ("hello", "Hello! "),
            ("pay Bob", "How much shall I pay"),
            ("how is the weather", "For which city?"),
            ("this is fine", "You said: \"this is fine\"."),
            ("", "I did not get any words."),
            ("the weather", "For which city?"),
        ];
        for (prompt, start) in cases {
            let steps = steps(prompt);
            assert!(
                matches!(&steps[..], [Step::Say(said)] if said.starts_with(start)),
                "{prompt}: {steps:?}"
            );
        }
        assert_eq!(steps("what is in this image?"), [Step::Describe]);
        assert_eq!(steps("compute 2 + 3"), [Step::Compute("2 + 3".into())]);
        assert_eq!(
            steps("search the web for rust"),
            [Step::Search("rust".into())]
        );
        assert!(matches!(
            &steps("think about cats")[..],
            [Step::Think(_), Step::Say(_)]
        ));
    }

    proptest::proptest! {
        #[test]
        fn every_sentence_gets_an_answer(text in "((pay|send|to|weather|in|の天気|に|円|and|then|roll|2d6|draw|İ|5|,|for|database|play) ?){0,10}") {
            proptest::prop_assert!(!steps(&text).is_empty());
        }
    }
}
