// Sums and concatenations of the shards' parts, of one host's GPUs, in one launch: each shard writes its part into the
// memory of all others, and reads theirs in its own.
//
// Words of 4 bytes travel in packets of a word and a number, the turn of their block, which one store of 8 bytes writes
// whole: a packet with the awaited turn has arrived, and no flag or fence is needed. A block handles the same places of
// the inboxes in each of its turns, and turns alternate between two halves. Who begins turn n + 2 has seen the others'
// packets of turn n + 1, and they began that only after they had read all of turn n.
//
//     inbox of a shard    | half 0: packets of shard 0, 1, .. | half 1 |

#include "common.cuh"

#define MOST 8  // shards

struct Arguments {
    const uint2 *x;         // this shard's part
    uint2 *out;
    u64 inboxes[MOST];      // addresses on this device; the shard's own among them
    u32 *turns;             // a block's last turn
    u64 places;             // pairs of packets that a half has for each shard
    u64 pairs;              // of words, of the part
    u64 row;                // pairs that stay adjacent: those of one part's row
    u64 patience;           // nanoseconds
};

__device__ __forceinline__ u64 nanoseconds() {
    u64 now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}
__device__ __forceinline__ u64 packet(u32 word, u32 turn) { return (u64)turn << 32 | word; }
__device__ __forceinline__ void put(u64 at, uint2 v, u32 turn) {
    asm volatile("st.relaxed.sys.global.v2.u64 [%0], {%1, %2};"
                 ::"l"(at), "l"(packet(v.x, turn)), "l"(packet(v.y, turn)) : "memory");
}
// Reads two packets into `v`; false if one of them is of another turn.
__device__ __forceinline__ bool came(u64 at, u32 turn, uint2 &v) {
    u64 first, second;
    asm volatile("ld.relaxed.sys.global.v2.u64 {%0, %1}, [%2];" : "=l"(first), "=l"(second) : "l"(at) : "memory");
    v = make_uint2((u32)first, (u32)second);
    return first >> 32 == turn && second >> 32 == turn;
}
// The pair of words at `at`, once both have come. A shard that never comes ends the process.
__device__ __forceinline__ uint2 taken(u64 at, u32 turn, u64 patience) {
    uint2 v;
    if (!came(at, turn, v)) {
        const u64 began = nanoseconds();
        for (u32 looks = 1; !came(at, turn, v); looks++)
            if (looks % 1024 == 0 && nanoseconds() - began > patience) __trap();
    }
    return v;
}

// ── sums, in float32 and in the order of shards ──

#if KIND == 0  // float32
struct Total {
    float a = 0, b = 0;
    __device__ void add(uint2 v) { a += __uint_as_float(v.x); b += __uint_as_float(v.y); }
    __device__ uint2 value() const { return make_uint2(__float_as_uint(a), __float_as_uint(b)); }
};
#else  // bfloat16
struct Total {
    float a = 0, b = 0, c = 0, d = 0;
    __device__ void add(uint2 v) { a += low(v.x); b += high(v.x); c += low(v.y); d += high(v.y); }
    __device__ uint2 value() const { return make_uint2(pair(a, b), pair(c, d)); }
};
#endif

extern "C" __global__ void __launch_bounds__(THREADS) exchanged(const Arguments a) {
    const u32 turn = a.turns[blockIdx.x] + 1;
    const u64 at = (u64)blockIdx.x * THREADS + threadIdx.x;  // of this thread's pair
    const bool inside = at < a.pairs;
    const u64 half = (turn & 1) * (u64)COUNT * a.places;
    if (inside) {
        const uint2 own = a.x[at];
#pragma unroll
        for (int by = 1; by < COUNT; by++) {
            const int to = (SHARD + by) % COUNT;
            put(a.inboxes[to] + (half + SHARD * a.places + at) * 16, own, turn);
        }
        uint2 parts[COUNT];
#pragma unroll
        for (int from = 0; from < COUNT; from++)
            parts[from] = from == SHARD ? own
                                        : taken(a.inboxes[SHARD] + (half + from * a.places + at) * 16, turn, a.patience);
#if GATHER
        const u64 row = at / a.row, column = at % a.row;
#pragma unroll
        for (int from = 0; from < COUNT; from++) a.out[(row * COUNT + from) * a.row + column] = parts[from];
#else
        Total sum;
#pragma unroll
        for (int from = 0; from < COUNT; from++) sum.add(parts[from]);
        a.out[at] = sum.value();
#endif
    }
    __syncthreads();
    if (threadIdx.x == 0) a.turns[blockIdx.x] = turn;
}
