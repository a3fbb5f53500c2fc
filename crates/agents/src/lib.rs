//! Who answers: the agents that the bridge can talk to.
