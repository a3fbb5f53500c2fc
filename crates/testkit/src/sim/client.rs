//! The simulated front end: it answers, runs its tools, and decides whether to send.

use adk_bridge_protocol::dialect::Dialect;
use adk_bridge_protocol::event::REQUEST_CONFIRMATION;
use adk_bridge_protocol::id::{ApprovalId, CallId};
use adk_bridge_protocol::message::{Part, ToolPart, ToolState};
use serde_json::json;

use super::{Client, is_client_tool, needs_approval, predicates};

impl Client {
    /// The stream breaks off: what was folded stays.
    pub(super) fn cut(&mut self) {
        self.streaming = false;
        self.fold = None;
        self.reader = None;
    }

    /// The ids of approvals that wait for this client.
    pub fn requests_open(&self) -> Vec<ApprovalId> {
        self.tools()
            .filter(|tool| tool.state == ToolState::ApprovalRequested)
            .filter_map(|tool| tool.approval.as_ref()?.id.clone())
            .collect()
    }

    /// The approvals that this client has decided, and how.
    pub fn answered(&self) -> Vec<(ApprovalId, bool)> {
        self.tools()
            .filter(|tool| tool.state == ToolState::ApprovalResponded)
            .filter_map(|tool| {
                let field = tool.approval.as_ref()?;
                Some((field.id.clone()?, field.approved?))
            })
            .collect()
    }

    /// The client tools that this client may run, by the rule of a front end: after consent if consent is asked for.
    pub fn tools_to_run(&self) -> Vec<CallId> {
        let consented = |tool: &ToolPart| match tool.state {
            ToolState::InputAvailable => !self.awaits_consent(tool),
            ToolState::ApprovalResponded => {
                tool.approval.as_ref().and_then(|field| field.approved) == Some(true)
            }
            _ => false,
        };
        self.tools()
            .filter(|tool| is_client_tool(&tool.name) && consented(tool))
            .map(|tool| tool.call_id.clone())
            .collect()
    }

    /// In the `adk` dialect, the confirmation next to the call has the consent.
    fn awaits_consent(&self, tool: &ToolPart) -> bool {
        self.confirmation_of(&tool.call_id)
            .map_or(needs_approval(&tool.name), |confirmation| {
                confirmation
                    .approval
                    .as_ref()
                    .and_then(|field| field.approved)
                    != Some(true)
            })
    }

    fn confirmation_of(&self, call_id: &CallId) -> Option<&ToolPart> {
        self.tools().find(|tool| {
            tool.name == REQUEST_CONFIRMATION
                && tool
                    .input
                    .as_ref()
                    .and_then(|input| input.get("originalFunctionCall")?.get("id"))
                    == Some(call_id.as_str().into())
        })
    }

    /// `addToolApprovalResponse`.
    pub fn respond(&mut self, id: &ApprovalId, approved: bool) {
        self.edit(|tool| {
            if let Some(field) = &mut tool.approval
                && field.id.as_ref() == Some(id)
                && tool.state == ToolState::ApprovalRequested
            {
                field.approved = Some(approved);
                tool.state = ToolState::ApprovalResponded;
            }
        });
    }

    /// `addToolOutput`.
    pub fn put_output(&mut self, call_id: &CallId, fails: bool) {
        self.edit(|tool| {
            if tool.call_id == *call_id {
                if fails {
                    tool.state = ToolState::OutputError;
                    tool.error_text = Some("no camera".into());
                } else {
                    tool.state = ToolState::OutputAvailable;
                    tool.output = Some(json!({"from": call_id}).into());
                }
            }
        });
    }

    fn edit(&mut self, mut change: impl FnMut(&mut ToolPart)) {
        let message = match &mut self.fold {
            Some(fold) => fold.message_mut(),
            None => &mut self.message,
        };
        for part in &mut message.parts {
            if let Part::Tool(tool) = part {
                change(tool);
            }
        }
        if let Some(fold) = &mut self.fold {
            self.message = fold.message().clone();
        }
    }

    /// Whether `sendAutomaticallyWhen` sends: both stock helpers for `native`, the required order of checks for `adk`
    /// and `held`.
    pub fn would_send(&self, dialect: Dialect) -> bool {
        let messages = std::slice::from_ref(&self.message);
        match dialect {
            Dialect::Adk if self.last_step_has_confirmation() => self.would_send_adk(),
            Dialect::Held => self.would_send_held(),
            Dialect::Native | Dialect::Adk => {
                predicates::complete_with_tool_calls(messages)
                    || predicates::complete_with_approval_responses(messages)
            }
        }
    }

    fn last_step(&self) -> &[Part] {
        let start = self
            .message
            .parts
            .iter()
            .rposition(|part| matches!(part, Part::StepStart))
            .map_or(0, |index| index + 1);
        &self.message.parts[start..]
    }

    fn last_step_has_confirmation(&self) -> bool {
        self.last_step()
            .iter()
            .any(|part| matches!(part, Part::Tool(tool) if tool.name == REQUEST_CONFIRMATION))
    }

    /// The checks of docs/adr/0009 in their order: text, responded, pending, error, output, else send; an approved client tool waits.
    fn would_send_adk(&self) -> bool {
        let step = self.last_step();
        let tools = || {
            step.iter().filter_map(|part| match part {
                Part::Tool(tool) => Some(tool.as_ref()),
                _ => None,
            })
        };
        let confirmations = || tools().filter(|tool| tool.name == REQUEST_CONFIRMATION);
        let others = || tools().filter(|tool| tool.name != REQUEST_CONFIRMATION);
        if step.iter().any(|part| matches!(part, Part::Text(_)))
            || !confirmations().any(|tool| tool.state == ToolState::ApprovalResponded)
            || confirmations().any(|tool| tool.state == ToolState::ApprovalRequested)
        {
            return false;
        }
        let own_error = |tool: &ToolPart| is_client_tool(&tool.name);
        if others().any(|tool| tool.state == ToolState::OutputError && !own_error(tool)) {
            return false;
        }
        !others().any(|tool| {
            is_client_tool(&tool.name)
                && tool.state == ToolState::InputAvailable
                && !self.is_denied(&tool.call_id)
        })
    }

    /// Whether it has the output of a tool.
    pub(super) fn has_output(&self) -> bool {
        self.tools()
            .any(|tool| tool.state == ToolState::OutputAvailable)
    }

    /// The checks of docs/adr/0019 in their order, on the whole message.
    fn would_send_held(&self) -> bool {
        let has = |state: ToolState| self.tools().any(|tool| tool.state == state);
        let has_text = (self.message.parts.iter()).any(|part| matches!(part, Part::Text(_)));
        let is_asked = has(ToolState::ApprovalRequested);
        let is_answered = has(ToolState::ApprovalResponded);
        let has_output = self.has_output();
        if has_text && (has_output || !is_asked && !is_answered) {
            return false;
        }
        if !is_asked && !is_answered {
            return has_output;
        }
        let waits_for_output = |tool: &ToolPart| {
            tool.state == ToolState::ApprovalResponded
                && is_client_tool(&tool.name)
                && tool.approval.as_ref().and_then(|field| field.approved) == Some(true)
        };
        is_answered
            && !is_asked
            && !self.tools().any(waits_for_output)
            && (has_output || !self.sent.contains(&self.answered()))
            && !has(ToolState::OutputError)
    }

    /// The answered questions, unless exactly these were sent before.
    pub fn unsent_answers(&self) -> Vec<(ApprovalId, bool)> {
        let answered = self.answered();
        match self.sent.contains(&answered) {
            true => Vec::new(),
            false => answered,
        }
    }

    fn is_denied(&self, call_id: &CallId) -> bool {
        self.confirmation_of(call_id)
            .and_then(|tool| tool.approval.as_ref()?.approved)
            == Some(false)
    }

    pub fn tools(&self) -> impl Iterator<Item = &ToolPart> {
        self.message.parts.iter().filter_map(|part| match part {
            Part::Tool(tool) => Some(tool.as_ref()),
            _ => None,
        })
    }
}
