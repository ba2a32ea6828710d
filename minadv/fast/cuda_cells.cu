// What the kernels of a pass have in common. Above this text stand the macros of `minadv.fast.cuda_source`: one of RNN,
// GRU and LSTM is 1, the others 0; MASKED_LEAK; real is float or double; MOST is the most passes of a launch.
//
// Sizes: T steps, B examples, I inputs, H units; numbers lie as in the readable cells, the last axis next to each other.

#define G (LSTM ? 4 : GRU ? 3 : 1)       // blocks of H columns in U, W and b
#define KEPT (RNN ? 0 : 4)               // numbers kept for each step and unit: gates i, f, g, o, or r, z, n and q
#define DZ (RNN ? 1 : 4)                 // gradients for each step and unit: of i, f, g, o, or of r, z, q and n

// The arrays of one pass, null where there is none. A block takes its pass by number, so that the passes of a launch may
// have come from different batches of buffers.
struct Pass {
    const real* x;                       // (T, B, I), or its product with W (T, B, G H) where a kernel is given no W
    const real* h0;                      // (B, H); null: zeros
    const real* c0;                      // (B, H); null: zeros
    const real* m;                       // (B, H); null: ones
    const bool* valid;                   // (T, B), false on padding; null: nothing is padding
    real* a;                             // (T, B, KEPT H)
    real* c;                             // (T+1, B, H)
    real* h;                             // (T+1, B, H)
    real* h_last;                        // (B, H), the state after the last step
    real* c_last;                        // (B, H)
    const real* dh;                      // (T, B, H), the gradients of h_1, ..., h_T; null: zeros
    const real* dh_last;                 // (B, H), the gradients of the last state; null: zeros
    const real* dc_last;                 // (B, H)
    real* dh0;                           // (B, H), the gradients of the first state
    real* dc0;                           // (B, H)
    real* dm;                            // (B, H), the influence map
};
struct Passes { Pass of[MOST]; };

__device__ __forceinline__ real logistic(real z) { return 1 / (1 + exp(-z)); }  // exp overflows for a shut gate: 1/inf = 0

// Back through one unit at one step, from the gradient dh of its h. d: the gradients of its pre-activations, for the GRU
// those of r, z, q and n, of which q's is that of the state's share alone. dc: of the LSTM's cell, after the step and, on
// return, before it. Returns what goes back to h_{t-1} past the weights (the GRU's leak). a: what was kept of the step.
__device__ __forceinline__ real unit_backward(
    const real* a, real h, real c, real c_prev, real h_leak, real dh, real& dc, real* d) {
#if LSTM
    const real i = a[0], f = a[1], g = a[2], o = a[3], s = tanh(c);
    dc += (1 - s) * (1 + s) * o * dh;
    d[0] = (1 - i) * i * g * dc;
    d[1] = (1 - f) * f * c_prev * dc;
    d[2] = (1 - g) * (1 + g) * i * dc;
    d[3] = (1 - o) * o * s * dh;
    dc *= f;
    return 0;
#elif GRU
    const real r = a[0], z = a[1], n = a[2], q = a[3];
    d[3] = (1 - n) * (1 + n) * (1 - z) * dh;
    d[0] = (1 - r) * r * q * d[3];
    d[1] = (1 - z) * z * (h_leak - n) * dh;
    d[2] = r * d[3];
    return z * dh;
#else
    d[0] = (1 - h) * (1 + h) * dh;
    return 0;
#endif
}
