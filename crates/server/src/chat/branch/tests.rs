//! Which messages a chat shows, as a table and under random requests.

use proptest::prelude::*;

use super::*;

/// `u1 a1? [u2 [[u3` are the rows of a chat: shown, shown and never seen, cut, cut by another cut. The place is the
/// position.
fn rows(text: &str) -> Vec<Row<'_>> {
    let words = text.split_whitespace().enumerate();
    words
        .map(|(index, word)| {
            let id = word.trim_matches(['[', '?']);
            let cut_in = word.bytes().filter(|byte| *byte == b'[').count();
            Row {
                place: index as u64 + 1,
                id: named(id),
                role: role(id),
                cut_in: (cut_in > 0).then_some(cut_in as u64),
                seen: !word.ends_with('?'),
            }
        })
        .collect()
}

/// An id that lives as long as the tests: rows borrow theirs.
fn named(id: &str) -> &'static MessageId {
    Box::leak(Box::new(id.into()))
}

/// A message that begins with `x` is the user's, with `y` the assistant's, and both are unknown; `_` has no id. `u2=3`
/// says the same as the row at that place.
fn listed(text: &str) -> Vec<ListedMessage<'_>> {
    text.split_whitespace()
        .map(|word| {
            let (id, same) = word.split_once('=').unwrap_or((word, ""));
            ListedMessage {
                id: named(id.strip_suffix('_').map_or(id, |_| "")),
                role: role(word),
                same: same.split(',').flat_map(str::parse).collect(),
            }
        })
        .collect()
}

/// The places of rows that are named by id or by place; none if nothing is named.
fn places(rows: &[Row<'_>], words: &str) -> Option<Vec<u64>> {
    let place = |word: &str| match word.parse() {
        Ok(place) => place,
        Err(_) => rows.iter().find(|row| row.id == word).unwrap().place,
    };
    (!words.is_empty()).then(|| words.split_whitespace().map(place).collect())
}

fn role(word: &str) -> Role {
    match word.as_bytes()[0] {
        b'u' | b'x' => Role::User,
        b's' => Role::System,
        _ => Role::Assistant,
    }
}

/// For a request that lists everything that its client shows. `-` stands for nothing.
#[test]
fn what_is_shown_after_a_whole_request() {
    for (stored, request, expected) in [
        ("u1 a1", "u1 a1", ""),
        ("u1 a1 u2 a2", "u1 a1", "u1 a1"),
        ("u1 a1 u2 a2", "u2 a2", "u2 a2"),
        // A page that was loaded again shows nothing.
        ("u1 a1", "", "-"),
        ("u1 a1", "x1 y1", "-"),
        ("u1 a1 x1 y1", "u1 a1 x1 y1", ""),
        // What no client has had stays, with what it answers.
        ("u1 a1 u2 a2?", "", "u2 a2"),
        ("u1 a1 u2 u3 a2?", "", "u2 u3 a2"),
        ("u1 a1 u2 u3 a2?", "u1 a1", ""),
        ("u1? a1", "", "u1"),
        // Another page of the same chat.
        ("u1 a1 [u2 [a2", "u2 a2", "u2 a2"),
    ] {
        let rows = rows(stored);
        let expected = match expected {
            "-" => Some(Vec::new()),
            words => places(&rows, words),
        };
        let shown = shown_of_all(&rows, &listed(request), false);
        assert_eq!(shown, expected, "{stored} | {request}");
        // In a chat whose id is used again, nothing is left of a conversation that the client does not show.
        let is_known = listed(request)
            .iter()
            .any(|it| rows.iter().any(|row| row.id == it.id));
        let expected = match is_known {
            true => expected,
            false => Some(Vec::new()),
        };
        let shown = shown_of_all(&rows, &listed(request), true);
        assert_eq!(shown, expected, "{stored} | {request}");
    }
}

#[test]
fn what_is_shown_after_a_request() {
    for (stored, request, expected) in [
        // Going on.
        ("u1 a1", "u1 a1", ""),
        ("u1 a1 u2 a2", "u1 a1 u2 a2", ""),
        // Nothing is known: it is added, as it always was.
        ("u1 a1", "", ""),
        ("u1 a1", "x1 y1", ""),
        ("u1 a1", "x_ y_", ""),
        // An edit, a deletion at the end, `setMessages`.
        ("u1 a1 u2 a2", "u1 a1", "u1 a1"),
        ("u1 a1 u2 a2 u3 a3", "u1 a1", "u1 a1"),
        ("u1 a1 u2 a2", "u1", "u1"),
        ("u1 a1", "u1", "u1"),
        // A deletion in the middle.
        ("u1 a1 u2 a2", "u1 u2 a2", "u1 u2 a2"),
        ("u1 a1 u2 a2 u3 a3", "u1 a1 u3 a3", "u1 a1 u3 a3"),
        ("u1 a1 u2 a2 u3 a3", "u1 a1 a2 u3 a3", "u1 a1 a2 u3 a3"),
        // The end of a long history.
        ("u1 a1 u2 a2", "u2 a2", ""),
        ("u1 a1 u2 a2", "a2", ""),
        ("u1 a1 u2 a2 u3 a3", "u2 a2", "u1 a1 u2 a2"),
        // A client that was cut off lacks the last answer, for as long as it never had it.
        ("u1 a1?", "u1", ""),
        ("u1 a1? u2 a2", "u1 u2 a2", ""),
        ("u1 a1 u2 a2?", "u1 a1 u2", ""),
        // But it goes with its question.
        ("u1 a1 u2 a2?", "u1 a1", "u1 a1"),
        ("u1 a1? u2 a2", "u1", "u1 a1"),
        ("u1 a1? u2 a2?", "u1", "u1 a1"),
        // What was heard: no client sent it, and its answer stays with it.
        ("u1 a1 u2? a2?", "u1 a1", ""),
        ("u1 a1 u2? a2", "u1 a1", ""),
        ("u1 a1 u2? a2 u3 a3", "u1 a1", "u1 a1 u2 a2"),
        // A greeting of the page, instructions.
        ("u1 a1 u2 a2", "y0 u1 a1 u2 a2", ""),
        ("u1 a1 u2 a2", "s0 u1 a1", "u1 a1"),
        // Clients that give messages ids of their own, or none.
        ("u1 a1", "u1 y1", ""),
        ("u1 a1 u2 a2", "u1 y_ u2 y_", ""),
        ("u1 a1 u2 a2", "x_ a1 x_ a2", ""),
        ("u1 a1 u2 a2", "u1 y1", "u1 a1"),
        ("u1 a1 u2 a2", "x_ a1 x_ y_", ""),
        ("u1 a1 u2 a2 u3 a3", "x_ a1 x_ y_", "u1 a1 u2 a2"),
        ("u1 a1 u2 a2", "u1 a1 s1", "u1 a1"),
        // A branch that was left is come back to.
        ("u1 a1 [u2 [a2 u3 a3", "u1 a1 u2 a2", "u1 a1 u2 a2"),
        ("[u1 [a1 u2 a2", "u1 a1", "u1 a1"),
        ("u1 [a1 a2", "u1 a1", "u1 a1"),
        ("u1 [a1 a2 u3 a3", "u1 a1", "u1 a1"),
        ("u1 a1 [u2 [a2 u3 a3", "u1 a1 u2", "u1 a1 u2"),
        // With it comes what went with it and nobody has had, and what the client has under an id of its own.
        ("u1 a1 [u2 [a2? u3 a3", "u1 a1 u2", "u1 a1 u2 a2"),
        ("u1 a1 [u2 [a2 u3 a3", "u1 a1 u2 y_", "u1 a1 u2 a2"),
        ("u1 a1 [u2 [a2? [u4 [a4? u3", "u1 a1 u2", "u1 a1 u2 a2"),
        ("u1 a1 [u2 [u5? [a5 [u4 u3", "u1 a1 u2", "u1 a1 u2 u5 a5"),
        // What went before it was replaced.
        ("u1 a1 [[u2 [a2? [[a4 u3", "u1 a1 u2", "u1 a1 u2"),
        ("u1 [a1? a2 u3 a3", "u1", "u1"),
        (
            "u1 a1 [u2 [a2 u3 a3 [u4 [a4",
            "u1 a1 u2 a2 u4 a4",
            "u1 a1 u2 a2 u4 a4",
        ),
        // An answer of a branch that is left goes with it, read or not.
        ("u1 [a1 a2?", "u1 a1", "u1 a1"),
        ("u1 a1? [u2 [a2 u3 a3", "u1 u2 a2", "u1 a1 u2 a2"),
        // A deleted message is put back.
        ("u1 [a1 u2 a2", "u1 a1 u2 a2", "u1 a1 u2 a2"),
        ("u1 [a1 u2 a2?", "u1 a1 u2", "u1 a1 u2 a2"),
        // An id with several texts: the text tells which, and else the order.
        ("u1 [u2 [a2 u2 a3", "u1 u2 a3", ""),
        ("u1 [u2 [a2 u2 a3", "u1 u2 a2", "1 2 3"),
        ("u1 u2 a2 [u2 [a3 u4 a4", "u1 u2 a3", "1 4 5"),
        ("u1 u2 a2 [u2 [a3 u4 a4", "u1 u2=4", "1 4"),
        ("u1 u2 a2 [u2 [a3 u4 a4", "u1 u2=2", "1 2"),
        ("u1 u2 [a2 [u2 u4 a4", "u1 u2=4", "1 4"),
        ("u1 u2 a2 [u2 [a3 [u2 [a4", "u1 u2=2,6 a4", "1 6 7"),
        ("u1 u2 a2 [u2 [a3 [u2 [a4", "u1 u2=2,6 a2", ""),
        ("u1 u2 a2 [u2 [a3", "u1 u2=2 a2 u2=4 a3", "1 3 4 5"),
        ("u1 u2 a2 [u2 [a3 u4", "u1 x1 u2=4 a3", "1 4 5"),
        ("u1 a1 [u1 [a2 u3 a3", "u1=3 a2", "3 4"),
        ("u0 a0 u1 a1 [u1 [a2 u3 a3", "u1=5 a2", "1 2 5 6"),
        // Another order changes nothing.
        ("u1 a1 u2 a2", "u2 a2 u1 a1", ""),
    ] {
        let rows = rows(stored);
        let found = shown_after(&rows, &listed(request), End::Open);
        assert_eq!(found, places(&rows, expected), "{stored:?} and {request:?}");
    }
}

#[test]
fn what_is_shown_after_a_new_answer_or_an_edit() {
    for (stored, request, end, expected) in [
        ("u1 a1 u2 a2", "u1 a1 u2", End::With(3), "u1 a1 u2"),
        ("u1 a1 u2 a2", "u1 a1", End::Before(3), "u1 a1"),
        // Something was deleted before it.
        ("u1 a1 u2 a2 u3 a3", "u1 a1 u3", End::With(5), "u1 a1 u3"),
        ("u1 a1 u2 a2 u3 a3", "u1 a1", End::Before(5), "u1 a1"),
        ("u1 a1 u2 a2", "u1 u2", End::With(3), "u1 u2"),
        // Nobody deleted what nobody has had.
        ("u1 a1? u2 a2", "u1 u2", End::With(3), "u1 a1 u2"),
        ("u1 a1? u2 a2", "u1", End::Before(3), "u1 a1"),
        // Answered again, whether any client has received the answer or not.
        ("u1 a1 u2 a2?", "u1 a1 u2", End::With(3), "u1 a1 u2"),
        ("u1 a1 [u2 [a2? u3", "u1 a1 u2", End::With(3), "u1 a1 u2"),
        // The end of a long history.
        ("u1 a1 u2 a2 u3 a3", "a2 u3", End::With(5), "u1 a1 u2 a2 u3"),
    ] {
        let rows = rows(stored);
        let found = shown_after(&rows, &listed(request), end);
        assert_eq!(found, places(&rows, expected), "{stored:?} and {request:?}");
    }
}

#[test]
fn what_is_shown_where_a_question_is_answered() {
    for (stored, request, waiting, expected) in [
        ("u1 a1 u2 a2", "u1 a1 u2 a2", "", ""),
        ("u1 a1 u2 a2", "a2", "", ""),
        ("u1 a1 u2 a2", "u2 a2", "", ""),
        ("u1 a1 u2 a2 u3 a3", "u1 a1 u3 a3", "", "u1 a1 u3 a3"),
        ("u1 a1? u2 a2", "u1 u2 a2", "", ""),
        ("u1 [a1 u2 a2", "u1 a1 u2 a2", "", "u1 a1 u2 a2"),
        // A page that was only shown the question knows nothing of what it answers.
        ("u1 a1 u2 a2", "u1 a1 a2", "", ""),
        ("u1 a1 [u2 u2 a2", "u1 a1 u2=3 a2", "", ""),
        // What came since then stays, and so does what waits next to it.
        ("u1 a1 u2 a2 u3 a3", "u1 u2 a2", "", "u1 u2 a2 u3 a3"),
        ("u1 a1 u2 a2", "u1 u2 a2", "a1", ""),
    ] {
        let rows = rows(stored);
        let answered = request.split_whitespace().last().unwrap();
        let answered = rows.iter().find(|row| row.id == answered).unwrap().place;
        let waiting = waiting.split_whitespace().map(named).collect();
        let found = shown_at_answer(&rows, &listed(request), answered, &waiting);
        assert_eq!(found, places(&rows, expected), "{stored:?} and {request:?}");
    }
}

/// A front end with a tree of messages, and a server that gets one path of it at a time.
#[derive(Debug, Clone)]
enum Step {
    /// Writes behind a message of a list that it has shown, and reads the answer or does not.
    Write { behind: usize, reads: bool },
    /// Rewrites a message of such a list, under its id.
    Edit { which: usize, reads: bool },
    /// Asks for a new answer to one of its messages.
    Regenerate { which: usize, reads: bool },
    /// Deletes a message of the list that it shows.
    Delete { which: usize },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let asked = || (any::<usize>(), prop::bool::weighted(0.8));
    let step = prop_oneof![
        4 => asked().prop_map(|(behind, reads)| Step::Write { behind, reads }),
        2 => asked().prop_map(|(which, reads)| Step::Edit { which, reads }),
        1 => asked().prop_map(|(which, reads)| Step::Regenerate { which, reads }),
        1 => any::<usize>().prop_map(|which| Step::Delete { which }),
    ];
    prop::collection::vec(step, 1..25)
}

/// What a message is called, and what it says.
type Said = (String, String);

/// A row: what it says, with which cut it went, whether a client has had it.
type Stored = (Said, Option<u64>, bool);

/// What a store would hold.
#[derive(Debug, Default)]
struct Server {
    rows: Vec<Stored>,
    cuts: u64,
}

impl Server {
    fn shown(&self) -> impl Iterator<Item = &Stored> {
        self.rows.iter().filter(|row| row.1.is_none())
    }

    /// Does what a request means whose last message is of the user, and answers it.
    fn take(&mut self, earlier: &[Said], last: &Said, answer: Said, reads: bool) {
        let with_id = |(_, row): &(usize, &Stored)| row.0.0 == last.0;
        let known = || self.rows.iter().enumerate().filter(with_id);
        let shown = known().find(|(_, row)| row.1.is_none());
        // A message alone says nothing of the history, so that none comes back for it.
        let cut = || known().next_back().filter(|_| !earlier.is_empty());
        let (end, is_new) = match shown.or_else(cut) {
            Some((place, row)) if row.0 == *last => (End::With(place as u64), false),
            Some((place, row)) if row.1.is_none() => (End::Before(place as u64), true),
            _ => (End::Open, true),
        };
        let rows: Vec<Row<'_>> = (0u64..)
            .zip(&self.rows)
            .map(|(place, ((id, _), cut_in, seen))| Row {
                place,
                id: named(id),
                role: role(id),
                cut_in: *cut_in,
                seen: *seen,
            })
            .collect();
        let same = |said: &Said| {
            let same = (0u64..).zip(&self.rows).filter(|(_, row)| row.0 == *said);
            same.map(|(place, _)| place).collect()
        };
        let again = (!is_new).then_some(last);
        let listed: Vec<ListedMessage<'_>> = earlier
            .iter()
            .chain(again)
            .map(|said| ListedMessage {
                id: named(&said.0),
                role: role(&said.0),
                same: same(said),
            })
            .collect();
        let places = match (earlier.is_empty(), end) {
            (false, _) => shown_after(&rows, &listed, end),
            (true, End::Open) => None,
            (true, End::With(last)) => Some((0..=last).collect()),
            (true, End::Before(last)) => Some((0..last).collect()),
        };
        if let Some(mut places) = places {
            let is_cut = |place: u64| self.rows[place as usize].1.is_some();
            places.retain(|place| !earlier.is_empty() || !is_cut(*place));
            self.cuts += 1;
            for (place, row) in (0u64..).zip(&mut self.rows) {
                let is_shown = places.contains(&place);
                row.1 = (!is_shown).then(|| row.1.unwrap_or(self.cuts));
            }
        }
        if is_new {
            self.rows.push((last.clone(), None, true));
        }
        self.rows.push((answer, None, reads));
    }
}

proptest! {
    #[test]
    fn the_chat_shows_what_the_front_end_shows(steps in steps()) {
        let mut server = Server::default();
        // Every list that the front end has shown: it can go back to each.
        let mut lists: Vec<Vec<Said>> = vec![Vec::new()];
        let mut now: Vec<Said> = Vec::new();
        // Answers that it never had, by what they answer.
        let mut unread: HashMap<Said, Said> = HashMap::new();
        let mut answered: HashSet<Said> = HashSet::new();
        for (number, step) in steps.into_iter().enumerate() {
            let number = number.to_string();
            let text = |id: &str| (id.to_owned(), number.clone());
            let pick = |which: usize| &lists[which % lists.len()];
            let (last, reads) = match step {
                Step::Delete { which } => {
                    if !now.is_empty() {
                        now.remove(which % now.len());
                        lists.push(now.clone());
                    }
                    continue;
                }
                Step::Write { behind, reads } => {
                    let from = pick(behind);
                    let keep = if from.is_empty() { 0 } else { 1 + behind / lists.len() % from.len() };
                    now = from[..keep].to_vec();
                    (text(&format!("u{number}")), reads)
                }
                Step::Edit { which, reads } | Step::Regenerate { which, reads } => {
                    let from = pick(which);
                    let users = from.iter().enumerate().filter(|(_, said)| role(&said.0) == Role::User);
                    let users: Vec<_> = users.collect();
                    if users.is_empty() {
                        continue;
                    }
                    let (index, said) = users[which / lists.len() % users.len()];
                    let last = match step {
                        Step::Edit { .. } => text(&said.0),
                        _ => said.clone(),
                    };
                    now = from[..index].to_vec();
                    (last, reads)
                }
            };
            let answer = text(&format!("a{number}"));
            server.take(&now, &last, answer.clone(), reads);
            let is_alone = now.is_empty();
            now.push(last);
            let ids: HashSet<&str> = server.shown().map(|row| row.0.0.as_str()).collect();
            prop_assert_eq!(ids.len(), server.shown().count(), "an id twice");
            // A message alone says nothing of the history.
            if !is_alone {
                let mut shown: Vec<&Stored> = server.shown().collect();
                shown.pop();
                let first = shown.iter().position(|row| now.contains(&row.0)).unwrap();
                let is_listed = |row: &&&Stored| now.contains(&row.0);
                let extra = shown[first..].iter().filter(|row| !is_listed(row));
                prop_assert!(extra.cloned().all(|row| !row.2), "{now:?} and {shown:?}");
                let common = shown[first..].iter().filter(is_listed);
                let common: Vec<Said> = common.map(|row| row.0.clone()).collect();
                prop_assert_eq!(&common, &now);
                let (_, earlier) = now.split_last().unwrap();
                for answer in earlier.iter().filter_map(|said| unread.get(said)) {
                    let is_shown = shown.iter().any(|row| row.0 == *answer);
                    prop_assert!(is_shown, "{now:?} and {shown:?} lack {answer:?}");
                }
            }
            // Of several answers the list says which it means.
            let question = now[now.len() - 1].clone();
            match (answered.insert(question.clone()), reads) {
                (true, false) => drop(unread.insert(question, answer.clone())),
                _ => drop(unread.remove(&question)),
            }
            if reads {
                now.push(answer);
            }
            lists.push(now.clone());
        }
    }
}
