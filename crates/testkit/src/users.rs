//! Two users with their keys, for a bridge that requires keys.

/// The configuration with their keys.
pub const KEYS: &str = "
[[auth.api_keys]]
key = \"alice-secret-0123456789\"
user = \"alice\"
[[auth.api_keys]]
key = \"bob-secret-9876543210\"
user = \"bob\"
";

pub const ALICE_KEY: &str = "alice-secret-0123456789";
pub const BOB_KEY: &str = "bob-secret-9876543210";

/// The header of Alice's requests.
pub const ALICE: (&str, &str) = ("authorization", "Bearer alice-secret-0123456789");
/// The header of Bob's requests.
pub const BOB: (&str, &str) = ("authorization", "Bearer bob-secret-9876543210");
