//! Roles: what a user may do besides using their own chats.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A role, as configurations and providers name it. `docs/access.md` has the table of what each may do.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Uses their own chats. Everybody has it.
    User,
    /// May answer questions that name them, in addition to those of their own chats.
    Approver,
    /// Reads the audit of everybody.
    Auditor,
    /// May do what an auditor may, and manages users.
    Admin,
}

/// The roles of one user; never without [`Role::User`].
#[derive(Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Vec<Role>", into = "Vec<Role>")]
pub struct Roles(u8);

/// A request that needs a role which its user does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "this needs the role {0}, which you do not have; whoever runs this bridge can give it to you"
)]
pub struct RoleNeeded(pub Role);

impl Role {
    const ALL: [Self; 4] = [Self::User, Self::Approver, Self::Auditor, Self::Admin];

    fn bit(self) -> u8 {
        match self {
            Self::User => 0,
            Self::Approver => 1,
            Self::Auditor => 2,
            Self::Admin => 4,
        }
    }
}

impl Roles {
    pub fn has(self, role: Role) -> bool {
        let implied = role == Role::Auditor && self.0 & Role::Admin.bit() > 0;
        implied || self.0 & role.bit() == role.bit()
    }

    /// Whether there is nothing to tell: everybody is a user.
    pub fn is_plain(&self) -> bool {
        self.0 == 0
    }

    /// Those that were given, without what they imply.
    pub fn given(self) -> impl Iterator<Item = Role> {
        let bits = self.0;
        let given = move |role: &Role| bits & role.bit() == role.bit();
        Role::ALL.into_iter().filter(given)
    }
}

impl FromIterator<Role> for Roles {
    fn from_iter<I: IntoIterator<Item = Role>>(roles: I) -> Self {
        let bits = roles.into_iter().fold(0, |bits, role| bits | role.bit());
        Self(bits)
    }
}

impl From<Vec<Role>> for Roles {
    fn from(roles: Vec<Role>) -> Self {
        roles.into_iter().collect()
    }
}

impl From<Roles> for Vec<Role> {
    fn from(roles: Roles) -> Self {
        roles.given().collect()
    }
}

impl fmt::Display for Role {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::User => "user",
            Self::Approver => "approver",
            Self::Auditor => "auditor",
            Self::Admin => "admin",
        })
    }
}

impl fmt::Debug for Roles {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_set().entries(self.given()).finish()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn an_admin_is_an_auditor_and_everybody_is_a_user() {
        use Role::{Admin, Approver, Auditor, User};
        for (given, has) in [
            (vec![], vec![User]),
            (vec![User], vec![User]),
            (vec![Approver], vec![User, Approver]),
            (vec![Auditor], vec![User, Auditor]),
            (vec![Admin], vec![User, Auditor, Admin]),
            (vec![Admin, Approver], vec![User, Approver, Auditor, Admin]),
        ] {
            let roles = Roles::from(given.clone());
            let found: Vec<_> = Role::ALL.into_iter().filter(|it| roles.has(*it)).collect();
            assert_eq!(found, has, "{given:?}");
            let text = serde_json::to_string(&roles).unwrap();
            assert_eq!(serde_json::from_str::<Roles>(&text).unwrap(), roles);
        }
        assert!(serde_json::from_str::<Roles>("[\"root\"]").is_err());
    }
}
