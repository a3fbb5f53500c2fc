//! `generate_image`: a drawing of what the prompt names.

use std::future::Future;
use std::pin::Pin;

use adk_bridge_agents::tool::{ServerTool, ToolCall, ToolSpec};
use adk_bridge_protocol::calls::{File, Outcome};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use super::{arguments, object, required_text};
use crate::picture;

/// A longer prompt is a text, not the description of a drawing.
const MAX_PROMPT_CHARS: usize = 2000;

pub(super) struct GenerateImage(ToolSpec);

impl GenerateImage {
    pub(super) fn new() -> Self {
        let schema = object(
            json!({"prompt": {
                "type": "string",
                "description": "What the picture shows, such as a cat.",
            }}),
            &["prompt"],
        );
        Self(ToolSpec {
            idempotent: true,
            ..ToolSpec::server(
                "generate_image",
                "Draws a picture and shows it to the user.",
                schema,
            )
        })
    }
}

impl ServerTool for GenerateImage {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    fn run(&self, call: ToolCall) -> Pin<Box<dyn Future<Output = Outcome> + Send + '_>> {
        Box::pin(async move {
            image(call)
                .await
                .unwrap_or_else(|text| Outcome::Error { text })
        })
    }
}

async fn image(call: ToolCall) -> Result<Outcome, String> {
    let prompt = required_text(&arguments(&call.input), "prompt")?.to_owned();
    if prompt.chars().count() > MAX_PROMPT_CHARS {
        return Err(format!(
            "`prompt` is longer than {MAX_PROMPT_CHARS} characters; shorten it"
        ));
    }
    let drawn = prompt.clone();
    // Drawing takes a few milliseconds of pure computation.
    let file = tokio::task::spawn_blocking(move || picture::draw(&drawn))
        .await
        .map_err(|error| error.to_string())?
        .map_err(|error| error.to_string())?;
    Ok(Outcome::Output {
        value: json!({
            "prompt": prompt,
            "mediaType": "image/png",
            "width": picture::SIDE,
            "height": picture::SIDE,
        })
        .into(),
        files: vec![File {
            media_type: "image/png".into(),
            url: format!("data:image/png;base64,{}", STANDARD.encode(file)),
        }],
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::tests::call;
    use super::*;

    #[tokio::test]
    async fn the_file_is_a_png_in_a_data_url() {
        let call = call(json!({"prompt": "a cat"}), &Arc::default());
        let Outcome::Output { value, files } = GenerateImage::new().run(call).await else {
            panic!("no output");
        };
        assert_eq!(value.to_value()["prompt"], "a cat");
        let [file] = &files[..] else {
            panic!("{} files", files.len());
        };
        assert_eq!(file.media_type, "image/png");
        let data = file.url.strip_prefix("data:image/png;base64,").unwrap();
        assert_eq!(
            STANDARD.decode(data).unwrap(),
            picture::draw("a cat").unwrap()
        );
    }

    #[tokio::test]
    async fn a_prompt_that_cannot_be_drawn_is_an_error() {
        let cases = [
            (json!({}), "`prompt` is missing"),
            (json!({"prompt": ""}), "`prompt` is missing"),
            (json!({"prompt": ["a cat"]}), "`prompt` must be a string"),
            (
                json!({"prompt": "x".repeat(2001)}),
                "`prompt` is longer than 2000 characters; shorten it",
            ),
        ];
        for (input, expected) in cases {
            let outcome = GenerateImage::new().run(call(input, &Arc::default())).await;
            assert_eq!(
                outcome,
                Outcome::Error {
                    text: expected.into()
                }
            );
        }
    }
}
