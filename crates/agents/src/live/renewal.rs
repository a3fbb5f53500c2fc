//! When a live connection is renewed, and from what: its newest handle, or the history.
//!
//! ```text
//!                 goAway                    the model rests, or the time is nearly over
//!    Steady ─────────────────▶ Warned ──────────────────────────────────────────────────▶ Renewing
//!     ▲   │                      │                                                         │  │  │
//!     │   └── closed ────────────┴── closed ─────────────────────────────────────────────▶ │  │  │
//!     └──────────────────────────────── opened ────────────────────────────────────────────┘  │  │
//!                                                      refused: again, after a pause  ◀───────┘  │
//!                                                      refused too often, or for good: Lost ◀────┘
//! ```
//!
//! It is pure: events and times go in, decisions come out. A handle that was refused, or whose connection was closed
//! because of an invalid message, is not used again; the history is used instead. Connections that end before anything
//! useful came count as failures, so that a model that hangs up at once is not called without end.

use std::time::{Duration, Instant};

/// How often in a row a connection may fail. With the pauses below a user waits some eight seconds.
pub const TRIES: u32 = 5;
/// The pause after the second failure in a row; each further one is twice as long. The first costs none.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
/// A connection with an announced end is renewed at least this long before it.
const MARGIN: Duration = Duration::from_secs(2);
/// Closed because a message was invalid.
const INVALID: u16 = 1007;
/// Closed because something is not available: a handle, a model, a permission.
const POLICY: u16 = 1008;

/// A session that can be resumed, and how much of the history it knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resumption<Mark> {
    pub handle: String,
    pub mark: Mark,
}

/// What to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Plan<Mark> {
    /// Nothing for now.
    Stay,
    /// Check again at this time.
    StayUntil(Instant),
    /// Open another connection at this time: from a session, or from the history.
    Renew {
        at: Instant,
        from: Option<Resumption<Mark>>,
    },
    /// Give up.
    Lost,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    Steady,
    Warned { until: Instant },
    Renewing { at: Instant },
    Lost,
}

/// Decides for one chat, across all its connections. `Mark` says how much of the history a session knows.
#[derive(Debug, Clone)]
pub struct Renewal<Mark> {
    state: State,
    newest: Option<Resumption<Mark>>,
    failures: u32,
    /// Whether anything useful has come from the connection.
    useful: bool,
    /// Whether the model speaks or waits for a result, which a renewal would lose.
    busy: bool,
}

impl<Mark> Default for Renewal<Mark> {
    fn default() -> Self {
        Self {
            state: State::Steady,
            newest: None,
            failures: 0,
            useful: false,
            busy: false,
        }
    }
}

impl<Mark: Clone> Renewal<Mark> {
    /// Notes that a connection is open.
    pub fn opened(&mut self) {
        self.state = State::Steady;
        self.useful = false;
        self.busy = false;
    }

    /// Notes that a connection is wanted and there is none.
    pub fn wanted(&mut self, now: Instant) {
        self.failures = 0;
        self.again(now);
    }

    /// Notes that something useful came from the connection.
    pub fn progressed(&mut self) {
        self.useful = true;
        self.failures = 0;
    }

    /// Notes whether the model speaks or waits for a result.
    pub fn busy(&mut self, busy: bool) {
        self.busy = busy;
    }

    /// Notes a newer handle. While a session cannot be resumed, its last handle stays valid.
    pub fn resumable(&mut self, handle: String, mark: Mark) {
        self.newest = Some(Resumption { handle, mark });
    }

    /// Forgets the handle, because the history that it stands for has changed.
    pub fn forget_handle(&mut self) {
        self.newest = None;
    }

    /// Notes that the other side will close the connection.
    pub fn warned(&mut self, left: Duration, now: Instant) {
        if matches!(self.state, State::Steady | State::Warned { .. }) {
            // At least half of the remaining time is used.
            let usable = left.saturating_sub(MARGIN).max(left / 2);
            self.state = State::Warned {
                until: now + usable,
            };
        }
    }

    /// Notes that the connection was closed.
    pub fn closed(&mut self, code: u16, now: Instant) {
        if code == INVALID {
            self.newest = None;
        }
        if !self.useful {
            self.failures += 1;
        }
        self.again(now);
    }

    /// Notes that no connection could be opened.
    pub fn refused(&mut self, code: Option<u16>, now: Instant) {
        let for_good = matches!(code, Some(INVALID | POLICY));
        self.failures += 1;
        match (for_good, self.newest.take()) {
            // Without a handle, another try would be the same.
            (true, None) => self.state = State::Lost,
            (true, Some(_)) => self.again(now),
            (false, newest) => {
                self.newest = newest;
                self.again(now);
            }
        }
    }

    /// What to do at this time.
    pub fn plan(&mut self, now: Instant) -> Plan<Mark> {
        if let State::Warned { until } = self.state {
            if self.busy && now < until {
                return Plan::StayUntil(until);
            }
            self.state = State::Renewing { at: now };
        }
        match self.state {
            State::Renewing { at } => Plan::Renew {
                at,
                from: self.newest.clone(),
            },
            State::Lost => Plan::Lost,
            State::Steady | State::Warned { .. } => Plan::Stay,
        }
    }

    fn again(&mut self, now: Instant) {
        self.useful = false;
        self.busy = false;
        self.state = match self.failures {
            0 | 1 => State::Renewing { at: now },
            TRIES.. => State::Lost,
            more => State::Renewing {
                at: now + FIRST_PAUSE * 2_u32.pow(more - 2),
            },
        };
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn resumption(handle: &str, mark: usize) -> Option<Resumption<usize>> {
        Some(Resumption {
            handle: handle.into(),
            mark,
        })
    }

    fn working() -> Renewal<usize> {
        let mut renewal = Renewal::default();
        renewal.opened();
        renewal.progressed();
        renewal.resumable("h1".into(), 3);
        renewal
    }

    #[test]
    fn a_warned_connection_is_renewed_when_the_model_rests() {
        let (mut renewal, now) = (working(), Instant::now());
        assert_eq!(renewal.plan(now), Plan::Stay);
        renewal.busy(true);
        renewal.warned(60 * SECOND, now);
        assert_eq!(renewal.plan(now), Plan::StayUntil(now + 58 * SECOND));
        renewal.resumable("h2".into(), 5);
        renewal.busy(false);
        let then = now + SECOND;
        let from = resumption("h2", 5);
        assert_eq!(renewal.plan(then), Plan::Renew { at: then, from });
        renewal.opened();
        assert_eq!(renewal.plan(then), Plan::Stay);
    }

    #[test]
    fn a_busy_connection_is_renewed_before_its_end() {
        let (mut renewal, now) = (working(), Instant::now());
        renewal.busy(true);
        renewal.warned(2 * SECOND, now);
        let until = now + SECOND;
        assert_eq!(renewal.plan(now), Plan::StayUntil(until));
        let from = resumption("h1", 3);
        assert_eq!(renewal.plan(until), Plan::Renew { at: until, from });
    }

    #[test]
    fn a_wrong_message_is_not_taken_up_again() {
        let (mut renewal, now) = (working(), Instant::now());
        renewal.closed(1007, now);
        let (at, from) = (now, None);
        assert_eq!(renewal.plan(now), Plan::Renew { at, from });
        let mut renewal = working();
        renewal.closed(1011, now);
        let from = resumption("h1", 3);
        assert_eq!(renewal.plan(now), Plan::Renew { at, from });
        renewal.refused(Some(1008), now);
        let from = None;
        assert_eq!(renewal.plan(now), Plan::Renew { at, from });
        renewal.refused(Some(1008), now);
        assert_eq!(renewal.plan(now), Plan::Lost);
    }

    #[test]
    fn pauses_grow_until_the_connection_is_given_up() {
        let (mut renewal, now) = (working(), Instant::now());
        renewal.closed(1006, now);
        let mut pauses = Vec::new();
        while let Plan::Renew { at, .. } = renewal.plan(now) {
            pauses.push((at - now).as_millis());
            renewal.refused(None, now);
        }
        assert_eq!(pauses, [0, 0, 500, 1_000, 2_000]);
        assert_eq!(renewal.plan(now), Plan::Lost);
    }

    #[derive(Debug, Clone)]
    enum Step {
        Opened,
        Progressed,
        Busy(bool),
        Resumable(u8),
        Warned(u8),
        Closed(u16),
        Refused(Option<u16>),
        Waited(u16),
    }

    fn step() -> impl Strategy<Value = Step> {
        let code = prop::sample::select(vec![1000_u16, 1006, 1007, 1008, 1011]);
        prop_oneof![
            Just(Step::Opened),
            Just(Step::Progressed),
            any::<bool>().prop_map(Step::Busy),
            any::<u8>().prop_map(Step::Resumable),
            any::<u8>().prop_map(Step::Warned),
            code.clone().prop_map(Step::Closed),
            prop::option::of(code).prop_map(Step::Refused),
            any::<u16>().prop_map(Step::Waited),
        ]
    }

    proptest! {
        #[test]
        fn whatever_happens_it_is_renewed_or_given_up(steps in prop::collection::vec(step(), 0..40)) {
            let mut now = Instant::now();
            let mut renewal = Renewal::<u8>::default();
            // What a driver knows: whether a connection is open, the newest handle, and failures in a row.
            let (mut open, mut newest, mut in_a_row) = (true, None, 0);
            for step in steps {
                match step {
                    Step::Opened if !open => { open = true; renewal.opened(); }
                    Step::Progressed if open => { in_a_row = 0; renewal.progressed(); }
                    Step::Busy(busy) if open => renewal.busy(busy),
                    Step::Resumable(mark) if open => {
                        newest = Some(mark);
                        renewal.resumable(mark.to_string(), mark);
                    }
                    Step::Warned(left) if open => renewal.warned(Duration::from_secs(left.into()), now),
                    Step::Closed(code) if open => {
                        open = false;
                        in_a_row += 1;
                        if code == 1007 { newest = None; }
                        renewal.closed(code, now);
                    }
                    Step::Refused(code) if !open => {
                        in_a_row += 1;
                        if matches!(code, Some(1007 | 1008)) { newest = None; }
                        renewal.refused(code, now);
                    }
                    Step::Waited(ms) => now += Duration::from_millis(ms.into()),
                    _ => continue,
                }
                match renewal.plan(now) {
                    Plan::Lost => {
                        prop_assert!(!open);
                        return Ok(());
                    }
                    Plan::Stay => prop_assert!(open),
                    Plan::StayUntil(until) => {
                        prop_assert!(open && until > now);
                    }
                    Plan::Renew { at, from } => {
                        prop_assert_eq!(from.map(|it| it.mark), newest);
                        prop_assert!(at <= now + Duration::from_secs(4));
                        // A driver closes the connection that it renews.
                        open = false;
                    }
                }
                prop_assert!(in_a_row <= TRIES);
            }
        }
    }
}
