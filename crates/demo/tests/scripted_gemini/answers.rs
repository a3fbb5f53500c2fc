//! Prompts and what they are answered with.

use serde_json::{Value, json};

use super::{MODEL, STRICT_MODEL, Server, ask, outline, parts, prompt, text, user};

const ALL: &[&str] = &[
    "get_weather",
    "process_payment",
    "search_database",
    "update_database",
    "get_location",
    "take_photo",
    "change_bgm",
    "generate_image",
    "roll_dice",
];

#[tokio::test]
async fn prompts_have_their_answers() {
    let server = Server::start().await;
    let cases = [
        ("say hello  there", ALL, r#""hello  there" STOP"#),
        (
            "what is the weather in Tokyo",
            ALL,
            r#"get_weather{"location":"Tokyo"} STOP"#,
        ),
        (
            "weather in Tokyo and Paris",
            ALL,
            r#"get_weather{"location":"Tokyo"} get_weather{"location":"Paris"} STOP"#,
        ),
        (
            "pay Hanako 50 dollars",
            ALL,
            r#"process_payment{"amount":50,"recipient":"Hanako","currency":"USD"} STOP"#,
        ),
        (
            "send 20 to Bob",
            ALL,
            r#"process_payment{"amount":20,"recipient":"Bob"} STOP"#,
        ),
        (
            "search the database and update it",
            ALL,
            r#"search_database{"query":"users"} STOP"#,
        ),
        ("where am I", ALL, "get_location{} STOP"),
        ("take a photo", ALL, "take_photo{} STOP"),
        (
            "play some jazz",
            ALL,
            r#"change_bgm{"track_name":"jazz"} STOP"#,
        ),
        (
            "draw a cat",
            ALL,
            r#"generate_image{"prompt":"a cat"} STOP"#,
        ),
        ("roll two dice", ALL, r#"roll_dice{"count":2} STOP"#),
        (
            r#"call roll_dice {"sides":20} && call get_location"#,
            ALL,
            r#"roll_dice{"sides":20} get_location{} STOP"#,
        ),
        (
            "say one moment then call get_location",
            ALL,
            r#""one moment" get_location{} STOP"#,
        ),
        (
            "call get_location",
            &[],
            r#""I cannot do that: there is no tool named get_location here." STOP"#,
        ),
        (
            "where am I",
            &[],
            r#""I cannot do that: there is no tool named get_location here." STOP"#,
        ),
        (
            "draw a cat",
            &[],
            r#""I cannot do that: there is no tool named generate_image here." STOP"#,
        ),
        ("compute 6 * 7", &[], r#""The result is 42." STOP"#),
        (
            "search the web for cats",
            &[],
            r#""I cannot search the web: no search tool is declared." STOP"#,
        ),
        (
            "what is in this image",
            &[],
            r#""I see no image: none was sent with your message." STOP"#,
        ),
        ("long 3", &[], r#""word1 word2 word3." STOP"#),
        ("slow 2", &[], r#""word1 word2." STOP"#),
        ("empty", &[], "STOP"),
        ("say that is then safety", &[], r#""that is" SAFETY"#),
        (
            "say that is then max tokens",
            &[],
            r#""that is" MAX_TOKENS"#,
        ),
        ("malformed", &[], "MALFORMED_FUNCTION_CALL"),
    ];
    for (words, tools, expected) in cases {
        for model in [MODEL, STRICT_MODEL] {
            let chunks = server.stream(model, &prompt(words, tools)).await;
            assert_eq!(outline(&chunks), expected, "{words}");
            let whole = server
                .post(&format!("{model}:generateContent"), &prompt(words, tools))
                .await;
            assert_eq!(
                outline(&[whole.json().await.unwrap()]),
                expected,
                "{words}, whole"
            );
        }
    }
}

#[tokio::test]
async fn a_sequence_goes_on_with_each_result() {
    let server = Server::start().await;
    let cases: [(&str, &[Value], &[&str]); 4] = [
        (
            "search the database and update it",
            &[
                json!({"message": "Found 10 users"}),
                json!({"message": "Database updated"}),
            ],
            &[
                r#"search_database{"query":"users"} STOP"#,
                r#""Found 10 users. " update_database{"query":"users","set":{"status":"reviewed"}} STOP"#,
                r#""Database updated." STOP"#,
            ],
        ),
        (
            "search the database and update it",
            &[
                json!({"error": "the user denied this call; it was not run"}),
                json!({"error": "the user denied this call; it was not run", "reason": "no"}),
            ],
            &[
                r#"search_database{"query":"users"} STOP"#,
                r#""You declined search_database, so I did not run it. " update_database{"query":"users","set":{"status":"reviewed"}} STOP"#,
                r#""You declined update_database (no), so I did not run it." STOP"#,
            ],
        ),
        (
            r#"call get_weather {"location":"Rome"} then say next then call get_location then say done"#,
            &[
                json!({"result": "fine"}),
                json!({"latitude": 1, "longitude": 2}),
            ],
            &[
                r#"get_weather{"location":"Rome"} STOP"#,
                r#""next" get_location{} STOP"#,
                r#""done" STOP"#,
            ],
        ),
        (
            "call get_weather then safety",
            &[json!({"location": "Rome", "temperatureCelsius": 20})],
            &["get_weather{} STOP", r#""It is 20 °C in Rome." SAFETY"#],
        ),
    ];
    for (words, results, expected) in cases {
        let mut contents = vec![
            user("hello"),
            json!({"role": "model", "parts": [{"text": "Hello!"}]}),
            user(words),
        ];
        let mut results = results.iter();
        for outlined in expected {
            let chunks = server
                .stream(STRICT_MODEL, &ask(json!(contents), ALL))
                .await;
            assert_eq!(outline(&chunks), *outlined, "{words}");
            let said = parts(&chunks);
            let Some(call) = said.iter().find(|part| part["functionCall"].is_object()) else {
                break;
            };
            let name = &call["functionCall"]["name"];
            let response =
                json!({"functionResponse": {"name": name, "response": results.next().unwrap()}});
            contents.push(json!({"role": "model", "parts": said}));
            contents.push(json!({"role": "user", "parts": [response]}));
        }
        assert!(results.next().is_none(), "{words}");
    }
}

#[tokio::test]
async fn a_new_message_takes_precedence_over_unanswered_calls() {
    let server = Server::start().await;
    let call = json!({"functionCall": {"id": "1", "name": "get_location", "args": {}}});
    let response = json!({"functionResponse": {
        "id": "1", "name": "get_location", "response": {"error": "this call was not answered; it was not run"},
    }});
    let apart = json!([
        user("where am I"),
        {"role": "model", "parts": [call]},
        {"role": "user", "parts": [response]},
        user("say never mind"),
    ]);
    let together = json!([
        user("where am I"),
        {"role": "model", "parts": [call]},
        {"role": "user", "parts": [response, {"text": "say never mind"}]},
    ]);
    for contents in [apart, together] {
        let chunks = server.stream(STRICT_MODEL, &ask(contents, ALL)).await;
        assert_eq!(outline(&chunks), r#""never mind" STOP"#);
    }
}

#[tokio::test]
async fn every_chunk_says_what_google_says() {
    let server = Server::start().await;
    let chunks = server
        .stream(MODEL, &prompt("say one two three", &[]))
        .await;
    assert_eq!(chunks.len(), 3);
    for (index, chunk) in chunks.iter().enumerate() {
        assert_eq!(chunk["modelVersion"], MODEL);
        assert_eq!(chunk["responseId"], chunks[0]["responseId"]);
        assert_eq!(chunk["candidates"][0]["index"], 0);
        assert_eq!(chunk["candidates"][0]["content"]["role"], "model");
        let usage = &chunk["usageMetadata"];
        assert_eq!(usage["candidatesTokenCount"], index + 1);
        let total = usage["promptTokenCount"].as_u64().unwrap() + index as u64 + 1;
        assert_eq!(usage["totalTokenCount"], total);
    }
    let again = server
        .stream(MODEL, &prompt("say one two three", &[]))
        .await;
    assert_ne!(again[0]["responseId"], chunks[0]["responseId"]);
}

#[tokio::test]
async fn thoughts_are_shown_to_those_who_ask() {
    let server = Server::start().await;
    let mut body = prompt("think about cats", &[]);
    let hidden = server.stream(MODEL, &body).await;
    assert!(!outline(&hidden).contains("thoughts"));
    body["generationConfig"] = json!({"thinkingConfig": {"includeThoughts": true}});
    for (model, signed) in [(MODEL, "first"), (STRICT_MODEL, "last")] {
        let chunks = server.stream(model, &body).await;
        assert!(
            outline(&chunks).starts_with("thoughts \"I have thought about cats"),
            "{}",
            outline(&chunks)
        );
        let words: Vec<_> = parts(&chunks)
            .into_iter()
            .filter(|part| part["thought"] != true)
            .collect();
        let bearer = if signed == "first" {
            &words[0]
        } else {
            &words[words.len() - 1]
        };
        assert!(bearer["thoughtSignature"].is_string(), "{words:?}");
        assert_eq!(
            words
                .iter()
                .filter(|part| part["thoughtSignature"].is_string())
                .count(),
            1
        );
        let usage = &chunks[chunks.len() - 1]["usageMetadata"];
        assert!(usage["thoughtsTokenCount"].as_u64().unwrap() > 0);
    }
}

#[tokio::test]
async fn arguments_stream_when_asked_to() {
    let server = Server::start().await;
    let mut body = prompt(r#"call a {"city":"Paris","days":2} && call b"#, &["a", "b"]);
    body["toolConfig"] = json!({"functionCallingConfig": {"streamFunctionCallArguments": true}});
    let chunks = server.stream(MODEL, &body).await;
    let calls: Vec<_> = parts(&chunks)
        .iter()
        .map(|part| part["functionCall"].clone())
        .collect();
    let partial = |arg: Value| json!({"partialArgs": [arg], "willContinue": true});
    assert_eq!(
        calls,
        [
            json!({"name": "a", "willContinue": true}),
            partial(json!({"jsonPath": "$.city", "stringValue": "Par", "willContinue": true})),
            partial(json!({"jsonPath": "$.city", "stringValue": "is"})),
            partial(json!({"jsonPath": "$.days", "numberValue": 2})),
            json!({}),
            json!({"name": "b", "args": {}}),
        ]
    );
}

#[tokio::test]
async fn the_tool_config_is_obeyed() {
    let server = Server::start().await;
    let cases = [
        (json!({"mode": "AUTO"}), true),
        (json!({"mode": "NONE"}), false),
        (
            json!({"mode": "ANY", "allowedFunctionNames": ["get_location"]}),
            true,
        ),
        (
            json!({"mode": "ANY", "allowedFunctionNames": ["take_photo"]}),
            false,
        ),
    ];
    for (config, calls) in cases {
        let mut body = prompt("where am I", ALL);
        body["toolConfig"] = json!({"functionCallingConfig": config});
        let chunks = server.stream(MODEL, &body).await;
        assert_eq!(
            outline(&chunks).starts_with("get_location{}"),
            calls,
            "{config}"
        );
    }
}

#[tokio::test]
async fn the_number_of_tokens_is_limited() {
    let server = Server::start().await;
    let cases = [
        (1, r#""one " MAX_TOKENS"#),
        (2, r#""one two " MAX_TOKENS"#),
        (3, r#""one two three" STOP"#),
        (100, r#""one two three" STOP"#),
    ];
    for (limit, expected) in cases {
        let mut body = prompt("say one two three", &[]);
        body["generationConfig"] = json!({"maxOutputTokens": limit});
        assert_eq!(outline(&server.stream(MODEL, &body).await), expected);
    }
    let mut body = prompt("where am I", ALL);
    body["generationConfig"] = json!({"maxOutputTokens": 1});
    assert_eq!(outline(&server.stream(MODEL, &body).await), "MAX_TOKENS");
}

#[tokio::test]
async fn built_in_tools_are_used_when_declared() {
    let server = Server::start().await;
    let mut body = prompt("compute 7 / 0", &[]);
    body["tools"] = json!([{"codeExecution": {}}]);
    let said = parts(&server.stream(MODEL, &body).await);
    assert_eq!(
        said[0]["executableCode"],
        json!({"language": "PYTHON", "code": "print(7 / 0)"})
    );
    assert_eq!(said[1]["codeExecutionResult"]["outcome"], "OUTCOME_FAILED");

    let mut body = prompt("search the web for cats", &[]);
    body["tools"] = json!([{"googleSearch": {}}]);
    let chunks = server.stream(MODEL, &body).await;
    let grounding = &chunks[chunks.len() - 1]["candidates"][0]["groundingMetadata"];
    assert_eq!(grounding["webSearchQueries"], json!(["cats"]));
    let answer = text(&chunks);
    for support in grounding["groundingSupports"].as_array().unwrap() {
        let segment = &support["segment"];
        let [start, end] =
            ["startIndex", "endIndex"].map(|key| segment[key].as_u64().unwrap() as usize);
        assert_eq!(segment["text"], answer[start..end]);
    }
}

#[tokio::test]
async fn pictures_are_drawn_where_images_are_wanted() {
    let server = Server::start().await;
    let mut body = prompt("draw a cat", &[]);
    body["generationConfig"] = json!({"responseModalities": ["TEXT", "IMAGE"]});
    let chunks = server.stream(MODEL, &body).await;
    assert_eq!(outline(&chunks), r#""Here is a cat." inlineData STOP"#);
    let picture = parts(&chunks).pop().unwrap();
    assert_eq!(picture["inlineData"]["mimeType"], "image/png");
    let data = picture["inlineData"]["data"].as_str().unwrap();
    assert!(data.starts_with("iVBORw0KGgo"), "no PNG");

    // What was drawn is seen when it comes back.
    let look = json!([{"role": "user", "parts": [picture, {"text": "what is in this image?"}]}]);
    let seen = text(&server.stream(MODEL, &ask(look, &[])).await);
    assert!(
        seen.starts_with("I see 1 image: image/png (") && seen.ends_with("256×256 pixels)."),
        "{seen}"
    );
}
