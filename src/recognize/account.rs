//! Which backend answers, and why: the one account that `GetInfo`, the shadow's report, the console, the metrics and the log give.

use super::{Recognizer, Seat};
use crate::backend::Description;
use crate::backend::opencl::DeviceSurvey;
use crate::engine::Engine;
use crate::telemetry::{self, BackendName, ChoiceReason, Label};

/// What there is to tell.
#[derive(Clone, Debug)]
pub struct Account {
    /// The backends opened, the one that answers first.
    pub backends: Vec<BackendAccount>,
    /// Why that one answers, for a metric.
    pub reason: ChoiceReason,
    /// Why, as a sentence.
    pub sentence: String,
}

/// One backend.
#[derive(Clone, Debug)]
pub struct BackendAccount {
    /// As it describes itself.
    pub description: Description,
    /// What it does.
    pub part: Part,
    /// Whether it can answer now.
    pub up: bool,
}

/// What a backend does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Its answers are returned.
    Primary,
    /// It is compared with the primary. Where that was promoted, it answers should that fail.
    Shadow,
    /// It answers in the place of the one before it, should that fail.
    Fallback,
    /// It is opened and could answer, but another was faster for every batch.
    Idle,
}

impl Part {
    /// In a word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Primary => "primary",
            Self::Shadow => "shadow",
            Self::Fallback => "fallback",
            Self::Idle => "idle",
        }
    }
}

impl Account {
    /// The backend that answers.
    pub fn answers(&self) -> &Description {
        &self.backends[0].description
    }

    /// Shows it in the metrics.
    pub fn show(&self) {
        telemetry::backend_chosen(self.answers().backend, self.reason);
    }
}

impl Recognizer {
    /// Which backend answers, and why.
    pub fn account(&self) -> Account {
        let answering = self.answering();
        let standing = self.standing().choice();
        let candidate = self.engine_of(Seat::Candidate).ok().map(|engine| engine.choice().active());
        let names =
            candidate.map(|candidate| (candidate.backend.as_str(), standing.active().backend.as_str()));
        let (reason, sentence) = match (answering, self.moved(), names) {
            (Seat::Candidate, Some(because), Some((candidate, standing))) => {
                (ChoiceReason::Promoted, format!("{candidate} was promoted over {standing} ({because})"))
            }
            (Seat::Standing, Some(because), Some((candidate, _))) => {
                (standing.reason, format!("{}; {candidate} was taken back ({because})", standing.sentence))
            }
            (Seat::Standing | Seat::Candidate, _, _) if self.leaves_all_to_the_cpu(self.standing()) => {
                let device = &standing.active().device;
                let sentence = format!(
                    "backend.kind is auto and {device} is usable, but the CPU was faster for batches of every size"
                );
                (ChoiceReason::CpuFaster, sentence)
            }
            (Seat::Standing | Seat::Candidate, _, _) => (standing.reason, standing.sentence.clone()),
        };
        let backends = [answering, answering.other()].into_iter().flat_map(|seat| self.backends(seat));
        Account { backends: backends.collect(), reason, sentence }
    }

    /// The backends of a seat's engine.
    fn backends(&self, seat: Seat) -> Vec<BackendAccount> {
        let Ok(engine) = self.engine_of(seat) else { return Vec::new() };
        let own = if seat == self.answering() { Part::Primary } else { Part::Shadow };
        let (first, behind) =
            if self.leaves_all_to_the_cpu(engine) { (Part::Idle, own) } else { (own, Part::Fallback) };
        let told = |(place, description): (usize, &Description)| BackendAccount {
            description: description.clone(),
            part: if place == 0 { first } else { behind },
            // Only the backend that was chosen can fail; those after it are the CPU.
            up: place > 0 || engine.is_up(),
        };
        let mut told: Vec<BackendAccount> = engine.backends().iter().enumerate().map(told).collect();
        told.sort_by_key(|one| one.part == Part::Idle);
        told
    }

    /// Whether an engine measured its device against the CPU, and found the CPU faster for every batch of every gallery.
    fn leaves_all_to_the_cpu(&self, engine: &Engine) -> bool {
        let mut measured =
            self.galleries().filter_map(|gallery| engine.crossover(&gallery.profile().name)).peekable();
        let is_cpu = |(_, backend): &(_, BackendName)| *backend == BackendName::Cpu;
        measured.peek().is_some() && measured.all(|one| one.ranges().iter().all(is_cpu))
    }

    /// What was found on the machine, where an engine looked.
    pub fn survey(&self) -> Option<&DeviceSurvey> {
        let seats = [Seat::Standing, Seat::Candidate];
        seats.into_iter().find_map(|seat| self.engine_of(seat).ok()?.choice().survey.as_ref())
    }
}
