//! What is let in to hurt the others: a scene has its culprits, and knows whose ending is right. The same few shapes are
//! played at every server.
//!
//! Every scene ends by itself, so that a run without Atropos is bounded. When it releases is seen from the culprits' own
//! connections, not from what Atropos says.

use std::time::Duration;

use anyhow::{Result, anyhow};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::clock::now_ns;
use super::place::{Failure, Person, Place, fate};
use super::story::Story;

/// How long the forgotten session is idle before somebody needs its table.
const FORGOTTEN: Duration = Duration::from_secs(5);
/// After this long somebody remembers it, if nothing ended it before.
const REMEMBERED: Duration = Duration::from_secs(10);
/// The long statement has settled.
const WARM_UP: Duration = Duration::from_millis(500);
/// How long the load runs beside the long statement before somebody queues behind it.
const BESIDE: Duration = Duration::from_secs(3);

/// A case.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scene {
    /// Its id, as on the command line; with `s-` before it at the sample server.
    pub(crate) id: &'static str,
    /// What it is about, in a line.
    pub(crate) title: &'static str,
    /// The culprit whose ending is right.
    pub(crate) expected: &'static str,
    /// Statements that undo what an earlier run has left.
    pub(crate) undo: &'static [&'static str],
    /// What happens.
    pub(crate) plot: Plot,
}

/// The shape of a scene.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Plot {
    /// One session's work blocks the others.
    Alone(Role),
    /// One queues behind the long work of another, and the others queue behind that one.
    Queued {
        /// Whose work is long, and harmless by itself.
        long: Role,
        /// Who queues.
        queued: Role,
    },
    /// One opens a transaction and forgets it; another queues behind it, and the others behind that one.
    Forgotten {
        /// Who forgets.
        holder: Role,
        /// Who queues.
        queued: Role,
    },
}

/// Who is let in, and to do what.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Role {
    /// What the demo calls it.
    pub(crate) name: &'static str,
    /// The user that it comes as.
    pub(crate) user: &'static str,
    /// Its statements, in turn; the first that fails is the last.
    pub(crate) says: &'static [&'static str],
    /// The same for people.
    pub(crate) does: &'static str,
}

/// A session that is let in.
#[derive(Clone, Debug)]
pub(crate) struct Culprit {
    /// What the demo calls it.
    pub(crate) name: &'static str,
    /// The server's number of its connection.
    pub(crate) id: u64,
}

/// What happened, by the scene's own eyes.
pub(crate) struct Acts {
    /// From when things were as they would have been without the culprit, if that is later than the start of the load.
    pub(crate) calm_from_ns: u64,
    /// Until when they were.
    pub(crate) calm_until_ns: u64,
    /// From when the others are blocked.
    pub(crate) trouble_ns: u64,
    /// When the others were no longer blocked.
    pub(crate) release_ns: u64,
    /// Everybody who was let in.
    pub(crate) culprits: Vec<Culprit>,
    /// Work that goes on after the release and must end before the next scene.
    pub(crate) leftover: JoinHandle<()>,
}

impl Scene {
    /// Undoes what an earlier run has left. Before there is load.
    pub(crate) async fn prepare(&self, server: &impl Place) -> Result<()> {
        if self.undo.is_empty() {
            return Ok(());
        }
        let mut deploy = server.person("deploy").await?;
        for statement in self.undo {
            must(&mut deploy, statement).await?;
        }
        deploy.leave().await;
        Ok(())
    }

    /// Lets the culprits in; returns when the others are free again.
    pub(crate) async fn play(&self, server: &impl Place, story: &Story) -> Result<Acts> {
        match self.plot {
            Plot::Alone(role) => alone(Actor::enter(role, server, story).await?).await,
            Plot::Queued { long, queued } => {
                let long = Actor::enter(long, server, story).await?;
                behind_work(long, Actor::enter(queued, server, story).await?).await
            }
            Plot::Forgotten { holder, queued } => {
                let holder = Actor::enter(holder, server, story).await?;
                behind_nobody(holder, Actor::enter(queued, server, story).await?).await
            }
        }
    }

    /// Whether work that goes on after the release is best left to end by itself: to undo it would take as long.
    pub(crate) fn is_left_to_end(&self) -> bool {
        matches!(self.plot, Plot::Queued { .. })
    }
}

/// A role with its connection.
struct Actor<P> {
    role: Role,
    person: P,
    story: Story,
}

impl<P: Person> Actor<P> {
    async fn enter(role: Role, server: &impl Place<Person = P>, story: &Story) -> Result<Self> {
        Ok(Self {
            role,
            person: server.person(role.user).await?,
            story: story.clone(),
        })
    }

    fn culprit(&self) -> Culprit {
        Culprit {
            name: self.role.name,
            id: self.person.id(),
        }
    }

    fn tell(&self, what: &str) {
        let (id, user) = (self.person.id(), self.role.user);
        self.story.tell(format!("session {id} ({user}): {what}"));
    }

    /// Does what the role says, and tells how it ended.
    async fn act(&mut self) {
        let done = self.say_all().await;
        self.tell(&format!("{} {}", self.role.does, fate(&done)));
    }

    async fn say_all(&mut self) -> Result<(), Failure> {
        for statement in self.role.says {
            self.person.say(statement).await?;
        }
        Ok(())
    }
}

async fn alone<P: Person>(mut culprit: Actor<P>) -> Result<Acts> {
    let culprits = vec![culprit.culprit()];
    culprit.tell(culprit.role.does);
    let trouble_ns = now_ns();
    culprit.act().await;
    let release_ns = now_ns();
    Ok(Acts {
        calm_from_ns: 0,
        calm_until_ns: trouble_ns,
        trouble_ns,
        release_ns,
        culprits,
        leftover: tokio::spawn(culprit.person.leave()),
    })
}

async fn behind_work<P: Person>(mut long: Actor<P>, mut queued: Actor<P>) -> Result<Acts> {
    let culprits = vec![long.culprit(), queued.culprit()];
    long.tell(long.role.does);
    let leftover = tokio::spawn(async move {
        long.act().await;
        long.person.leave().await;
    });
    // It takes its part of the machine before, during and after: what the one behind it does is measured against that.
    sleep(WARM_UP).await;
    let calm_from_ns = now_ns();
    sleep(BESIDE).await;
    let trouble_ns = now_ns();
    queued.tell(queued.role.does);
    queued.act().await;
    let release_ns = now_ns();
    queued.person.leave().await;
    Ok(Acts {
        calm_from_ns,
        calm_until_ns: trouble_ns,
        trouble_ns,
        release_ns,
        culprits,
        leftover,
    })
}

async fn behind_nobody<P: Person>(mut holder: Actor<P>, mut queued: Actor<P>) -> Result<Acts> {
    let culprits = vec![holder.culprit(), queued.culprit()];
    holder.tell(&format!("{}, and then nothing", holder.role.does));
    for statement in holder.role.says {
        must(&mut holder.person, statement).await?;
    }
    sleep(FORGOTTEN).await;
    let (freed, is_free) = oneshot::channel();
    let remembering = tokio::spawn(async move {
        // Once others are free, there is nothing more to see in waiting.
        let _ = timeout(REMEMBERED, is_free).await;
        let done = holder.person.say("COMMIT").await;
        holder.tell(&format!("COMMIT, at last, {}", fate(&done)));
        holder.person.leave().await;
    });
    let trouble_ns = now_ns();
    queued.tell(queued.role.does);
    queued.act().await;
    let release_ns = now_ns();
    let _ = freed.send(());
    let leftover = tokio::spawn(async move {
        let _ = remembering.await;
        queued.person.leave().await;
    });
    Ok(Acts {
        calm_from_ns: 0,
        calm_until_ns: trouble_ns,
        trouble_ns,
        release_ns,
        culprits,
        leftover,
    })
}

/// A statement without which there is no scene.
async fn must(person: &mut impl Person, statement: &str) -> Result<()> {
    let done = person.say(statement).await;
    done.map_err(|failure| anyhow!("the server refuses `{statement}`: {}", failure.why))
}
