// Attention of blocks of up to 264 tokens over a paged cache, one launch: heads of 64 numbers, pages of 16 slots.
//
// Of a sequence's head, a cluster attends a piece of the queries; each of its blocks has a part of the keys, which the
// block's teams of warpgroups take by turns. So there is a share of the result for each team of each block. A share depends
// on the length on the device: a captured launch serves every length.
//
// Every block finishes some of the rows. Shares are sent into the inbox of the row's block, which waits for nothing but its
// own inbox, and combines them in a fixed order.
//
// Warpgroups have 64 queries each. Up to 8 queries past the last whole 64 would fill an eighth of a warpgroup; three more
// warps attend them, by turns, block by block: their scores are computed transposed, keys x queries. One warp copies keys
// and values into a ring of shared memory, page by page; those of earlier tokens before the launch before this one has
// ended.
//
// Warpgroups multiply in turns; the others raise scores to powers meanwhile. A result is scaled down only if its maximum
// grew by more than RISE, in powers of 2: float32 has room for that.
//
// Given by the compiler's options: TILES of 64 queries, FEW (1: queries past them), TEAMS (of TILES warpgroups), SPLIT
// (blocks of a cluster), PIECES (of the queries), STAGES.
//
// Shape letters: B sequences, n tokens of a block, H query heads, G key/value heads, D = 64.

#include "common.cuh"
#include "hopper.cuh"

constexpr int DIM = 64, LINE = 2 * DIM, PAGE = 16, PAGE_BYTES = PAGE * LINE;
constexpr int KEYS = 64, PAGES = KEYS / PAGE;      // of a stage
constexpr int SIDE_BYTES = KEYS * LINE, STAGE_BYTES = 2 * SIDE_BYTES;
constexpr int GROUPS = TILES * TEAMS, WHOLE = 64 * TILES, MULTIPLIERS = 128 * GROUPS;
constexpr int OTHERS = FEW ? 3 : 0, THREADS = MULTIPLIERS + 128;
constexpr int SHARES = TEAMS * SPLIT, FIRST_TEAM = (1 << SPLIT) - 1;  // a bit for each share
constexpr int OWN = (WHOLE + 8 * FEW + SPLIT - 1) / SPLIT;            // rows that a block finishes, at most
constexpr int PITCH = DIM + 8, PITCH_BYTES = PITCH * 4;               // of a share's row: off its neighbours' banks
constexpr int SENT_BYTES = (DIM + 2) * 4;          // of a row
constexpr int QUERY_BYTES = WHOLE * LINE, INBOX_BYTES = SHARES * OWN * PITCH_BYTES;
constexpr int FEW_BYTES = FEW ? 8 * (OTHERS - 1) * PITCH_BYTES : 0;
constexpr int ALL_BYTES = QUERY_BYTES + STAGES * STAGE_BYTES + INBOX_BYTES + FEW_BYTES;
constexpr float RISE = 8.f;
static_assert(STAGES % TEAMS == 0 && (!FEW || STAGES % OTHERS == 0) && STAGES > TEAMS,
              "who waits for a block of keys has waited for the one before it in its place");
constexpr float LOWEST = -1e30f, NOTHING = -2e38f;  // of no key; of a key past the end

struct Arguments {
    TensorMap k;           // [slots, G * D]; `v` likewise
    TensorMap v;
    const u16 *q;          // [B * n, H, D]
    u16 *out;              // [B * n, H, D]
    const int *sequences;  // [B]: rows of the tables
    const int *pages;      // [tables, `reach`]
    const int *lengths;    // [tables]
    int tokens, reach, heads, shared;  // shared: query heads that share keys
    float scale;           // of scores as powers of 2
};

// ── products ──

// c [64, 64] (+)= a [64, 16] @ b [16, 64], from shared memory: lines of a are its rows, and lines of b its columns.
#define SUMS(c) \
    "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]), "+f"(c[4]), "+f"(c[5]), "+f"(c[6]), "+f"(c[7]), "+f"(c[8]), \
        "+f"(c[9]), "+f"(c[10]), "+f"(c[11]), "+f"(c[12]), "+f"(c[13]), "+f"(c[14]), "+f"(c[15]), "+f"(c[16]), \
        "+f"(c[17]), "+f"(c[18]), "+f"(c[19]), "+f"(c[20]), "+f"(c[21]), "+f"(c[22]), "+f"(c[23]), "+f"(c[24]), \
        "+f"(c[25]), "+f"(c[26]), "+f"(c[27]), "+f"(c[28]), "+f"(c[29]), "+f"(c[30]), "+f"(c[31])
#define PRODUCT \
    "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " \
    "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
__device__ __forceinline__ void multiply(float (&c)[32], u64 a, u64 b, bool add) {
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n" PRODUCT "%32, %33, p, 1, 1, 0, 0;\n}"
                 : SUMS(c) : "l"(a), "l"(b), "r"((int)add));
}
// As before; a from registers, and lines of b are its rows.
__device__ __forceinline__ void multiply(float (&c)[32], u32 a0, u32 a1, u32 a2, u32 a3, u64 b, bool add) {
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %37, 0;\n" PRODUCT "{%32, %33, %34, %35}, %36, p, 1, 1, 1;\n}"
                 : SUMS(c) : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b), "r"((int)add));
}

// ── the block's parts ──

struct Ring {
    u32 start;
    __device__ __forceinline__ u32 q(int tile) const { return start + tile * 64 * LINE; }
    __device__ __forceinline__ u32 k(int i) const { return start + QUERY_BYTES + i % STAGES * STAGE_BYTES; }
    __device__ __forceinline__ u32 v(int i) const { return k(i) + SIDE_BYTES; }
    __device__ __forceinline__ u32 full(int i) const { return start + ALL_BYTES + i % STAGES * 8; }
    __device__ __forceinline__ u32 free(int i) const { return full(i) + STAGES * 8; }
    __device__ __forceinline__ u32 arrived() const { return start + ALL_BYTES + STAGES * 16; }  // a cut block's copies
    __device__ __forceinline__ u32 landed() const { return arrived() + 8; }                       // shares of the inbox
    __device__ __forceinline__ u32 used() const { return landed() + 8; }                          // a bit for each share
    // An unscaled result, in units of a thread's numbers; then the row's maximum and its sum of weights.
    __device__ __forceinline__ u32 inbox(int share, int row) const {
        return start + QUERY_BYTES + STAGES * STAGE_BYTES + (share * OWN + row) * PITCH_BYTES;
    }
    // Of the few queries, by all of their warps but the first.
    __device__ __forceinline__ u32 few(int warp, int row) const {
        return inbox(SHARES, 0) + ((warp - 1) * 8 + row) * PITCH_BYTES;
    }
    __device__ __forceinline__ void wait_full(int i) const { barrier_wait(full(i), i / STAGES & 1); }
    __device__ __forceinline__ void wait_free(int i) const { barrier_wait(free(i), (i / STAGES & 1) ^ 1); }
};
constexpr int UNIT = 4, UNITS = DIM / UNIT;  // numbers that a thread of a warpgroup has of 16 columns
__device__ __forceinline__ int column_of(int unit) { return unit / 4 * 16 + unit % 4 * 2; }  // and the next; and 8 on
__device__ __forceinline__ int index_of(int column) {
    return (column / 16 * 4 + column % 8 / 2) * UNIT + column % 16 / 8 * 2 + column % 2;
}

struct Place {
    int part, sequence, head;
    int rows;  // of the piece
    u64 from;  // of queries and results
    __device__ __forceinline__ explicit Place(const Arguments &given) {
        u32 block;  // read again where it is needed: a register for it is lost to the products
        asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(block));
        const int piece = block / SPLIT % PIECES, of = block / SPLIT / PIECES;
        const int each = (given.tokens + PIECES - 1) / PIECES;
        part = block % SPLIT, sequence = of / given.heads, head = of % given.heads;
        rows = min(each, given.tokens - piece * each);
        from = ((u64)(sequence * given.tokens + piece * each) * given.heads + head) * DIM;
    }
    // Rows of the piece that a block finishes.
    __device__ __forceinline__ int own() const { return (rows + SPLIT - 1) / SPLIT; }
};
// Where a share of a row goes: into this block's inbox, or another's.
struct Target {
    u32 row, landed;
    bool here;
    __device__ __forceinline__ Target(const Ring &ring, const Place &place, int team, int row) {
        const int own = place.own(), block = row / own;
        this->row = ring.inbox(team * SPLIT + place.part, row - block * own), here = block == place.part;
        if (!here) this->row = of_block(this->row, block), landed = of_block(ring.landed(), block);
    }
    template <class T> __device__ __forceinline__ void give(int at, T value) const {
        if (here) put(row + 4 * at, value);
        else send(row + 4 * at, value, landed);
    }
};
struct Share {
    const int *table;  // pages of the sequence
    int pages, used;   // pages with tokens; blocks of the cluster that have keys
    int all;           // blocks of keys
    int begin, count;  // of them, this block's
    int left;          // keys of its last one
    int old;           // keys of earlier tokens
    __device__ __forceinline__ Share(const Arguments &given, const Place &place) {
        int part = place.part, row = __ldg(given.sequences + place.sequence);
        old = __ldg(given.lengths + row);
        int most = min(old + given.tokens, given.reach * PAGE);
        table = given.pages + (u64)row * given.reach, pages = (most + PAGE - 1) / PAGE;
        all = (most + KEYS - 1) / KEYS, used = min(all, SPLIT), begin = first(part);
        const int end = first(part + 1);
        count = __shfl_sync(~0u, end - begin, 0), left = end == all ? most - (all - 1) * KEYS : KEYS;
    }
    __device__ __forceinline__ int of_team(int team) const { return (count - team + TEAMS - 1) / TEAMS; }
    __device__ __forceinline__ int first(int part) const { return min(part, used) * all / used; }
    // Called by a warp: which shares there are, and the bytes of them that other blocks send.
    __device__ __forceinline__ void announce(const Ring &ring, const Place &place, int lane) const {
        const int part = lane % SPLIT;
        const u32 shares = __ballot_sync(~0u, lane < SHARES && first(part + 1) - first(part) > lane / SPLIT);
        const u32 sent = __ballot_sync(~0u, part != place.part) & shares;
        if (lane > 0) return;
        asm volatile("st.shared.u32 [%0], %1;" ::"r"(ring.used()), "r"(shares) : "memory");
        const int from = place.part * place.own(), end = min(from + place.own(), place.rows);
        const int whole = max(0, min(end, WHOLE) - from), few = max(0, end - max(from, WHOLE));
        barrier_expect(ring.landed(), SENT_BYTES * (whole * __popc(sent) + few * __popc(sent & FIRST_TEAM)));
    }
};

// The warp that copies keys and values.
struct Copies {
    const Arguments &given;
    const Share &share;
    const Ring &ring;
    static constexpr int BATCH = 32 / PAGES;  // blocks whose page numbers the lanes hold
    int head, lane, now, next;                // page numbers of a batch, and of the next
    __device__ __forceinline__ int number(int from) const {
        return __ldg(share.table + min(share.begin * PAGES + from + lane, share.pages - 1));
    }
    __device__ __forceinline__ Copies(const Arguments &given, const Share &share, const Ring &ring, int head, int lane)
        : given(given), share(share), ring(ring), head(head), lane(lane), now(0), next(number(0)) {}
    __device__ __forceinline__ bool is_cut(int i) const { return i == share.count - 1 && share.left < KEYS; }
    // Called for every block in turn.
    __device__ __forceinline__ void fill(int i) {
        if (i % BATCH == 0) now = next, next = number((i + BATCH) * PAGES);
        int here = min(PAGES, share.pages - (share.begin + i) * PAGES), at = lane % PAGES;
        u32 barrier = is_cut(i) ? ring.arrived() : ring.full(i);
        if (lane == 0) barrier_expect(barrier, 2 * PAGE_BYTES * here);
        int page = __shfl_sync(~0u, now, i % BATCH * PAGES + at);
        if (lane < 2 * PAGES && at < here)
            copy_tile((lane < PAGES ? ring.k(i) : ring.v(i)) + at * PAGE_BYTES, lane < PAGES ? &given.k : &given.v,
                      head * DIM, page * PAGE, barrier);
        __syncwarp();
    }
    // Values past the end hold leftovers, possibly NaN; their weight is 0.
    __device__ __forceinline__ void clear(int i) const {
        barrier_wait(ring.arrived(), 0);
        for (int at = share.left * LINE + lane * 16; at < SIDE_BYTES; at += 32 * 16)
            asm volatile("st.shared.v4.u32 [%0], {%1, %1, %1, %1};" ::"r"(ring.v(i) + at), "r"(0) : "memory");
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        __syncwarp();
        if (lane == 0) barrier_arrive(ring.full(i));
    }
};

// Warpgroups multiply in turns: in step, all would use the tensor cores at the same time, and leave them idle after.
__device__ __forceinline__ void take_turn(int group) {
    if (GROUPS > 1) asm volatile("bar.sync %0, 256;" ::"r"(6 + group) : "memory");
}
__device__ __forceinline__ void pass_turn(int group) {
    if (GROUPS > 1) asm volatile("bar.arrive %0, 256;" ::"r"(6 + group) : "memory");
}

__device__ __forceinline__ void copy_keys(
    const Arguments &given, const Share &share, const Ring &ring, int head, int lane) {
    Copies copies(given, share, ring, head, lane);
    const int old = max(0, share.old / KEYS - share.begin);  // whole blocks of earlier tokens
    for (int i = 0; i < share.count; i++) {
        if (i == old) wait_for_launch_before();
        if (i >= STAGES) ring.wait_free(i);
        copies.fill(i);
    }
    if (share.left < KEYS) copies.clear(share.count - 1);
}

// ── 64 queries of a warpgroup ──

struct Many {
    u32 weights[KEYS / 4];
    float scores[KEYS / 2], heard[32];
    float best[2], total[2];  // of the rows `lane / 4` and 8 after it; total: this thread's columns

    // Queries of a tile into shared memory, by all teams.
    __device__ __forceinline__ void read(const u16 *from, const Ring &ring, int end, int stride) {
        constexpr int CHUNKS = DIM / 8, READERS = 128 * TEAMS, TURNS = (64 * CHUNKS + READERS - 1) / READERS;
        const int group = threadIdx.x / 128, tile = group % TILES, at = group / TILES * 128 + threadIdx.x % 128;
        uint4 value[TURNS];
#pragma unroll
        for (int i = 0; i < TURNS; i++) {
            int row = 64 * tile + (i * READERS + at) / CHUNKS;
            value[i] = make_uint4(0, 0, 0, 0);
            if (row < end) value[i] = *(const uint4 *)(from + (u64)row * stride + at % CHUNKS * 8);
        }
#pragma unroll
        for (int i = 0; i < TURNS; i++) {
            int row = (i * READERS + at) / CHUNKS;
            if (row >= 64) continue;
            asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};"
                         ::"r"(ring.q(tile) + row * LINE + ((at % CHUNKS ^ row % 8) << 4)),
                           "r"(value[i].x), "r"(value[i].y), "r"(value[i].z), "r"(value[i].w) : "memory");
        }
        asm volatile("fence.proxy.async.shared::cta;\nbar.sync %0, %1;" ::"r"(2 + tile), "n"(READERS) : "memory");
    }
    __device__ __forceinline__ void multiply_keys(u32 q, u32 k) {
        u64 a = described_lines(q), b = described_lines(k);
        begin_products();
#pragma unroll
        for (int i = 0; i < DIM / 16; i++) multiply(scores, a + 2 * i, b + 2 * i, i > 0);
        commit_products();
    }
    __device__ __forceinline__ void multiply_values(u32 v) {
        u64 b = described_lines(v);
        begin_products();
#pragma unroll
        for (int i = 0; i < KEYS / 16; i++)
            multiply(heard, weights[4 * i], weights[4 * i + 1], weights[4 * i + 2], weights[4 * i + 3],
                     b + (u64)(PAGE_BYTES >> 4) * i, true);
        commit_products();
    }
    __device__ __forceinline__ void mask(int left, int lane) {
#pragma unroll
        for (int i = 0; i < KEYS / 2; i++)
            if (i / 4 * 8 + lane % 4 * 2 + i % 2 >= left) scores[i] = NOTHING;
    }
    // Scores to weights, in place -> whether the result is scaled, by `keep`.
    __device__ __forceinline__ bool weigh(float scale, float (&keep)[2]) {
        float top[2];
#pragma unroll
        for (int r = 0; r < 2; r++) {
            float a = scores[2 * r], b = scores[2 * r + 1];
#pragma unroll
            for (int i = 4; i < KEYS / 2; i += 4) a = fmaxf(a, scores[i + 2 * r]), b = fmaxf(b, scores[i + 2 * r + 1]);
            a = fmaxf(a, b);
            a = fmaxf(a, __shfl_xor_sync(~0u, a, 1));
            top[r] = fmaxf(a, __shfl_xor_sync(~0u, a, 2)) * scale;
        }
        bool grown = __any_sync(~0u, top[0] > best[0] + RISE || top[1] > best[1] + RISE);
        if (grown) {
#pragma unroll
            for (int r = 0; r < 2; r++) {
                float higher = fmaxf(best[r], top[r]);
                keep[r] = power(best[r] - higher);
                total[r] *= keep[r];
                best[r] = higher;
            }
        }
#pragma unroll
        for (int i = 0; i < KEYS / 2; i++) scores[i] = power(fmaf(scores[i], scale, -best[i / 2 % 2]));
#pragma unroll
        for (int r = 0; r < 2; r++) {
            float a = scores[2 * r], b = scores[2 * r + 1];
#pragma unroll
            for (int i = 4; i < KEYS / 2; i += 4) a += scores[i + 2 * r], b += scores[i + 2 * r + 1];
            total[r] += a + b;
        }
        return grown;
    }
    __device__ __forceinline__ void round_weights() {
#pragma unroll
        for (int i = 0; i < KEYS / 4; i++) weights[i] = pair(scores[2 * i], scores[2 * i + 1]);
    }
    __device__ __forceinline__ void attend(const Ring &ring, const Share &share, float scale, int group, int lane) {
        float keep[2];
        const int team = group / TILES, count = share.of_team(team);
        best[0] = best[1] = LOWEST, total[0] = total[1] = 0.f;
#pragma unroll
        for (int i = 0; i < 32; i++) heard[i] = 0.f;
        const int next = (group + 1) % GROUPS;
        const bool turns = share.count > 2 && share.count >= TEAMS;
        if (turns && group == GROUPS - 1) pass_turn(0);
        for (int i = team; i < share.count; i += TEAMS) {
            ring.wait_full(i);
            if (turns) take_turn(group);
            if (i > team) {
                multiply_values(ring.v(i - TEAMS));
                finish_products<0>();
            }
            multiply_keys(ring.q(group % TILES), ring.k(i));
            if (turns) pass_turn(next);
            if (i > team && lane == 0) barrier_arrive(ring.free(i - TEAMS));
            finish_products<0>();
            if (i == share.count - 1 && share.left < KEYS) mask(share.left, lane);
            if (weigh(scale, keep)) scale_down(keep);
            round_weights();
        }
        if (turns) take_turn(group);
        multiply_values(ring.v(team + (count - 1) * TEAMS));
        // Unless that was the last turn: a later team may have a block less.
        if (turns && share.of_team(next / TILES) >= count + (next == 0)) pass_turn(next);
        finish_products<0>();
    }
    __device__ __forceinline__ void scale_down(const float (&keep)[2]) {
#pragma unroll
        for (int i = 0; i < 32; i++) heard[i] *= keep[i / 2 % 2];
    }
    // Row: of the piece, and 8 after it.
    __device__ __forceinline__ void give(const Ring &ring, const Place &place, int team, int row, int lane) const {
#pragma unroll
        for (int r = 0; r < 2; r++) {
            float sum = total[r] + __shfl_xor_sync(~0u, total[r], 1);
            sum += __shfl_xor_sync(~0u, sum, 2);
            if (row + 8 * r >= place.rows) continue;
            const Target target(ring, place, team, row + 8 * r);
#pragma unroll
            for (int i = 0; i < DIM / 16; i++) {
                const float *part = heard + 8 * i + 2 * r;
                target.give((4 * i + lane % 4) * UNIT, make_float4(part[0], part[1], part[4], part[5]));
            }
            if (lane % 4 == 0) target.give(DIM, make_float2(best[r], sum));
        }
    }
};

#include "block_attention_few.cuh"

// ── together ──

// The rows that this block finishes, from all shares.
__device__ __forceinline__ void combine(const Arguments &given, const Ring &ring) {
    constexpr int TURNS = (OWN * UNITS + THREADS - 1) / THREADS;
    const Place place(given);
    const int from = place.part * place.own(), count = min(place.own(), place.rows - from), stride = given.heads * DIM;
    u16 *out = given.out + place.from + (u64)from * stride;
    wait_for_sent(ring.landed());
    u32 used;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(used) : "r"(ring.used()) : "memory");
#pragma unroll
    for (int turn = 0; turn < TURNS; turn++) {
        const int row = (turn * THREADS + threadIdx.x) / UNITS, unit = threadIdx.x % UNITS;
        if (row >= count) break;
        const u32 here = from + row < WHOLE ? used : used & FIRST_TEAM;
        float2 sums[SHARES];
        float4 heard[SHARES];
#pragma unroll
        for (int i = 0; i < SHARES; i++) {
            sums[i] = make_float2(LOWEST, 0.f), heard[i] = make_float4(0.f, 0.f, 0.f, 0.f);
            if (!(here >> i & 1)) continue;
            sums[i] = shared_two(ring.inbox(i, row) + 4 * DIM);
            heard[i] = shared_four(ring.inbox(i, row) + 4 * UNIT * unit);
        }
        float best = LOWEST, total = 0.f, x = 0.f, y = 0.f, z = 0.f, w = 0.f;
#pragma unroll
        for (int i = 0; i < SHARES; i++) best = fmaxf(best, sums[i].x);
#pragma unroll
        for (int i = 0; i < SHARES; i++) {
            float weight = power(sums[i].x - best);
            total += weight * sums[i].y;
            x += weight * heard[i].x, y += weight * heard[i].y, z += weight * heard[i].z, w += weight * heard[i].w;
        }
        float by = 1.f / total;
        u32 *to = (u32 *)(out + (u64)row * stride + column_of(unit));
        to[0] = pair(x * by, y * by), to[4] = pair(z * by, w * by);
    }
}

extern "C" __global__ void __cluster_dims__(SPLIT, 1, 1) __launch_bounds__(THREADS, 1)
    block_attention(const __grid_constant__ Arguments given) {
    extern __shared__ u8 shared[];
    const Ring ring{(shared_address(shared) + 1023) & ~1023u};
    const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
    const Place place(given);
    let_next_launch_begin();
    if (threadIdx.x == 32) {
        asm volatile("prefetch.tensormap [%0];" ::"l"(&given.k) : "memory");
        asm volatile("prefetch.tensormap [%0];" ::"l"(&given.v) : "memory");
    }
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++) {
            barrier_init(ring.full(i), 1);
            barrier_init(ring.free(i), 4 * TILES + FEW);
        }
        barrier_init(ring.arrived(), 1);
        barrier_init(ring.landed(), 1 + 4 * GROUPS + FEW);  // announced; given here
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    if (SPLIT > 1) cluster_arrives();
    if (warp < MULTIPLIERS / 32) {
        Many many;
        const int group = warp / 4, team = group / TILES;
        wait_for_launch_before();
        many.read(given.q + place.from, ring, place.rows, given.heads * DIM);
        const Share share(given, place);
        if (share.count > team) many.attend(ring, share, given.scale, group, lane);
        if (SPLIT > 1) cluster_began();
        if (share.count > team) many.give(ring, place, team, (warp - 4 * TILES * team) * 16 + lane / 4, lane);
        __syncwarp();
        if (lane == 0) barrier_arrive(ring.landed());
    } else if (warp == MULTIPLIERS / 32 + 3) {
        const Share share(given, place);
        if (share.count > 0) copy_keys(given, share, ring, place.head / given.shared, lane);
        share.announce(ring, place, lane);
        wait_for_launch_before();
        if (SPLIT > 1) cluster_began();
    } else {
        const int which = warp - MULTIPLIERS / 32;
        const Share share(given, place);
        const bool attends = FEW && share.count > 0;
        Few few;
        wait_for_launch_before();
        if (attends) few.attend(given, share, ring, given.q + place.from, place.rows, which, lane);
        if (SPLIT > 1) cluster_began();
        if (attends) few.give(ring, place, which, lane);
        __syncwarp();
        if (FEW && which == 0 && lane == 0) barrier_arrive(ring.landed());
    }
    combine(given, ring);
}
