//! The guard around each handler of the task service, and the way to its blocking work.

use std::future::Future;

use containerd_shim_protos::ttrpc;

use crate::{
    caller::Caller,
    error::{Error, Result},
};

/// Runs a handler as a task of its own and answers what it returns. A panic becomes an answer
/// (INTERNAL) instead of a client that waits for ever, and a client that gives up does not stop
/// the handler half way through a change: the handler is told ([`Caller`]), and decides.
pub(crate) async fn guarded<T: Send + 'static>(
    rpc: &'static str,
    handler: impl Future<Output = Result<T>> + Send + 'static,
) -> ttrpc::Result<T> {
    let caller = Caller::new();
    // ttrpc drops this future when the client's deadline has passed or its connection is gone.
    let _waiting = caller.waiting();
    let outcome = match tokio::spawn(caller.scope(handler)).await {
        Ok(outcome) => outcome,
        Err(error) => Err(Error::Panicked(format!("{rpc}: {error}"))),
    };
    outcome.map_err(|error| {
        log::info!("{rpc}: {}", error.text());
        error.into()
    })
}

/// Runs `work`, which may block, away from the thread that serves.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(outcome) => outcome,
        Err(error) => Err(Error::Panicked(error.to_string())),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_is_answered_as_internal() {
        let answer = guarded::<()>("Create", async { panic!("boom") }).await;
        let Err(ttrpc::Error::RpcStatus(status)) = answer else {
            panic!("no status: {answer:?}");
        };
        assert_eq!(status.code(), ttrpc::Code::INTERNAL);
        assert!(status.message.contains("boom"), "{}", status.message);
    }

    #[tokio::test]
    async fn a_panic_of_blocking_work_is_an_error() {
        let outcome = blocking::<()>(|| panic!("boom")).await;
        assert!(matches!(outcome, Err(Error::Panicked(text)) if text.contains("boom")));
    }

    #[tokio::test]
    async fn a_handler_whose_caller_is_gone_runs_to_its_end() {
        let (done, finished) = tokio::sync::oneshot::channel();
        let (go, gone) = tokio::sync::oneshot::channel::<()>();
        let call = guarded("Exec", async move {
            gone.await.unwrap();
            done.send(()).unwrap();
            Ok(())
        });
        tokio::select! {
            biased;
            _ = call => panic!("it was to wait"),
            _ = tokio::task::yield_now() => {}
        }
        go.send(()).unwrap();
        finished.await.unwrap();
    }

    #[tokio::test]
    async fn a_handler_is_told_that_its_caller_is_gone() {
        let (done, finished) = tokio::sync::oneshot::channel();
        let call = guarded("Exec", async move {
            Caller::current().gone().await;
            done.send(()).unwrap();
            Ok(())
        });
        tokio::select! {
            biased;
            _ = call => panic!("it was to wait"),
            _ = tokio::task::yield_now() => {}
        }
        finished.await.unwrap();
    }
}
