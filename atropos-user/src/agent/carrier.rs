//! Carries orders to the target on a task of its own, so that a slow server never delays a tick.

use std::collections::VecDeque;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{Duration, MissedTickBehavior, interval, timeout};

use super::clock;
use crate::cancel::{Answer, AnyInitiator, Desk, Initiator as _, Ladder, Proof, SentOrder};
use crate::engine::record::{Decision, Order};
use crate::engine::settings::Mode;

/// How often the way to the target is tried.
const WARM_EVERY: Duration = Duration::from_secs(1);

/// How long the end of a run waits for the answer to an order that has left. Some initiators wait longer, and whoever asks the agent
/// to stop does not.
const FINISH_LIMIT: Duration = Duration::from_secs(1);

/// Why an order that was handed over did not leave.
const ENDED: &str = "the run ended before it was sent";

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
    /// `None` once nothing may leave any more.
    orders: Option<mpsc::Sender<Order>>,
    /// What was handed over and is not answered, in the order in which it is carried.
    under_way: VecDeque<UnderWay>,
    /// What has the ladder.
    carrying: JoinHandle<()>,
    tools: Option<oneshot::Sender<Tools>>,
    questions: mpsc::Sender<Box<Decision>>,
    remarks: mpsc::Receiver<(u64, Vec<String>)>,
    answers: mpsc::Receiver<SentOrder>,
    /// Numbers of the agent's own sessions.
    pub own_ids: watch::Receiver<Vec<u64>>,
    /// What is wrong with the way to the target, if anything.
    pub trouble: watch::Receiver<Option<String>>,
}

/// What comes back.
#[derive(Debug)]
pub enum Heard {
    /// An order was carried out.
    Answer(Box<SentOrder>),
    /// What the target tells of a decision.
    Remarks {
        /// The number of the decision.
        decision: u64,
        /// Sentences.
        said: Vec<String>,
    },
}

struct UnderWay {
    order: Order,
    command: String,
    since_ns: u64,
}

impl UnderWay {
    fn ended_with(self, answer: Answer) -> SentOrder {
        let Self {
            order,
            command,
            since_ns,
        } = self;
        SentOrder {
            order,
            command,
            sent_at_ns: since_ns,
            answered_at_ns: clock::monotonic_ns(),
            answer,
        }
    }
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
        let carrying = tokio::spawn(carry(ladder, ends));
        Self {
            carrying,
            orders: Some(orders),
            under_way: VecDeque::new(),
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

    /// Hands an order over, with its command as a person could type it; `false` if the carrier is stuck and cannot take it.
    pub fn hand_over(&mut self, order: Order, command: String) -> bool {
        let taken = self
            .orders
            .as_ref()
            .is_some_and(|orders| orders.try_send(order.clone()).is_ok());
        if taken {
            self.under_way.push_back(UnderWay {
                order,
                command,
                since_ns: clock::monotonic_ns(),
            });
        }
        taken
    }

    /// What comes back next; nothing any more if the carrier is gone.
    pub async fn heard(&mut self) -> Option<Heard> {
        tokio::select! {
            biased;
            Some(sent) = self.answers.recv() => {
                self.under_way.pop_front();
                Some(Heard::Answer(Box::new(sent)))
            }
            Some((decision, said)) = self.remarks.recv() => Some(Heard::Remarks { decision, said }),
            else => None,
        }
    }

    /// Sends nothing more and waits for the answer to what has left, at most a second: what became of every order that was
    /// handed over and of which nothing was heard.
    pub async fn finish(mut self) -> Vec<SentOrder> {
        // The other end looks whether this one is there before it carries an order out.
        self.orders = None;
        let mut ended = Vec::new();
        let answers = async {
            while !self.under_way.is_empty() {
                let Some(sent) = self.answers.recv().await else {
                    break;
                };
                self.under_way.pop_front();
                ended.push(sent);
            }
        };
        let _ = timeout(FINISH_LIMIT, answers).await;
        // An order that is late may be about to take another way: it does not, once this task is gone.
        self.carrying.abort();
        let _ = self.carrying.await;
        while let Ok(sent) = self.answers.try_recv() {
            self.under_way.pop_front();
            ended.push(sent);
        }
        // Only the order at the front can have left: they go one at a time.
        let left = self.under_way.pop_front().map(|first| {
            first.ended_with(Answer::unknown("the run ended before the target answered"))
        });
        ended.extend(left);
        let behind = self.under_way.drain(..);
        ended.extend(behind.map(|order| order.ended_with(Answer::unsent(ENDED))));
        ended
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
                let sent = if orders.is_closed() {
                    unsent(&ladder, order)
                } else {
                    ladder.carry_out(order).await
                };
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

/// An order that waited for its turn when the run ended.
fn unsent(ladder: &Ladder<AnyInitiator>, order: Order) -> SentOrder {
    let waiting = UnderWay {
        command: ladder.command(&order),
        order,
        since_ns: clock::monotonic_ns(),
    };
    waiting.ended_with(Answer::unsent(ENDED))
}
