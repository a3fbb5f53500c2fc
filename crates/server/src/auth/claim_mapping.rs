//! Who a token is about: the user's id, roles and claims, from what the token says.

use std::collections::BTreeSet;

use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::jwt::{self, TokenError};
use super::{Claims, Identity, Roles};
use crate::config::RoleNames;

/// OpenID providers give a user an id of at most 255 bytes.
const MAX_NAME_BYTES: usize = 255;

/// What would mean something else in an address, or would be hard to see in a log.
const ESCAPED: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'%')
    .add(b'/')
    .add(b'<')
    .add(b'>')
    .add(b'?')
    .add(b'\\')
    .add(b'`');

/// The claim that names a user only together with the next one.
const EMAIL: &str = "email";
const VERIFIED: &str = "email_verified";

/// Claims that are lists of words by their own definition. All others are taken as a whole: a group may have two words.
const LISTS_OF_WORDS: [&str; 2] = ["scope", "scp"];

/// What is shown to the users themselves.
const DISPLAYED: [&str; 3] = ["name", "preferred_username", "email"];

/// How much of the groups of a user is kept with a login; those that give a role come first.
const MAX_GROUP_BYTES: usize = 8 * 1024;

/// The groups of a user as a claim had them, which a configuration gives roles to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Groups {
    claim: String,
    words: Vec<String>,
}

impl Groups {
    pub(super) fn words(&self) -> &[String] {
        &self.words
    }
}

/// How the tokens of one source tell who their users are.
#[derive(Debug)]
pub(super) struct ClaimMapping {
    /// What the ids of its users begin with, so that those of two sources differ.
    source: String,
    user_claim: String,
    roles_claim: Option<String>,
    roles: RoleNames,
    /// The claims that some agent needs. No others are kept.
    kept: BTreeSet<String>,
}

impl ClaimMapping {
    pub(super) fn new(
        source: &str,
        user_claim: &str,
        roles: (Option<&str>, &RoleNames),
        kept: &BTreeSet<String>,
    ) -> Self {
        Self {
            source: source.to_owned(),
            user_claim: user_claim.to_owned(),
            roles_claim: roles.0.map(str::to_owned),
            roles: roles.1.clone(),
            kept: kept.clone(),
        }
    }

    /// The user of a token that was checked.
    pub(super) fn identity(
        &self,
        claims: &jwt::Claims,
        via: &'static str,
    ) -> Result<Identity, TokenError> {
        let name = found(&claims.0, &self.user_claim).and_then(Value::as_str);
        let name = name.unwrap_or_default();
        if name.is_empty() || name.len() > MAX_NAME_BYTES {
            return Err(TokenError::NoUser(self.user_claim.clone()));
        }
        // An address that nobody has checked may be anybody's.
        if self.user_claim == EMAIL && via != super::proxy::VIA && !is_verified(claims) {
            return Err(TokenError::Unverified);
        }
        let kept = self.kept.iter().filter_map(|name| {
            let value = found(&claims.0, name)?;
            let claim = Claims::new([(name.clone(), value.clone())]).ok();
            if claim.is_none() {
                tracing::debug!(claim = name, "a claim of a token is too large to be kept");
            }
            claim.map(|_| (name.clone(), value.clone()))
        });
        let identity = Identity::new(user_id(&self.source, name), via)
            .with_roles(self.roles_in(claims))
            .with_claims(Claims::new(kept).unwrap_or_default());
        Ok(identity)
    }

    /// Whether a token has all that is looked for in it.
    pub(super) fn is_complete(&self, claims: &jwt::Claims) -> bool {
        let has = |name: &String| found(&claims.0, name).is_some();
        let says_whether_verified = self.user_claim != EMAIL || claims.0.contains_key(VERIFIED);
        has(&self.user_claim)
            && says_whether_verified
            && self.roles_claim.iter().all(has)
            && self.kept.iter().all(has)
    }

    fn roles_in(&self, claims: &jwt::Claims) -> Roles {
        let words = self.words_in(claims).into_iter();
        words.flat_map(|word| self.roles.of(word)).collect()
    }

    /// What a login keeps, so that its roles are those of the configuration at any time.
    pub(super) fn groups(&self, claims: &jwt::Claims) -> Groups {
        let mut words = self.words_in(claims);
        words.sort_by_key(|word| self.roles.of(word).is_empty());
        let mut left = MAX_GROUP_BYTES;
        let kept = words.into_iter().take_while(|word| {
            let fits = word.len() <= left;
            left = left.saturating_sub(word.len());
            fits
        });
        Groups {
            claim: self.roles_claim.clone().unwrap_or_default(),
            words: kept.map(str::to_owned).collect(),
        }
    }

    /// The roles of groups that were found before. What another claim had says nothing of this one.
    pub(super) fn roles_of(&self, groups: &Groups) -> Roles {
        if self.roles_claim.as_ref() != Some(&groups.claim) {
            return Roles::default();
        }
        let words = groups.words.iter();
        words.flat_map(|word| self.roles.of(word)).collect()
    }

    fn words_in<'c>(&self, claims: &'c jwt::Claims) -> Vec<&'c str> {
        let Some(name) = &self.roles_claim else {
            return Vec::new();
        };
        match found(&claims.0, name) {
            Some(Value::String(text)) if LISTS_OF_WORDS.contains(&name.as_str()) => {
                text.split(' ').collect()
            }
            Some(Value::String(text)) => vec![text],
            Some(Value::Array(several)) => several.iter().filter_map(Value::as_str).collect(),
            _ => Vec::new(),
        }
    }
}

/// What a page may call a user.
pub(super) fn display_name(claims: &jwt::Claims) -> Option<String> {
    let mut names = DISPLAYED.iter().filter_map(|name| claims.text(name));
    let name = names.find(|name| !name.trim().is_empty())?;
    Some(name.chars().take(MAX_NAME_BYTES).collect())
}

/// The id of a user of a source: the source cannot contain the colon, so no two sources share an id.
pub(super) fn user_id(source: &str, name: &str) -> String {
    format!("{source}:{}", utf8_percent_encode(name, ESCAPED))
}

/// Adds what else is known of the user of a token. What the token says is signed, and counts; and that an address is verified
/// says nothing of another one.
pub(super) fn complete(claims: &mut jwt::Claims, mut more: Map<String, Value>) {
    let address = claims.0.get(EMAIL);
    if address.is_some() && address != more.get(EMAIL) {
        more.remove(VERIFIED);
    }
    for (name, value) in more {
        claims.0.entry(name).or_insert(value);
    }
}

fn is_verified(claims: &jwt::Claims) -> bool {
    match claims.0.get(VERIFIED) {
        Some(Value::Bool(is_verified)) => *is_verified,
        // Some providers write it as text.
        Some(Value::String(word)) => word == "true",
        _ => false,
    }
}

/// A claim by its name, or within an object: `realm_access.roles`. Names have dots, too, so the longest that is there counts:
/// `resource_access.my.client.roles`, `https://x.example/claims.roles`.
fn found<'c>(claims: &'c Map<String, Value>, name: &str) -> Option<&'c Value> {
    claims.get(name).or_else(|| {
        let dots = name.rmatch_indices('.');
        let mut within = dots.filter_map(|(dot, _)| {
            let inner = claims.get(&name[..dot])?.as_object()?;
            found(inner, &name[dot + 1..])
        });
        within.next()
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::auth::Role;

    fn mapping(user: &str, roles: Option<&str>) -> ClaimMapping {
        let names =
            json!({"admins": "admin", "Domain Admins": ["auditor", "approver"], "Admins": "admin"});
        let names = serde_json::from_value(names).unwrap();
        let kept = ["email".to_owned(), "groups".to_owned()].into();
        ClaimMapping::new("corp", user, (roles, &names), &kept)
    }

    fn of(mapping: &ClaimMapping, claims: Value) -> Result<Identity, TokenError> {
        let claims = serde_json::from_value(claims).unwrap();
        mapping.identity(&jwt::Claims(claims), "oidc")
    }

    #[test]
    fn no_two_sources_share_an_id() {
        assert_eq!(user_id("corp", "alice"), "corp:alice");
        assert_eq!(user_id("corp", "a:b"), "corp:a:b");
        assert_eq!(user_id("corp", "x/y %\n"), "corp:x%2Fy%20%25%0A");
        assert_eq!(user_id("corp", "é@x"), "corp:%C3%A9@x");
    }

    #[test]
    fn the_claim_that_names_the_user_must_be_there() {
        for (claim, claims, user) in [
            ("sub", json!({"sub": "alice"}), Some("corp:alice")),
            ("sub", json!({"sub": ""}), None),
            ("sub", json!({"sub": 7}), None),
            ("sub", json!({}), None),
            ("sub", json!({"sub": "x".repeat(256)}), None),
            (
                "email",
                json!({"email": "a@x", "email_verified": true}),
                Some("corp:a@x"),
            ),
            (
                "email",
                json!({"email": "a@x", "email_verified": false}),
                None,
            ),
            ("email", json!({"email": "a@x"}), None),
        ] {
            let found = of(&mapping(claim, None), claims.clone());
            let found = found.ok().map(|it| it.user.to_string());
            assert_eq!(found.as_deref(), user, "{claims}");
        }
    }

    #[test]
    fn an_address_is_asked_about_until_it_is_known_whether_it_is_verified() {
        let mapping = ClaimMapping::new(
            "corp",
            "email",
            (None, &RoleNames::default()),
            &BTreeSet::new(),
        );
        let claims = |json: Value| jwt::Claims(serde_json::from_value(json).unwrap());
        for (token, more, is_complete, user) in [
            (
                json!({"email": "a@x"}),
                json!({"email": "a@x", "email_verified": true}),
                false,
                Some("corp:a@x"),
            ),
            (
                json!({"email": "a@x"}),
                json!({"email": "b@x", "email_verified": true}),
                false,
                None,
            ),
            (
                json!({"email": "a@x"}),
                json!({"email_verified": true}),
                false,
                None,
            ),
            (
                json!({}),
                json!({"email": "b@x", "email_verified": true}),
                false,
                Some("corp:b@x"),
            ),
            (
                json!({"email": "a@x", "email_verified": false}),
                json!({"email_verified": true}),
                true,
                None,
            ),
            (
                json!({"email": "a@x", "email_verified": true}),
                json!({}),
                true,
                Some("corp:a@x"),
            ),
        ] {
            let mut found = claims(token.clone());
            assert_eq!(mapping.is_complete(&found), is_complete, "{token}");
            complete(&mut found, claims(more.clone()).0);
            let found = mapping.identity(&found, "login").ok();
            let found = found.map(|it| it.user.to_string());
            assert_eq!(found.as_deref(), user, "{token} {more}");
        }
    }

    #[test]
    fn only_a_whole_name_gives_a_role() {
        for (claim, value, roles) in [
            (
                "groups",
                json!(["admins", "staff"]),
                vec![Role::User, Role::Admin],
            ),
            ("groups", json!("admins"), vec![Role::User, Role::Admin]),
            ("groups", json!("staff admins"), vec![Role::User]),
            (
                "groups",
                json!(["Domain Admins"]),
                vec![Role::User, Role::Approver, Role::Auditor],
            ),
            ("groups", json!({"admins": true}), vec![Role::User]),
            ("groups", json!([["admins"]]), vec![Role::User]),
            (
                "scope",
                json!("openid admins"),
                vec![Role::User, Role::Admin],
            ),
            (
                "https://x.example/roles",
                json!(["admins"]),
                vec![Role::User, Role::Admin],
            ),
        ] {
            let claims = json!({"sub": "a", claim: value});
            let found = of(&mapping("sub", Some(claim)), claims.clone()).unwrap();
            let found: Vec<_> = found.roles.given().collect();
            assert_eq!(found, roles, "{claims}");
        }
        let nested = json!({"sub": "a", "realm_access": {"roles": ["admins"]}});
        let found = of(&mapping("sub", Some("realm_access.roles")), nested).unwrap();
        assert!(found.roles.has(Role::Admin));
        let none = of(
            &mapping("sub", None),
            json!({"sub": "a", "groups": ["admins"]}),
        )
        .unwrap();
        assert!(none.roles.is_plain());
    }

    #[test]
    fn a_path_leads_through_names_with_dots() {
        for (name, claims) in [
            ("a.b.c", json!({"a": {"b": {"c": 1}}})),
            ("a.b.c", json!({"a.b": {"c": 1}, "a": {"b": {"c": 2}}})),
            ("a.b.c", json!({"a": {"b.c": 1, "b": {"c": 2}}})),
            ("a.b.c", json!({"a.b.c": 1, "a.b": {"c": 2}})),
            // What leads nowhere does not count.
            ("a.b.c", json!({"a.b": {"d": 2}, "a": {"b": {"c": 1}}})),
            ("a.b.c", json!({"a.b": "text", "a": {"b.c": 1}})),
            (
                "https://x.example/claims.roles",
                json!({"https://x.example/claims": {"roles": 1}}),
            ),
            (
                "resource_access.my.client.roles",
                json!({"resource_access": {"my": {"client": {}}, "my.client": {"roles": 1}}}),
            ),
            ("a..b", json!({"a": {"": {"b": 1}}})),
        ] {
            let claims = claims.as_object().unwrap();
            assert_eq!(found(claims, name), Some(&json!(1)), "{name} in {claims:?}");
        }
        let none = json!({"a": {"b": 1}, "": 1});
        for name in ["a.c", "b", "a.b.c", ".a", "a.", "."] {
            assert_eq!(found(none.as_object().unwrap(), name), None, "{name}");
        }
        let claims = json!({"user": {"name": "alice"}, "profile": {"email": "a@x"}});
        let kept = ["profile.email".to_owned()].into();
        let mapping = ClaimMapping::new("corp", "user.name", (None, &RoleNames::default()), &kept);
        let found = of(&mapping, claims.clone()).unwrap();
        assert_eq!(found.user.as_str(), "corp:alice");
        assert_eq!(found.claims().get("profile.email"), Some(&json!("a@x")));
        assert!(mapping.is_complete(&jwt::Claims(claims.as_object().unwrap().clone())));
    }

    #[test]
    fn the_roles_of_groups_are_those_of_the_configuration_now() {
        let claims = json!({"groups": ["admins", "Domain Admins", "staff"]});
        let claims = jwt::Claims(claims.as_object().unwrap().clone());
        let old = mapping("sub", Some("groups"));
        let groups = old.groups(&claims);
        assert_eq!(old.roles_of(&groups), old.roles_in(&claims));
        assert!(old.roles_of(&groups).has(Role::Admin));
        let new = |claim: &str, names: Value| {
            let names = serde_json::from_value(names).unwrap();
            ClaimMapping::new("corp", "sub", (Some(claim), &names), &BTreeSet::new())
        };
        let changed = new("groups", json!({"staff": "auditor"})).roles_of(&groups);
        assert!(changed.has(Role::Auditor) && !changed.has(Role::Admin));
        assert!(
            new("scope", json!({"admins": "admin"}))
                .roles_of(&groups)
                .is_plain()
        );
        assert!(mapping("sub", None).roles_of(&groups).is_plain());
        // Those that give a role are kept first.
        let mut many = vec![json!("x".repeat(100)); 1_000];
        many.push(json!("admins"));
        let many = jwt::Claims([("groups".to_owned(), json!(many))].into_iter().collect());
        let groups = old.groups(&many);
        assert!(old.roles_of(&groups).has(Role::Admin));
        assert!(groups.words.iter().map(String::len).sum::<usize>() <= MAX_GROUP_BYTES);
    }

    #[test]
    fn claims_that_no_agent_names_are_not_kept_and_large_ones_refuse_nobody() {
        let large = vec!["x".repeat(100); 100];
        let claims = json!({"sub": "a", "email": "a@x", "phone": "1", "groups": large});
        let found = of(&mapping("sub", None), claims).unwrap();
        assert_eq!(found.claims().get("email"), Some(&json!("a@x")));
        assert_eq!(found.claims().get("phone"), None);
        assert_eq!(found.claims().get("groups"), None);
    }
}
