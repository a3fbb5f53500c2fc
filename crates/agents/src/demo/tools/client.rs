//! The tools that the front end runs: the model is told of them here.

use adk_bridge_protocol::calls::RunsOn;
use serde_json::{Value, json};

use super::object;
use crate::tool::ToolSpec;

pub(super) fn specs() -> Vec<ToolSpec> {
    vec![
        client_tool(
            "change_bgm",
            "Changes the background music that the user's page plays.",
            object(
                json!({"track_name": {
                    "type": "string",
                    "description": "The track or style to play, such as jazz.",
                }}),
                &["track_name"],
            ),
        ),
        client_tool(
            "get_location",
            "Asks the user's browser where it is. Returns latitude, longitude and accuracy.",
            object(json!({}), &[]),
        ),
        client_tool(
            "take_photo",
            "Takes a photo with the user's camera and returns it.",
            object(json!({}), &[]),
        ),
    ]
}

fn client_tool(name: &str, description: &str, input_schema: Value) -> ToolSpec {
    ToolSpec {
        name: name.to_owned(),
        description: description.to_owned(),
        input_schema,
        runs_on: RunsOn::Client,
        needs_approval: true,
        idempotent: false,
    }
}
