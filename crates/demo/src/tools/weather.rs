//! `get_weather`: a table of cities whose weather never changes.

use std::future::Future;
use std::pin::Pin;

use adk_bridge_agents::tool::{ServerTool, ToolCall, ToolSpec};
use adk_bridge_protocol::calls::Outcome;
use serde_json::{Value, json};

use super::{arguments, object, outcome, required_text};

pub(super) struct GetWeather(ToolSpec);

impl GetWeather {
    pub(super) fn new() -> Self {
        let schema = object(
            json!({"location": {
                "type": "string",
                "description": "The city, such as Tokyo. A country may follow after a comma.",
            }}),
            &["location"],
        );
        Self(ToolSpec {
            idempotent: true,
            ..ToolSpec::server(
                "get_weather",
                "Returns the current weather in a city.",
                schema,
            )
        })
    }
}

impl ServerTool for GetWeather {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    fn run(&self, call: ToolCall) -> Pin<Box<dyn Future<Output = Outcome> + Send + '_>> {
        Box::pin(async move { outcome(weather(&arguments(&call.input))) })
    }
}

struct City {
    name: &'static str,
    other_names: &'static [&'static str],
    celsius: i32,
    sky: &'static str,
    /// In percent.
    humidity: u32,
}

const CITIES: &[City] = &[
    city("Tokyo", &["東京"], 21, "sunny", 48),
    city("Osaka", &["大阪"], 22, "partly cloudy", 55),
    city("Kyoto", &["京都"], 20, "cloudy", 60),
    city("Sapporo", &["札幌"], 9, "snowy", 71),
    city("Paris", &["パリ"], 17, "cloudy", 66),
    city("London", &["ロンドン"], 14, "rainy", 82),
    city("Berlin", &["ベルリン"], 15, "partly cloudy", 61),
    city("Madrid", &[], 26, "sunny", 34),
    city("Rome", &["roma"], 24, "sunny", 45),
    city("Zurich", &["zürich"], 13, "foggy", 79),
    city("Reykjavik", &["reykjavík"], 6, "windy", 74),
    city(
        "New York",
        &["new york city", "nyc", "ニューヨーク"],
        18,
        "clear",
        52,
    ),
    city("San Francisco", &["サンフランシスコ"], 16, "foggy", 77),
    city("Chicago", &[], 12, "windy", 58),
    city("Mexico City", &[], 23, "partly cloudy", 47),
    city("São Paulo", &["sao paulo"], 25, "stormy", 80),
    city("Cairo", &[], 31, "sunny", 22),
    city("Nairobi", &[], 24, "clear", 50),
    city("Mumbai", &[], 30, "humid", 85),
    city("Singapore", &["シンガポール"], 29, "stormy", 84),
    city("Seoul", &["ソウル"], 19, "clear", 49),
    city("Sydney", &["シドニー"], 22, "sunny", 57),
];

fn weather(input: &Value) -> Result<Value, String> {
    let location = required_text(input, "location")?;
    // A country or a region may follow the city.
    let wanted = location
        .split(',')
        .next()
        .unwrap_or(location)
        .trim()
        .to_lowercase();
    let city = CITIES
        .iter()
        .find(|city| city.name.to_lowercase() == wanted || city.other_names.contains(&&*wanted))
        .ok_or_else(|| {
            let known = CITIES[..5].iter().map(|city| city.name).collect::<Vec<_>>();
            format!(
                "{location:?} is not in my table of cities; try {}",
                known.join(", ")
            )
        })?;
    Ok(json!({
        "location": city.name,
        "temperatureCelsius": city.celsius,
        "condition": city.sky,
        "humidityPercent": city.humidity,
    }))
}

const fn city(
    name: &'static str,
    other_names: &'static [&'static str],
    celsius: i32,
    sky: &'static str,
    humidity: u32,
) -> City {
    City {
        name,
        other_names,
        celsius,
        sky,
        humidity,
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::run;
    use super::*;

    #[tokio::test]
    async fn cities_are_found_by_every_name() {
        let cases = [
            (json!({"location": "Tokyo"}), Ok(("Tokyo", 21, "sunny"))),
            (
                json!({"location": " tokyo , Japan"}),
                Ok(("Tokyo", 21, "sunny")),
            ),
            (json!({"location": "東京"}), Ok(("Tokyo", 21, "sunny"))),
            (json!({"location": "NYC"}), Ok(("New York", 18, "clear"))),
            (
                json!({"location": "são paulo"}),
                Ok(("São Paulo", 25, "stormy")),
            ),
            (
                json!({"location": "Atlantis"}),
                Err("\"Atlantis\" is not in my table"),
            ),
            (json!({"location": "  "}), Err("`location` is missing")),
            (json!({"location": 7}), Err("`location` must be a string")),
            (json!({}), Err("`location` is missing")),
        ];
        for (input, expected) in cases {
            match (run(&GetWeather::new(), input.clone()).await, expected) {
                (Ok(found), Ok((name, celsius, sky))) => {
                    assert_eq!(found["location"], name);
                    assert_eq!(found["temperatureCelsius"], celsius);
                    assert_eq!(found["condition"], sky);
                }
                (Err(found), Err(start)) => assert!(found.starts_with(start), "{found}"),
                (found, _) => panic!("{input}: {found:?}"),
            }
        }
    }

    #[test]
    fn other_names_are_lower_case_or_they_are_never_found() {
        for name in CITIES.iter().flat_map(|city| city.other_names) {
            assert_eq!(*name, name.to_lowercase());
        }
    }
}
