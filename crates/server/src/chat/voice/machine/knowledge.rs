//! What the model behind one connection knows of the conversation.

/// How much of the conversation a model has, in contents counted from the beginning.
///
/// Never more than was sent: contents may be sent twice, but none is left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Knowledge {
    contents_sent: usize,
    /// How many of them the model certainly has: a handle may be older than the last of them.
    contents_confirmed: usize,
    behind: HistoryLag,
}

/// Whether the conversation has grown outside of this connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum HistoryLag {
    #[default]
    No,
    /// It has everything except the results of the current run.
    OneRun,
    Yes,
}

impl Knowledge {
    /// The knowledge of a connection that is opened with these contents. `run`: whether another run adds to them.
    pub(super) fn of_setup(contents: usize, confirmed: usize, run: bool) -> Self {
        Self {
            contents_sent: contents,
            contents_confirmed: confirmed,
            behind: HistoryLag::after_sending(run),
        }
    }

    pub(crate) fn contents_sent(self) -> usize {
        self.contents_sent
    }

    pub(crate) fn contents_confirmed(self) -> usize {
        self.contents_confirmed
    }

    /// Whether something has to be sent before the user's speech.
    pub(super) fn is_behind(self) -> bool {
        self.behind == HistoryLag::Yes
    }

    /// Notes that the model was sent everything up to here. `run`: whether another run adds to it.
    pub(super) fn sent(&mut self, contents: usize, run: bool) {
        self.contents_sent = contents;
        self.behind = HistoryLag::after_sending(run);
    }

    /// Notes that the model knows everything after what it was sent: it heard it, said it, or was sent it separately.
    /// If it is behind, counting cannot show which part that is, so everything is sent again.
    pub(super) fn took_part(&mut self, contents: usize) {
        if self.behind == HistoryLag::No {
            self.contents_sent = contents;
        }
    }

    /// Like [`Self::took_part`], at the end of an answer: the model has read everything before it.
    pub(super) fn finished_run(&mut self, contents: usize) {
        self.took_part(contents);
        self.contents_confirmed = self.contents_sent;
    }

    pub(super) fn other_run_began(&mut self) {
        self.behind = HistoryLag::Yes;
    }

    pub(super) fn other_run_ended(&mut self) {
        if self.behind == HistoryLag::OneRun {
            self.behind = HistoryLag::Yes;
        }
    }

    /// Notes that `removed` contents after the first `unchanged` were removed from the conversation.
    pub(super) fn removed(&mut self, unchanged: usize, removed: usize) {
        for count in [&mut self.contents_sent, &mut self.contents_confirmed] {
            if *count > unchanged {
                *count = count.saturating_sub(removed).max(unchanged);
            }
        }
    }
}

impl HistoryLag {
    fn after_sending(run: bool) -> Self {
        match run {
            true => Self::OneRun,
            false => Self::No,
        }
    }
}
