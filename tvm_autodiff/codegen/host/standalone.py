"""The C++ function `run` of exported libraries, which needs neither TVM nor Python.

A compiled program calls TVM's runtime for threads and memory, and takes a table and a workspace
from the caller. `run` takes only the arrays: it supplies the table, allocates the workspace, checks
the features of the CPU, and replaces the runtime if the process has none.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np

from .call_check import ADDRESS

#: LLVM's names of x86 features that C++ compilers can test under the same names
_ASKED = frozenset(
    ("aes", "avx", "avx2", "avx512bitalg", "avx512bw", "avx512cd", "avx512dq", "avx512f")
    + ("avx512ifma", "avx512vbmi", "avx512vbmi2", "avx512vl", "avx512vnni", "avx512vpopcntdq")
    + ("bmi", "bmi2", "fma", "gfni", "popcnt", "sse3", "sse4.1", "sse4.2", "ssse3", "vpclmulqdq")
)


def standalone_source(
    signature: str,
    target: str,
    features: Sequence[str],
    threads: int,
    table: np.ndarray | None,
    workspace: int,
) -> str:
    """The source of `run`.

    Parameters
    ----------
    signature, target : str
        Texts for error messages.
    features : sequence of str
        LLVM's names of the x86 CPU features that the code needs.
    threads : int
        The number of threads without TVM's runtime.
    table : array or None
        The table argument of the program (see `call_check`), or None if it takes only arrays. With
        a table, the library contains `direct_calls.check_module`, too.
    workspace : int
        The bytes of temporaries, which the program takes in addition to a table.
    """
    given = [0] if table is None else table.tolist()
    # an address of this process, which `run` replaces
    words = ", ".join("0" if at == ADDRESS else f"{word}ll" for at, word in enumerate(given))
    checks = "\n".join(
        f'  if (!__builtin_cpu_supports("{name}")) return "{name}";'
        for name in sorted(_ASKED & set(features))
    )
    return _SOURCE.format(
        checks=checks,
        misfit=json.dumps(f"the arrays do not fit {signature}, or one that is written overlaps"),
        misses=json.dumps(f"the library was built for {target}, and this CPU has no "),
        table=words,
        words=0 if table is None else len(table),
        address=ADDRESS,
        threads=threads,
        workspace=max(1, workspace),
    )


_SOURCE = """
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

extern "C" {{

struct Any {{ int32_t type; uint32_t padding; union {{ int64_t integer; void* pointer; }}; }};
struct Tensor {{
  void* data; int32_t device[2]; int32_t rank; uint8_t code, bits; uint16_t lanes;
  int64_t* shape; int64_t* strides; uint64_t offset;
}};
struct Group {{ void* handle; int32_t tasks; }};
typedef int (*Task)(int id, struct Group* group, void* data);
enum {{ INTEGER = 1, TENSOR = 7, THREADS = {threads}, WORDS = {words} }};

// what TVM's runtime sets when it loads a library: in a process without it they stay empty
__attribute__((weak)) void* __TVMBackendParallelLaunch;
__attribute__((weak)) void* __TVMBackendAllocWorkspace;
__attribute__((weak)) void* __TVMBackendFreeWorkspace;

__attribute__((weak)) void TVMFFIErrorSetRaisedFromCStr(const char* kind, const char* message);
int __tvm_ffi_main(void* self, struct Any* args, int32_t count, struct Any* result);
__attribute__((weak))
int __tvm_ffi_check(void* table, struct Any* args, int32_t count, struct Any* result);

static pthread_mutex_t busy = PTHREAD_MUTEX_INITIALIZER, lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t begins = PTHREAD_COND_INITIALIZER, ends = PTHREAD_COND_INITIALIZER;
static Task task;
static void* task_data;
static int workers, left, failed;
static uint64_t job;

static void* work(void* id) {{
  uint64_t seen = 0;
  pthread_mutex_lock(&lock);
  for (;;) {{
    while (job == seen) pthread_cond_wait(&begins, &lock);
    seen = job;
    pthread_mutex_unlock(&lock);
    struct Group group = {{0, workers + 1}};
    int code = task((int)(intptr_t)id, &group, task_data);
    pthread_mutex_lock(&lock);
    failed |= code;
    if (--left == 0) pthread_cond_signal(&ends);
  }}
  return 0;
}}

static void begin_workers() {{
  for (int id = 1; id < THREADS; ++id) {{
    pthread_t thread;
    if (pthread_create(&thread, 0, work, (void*)(intptr_t)id)) break;
    pthread_detach(thread);
    ++workers;
  }}
}}

static int launch(Task function, void* data, int) {{
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  // a second caller computes on its own thread
  if (THREADS == 1 || pthread_mutex_trylock(&busy)) {{
    struct Group alone = {{0, 1}};
    return function(0, &alone, data);
  }}
  pthread_once(&once, begin_workers);
  pthread_mutex_lock(&lock);
  task = function, task_data = data, left = workers, failed = 0, ++job;
  pthread_cond_broadcast(&begins);
  pthread_mutex_unlock(&lock);
  struct Group group = {{0, workers + 1}};
  int code = function(0, &group, data);
  pthread_mutex_lock(&lock);
  while (left) pthread_cond_wait(&ends, &lock);
  code |= failed;
  pthread_mutex_unlock(&lock);
  pthread_mutex_unlock(&busy);
  return code;
}}

static void* allocate(int, int, uint64_t bytes, int, int) {{
  void* memory = 0;
  return posix_memalign(&memory, 64, bytes ? bytes : 64) ? 0 : memory;
}}

static int release(int, int, void* memory) {{ return free(memory), 0; }}

static const char* missing() {{
#if defined(__x86_64__)
  __builtin_cpu_init();
{checks}
#endif
  return 0;
}}

static int refuse(const char* kind, const char* text, const char* more) {{
  char message[4096];
  strncpy(message, text, sizeof message - 1), message[sizeof message - 1] = 0;
  strncat(message, more, sizeof message - strlen(message) - 1);
  if (TVMFFIErrorSetRaisedFromCStr) TVMFFIErrorSetRaisedFromCStr(kind, message);
  return -1;
}}

static int check(struct Any* args, int32_t count, void* table, int32_t, struct Any* result) {{
  result->type = 0, result->integer = 0;
  __tvm_ffi_check(table, args, count, result);
  return (int)result->integer;
}}

__attribute__((visibility("default")))
int __tvm_ffi_run(void* self, struct Any* args, int32_t count, struct Any* result) {{
  static const int64_t words[] = {{ {table} }};
  const char* feature = missing();
  if (feature) return refuse("RuntimeError", {misses}, feature);
  if (!__TVMBackendParallelLaunch) __TVMBackendParallelLaunch = (void*)launch;
  if (!__TVMBackendAllocWorkspace) __TVMBackendAllocWorkspace = (void*)allocate;
  if (!__TVMBackendFreeWorkspace) __TVMBackendFreeWorkspace = (void*)release;
  if (!WORDS) return __tvm_ffi_main(self, args, count, result);

  // a table and a workspace serve one call at a time
  int64_t* table = (int64_t*)malloc(sizeof words);
  void* memory = allocate(0, 0, {workspace}, 0, 0);
  struct Any* all = (struct Any*)malloc((count + 3) * sizeof *all);
  int code = -1;
  if (table && memory && all) {{
    memcpy(table, words, sizeof words);
    if (WORDS > {address}) table[{address}] = (int64_t)check;
    int64_t sizes[] = {{ WORDS, {workspace} }};
    struct Tensor first = {{ table, {{1, 0}}, 1, 0, 64, 1, sizes, 0, 0 }};
    struct Tensor second = {{ memory, {{1, 0}}, 1, 1, 8, 1, sizes + 1, 0, 0 }};
    memset(all, 0, 3 * sizeof *all);
    all[0].type = INTEGER, all[0].integer = -1;
    all[1].type = TENSOR, all[1].pointer = &first;
    all[2].type = TENSOR, all[2].pointer = &second;
    memcpy(all + 3, args, count * sizeof *all);
    code = __tvm_ffi_main(self, all, count + 3, result);
    if (!code && result->type == INTEGER && result->integer)
      code = refuse("ValueError", {misfit}, "");
    result->type = 0, result->integer = 0;
  }} else {{
    refuse("MemoryError", "no memory for temporaries", "");
  }}
  free(table), free(memory), free(all);
  return code;
}}

}}
"""
