//! Carries orders to the target on a task of its own, so that a slow server never delays a tick.

use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Duration, MissedTickBehavior, interval};

use crate::cancel::{AnyInitiator, Desk, Initiator as _, Ladder, Proof, SentOrder};
use crate::engine::record::{Decision, Order};
use crate::engine::settings::Mode;

/// How often the way to the target is tried.
const WARM_EVERY: Duration = Duration::from_secs(1);

/// What the ladder can use once the probes are attached.
#[derive(Default)]
pub struct Tools {
    /// The desk where orders can be put down for threads to find.
    pub desk: Option<Box<dyn Desk>>,
    /// What proves a task's identity before a signal, where the target's memory does not.
    pub proof: Option<Proof>,
}

/// The agent's end of the carrier.
pub struct Carrier {
    orders: mpsc::Sender<Order>,
    tools: Option<oneshot::Sender<Tools>>,
    questions: mpsc::Sender<Box<Decision>>,
    /// What the target tells of decisions: the number of the decision, and sentences.
    pub remarks: mpsc::Receiver<(u64, Vec<String>)>,
    /// Orders that were carried out.
    pub answers: mpsc::Receiver<SentOrder>,
    /// Numbers of the agent's own sessions.
    pub own_ids: watch::Receiver<Vec<u64>>,
    /// What is wrong with the way to the target, if anything.
    pub trouble: watch::Receiver<Option<String>>,
}

impl Carrier {
    /// Starts the task that owns the ladder. It ends when this end is dropped.
    pub fn start(ladder: Ladder<AnyInitiator>) -> Self {
        let (orders, orders_in) = mpsc::channel(16);
        let (tools, tools_in) = oneshot::channel();
        let (answers_out, answers) = mpsc::channel(16);
        let (questions, questions_in) = mpsc::channel(16);
        let (remarks_out, remarks) = mpsc::channel(16);
        let (own_out, own_ids) = watch::channel(ladder.own_ids());
        let (trouble_out, trouble) = watch::channel(None);
        let ends = Ends {
            orders: orders_in,
            tools: tools_in,
            answers: answers_out,
            questions: questions_in,
            remarks: remarks_out,
            own_ids: own_out,
            trouble: trouble_out,
        };
        tokio::spawn(carry(ladder, ends));
        Self {
            orders,
            tools: Some(tools),
            questions,
            remarks,
            answers,
            own_ids,
            trouble,
        }
    }

    /// Lends the ladder what there is since the probes are attached. Only the first are taken.
    pub fn equip(&mut self, tools: Tools) {
        if let Some(to_ladder) = self.tools.take() {
            // A carrier that is gone carries no order either.
            let _ = to_ladder.send(tools);
        }
    }

    /// Hands an order over; `false` if the carrier is stuck and cannot take it.
    pub fn hand_over(&self, order: Order) -> bool {
        self.orders.try_send(order).is_ok()
    }

    /// Asks the target what it can tell of a decision, once no order is under way. Dropped when too many are asked.
    pub fn ask(&self, decision: &Decision) {
        let _ = self.questions.try_send(Box::new(decision.clone()));
    }
}

/// The other end.
struct Ends {
    orders: mpsc::Receiver<Order>,
    tools: oneshot::Receiver<Tools>,
    answers: mpsc::Sender<SentOrder>,
    questions: mpsc::Receiver<Box<Decision>>,
    remarks: mpsc::Sender<(u64, Vec<String>)>,
    own_ids: watch::Sender<Vec<u64>>,
    trouble: watch::Sender<Option<String>>,
}

async fn carry(mut ladder: Ladder<AnyInitiator>, ends: Ends) {
    let Ends {
        mut orders,
        mut tools,
        answers,
        mut questions,
        remarks,
        own_ids,
        trouble,
    } = ends;
    let mut warm = interval(WARM_EVERY);
    warm.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            biased;
            // Nobody who gives it up has one.
            given = &mut tools, if !tools.is_terminated() => {
                let Tools { desk, proof } = given.unwrap_or_default();
                if let Some(desk) = desk {
                    ladder.equip(desk);
                }
                if let Some(proof) = proof {
                    ladder.initiator().prove_by(proof);
                }
            }
            order = orders.recv() => {
                let Some(order) = order else { return };
                let sent = ladder.carry_out(order).await;
                if answers.send(sent).await.is_err() {
                    return;
                }
            }
            Some(decision) = questions.recv(), if ladder.mode() == Mode::Enforce => {
                let said = ladder.initiator().remarks(&decision).await;
                if !said.is_empty() {
                    // A screen that does not keep up misses names, no more.
                    let _ = remarks.try_send((decision.decision, said));
                }
            }
            // Whoever only watches has no business at the server's door.
            _ = warm.tick(), if ladder.mode() == Mode::Enforce => {
                let state = ladder.initiator().keep_warm().await.err();
                trouble.send_if_modified(|before| std::mem::replace(before, state.clone()) != state);
                let ids = ladder.own_ids();
                own_ids.send_if_modified(|before| std::mem::replace(before, ids.clone()) != ids);
            }
        }
    }
}
