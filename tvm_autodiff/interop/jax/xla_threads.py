"""Divides loops among the threads of XLA's pool, in LLVM IR.

Idle threads take parts, as does the calling thread, which waits only for parts that others have
started.
"""

from __future__ import annotations

# offsets in bytes. A frame: interface 16, context 24. The interface: destruction of errors 64,
# tasks for the pool 136, its number of threads 144. A job, of which each task has a share:
# function 0, data 8, next part 16, parts done 20, shares 24, failed 28, parts 32.
LAUNCH = """
declare ptr @pthread_getspecific(i64)
declare i32 @sched_yield()
declare ptr @malloc(i64)
declare void @free(ptr)

; calls a function of XLA's interface, and destroys the error that it may return
define internal i1 @succeeds(ptr %api, i64 %function, ptr %args) {{
  %called = call ptr @pointer(ptr %api, i64 %function)
  %error = call ptr %called(ptr %args)
  %fine = icmp eq ptr %error, null
  br i1 %fine, label %end, label %failed

failed:
  %destroyed = alloca [3 x i64]
  call void @set(ptr %destroyed, i64 0, i64 24)
  call void @set(ptr %destroyed, i64 8, i64 0)
  call void @link(ptr %destroyed, i64 16, ptr %error)
  %destroy = call ptr @pointer(ptr %api, i64 64)
  call void %destroy(ptr %destroyed)
  br label %end

end:
  ret i1 %fine
}}

; what kernels call for a loop whose parts run side by side
define i32 @tvm_autodiff_launch(ptr %function, ptr %data, i32 %wanted) {{
  %frame = call ptr @pthread_getspecific(i64 {key})
  %is_outside = icmp eq ptr %frame, null
  br i1 %is_outside, label %outside, label %inside

outside:
  %other = inttoptr i64 {outside} to ptr
  %other_code = call i32 %other(ptr %function, ptr %data, i32 %wanted)
  ret i32 %other_code

inside:
  %api = call ptr @pointer(ptr %frame, i64 16)
  %context = call ptr @pointer(ptr %frame, i64 24)
  %threads = alloca i64
  store i64 1, ptr %threads
  %asked = alloca [4 x i64]
  call void @set(ptr %asked, i64 0, i64 32)
  call void @set(ptr %asked, i64 8, i64 0)
  call void @link(ptr %asked, i64 16, ptr %context)
  call void @link(ptr %asked, i64 24, ptr %threads)
  %has_pool = call i1 @succeeds(ptr %api, i64 144, ptr %asked)
  %found = load i64, ptr %threads
  %pool = select i1 %has_pool, i64 %found, i64 1
  %is_less = icmp slt i64 %pool, {threads}
  %count = select i1 %is_less, i64 %pool, i64 {threads}
  %parts = trunc i64 %count to i32
  %is_alone = icmp slt i64 %count, 2
  br i1 %is_alone, label %alone, label %shared

alone:
  %group = alloca [2 x i64]
  call void @set(ptr %group, i64 0, i64 0)
  call void @set(ptr %group, i64 8, i64 1)
  %alone_code = call i32 %function(i32 0, ptr %group, ptr %data)
  ret i32 %alone_code

shared:
  %job = call ptr @malloc(i64 40)
  call void @link(ptr %job, i64 0, ptr %function)
  call void @link(ptr %job, i64 8, ptr %data)
  call void @set(ptr %job, i64 16, i64 0)
  %shares = getelementptr i8, ptr %job, i64 24
  call void @set(ptr %job, i64 24, i64 %count)
  call void @set(ptr %job, i64 32, i64 %count)
  %task = alloca [5 x i64]
  call void @set(ptr %task, i64 0, i64 40)
  call void @set(ptr %task, i64 8, i64 0)
  call void @link(ptr %task, i64 16, ptr %context)
  call void @link(ptr %task, i64 24, ptr @tvm_autodiff_task)
  call void @link(ptr %task, i64 32, ptr %job)
  br label %give

give:
  %given = phi i64 [ 1, %shared ], [ %given_next, %given_one ], [ %given_next, %refused ]
  %more = icmp ult i64 %given, %count
  br i1 %more, label %give_one, label %take

give_one:
  %given_next = add i64 %given, 1
  %accepted = call i1 @succeeds(ptr %api, i64 136, ptr %task)
  br i1 %accepted, label %given_one, label %refused

given_one:
  br label %give

refused:
  %rest = atomicrmw sub ptr %shares, i32 1 acq_rel
  br label %give

take:
  call void @take_parts(ptr %job)
  %done_place = getelementptr i8, ptr %job, i64 20
  br label %wait

wait:
  %tries = phi i32 [ 0, %take ], [ %tries_next, %wait_more ], [ 0, %sleep ]
  %done = load atomic i32, ptr %done_place acquire, align 4
  %is_done = icmp eq i32 %done, %parts
  br i1 %is_done, label %end, label %wait_more

wait_more:
  %tries_next = add i32 %tries, 1
  %is_long = icmp ugt i32 %tries_next, 1000
  br i1 %is_long, label %sleep, label %wait

sleep:
  %slept = call i32 @sched_yield()
  br label %wait

end:
  %failed_place = getelementptr i8, ptr %job, i64 28
  %failed = load atomic i32, ptr %failed_place acquire, align 4
  call void @leave(ptr %job)
  ret i32 %failed
}}

define internal void @tvm_autodiff_task(ptr %job) {{
  call void @take_parts(ptr %job)
  call void @leave(ptr %job)
  ret void
}}

define internal void @leave(ptr %job) {{
  %shares = getelementptr i8, ptr %job, i64 24
  %before = atomicrmw sub ptr %shares, i32 1 acq_rel
  %is_last = icmp eq i32 %before, 1
  br i1 %is_last, label %last, label %end

last:
  call void @free(ptr %job)
  br label %end

end:
  ret void
}}

define internal void @take_parts(ptr %job) {{
begin:
  %function = call ptr @pointer(ptr %job, i64 0)
  %data = call ptr @pointer(ptr %job, i64 8)
  %next = getelementptr i8, ptr %job, i64 16
  %done = getelementptr i8, ptr %job, i64 20
  %failed = getelementptr i8, ptr %job, i64 28
  %count = call i64 @number(ptr %job, i64 32)
  %parts = trunc i64 %count to i32
  %group = alloca [2 x i64]
  call void @set(ptr %group, i64 0, i64 0)
  call void @set(ptr %group, i64 8, i64 %count)
  br label %take

take:
  %part = atomicrmw add ptr %next, i32 1 acq_rel
  %is_left = icmp ult i32 %part, %parts
  br i1 %is_left, label %compute, label %end

compute:
  %code = call i32 %function(i32 %part, ptr %group, ptr %data)
  %is_fine = icmp eq i32 %code, 0
  br i1 %is_fine, label %computed, label %fail

fail:
  store atomic i32 %code, ptr %failed release, align 4
  br label %computed

computed:
  %before = atomicrmw add ptr %done, i32 1 acq_rel
  br label %take

end:
  ret void
}}
"""
