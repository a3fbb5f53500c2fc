//! What the fuzz targets read of chats: what a `tool_result` frame means for a call that waits for an approval.

use adk_bridge_protocol::wire::live::{ClientFrame, ToolStatus};

use super::tool_result::{Meaning, Situation, meaning};

/// Reads a frame for calls that wait for a decision. Only one that says so approves, and none that says the opposite.
pub fn tool_result(text: &str) {
    let Ok(ClientFrame::ToolResult(frame)) = ClientFrame::parse(text) else {
        return;
    };
    for (by_call, on_client) in [(false, false), (false, true), (true, false), (true, true)] {
        let asked = Situation::asked(by_call, on_client);
        if !matches!(meaning(&frame, asked), Meaning::Approve { .. }) {
            continue;
        }
        let word = |name: &str| frame.result.as_ref()?.get(name)?.as_bool();
        let status = frame.status == Some(ToolStatus::Approved);
        let says_yes = status || word("confirmed") == Some(true);
        assert!(says_yes, "nobody has said yes: {text}");
        let says_no = [word("confirmed"), word("approved")].contains(&Some(false));
        assert!(!says_no, "somebody has said no: {text}");
    }
}
