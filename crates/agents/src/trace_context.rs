//! The W3C context of a trace: which work of other programs a request belongs to.
//!
//! It is passed on whether or not this process records anything itself, so it needs no library for that.

use std::fmt;
use std::sync::Arc;

use reqwest::header::{HeaderMap, HeaderName, HeaderValue};

pub const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
pub const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// The longest list of other programs' states that is passed on. The specification asks for at least 512 characters.
const MAX_STATE_BYTES: usize = 2048;
/// How many there may be in it.
const MAX_STATES: usize = 32;
/// The flags that are known: sampled, and a random trace id. Others are not passed on.
const KNOWN_FLAGS: u8 = 0b11;
const SAMPLED: u8 = 0b01;

/// Which trace something belongs to, and which span of it is its parent; by default none. Cheap to clone.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct TraceContext(Option<Arc<Fields>>);

#[derive(PartialEq, Eq)]
struct Fields {
    trace_id: [u8; 16],
    span_id: [u8; 8],
    flags: u8,
    /// As it came: it is for others.
    state: String,
}

impl TraceContext {
    /// The context with these ids, unless one of them is zero. `like`: whose `tracestate` it has.
    pub fn new(trace_id: [u8; 16], span_id: [u8; 8], flags: u8, like: &Self) -> Self {
        let is_valid = trace_id != [0; 16] && span_id != [0; 8];
        Self(is_valid.then(|| {
            Arc::new(Fields {
                trace_id,
                span_id,
                flags: flags & KNOWN_FLAGS,
                state: like.tracestate().unwrap_or_default().to_owned(),
            })
        }))
    }

    /// Reads the headers of a request. What is not valid counts as absent, as the specification says.
    pub fn of_headers(headers: &HeaderMap) -> Self {
        let mut parents = headers.get_all(TRACEPARENT).iter();
        let (Some(parent), None) = (parents.next(), parents.next()) else {
            return Self::default();
        };
        let Ok(parent) = parent.to_str() else {
            return Self::default();
        };
        let states = headers.get_all(TRACESTATE).iter();
        let states: Result<Vec<&str>, _> = states.map(HeaderValue::to_str).collect();
        Self::read(parent, &states.unwrap_or_default().join(","))
    }

    /// Reads the two values as they stand in headers, or in the `_meta` of MCP.
    pub fn read(traceparent: &str, tracestate: &str) -> Self {
        let Some((trace_id, span_id, flags)) = ids_of(traceparent) else {
            return Self::default();
        };
        let fields = Fields {
            trace_id,
            span_id,
            flags: flags & KNOWN_FLAGS,
            state: states_of(tracestate).unwrap_or_default(),
        };
        match trace_id == [0; 16] || span_id == [0; 8] {
            true => Self::default(),
            false => Self(Some(Arc::new(fields))),
        }
    }

    pub fn is_none(&self) -> bool {
        self.0.is_none()
    }

    pub fn trace_id(&self) -> Option<[u8; 16]> {
        self.0.as_ref().map(|fields| fields.trace_id)
    }

    pub fn span_id(&self) -> Option<[u8; 8]> {
        self.0.as_ref().map(|fields| fields.span_id)
    }

    pub fn flags(&self) -> u8 {
        self.0.as_ref().map_or(0, |fields| fields.flags)
    }

    /// Whether whoever began the trace records it.
    pub fn is_sampled(&self) -> bool {
        self.flags() & SAMPLED != 0
    }

    pub fn traceparent(&self) -> Option<String> {
        let fields = self.0.as_ref()?;
        let (trace, span) = (hex(&fields.trace_id), hex(&fields.span_id));
        Some(format!("00-{trace}-{span}-{:02x}", fields.flags))
    }

    /// What other programs want to be passed on.
    pub fn tracestate(&self) -> Option<&str> {
        let state = self.0.as_ref().map(|fields| fields.state.as_str());
        state.filter(|state| !state.is_empty())
    }

    /// Puts the context into the headers of a request, in place of any other.
    pub fn put(&self, headers: &mut HeaderMap) {
        let parent = self.traceparent();
        let Some(parent) = parent.and_then(|parent| HeaderValue::try_from(parent).ok()) else {
            return;
        };
        headers.insert(TRACEPARENT, parent);
        headers.remove(TRACESTATE);
        let state = self.tracestate();
        if let Some(state) = state.and_then(|state| HeaderValue::from_str(state).ok()) {
            headers.insert(TRACESTATE, state);
        }
    }

    /// The headers of a request that is made in this context.
    pub(crate) fn headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        self.put(&mut headers);
        headers
    }
}

/// Shows no more than ids.
impl fmt::Debug for TraceContext {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.traceparent() {
            Some(parent) => formatter.write_str(&parent),
            None => formatter.write_str("none"),
        }
    }
}

/// Lower-case hexadecimal digits, as traces write their ids.
pub fn hex(bytes: &[u8]) -> String {
    use fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The ids in a `traceparent`: `VERSION-TRACE-PARENT-FLAGS`. Versions to come may add more behind that.
fn ids_of(parent: &str) -> Option<([u8; 16], [u8; 8], u8)> {
    let mut fields = parent.trim_matches([' ', '\t']).split('-');
    let [version] = bytes_of(fields.next()?)?;
    let (trace, span) = (bytes_of(fields.next()?)?, bytes_of(fields.next()?)?);
    let [flags] = bytes_of(fields.next()?)?;
    let is_whole = match version {
        0 => fields.next().is_none(),
        version => version != 0xff,
    };
    is_whole.then_some((trace, span, flags))
}

fn bytes_of<const N: usize>(digits: &str) -> Option<[u8; N]> {
    let digits = digits.as_bytes();
    let mut bytes = [0; N];
    if digits.len() != 2 * N {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

/// Capital letters are not allowed.
fn digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    }
}

/// A valid `tracestate`; nothing if a member of it is not valid, since then the list cannot be trusted.
fn states_of(list: &str) -> Option<String> {
    let members = list
        .split(',')
        .map(|member| member.trim_matches([' ', '\t']));
    let members: Vec<&str> = members.filter(|member| !member.is_empty()).collect();
    let is_valid = members.len() <= MAX_STATES && members.iter().all(|member| is_member(member));
    let joined = members.join(",");
    (is_valid && joined.len() <= MAX_STATE_BYTES).then_some(joined)
}

fn is_member(member: &str) -> bool {
    let Some((key, value)) = member.split_once('=') else {
        return false;
    };
    let first = key.as_bytes().first();
    let of_key =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_-*/@".contains(&byte);
    let of_value = |byte: u8| matches!(byte, b' '..=b'~') && byte != b'=' && byte != b',';
    first.is_some_and(|first| first.is_ascii_lowercase() || first.is_ascii_digit())
        && key.len() <= 256
        && key.bytes().all(of_key)
        && (1..=256).contains(&value.len())
        && value.bytes().all(of_value)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    const SPAN: &str = "00f067aa0ba902b7";

    #[test]
    fn a_context_is_read_and_written_as_the_specification_says() {
        let whole = format!("00-{TRACE}-{SPAN}-01");
        for (given, passed_on) in [
            (whole.clone(), Some(whole.clone())),
            (
                format!("00-{TRACE}-{SPAN}-00"),
                Some(format!("00-{TRACE}-{SPAN}-00")),
            ),
            // Unknown flags, and a version to come.
            (
                format!("00-{TRACE}-{SPAN}-ff"),
                Some(format!("00-{TRACE}-{SPAN}-03")),
            ),
            (format!("cc-{TRACE}-{SPAN}-01-more"), Some(whole.clone())),
            (format!("cc-{TRACE}-{SPAN}-01"), Some(whole.clone())),
            (format!(" {whole} "), Some(whole.clone())),
            (format!("ff-{TRACE}-{SPAN}-01"), None),
            (format!("00-{TRACE}-{SPAN}-01-more"), None),
            (format!("00-{TRACE}-{SPAN}-1"), None),
            (format!("00-{TRACE}-{SPAN}"), None),
            (format!("00-{}-{SPAN}-01", TRACE.to_uppercase()), None),
            (format!("00-{}-{SPAN}-01", "0".repeat(32)), None),
            (format!("00-{TRACE}-{}-01", "0".repeat(16)), None),
            (format!("00-{TRACE}0-{SPAN}-01"), None),
            (format!("00-{}é-{SPAN}-01", &TRACE[..30]), None),
            ("00".to_owned(), None),
            (String::new(), None),
        ] {
            assert_eq!(
                TraceContext::read(&given, "").traceparent(),
                passed_on,
                "{given}"
            );
        }
    }

    #[test]
    fn states_of_others_are_passed_on_if_they_are_valid() {
        let whole = format!("00-{TRACE}-{SPAN}-01");
        let many = |count: usize| (0..count).map(|n| format!("k{n}=v,")).collect::<String>();
        let long = format!("a={}", "x".repeat(256));
        for (given, passed_on) in [
            ("a=1", Some("a=1")),
            (" a=1 , ,b@c=2\t", Some("a=1,b@c=2")),
            ("0=1,a/*_-=! ~", Some("0=1,a/*_-=! ~")),
            (&long, Some(long.as_str())),
            ("", None),
            ("a", None),
            ("=1", None),
            ("A=1", None),
            ("a=1=2", None),
            ("a=", None),
            ("a=é", None),
            (&format!("{long}x"), None),
            (&many(33), None),
        ] {
            let read = TraceContext::read(&whole, given);
            assert_eq!(read.tracestate(), passed_on, "{given}");
            assert!(read.is_sampled());
        }
        let full = many(MAX_STATES);
        let read = TraceContext::read(&whole, &full);
        assert_eq!(read.tracestate(), Some(full.trim_end_matches(',')));
    }

    #[test]
    fn headers_hold_one_parent_and_one_list() {
        let whole = format!("00-{TRACE}-{SPAN}-01");
        let mut headers = HeaderMap::new();
        headers.append(TRACEPARENT, HeaderValue::try_from(&whole).unwrap());
        headers.append(TRACESTATE, HeaderValue::from_static("a=1"));
        headers.append(TRACESTATE, HeaderValue::from_static("b=2"));
        let read = TraceContext::of_headers(&headers);
        assert_eq!(read.tracestate(), Some("a=1,b=2"));
        let child = TraceContext::new([1; 16], [2; 8], 0, &read);
        child.put(&mut headers);
        assert_eq!(TraceContext::of_headers(&headers), child);
        assert_eq!(child.tracestate(), Some("a=1,b=2"));
        headers.append(TRACEPARENT, HeaderValue::try_from(&whole).unwrap());
        assert!(TraceContext::of_headers(&headers).is_none());
        assert!(TraceContext::new([0; 16], [2; 8], 1, &read).is_none());
    }
}
