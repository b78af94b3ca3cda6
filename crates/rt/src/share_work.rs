//! Tasks that several threads share.

use crate::{LockClass, Mutex};

/// Calls `run` with each of the items, in no order, on at most `threads` threads: the calling one and those that the host gives. Returns the
/// results in the items' order once all have ended.
///
/// # Panics
/// As `run` does, once all have ended.
pub fn share_work<I: Send, T: Send>(
    threads: usize,
    items: impl ExactSizeIterator<Item = I> + Send,
    run: impl Fn(I) -> T + Sync,
) -> Vec<T> {
    let threads = threads.min(items.len());
    if threads <= 1 {
        return items.map(run).collect();
    }
    let items = Mutex::new(LockClass::SHARED_WORK, items.enumerate());
    let next = || items.lock().next();
    let work = || std::iter::from_fn(next).map(|(index, item)| (index, run(item))).collect::<Vec<_>>();
    let mut done: Vec<_> = run_on_threads(threads, &work).into_iter().flatten().collect();
    done.sort_unstable_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, result)| result).collect()
}

/// Calls `work` on `count` threads at once, the calling one among them; on fewer, if the host does not give so many.
#[cfg(not(extant_rt = "shuttle"))]
fn run_on_threads<T: Send>(count: usize, work: &(impl Fn() -> T + Sync)) -> Vec<T> {
    #[cfg(extant_rt = "virtual")]
    if crate::virtual_rt::is_simulated() {
        return crate::parallel(count, |_| work());
    }
    std::thread::scope(|scope| {
        let start = |_| std::thread::Builder::new().spawn_scoped(scope, work).ok();
        let threads: Vec<_> = (1..count).map_while(start).collect();
        let own = work();
        let join = |thread: std::thread::ScopedJoinHandle<'_, T>| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        threads.into_iter().map(join).chain([own]).collect()
    })
}

/// Calls `work` on `count` threads.
#[cfg(extant_rt = "shuttle")]
fn run_on_threads<T: Send>(count: usize, work: &(impl Fn() -> T + Sync)) -> Vec<T> {
    crate::parallel(count, |_| work())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_task_is_run_once_and_results_are_in_order() {
        for threads in [0, 1, 3, 40] {
            for tasks in [0, 1, 2, 100] {
                let doubled = share_work(threads, 0..tasks, |task| 2 * task);
                assert_eq!(doubled, (0..tasks).map(|task| 2 * task).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    #[cfg_attr(panic = "unwind", should_panic = "task 7")]
    fn a_panic_is_passed_on() {
        println!("expects a panic: task 7");
        share_work(4, 0..20, |task| assert_ne!(task, 7, "task 7"));
    }
}
