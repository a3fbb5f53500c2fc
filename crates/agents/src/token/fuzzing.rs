//! What the fuzz targets read of tokens: answers of those that issue them, and the life that a token states.

use tokio::time::Instant;

use super::google::{access_token_in, generated_token_in, id_token_in};
use super::{Life, Token, life_of, margin};

/// Reads an answer of each kind of token server. A token that is taken can stand in a header, and ends at a time that a clock
/// has.
pub fn token_answer(body: &[u8]) {
    let mut texts: Vec<String> = [id_token_in(body), generated_token_in(body)]
        .into_iter()
        .flatten()
        .collect();
    if let Ok(fetched) = access_token_in(body) {
        if let Life::For(life) = fetched.life {
            let _ = Instant::now() + life.saturating_sub(margin(life));
        }
        texts.push(fetched.token);
    }
    texts.extend(std::str::from_utf8(body).map(str::to_owned));
    for text in texts {
        let _ = Instant::now() + life_of(&text);
        if let Ok(token) = Token::new(&text) {
            assert!(
                token.0.bytes().all(|byte| byte.is_ascii_graphic()),
                "a token breaks no header"
            );
        }
    }
}
