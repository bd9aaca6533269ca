// What the parts of `flow_stack.cu` share: sizes, the launch's arguments, what blocks publish, and what a block has in
// shared memory; and the two warps that fill and empty memory.

constexpr int BLOCKS = 128, WARPS = 8, MULTIPLIERS = 32 * WARPS, THREADS = MULTIPLIERS + 128;
constexpr int ROWS = 64, DIM = 256, HALF = DIM / 2, KEYS = 64;  // KEYS: of a tile
constexpr int PARTS = 8, SPLITS = 16;              // blocks that share the K of a tile; and the keys of a head
constexpr int TILE = 64, LINE = 128, BRICK = TILE * LINE;  // columns of a tile; bytes of 64 of its K: of a line, of all
constexpr int QKV = (HEADS + 2) * DIM, NARROW = QKV / 16;  // NARROW: tiles of the heads' product
constexpr int STAGE = 4 * BRICK, RING = 6;         // STAGE: two bricks for each of the warpgroups
constexpr int IN_FLIGHT = 2, PACE = 600;           // stages that are on their way; cycles between requests for bricks
constexpr int GIVEN_BYTES = 16 * 4 * MULTIPLIERS;  // what the two warpgroups give each other
// What a block needs of a layer's table, as floats in shared memory: biases of its heads' columns and inner columns, its
// columns' gates, and the scales of the norm after each addition.
constexpr int HEAD_BIAS = 0, FIRST_GATE = 32, SECOND_SCALE = 96, INNER_BIAS = 160, SECOND_GATE = 224, NEXT_SCALE = 288;
constexpr int NUMBERS = NEXT_SCALE + TILE;
constexpr int BEFORE_SECOND = 2 * WIDTH + QKV, EACH = BEFORE_SECOND + 2 * WIDTH + 2 * HIDDEN;  // of a layer's table
constexpr float LOWEST = -1e30f, NOTHING = -2e38f; // of no key; of a key past the end
static_assert(WIDTH == TILE * BLOCKS / PARTS, "every block adds a tile of the stream");
static_assert(HIDDEN == 32 * BLOCKS, "every block has 32 columns of gate and of up");
static_assert(HEADS == PARTS && HEADS * SPLITS == BLOCKS, "a part of the out product's K is a head");
static_assert(LAYERS % 2 == 0, "the last layer leaves the even set empty");

// Bytes of a set: where each phase publishes.
constexpr int STEP = ROWS * 16 * 2;                // fragments of 16 columns
constexpr int SQUARES_BYTES = ROWS * (WIDTH / TILE) * 4, NEW_BYTES = ROWS * DIM * 2;
constexpr int SUMS_BYTES = WIDTH / TILE * PARTS * ROWS * TILE * 4;
constexpr int FIRST = 0, FIRST_SQUARES = FIRST + WIDTH / 16 * STEP;  // the layer's rows
constexpr int QUERIES = FIRST_SQUARES + SQUARES_BYTES, NEW_KEYS = QUERIES + HEADS * DIM / 16 * STEP;
constexpr int NEW_VALUES = NEW_KEYS + NEW_BYTES, SHARES = NEW_VALUES + NEW_BYTES;
constexpr int SCALES = SHARES + HEADS * SPLITS * (DIM / 16) * STEP, HEARD = SCALES + HEADS * ROWS * SPLITS * 4;
constexpr int OUT_SUMS = HEARD + HEADS * DIM / 16 * STEP, SECOND = OUT_SUMS + SUMS_BYTES;
constexpr int SECOND_SQUARES = SECOND + WIDTH / 16 * STEP, INNER = SECOND_SQUARES + SQUARES_BYTES;
constexpr int DOWN_SUMS = INNER + HIDDEN / 16 * STEP, END = DOWN_SUMS + SUMS_BYTES;
constexpr int SLICE = (END + BLOCKS * 512 - 1) / (BLOCKS * 512) * 512, SET = SLICE * BLOCKS;  // SLICE: what a block empties

struct Layer {
    TensorMap qkv;         // [K / 64, (H + 2) * 2, D / 2, 64]
    TensorMap out;         // [2H, D / 128, W, 64]: K, in parts of a warpgroup, in bricks; columns; K
    TensorMap gate_up;     // [2, W / 128, 2, F, 64]: likewise; gate and up; columns; K
    TensorMap down;        // [16, F / 1024, W, 64]
};
struct Arguments {
    Layer layers[LAYERS];
    TensorMap k, v;        // [LAYERS, D / 64, slots, 64]
    const float *table;    // for each layer: scale [W], bias [QKV], gate [W]; scale [W], bias [2F], gate [W]
    const float *actions;  // [R, A]
    const float *into;     // [W, A]
    const float *into_bias;      // [W]
    const float *frequencies;    // [D / 2]: radians per position
    const long long *position;   // of the first row
    const long long *context;    // its tokens: they are in the first slots
    u8 *published;         // [2, SET]
    u16 *result;           // [R, W]
    float eps, scale;      // scale: of scores as powers of 2
    int rows, numbers;     // numbers: A
};

// ── the ring ──

struct Place {
    int stage = 0;
    u32 parity = 0;
    __device__ __forceinline__ void next() {
        if (++stage == RING) stage = 0, parity ^= 1;
    }
};
struct Shared {
    u32 start;
    __device__ __forceinline__ u32 at(Place p) const { return start + p.stage * STAGE; }
    __device__ __forceinline__ u32 given(int thread) const { return start + RING * STAGE + thread * 16; }
    __device__ __forceinline__ u32 turns(int thread) const { return given(0) + GIVEN_BYTES + thread * 16; }
    __device__ __forceinline__ u32 number(int layer, int i) const { return turns(0) + 128 * 32 + (layer % 2 * NUMBERS + i) * 4; }
    __device__ __forceinline__ u32 full(Place p) const { return number(0, 2 * NUMBERS) + p.stage * 8; }
    __device__ __forceinline__ u32 free(Place p) const { return full(p) + RING * 8; }
    __device__ __forceinline__ u32 seen() const { return full(Place()) + RING * 16; }  // all rows of the layer
    __device__ __forceinline__ u32 emptied() const { return seen() + 8; }              // the block's part of a set
    static constexpr int BYTES = RING * STAGE + GIVEN_BYTES + 128 * 32 + 2 * NUMBERS * 4 + RING * 16 + 16;
};

// The keys of a head that the block attends.
struct Share {
    int context, all;             // keys; with those of the rows
    int begin, count;             // tiles
    __device__ __forceinline__ explicit Share(const Arguments &given) {
        context = (int)*given.context, all = context + given.rows;
        int tiles = (all + KEYS - 1) / KEYS, split = blockIdx.x % SPLITS, used = min(tiles, SPLITS);
        begin = 0, count = 0;
        if (split < used) begin = split * tiles / used, count = (split + 1) * tiles / used - begin;
    }
};

struct Producer {
    const Arguments &given;
    Shared shared;
    u64 once;                     // weights are read once: they should leave the cache first
    int requested = 0;
    Place place, landed;
    u32 last = 0;

    // The next stage, in bricks that `copy` asks for, a while apart: a burst of requests would delay what blocks publish.
    template <class Copy> __device__ __forceinline__ void fill(const Copy &copy) {
        if (++requested > IN_FLIGHT) barrier_wait(shared.full(landed), landed.parity), landed.next();
        barrier_wait(shared.free(place), place.parity ^ 1);
        barrier_expect(shared.full(place), STAGE);
        for (int i = 0; i < 4; i++) {
            while ((u32)clock() - last < PACE) {}
            last = (u32)clock();
            copy(shared.at(place) + i * BRICK, i, shared.full(place));
        }
        place.next();
    }
    __device__ void run() {
        const Share share(given);
        const int row = blockIdx.x / PARTS * TILE, part = blockIdx.x % PARTS;
        for (int layer = 0; layer < LAYERS; layer++) {
            const Layer &weights = given.layers[layer];
            for (int tile = blockIdx.x; tile < NARROW; tile += BLOCKS)
                fill([&](u32 to, int i, u32 full) {
                    copy_tile(to, &weights.qkv, 0, tile % 16 * 8, tile / 16 * 2, 4 * i, full, once);
                });
            for (int at = 0; at < 2 * share.count; at++)
                fill([&](u32 to, int i, u32 full) {
                    copy_tile(to, at % 2 ? &given.v : &given.k, 0, (share.begin + at / 2) * KEYS, i, layer, full, once);
                });
            fill([&](u32 to, int i, u32 full) { copy_tile(to, &weights.out, 0, row, i % 2, 2 * part + i / 2, full, once); });
            for (int at = 0; at < WIDTH / 256; at++)
                fill([&](u32 to, int i, u32 full) {
                    copy_tile(to, &weights.gate_up, 0, blockIdx.x * 32, 0, 2 * at + i % 2, i / 2, full, once);
                });
            for (int at = 0; at < HIDDEN / PARTS / 256; at++)
                fill([&](u32 to, int i, u32 full) {
                    copy_tile(to, &weights.down, 0, row, 2 * at + i % 2, 2 * part + i / 2, full, once);
                });
        }
    }
};

// Numbers `i` to `i` + 3 of a layer's table that the block needs.
__device__ __forceinline__ const float *number_of(const float *table, const float *next, int i) {
    const int column = blockIdx.x / PARTS * TILE, dim = blockIdx.x % 16 * 8;
    if (i < FIRST_GATE) {  // eight columns and their partners, twice
        int head = min(blockIdx.x / 16 + i / 16 * (BLOCKS / 16), HEADS + 1);
        return table + WIDTH + head * DIM + i / 8 % 2 * HALF + dim + i % 8;
    }
    if (i < SECOND_SCALE) return table + WIDTH + QKV + column + i - FIRST_GATE;
    if (i < INNER_BIAS) return table + BEFORE_SECOND + column + i - SECOND_SCALE;
    if (i < SECOND_GATE) return table + BEFORE_SECOND + WIDTH + (i - INNER_BIAS) / 32 * HIDDEN + blockIdx.x * 32 + i % 32;
    if (i < NEXT_SCALE) return table + EACH - WIDTH + column + i - SECOND_GATE;
    return next + column + i - NEXT_SCALE;
}
struct Numbers {
    static constexpr int TURNS = (NUMBERS + 127) / 128;  // of a warp
    float4 v[TURNS];
    __device__ __forceinline__ int index(int turn, int lane) const { return min(128 * turn + 4 * lane, NUMBERS - 4); }
    __device__ __forceinline__ Numbers(const float *table, const float *next, int lane) {
#pragma unroll
        for (int i = 0; i < TURNS; i++) v[i] = __ldg((const float4 *)number_of(table, next, index(i, lane)));
    }
    __device__ __forceinline__ void store(const Shared &shared, int layer, int lane) const {
#pragma unroll
        for (int i = 0; i < TURNS; i++)
            put(shared.number(layer, index(i, lane)), v[i]);
    }
};

// The cleaner, which also fetches the next layer's numbers.
__device__ __forceinline__ void clean(const Arguments &given, const Shared &shared, int lane) {
    for (int layer = 0; layer < LAYERS; layer++) {
        const float *table = given.table + min(layer + 1, LAYERS - 1) * EACH;
        const Numbers next(table, layer + 2 < LAYERS ? table + EACH : table, lane);
        barrier_wait(shared.seen(), layer & 1);
        next.store(shared, layer + 1, lane);
        u8 *from = given.published + (layer + 1) % 2 * (u64)SET + blockIdx.x * SLICE + lane * 16;
#pragma unroll 4
        for (int at = 0; at < SLICE; at += 512) publish_four(from + at, EMPTY, EMPTY, EMPTY, EMPTY);
        asm volatile("fence.acq_rel.gpu;" ::: "memory");
        __syncwarp();
        if (lane == 0) barrier_arrive(shared.emptied());
    }
}
