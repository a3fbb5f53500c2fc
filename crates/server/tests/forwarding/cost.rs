//! What a hop costs: `cargo test --release -p adk-bridge --test forwarding cost -- --ignored --nocapture`.

use crate::rig::{Fleet, Replica};

/// Turns under way at once, and how often.
const AT_ONCE: usize = 8;
const ROUNDS: usize = 4;

/// The same turns read at their owner and through another replica, in one process: the difference is the hop.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "it measures"]
async fn a_hop_costs_little() {
    for (name, pace, words) in [("flood", 0, 5_000), ("paced", 5, 400)] {
        let fleet = Fleet::new().await;
        let a = fleet.start_paced("a", "", pace).await;
        let b = fleet.start_paced("b", "", pace).await;
        let mut costs = Vec::new();
        for round in 0..=ROUNDS {
            for (way, reader) in [("direct", &a), ("hop", &b)] {
                let before = cpu_micros();
                let chat = format!("{name}-{round}-{way}");
                let read = read_all(&a, reader, &chat, words).await;
                let micros = cpu_micros() - before;
                // The first round warms everything up.
                if round > 0 {
                    costs.push((way, micros as f64 / read as f64));
                }
            }
        }
        let mean = |wanted: &str| {
            let costs = costs.iter().filter(|(way, _)| *way == wanted);
            costs.map(|(_, cost)| cost).sum::<f64>() / ROUNDS as f64
        };
        let (direct, hop) = (mean("direct"), mean("hop"));
        let more = hop - direct;
        eprintln!(
            "{name}: {direct:.1} µs per delta read at the owner (model and reader included), {hop:.1} through another \
             replica: a hop costs {more:.1}"
        );
    }
}

/// Begins turns at their owner and reads them with another reader; returns how many deltas that one got.
async fn read_all(owner: &Replica, reader: &Replica, chat: &str, words: usize) -> usize {
    let turns = (0..AT_ONCE).map(|turn| async move {
        let chat = format!("{chat}-{turn}");
        let begun = owner.ask(&chat, &format!("long {words}")).await;
        let mut read = reader
            .open("GET", &format!("/api/chat/{chat}/stream"), "")
            .await;
        // Whoever has begun it does not read it.
        drop(begun);
        let events = read.events().await;
        events.iter().filter(|it| it.contains("text-delta")).count()
    });
    let counts = futures_util::future::join_all(turns).await;
    counts.into_iter().sum()
}

/// The processor time of this process.
fn cpu_micros() -> u64 {
    const MICROS_PER_TICK: u64 = 10_000;
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split(' ').collect();
    let ticks = |index: usize| fields[index].parse::<u64>().unwrap();
    (ticks(12) + ticks(13)) * MICROS_PER_TICK
}
