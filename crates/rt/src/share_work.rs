//! Tasks that several threads share.

use crate::{AtomicUsize, Ordering};

/// Calls `run` with each index below `tasks`, in no order, on at most `threads` threads: the calling one and those that the host gives. Returns
/// the results in order once all have ended.
///
/// # Panics
/// As `run` does, once all have ended.
pub fn share_work<T: Send>(threads: usize, tasks: usize, run: impl Fn(usize) -> T + Sync) -> Vec<T> {
    if threads.min(tasks) <= 1 {
        return (0..tasks).map(run).collect();
    }
    // Orders nothing: what the tasks read is there from the beginning.
    let next = AtomicUsize::new(0);
    let work = || {
        let numbers = std::iter::repeat_with(|| next.fetch_add(1, Ordering::Relaxed));
        numbers.take_while(|task| *task < tasks).map(|task| (task, run(task))).collect::<Vec<_>>()
    };
    let done = run_on_threads(threads.min(tasks), &work);
    let mut done: Vec<_> = done.into_iter().flatten().collect();
    done.sort_unstable_by_key(|(task, _)| *task);
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
                assert_eq!(
                    share_work(threads, tasks, |task| 2 * task),
                    (0..tasks).map(|task| 2 * task).collect::<Vec<_>>()
                );
            }
        }
    }

    #[test]
    #[should_panic(expected = "task 7")]
    fn a_panic_is_passed_on() {
        share_work(4, 20, |task| assert_ne!(task, 7, "task 7"));
    }
}
