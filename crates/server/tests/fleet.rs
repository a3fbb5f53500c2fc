//! Several replicas on one PostgreSQL: what one of them leaves behind, killed, paused or stopped, another goes on with.

#![cfg(all(feature = "demo", unix))]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on has failed"
)]

use std::process::Command;
use std::time::{Duration, Instant};

use adk_bridge_testkit::fleet::{Fleet, LEASE, name_of};
use adk_bridge_testkit::postgres::Postgres;
use adk_bridge_testkit::process::refusal;
use adk_bridge_testkit::socket::Client;
use adk_bridge_testkit::{Bridge, folded, text_of, within, words};
use serde_json::{Value, json};
use tempfile::TempDir;

const CHAT: &str = "chat-1";
const PAY: &str = "call process_payment {\"amount\": 5, \"recipient\": \"Ken\"}";
/// Slow enough that an answer is caught in the middle.
const SLOWLY: (&str, &str) = ("ADK_BRIDGE__DEMO__PACE", "20ms");
const FAILPOINT: &str = "ADK_BRIDGE_FAILPOINT";

fn slowly(_: usize, command: &mut Command) {
    command.env(SLOWLY.0, SLOWLY.1);
}

#[tokio::test]
async fn a_killed_owners_answer_is_begun_again_and_comes_to_its_end() {
    let mut fleet = Fleet::start_with(2, "", slowly);
    let mut answer = fleet.at(0).ask(CHAT, "long 60").await;
    answer.events_until("word20").await;
    fleet.kill(0);
    assert!(!answer.to_the_end().await.1);
    let mut rest = fleet.resumed(1, CHAT).await;
    let message = folded(&rest.events().await);
    assert_eq!(text_of(&message), words(60));
    assert_eq!(message["metadata"]["ended"], Value::Null);
    let stored = fleet.at(1).settled_message(CHAT).await;
    assert_eq!(stored["parts"], message["parts"]);
    assert_eq!(stored["metadata"], message["metadata"]);
    // Whether a reader or the replica's regular look was first.
    assert_eq!(fleet.metric(1, "takeover_seconds_count").await, 1.0);
    let took = fleet.metric(1, "takeover_seconds_sum").await;
    assert!(took >= LEASE.as_secs_f64(), "{took}");
}

#[tokio::test]
async fn an_open_question_outlives_its_owner_and_is_answered_elsewhere_once() {
    let mut fleet = Fleet::start(2, "");
    let asked = folded(&fleet.at(0).ask(CHAT, PAY).await.events().await);
    fleet.kill(0);
    let answered = answered(&asked, true);
    let body = json!({"id": CHAT, "trigger": "submit-message", "messages": [answered]});
    let message = within(async {
        loop {
            let headers = [("content-type", "application/json")];
            let bridge = fleet.at(1);
            let sent = bridge
                .send("POST", "/api/chat", &headers, body.to_string())
                .await;
            if sent.status == 200 {
                return bridge.settled_message(CHAT).await;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
    assert_eq!(outcomes(&message), ["output-available"], "{message}");
    let audit = audit(fleet.at(1)).await;
    assert_eq!(rows(&audit, "tool.started"), [name_of(1)]);
    assert_eq!(rows(&audit, "approval.requested"), [name_of(0)]);
    assert_eq!(rows(&audit, "approval.approved"), [name_of(1)]);
}

#[tokio::test]
async fn a_question_without_an_owner_expires_in_time() {
    let mut fleet = Fleet::start(2, "[approval]\ntimeout = \"2s\"\n");
    fleet.at(0).ask(CHAT, PAY).await.events().await;
    fleet.kill(0);
    let killed = Instant::now();
    within(async {
        while rows(&audit(fleet.at(1)).await, "approval.expired") != [name_of(1)] {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
    // Nobody could have been quicker: the owner had to be dead first.
    assert!(killed.elapsed() + Duration::from_secs(2) > LEASE - Duration::from_secs(1));
}

#[tokio::test]
async fn a_tool_that_ran_when_its_owner_died_never_runs_again() {
    for point in ["after-start", "in-tool"] {
        let fleet = Fleet::start_with(2, "", |index, command| {
            if index == 0 {
                command.env(FAILPOINT, point);
            }
        });
        let asked = folded(&fleet.at(0).ask(CHAT, PAY).await.events().await);
        let body =
            json!({"id": CHAT, "trigger": "submit-message", "messages": [answered(&asked, true)]});
        let mut connection = fleet.at(0).connect().await;
        let headers = [("content-type", "application/json")];
        let body = body.to_string();
        connection
            .request("POST", "/api/chat", &headers, body.as_bytes())
            .await;
        // It dies of it.
        if let Some(answer) = connection.try_answer("POST").await {
            assert!(!answer.to_the_end().await.1);
        }
        within(async {
            while rows(&audit(fleet.at(1)).await, "tool.outcome_unknown") != [name_of(1)] {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        })
        .await;
        let message = fleet.at(1).settled_message(CHAT).await;
        assert_eq!(outcomes(&message), ["output-error"], "{point}: {message}");
        let audit = audit(fleet.at(1)).await;
        assert_eq!(rows(&audit, "tool.started"), [name_of(0)], "{point}");
    }
}

#[tokio::test]
async fn what_the_store_refuses_to_an_old_owner_is_not_acknowledged() {
    let tool = "name = \"pick\"\ndescription = \"Picks.\"\ninput_schema = { type = \"object\" }";
    let fleet = Fleet::start(1, &format!("[[agent.client_tools]]\n{tool}\n"));
    let bridge = fleet.at(0);
    for (chat, question, request) in [
        ("output", "call pick {}", "tool-output"),
        ("stop", PAY, "stop"),
    ] {
        let asked = folded(&bridge.ask(chat, question).await.events().await);
        let part = &asked["parts"][1];
        let output = json!({"toolCallId": part["toolCallId"], "output": {"picked": 1}});
        let send = async || {
            let path = format!("/api/chat/{chat}/{request}");
            let headers = [("content-type", "application/json")];
            let body = output.to_string();
            bridge.send("POST", &path, &headers, body).await
        };
        fleet.sql("DELETE FROM adk_bridge.ownership");
        let refused = send().await;
        assert_eq!(refused.status, 503, "{chat}: {refused:?}");
        assert!(refused.header("retry-after").is_some(), "{refused:?}");
        // The replica takes the chat again, and nothing is lost.
        within(async {
            while send().await.status != 204 {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        })
        .await;
        let message = bridge.settled_message(chat).await;
        assert_ne!(outcomes(&message), outcomes(&asked), "{chat}: {message}");
    }
    let stopped = bridge.settled_message("stop").await;
    assert_eq!(stopped["metadata"]["ended"], "stopped", "{stopped}");
}

#[tokio::test]
async fn a_replica_that_was_paused_beyond_its_lease_neither_stores_nor_tells() {
    let fleet = Fleet::start_with(2, "", slowly);
    let mut answer = fleet.at(0).ask(CHAT, "long 100").await;
    answer.events_until("word20").await;
    fleet.pause(0);
    let mut rest = fleet.resumed(1, CHAT).await;
    let mut events = rest.events_until("word5 ").await;
    answer.forget_arrived();
    fleet.wake(0);
    let (told, is_whole) = answer.to_the_end().await;
    assert!(
        !is_whole && told.is_empty(),
        "{}",
        String::from_utf8_lossy(&told)
    );
    events.extend(rest.events().await);
    assert_eq!(text_of(&folded(&events)), words(100));
    let message = fleet.at(1).settled_message(CHAT).await;
    assert_eq!(text_of(&message), words(100));
    // It is one of the others again.
    fleet.until_ready_says(0, "\"peers\":[\"bridge-2\"]").await;
    assert_eq!(fleet.metric(0, "leases_lost_total").await, 1.0);
    let mut let_go = 0.0;
    for by in ["store", "lease"] {
        let name = format!("chats_let_go_total{{by={by:?}}}");
        let_go += fleet.metric(0, &name).await;
    }
    assert_eq!(let_go, 1.0);
    assert_eq!(fleet.metric(1, "takeover_seconds_count").await, 1.0);
    let again = folded(&fleet.at(0).ask("chat-2", "hello").await.events().await);
    assert!(!text_of(&again).is_empty());
}

/// A claim that was given up and repeated may arrive late: it takes the chat from the task that it was repeated for.
#[tokio::test]
async fn a_chat_that_its_own_replica_has_taken_from_it_goes_on() {
    let fleet = Fleet::start_with(1, "", slowly);
    let mut answer = fleet.at(0).ask(CHAT, "long 100").await;
    answer.events_until("word20").await;
    fleet.sql("UPDATE adk_bridge.ownership SET epoch = nextval('adk_bridge.epochs')");
    assert!(!answer.to_the_end().await.1);
    // Nobody asks for it.
    within(async {
        while fleet.sql("SELECT count(*) FROM adk_bridge.messages WHERE open") != "0\n" {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
    assert_eq!(
        text_of(&fleet.at(0).settled_message(CHAT).await),
        words(100)
    );
    assert!(fleet.metric(0, "fenced_total").await >= 1.0);
    let let_go = fleet.metric(0, "chats_let_go_total{by=\"store\"}").await;
    assert_eq!(let_go, 1.0);
    assert_eq!(fleet.metric(0, "leases_lost_total").await, 0.0);
    // Nobody was dead.
    assert_eq!(fleet.metric(0, "takeover_seconds_count").await, 0.0);
}

/// The same while the chat is loaded, which begins with a write if the owner before has left text that grows.
#[tokio::test]
async fn a_chat_that_was_taken_while_it_was_loaded_goes_on() {
    let mut fleet = Fleet::start_with(2, "", |index, command| {
        slowly(index, command);
        if index == 0 {
            command.env(FAILPOINT, "after-checkpoint");
        }
    });
    // Whoever takes the chat has lost it again before it knows.
    fleet.sql(
        "CREATE TABLE public.taken (once boolean PRIMARY KEY);
         CREATE FUNCTION public.take_once() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
             INSERT INTO public.taken VALUES (true) ON CONFLICT DO NOTHING;
             IF FOUND THEN
                 UPDATE adk_bridge.ownership SET epoch = nextval('adk_bridge.epochs');
             END IF;
             RETURN NULL;
         END $$",
    );
    let mut answer = fleet.at(0).ask(CHAT, "long 200").await;
    answer.events_until("word5 ").await;
    fleet.sql(
        "CREATE TRIGGER take_once AFTER INSERT OR UPDATE ON adk_bridge.ownership
         FOR EACH ROW EXECUTE FUNCTION public.take_once()",
    );
    assert!(!answer.to_the_end().await.1);
    within(async {
        while fleet.at_mut(0).is_alive() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
    let mut rest = fleet.resumed(1, CHAT).await;
    assert_eq!(text_of(&folded(&rest.events().await)), words(200));
    let let_go = fleet.metric(1, "chats_let_go_total{by=\"store\"}").await;
    assert_eq!(let_go, 1.0);
    assert!(
        !fleet.at(1).log().contains(" ERROR "),
        "{}",
        fleet.at(1).log()
    );
}

#[tokio::test]
async fn what_was_acknowledged_outlives_a_crash_of_the_database() {
    let server = Postgres::start().forgetful();
    let tool = "[[agent.client_tools]]\nname = \"pick_color\"\n";
    let toml = format!("{tool}[store]\nurl = {:?}\n", server.database());
    let mut bridge = Bridge::configured(&toml);
    let asked = bridge.ask(CHAT, "call pick_color {}").await.events().await;
    let asked = folded(&asked);
    let mut parts = asked["parts"].as_array().unwrap().iter();
    let call = parts.find_map(|part| part["toolCallId"].as_str()).unwrap();
    let output = json!({"toolCallId": call, "output": "teal"});
    let path = format!("/api/chat/{CHAT}/tool-output");
    assert_eq!(bridge.post(&path, &output).await.status, 204);
    let said = folded(&bridge.ask("said", "hello").await.events().await);
    // Stopped, it cannot store again what it still knows.
    bridge.signal("-STOP");
    server.crash();
    bridge.kill_and_restart();
    let message = bridge.settled_message(CHAT).await;
    assert_eq!(outcomes(&message), ["output-available"], "{message}");
    let stored = bridge.settled_message("said").await;
    assert_eq!(stored["parts"], said["parts"]);
}

#[tokio::test]
async fn a_replica_that_stops_hands_its_chats_over() {
    let toml = "[server]\ndrain = \"1s\"\n[live]\nheartbeat = \"1s\"\n";
    let mut fleet = Fleet::start_with(2, toml, slowly);
    let asked = folded(&fleet.at(0).ask("asks", PAY).await.events().await);
    let mut idle = Client::open(fleet.at(0), "/live?chat=asks").await;
    idle.chunks().await;
    let mut answer = fleet.at(0).ask("long", "long 400").await;
    answer.events_until("word20").await;
    fleet.stop(0);
    fleet.until_ready_says(0, "about to stop").await;
    fleet.until_ready_says(1, "\"peers\":[]").await;
    // The idle connection is told to come back, and finds the question at the other one.
    let told = within(async {
        loop {
            let control = idle.control().await;
            if control["type"] == "reconnect" {
                return control;
            }
        }
    })
    .await;
    assert!(told["afterMs"].as_u64().unwrap() < 200, "{told}");
    assert_eq!(idle.closed().await.0, 1001);
    let mut back = Client::open(fleet.at(1), "/live?chat=asks").await;
    let shown = back.chunks().await;
    let question = shown
        .iter()
        .any(|chunk| chunk["type"] == "tool-approval-request");
    assert!(question, "{shown:?}");
    assert_eq!(outcomes(&asked), ["approval-requested"]);
    // The answer that takes too long goes on there.
    assert!(!answer.to_the_end().await.1);
    let message = folded(&fleet.resumed(1, "long").await.events().await);
    assert_eq!(text_of(&message), words(400));
    // Its name is free at once.
    fleet.at_mut(0).kill_and_restart();
    fleet.until_ready_says(0, "\"peers\":[\"bridge-2\"]").await;
}

#[tokio::test]
async fn a_replica_without_its_database_stops_in_time() {
    /// The drain of the configuration, and what server.rs and chat/owning.rs allow: 2 s until load balancers have noticed,
    /// 5 s for the last writes, 5 s for connections of clients, 3 s to leave the others, 1 s for a seal, 5 s to close
    /// connections to the database. Without it one write is tried for 30 s.
    const BOUND: Duration = Duration::from_secs(1 + 2 + 5 + 5 + 3 + 1 + 5);
    let server = Postgres::start();
    let toml = format!(
        "[server]\ndrain = \"1s\"\n[cluster]\nlease = \"60s\"\n[store]\nurl = {:?}\n",
        server.database()
    );
    let mut bridge = Bridge::with(&toml, |command| slowly(0, command));
    let mut answer = bridge.ask(CHAT, "long 2000").await;
    answer.events_until("word20").await;
    server.stop(true);
    // Whoever only wants to read does not wait as long as a write is tried.
    let listed = tokio::time::timeout(Duration::from_secs(15), bridge.get("/api/chats")).await;
    let listed = listed.unwrap();
    let said = String::from_utf8_lossy(&listed.body).into_owned();
    assert_eq!(listed.status, 503, "{said}");
    assert!(said.contains("the database cannot be reached"), "{said}");
    assert!(listed.header("retry-after").is_some(), "{listed:?}");
    bridge.signal("-TERM");
    let stopped = tokio::time::timeout(BOUND, async {
        while bridge.is_alive() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
    assert!(stopped.await.is_ok(), "{}", bridge.log());
    assert!(
        bridge.log().contains("could not be handed over in time"),
        "{}",
        bridge.log()
    );
}

/// A chat that somebody uses elsewhere is left alone, however old it is.
#[tokio::test]
async fn an_old_chat_is_deleted_unless_another_replica_has_it() {
    let fleet = Fleet::start(1, "[retention]\nchats = \"90d\"\n");
    for chat in ["used", "unused"] {
        fleet.at(0).ask(chat, "hello").await.events().await;
    }
    let _reader = Client::open(fleet.at(0), "/live?chat=used").await;
    // Nobody has the other one any more.
    within(async {
        while fleet.sql("SELECT chat_id FROM adk_bridge.ownership") != "used\n" {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
    fleet.sql(
        "UPDATE adk_bridge.chats SET updated_at = updated_at - 91 * 86400000::bigint;
         UPDATE adk_bridge.jobs SET taken_to = taken_to - interval '1 day'",
    );
    let other = Bridge::configured(&fleet.toml_of("other"));
    within(async {
        while fleet.sql("SELECT id FROM adk_bridge.chats") != "used\n" {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
    // Its look is over when it has counted.
    within(async {
        let line = "adk_bridge_retention_deleted_total{what=\"chats\"} 1";
        loop {
            let metrics = other.get("/metrics").await;
            if String::from_utf8_lossy(&metrics.body).contains(line) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
    let chats = other.get("/api/chats").await.json();
    assert_eq!(chats[0]["id"], "used", "{chats}");
}

#[tokio::test]
async fn a_turn_that_ends_in_time_is_not_moved() {
    let fleet = Fleet::start_with(2, "[server]\ndrain = \"30s\"\n", slowly);
    let mut answer = fleet.at(0).ask(CHAT, "long 150").await;
    let mut events = answer.events_until("word20").await;
    fleet.stop(0);
    events.extend(answer.events().await);
    assert_eq!(text_of(&folded(&events)), words(150));
}

#[tokio::test]
async fn a_replica_that_stops_waits_for_what_it_passes_on() {
    /// Takes longer than a replica that waits for nothing takes to stop.
    const LONG: usize = 450;
    let long = format!("long {LONG}");
    let mut fleet = Fleet::start_with(2, "[server]\ndrain = \"60s\"\n", slowly);
    fleet.at(1).ask(CHAT, &long).await.event().await.unwrap();
    let mut through = fleet.at(0).resume(CHAT).await;
    through.event().await.unwrap();
    fleet.stop(0);
    fleet.until_ready_says(0, "about to stop").await;
    // Load balancers have not noticed yet, and send it a new chat.
    let mut new = fleet.at(0).ask("new", &long).await;
    assert!(through.to_the_end().await.1);
    let message = folded(&new.events().await);
    assert_eq!(text_of(&message), words(LONG));
    within(async {
        while fleet.at_mut(0).is_alive() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn replicas_that_do_not_share_their_files_say_so() {
    let directory = TempDir::new().unwrap();
    let fleet = Fleet::start(1, "");
    // Alone it may keep them where it likes.
    let ready = fleet.at(0).get("/ready").await.json();
    assert_eq!(ready["cluster"]["problems"], Value::Null, "{ready}");
    let files = format!("[files]\nurl = {:?}\n", directory.path());
    let shared = Bridge::configured(&format!("{files}{}", fleet.toml_of("shared")));
    fleet.until_ready_says(0, "files.url").await;
    let ready = shared.get("/ready").await.json();
    assert!(!ready.to_string().contains("files.url"), "{ready}");
}

#[tokio::test]
async fn what_cannot_be_a_cluster_is_refused_or_reported_by_name() {
    let mut fleet = Fleet::start(1, "");
    let directory = TempDir::new().unwrap();
    let said = refusal(&mut fleet.command(&directory, &name_of(0)));
    assert!(
        said.contains("cluster.name") && said.contains("bridge-1"),
        "{said}"
    );
    // One that has crashed is waited out.
    fleet.at_mut(0).kill_and_restart();
    for (toml, key) in [
        (
            "[server]\nadvertise = \"http://10.0.0.5:8080\"\n",
            "server.advertise",
        ),
        ("[cluster]\nname = \"bridge-1\"\n", "cluster.name"),
        ("[cluster]\nkey = \"0123456789abcdef\"\n", "cluster.key"),
        ("[cluster]\nkey_env = \"PATH\"\n", "cluster.key_env"),
        ("[cluster]\nlease = \"7s\"\n", "cluster.lease"),
    ] {
        let said = adk_bridge_testkit::refused(toml, |_| {});
        assert!(said.contains(key) && said.contains("SQLite"), "{said}");
    }
    // The others do not believe it.
    let toml = format!(
        "{}key = \"another-secret-0123\"\n",
        fleet.toml_of("stranger")
    );
    let _stranger = Bridge::configured(&toml);
    // Nothing listens there.
    let elsewhere = "[server]\nadvertise = \"http://127.0.0.1:9\"\n";
    let toml = format!(
        "{elsewhere}{}key = \"0123456789abcdef\"\n",
        fleet.toml_of("lost")
    );
    let lost = Bridge::configured(&toml);
    let wait = async {
        loop {
            let ready = lost.get("/ready").await.json();
            let problems = ready["cluster"]["problems"].to_string();
            if problems.contains("server.advertise") && problems.contains("lost") {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    within(wait).await;
    assert!(lost.log().contains("server.advertise"), "{}", lost.log());
    let ready = fleet.until_ready_says(0, "another cluster.key").await;
    assert!(ready.contains("the replica \\\"stranger\\\""), "{ready}");
}

/// Whoever has lost its lease may find its name taken when it joins the others again.
#[tokio::test]
async fn a_name_that_was_taken_meanwhile_is_reported_until_it_is_free() {
    let fleet = Fleet::start(1, "");
    let until_log_says = async |words: &str| {
        within(async {
            while !fleet.at(0).log().contains(words) {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        })
        .await;
    };
    fleet.sql(
        "UPDATE adk_bridge.replicas SET instance = 'another', heartbeat = heartbeat + interval '1 hour'",
    );
    let words = "another replica is called \"bridge-1\" (cluster.name)";
    until_log_says(words).await;
    fleet.sql("DELETE FROM adk_bridge.replicas");
    until_log_says(&format!("this is over: {words}")).await;
    let ready = fleet.until_ready_says(0, "\"replica\":\"bridge-1\"").await;
    assert!(!ready.contains("problems"), "{ready}");
    assert_eq!(fleet.metric(0, "leases_lost_total").await, 1.0);
    let said = folded(&fleet.at(0).ask(CHAT, "hello").await.events().await);
    assert!(!text_of(&said).is_empty());
}

/// Seen from a replica, a wrong clock of its machine is one of the database that differs.
#[tokio::test]
async fn a_clock_that_differs_is_reported_until_it_is_right() {
    let fleet = Fleet::start(1, "");
    let set_ahead = |seconds: u32| {
        fleet.sql(&format!(
            "CREATE OR REPLACE FUNCTION adk_bridge.millis(_at timestamptz) RETURNS bigint LANGUAGE sql IMMUTABLE
             AS 'SELECT ((extract(epoch FROM _at) + {seconds}) * 1000)::bigint'"
        ));
    };
    set_ahead(30);
    let words = "seconds behind the database's";
    let ready = fleet.until_ready_says(0, words).await;
    assert!(ready.contains("\"problems\""), "{ready}");
    assert!(fleet.at(0).log().contains(words), "{}", fleet.at(0).log());
    let difference = fleet.metric(0, "clock_difference_seconds").await;
    assert!((29.0..31.0).contains(&difference), "{difference}");
    // It serves nevertheless.
    let said = folded(&fleet.at(0).ask(CHAT, "hello").await.events().await);
    assert!(!text_of(&said).is_empty());
    set_ahead(0);
    within(async {
        while fleet.metric(0, "clock_difference_seconds").await != 0.0 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
    assert!(!fleet.until_ready_says(0, "bridge-1").await.contains(words));
}

/// The message of a question with an answer, as a client sends it.
fn answered(message: &Value, approved: bool) -> Value {
    let mut message = message.clone();
    for part in message["parts"].as_array_mut().unwrap() {
        if part["state"] == "approval-requested" {
            part["state"] = json!("approval-responded");
            part["approval"]["approved"] = json!(approved);
        }
    }
    message
}

/// The states of the calls of a message.
fn outcomes(message: &Value) -> Vec<String> {
    let parts = message["parts"].as_array().unwrap().iter();
    let states = parts.filter_map(|part| {
        part["state"]
            .as_str()
            .filter(|_| part["toolCallId"].is_string())
    });
    states.map(str::to_owned).collect()
}

async fn audit(bridge: &Bridge) -> Vec<Value> {
    let audit = bridge.get(&format!("/api/audit?chat={CHAT}")).await.json();
    audit.as_array().unwrap().clone()
}

/// The replicas that wrote rows of this kind.
fn rows(audit: &[Value], kind: &str) -> Vec<String> {
    let rows = audit.iter().filter(|row| row["kind"] == kind);
    rows.map(|row| row["replica"].as_str().unwrap().to_owned())
        .collect()
}
