//! Arithmetic as in Python, for the code that the scripted Gemini "runs".

/// Deeper parentheses are refused: the evaluation recurses.
const MAX_DEPTH: usize = 50;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Number {
    Whole(i64),
    Float(f64),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum ArithmeticError {
    #[error("ZeroDivisionError: division by zero")]
    DivisionByZero,
    #[error("OverflowError: the result is too large")]
    TooLarge,
    #[error("SyntaxError: invalid syntax")]
    Syntax,
}

/// Computes an expression of numbers, `+ - * / // % **` and parentheses; `^`, `×` and `÷` have their usual meaning.
pub(super) fn compute(expression: &str) -> Result<Number, ArithmeticError> {
    let tokens = tokens(&python(expression))?;
    let mut parser = Parser {
        tokens: &tokens,
        at: 0,
        depth: 0,
    };
    let result = parser.sum()?;
    match parser.peek() {
        None => Ok(result),
        Some(_) => Err(ArithmeticError::Syntax),
    }
}

/// The expression with Python's operators.
pub(super) fn python(expression: &str) -> String {
    expression
        .replace('^', "**")
        .replace('×', "*")
        .replace('÷', "/")
        .replace('−', "-")
}

impl std::fmt::Display for Number {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Whole(number) => write!(f, "{number}"),
            Self::Float(number) => write!(f, "{number:?}"),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Token {
    Number(Number),
    Sign(&'static str),
}

fn tokens(text: &str) -> Result<Vec<Token>, ArithmeticError> {
    const SIGNS: [&str; 9] = ["**", "//", "+", "-", "*", "/", "%", "(", ")"];
    let mut rest = text.trim_start();
    let mut tokens = Vec::new();
    while !rest.is_empty() {
        if let Some(sign) = SIGNS.into_iter().find(|sign| rest.starts_with(sign)) {
            tokens.push(Token::Sign(sign));
            rest = rest[sign.len()..].trim_start();
            continue;
        }
        let length = rest
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(rest.len());
        let digits = &rest[..length];
        let number = match digits.parse() {
            Ok(whole) => Number::Whole(whole),
            Err(_) => Number::Float(digits.parse().map_err(|_| ArithmeticError::Syntax)?),
        };
        tokens.push(Token::Number(number));
        rest = rest[length..].trim_start();
    }
    Ok(tokens)
}

struct Parser<'t> {
    tokens: &'t [Token],
    at: usize,
    depth: usize,
}

impl Parser<'_> {
    fn peek(&self) -> Option<Token> {
        self.tokens.get(self.at).copied()
    }

    fn take(&mut self, signs: &[&'static str]) -> Option<&'static str> {
        match self.peek() {
            Some(Token::Sign(sign)) if signs.contains(&sign) => {
                self.at += 1;
                Some(sign)
            }
            _ => None,
        }
    }

    fn sum(&mut self) -> Result<Number, ArithmeticError> {
        let mut left = self.product()?;
        while let Some(sign) = self.take(&["+", "-"]) {
            left = apply(sign, left, self.product()?)?;
        }
        Ok(left)
    }

    fn product(&mut self) -> Result<Number, ArithmeticError> {
        let mut left = self.signed()?;
        while let Some(sign) = self.take(&["*", "/", "//", "%"]) {
            left = apply(sign, left, self.signed()?)?;
        }
        Ok(left)
    }

    fn signed(&mut self) -> Result<Number, ArithmeticError> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(ArithmeticError::Syntax);
        }
        let value = match self.take(&["-", "+"]) {
            Some("-") => apply("-", Number::Whole(0), self.signed()?)?,
            Some(_) => self.signed()?,
            None => self.power()?,
        };
        self.depth -= 1;
        Ok(value)
    }

    fn power(&mut self) -> Result<Number, ArithmeticError> {
        let base = self.atom()?;
        match self.take(&["**"]) {
            Some(sign) => apply(sign, base, self.signed()?),
            None => Ok(base),
        }
    }

    fn atom(&mut self) -> Result<Number, ArithmeticError> {
        if self.take(&["("]).is_some() {
            let inner = self.sum()?;
            return self
                .take(&[")"])
                .map(|_| inner)
                .ok_or(ArithmeticError::Syntax);
        }
        match self.peek() {
            Some(Token::Number(number)) => {
                self.at += 1;
                Ok(number)
            }
            _ => Err(ArithmeticError::Syntax),
        }
    }
}

fn apply(sign: &str, left: Number, right: Number) -> Result<Number, ArithmeticError> {
    use Number::{Float, Whole};
    if matches!(sign, "/" | "//" | "%") && right.float() == 0.0 {
        return Err(ArithmeticError::DivisionByZero);
    }
    let whole = |result: Option<i64>| result.map(Whole).ok_or(ArithmeticError::TooLarge);
    let float = match (sign, left, right) {
        ("+", Whole(a), Whole(b)) => return whole(a.checked_add(b)),
        ("-", Whole(a), Whole(b)) => return whole(a.checked_sub(b)),
        ("*", Whole(a), Whole(b)) => return whole(a.checked_mul(b)),
        // Python rounds towards minus infinity, and the remainder has the divisor's sign.
        ("//", Whole(a), Whole(b)) => {
            let quotient = a.checked_div(b).ok_or(ArithmeticError::TooLarge)?;
            let inexact = a % b != 0 && (a < 0) != (b < 0);
            return Ok(Whole(quotient - i64::from(inexact)));
        }
        ("%", Whole(a), Whole(b)) => {
            let remainder = a.checked_rem(b).ok_or(ArithmeticError::TooLarge)?;
            let other_side = remainder != 0 && (remainder < 0) != (b < 0);
            return Ok(Whole(remainder + if other_side { b } else { 0 }));
        }
        ("**", Whole(a), Whole(b)) if b >= 0 => {
            return whole(u32::try_from(b).ok().and_then(|b| a.checked_pow(b)));
        }
        ("+", ..) => left.float() + right.float(),
        ("-", ..) => left.float() - right.float(),
        ("*", ..) => left.float() * right.float(),
        ("/", ..) => left.float() / right.float(),
        ("//", ..) => (left.float() / right.float()).floor(),
        ("%", ..) => left.float() - right.float() * (left.float() / right.float()).floor(),
        _ => left.float().powf(right.float()),
    };
    match float.is_finite() {
        true => Ok(Float(float)),
        false => Err(ArithmeticError::TooLarge),
    }
}

impl Number {
    fn float(self) -> f64 {
        match self {
            Self::Whole(number) => number as f64,
            Self::Float(number) => number,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_those_of_python() {
        let cases = [
            ("2 + 3 * 4", "14"),
            ("(2+3)*4", "20"),
            ("6 / 2", "3.0"),
            ("7 // 2", "3"),
            ("-7 // 2", "-4"),
            ("-7 % 3", "2"),
            ("7 % -3", "-2"),
            ("2 ^ 10", "1024"),
            ("2 ** 3 ** 2", "512"),
            ("-2 ** 2", "-4"),
            ("2 ** -1", "0.5"),
            ("0.1 + 0.2", "0.30000000000000004"),
            ("3 × 4 ÷ 2", "6.0"),
            ("--5", "5"),
            ("1 / 0", "ZeroDivisionError: division by zero"),
            (
                "9223372036854775807 + 1",
                "OverflowError: the result is too large",
            ),
            ("2 +", "SyntaxError: invalid syntax"),
            ("", "SyntaxError: invalid syntax"),
            ("2 2", "SyntaxError: invalid syntax"),
            ("1.2.3", "SyntaxError: invalid syntax"),
            ("import os", "SyntaxError: invalid syntax"),
        ];
        for (expression, expected) in cases {
            let found = compute(expression)
                .map_or_else(|error| error.to_string(), |number| number.to_string());
            assert_eq!(found, expected, "{expression}");
        }
    }

    #[test]
    fn depth_is_bounded() {
        let deep = format!("{}1{}", "(".repeat(100_000), ")".repeat(100_000));
        assert_eq!(compute(&deep), Err(ArithmeticError::Syntax));
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_answered(text in "[0-9+*/%(). -]{0,40}") {
            let _: Result<Number, ArithmeticError> = compute(&text);
        }
    }
}
