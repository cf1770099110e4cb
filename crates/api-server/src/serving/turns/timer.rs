//! A timer of microseconds: the runtime's own counts milliseconds.

use std::{
    future::{Future, poll_fn},
    io,
    os::fd::OwnedFd,
    pin::pin,
    task::{Context, Poll, Waker},
    time::Duration,
};

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use tokio::{
    io::{Interest, unix::AsyncFd},
    task::unconstrained,
};

/// The kernel tells the runtime that the time is over, as it tells what comes from the network.
pub struct Timer(AsyncFd<OwnedFd>);

impl Timer {
    /// Within a runtime.
    pub fn new() -> io::Result<Self> {
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
        // SAFETY: An owned descriptor stays open and the same while it lives.
        let timer = unsafe { AsyncFd::register_with_interest(timer, Interest::READABLE) }.map_err(io::Error::from)?;
        Ok(Self(timer))
    }

    /// Wakes this one once after that time, which is not zero; those of earlier calls no longer.
    pub fn wake(&self, waker: &Waker, after: Duration) -> io::Result<()> {
        let over = poll_fn(|cx| self.0.poll_read_ready(cx).map_ok(|mut over| over.clear_ready()));
        // However much the task has done that is being polled.
        let mut over = pin!(unconstrained(over));
        // It may have been noted that an earlier time is over.
        while let Poll::Ready(noted) = over.as_mut().poll(&mut Context::from_waker(waker)) {
            noted?;
        }
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        let after = Timespec { tv_sec: after.as_secs() as i64, tv_nsec: after.subsec_nanos().into() };
        let once = Itimerspec { it_interval: zero, it_value: after };
        timerfd_settime(&self.0, TimerfdTimerFlags::empty(), &once)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{Arc, mpsc},
        task::Wake,
        time::Instant,
    };

    use super::*;

    struct Tell(mpsc::Sender<()>);

    impl Wake for Tell {
        fn wake(self: Arc<Self>) {
            let _ = self.0.send(());
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn wakes_after_each_time() {
        let timer = Timer::new().unwrap();
        let (tell, told) = mpsc::channel();
        let waker = Waker::from(Arc::new(Tell(tell)));
        // More than a task may do without a pause.
        for _ in 0..300 {
            let begun = Instant::now();
            timer.wake(&waker, Duration::from_micros(50)).unwrap();
            told.recv_timeout(Duration::from_secs(60)).expect("somebody is woken");
            assert!(begun.elapsed() >= Duration::from_micros(50));
        }
        assert!(told.recv_timeout(Duration::from_millis(5)).is_err(), "only once");
    }
}
