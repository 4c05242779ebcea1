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

// --------------------------------------------------------------------------------------------- arithmetic

// Two values of one dtype as NumPy merges them: integers wrap, float16 rounds after each operation, minimum and
// maximum give a NaN if there is one. Of two zeros that differ in sign alone they give the first. Integers with and
// without a sign differ in minimum and maximum alone; truth values are merged as int8, by the logical functions.

enum { ADD, MULTIPLY, MINIMUM, MAXIMUM, LOGICAL_OR, LOGICAL_AND, UNSIGNED_MINIMUM, UNSIGNED_MAXIMUM, REPLACE };

// CuPy compiles with -ftz=true, by which float32 takes subnormal numbers for zeros. These instructions do not.
#ifdef __CUDA_ARCH__
__device__ inline float plus(float a, float b) {
  float sum;
  asm("add.rn.f32 %0, %1, %2;" : "=f"(sum) : "f"(a), "f"(b));
  return sum;
}
__device__ inline float times(float a, float b) {
  float product;
  asm("mul.rn.f32 %0, %1, %2;" : "=f"(product) : "f"(a), "f"(b));
  return product;
}
__device__ inline bool at_most(float a, float b) {
  u32 is_so;
  asm("{ .reg .pred p; setp.le.f32 p, %1, %2; selp.u32 %0, 1, 0, p; }" : "=r"(is_so) : "f"(a), "f"(b));
  return is_so;
}
#else
__device__ inline float plus(float a, float b) { return a + b; }
__device__ inline float times(float a, float b) { return a * b; }
__device__ inline bool at_most(float a, float b) { return a <= b; }
#endif
template <class T>
__device__ inline bool at_most(T a, T b) {
  return a <= b;
}

struct Half {
  u16 bits;
};

__device__ inline float widened(Half x) {
  const u32 sign = (x.bits & 0x8000u) << 16, body = x.bits & 0x7FFFu;
  if (body >= 0x7C00u) return __uint_as_float(sign | 0x7F800000u | (body & 0x3FFu) << 13);
  return __uint_as_float(sign | __float_as_uint(times(__uint_as_float(body << 13), 0x1p112f)));
}

// To the nearest, ties to even.
__device__ inline Half narrowed(float x) {
  const u32 word = __float_as_uint(x), sign = word >> 16 & 0x8000u, body = word & 0x7FFFFFFFu;
  u32 found;
  if (body > 0x7F800000u) {
    found = 0x7E00u | (body >> 13 & 0x3FFu);
  } else if (body >= 0x477FF000u) {
    found = 0x7C00u;
  } else if (body < 0x38800000u) {  // a subnormal: one half has the same last place, 2^-24
    found = __float_as_uint(plus(__uint_as_float(body), 0.5f)) - 0x3F000000u;
  } else {
    found = (body + 0xFFFu + (body >> 13 & 1u) - 0x38000000u) >> 13;
  }
  Half made = {(u16)(sign | found)};
  return made;
}

template <class T>
struct Unsigned;
template <>
struct Unsigned<i8> {
  typedef u8 type;
};
template <>
struct Unsigned<i16> {
  typedef u16 type;
};
template <>
struct Unsigned<i32> {
  typedef u32 type;
};
template <>
struct Unsigned<i64> {
  typedef u64 type;
};

template <class T>
__device__ inline T added(T a, T b) {
  typedef typename Unsigned<T>::type U;
  return (T)((U)a + (U)b);
}
__device__ inline float added(float a, float b) { return plus(a, b); }
__device__ inline double added(double a, double b) { return a + b; }
__device__ inline Half added(Half a, Half b) { return narrowed(plus(widened(a), widened(b))); }

template <class T>
__device__ inline T multiplied(T a, T b) {
  typedef typename Unsigned<T>::type U;
  return (T)((1u * (U)a) * (U)b);  // 16 bits times 16 bits would be a signed product
}
__device__ inline float multiplied(float a, float b) { return times(a, b); }
__device__ inline double multiplied(double a, double b) { return a * b; }
__device__ inline Half multiplied(Half a, Half b) { return narrowed(times(widened(a), widened(b))); }

template <class T>
__device__ inline bool leads(T a, T b) {
  return at_most(a, b) || a != a;
}
__device__ inline bool leads(Half a, Half b) { return leads(widened(a), widened(b)); }

template <class T>
__device__ inline bool trails(T a, T b) {
  return at_most(b, a) || a != a;
}
__device__ inline bool trails(Half a, Half b) { return trails(widened(a), widened(b)); }

template <class T>
__device__ inline bool holds(T a) {
  return a != 0;
}
__device__ inline bool holds(float a) { return __float_as_uint(a) << 1 != 0; }
__device__ inline bool holds(Half a) { return (a.bits & 0x7FFF) != 0; }

template <class T>
__device__ inline T said(bool x, T) {
  return (T)x;
}
__device__ inline Half said(bool x, Half) { return Half{(u16)(x ? 0x3C00 : 0)}; }

template <class T>
__device__ inline T of_unsigned(u32 op, T a, T b) {
  typedef typename Unsigned<T>::type U;
  return ((U)a <= (U)b) == (op == UNSIGNED_MINIMUM) ? a : b;
}
__device__ inline Half of_unsigned(u32, Half a, Half) { return a; }
__device__ inline float of_unsigned(u32, float a, float) { return a; }
__device__ inline double of_unsigned(u32, double a, double) { return a; }

template <class T>
__device__ inline T merged(u32 op, T a, T b) {
  switch (op) {
    case ADD: return added(a, b);
    case MULTIPLY: return multiplied(a, b);
    case MINIMUM: return leads(a, b) ? a : b;
    case MAXIMUM: return trails(a, b) ? a : b;
    case LOGICAL_OR: return said(holds(a) || holds(b), a);
    case LOGICAL_AND: return said(holds(a) && holds(b), a);
    default: return of_unsigned(op, a, b);
  }
}

#define EACH_DTYPE(DO) \
  DO(int8, i8)         \
  DO(int16, i16)       \
  DO(int32, i32)       \
  DO(int64, i64)       \
  DO(float16, Half)    \
  DO(float32, float)   \
  DO(float64, double)

// --------------------------------------------------------------------------------------------- fixed trees

enum {
  PARTS = 32,
  LEVELS = 5,  // of a tree of pairs of so many parts
  AHEAD = 4,   // parts that are read before the first is merged
};

// A buffer of partial results; the address is that of index 0.
struct Part {
  u64 address;
  i64 strides[RANK];
};

// Partial results merged in their order, `fan_in` at a time. `total` < 2^31; dimension 0 is the innermost.
struct Merge {
  Part out;
  u32 extents[RANK], magics[RANK], shifts[RANK];
  u32 total, rank, parts, fan_in;
  Part from[PARTS];
};

__device__ inline i64 offset_of(const Part& part, const u32* index, u32 rank) {
  i64 offset = 0;
#pragma unroll
  for (u32 d = 0; d < RANK; ++d)
    if (d < rank) offset += (i64)index[d] * part.strides[d];
  return offset;
}

template <class Work>
__device__ inline void index_of(const Work& w, u32 n, u32* index) {
  u32 rest = n;
#pragma unroll
  for (u32 d = 0; d < RANK; ++d) {
    index[d] = rest;
    if (d + 1 < w.rank) {
      const u32 quotient = divided(rest, w.magics[d], w.shifts[d]);
      index[d] = rest - quotient * w.extents[d];
      rest = quotient;
    }
  }
}

// The tree that merges groups of `fan_in` neighbours level by level, grown from the left: level l holds the group
// of that level which is not yet full.
template <class T>
struct Tree {
  T held[LEVELS];
  u32 counts[LEVELS];

  __device__ inline void add(u32 op, u32 fan_in, T x) {
    bool carried = true;
#pragma unroll
    for (int l = 0; l < LEVELS; ++l) {
      if (!carried) break;
      held[l] = counts[l] == 0 ? x : merged(op, held[l], x);
      ++counts[l];
      carried = counts[l] == fan_in && l + 1 < LEVELS;
      if (carried) {
        x = held[l];
        counts[l] = 0;
      }
    }
  }

  __device__ inline T root(u32 op) {
    T x = held[0];
    bool some = counts[0] != 0;
#pragma unroll
    for (int l = 1; l < LEVELS; ++l) {
      if (counts[l] == 0) continue;
      x = some ? merged(op, held[l], x) : held[l];
      some = true;
    }
    return x;
  }
};

template <class T>
__device__ inline T part_of(const Merge& m, u32 k, const u32* index) {
  return ((const T*)m.from[k].address)[offset_of(m.from[k], index, m.rank)];
}

template <class T>
__device__ inline T in_a_row(const Merge& m, u32 op, const u32* index) {
  T x = part_of<T>(m, 0, index);
  for (u32 first = 1; first < m.parts; first += AHEAD) {
    T held[AHEAD];
#pragma unroll
    for (u32 k = 0; k < AHEAD; ++k)
      if (first + k < m.parts) held[k] = part_of<T>(m, first + k, index);
#pragma unroll
    for (u32 k = 0; k < AHEAD; ++k)
      if (first + k < m.parts) x = merged(op, x, held[k]);
  }
  return x;
}

template <class T>
__device__ inline T in_a_tree(const Merge& m, u32 op, const u32* index) {
  Tree<T> tree;
#pragma unroll
  for (int l = 0; l < LEVELS; ++l) tree.counts[l] = 0;
  T next = part_of<T>(m, 0, index);
#pragma unroll 1
  for (u32 k = 0; k < m.parts; ++k) {
    const T x = next;
    if (k + 1 < m.parts) next = part_of<T>(m, k + 1, index);
    tree.add(op, m.fan_in, x);
  }
  return tree.root(op);
}

template <class T>
__device__ inline void merge_cells(const Merge& m, u32 op) {
  for (u32 n = blockIdx.x * THREADS + threadIdx.x; n < m.total; n += gridDim.x * THREADS) {
    u32 index[RANK];
    index_of(m, n, index);
    const T x = m.fan_in >= m.parts ? in_a_row<T>(m, op, index) : in_a_tree<T>(m, op, index);
    ((T*)m.out.address)[offset_of(m.out, index, m.rank)] = x;
  }
}

#define MERGE_OF(DTYPE, T)                                                                                        \
  extern "C" __global__ void __launch_bounds__(THREADS)                                                           \
      merge_##DTYPE(const __grid_constant__ Merge work, u32 op) {                                                 \
    merge_cells<T>(work, op);                                                                                     \
  }

EACH_DTYPE(MERGE_OF)

// --------------------------------------------------------------------------------- scatters in a fixed order

// Turn k of lane l puts updates[k, l] into the cell at[k, l] of what lane l writes; two lanes write no cell alike. The
// turns of one cell go in their order, by one thread: the threads of a lane share its cells out among themselves, in
// 2^bits parts, and each walks through all turns. Offsets in cells; dimension 0 of the lanes is the innermost.
struct Scatter {
  Part out, at, updates;
  i64 at_turn, updates_turn;
  u32 extents[RANK], magics[RANK], shifts[RANK];
  u32 total, rank, turns, bits;
};

__device__ inline u32 share_of(i64 cell, u32 bits) { return (u32)((u64)((u32)cell * 2654435761u) << bits >> 32); }

template <class T>
__device__ inline void scatter_lane(const Scatter& s, u32 op, T* out, const i64* at, const T* updates) {
  for (u32 first = 0; first < s.turns; first += AHEAD) {
    i64 cells[AHEAD];
#pragma unroll
    for (u32 k = 0; k < AHEAD; ++k)
      if (first + k < s.turns) cells[k] = at[(i64)(first + k) * s.at_turn];
#pragma unroll
    for (u32 k = 0; k < AHEAD; ++k)
      if (first + k < s.turns && share_of(cells[k], s.bits) == blockIdx.y) {
        const T x = updates[(i64)(first + k) * s.updates_turn];
        out[cells[k]] = op == REPLACE ? x : merged(op, out[cells[k]], x);
      }
  }
}

template <class T>
__device__ inline void scatter_cells(const Scatter& s, u32 op) {
  for (u32 n = blockIdx.x * THREADS + threadIdx.x; n < s.total; n += gridDim.x * THREADS) {
    u32 index[RANK];
    index_of(s, n, index);
    scatter_lane<T>(s, op, (T*)s.out.address + offset_of(s.out, index, s.rank),
                    (const i64*)s.at.address + offset_of(s.at, index, s.rank),
                    (const T*)s.updates.address + offset_of(s.updates, index, s.rank));
  }
}

#define SCATTER_OF(DTYPE, T)                                                                                      \
  extern "C" __global__ void __launch_bounds__(THREADS)                                                           \
      scatter_##DTYPE(const __grid_constant__ Scatter work, u32 op) {                                             \
    scatter_cells<T>(work, op);                                                                                   \
  }

EACH_DTYPE(SCATTER_OF)

// ------------------------------------------------------------------------------------------------ epilogue

enum { IDENTITY, RELU, SIGMOID, TANH, GELU };

__device__ inline float exponential(float x) { return expf(x); }
__device__ inline double exponential(double x) { return exp(x); }
__device__ inline float hyperbolic(float x) { return tanhf(x); }
__device__ inline double hyperbolic(double x) { return tanh(x); }
__device__ inline float error(float x) { return erff(x); }
__device__ inline double error(double x) { return erf(x); }

template <class T>
__device__ inline T bent(u32 activation, T x) {
  return activation != RELU || x > (T)0 || x != x ? x : (T)0;
}

template <class T>
__device__ inline T curved(u32 activation, T x) {
  switch (activation) {
    case SIGMOID: return (T)1 / ((T)1 + exponential(-x));
    case TANH: return hyperbolic(x);
    default: return (error(x * (T)0.7071067811865476) + (T)1) * x * (T)0.5;
  }
}

// Of COUNT values in registers. The curved ones stand in the code once: a loop takes the first value and moves the
// others up, as registers have no numbers.
template <int COUNT, class T>
__device__ inline void activate(u32 activation, T* x) {
  if (activation <= RELU) {
#pragma unroll
    for (int k = 0; k < COUNT; ++k) x[k] = bent(activation, x[k]);
    return;
  }
#pragma unroll 1
  for (int turn = 0; turn < COUNT; ++turn) {
    const T made = curved(activation, x[0]);
#pragma unroll
    for (int k = 0; k + 1 < COUNT; ++k) x[k] = x[k + 1];
    x[COUNT - 1] = made;
  }
}

// x = activation(x + bias[column]) over `total` groups of LANES cells, `columns` groups to a row; with a `period` the
// bias is of rows, bias[row % period].
template <class T, int LANES>
struct alignas(sizeof(T) * LANES) Lanes {
  T at[LANES];
};

template <class T, int LANES>
__device__ inline void finish(Lanes<T, LANES>* x, const T* bias, u32 total, u32 columns, u32 magic, u32 shift,
                              u32 period, u32 activation) {
  for (u32 first = blockIdx.x * (CELLS * THREADS) + threadIdx.x; first < total; first += gridDim.x * (CELLS * THREADS)) {
    Lanes<T, LANES> held[CELLS];
#pragma unroll
    for (int k = 0; k < CELLS; ++k)
      if (first + k * THREADS < total) held[k] = x[first + k * THREADS];
#pragma unroll
    for (int k = 0; k < CELLS; ++k) {
      const u32 n = first + k * THREADS;
      if (n >= total || bias == nullptr) continue;
      const u32 row = divided(n, magic, shift);
      if (period) {
        const T add = bias[row % period];
#pragma unroll
        for (int l = 0; l < LANES; ++l) held[k].at[l] = held[k].at[l] + add;
      } else {
        const Lanes<T, LANES> add = ((const Lanes<T, LANES>*)bias)[n - row * columns];
#pragma unroll
        for (int l = 0; l < LANES; ++l) held[k].at[l] = held[k].at[l] + add.at[l];
      }
    }
    activate<CELLS * LANES>(activation, &held[0].at[0]);
#pragma unroll
    for (int k = 0; k < CELLS; ++k)
      if (first + k * THREADS < total) x[first + k * THREADS] = held[k];
  }
}

#define EPILOGUE_OF(DTYPE, T, LANES)                                                                              \
  extern "C" __global__ void __launch_bounds__(THREADS)                                                           \
      epilogue_##DTYPE##x##LANES(Lanes<T, LANES>* x, const T* bias, u32 total, u32 columns, u32 magic, u32 shift,  \
                                 u32 period, u32 activation) {                                                    \
    finish<T, LANES>(x, bias, total, columns, magic, shift, period, activation);                                  \
  }

EPILOGUE_OF(float32, float, 1)
EPILOGUE_OF(float32, float, 4)
EPILOGUE_OF(float64, double, 1)
EPILOGUE_OF(float64, double, 2)

// ----------------------------------------------------------------------------------------------------- rows

enum { SOFTMAX, CENTERED, PLAIN };

__device__ inline float rooted(float x) { return sqrtf(x); }
__device__ inline double rooted(double x) { return sqrt(x); }

struct Sum {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a + b;
  }
};

struct Most {  // a NaN if there is one
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a >= b || a != a ? a : b;
  }
};

// One value of a block's threads, merged in one order: by halves.
template <class T, class Merge>
__device__ inline T of_block(T* held, T mine, Merge merge) {
  held[threadIdx.x] = mine;
  __syncthreads();
  for (u32 half = THREADS / 2; half; half /= 2) {
    if (threadIdx.x < half) held[threadIdx.x] = merge(held[threadIdx.x], held[threadIdx.x + half]);
    __syncthreads();
  }
  const T found = held[0];
  __syncthreads();  // before it is written again
  return found;
}

// out = exp(x - max) / sum, or (x - mean) / sqrt(mean((x - mean)^2) + epsilon) * scale + bias, row by row: a block has
// one row at a time, whose cells its threads take in turns. A plain one takes no mean off.
template <class T>
__device__ inline void finish_rows(T* held, T* out, const T* x, const T* scale, const T* bias, u32 rows, u32 columns,
                                   T epsilon, u32 kind) {
  for (u32 row = blockIdx.x; row < rows; row += gridDim.x) {
    const T* from = x + (u64)row * columns;
    T* to = out + (u64)row * columns;
    T less = (T)0, total = (T)0;
    if (kind == SOFTMAX) {
      T most = from[threadIdx.x < columns ? threadIdx.x : 0];
      for (u32 k = threadIdx.x; k < columns; k += THREADS) most = Most()(most, from[k]);
      less = of_block(held, most, Most());
      for (u32 k = threadIdx.x; k < columns; k += THREADS) total += exponential(from[k] - less);
      total = of_block(held, total, Sum());
      for (u32 k = threadIdx.x; k < columns; k += THREADS) to[k] = exponential(from[k] - less) / total;
      continue;
    }
    if (kind == CENTERED) {
      for (u32 k = threadIdx.x; k < columns; k += THREADS) less += from[k];
      less = of_block(held, less, Sum()) / (T)columns;
    }
    for (u32 k = threadIdx.x; k < columns; k += THREADS) total += (from[k] - less) * (from[k] - less);
    total = rooted(of_block(held, total, Sum()) / (T)columns + epsilon);
    for (u32 k = threadIdx.x; k < columns; k += THREADS) {
      const T made = (from[k] - less) / total * scale[k];
      to[k] = bias == nullptr ? made : made + bias[k];
    }
  }
}

#define ROWS_OF(DTYPE, T)                                                                                        \
  extern "C" __global__ void __launch_bounds__(THREADS)                                                          \
      rows_##DTYPE(T* out, const T* x, const T* scale, const T* bias, u32 rows, u32 columns, T epsilon,          \
                   u32 kind) {                                                                                   \
    __shared__ T held[THREADS];                                                                                  \
    finish_rows<T>(held, out, x, scale, bias, rows, columns, epsilon, kind);                                     \
  }

ROWS_OF(float32, float)
ROWS_OF(float64, double)

// --------------------------------------------------------------------------------------------- convolution

enum {
  WIDE = 4,    // output cells of a thread, of each of its channels
  DEPTH = 32,  // weights of one channel in shared memory at a time
};

// The block read holds the halo: output cell o reads cells o * stride + k * dilation. Strides in elements; axes of
// x are sample, channel, three of space; of w output channel, channel, three of the kernel; of out as of x.
struct Convolution {
  i64 x_strides[5], w_strides[5], out_strides[5];
  u32 extents[3], kernel[3], strides[3], dilations[3];
  u32 channels, width;  // of a group: read, made
  u32 depth, cells;     // channels * kernel cells; output cells of one channel
  u32 cell_tiles, channel_tiles, groups, activation;
};

__device__ inline float fused(float a, float b, float c) { return fmaf(a, b, c); }
__device__ inline double fused(double a, double b, double c) { return fma(a, b, c); }

// Each cell adds its products in one order: channels, and in each the kernel's cells row-major, from 0, with fused
// multiply-adds; then the bias. A block makes SPAN cells of TALL channels; a warp's threads share channels, so that
// they read weights together and cells side by side.
template <class T, int HEIGHT, int ROWS>
struct Convolver {
  enum { LANES_ = THREADS / ROWS, SPAN = LANES_ * WIDE, TALL = HEIGHT * ROWS, PITCH = TALL + (TALL > 1 ? 16 / sizeof(T) : 0) };

  struct Shared {
    alignas(16) T weights[DEPTH * PITCH];
    i64 x_offsets[DEPTH], w_offsets[DEPTH];
  };

  __device__ static inline void note_offsets(const Convolution& v, Shared& shared, u32 first) {
    const u32 q = first + threadIdx.x;
    if (threadIdx.x >= DEPTH || q >= v.depth) return;
    const u32 k2 = q % v.kernel[2], rest = q / v.kernel[2];
    const u32 k1 = rest % v.kernel[1], more = rest / v.kernel[1];
    const u32 k0 = more % v.kernel[0], c = more / v.kernel[0];
    shared.x_offsets[threadIdx.x] = c * v.x_strides[1] + (i64)k0 * v.dilations[0] * v.x_strides[2] +
                                    (i64)k1 * v.dilations[1] * v.x_strides[3] +
                                    (i64)k2 * v.dilations[2] * v.x_strides[4];
    shared.w_offsets[threadIdx.x] =
        c * v.w_strides[1] + k0 * v.w_strides[2] + k1 * v.w_strides[3] + k2 * v.w_strides[4];
  }

  __device__ static inline void run(const Convolution& v, T* out, const T* x, const T* w, const T* bias,
                                    Shared& shared) {
    const u32 lane = threadIdx.x % LANES_, row = threadIdx.x / LANES_;
    const u32 cell_tile = blockIdx.x % v.cell_tiles;
    u32 rest = blockIdx.x / v.cell_tiles;
    const u32 channel = rest % v.channel_tiles * TALL;
    rest /= v.channel_tiles;
    const u32 group = rest % v.groups, sample = rest / v.groups;
    x += sample * v.x_strides[0] + (i64)(group * v.channels) * v.x_strides[1];
    w += (i64)(group * v.width + channel) * v.w_strides[0];
    out += sample * v.out_strides[0] + (i64)(group * v.width + channel) * v.out_strides[1];

    i64 from[WIDE], to[WIDE];
    T sums[HEIGHT][WIDE];
#pragma unroll
    for (int p = 0; p < WIDE; ++p) {
      const u32 cell = cell_tile * SPAN + lane + p * LANES_;
      const u32 at = cell < v.cells ? cell : v.cells - 1;  // of the last threads: read, not written
      const u32 o2 = at % v.extents[2], o1 = at / v.extents[2] % v.extents[1], o0 = at / v.extents[2] / v.extents[1];
      from[p] = (i64)o0 * v.strides[0] * v.x_strides[2] + (i64)o1 * v.strides[1] * v.x_strides[3] +
                (i64)o2 * v.strides[2] * v.x_strides[4];
      to[p] = o0 * v.out_strides[2] + o1 * v.out_strides[3] + o2 * v.out_strides[4];
#pragma unroll
      for (int h = 0; h < HEIGHT; ++h) sums[h][p] = (T)0;
    }

    for (u32 first = 0; first < v.depth; first += DEPTH) {
      const u32 some = v.depth - first < DEPTH ? v.depth - first : DEPTH;
      __syncthreads();
      note_offsets(v, shared, first);
      __syncthreads();
      for (u32 k = threadIdx.x; k < DEPTH * TALL; k += THREADS) {
        const u32 q = k % DEPTH, j = k / DEPTH;
        const bool is_one = q < some && channel + j < v.width;
        shared.weights[q * PITCH + j] = is_one ? w[j * v.w_strides[0] + shared.w_offsets[q]] : (T)0;
      }
      __syncthreads();
#pragma unroll 2
      for (u32 q = 0; q < some; ++q) {
        const i64 offset = shared.x_offsets[q];
        T held[WIDE];
#pragma unroll
        for (int p = 0; p < WIDE; ++p) held[p] = x[from[p] + offset];
#pragma unroll
        for (int h = 0; h < HEIGHT; ++h) {
          const T weight = shared.weights[q * PITCH + row * HEIGHT + h];
#pragma unroll
          for (int p = 0; p < WIDE; ++p) sums[h][p] = fused(weight, held[p], sums[h][p]);
        }
      }
    }

#pragma unroll
    for (int h = 0; h < HEIGHT; ++h) {
      const u32 j = row * HEIGHT + h;
      if (bias == nullptr || channel + j >= v.width) continue;
      const T add = bias[group * v.width + channel + j];
#pragma unroll
      for (int p = 0; p < WIDE; ++p) sums[h][p] = sums[h][p] + add;
    }
    activate<HEIGHT * WIDE>(v.activation, &sums[0][0]);
#pragma unroll
    for (int h = 0; h < HEIGHT; ++h) {
      const u32 j = row * HEIGHT + h;
      if (channel + j >= v.width) continue;
#pragma unroll
      for (int p = 0; p < WIDE; ++p)
        if (cell_tile * SPAN + lane + p * LANES_ < v.cells) out[j * v.out_strides[1] + to[p]] = sums[h][p];
    }
  }
};

// Named by the channels that a block makes. Two blocks to a multiprocessor: up to 128 registers, and none spilled.
#define CONVOLUTION_OF(DTYPE, T, HEIGHT, ROWS, TALL)                                                              \
  extern "C" __global__ void __launch_bounds__(THREADS, 2)                                                        \
      convolution_##DTYPE##x##TALL(const __grid_constant__ Convolution work, T* out, const T* x, const T* w,      \
                                   const T* bias) {                                                               \
    __shared__ Convolver<T, HEIGHT, ROWS>::Shared shared;                                                         \
    Convolver<T, HEIGHT, ROWS>::run(work, out, x, w, bias, shared);                                               \
  }

CONVOLUTION_OF(float32, float, 8, 8, 64)
CONVOLUTION_OF(float32, float, 8, 2, 16)
CONVOLUTION_OF(float32, float, 1, 1, 1)
CONVOLUTION_OF(float64, double, 4, 8, 32)
CONVOLUTION_OF(float64, double, 4, 2, 8)
CONVOLUTION_OF(float64, double, 1, 1, 1)

// ---------------------------------------------------------------------------------------------- random words

// Philox4x32-10: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", 2011.
struct Four {
  u32 at[4];
};

__device__ inline Four philox(Four counter, u32 key0, u32 key1) {
  u32 c0 = counter.at[0], c1 = counter.at[1], c2 = counter.at[2], c3 = counter.at[3];
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const u32 high0 = __umulhi(0xD2511F53u, c0), low0 = 0xD2511F53u * c0;
    const u32 high1 = __umulhi(0xCD9E8D57u, c2), low1 = 0xCD9E8D57u * c2;
    c0 = high1 ^ c1 ^ key0;
    c1 = low1;
    c2 = high0 ^ c3 ^ key1;
    c3 = low0;
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return Four{{c0, c1, c2, c3}};
}

// Rows of words of a tensor's box. Dimension 0 numbers the groups of four words of a row, the others number rows;
// row r begins at word `first` + sum of index * stride, and at r * `run` of the block written.
struct Words {
  i64 first, run;
  i64 strides[RANK];
  u32 extents[RANK], magics[RANK], shifts[RANK];
  u32 total, rank, key0, key1;
};

struct Group {
  Four words;
  i64 at;  // of the first word, in the block
  i64 low, high;  // the words of the row, in the block
};

__device__ inline Group group_of(const Words& w, u32 n) {
  const u32 row = w.rank > 1 ? divided(n, w.magics[0], w.shifts[0]) : 0;
  i64 word = w.first;
  u32 rest = row;
#pragma unroll 1
  for (u32 d = 1; d < w.rank; ++d) {
    const u32 quotient = d + 1 < w.rank ? divided(rest, w.magics[d], w.shifts[d]) : 0;
    word += (i64)(rest - quotient * w.extents[d]) * w.strides[d];
    rest = quotient;
  }
  const u64 counter = (u64)(word >> 2) + (n - row * w.extents[0]);
  Group found;
  found.words = philox(Four{{(u32)counter, (u32)(counter >> 32), 0, 0}}, w.key0, w.key1);
  found.low = row * w.run;
  found.high = found.low + w.run;
  found.at = found.low + (i64)(counter * 4 - (u64)word);
  return found;
}

extern "C" __global__ void __launch_bounds__(THREADS) philox_words(const __grid_constant__ Words work, u32* out) {
  for (u32 n = blockIdx.x * THREADS + threadIdx.x; n < work.total; n += gridDim.x * THREADS) {
    const Group found = group_of(work, n);
#pragma unroll
    for (int l = 0; l < 4; ++l)
      if (found.at + l >= found.low && found.at + l < found.high) out[found.at + l] = found.words.at[l];
  }
}

// low + wide * u for u in [0, 1), kept at `top` or below, as the sum may round to more.
template <class T>
__device__ inline T spread(T low, T wide, T top, T unit) {
  const T found = added(low, multiplied(wide, unit));
  return at_most(found, top) ? found : top;
}

extern "C" __global__ void __launch_bounds__(THREADS)
    philox_float32(const __grid_constant__ Words work, float* out, float low, float wide, float top) {
  for (u32 n = blockIdx.x * THREADS + threadIdx.x; n < work.total; n += gridDim.x * THREADS) {
    const Group found = group_of(work, n);
#pragma unroll
    for (int l = 0; l < 4; ++l)
      if (found.at + l >= found.low && found.at + l < found.high)
        out[found.at + l] = spread(low, wide, top, times((float)(found.words.at[l] >> 8), 0x1p-24f));
  }
}

// Two words to the number: a row's first word is even.
extern "C" __global__ void __launch_bounds__(THREADS)
    philox_float64(const __grid_constant__ Words work, double* out, double low, double wide, double top) {
  for (u32 n = blockIdx.x * THREADS + threadIdx.x; n < work.total; n += gridDim.x * THREADS) {
    const Group found = group_of(work, n);
#pragma unroll
    for (int l = 0; l < 4; l += 2)
      if (found.at + l >= found.low && found.at + l < found.high) {
        const double high = found.words.at[l] >> 5, rest = found.words.at[l + 1] >> 6;
        out[(found.at + l) / 2] = spread(low, wide, top, (high * 0x1p26 + rest) * 0x1p-53);
      }
  }
}

// The words of counters given whole, for comparison with published ones.
extern "C" __global__ void philox_counters(const Four* counters, Four* out, u32 count, u32 key0, u32 key1) {
  const u32 n = blockIdx.x * blockDim.x + threadIdx.x;
  if (n < count) out[n] = philox(counters[n], key0, key1);
}

// ------------------------------------------------------------------------------------------------- layout

// No offsetof: it needs a header or, before NVRTC 13.5, is not there.
#define PLACE(STRUCT, FIELD) (u64)&((const STRUCT*)0)->FIELD

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
      sizeof(Part),
      PLACE(Part, address),
      PLACE(Part, strides),
      sizeof(Merge),
      PLACE(Merge, out),
      PLACE(Merge, extents),
      PLACE(Merge, magics),
      PLACE(Merge, shifts),
      PLACE(Merge, total),
      PLACE(Merge, rank),
      PLACE(Merge, parts),
      PLACE(Merge, fan_in),
      PLACE(Merge, from),
      sizeof(Scatter),
      PLACE(Scatter, out),
      PLACE(Scatter, at),
      PLACE(Scatter, updates),
      PLACE(Scatter, at_turn),
      PLACE(Scatter, updates_turn),
      PLACE(Scatter, extents),
      PLACE(Scatter, magics),
      PLACE(Scatter, shifts),
      PLACE(Scatter, total),
      PLACE(Scatter, rank),
      PLACE(Scatter, turns),
      PLACE(Scatter, bits),
      sizeof(Convolution),
      PLACE(Convolution, x_strides),
      PLACE(Convolution, w_strides),
      PLACE(Convolution, out_strides),
      PLACE(Convolution, extents),
      PLACE(Convolution, kernel),
      PLACE(Convolution, strides),
      PLACE(Convolution, dilations),
      PLACE(Convolution, channels),
      PLACE(Convolution, width),
      PLACE(Convolution, depth),
      PLACE(Convolution, cells),
      PLACE(Convolution, cell_tiles),
      PLACE(Convolution, channel_tiles),
      PLACE(Convolution, groups),
      PLACE(Convolution, activation),
      sizeof(Words),
      PLACE(Words, first),
      PLACE(Words, run),
      PLACE(Words, strides),
      PLACE(Words, extents),
      PLACE(Words, magics),
      PLACE(Words, shifts),
      PLACE(Words, total),
      PLACE(Words, rank),
      PLACE(Words, key0),
      PLACE(Words, key1),
  };
  if (blockIdx.x == 0 && threadIdx.x == 0)
    for (u32 k = 0; k < sizeof(found) / sizeof(found[0]); ++k) out[k] = found[k];
}
