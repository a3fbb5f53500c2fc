//! The model's sentences about the results of its calls.

use std::borrow::Cow;

use adk_bridge_protocol::json_text::{Json, Level, text_of};
use serde_json::Value;
use serde_json::value::RawValue;

use super::request::{Attachment, ToolResult};

/// One sentence for each result.
pub(super) fn summary(results: &[ToolResult]) -> String {
    let sentences: Vec<_> = results.iter().map(sentence).collect();
    sentences.join(" ")
}

/// Says how many attachments there are, and what they are.
pub(super) fn describe(attachments: &[Attachment]) -> String {
    if attachments.is_empty() {
        return "I see no image: none was sent with your message.".into();
    }
    let images = attachments.iter().filter(|it| it.is_image()).count();
    let noun = match (images == attachments.len(), attachments.len()) {
        (true, 1) => "image",
        (true, _) => "images",
        (false, 1) => "file",
        (false, _) => "files",
    };
    let list: Vec<_> = attachments
        .iter()
        .map(|it| format!("{} ({})", it.mime_type, it.what))
        .collect();
    format!("I see {} {noun}: {}.", attachments.len(), list.join("; "))
}

fn sentence(result: &ToolResult) -> String {
    // Clients wrap the output of a tool in either of these.
    let wrapped = ["output", "result"].iter();
    let response = wrapped
        .filter_map(|key| result.response.get(key))
        .find(Json::is_object)
        .unwrap_or_else(|| result.response.clone());
    if let Some(error) = error_of(&result.response) {
        return failed(result, &error);
    }
    let whole = &response;
    let response = &small_fields(whole);
    let known = match result.name.as_str() {
        "get_weather" => weather(response),
        "process_payment" => payment(response),
        "roll_dice" => dice(response),
        "get_location" => location(response),
        "change_bgm" => music(result, response),
        "take_photo" => photo(result),
        "generate_image" => Some(format!(
            "Here is your picture of {}.",
            text_in(&result.args, "prompt").as_deref().unwrap_or("it")
        )),
        _ => None,
    };
    known
        .or_else(|| message(response))
        .unwrap_or_else(|| format!("{} returned {}.", result.name, excerpt(whole.text())))
}

/// The fields that fit into a sentence; longer ones are shown as an excerpt.
fn small_fields(response: &Json) -> Value {
    const SMALL_BYTES: usize = 4_096;
    let small = |raw: &RawValue| match raw.get() {
        text if text.len() <= SMALL_BYTES || text.starts_with('"') => {
            serde_json::from_str(text).unwrap_or_default()
        }
        _ => Value::Null,
    };
    let fields = response.fields().into_iter();
    let fields = fields.map(|(name, raw)| (name.into_owned(), small(raw)));
    Value::Object(fields.collect())
}

fn text_in(object: &Json, name: &str) -> Option<String> {
    Some(object.get(name)?.as_str()?.into_owned())
}

fn error_of(response: &Json) -> Option<String> {
    let error = response.get("error").filter(|error| !error.is_null())?;
    let said = error.as_str().map(Cow::into_owned);
    let said = said.or_else(|| text_in(&error, "message"));
    Some(said.unwrap_or_else(|| error.to_string()))
}

fn failed(result: &ToolResult, error: &str) -> String {
    let name = &result.name;
    let reason = text_in(&result.response, "reason").filter(|reason| !reason.is_empty());
    let lower = error.to_lowercase();
    let denied = ["denied", "rejected", "declined"]
        .iter()
        .any(|word| lower.contains(word));
    match (denied, reason) {
        (true, Some(reason)) => format!("You declined {name} ({reason}), so I did not run it."),
        (true, None) => format!("You declined {name}, so I did not run it."),
        (false, _) if lower.contains("not answered") => {
            format!("You did not answer about {name}, so it was not run.")
        }
        (false, _) => format!("{name} did not work: {}.", error.trim_end_matches('.')),
    }
}

fn weather(response: &Value) -> Option<String> {
    let celsius = ["temperatureCelsius", "tempC", "temperature"]
        .iter()
        .find_map(|key| response[key].as_f64())?;
    let place = ["location", "city"]
        .iter()
        .find_map(|key| response[key].as_str())?;
    let sky = ["condition", "conditions", "sky"]
        .iter()
        .find_map(|key| response[key].as_str());
    Some(match sky {
        Some(sky) => format!("It is {celsius} °C and {sky} in {place}."),
        None => format!("It is {celsius} °C in {place}."),
    })
}

fn payment(response: &Value) -> Option<String> {
    let (amount, recipient) = (&response["amount"], response["recipient"].as_str()?);
    let currency = response["currency"].as_str().unwrap_or("USD");
    let paid = format!("Paid {amount} {currency} to {recipient}.");
    Some(match &response["balance"] {
        Value::Null => paid,
        balance => format!("{paid} Your balance is {balance} USD."),
    })
}

fn dice(response: &Value) -> Option<String> {
    let rolls: Vec<_> = response["rolls"]
        .as_array()?
        .iter()
        .map(Value::to_string)
        .collect();
    Some(match &rolls[..] {
        [one] => format!("You rolled {one}."),
        _ => format!(
            "You rolled {}: {} in total.",
            rolls.join(", "),
            response["total"]
        ),
    })
}

fn location(response: &Value) -> Option<String> {
    let at = if response["coords"].is_object() {
        &response["coords"]
    } else {
        response
    };
    match (&at["latitude"], &at["longitude"]) {
        (Value::Number(latitude), Value::Number(longitude)) => {
            Some(match at["accuracy"].as_f64() {
                Some(metres) => {
                    format!("You are at {latitude}, {longitude}, give or take {metres:.0} m.")
                }
                None => format!("You are at {latitude}, {longitude}."),
            })
        }
        _ => at["city"]
            .as_str()
            .map(|city| format!("You are in {city}.")),
    }
}

fn music(result: &ToolResult, response: &Value) -> Option<String> {
    let track = response["track"].as_str().map(str::to_owned);
    let track = track.or_else(|| text_in(&result.args, "track_name"))?;
    Some(match response["success"] == false {
        true => format!("The music could not be changed to {track}."),
        false => format!("The music is {track}."),
    })
}

fn photo(result: &ToolResult) -> Option<String> {
    let urls = strings(result.response.raw())
        .into_iter()
        .filter_map(|text| Attachment::of_data_url(&text));
    let inside: Vec<_> = urls.collect();
    let all: Vec<_> = result.attachments.iter().chain(&inside).collect();
    let first = all.first()?;
    Some(format!(
        "I got your photo: {} ({}).",
        first.mime_type, first.what
    ))
}

fn strings(value: &RawValue) -> Vec<Cow<'_, str>> {
    match Level::of(value) {
        Level::Leaf(_) => text_of(value).into_iter().collect(),
        Level::Items(items) => items.into_iter().flat_map(strings).collect(),
        Level::Fields(fields) => fields.into_iter().flat_map(|(_, it)| strings(it)).collect(),
    }
}

/// Quotes the message of a result, if it has one.
fn message(response: &Value) -> Option<String> {
    let texts = [
        &response["message"],
        &response["result"],
        &response["output"],
    ];
    let text = texts.iter().find_map(|value| value.as_str())?.trim();
    match text.ends_with(['.', '!', '?', '。']) {
        true => Some(text.to_owned()),
        false => Some(format!("{text}.")),
    }
}

fn excerpt(text: &str) -> String {
    const SHOWN_CHARS: usize = 300;
    match text.char_indices().nth(SHOWN_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn results_become_sentences() {
        let cases = [
            (
                "get_weather",
                json!({"location": "Tokyo", "temperatureCelsius": 21, "condition": "sunny"}),
                "It is 21 °C and sunny in Tokyo.",
            ),
            (
                "get_weather",
                json!({"output": {"city": "Rome", "tempC": 20.5}}),
                "It is 20.5 °C in Rome.",
            ),
            (
                "get_weather",
                json!({"error": "\"Atlantis\" is not in my table"}),
                "get_weather did not work: \"Atlantis\" is not in my table.",
            ),
            (
                "process_payment",
                json!({"amount": 50, "currency": "USD", "recipient": "Hanako", "balance": 950}),
                "Paid 50 USD to Hanako. Your balance is 950 USD.",
            ),
            (
                "process_payment",
                json!({"error": "the user denied this call; it was not run"}),
                "You declined process_payment, so I did not run it.",
            ),
            (
                "process_payment",
                json!({"error": "the user denied this call; it was not run", "reason": "too much"}),
                "You declined process_payment (too much), so I did not run it.",
            ),
            (
                "process_payment",
                json!({"error": "this call was not answered; it was not run"}),
                "You did not answer about process_payment, so it was not run.",
            ),
            (
                "process_payment",
                json!({"error": {"message": "no wallet."}}),
                "process_payment did not work: no wallet.",
            ),
            (
                "search_database",
                json!({"message": "Found 10 users", "count": 10}),
                "Found 10 users.",
            ),
            (
                "update_database",
                json!({"message": "Database updated"}),
                "Database updated.",
            ),
            (
                "roll_dice",
                json!({"rolls": [3, 5], "total": 8}),
                "You rolled 3, 5: 8 in total.",
            ),
            (
                "roll_dice",
                json!({"rolls": [4], "total": 4}),
                "You rolled 4.",
            ),
            (
                "get_location",
                json!({"latitude": 35.6, "longitude": 139.7, "accuracy": 12.3}),
                "You are at 35.6, 139.7, give or take 12 m.",
            ),
            (
                "get_location",
                json!({"coords": {"latitude": 1, "longitude": 2}}),
                "You are at 1, 2.",
            ),
            (
                "change_bgm",
                json!({"success": true, "track": "jazz"}),
                "The music is jazz.",
            ),
            (
                "take_photo",
                json!({"photo": "data:image/jpeg;base64,AAAA"}),
                "I got your photo: image/jpeg (3 bytes).",
            ),
            ("take_photo", json!({"result": "no camera"}), "no camera."),
            (
                "generate_image",
                json!({}),
                "Here is your picture of a cat.",
            ),
            ("anything", json!({"result": "done!"}), "done!"),
            (
                "anything",
                json!({"a": [1, 2]}),
                "anything returned {\"a\":[1,2]}.",
            ),
        ];
        for (name, response, expected) in cases {
            let result = ToolResult {
                name: name.into(),
                args: json!({"prompt": "a cat"}).into(),
                response: response.into(),
                attachments: Vec::new(),
            };
            assert_eq!(summary(&[result]), expected);
        }
    }
}
