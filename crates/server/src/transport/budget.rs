//! The endpoint that shows a budget: what a user has used of agents today, and what is left.

use adk_bridge_protocol::id::UserId;
use axum::Json;
use axum::extract::{Query, State};
use schemars::JsonSchema;
use serde::Deserialize;

use super::access;
use super::error::AppError;
use crate::auth::Identity;
use crate::chat::Chats;
use crate::spending::BudgetState;

/// Whose budget.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct Of {
    /// Another user, for an administrator.
    #[schemars(with = "Option<String>")]
    user: Option<UserId>,
}

/// `GET /api/budget`: the budget of the user today.
pub async fn state(
    State(chats): State<Chats>,
    identity: Identity,
    Query(Of { user }): Query<Of>,
) -> Result<Json<BudgetState>, AppError> {
    let user = match user {
        Some(other) if other != identity.user => {
            access::require_admin(&identity)?;
            other
        }
        _ => identity.user,
    };
    Ok(Json(chats.budget_of(&user).await?))
}
