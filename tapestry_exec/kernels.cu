// Kernels of the CUDA backend. Header-free, so that NVRTC needs no toolkit; tapestry_exec/shim.h runs the same
// text on a CPU. Compiled with -fmad=false: a product and a sum round separately, as NumPy's do, and where a fused
// multiply-add is wanted, fmaf or fma says so.
//
// Structs passed by value are packed in kernels.py; the kernel `layout` tells where each field really lies.

typedef signed char i8;
typedef short i16;
typedef int i32;
typedef long long i64;
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

enum {
  RANK = 8,        // dimensions of a strided copy, after collapsing
  TRANSFERS = 10,  // strided copies in one launch: what fits in 4 KB of parameters
  GUARDS = 16,
  THREADS = 256,
  CELLS = 4,  // of one thread: so many loads are in flight before the first store
};

// ------------------------------------------------------------------------------------------ strided copies

struct Guard {
  i64 coefficients[RANK];
  i64 low, high;
};

// One strided copy; dimension 0 is the innermost. Offsets and strides count items. `total` < 2^31.
struct Transfer {
  i64 dst, src;
  i64 dst_strides[RANK], src_strides[RANK];
  u32 extents[RANK], magics[RANK], shifts[RANK];
  u32 total, first_tile, rank, first_guard, guards, spare;
};

struct Batch {
  u32 count, tiles;
  Transfer transfers[TRANSFERS];
  Guard guards[GUARDS];
};

struct alignas(16) Pair {
  u64 low, high;
};

// Quotient of n < 2^31 by an extent, as a multiplication: Granlund and Montgomery, "Division by invariant integers
// using multiplication", 1994.
__device__ inline u32 divided(u32 n, u32 magic, u32 shift) { return (__umulhi(n, magic) + n) >> shift; }

__device__ inline bool guarded_out(const Batch& batch, const Transfer& t, u32 n) {
  for (u32 g = t.first_guard; g < t.first_guard + t.guards; ++g) {
    const Guard& guard = batch.guards[g];
    i64 sum = 0;
    u32 rest = n;
    for (u32 d = 0; d + 1 < t.rank; ++d) {
      const u32 quotient = divided(rest, t.magics[d], t.shifts[d]);
      sum += guard.coefficients[d] * (i64)(rest - quotient * t.extents[d]);
      rest = quotient;
    }
    sum += guard.coefficients[t.rank - 1] * (i64)rest;
    if (sum < guard.low || sum >= guard.high) return true;
  }
  return false;
}

// Where the cells of one thread lie; cell k is number first + k * THREADS of its transfer.
struct Places {
  i64 dst[CELLS], src[CELLS];
  bool live[CELLS];
};

__device__ inline void locate(const Batch& batch, u32 tile, Places& at) {
  u32 which = 0;
  while (which + 1 < batch.count && tile >= batch.transfers[which + 1].first_tile) ++which;
  const Transfer& t = batch.transfers[which];
  const u32 first = (tile - t.first_tile) * (CELLS * THREADS) + threadIdx.x;
  u32 rest[CELLS];
#pragma unroll
  for (int k = 0; k < CELLS; ++k) {
    rest[k] = first + k * THREADS;
    at.dst[k] = t.dst;
    at.src[k] = t.src;
    at.live[k] = rest[k] < t.total;
    if (t.guards != 0 && at.live[k]) at.live[k] = !guarded_out(batch, t, rest[k]);
  }
#pragma unroll 1
  for (u32 d = 0; d + 1 < t.rank; ++d) {
    const u32 extent = t.extents[d], magic = t.magics[d], shift = t.shifts[d];
    const i64 dst_stride = t.dst_strides[d], src_stride = t.src_strides[d];
#pragma unroll
    for (int k = 0; k < CELLS; ++k) {
      const u32 quotient = divided(rest[k], magic, shift);
      const i64 index = rest[k] - quotient * extent;
      at.dst[k] += index * dst_stride;
      at.src[k] += index * src_stride;
      rest[k] = quotient;
    }
  }
#pragma unroll
  for (int k = 0; k < CELLS; ++k) {
    at.dst[k] += (i64)rest[k] * t.dst_strides[t.rank - 1];
    at.src[k] += (i64)rest[k] * t.src_strides[t.rank - 1];
  }
}

template <class Item>
__device__ inline void copy_cells(const Batch& batch, Item* dst, const Item* src) {
  for (u32 tile = blockIdx.x; tile < batch.tiles; tile += gridDim.x) {
    Places at;
    locate(batch, tile, at);
    Item held[CELLS];
#pragma unroll
    for (int k = 0; k < CELLS; ++k)
      if (at.live[k]) held[k] = src[at.src[k]];
#pragma unroll
    for (int k = 0; k < CELLS; ++k)
      if (at.live[k]) dst[at.dst[k]] = held[k];
  }
}

template <class Item>
__device__ inline void fill_cells(const Batch& batch, Item* dst, Item value) {
  for (u32 tile = blockIdx.x; tile < batch.tiles; tile += gridDim.x) {
    Places at;
    locate(batch, tile, at);
#pragma unroll
    for (int k = 0; k < CELLS; ++k)
      if (at.live[k]) dst[at.dst[k]] = value;
  }
}

#define COPIES_OF(NBYTES, ITEM)                                                                                   \
  extern "C" __global__ void __launch_bounds__(THREADS)                                                           \
      copy_##NBYTES(const __grid_constant__ Batch batch, ITEM* dst, const ITEM* src) {                            \
    copy_cells<ITEM>(batch, dst, src);                                                                            \
  }                                                                                                               \
  extern "C" __global__ void __launch_bounds__(THREADS)                                                           \
      fill_##NBYTES(const __grid_constant__ Batch batch, ITEM* dst, ITEM value) {                                 \
    fill_cells<ITEM>(batch, dst, value);                                                                          \
  }

COPIES_OF(1, u8)
COPIES_OF(2, u16)
COPIES_OF(4, u32)
COPIES_OF(8, u64)
COPIES_OF(16, Pair)

// ------------------------------------------------------------------------------------------------- layout

#define PLACE(STRUCT, FIELD) __builtin_offsetof(STRUCT, FIELD)

// Sizes and offsets of what is passed by value, in the order in which kernels.py lists them.
extern "C" __global__ void layout(u64* out) {
  const u64 found[] = {
      sizeof(Guard),
      PLACE(Guard, coefficients),
      PLACE(Guard, low),
      PLACE(Guard, high),
      sizeof(Transfer),
      PLACE(Transfer, dst),
      PLACE(Transfer, src),
      PLACE(Transfer, dst_strides),
      PLACE(Transfer, src_strides),
      PLACE(Transfer, extents),
      PLACE(Transfer, magics),
      PLACE(Transfer, shifts),
      PLACE(Transfer, total),
      PLACE(Transfer, first_tile),
      PLACE(Transfer, rank),
      PLACE(Transfer, first_guard),
      PLACE(Transfer, guards),
      PLACE(Transfer, spare),
      sizeof(Batch),
      PLACE(Batch, count),
      PLACE(Batch, tiles),
      PLACE(Batch, transfers),
      PLACE(Batch, guards),
  };
  if (blockIdx.x == 0 && threadIdx.x == 0)
    for (u32 k = 0; k < sizeof(found) / sizeof(found[0]); ++k) out[k] = found[k];
}
