//! The tools that the front end runs, as the model sees them.

use adk_bridge_agents::tool::ToolSpec;
use serde_json::{Value, json};

use super::object;

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

/// Each tool uses the user's machine, so each asks first.
fn client_tool(name: &str, description: &str, input_schema: Value) -> ToolSpec {
    ToolSpec::client(name, description, input_schema).with_approval()
}
