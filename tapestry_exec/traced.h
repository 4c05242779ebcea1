// Which bytes a kernel touches: the compiler calls these functions before each load and store (-fsanitize=thread), and
// they note the address if it lies in memory that the caller named. No library of the sanitizer takes part.
#pragma once

#include <cstddef>
#include <cstdint>

namespace traced {

// A block of memory: one byte of `reads` and `writes` for each of its bytes, and the touched range of each.
struct Block {
  uint64_t start, nbytes;
  unsigned char* touched[2];
  uint64_t low[2], high[2];
};

static Block* blocks = nullptr;
static size_t count = 0, last = 0;

__attribute__((no_sanitize("thread"), noinline)) static void note(void* at, size_t nbytes, int is_write) {
  const uint64_t address = (uint64_t)at;
  for (size_t k = 0; k < count; ++k) {
    Block& block = blocks[last];
    const uint64_t offset = address - block.start;
    if (offset < block.nbytes) {
      const uint64_t stop = offset + nbytes < block.nbytes ? offset + nbytes : block.nbytes;
      for (uint64_t n = offset; n < stop; ++n) block.touched[is_write][n] = 1;
      if (offset < block.low[is_write]) block.low[is_write] = offset;
      if (stop > block.high[is_write]) block.high[is_write] = stop;
      return;
    }
    last = last + 1 < count ? last + 1 : 0;
  }
}

}  // namespace traced

#define TRACED __attribute__((no_sanitize("thread"))) void
#define TRACED_SIZE(N)                                                          \
  TRACED __tsan_read##N(void* at) { traced::note(at, N, 0); }                   \
  TRACED __tsan_write##N(void* at) { traced::note(at, N, 1); }                  \
  TRACED __tsan_unaligned_read##N(void* at) { traced::note(at, N, 0); }         \
  TRACED __tsan_unaligned_write##N(void* at) { traced::note(at, N, 1); }        \
  TRACED __tsan_volatile_read##N(void* at) { traced::note(at, N, 0); }          \
  TRACED __tsan_volatile_write##N(void* at) { traced::note(at, N, 1); }

extern "C" {
TRACED_SIZE(1)
TRACED_SIZE(2)
TRACED_SIZE(4)
TRACED_SIZE(8)
TRACED_SIZE(16)
TRACED __tsan_read_range(void* at, size_t nbytes) { traced::note(at, nbytes, 0); }
TRACED __tsan_write_range(void* at, size_t nbytes) { traced::note(at, nbytes, 1); }
TRACED __tsan_vptr_update(void**, void*) {}
TRACED __tsan_vptr_read(void**) {}
TRACED __tsan_func_entry(void*) {}
TRACED __tsan_func_exit() {}
TRACED __tsan_init() {}
TRACED traced_blocks(void* blocks, size_t count) {
  traced::blocks = (traced::Block*)blocks;
  traced::count = count;
  traced::last = 0;
}
}
