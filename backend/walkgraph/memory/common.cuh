// What kernels in CUDA C++ share: numbers, bulk copies and their barriers, tensor cores.

typedef unsigned int u32;
typedef unsigned long long u64;
typedef unsigned short u16;  // a bfloat16

// ── numbers ──

__device__ __forceinline__ float low(u32 v) { return __uint_as_float(v << 16); }
__device__ __forceinline__ float high(u32 v) { return __uint_as_float(v & 0xffff0000u); }
__device__ __forceinline__ u32 pair(float l, float h) {
    u32 out;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(out) : "f"(h), "f"(l));
    return out;
}
__device__ __forceinline__ float summed(float v) {  // over a warp
#pragma unroll
    for (int by = 16; by; by >>= 1) v += __shfl_xor_sync(~0u, v, by);
    return v;
}
__device__ __forceinline__ float power(float x) {  // of 2
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
__device__ __forceinline__ uint4 constant(const u16 *p) { return __ldg((const uint4 *)p); }
__device__ __forceinline__ u32 constant_pair(const u16 *p) { return __ldg((const u32 *)p); }

// ── shared memory ──

__device__ __forceinline__ u32 shared_address(const void *p) { return (u32)__cvta_generic_to_shared(p); }
__device__ __forceinline__ void barrier_init(u32 at, u32 count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at), "r"(count) : "memory");
}
__device__ __forceinline__ void barrier_expect(u32 at, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at), "r"(bytes) : "memory");
}
__device__ __forceinline__ void barrier_arrive(u32 at) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(at) : "memory");
}
__device__ __forceinline__ void barrier_wait(u32 at, u32 parity) {
    asm volatile("{\n.reg .pred p;\nAGAIN:\nmbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n@!p bra AGAIN;\n}"
                 ::"r"(at), "r"(parity) : "memory");
}
__device__ __forceinline__ void copy(u32 to, const u16 *from, u32 bytes, u32 barrier, u64 policy) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;"
                 ::"r"(to), "l"(from), "r"(bytes), "r"(barrier), "l"(policy) : "memory");
}

// ── tensor cores ──

// Four tiles of 8 by 8, a line of which each lane has the address of; ACROSS: transposed.
template <bool ACROSS> __device__ __forceinline__ void load_tiles(u32 (&a)[4], u32 at) {
    if (ACROSS)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3]) : "r"(at) : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3]) : "r"(at) : "memory");
}
__device__ __forceinline__ u32 transposed(u32 tile) {
    u32 out;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(out) : "r"(tile));
    return out;
}
__device__ __forceinline__ void multiply(float (&c)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// ── values that are their own flags: memory holds EMPTY until a block publishes there ──

constexpr u32 EMPTY = 0xffffffffu;                 // neither a float nor two bfloat16 that arithmetic gives

__device__ __forceinline__ void publish(void *p, u32 v) {
    asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}
__device__ __forceinline__ u32 published_one(const void *p) {
    u32 v;
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
    return v;
}
__device__ __forceinline__ uint4 published(const void *p) {
    uint4 v;
    asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p) : "memory");
    return v;
}
__device__ __forceinline__ bool empty(const uint4 &v) {
    return v.x == EMPTY || v.y == EMPTY || v.z == EMPTY || v.w == EMPTY;
}
__device__ __forceinline__ void publish_two(void *p, u32 a, u32 b) {
    asm volatile("st.relaxed.gpu.global.v2.u32 [%0], {%1, %2};" ::"l"(p), "r"(a), "r"(b) : "memory");
}
__device__ __forceinline__ void publish_four(void *p, u32 a, u32 b, u32 c, u32 d) {
    asm volatile("st.relaxed.gpu.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(p), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
}
__device__ __forceinline__ uint2 published_two(const void *p) {
    uint2 v;
    asm volatile("ld.relaxed.gpu.global.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "l"(p) : "memory");
    return v;
}
// EMPTY is the largest number: if none of several is, neither is the largest of them.
__device__ __forceinline__ u32 largest(uint2 v) { return max(v.x, v.y); }
__device__ __forceinline__ u32 largest(const uint4 &v) { return max(max(v.x, v.y), max(v.z, v.w)); }
template <int N, class T> __device__ __forceinline__ u32 largest(const T (&v)[N]) {
    u32 most = largest(v[0]);
#pragma unroll
    for (int i = 1; i < N; i++) most = max(most, largest(v[i]));
    return most;
}
__device__ __forceinline__ bool is_missing(u32 largest) { return __any_sync(~0u, largest == EMPTY); }  // in a warp
