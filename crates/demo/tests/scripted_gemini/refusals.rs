//! What Google refuses is refused, in Google's form.

use serde_json::{Value, json};

use super::{MODEL, STRICT_MODEL, Server, ask, outline, parts, prompt, user};

fn model(parts: Value) -> Value {
    json!({"role": "model", "parts": parts})
}

fn call(name: &str) -> Value {
    json!({"functionCall": {"name": name, "args": {}}})
}

fn response(name: &str) -> Value {
    json!({"functionResponse": {"name": name, "response": {"result": "fine"}}})
}

fn responses(parts: Value) -> Value {
    json!({"role": "user", "parts": parts})
}

#[tokio::test]
async fn contents_that_google_refuses() {
    let server = Server::start().await;
    let count = "Please ensure that the number of function response parts is equal to the number of function call";
    let cases = [
        (
            json!([]),
            "* GenerateContentRequest.contents: contents is not specified",
        ),
        (
            json!([{"role": "user", "parts": []}]),
            "* GenerateContentRequest.contents[0].parts: contents.parts must not be empty.",
        ),
        (
            json!([{"role": "user", "parts": [{}]}]),
            "* GenerateContentRequest.contents[0].parts[0].data: required oneof",
        ),
        (
            json!([{"role": "user", "parts": [{"text": "a", "inlineData": {"mimeType": "a/b", "data": ""}}]}]),
            "Invalid value at 'contents[0].parts[0]' (oneof)",
        ),
        (
            json!([{"role": "robot", "parts": [{"text": "a"}]}]),
            "Please use a valid role: user, model.",
        ),
        (
            json!([user("a"), model(json!([{"text": "b"}]))]),
            "Please ensure that multiturn requests end with a user role",
        ),
        (
            json!([user("a"), model(json!([call("x")])), user("b")]),
            count,
        ),
        (
            json!([
                user("a"),
                model(json!([call("x"), call("y")])),
                responses(json!([response("x")]))
            ]),
            count,
        ),
        (
            json!([
                user("a"),
                model(json!([call("x")])),
                responses(json!([response("x"), response("x")]))
            ]),
            count,
        ),
        (
            json!([
                user("a"),
                model(json!([call("x"), call("y")])),
                responses(json!([response("x")])),
                responses(json!([response("y")]))
            ]),
            count,
        ),
        (
            json!([user("a"), responses(json!([response("x")]))]),
            "Please ensure that function response turn comes immediately after a function call",
        ),
        (
            json!([responses(json!([response("x")]))]),
            "Please ensure that function response turn comes immediately after a function call",
        ),
        (
            json!([model(json!([call("x")])), responses(json!([response("x")]))]),
            "Please ensure that function call turn comes immediately after a user turn",
        ),
        (
            json!([
                user("a"),
                model(json!([{"text": "b"}])),
                model(json!([call("x")])),
                responses(json!([response("x")]))
            ]),
            "Please ensure that function call turn comes immediately after a user turn",
        ),
        (
            json!([
                user("a"),
                model(json!([call("x")])),
                responses(json!([response("y")]))
            ]),
            "Please ensure that the function response names",
        ),
        (
            json!([
                user("a"),
                model(json!([{"functionCall": {"id": "1", "name": "x", "args": {}}}])),
                responses(json!([{"functionResponse": {"id": "2", "name": "x", "response": {}}}])),
            ]),
            "Please ensure that the function response ids",
        ),
        (
            json!([{"role": "user", "parts": [call("x")]}]),
            "Please ensure that function calls are made by the model role",
        ),
        (
            json!([
                user("a"),
                model(json!([{"functionCall": {"args": {}}}])),
                user("b")
            ]),
            "* GenerateContentRequest.contents[1].parts[0]: function name",
        ),
        (
            json!([
                user("a"),
                model(json!([call("x")])),
                responses(json!([{"functionResponse": {"name": "x"}}]))
            ]),
            "* GenerateContentRequest.contents[2].parts[0].function_response.response",
        ),
    ];
    for (contents, message) in cases {
        let (code, body) = server.refusal(MODEL, &json!({"contents": contents})).await;
        let error = &body["error"];
        assert_eq!(
            (code, &error["code"], &error["status"]),
            (400, &json!(400), &json!("INVALID_ARGUMENT")),
            "{contents}"
        );
        assert!(
            error["message"].as_str().unwrap().starts_with(message),
            "{contents}: {error}"
        );
    }
}

#[tokio::test]
async fn fields_that_google_does_not_know() {
    let server = Server::start().await;
    let contents = json!([user("hello")]);
    let with = |key: &str, value: Value| json!({"contents": contents, key: value});
    let part = |part: Value| json!({"contents": [{"role": "user", "parts": [part]}]});
    let cases = [
        (
            with("colour", json!("red")),
            "Unknown name \"colour\": Cannot find field.",
        ),
        (
            with("generationConfig", json!({"colour": 1})),
            "Unknown name \"colour\" at 'generation_config': Cannot find field.",
        ),
        (
            part(json!({"text": "a", "state": "done"})),
            "Unknown name \"state\" at 'contents[0].parts[0]': Cannot find field.",
        ),
        (
            part(json!({"functionCall": {"name": "a", "partialArgs": []}})),
            "Unknown name \"partialArgs\" at 'contents[0].parts[0].function_call': Cannot find field.",
        ),
        (
            with(
                "tools",
                json!([{"functionDeclarations": [{"name": "a", "parameters": {"type": "OBJECT", "$schema": "x"}}]}]),
            ),
            "Unknown name \"$schema\" at 'tools[0].function_declarations[0].parameters': Cannot find field.",
        ),
        (
            with(
                "tools",
                json!([{"functionDeclarations": [{"name": "a", "parameters": {"properties": {"b": {"const": 1}}}}]}]),
            ),
            "Unknown name \"const\" at 'tools[0].function_declarations[0].parameters.properties[b]': Cannot find field.",
        ),
        (
            part(json!({"text": 7})),
            "Invalid value at 'contents[0].parts[0].text' (TYPE_STRING), 7",
        ),
        (
            part(json!({"inlineData": {"mimeType": "a/b", "data": "!"}})),
            "Invalid value at 'contents[0].parts[0].inline_data.data' (TYPE_BYTES), Base64 decoding failed for \"!\"",
        ),
        (json!([1]), "Invalid value at '' (TYPE_MESSAGE), [1]"),
    ];
    for (body, message) in cases {
        let (code, answer) = server.refusal(MODEL, &body).await;
        let found = answer["error"]["message"].as_str().unwrap();
        assert_eq!(
            (code, answer["error"]["status"].as_str()),
            (400, Some("INVALID_ARGUMENT")),
            "{body}"
        );
        assert!(found.ends_with(message), "{found}");
    }
    // Both spellings, absent values, and free forms pass.
    let body = json!({
        "contents": [{"role": "user", "parts": [{"text": "say ok", "inline_data": null}]}],
        "system_instruction": {"parts": [{"text": "be brief"}]},
        "generation_config": {"max_output_tokens": 10},
        "tools": [{"function_declarations": [{"name": "a", "parametersJsonSchema": {"$schema": "x", "const": 1}}]}],
    });
    assert_eq!(outline(&server.stream(MODEL, &body).await), r#""ok" STOP"#);
}

#[tokio::test]
async fn signatures_come_back_unchanged() {
    let server = Server::start().await;
    let words = r#"call a {"n":50,"s":"x"} && call b"#;
    let said = parts(
        &server
            .stream(STRICT_MODEL, &prompt(words, &["a", "b"]))
            .await,
    );
    let signature = said[0]["thoughtSignature"].as_str().unwrap().to_owned();
    assert!(said[1].get("thoughtSignature").is_none());
    let url_safe = signature.replace('+', "-").replace('/', "_");
    let change = |change: &dyn Fn(&mut Vec<Value>)| {
        let mut said = said.clone();
        change(&mut said);
        said
    };
    let missing = "Function call is missing a thought_signature";
    let corrupted = "Corrupted thought signature.";
    let cases = [
        ("unchanged", said.clone(), None, None),
        (
            "in the other alphabet",
            change(&|said| said[0]["thoughtSignature"] = json!(url_safe)),
            None,
            None,
        ),
        (
            "args in another order",
            change(&|said| said[0]["functionCall"]["args"] = json!({"s": "x", "n": 50.0})),
            None,
            None,
        ),
        (
            "a pass",
            change(&|said| said[0]["thoughtSignature"] = json!("skip_thought_signature_validator")),
            None,
            None,
        ),
        (
            "lost",
            change(&|said| drop(said[0].as_object_mut().unwrap().remove("thoughtSignature"))),
            None,
            Some(missing),
        ),
        (
            "on the other call",
            change(&|said| {
                said[1]["thoughtSignature"] = said[0]
                    .as_object_mut()
                    .unwrap()
                    .remove("thoughtSignature")
                    .unwrap();
            }),
            Some(corrupted),
            Some(corrupted),
        ),
        (
            "other bytes",
            change(&|said| said[0]["thoughtSignature"] = json!("AAAA")),
            Some(corrupted),
            Some(corrupted),
        ),
        (
            "other args",
            change(&|said| said[0]["functionCall"]["args"]["n"] = json!(51)),
            Some(corrupted),
            Some(corrupted),
        ),
        (
            "on words",
            change(&|said| said.push(json!({"text": "a", "thoughtSignature": signature}))),
            Some(corrupted),
            Some(corrupted),
        ),
    ];
    for (what, said, second, third) in cases {
        let contents = json!([
            user(words),
            model(json!(said)),
            responses(json!([response("a"), response("b")]))
        ]);
        for (name, expected) in [(MODEL, second), (STRICT_MODEL, third)] {
            let (code, body) = server
                .refusal(name, &ask(contents.clone(), &["a", "b"]))
                .await;
            let message = body["error"]["message"].as_str();
            assert_eq!(
                code,
                if expected.is_some() { 400 } else { 200 },
                "{what}, {name}: {body}"
            );
            assert!(
                message
                    .unwrap_or_default()
                    .starts_with(expected.unwrap_or_default()),
                "{what}: {message:?}"
            );
        }
    }
    // A turn that is over may have lost them.
    let over = json!([
        user(words),
        model(json!([call("a")])),
        responses(json!([response("a")])),
        model(json!([{"text": "done"}])),
        user("say ok"),
    ]);
    assert_eq!(
        outline(&server.stream(STRICT_MODEL, &ask(over, &[])).await),
        r#""ok" STOP"#
    );
}

#[tokio::test]
async fn models_methods_and_bodies_that_do_not_exist() {
    let server = Server::start().await;
    let body = prompt("hello", &[]);
    for (target, code, status) in [
        ("gpt-5:generateContent", 404, "NOT_FOUND"),
        ("gemini-2.5-flash:generateContent", 404, "NOT_FOUND"),
        ("gemini-3.8-flash:fly", 404, "NOT_FOUND"),
        ("gemini-3.8-flash", 404, "NOT_FOUND"),
    ] {
        let response = server.post(target, &body).await;
        assert_eq!(response.status(), code, "{target}");
        assert_eq!(
            response.json::<Value>().await.unwrap()["error"]["status"],
            status,
            "{target}"
        );
    }
    let bodies = ["", "{", "{\"contents\":", &"[".repeat(100_000)];
    for text in bodies {
        let request = server.http.post(format!(
            "{}/v1beta/models/{MODEL}:generateContent?key=k",
            server.url
        ));
        let response = request.body(text.to_owned()).send().await.unwrap();
        assert_eq!(response.status(), 400);
        let answer: Value = response.json().await.unwrap();
        assert!(
            answer["error"]["message"]
                .as_str()
                .unwrap()
                .starts_with("Invalid JSON payload received.")
        );
    }
    let elsewhere = server
        .http
        .get(format!("{}/elsewhere", server.url))
        .send()
        .await
        .unwrap();
    assert_eq!(elsewhere.status(), 404);
}
