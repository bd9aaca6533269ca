// Decoder layers for few rows, and the head behind them, in one cooperative launch.
//
// Every block owns an equal share of the columns of each product. One warp, the producer, copies the block's share of
// all weights, in the order of their use, into a ring of shared memory. It waits for no other block, so that memory
// stays busy while the blocks wait for each other. The other warps multiply: each takes a part of K of every stage, and
// the parts are added in a fixed order, so that a row's result depends neither on timing nor on the other rows.
//
// Every product reads all columns of the one before. A block publishes its columns in a buffer that holds EMPTY until
// then, and readers load a value again until it isn't: the value is its own flag, which takes one trip through the L2
// cache where a barrier takes three. Launches alternate between two sets of buffers, and each launch empties the set
// that the launch before it used. The launch must be cooperative, as blocks wait for each other.
//
// Given by the compiler's options: WIDTH HEADS GROUPS HIDDEN VOCAB LAYERS ROWS.
//
// Shape letters: R rows (R = B * passes <= ROWS), B frames, W width, H query heads, G key/value heads, D head dim,
// F hidden width, V vocabulary, P positions of a frame.

#include "common.cuh"

constexpr int BLOCKS = 128, WARPS = 8, THREADS = 32 * WARPS;  // THREADS: without the producer and the cleaner
constexpr int DIM = 128, POSITIONS = 16, GROUP = HEADS / GROUPS;
constexpr int CHUNK = 1024, UNIT = 8;              // a stage: UNIT weight rows, CHUNK of K
constexpr int STEPS = CHUNK / WARPS / 32;          // a warp's part of a chunk, in two products of the tensor cores each
constexpr int ROW_BYTES = CHUNK * 2 + 64;          // the gap keeps neighbouring rows on different banks
constexpr int STAGE_BYTES = UNIT * ROW_BYTES, RING = 10;
constexpr int IN_FLIGHT = 2;                       // stages requested at once: more would delay what blocks publish
constexpr int HALVES = ROWS / 8;                   // of a tensor core's 16 rows
constexpr int ROOM = 16;                           // rows that the buffers have room for, in launches of any ROWS
constexpr int QKV = (HEADS + 2 * GROUPS) * DIM, HEARD = HEADS * DIM;
constexpr int PITCH = 16 + 4;                      // of a column's rows in `sums`, off each other's banks
constexpr int MOST = 2 * HIDDEN / BLOCKS, FEW = WIDTH / BLOCKS;  // columns of a block
constexpr int SUMS = WARPS * MOST * PITCH, FEW_SUMS = WARPS * FEW * PITCH, SQUARES = WARPS * ROWS;  // floats
constexpr int HEAD_PITCH = DIM + 8, QUERIES = WARPS * GROUP * HEAD_PITCH;
constexpr int PUBLISHED = QKV + HEARD + WIDTH + HIDDEN + WIDTH;  // numbers of a row that a layer publishes
static_assert(ROWS == 8 || ROWS == 16, "rows are halves of a tensor core's tile");
static_assert(LAYERS > 1, "a launch for keys and values alone reads all blocks' columns once");
static_assert(GROUP == 2, "a lane scores two heads at half of a key");
static_assert(FEW / 2 * ROWS <= THREADS, "a thread keeps one pair of the residual stream");

struct Layer {
    const u16 *qkv, *out, *gate_up, *down, *before, *after, *q_norm, *k_norm;
};

struct State {
    u32 launches;
    u32 rows[2];  // that the last launch with either set published
};

struct Arguments {
    const Layer *layers;
    const u16 *x;            // [R, W]; with `codes`, a table of embeddings
    const long long *codes;  // [R] or null; below 0 means 0
    u16 *published;          // [2, LAYERS, ROOM * PUBLISHED]
    State *state;
    u16 *k, *v;              // [LAYERS, B * P, G, D]
    const u16 *norm;         // [W]: the final norm
    const u16 *head;         // [V, W]
    u16 *logits;             // [B, V], of each frame's last position
    const float *frequencies;  // [D / 2]: radians per position
    float eps;
    int frames, passes, first;  // passes: positions of each frame, from `first` on; at most 2
    int kept;                   // true: keys and values alone are wanted, and no logits
};

__device__ __forceinline__ void together() { asm volatile("bar.sync 1, %0;" ::"n"(THREADS) : "memory"); }

// A place in the ring, and the parity of the barriers there.
struct Place {
    int stage = 0;
    u32 parity = 0;
    __device__ __forceinline__ void next() {
        if (++stage == RING) stage = 0, parity ^= 1;
    }
};

struct Ring {
    char *stages;
    u32 barriers;  // RING of them for stages that are full, then RING for those that are free
    __device__ __forceinline__ u32 full(Place p) const { return barriers + p.stage * 8; }
    __device__ __forceinline__ u32 free(Place p) const { return barriers + (RING + p.stage) * 8; }
    __device__ __forceinline__ char *at(Place p) const { return stages + p.stage * STAGE_BYTES; }
};

// ── the producer ──

struct Producer {
    Ring ring;
    u64 policy;
    int lane, requested = 0;
    Place place, landed;

    __device__ __forceinline__ void stage(const u16 *weight, int first, int depth, int chunk) {
        if (lane == 0) {
            if (++requested > IN_FLIGHT) barrier_wait(ring.full(landed), landed.parity), landed.next();
            barrier_wait(ring.free(place), place.parity ^ 1);
            barrier_expect(ring.full(place), UNIT * CHUNK * 2);
        }
        __syncwarp();
        if (lane < UNIT)
            copy(shared_address(ring.at(place)) + lane * ROW_BYTES, weight + (u64)(first + lane) * depth + chunk * CHUNK,
                 CHUNK * 2, ring.full(place), policy);
        place.next();
    }
    // `parts` matrices of N rows under each other.
    template <int N, int K> __device__ __forceinline__ void weights(const u16 *weight, int parts = 1) {
        for (int chunk = 0; chunk < K / CHUNK; ++chunk)
            for (int part = 0; part < parts; ++part)
                for (int unit = 0; unit < N / BLOCKS; unit += UNIT)
                    stage(weight, part * N + blockIdx.x * (N / BLOCKS) + unit, K, chunk);
    }
    __device__ void run(const Arguments &a) {
        for (int layer = 0; layer < LAYERS; ++layer) {
            const Layer &w = a.layers[layer];
            weights<QKV, WIDTH>(w.qkv);
            if (a.kept && layer == LAYERS - 1) return;
            weights<WIDTH, HEARD>(w.out);
            weights<HIDDEN, WIDTH>(w.gate_up, 2);
            weights<WIDTH, HIDDEN>(w.down);
        }
        weights<VOCAB, WIDTH>(a.head);
    }
};

// ── products ──

struct Product {
    Ring ring;
    Place place;
    float *squares;  // [WARPS][ROWS]
    const long long *codes;
    float eps;
    int warp, lane, rows;

    // The block's COLUMNS of x [R, K] @ weight.T -> `sums` [WARPS][COLUMNS][PITCH], each warp its part of K. FIRST: x is
    // the launch's; otherwise it is published. With a norm, x is multiplied by the norm's weight and the sums of its
    // squares go to `squares`; `scale` gives the rest of the norm.
    //
    // The tensor cores take 16 of K, four numbers of each lane. Which of a stage's numbers these are is free, as long
    // as x and weight agree: a lane takes eight adjacent ones of both for two products.
    template <int COLUMNS, int K, bool NORM, bool FIRST>
    __device__ __forceinline__ void run(const u16 *x, const u16 *norm, float *sums) {
        constexpr int UNITS = COLUMNS / UNIT, LOADS = K / CHUNK * STEPS;
        int g = lane >> 2, t = lane & 3, begin = warp * (CHUNK / WARPS) + t * 8;
        uint4 scales[NORM ? LOADS : 1], values[LOADS][HALVES];
        const u16 *from[HALVES];
#pragma unroll
        for (int half = 0; half < HALVES; ++half) {
            int row = min(half * 8 + g, rows - 1);  // rows past the last one repeat it; their sums aren't stored
            from[half] = x + (FIRST && codes ? (int)max(codes[row], 0ll) : row) * K + begin;
        }
        if (NORM)
#pragma unroll
            for (int i = 0; i < LOADS; ++i) scales[i] = constant(norm + begin + i / STEPS * CHUNK + i % STEPS * 32);
        if (!FIRST)
            while (empty(published(from[0]))) {}  // wait with one load, not with all
        bool again;
        do {
            again = false;
#pragma unroll
            for (int i = 0; i < LOADS; ++i)
#pragma unroll
                for (int half = 0; half < HALVES; ++half) {
                    const u16 *at = from[half] + i / STEPS * CHUNK + i % STEPS * 32;
                    values[i][half] = FIRST ? constant(at) : published(at);
                }
            if (!FIRST)
#pragma unroll
                for (int i = 0; i < LOADS; ++i)
#pragma unroll
                    for (int half = 0; half < HALVES; ++half) again |= empty(values[i][half]);
        } while (again);
        float square[HALVES] = {};
        if (NORM)
#pragma unroll
            for (int i = 0; i < LOADS; ++i)
#pragma unroll
                for (int half = 0; half < HALVES; ++half) {
                    uint4 v = values[i][half], s = scales[i];
                    values[i][half] = make_uint4(weighted(v.x, s.x, square[half]), weighted(v.y, s.y, square[half]),
                                                 weighted(v.z, s.z, square[half]), weighted(v.w, s.w, square[half]));
                }
        float total[UNITS][2][4] = {};
#pragma unroll
        for (int chunk = 0; chunk < K / CHUNK; ++chunk) {
            Place first = place;
#pragma unroll
            for (int unit = 0; unit < UNITS; ++unit) barrier_wait(ring.full(place), place.parity), place.next();
            place = first;
#pragma unroll
            for (int unit = 0; unit < UNITS; ++unit, place.next()) {
                const char *row = ring.at(place) + g * ROW_BYTES + begin * 2;
#pragma unroll
                for (int step = 0; step < STEPS; ++step) {
                    uint4 w = *(const uint4 *)(row + step * 64);
                    uint4 u = values[chunk * STEPS + step][0], l = make_uint4(0, 0, 0, 0);
                    if (HALVES == 2) l = values[chunk * STEPS + step][HALVES - 1];
                    multiply(total[unit][0], u.x, l.x, u.y, l.y, w.x, w.y);
                    multiply(total[unit][1], u.z, l.z, u.w, l.w, w.z, w.w);
                }
            }
            __syncwarp();
            place = first;
#pragma unroll
            for (int unit = 0; unit < UNITS; ++unit, place.next())
                if (lane == 0) barrier_arrive(ring.free(place));
        }
#pragma unroll
        for (int unit = 0; unit < UNITS; ++unit) {
            float *to = sums + (warp * COLUMNS + unit * UNIT + t * 2) * PITCH + g;
            float(&a)[4] = total[unit][0], (&b)[4] = total[unit][1];
            to[0] = a[0] + b[0], to[PITCH] = a[1] + b[1];
            if (HALVES == 2) to[8] = a[2] + b[2], to[PITCH + 8] = a[3] + b[3];
        }
        if (NORM)
#pragma unroll
            for (int half = 0; half < HALVES; ++half) {
                float s = square[half];
                s += __shfl_xor_sync(~0u, s, 1);
                s += __shfl_xor_sync(~0u, s, 2);
                if (t == 0) squares[warp * ROWS + half * 8 + g] = s;
            }
        together();
    }
    __device__ __forceinline__ u32 weighted(u32 value, u32 scale, float &square) const {
        float l = low(value), h = high(value);
        square += l * l + h * h;
        return pair(l * low(scale), h * high(scale));
    }
    template <int COLUMNS> __device__ __forceinline__ float sum(const float *sums, int column, int row) const {
        float s = 0;
#pragma unroll
        for (int w = 0; w < WARPS; ++w) s += sums[(w * COLUMNS + column) * PITCH + row];
        return s;
    }
    __device__ __forceinline__ float scale(int row) const {
        float s = 0;
#pragma unroll
        for (int w = 0; w < WARPS; ++w) s += squares[w * ROWS + row];
        return rsqrtf(s / WIDTH + eps);
    }
    // out [R, N]: this block's columns, normed.
    template <int N> __device__ __forceinline__ void store(u16 *out, const float *sums) const {
        constexpr int COLUMNS = N / BLOCKS;
        for (int i = threadIdx.x; i < COLUMNS / 2 * rows; i += THREADS) {
            int column = i % (COLUMNS / 2) * 2, row = i / (COLUMNS / 2);
            float by = scale(row);
            publish(out + row * N + blockIdx.x * COLUMNS + column,
                    pair(sum<COLUMNS>(sums, column, row) * by, sum<COLUMNS>(sums, column + 1, row) * by));
        }
    }
    // out [R, F]: this block's columns, silu(gate) * up.
    __device__ __forceinline__ void store_gated(u16 *out, const float *sums) const {
        constexpr int COLUMNS = HIDDEN / BLOCKS;
        for (int i = threadIdx.x; i < COLUMNS / 2 * rows; i += THREADS) {
            int column = i % (COLUMNS / 2) * 2, row = i / (COLUMNS / 2);
            float by = scale(row), made[2];
#pragma unroll
            for (int j = 0; j < 2; ++j) {
                float gate = sum<MOST>(sums, column + j, row) * by, up = sum<MOST>(sums, COLUMNS + column + j, row) * by;
                made[j] = gate / (1.f + __expf(-gate)) * up;
            }
            publish(out + row * HIDDEN + blockIdx.x * COLUMNS + column, pair(made[0], made[1]));
        }
    }
    // out [R, W]: this block's columns of the residual stream, of which each thread keeps a pair.
    __device__ __forceinline__ void add(u16 *out, float2 &stream, const float *sums) const {
        if (threadIdx.x >= FEW / 2 * rows) return;
        int column = threadIdx.x % (FEW / 2) * 2, row = threadIdx.x / (FEW / 2);
        u32 v = pair(stream.x + sum<FEW>(sums, column, row), stream.y + sum<FEW>(sums, column + 1, row));
        stream = make_float2(low(v), high(v));
        publish(out + row * WIDTH + blockIdx.x * FEW + column, v);
    }
    __device__ __forceinline__ float2 stream_of(const u16 *x) const {
        if (threadIdx.x >= FEW / 2 * rows) return make_float2(0, 0);
        int column = threadIdx.x % (FEW / 2) * 2, row = threadIdx.x / (FEW / 2);
        u32 v = constant_pair(x + (codes ? (int)max(codes[row], 0ll) : row) * WIDTH + blockIdx.x * FEW + column);
        return make_float2(low(v), high(v));
    }
};

// ── attention ──

// Four numbers of a head: two from 2 * lane on, and two from DIM / 2 further on.
struct Part {
    u32 l, h;
    __device__ __forceinline__ void read(const u16 *head, int lane) {
        l = published_one(head + 2 * lane), h = published_one(head + DIM / 2 + 2 * lane);
    }
    __device__ __forceinline__ void store(u16 *head, int lane) const {
        *(u32 *)(head + 2 * lane) = l, *(u32 *)(head + DIM / 2 + 2 * lane) = h;
    }
    __device__ __forceinline__ bool empty() const { return l == EMPTY || h == EMPTY; }
    __device__ __forceinline__ float dot(const Part &o) const {
        return summed(low(l) * low(o.l) + high(l) * high(o.l) + low(h) * low(o.h) + high(h) * high(o.h));
    }
    // Normed and rotated; rounded after either.
    __device__ __forceinline__ void turn(const Part &norm, float eps, const float (&cos)[2], const float (&sin)[2]) {
        float by = rsqrtf(dot(*this) / DIM + eps);
        u32 nl = pair(low(l) * by * low(norm.l), high(l) * by * high(norm.l));
        u32 nh = pair(low(h) * by * low(norm.h), high(h) * by * high(norm.h));
        l = pair(low(nl) * cos[0] - low(nh) * sin[0], high(nl) * cos[1] - high(nh) * sin[1]);
        h = pair(low(nh) * cos[0] + low(nl) * sin[0], high(nh) * cos[1] + high(nl) * sin[1]);
    }
};

__device__ __forceinline__ Part constant_part(const u16 *p, int lane) {
    return Part{constant_pair(p + 2 * lane), constant_pair(p + DIM / 2 + 2 * lane)};
}

// A warp serves one key head of one frame: it appends the keys and values of this launch, and attends.
__device__ __forceinline__ void attend(const Arguments &a, int layer, const u16 *qkvs, u16 *heads, int warp, int lane,
                                       float *queries) {
    int unit = blockIdx.x + BLOCKS * warp;
    if (unit >= a.frames * GROUPS) return;
    const Layer &w = a.layers[layer];
    float *mine = queries + warp * (GROUP * HEAD_PITCH);
    int b = unit / GROUPS, g = unit % GROUPS, at = lane % POSITIONS, half = lane / POSITIONS;
    u64 cache = ((u64)(layer * a.frames + b) * POSITIONS * GROUPS + g) * DIM;
    u16 *k = a.k + cache, *v = a.v + cache;
    constexpr int NEXT = GROUPS * DIM;  // from a position to the next one
    // Earlier positions are read while the other blocks still make the new ones: of the keys a lane has half of one
    // position, of the values it has its part of all.
    uint4 keys[DIM / 16];
    Part values[POSITIONS];
#pragma unroll
    for (int d = 0; d < DIM / 16; ++d)
        keys[d] = at < a.first ? *(const uint4 *)(k + at * NEXT + half * (DIM / 2) + d * 8) : make_uint4(0, 0, 0, 0);
#pragma unroll
    for (int i = 0; i < POSITIONS; ++i) {
        const u16 *value = v + i * NEXT + 2 * lane;
        values[i].l = i < a.first ? *(const u32 *)value : 0;
        values[i].h = i < a.first ? *(const u32 *)(value + DIM / 2) : 0;
    }
    Part q_norm = constant_part(w.q_norm, lane), k_norm = constant_part(w.k_norm, lane), key[2], value[2];
    float turns[2] = {__ldg(a.frequencies + 2 * lane), __ldg(a.frequencies + 2 * lane + 1)};
#pragma unroll
    for (int pass = 0; pass < 2; ++pass) {
        if (pass >= a.passes) break;
        int row = pass * a.frames + b, position = a.first + pass;
        const u16 *qkv = qkvs + row * QKV, *q_at = qkv + g * GROUP * DIM;
        const u16 *k_at = qkv + (HEADS + g) * DIM, *v_at = qkv + (HEADS + GROUPS + g) * DIM;
        float cos[2], sin[2];
#pragma unroll
        for (int i = 0; i < 2; ++i) __sincosf(position * turns[i], &sin[i], &cos[i]);
        Part q[GROUP];
        do {
            q[0].read(q_at, lane), q[1].read(q_at + DIM, lane), key[pass].read(k_at, lane), value[pass].read(v_at, lane);
        } while (q[0].empty() || q[1].empty() || key[pass].empty() || value[pass].empty());
        __syncwarp();
        key[pass].turn(k_norm, a.eps, cos, sin);
        key[pass].store(k + position * NEXT, lane);
        value[pass].store(v + position * NEXT, lane);
        // Halves of a query lie four numbers further apart, off each other's banks.
#pragma unroll
        for (int h = 0; h < GROUP; ++h) {
            q[h].turn(q_norm, a.eps, cos, sin);
            float *to = mine + h * HEAD_PITCH + 2 * lane;
            *(float2 *)to = make_float2(low(q[h].l), high(q[h].l));
            *(float2 *)(to + DIM / 2 + 4) = make_float2(low(q[h].h), high(q[h].h));
        }
        __syncwarp();
        float scores[GROUP];
#pragma unroll
        for (int h = 0; h < GROUP; ++h) {
            const float *query = mine + h * HEAD_PITCH + half * (DIM / 2 + 4);
            float part[4] = {};
#pragma unroll
            for (int d = 0; d < DIM / 16; ++d) {
                const float4 q0 = *(const float4 *)(query + d * 8), q1 = *(const float4 *)(query + d * 8 + 4);
                part[0] += q0.x * low(keys[d].x) + q0.y * high(keys[d].x);
                part[1] += q0.z * low(keys[d].y) + q0.w * high(keys[d].y);
                part[2] += q1.x * low(keys[d].z) + q1.y * high(keys[d].z);
                part[3] += q1.z * low(keys[d].w) + q1.w * high(keys[d].w);
            }
            scores[h] = part[0] + part[1] + part[2] + part[3];
            scores[h] += __shfl_xor_sync(~0u, scores[h], POSITIONS);
        }
        // From here on a lane has one head at one position.
        float score = half ? scores[1] : scores[0], own[2] = {q[0].dot(key[pass]), q[1].dot(key[pass])};
        if (at == position) score = half ? own[1] : own[0];
        if (at > position) score = -1e30f;
        score *= 1.4426950408889634f * rsqrtf((float)DIM);
        float best = score;
#pragma unroll
        for (int by = POSITIONS / 2; by; by >>= 1) best = fmaxf(best, __shfl_xor_sync(~0u, best, by));
        float weight = at <= position ? exp2f(score - best) : 0.f, total = weight;
#pragma unroll
        for (int by = POSITIONS / 2; by; by >>= 1) total += __shfl_xor_sync(~0u, total, by);
        weight /= total;
        float heard[GROUP][4] = {};
        auto hear = [&](const Part &n, int from) {
            float x[4] = {low(n.l), high(n.l), low(n.h), high(n.h)};
#pragma unroll
            for (int h = 0; h < GROUP; ++h) {
                float by = __shfl_sync(~0u, weight, h * POSITIONS + from);
#pragma unroll
                for (int j = 0; j < 4; ++j) heard[h][j] += by * x[j];
            }
        };
#pragma unroll
        for (int i = 0; i < POSITIONS; ++i)
            if (i < a.first) hear(values[i], i);
#pragma unroll
        for (int j = 0; j < 2; ++j)
            if (j <= pass) hear(value[j], a.first + j);
#pragma unroll
        for (int h = 0; h < GROUP; ++h) {
            u16 *to = heads + row * HEARD + (g * GROUP + h) * DIM + 2 * lane;
            publish(to, pair(heard[h][0], heard[h][1]));
            publish(to + DIM / 2, pair(heard[h][2], heard[h][3]));
        }
        __syncwarp();
        // The next position finds this one as it would find it in the cache, so that both sum in the same order.
        if (pass + 1 < a.passes && at == position)
#pragma unroll
            for (int d = 0; d < DIM / 16; ++d) keys[d] = *(const uint4 *)(k + at * NEXT + half * (DIM / 2) + d * 8);
    }
}

// ── the launch ──

extern "C" __global__ __launch_bounds__(THREADS + 64, 1) void decoder_stack(const __grid_constant__ Arguments a) {
    extern __shared__ __align__(128) char memory[];
    float *sums = (float *)(memory + RING * STAGE_BYTES), *few_sums = sums + SUMS;
    float *squares = few_sums + FEW_SUMS, *queries = squares + SQUARES;
    Ring ring{memory, shared_address(queries + QUERIES)};
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, rows = a.frames * a.passes;
    if (threadIdx.x == 0) {
        for (int i = 0; i < RING; ++i) {
            barrier_init(ring.barriers + i * 8, 1);
            barrier_init(ring.barriers + (RING + i) * 8, WARPS);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");  // what samples the logits waits on its own
    State state = *a.state;
    int set = state.launches & 1;
    constexpr u64 SET = (u64)LAYERS * PUBLISHED * ROOM;
    __syncthreads();
    if (warp == WARPS) {
        u64 policy;
        asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
        Producer{ring, policy, lane}.run(a);
        return;
    }
    if (warp > WARPS) {
        uint4 *other = (uint4 *)(a.published + (set ^ 1) * SET);
        int used = state.rows[set ^ 1] * PUBLISHED / 8;
        for (int layer = 0; layer < LAYERS; ++layer)
            for (int i = blockIdx.x * 32 + lane; i < used; i += BLOCKS * 32)
                other[layer * (PUBLISHED * ROOM / 8) + i] = make_uint4(EMPTY, EMPTY, EMPTY, EMPTY);
        return;
    }
    Product product{ring, Place{}, squares, a.codes, a.eps, warp, lane, rows};
    const u16 *x = a.x;
    float2 stream = product.stream_of(x);
    // Products alternate between two places for their sums, so that a warp may begin one while others store the last.
    for (int layer = 0; layer < LAYERS; ++layer) {
        const Layer &w = a.layers[layer];
        u16 *qkv = a.published + set * SET + (u64)layer * PUBLISHED * ROOM;
        u16 *heads = qkv + QKV * rows, *middle = heads + HEARD * rows, *inner = middle + WIDTH * rows;
        u16 *end = inner + HIDDEN * rows;
        if (layer == 0)
            product.run<QKV / BLOCKS, WIDTH, true, true>(x, w.before, sums);
        else
            product.run<QKV / BLOCKS, WIDTH, true, false>(x, w.before, sums);
        product.store<QKV>(qkv, sums);
        attend(a, layer, qkv, heads, warp, lane, queries);
        if (a.kept && layer == LAYERS - 1) break;
        product.run<FEW, HEARD, false, false>(heads, nullptr, few_sums);
        product.add(middle, stream, few_sums);
        product.run<MOST, WIDTH, true, false>(middle, w.after, sums);
        product.store_gated(inner, sums);
        product.run<FEW, HIDDEN, false, false>(inner, nullptr, few_sums);
        product.add(end, stream, few_sums);
        x = end;
    }
    if (!a.kept) {
        product.rows = a.frames;
        product.run<VOCAB / BLOCKS, WIDTH, true, false>(x + (rows - a.frames) * WIDTH, a.norm, sums);
        product.store<VOCAB>(a.logits, sums);
    }
    // Every block has read the state, as this one has what each of them published, if only in the first layer.
    if (blockIdx.x == 0 && threadIdx.x == 0) a.state->launches = state.launches + 1, a.state->rows[set] = rows;
}
