"""The thread pool as LLVM text: idle workers wait on a futex (Linux) or a condition variable
(macOS and other POSIX systems); Windows has a serial stand-in.

One job runs at a time. The caller writes the job, opens it, wakes sleepers, and works off chunks
itself; then it closes the job and waits for workers that are inside. A worker counts itself in
before it looks whether the job is open, so a closed job's memory is never touched. A caller never
waits for a worker that has not started. A second caller at the same time, and a caller inside a
job, run their job alone.
"""

from __future__ import annotations

from ..target import Target

SPIN = 4000  # pauses before a worker sleeps: about 40 us
# Bytes of a worker's stack: tiles lay 192 KiB down in theirs, and musl's default is 128 KiB.
STACK = 2 << 20
_PAUSE = {
    "x86_64": ("declare void @llvm.x86.sse2.pause()", "call void @llvm.x86.sse2.pause()"),
    "aarch64": ("declare void @llvm.aarch64.hint(i32)", "call void @llvm.aarch64.hint(i32 1)"),
}

SERIAL = """
define void @mortice_parallel_for(ptr %fn, ptr %arg, i64 %n, i64 %chunk) #0 {
  call void %fn(ptr %arg, i64 0, i64 %n)
  ret void
}
define void @mortice_pool_allow(i32 %n) #0 {
  ret void
}
define void @mortice_pool_reset() #0 {
  ret void
}
attributes #0 = { nounwind }
"""

_POOL = """
@gen = internal global i32 0, align 64
@open = internal global i32 0, align 64
@active = internal global i32 0, align 64
@sleepers = internal global i32 0, align 64
@next = internal global i64 0, align 64
@busy = internal global i32 0, align 64
@started = internal global i32 0, align 64
@allowed = internal global i32 0, align 64
@job_fn = internal global ptr null, align 64
@job_arg = internal global ptr null
@job_n = internal global i64 0
@job_chunk = internal global i64 1
declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_attr_init(ptr)
declare i32 @pthread_attr_setstacksize(ptr, i64)
declare i32 @pthread_attr_destroy(ptr)
declare i32 @pthread_detach(i64)
declare i32 @pthread_sigmask(i32, ptr, ptr)
{declare_wait}
declare i64 @llvm.umin.i64(i64, i64)
{declare_pause}

define internal void @chunks() #0 {{
entry:
  %fn = load ptr, ptr @job_fn
  %arg = load ptr, ptr @job_arg
  %n = load i64, ptr @job_n
  %chunk = load i64, ptr @job_chunk
  br label %loop
loop:
  %lo = atomicrmw add ptr @next, i64 %chunk acq_rel
  %more = icmp slt i64 %lo, %n
  br i1 %more, label %work, label %end
work:
  %past = add i64 %lo, %chunk
  %hi = call i64 @llvm.umin.i64(i64 %past, i64 %n)
  call void %fn(ptr %arg, i64 %lo, i64 %hi)
  br label %loop
end:
  ret void
}}

; A worker: waits for the generation to change, joins the open job unless enough have joined.
define internal ptr @worker(ptr %unused) #0 {{
entry:
  %set = alloca [16 x i64], align 8
  call void @fill(ptr %set)
  %masked = call i32 @pthread_sigmask(i32 {set_mask}, ptr %set, ptr null)
  %first = load atomic i32, ptr @gen acquire, align 4
  %before = sub i32 %first, 1
  br label %wait
wait:
  %last = phi i32 [%before, %entry], [%seen, %leave]
  br label %spin
spin:
  %k = phi i32 [0, %wait], [%k1, %again]
  %g1 = load atomic i32, ptr @gen acquire, align 4
  %new1 = icmp ne i32 %g1, %last
  br i1 %new1, label %enter, label %again
again:
  {pause}
  %k1 = add i32 %k, 1
  %on = icmp slt i32 %k1, {spin}
  br i1 %on, label %spin, label %sleep
sleep:
  %s1 = atomicrmw add ptr @sleepers, i32 1 seq_cst
{wait}
  %s2 = atomicrmw sub ptr @sleepers, i32 1 seq_cst
  %g2 = load atomic i32, ptr @gen acquire, align 4
  %new2 = icmp ne i32 %g2, %last
  br i1 %new2, label %enter, label %sleep
enter:
  %seen = phi i32 [%g1, %spin], [%g2, %{awake}]
  %inside = atomicrmw add ptr @active, i32 1 seq_cst
  %o = load atomic i32, ptr @open seq_cst, align 4
  %is_open = icmp ne i32 %o, 0
  %limit = load atomic i32, ptr @allowed seq_cst, align 4
  %room = icmp slt i32 %inside, %limit
  %join = and i1 %is_open, %room
  br i1 %join, label %do, label %leave
do:
  call void @chunks()
  br label %leave
leave:
  %left = atomicrmw sub ptr @active, i32 1 seq_cst
  br label %wait
}}

; All ones: workers leave every signal to the other threads.
define internal void @fill(ptr %set) #0 {{
entry:
  br label %loop
loop:
  %i = phi i64 [0, %entry], [%i1, %loop]
  %p = getelementptr i64, ptr %set, i64 %i
  store volatile i64 -1, ptr %p
  %i1 = add i64 %i, 1
  %more = icmp slt i64 %i1, 16
  br i1 %more, label %loop, label %end
end:
  ret void
}}

; Sets the number of threads, the caller included.
define void @mortice_pool_allow(i32 %n) #0 {{
  %workers = sub i32 %n, 1
  store atomic i32 %workers, ptr @allowed seq_cst, align 4
  ret void
}}

; Starts workers until there are as many as asked; stops quietly where the system gives no more.
define internal void @start(i32 %workers) #0 {{
entry:
  %thread = alloca i64
  %attributes = alloca [16 x i64], align 8
  %a1 = call i32 @pthread_attr_init(ptr %attributes)
  %a2 = call i32 @pthread_attr_setstacksize(ptr %attributes, i64 {stack})
  br label %loop
loop:
  %have = load atomic i32, ptr @started seq_cst, align 4
  %enough = icmp sge i32 %have, %workers
  br i1 %enough, label %end, label %make
make:
  %r = call i32 @pthread_create(ptr %thread, ptr %attributes, ptr @worker, ptr null)
  %ok = icmp eq i32 %r, 0
  br i1 %ok, label %made, label %end
made:
  %t = load i64, ptr %thread
  %d = call i32 @pthread_detach(i64 %t)
  %plus = atomicrmw add ptr @started, i32 1 seq_cst
  br label %loop
end:
  %a3 = call i32 @pthread_attr_destroy(ptr %attributes)
  ret void
}}

; Before the first job; and after fork, in the child: no worker lives here.
define void @mortice_pool_reset() #0 {{
  store atomic i32 0, ptr @started seq_cst, align 4
  store atomic i32 0, ptr @open seq_cst, align 4
  store atomic i32 0, ptr @active seq_cst, align 4
  store atomic i32 0, ptr @sleepers seq_cst, align 4
  store atomic i32 0, ptr @busy seq_cst, align 4
{initialise}
  ret void
}}

define void @mortice_parallel_for(ptr %fn, ptr %arg, i64 %n, i64 %chunk) #0 {{
entry:
  %workers = load atomic i32, ptr @allowed seq_cst, align 4
  %alone = icmp slt i32 %workers, 1
  %single = icmp sle i64 %n, %chunk
  %skip = or i1 %alone, %single
  br i1 %skip, label %serial, label %claim
claim:
  %pair = cmpxchg ptr @busy, i32 0, i32 1 seq_cst seq_cst
  %mine = extractvalue {{ i32, i1 }} %pair, 1
  br i1 %mine, label %threads, label %serial
serial:
  call void %fn(ptr %arg, i64 0, i64 %n)
  ret void
threads:
  %have = load atomic i32, ptr @started seq_cst, align 4
  %few = icmp slt i32 %have, %workers
  br i1 %few, label %grow, label %post
grow:
  call void @start(i32 %workers)
  br label %post
post:
  store ptr %fn, ptr @job_fn
  store ptr %arg, ptr @job_arg
  store i64 %n, ptr @job_n
  store i64 %chunk, ptr @job_chunk
  store atomic i64 0, ptr @next release, align 8
  store atomic i32 1, ptr @open seq_cst, align 4
  %g = atomicrmw add ptr @gen, i32 1 seq_cst
  %asleep = load atomic i32, ptr @sleepers seq_cst, align 4
  %any = icmp ne i32 %asleep, 0
  br i1 %any, label %wake, label %work
wake:
{wake}
  br label %work
work:
  call void @chunks()
  store atomic i32 0, ptr @open seq_cst, align 4
  br label %check
check:
  %spins = phi i32 [0, %work], [%spins1, %rest], [0, %yield]
  %inside = load atomic i32, ptr @active seq_cst, align 4
  %none = icmp eq i32 %inside, 0
  br i1 %none, label %end, label %rest
rest:
  {pause}
  %spins1 = add i32 %spins, 1
  %short = icmp slt i32 %spins1, 1000
  br i1 %short, label %check, label %yield
yield:
{give_way}
  br label %check
end:
  store atomic i32 0, ptr @busy seq_cst, align 4
  ret void
}}
attributes #0 = {{ nounwind }}
"""


# Linux: the kernel's own wait on a word.
_FUTEX = {
    "declare_wait": "declare i64 @syscall(i64, ...)",
    "set_mask": "2",
    "awake": "sleep",
    "wait": "  %r = call i64 (i64, ...) @syscall(i64 {futex}, ptr @gen, i32 128, i32 %last, "
    "ptr null, ptr null, i32 0)",
    "wake": "  %w = call i64 (i64, ...) @syscall(i64 {futex}, ptr @gen, i32 129, "
    "i32 2147483647, ptr null, ptr null, i32 0)",
    "give_way": "  %y = call i64 (i64, ...) @syscall(i64 {sched_yield})",
    "initialise": "",
}
_FUTEX_CALLS = {"x86_64": (202, 24), "aarch64": (98, 124)}

# POSIX: the generation is looked at once more under the lock before waiting, and whoever changed
# it takes the lock before waking, so no wake-up is lost.
_CONDITION = {
    "declare_wait": """@mutex = internal global [16 x i64] zeroinitializer, align 64
@condition = internal global [16 x i64] zeroinitializer, align 64
declare i32 @pthread_mutex_init(ptr, ptr)
declare i32 @pthread_mutex_lock(ptr)
declare i32 @pthread_mutex_unlock(ptr)
declare i32 @pthread_cond_init(ptr, ptr)
declare i32 @pthread_cond_wait(ptr, ptr)
declare i32 @pthread_cond_broadcast(ptr)
declare i32 @sched_yield()""",
    "set_mask": "3",
    "awake": "awake",
    "wait": """  %l1 = call i32 @pthread_mutex_lock(ptr @mutex)
  br label %look
look:
  %g3 = load atomic i32, ptr @gen acquire, align 4
  %same = icmp eq i32 %g3, %last
  br i1 %same, label %hold, label %awake
hold:
  %r = call i32 @pthread_cond_wait(ptr @condition, ptr @mutex)
  br label %look
awake:
  %l2 = call i32 @pthread_mutex_unlock(ptr @mutex)""",
    "wake": """  %w1 = call i32 @pthread_mutex_lock(ptr @mutex)
  %w2 = call i32 @pthread_cond_broadcast(ptr @condition)
  %w3 = call i32 @pthread_mutex_unlock(ptr @mutex)""",
    "give_way": "  %y = call i32 @sched_yield()",
    "initialise": """  %i1 = call i32 @pthread_mutex_init(ptr @mutex, ptr null)
  %i2 = call i32 @pthread_cond_init(ptr @condition, ptr null)""",
}


def pool_text(target: Target, system: str) -> str:
    """LLVM text of the pool for ``target`` on ``system`` (``sys.platform``)."""
    if system == "win32":
        return SERIAL
    parts = dict(_CONDITION)
    if system == "linux":
        futex, sched_yield = _FUTEX_CALLS[target.arch]
        parts = {k: v.format(futex=futex, sched_yield=sched_yield) for k, v in _FUTEX.items()}
    declare, pause = _PAUSE[target.arch]
    return _POOL.format(declare_pause=declare, pause=pause, spin=SPIN, stack=STACK, **parts)
