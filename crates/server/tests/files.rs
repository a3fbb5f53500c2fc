//! Files from outside: uploaded and fetched over HTTP, made by tools and models, sent by users, read back for the
//! model.

#![cfg(feature = "demo")]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on has failed"
)]

use std::path::Path;

use adk_bridge_protocol::base64;
use adk_bridge_testkit::served::{Bridge, of_type, read, says, text};
use adk_bridge_testkit::stand_in::{StandIn, events};
use adk_bridge_testkit::users::{ALICE_KEY as ALICE, BOB_KEY as BOB, KEYS};
use reqwest::Method;
use serde_json::{Value, json};
use tempfile::TempDir;

const FAST: &str = "[demo]\npace = \"0ms\"\n";
/// The smallest PNG: one pixel.
const PIXEL: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNk+A8AAQUBAScY42YAAAAASUVORK5CYII=";

#[tokio::test]
async fn a_file_goes_in_and_out_and_belongs_to_its_owner() {
    let dir = TempDir::new().unwrap();
    let config = format!("[server]\nmax_body_bytes = 1000\n{KEYS}{FAST}");
    let mut bridge = Bridge::serve(dir.path(), &config);
    assert_eq!(bridge.get("/api/files/x").await.status(), 401);
    bridge.with_key(ALICE);

    let sent = upload(&bridge, "text/html", b"<b>0123456789</b>".to_vec()).await;
    assert_eq!(sent.0, 201);
    let url = &format!("/api/files/{}", sent.1["id"].as_str().unwrap());
    let signed = sent.1["url"].as_str().unwrap();
    assert!(signed.starts_with(&format!("{url}?e=")), "{signed}");
    assert_eq!(
        (&sent.1["mediaType"], &sent.1["bytes"]),
        (&json!("text/plain"), &json!(17))
    );
    let got = bridge.get(url).await;
    assert_eq!(got.status(), 200);
    for (name, value) in [
        ("content-type", "text/plain; charset=utf-8"),
        ("content-disposition", "inline"),
        ("x-content-type-options", "nosniff"),
        ("cache-control", "private, max-age=31536000, immutable"),
    ] {
        assert_eq!(got.headers()[name], value);
    }
    assert_eq!(got.text().await.unwrap(), "<b>0123456789</b>");
    let part = bridge
        .request(Method::GET, url)
        .header("range", "bytes=3-5")
        .send()
        .await
        .unwrap();
    assert_eq!(part.status(), 206);
    assert_eq!(part.headers()["content-range"], "bytes 3-5/17");
    let tag = part.headers()["etag"].to_str().unwrap().to_owned();
    assert_eq!(part.text().await.unwrap(), "012");
    // A download is continued only if it is of the same content; what is there is not sent again.
    let other = "\"other\"".to_owned();
    let date = "Wed, 18 Nov 2026 07:00:00 GMT".to_owned();
    for (name, value, status) in [
        ("if-range", &tag, 206),
        ("if-range", &other, 200),
        ("if-range", &date, 200),
        ("if-none-match", &tag, 304),
        ("if-none-match", &format!("{other}, W/{tag}"), 304),
        ("if-none-match", &other, 206),
    ] {
        let got = bridge
            .request(Method::GET, url)
            .header("range", "bytes=3-5");
        let got = got.header(name, value).send().await.unwrap();
        assert_eq!(got.status(), status, "{name}: {value}");
        assert_eq!(got.headers()["etag"], *tag, "{name}: {value}");
    }

    let form = "--edge\r\ncontent-disposition: form-data; name=\"note\"\r\n\r\nhi\r\n\
                --edge\r\ncontent-disposition: form-data; name=\"file\"; filename=\"a/b.pdf\"\r\n\
                content-type: application/pdf\r\n\r\n%PDF-1.7\n\r\n--edge--\r\n";
    let (status, sent) = upload(
        &bridge,
        "multipart/form-data; boundary=edge",
        form.as_bytes().to_vec(),
    )
    .await;
    assert_eq!(
        (status, &sent["mediaType"]),
        (201, &json!("application/pdf"))
    );
    let pdf = bridge.get(sent["url"].as_str().unwrap()).await;
    assert_eq!(
        pdf.headers()["content-disposition"],
        "attachment; filename*=UTF-8''b.pdf"
    );

    let refused: &[(&str, Vec<u8>, u16, &str)] = &[
        ("text/plain", vec![b'x'; 1001], 413, "too_large"),
        ("image/png", b"no picture".to_vec(), 415, "bad_media_type"),
        (
            "multipart/form-data; boundary=edge",
            b"--edge--\r\n".to_vec(),
            400,
            "bad_form",
        ),
        (
            "multipart/form-data; boundary=edge",
            form.replace("%PDF-1.7", &"%".repeat(20_000)).into_bytes(),
            413,
            "too_large",
        ),
    ];
    for (kind, content, status, code) in refused {
        let (found, body) = upload(&bridge, kind, content.clone()).await;
        assert_eq!(
            (found, &body["error"]["code"]),
            (*status, &json!(code)),
            "{kind}"
        );
    }
    let nowhere = bridge.post("/api/files", &json!({})).await;
    assert_eq!(nowhere.status(), 422);
    bridge.with_key(BOB);
    assert_eq!(bridge.get(url).await.status(), 404);
}

#[tokio::test]
async fn a_tools_picture_is_a_file_of_its_chat() {
    let dir = TempDir::new().unwrap();
    let bridge = Bridge::serve(dir.path(), FAST);
    let native = bridge.say("native", says("draw a cat"), "native").await;
    let url = of_type(&native, "file")[0]["url"].as_str().unwrap();
    let picture = picture(&bridge, url).await;

    // Consent may be asked for, so that everything comes at the end.
    let adk = bridge.say("adk", says("draw a cat"), "adk").await;
    assert_eq!(images(&adk), [picture.as_str()]);
    assert_eq!(
        kept_images(&bridge, "adk?dialect=adk").await,
        [picture.as_str()]
    );
    drop(bridge);

    let tools = format!("[agent]\ntools = [\"generate_image\"]\n{FAST}");
    let bridge = Bridge::serve(dir.path(), &tools);
    let streamed = bridge.say("streamed", says("draw a cat"), "adk").await;
    assert_eq!(images(&streamed), [picture.as_str()]);

    assert_eq!(bridge.get(url).await.status(), 200);
    let deleted = bridge.request(Method::DELETE, "/api/chats/native");
    assert_eq!(deleted.send().await.unwrap().status(), 204);
    assert_eq!(bridge.get(url).await.status(), 404);
    assert_eq!(contents(dir.path()), 2);
}

#[tokio::test]
async fn a_users_picture_is_stored_once_and_sent_to_the_model() {
    let dir = TempDir::new().unwrap();
    let bridge = Bridge::serve(dir.path(), FAST);
    let inline = format!("data:image/png;base64,{PIXEL}");
    let parts = json!([
        {"type": "text", "text": "what is in this image?"},
        {"type": "file", "mediaType": "image/png", "url": inline, "filename": "pixel.png"},
    ]);
    let bytes = base64::decode(PIXEL).unwrap().len();
    let seen = format!("image/png ({bytes} bytes");
    // The second time the client sends the same message again, as it does to regenerate the answer.
    for _ in 0..2 {
        let answer = text(&bridge.say("c", parts.clone(), "native").await);
        assert!(answer.contains(&seen), "{answer}");
    }
    assert_eq!(contents(dir.path()), 1);
    let kept = bridge.json("/api/chats/c").await;
    assert_eq!(kept["messages"].as_array().unwrap().len(), 2);
    let file = &kept["messages"][0]["parts"][1];
    let url = file["url"].as_str().unwrap();
    assert_eq!(file["filename"], "pixel.png");
    assert_eq!(picture(&bridge, url).await, PIXEL);

    // An uploaded file is named by its address, in its own chat only.
    let by_address = |url: &str| {
        json!([
            {"type": "text", "text": "what is in this image?"},
            {"type": "file", "mediaType": "image/png", "url": url},
        ])
    };
    let (_, sent) = upload(&bridge, "image/png", base64::decode(PIXEL).unwrap()).await;
    let uploaded = sent["url"].as_str().unwrap();
    let answer = text(&bridge.say("uploads", by_address(uploaded), "native").await);
    assert!(answer.contains(&seen), "{answer}");
    for foreign in [uploaded, "/api/files/00000000000000000000000000000000"] {
        let message = json!({"id": "f", "role": "user", "parts": by_address(foreign)});
        let body = json!({"id": "other", "messages": [message]});
        let refused = bridge.post("/api/chat", &body).await;
        assert_eq!(refused.status(), 422);
        assert_eq!(refused.headers()["x-error-code"], "unknown_file");
    }
}

#[tokio::test]
async fn a_models_picture_is_a_file_and_the_model_gets_it_back() {
    let model = painter().await;
    let dir = TempDir::new().unwrap();
    let config = format!(
        "[agent]\nkind = \"gemini\"\nbase_url = \"http://{}\"\napi_key_env = \"MODEL_KEY\"\n",
        model.address
    );
    let bridge = Bridge::serve_with(dir.path(), &config, &[("MODEL_KEY", "secret")]);
    let native = bridge.say("c", says("draw"), "native").await;
    let url = of_type(&native, "file")[0]["url"].as_str().unwrap();
    assert_eq!(picture(&bridge, url).await, PIXEL);
    let adk = bridge.say("c", says("again"), "adk").await;
    assert_eq!(images(&adk), [PIXEL]);
    let asked = model.asked("streamGenerateContent");
    let contents = asked[1].body["contents"].as_array().unwrap();
    assert_eq!(
        contents[1]["parts"],
        json!([{"inlineData": {"mimeType": "image/png", "data": PIXEL}}])
    );
}

async fn upload(bridge: &Bridge, kind: &str, content: Vec<u8>) -> (u16, Value) {
    let response = bridge
        .request(Method::POST, "/api/files?chat=uploads")
        .header("content-type", kind)
        .body(content)
        .send()
        .await
        .unwrap();
    (response.status().as_u16(), read(response).await)
}

/// The base64 of a PNG that the bridge serves.
async fn picture(bridge: &Bridge, url: &str) -> String {
    let response = bridge.get(url).await;
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["content-type"], "image/png");
    base64::encode(&response.bytes().await.unwrap())
}

fn images(chunks: &[Value]) -> Vec<String> {
    let images = of_type(chunks, "data-image");
    let data = |image: &&Value| image["data"]["data"].as_str().unwrap().to_owned();
    images.iter().map(data).collect()
}

async fn kept_images(bridge: &Bridge, chat: &str) -> Vec<String> {
    let kept = bridge.json(&format!("/api/chats/{chat}")).await;
    images(kept["messages"][1]["parts"].as_array().unwrap())
}

/// How many files have content.
fn contents(dir: &Path) -> usize {
    let shelves = std::fs::read_dir(dir.join("data/files")).unwrap();
    shelves
        .map(|shelf| shelf.unwrap().path())
        .filter(|shelf| shelf.is_dir())
        .map(|shelf| std::fs::read_dir(shelf).unwrap().count())
        .sum()
}

/// A model that always draws one pixel.
async fn painter() -> StandIn {
    let part = json!({"inlineData": {"mimeType": "image/png", "data": PIXEL}});
    let chunk = json!({"candidates": [
        {"content": {"role": "model", "parts": [part]}, "finishReason": "STOP"},
    ]});
    StandIn::start(move |_| events(format!("data: {chunk}\r\n\r\n"))).await
}
