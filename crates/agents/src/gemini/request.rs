//! The body of a `generateContent` request.

use adk_bridge_protocol::event::Content;
use serde::Serialize;
use serde_json::Value;

use crate::agent::{AgentError, Request};
use crate::tool::ToolSpec;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Body<'b> {
    contents: &'b [Content<'b>],
    #[serde(skip_serializing_if = "Option::is_none")]
    system_instruction: Option<Content<'b>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Tools<'b>>,
    generation_config: GenerationConfig,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Tools<'b> {
    function_declarations: Vec<Declaration<'b>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Declaration<'b> {
    name: &'b str,
    description: &'b str,
    parameters_json_schema: &'b Value,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct GenerationConfig {
    thinking_config: ThinkingConfig,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ThinkingConfig {
    include_thoughts: bool,
}

pub(super) fn body(
    request: &Request<'_>,
    instruction: Option<&str>,
) -> Result<Vec<u8>, AgentError> {
    let body = Body {
        contents: &request.contents,
        system_instruction: instruction.map(|text| Content {
            role: None,
            parts: vec![adk_bridge_protocol::event::Part::text(text)].into(),
        }),
        tools: declarations(request.tools),
        generation_config: GenerationConfig {
            thinking_config: ThinkingConfig {
                include_thoughts: true,
            },
        },
    };
    serde_json::to_vec(&body).map_err(|error| AgentError {
        message: "the conversation cannot be sent to the model".into(),
        detail: error.to_string(),
    })
}

fn declarations(tools: &[ToolSpec]) -> Vec<Tools<'_>> {
    if tools.is_empty() {
        return Vec::new();
    }
    let function_declarations = tools
        .iter()
        .map(|tool| Declaration {
            name: &tool.name,
            description: &tool.description,
            parameters_json_schema: &tool.input_schema,
        })
        .collect();
    vec![Tools {
        function_declarations,
    }]
}
