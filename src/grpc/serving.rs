//! What the services share: the galleries once they are loaded, and the bounds on requests.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Instant;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::Status;

use super::status;
use super::tokens::Tokens;
use crate::config::Limits;
use crate::recognize::{Recognizer, ReloadError, Reloaded};
use crate::shadow::Shadow;

/// Shared by all services of one server.
pub struct Serving {
    recognizer: RwLock<Option<Arc<Recognizer>>>,
    shadow: RwLock<Option<Arc<Shadow>>>,
    reloading: Option<Reloading>,
    /// `None`: whoever reaches the server may change things.
    tokens: Option<Tokens>,
    limits: Limits,
    places: Arc<Semaphore>,
    started: Instant,
}

/// How shadow mode is turned on.
pub const TURN_ON: &str = "to compare a second backend set shadow.enabled: true, name both backends (backend.kind and shadow.backend, such as cpu \
                           and opencl), and restart";

/// How the data folder is loaded anew. Blocks.
pub type Reloading = Box<dyn Fn(&Recognizer) -> Result<Reloaded, ReloadError> + Send + Sync>;

/// Who did something where no tokens tell operators apart.
const SOMEBODY: &str = "an operator";

/// The galleries are not loaded yet, or not any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loading;

impl Serving {
    /// A server that is still loading.
    pub fn new(limits: Limits) -> Self {
        let places = Arc::new(Semaphore::new(limits.max_in_flight));
        Self {
            recognizer: RwLock::new(None),
            shadow: RwLock::new(None),
            reloading: None,
            tokens: None,
            limits,
            places,
            started: Instant::now(),
        }
    }

    /// With a way to load the data folder anew.
    #[must_use]
    pub fn reloading(mut self, reloading: Reloading) -> Self {
        self.reloading = Some(reloading);
        self
    }

    /// Where what changes the server is done for those alone who carry one of these tokens.
    #[must_use]
    pub fn guarded_by(mut self, tokens: Option<Tokens>) -> Self {
        self.tokens = tokens;
        self
    }

    /// Whether tokens are asked for.
    pub fn has_tokens(&self) -> bool {
        self.tokens.is_some()
    }

    /// The name of the admin whose token this is; the log says who did what. Without tokens nobody is one.
    pub fn admin(&self, token: &str, what: &str) -> Option<&str> {
        let admin = self.tokens.as_ref()?.owner(token)?;
        tracing::info!(admin, what, "an admin asks to change the server");
        Some(admin)
    }

    /// Lets an admin through, and says in the log who did what; gives the name. Without tokens everybody is one.
    pub(super) fn admit_admin<T>(&self, request: &tonic::Request<T>, what: &str) -> Result<String, Status> {
        let Some(tokens) = &self.tokens else { return Ok(SOMEBODY.to_owned()) };
        let admin = tokens.admin(request.metadata())?;
        tracing::info!(admin, what, "an admin asks to change the server");
        Ok(admin.to_owned())
    }

    /// Serves what the data folder holds now. Blocks.
    pub(super) fn reload(&self, recognizer: &Recognizer) -> Result<Reloaded, Status> {
        let reload = self.reloading.as_ref();
        let reload =
            reload.ok_or_else(|| Status::failed_precondition("what is served was loaded from no folder"))?;
        Ok(reload(recognizer)?)
    }

    /// From now on this shadow is offered what was answered, or none is; gives back the one before.
    pub fn cast_shadow(&self, shadow: Option<Shadow>) -> Option<Arc<Shadow>> {
        let mut cast = self.shadow.write().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *cast, shadow.map(Arc::new))
    }

    /// The shadow, where there is one.
    pub fn shadow_if_any(&self) -> Option<Arc<Shadow>> {
        self.shadow.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn shadow(&self) -> Result<Arc<Shadow>, Status> {
        let off = || Status::failed_precondition(format!("shadow mode is off: {TURN_ON}"));
        self.shadow_if_any().ok_or_else(off)
    }

    /// From now on these galleries are served, or none any more; gives back what was served before.
    pub fn serve(&self, recognizer: Option<Arc<Recognizer>>) -> Option<Arc<Recognizer>> {
        let mut served = self.recognizer.write().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *served, recognizer)
    }

    /// The galleries and their engine.
    pub fn recognizer(&self) -> Result<Arc<Recognizer>, Loading> {
        self.recognizer.read().unwrap_or_else(PoisonError::into_inner).clone().ok_or(Loading)
    }

    /// A place among the requests being answered, held until it is dropped. It is taken when the message is there: a caller who
    /// opens requests and sends nothing holds none.
    pub(super) fn enter(&self) -> Result<OwnedSemaphorePermit, Status> {
        Arc::clone(&self.places).try_acquire_owned().map_err(|_| {
            let most = self.limits.max_in_flight;
            status::overloaded(format!("{most} requests are being answered, which is the limit"))
        })
    }

    /// The bounds on requests.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// When the server started.
    pub fn started(&self) -> Instant {
        self.started
    }
}

impl fmt::Debug for Serving {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Serving").field("limits", &self.limits).finish_non_exhaustive()
    }
}
