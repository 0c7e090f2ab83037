//! Who answers: the galleries served, and the engines that scan them.
//!
//! The standing engine is the configured one. A candidate may be seated beside it (shadow mode), once, while requests are answered: it is
//! asked by name, until it is made the one that answers. Should it fail then, the standing engine answers in its place, within the same request.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use super::UnknownGallery;
use super::decision::Cut;
use super::rehearsal::rehearse;
use crate::config::RecognitionSettings;
use crate::domain::{Margin, Threshold};
use crate::engine::{Engine, EngineError};
use crate::gallery::{DEFAULT_GALLERY, Snapshot};
use crate::telemetry::Role;

/// One of the two engines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seat {
    /// The configured one.
    Standing,
    /// The one that is compared with it.
    Candidate,
}

impl Seat {
    /// The other one.
    #[must_use]
    pub fn other(self) -> Self {
        match self {
            Self::Standing => Self::Candidate,
            Self::Candidate => Self::Standing,
        }
    }
}

/// An answer, and who gave it.
#[derive(Debug)]
pub struct Served<A> {
    /// The answer.
    pub answer: A,
    /// Who gave it.
    pub by: Seat,
    /// Why the candidate did not, though it was to.
    pub failed: Option<EngineError>,
}

/// The galleries served and the engines that scan them.
#[derive(Debug)]
pub struct Recognizer {
    standing: Engine,
    candidate: OnceLock<Engine>,
    candidate_answers: AtomicBool,
    /// Why who answers last changed; `None` where it never has.
    moved: RwLock<Option<String>>,
    galleries: RwLock<BTreeMap<String, Arc<Snapshot>>>,
    defaults: RecognitionSettings,
}

impl Recognizer {
    /// Makes galleries ready for scanning. Blocks: not for a runtime thread.
    pub fn load(
        engine: Engine,
        snapshots: Vec<Snapshot>,
        defaults: RecognitionSettings,
    ) -> Result<Self, EngineError> {
        Engine::cast(&[(&engine, Role::Primary)]);
        let mut galleries = BTreeMap::new();
        for snapshot in snapshots {
            let snapshot = Arc::new(snapshot);
            engine.load(Arc::clone(&snapshot), None)?;
            galleries.insert(snapshot.profile().name.clone(), snapshot);
        }
        // All are there by then: what is loaded once scans were asked for takes longer.
        for snapshot in galleries.values() {
            rehearse(&engine, snapshot);
        }
        Ok(Self::of(engine, galleries, defaults))
    }

    fn of(
        standing: Engine,
        galleries: BTreeMap<String, Arc<Snapshot>>,
        defaults: RecognitionSettings,
    ) -> Self {
        Self {
            standing,
            candidate: OnceLock::new(),
            candidate_answers: AtomicBool::new(false),
            moved: RwLock::new(None),
            galleries: RwLock::new(galleries),
            defaults,
        }
    }

    /// Seats a candidate beside the standing engine, where none is seated yet. It holds the generations `ready`, and makes ready by
    /// itself what is served besides; nobody waits for it.
    pub fn seat(&self, candidate: Engine, ready: &[Arc<Snapshot>]) {
        if self.candidate.set(candidate).is_err() {
            return;
        }
        let Some(candidate) = self.candidate.get() else { return };
        Engine::cast(&[(candidate, Role::Shadow)]);
        // A generation that is exchanged meanwhile comes after those of now: its turn is when this lock is free.
        let galleries = self.galleries.read().unwrap_or_else(PoisonError::into_inner);
        for snapshot in galleries.values() {
            if !ready.iter().any(|one| Arc::ptr_eq(one, snapshot)) {
                candidate.prepare(Arc::clone(snapshot), None);
            }
        }
    }

    /// Decides as this one does, by another engine, which makes ready what it is asked about; nothing is served by it.
    #[must_use]
    pub fn beside(&self, engine: Engine) -> Self {
        Self::of(engine, BTreeMap::new(), self.defaults)
    }

    /// Whose turn it is to answer.
    pub fn answering(&self) -> Seat {
        if self.candidate_answers.load(Ordering::Acquire) { Seat::Candidate } else { Seat::Standing }
    }

    /// From now on this one answers, for this reason; without a candidate the standing engine goes on.
    pub fn let_answer(&self, seat: Seat, because: &str) {
        let Some(candidate) = self.candidate.get() else { return };
        let answers = seat == Seat::Candidate;
        *self.moved.write().unwrap_or_else(PoisonError::into_inner) = Some(because.to_owned());
        self.candidate_answers.store(answers, Ordering::Release);
        let (standing, other) =
            if answers { (Role::Shadow, Role::Primary) } else { (Role::Primary, Role::Shadow) };
        Engine::cast(&[(&self.standing, standing), (candidate, other)]);
        let account = self.account();
        account.show();
        tracing::warn!(reason = account.sentence, "another backend answers from now on");
    }

    /// Why who answers last changed, if it ever has.
    pub(super) fn moved(&self) -> Option<String> {
        self.moved.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The engine that answers.
    pub fn engine(&self) -> &Engine {
        match (self.answering(), self.candidate.get()) {
            (Seat::Candidate, Some(candidate)) => candidate,
            (Seat::Candidate | Seat::Standing, _) => &self.standing,
        }
    }

    /// The configured engine, whoever answers.
    pub fn standing(&self) -> &Engine {
        &self.standing
    }

    /// The engine of a seat; [`EngineError::Stopped`] where none is seated.
    pub fn engine_of(&self, seat: Seat) -> Result<&Engine, EngineError> {
        match seat {
            Seat::Standing => Ok(&self.standing),
            Seat::Candidate => self.candidate.get().ok_or(EngineError::Stopped),
        }
    }

    /// Asks whose turn it is; where that is the candidate and it fails, the standing engine.
    pub async fn ask<A, F>(&self, ask: impl Fn(Seat) -> F) -> Result<Served<A>, EngineError>
    where
        F: Future<Output = Result<A, EngineError>>,
    {
        let by = self.answering();
        match ask(by).await {
            Err(error) if by == Seat::Candidate && error.is_of_the_engine() => {
                let answer = ask(Seat::Standing).await?;
                Ok(Served { answer, by: Seat::Standing, failed: Some(error) })
            }
            answered => Ok(Served { answer: answered?, by, failed: None }),
        }
    }

    /// The galleries, by name.
    pub fn galleries(&self) -> impl Iterator<Item = Arc<Snapshot>> + use<> {
        let galleries = self.galleries.read().unwrap_or_else(PoisonError::into_inner);
        galleries.values().cloned().collect::<Vec<_>>().into_iter()
    }

    /// The gallery of that name; an empty name means the default one.
    pub fn gallery(&self, name: &str) -> Result<Arc<Snapshot>, UnknownGallery> {
        let name = if name.is_empty() { DEFAULT_GALLERY } else { name };
        let galleries = self.galleries.read().unwrap_or_else(PoisonError::into_inner);
        galleries.get(name).cloned().ok_or_else(|| UnknownGallery {
            name: name.to_owned(),
            served: galleries.keys().cloned().collect(),
        })
    }

    /// Serves a generation in place of the gallery's former one, once it is ready for scanning; requests that came before are still
    /// answered from the former. Blocks: not for a runtime thread.
    pub fn replace(&self, snapshot: Snapshot) -> Result<Arc<Snapshot>, EngineError> {
        let snapshot = Arc::new(snapshot);
        let seat = self.answering();
        let former = self.gallery(&snapshot.profile().name).ok();
        let engine = self.engine_of(seat)?;
        engine.load(Arc::clone(&snapshot), former.as_ref())?;
        rehearse(engine, &snapshot);
        let mut galleries = self.galleries.write().unwrap_or_else(PoisonError::into_inner);
        galleries.insert(snapshot.profile().name.clone(), Arc::clone(&snapshot));
        drop(galleries);
        if let Ok(other) = self.engine_of(seat.other()) {
            other.prepare(Arc::clone(&snapshot), former.as_ref());
        }
        drop(former);
        self.release_unused();
        Ok(snapshot)
    }

    /// No longer serves a gallery.
    pub fn withdraw(&self, name: &str) {
        let withdrawn = self.galleries.write().unwrap_or_else(PoisonError::into_inner).remove(name);
        drop(withdrawn);
        self.release_unused();
    }

    fn release_unused(&self) {
        self.standing.release_unused();
        if let Some(candidate) = self.candidate.get() {
            candidate.release_unused();
        }
    }

    /// What applies to a probe whose best identity stands at this place: what is asked for, else the identity's own, else the gallery's,
    /// else the configuration's.
    pub fn cut(
        &self,
        snapshot: &Snapshot,
        best: Option<usize>,
        (threshold, min_margin): (Option<Threshold>, Option<Margin>),
    ) -> Cut {
        let best = best.map(|place| snapshot.identity(place));
        let (own_threshold, own_margin) = best.map_or((None, None), |best| (best.threshold, best.min_margin));
        let (default_threshold, default_margin) = self.defaults_of(snapshot);
        Cut {
            threshold: threshold.or(own_threshold).unwrap_or(default_threshold),
            min_margin: min_margin.or(own_margin).unwrap_or(default_margin),
        }
    }

    /// The threshold and least margin of a gallery where neither request nor identity says another.
    pub fn defaults_of(&self, snapshot: &Snapshot) -> (Threshold, Margin) {
        let profile = snapshot.profile();
        (
            profile.threshold.unwrap_or(self.defaults.threshold),
            profile.min_margin.unwrap_or(self.defaults.margin),
        )
    }
}
