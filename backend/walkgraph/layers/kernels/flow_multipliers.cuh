// A block's warps that multiply, for `flow_stack.cu`: fragments of published rows, products with the weights in the ring,
// sums over the two warpgroups, norms.

__device__ __forceinline__ float gelu(float x) {  // the tanh form, as x times a sigmoid
    float z = 1.5957691216f * (x + 0.044715f * x * x * x);
    return __fdividef(x, 1.f + __expf(-z));
}
__device__ __forceinline__ float2 two_of(const float *p) { return __ldg((const float2 *)p); }
__device__ __forceinline__ float2 floats(uint2 v) { return make_float2(__uint_as_float(v.x), __uint_as_float(v.y)); }
__device__ __forceinline__ void together() { asm volatile("bar.sync 1, %0;" ::"n"(MULTIPLIERS) : "memory"); }

struct Multipliers {
    const Arguments &given;
    Shared shared;
    Share share;
    Place place;
    int group, warp;
    u32 lane, block;
    u32 read;                            // bytes of a step before the thread's fragments
    u8 *set;
    float2 stream;                       // of the row and columns that this thread adds
    int layer;

    __device__ __forceinline__ Multipliers(const Arguments &given, const Shared &shared, int of)
        : given(given), shared(shared), share(given), group(of / 4), warp(of % 4), lane(threadIdx.x % 32), block(blockIdx.x),
          set(given.published) {
        // Lanes without a row read another's, at no cost, so that none is a case of its own.
        const int from = 16 * warp < given.rows ? warp : 0;
        read = from * 512 + (16 * from + line() < given.rows ? lane : pairs()) * 16;
    }
    // Addresses are computed where they are used: kept through a layer, they would not fit the registers.
    __device__ __forceinline__ void forget() { asm volatile("" : "+r"(lane), "+r"(block), "+r"(read), "+l"(set)); }
    __device__ __forceinline__ u32 thread() const { return 128 * group + 32 * warp + lane; }
    // Of a fragment: rows `16 * warp + line` and 8 further, columns `2 * pairs` and 8 further.
    __device__ __forceinline__ u32 line() const { return lane / 4; }
    __device__ __forceinline__ u32 pairs() const { return lane % 4; }
    __device__ __forceinline__ u32 tile() const { return block / PARTS; }
    __device__ __forceinline__ u32 part() const { return block % PARTS; }
    __device__ __forceinline__ u32 head() const { return block / SPLITS; }
    __device__ __forceinline__ u32 split() const { return block % SPLITS; }
    __device__ __forceinline__ float2 numbers(int i) const { return shared_two(shared.number(layer, i)); }

    // ── fragments ──

    __device__ __forceinline__ u8 *fragment(int at, u32 step) const { return set + (at + step * STEP + warp * 512 + lane * 16); }
    // Few lanes wait for the warp, each for one of COUNT numbers that are `apart`: if all polled what they read, others
    // would publish later.
    template <int COUNT> __device__ __forceinline__ void wait_for(const u8 *first, int apart = 0) const {
        if (lane < COUNT)
            while (published_one(first + lane * apart) == EMPTY) {}
        __syncwarp();
    }
    // Steps of rows, once the first is there; `settle` finds those that were not.
    template <int N> __device__ __forceinline__ void ask(uint4 (&v)[N], const u8 *from) const {
        wait_for<1>(from);
#pragma unroll
        for (int i = 0; i < N; i++) v[i] = published(from + i * STEP);
    }
    template <int COUNT, int N> __device__ __forceinline__ void settle(uint4 (&v)[N], int first, const u8 *from) const {
        while (true) {
            u32 most = largest(v[first]);
#pragma unroll
            for (int i = first + 1; i < first + COUNT; i++) most = max(most, largest(v[i]));
            if (!is_missing(most)) return;
#pragma unroll
            for (int i = first; i < first + COUNT; i++) v[i] = published(from + i * STEP);
        }
    }

    // ── stages ──

    __device__ __forceinline__ void wait_full() const { barrier_wait(shared.full(place), place.parity); }
    __device__ __forceinline__ void release(Place p) const {
        if (lane == 0) barrier_arrive(shared.free(p));
    }
    // Rows @ the block's 64 columns over the warpgroup's 16 * STEPS of K.
    template <int STEPS> __device__ __forceinline__ void multiply_tile(float (&c)[32], uint4 (&v)[STEPS], const u8 *from) {
        Place before;
#pragma unroll
        for (int i = 0; i < STEPS / 8; i++) {
            settle<8>(v, 8 * i, from);
            wait_full();
            const u64 b = described_lines(shared.at(place) + group * (2 * BRICK));
            begin_products();
#pragma unroll
            for (int k = 0; k < 8; k++) multiply_rows(c, v[8 * i + k], b + (k / 4 * BRICK + k % 4 * 32 >> 4), i + k > 0);
            commit_products();
            if (i > 0) finish_products<1>(), release(before);
            before = place, place.next();
        }
        finish_products<0>();
        release(before);
    }
    // The warpgroups' parts of a sum, from quarter `from` of the memory for them on.
    template <int N> __device__ __forceinline__ void leave_part(const float (&left)[N], int from = 0) const {
#pragma unroll
        for (int i = 0; i < N / 4; i++)
            put(shared.given((from + i) * MULTIPLIERS + thread()),
                make_float4(left[4 * i], left[4 * i + 1], left[4 * i + 2], left[4 * i + 3]));
    }
    template <int N> __device__ __forceinline__ void add_part(float (&kept)[N], int from, int of) const {
#pragma unroll
        for (int i = 0; i < N / 4; i++) {
            float4 got = shared_four(shared.given((from + i) * MULTIPLIERS + of));
            kept[4 * i] += got.x, kept[4 * i + 1] += got.y, kept[4 * i + 2] += got.z, kept[4 * i + 3] += got.w;
        }
    }
    // The warpgroup's half of 64 columns: 8 * BLOCK columns of every 16 * BLOCK.
    template <int BLOCK> __device__ __forceinline__ void halve(float (&kept)[16], const float (&c)[32]) const {
        float left[16];
#pragma unroll
        for (int i = 0; i < 16; i++) {
            int at = i / (4 * BLOCK) * (8 * BLOCK) + i % (4 * BLOCK);
            kept[i] = group ? c[at + 4 * BLOCK] : c[at];
            left[i] = group ? c[at] : c[at + 4 * BLOCK];
        }
        together();  // the numbers before have been read
        leave_part(left);
        together();
        add_part(kept, 0, thread() ^ 128);
    }

    // ── norms: each of four lanes asks for a quarter of the sums of its two rows ──

    struct Squares {
        uint4 v[2];
    };
    __device__ __forceinline__ Squares squares(int at) const {
        const u8 *from = set + at + (16 * warp + line()) * (WIDTH / TILE * 4) + pairs() * 16;
        return {published(from), published(from + 8 * (WIDTH / TILE * 4))};
    }
    __device__ __forceinline__ float2 norms(Squares got, int at) {
        while (is_missing(largest(got.v))) got = squares(at);
        float by[2];
#pragma unroll
        for (int r = 0; r < 2; r++) {
            uint4 v = got.v[r];
            float sum = __uint_as_float(v.x) + __uint_as_float(v.y) + (__uint_as_float(v.z) + __uint_as_float(v.w));
            sum += __shfl_xor_sync(~0u, sum, 1);
            sum += __shfl_xor_sync(~0u, sum, 2);
            by[r] = rsqrtf(sum / WIDTH + given.eps);
        }
        return make_float2(by[0], by[1]);
    }
};
