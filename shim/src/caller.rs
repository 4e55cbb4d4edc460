//! Whether whoever made a request still waits for its answer.
//!
//! A client gives up when its deadline passes or its connection ends; the stock shim then kills
//! the runtime that works for it. What may hang (a call of the OCI runtime, a logger, a fifo
//! without a reader) asks here. It travels with the handler's task and not as an argument: it
//! concerns what is deep below the handlers, and nothing between.

use std::{future::Future, time::Duration};

use tokio::sync::watch;

tokio::task_local! {
    static CURRENT: Caller;
}

/// The maker of a request.
#[derive(Clone, Debug)]
pub(crate) struct Caller(watch::Sender<bool>);

/// Dropped, it means that the caller waits no longer.
#[derive(Debug)]
pub(crate) struct Waiting(Caller);

impl Caller {
    /// One that waits.
    pub(crate) fn new() -> Caller {
        Caller(watch::Sender::new(false))
    }

    /// The one of the request that this task works on; in other tasks one that never gives up.
    pub(crate) fn current() -> Caller {
        CURRENT
            .try_with(Clone::clone)
            .unwrap_or_else(|_| Caller::new())
    }

    /// Makes `work` work for this caller.
    pub(crate) fn scope<F: Future>(&self, work: F) -> impl Future<Output = F::Output> + use<F> {
        CURRENT.scope(self.clone(), work)
    }

    /// Waits on behalf of the caller.
    pub(crate) fn waiting(&self) -> Waiting {
        Waiting(self.clone())
    }

    /// Gives up in the caller's name.
    pub(crate) fn give_up(&self) {
        self.0.send_replace(true);
    }

    /// Resolves when the caller has given up.
    pub(crate) async fn gone(&self) {
        let mut gone = self.0.subscribe();
        // The sender is part of this: it cannot be closed.
        let _never = gone.wait_for(|gone| *gone).await.is_err();
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.give_up();
    }
}

/// Runs `work`, which must come to its end even if the caller gives up.
pub(crate) fn to_its_end<F: Future>(work: F) -> impl Future<Output = F::Output> + use<F> {
    Caller::new().scope(work)
}

/// As [`to_its_end`] for work that may hang as well: after `patience` what hangs in it is given up.
pub(crate) async fn within<F: Future>(patience: Duration, work: F) -> F::Output {
    let caller = Caller::new();
    let mut work = std::pin::pin!(caller.scope(work));
    if let Ok(output) = tokio::time::timeout(patience, &mut work).await {
        return output;
    }
    caller.give_up();
    work.await
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn is_gone(caller: &Caller) -> bool {
        tokio::select! {
            biased;
            () = caller.gone() => true,
            () = std::future::ready(()) => false,
        }
    }

    #[tokio::test]
    async fn a_caller_that_gives_up_is_gone_for_its_work_only() {
        let caller = Caller::new();
        let waiting = caller.waiting();
        let work = caller.scope(async move {
            assert!(!is_gone(&Caller::current()).await);
            drop(waiting);
            assert!(is_gone(&Caller::current()).await);
            to_its_end(async { assert!(!is_gone(&Caller::current()).await) }).await;
        });
        work.await;
        assert!(!is_gone(&Caller::current()).await);
    }

    #[tokio::test]
    async fn work_that_hangs_is_given_up() {
        within(Duration::from_millis(1), async {
            Caller::current().gone().await;
        })
        .await;
    }
}
