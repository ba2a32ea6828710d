// One step of all passes, between two matrix products, for any H and either precision; below `cuda_cells.cu`. A thread
// takes one unit of one example of one pass. The kernels are given whole arrays and t: a view for each step would cost the
// host ten times as much as the launch.

// z (passes, B, G H): the product of hhat and U. Step t makes h_{t+1}, t = 0, ..., T - 1; t = -1 takes the first state.
extern "C" __global__ void forward_step(
    const real* z, real* hhat,           // (passes, B, H): the masked state that enters the next product
    const real* W,                       // (I, G H), where I is small; null where x W is given
    const real* b,                       // (G H,)
    const real* bn,                      // (H,), of the GRU
    const Passes passes, const int t, const int T, const int B, const int I, const int H, const int n_passes) {
    const size_t own = (size_t)blockIdx.x * blockDim.x + threadIdx.x;            // of (passes, B, H)
    if (own >= (size_t)n_passes * B * H) return;
    const int unit = own % H, row = own / H % B;
    const Pass* mine = &passes.of[own / H / B];
    const size_t in_state = (size_t)row * H + unit;
    const real mask = mine->m ? mine->m[in_state] : 1;
    const size_t at = (size_t)(t < 0 ? 0 : t) * B + row;
    const size_t before = at * H + unit, after = t < 0 ? before : before + (size_t)B * H;    // in h and c
    real h_t, c_t = 0;
    if (t < 0) {
        h_t = mine->h0 ? mine->h0[in_state] : 0;
        if (LSTM) c_t = mine->c0 ? mine->c0[in_state] : 0;
    } else {
        h_t = mine->h[before];
        if (LSTM) c_t = mine->c[before];
    }
    if (t >= 0 && (!mine->valid || mine->valid[at])) {
        real share[4], sum[4];
        for (int g = 0; g < G; g++) {
            const int column = g * H + unit;
            share[g] = b[column];
            if (W) for (int i = 0; i < I; i++) share[g] += mine->x[at * I + i] * W[(size_t)i * G * H + column];
            else share[g] += mine->x[at * G * H + column];
            sum[g] = z[own / H * G * H + column];
        }
        real* a = mine->a + at * KEPT * H + unit;
#if LSTM
        const real i = logistic(share[0] + sum[0]), f = logistic(share[1] + sum[1]);
        const real g = tanh(share[2] + sum[2]), o = logistic(share[3] + sum[3]);
        c_t = f * c_t + i * g;                                                   // Eq. 1
        h_t = o * tanh(c_t);                                                     // Eq. 1
        a[0] = i; a[H] = f; a[2 * H] = g; a[3 * H] = o;
#elif GRU
        const real r = logistic(share[0] + sum[0]), u = logistic(share[1] + sum[1]), q = sum[2] + bn[unit];
        const real n = tanh(share[2] + r * q);
        h_t = (1 - u) * n + u * (MASKED_LEAK ? h_t * mask : h_t);                // Eq. 1
        a[0] = r; a[H] = u; a[2 * H] = n; a[3 * H] = q;
#else
        h_t = tanh(share[0] + sum[0]);                                           // Eq. 1
#endif
    }
    mine->h[after] = h_t;
    if (LSTM) mine->c[after] = c_t;
    hhat[own] = h_t * mask;
    if (t == T - 1) {
        mine->h_last[in_state] = h_t;
        if (LSTM) mine->c_last[in_state] = c_t;
    }
}

// dhhat (passes, B, H): the product of the gradients that step t + 1 left in dz with U transposed. dh0 holds what goes past
// that product, dc0 the gradient of the cell. Step t = T - 1 begins, t = -1 ends: dh0 and dc0 are then those of the first state.
extern "C" __global__ void backward_step(
    const real* dhhat, real* dz,         // (passes, B, G H)
    real* dz_out,                        // (passes, T, B, DZ H) or null
    real* entered,                       // (passes, T, B, H+1+I) or null: the masked state, 1 and x of each step
    const Passes passes, const int t, const int T, const int B, const int I, const int H, const int n_passes) {
    const size_t own = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (own >= (size_t)n_passes * B * H) return;
    const int unit = own % H, row = own / H % B, number = own / H / B;
    const Pass* mine = &passes.of[number];
    const size_t in_state = (size_t)row * H + unit, at = (size_t)(t < 0 ? 0 : t) * B + row;
    const real mask = mine->m ? mine->m[in_state] : 1;
    real dh, dc = 0;
    if (t == T - 1) {
        dh = mine->dh_last ? mine->dh_last[in_state] : 0;
        if (LSTM) dc = mine->dc_last ? mine->dc_last[in_state] : 0;
        if (mine->dm) mine->dm[in_state] = 0;
    } else {
        const size_t next = (size_t)(t + 1) * B + row;                           // of step t + 1, which h[next] entered
        real back = dhhat[own], past = mine->dh0[in_state];
        if (MASKED_LEAK && (!mine->valid || mine->valid[next])) { back += past; past = 0; }
        if (mine->dm) mine->dm[in_state] += back * mine->h[next * H + unit];     // Eq. 6
        dh = back * mask + past;
        if (LSTM) dc = mine->dc0[in_state];
    }
    if (t >= 0) {
        const real h_prev = mine->h[at * H + unit];
        real gates[4], d[4] = {0, 0, 0, 0};
        if (mine->dh) dh += mine->dh[at * H + unit];
        if (!mine->valid || mine->valid[at]) {
            for (int g = 0; g < KEPT; g++) gates[g] = mine->a[(at * KEPT + g) * H + unit];
            const real c_prev = LSTM ? mine->c[at * H + unit] : 0, c = LSTM ? mine->c[(at + B) * H + unit] : 0;
            const real h_leak = MASKED_LEAK ? h_prev * mask : h_prev;
            dh = unit_backward(gates, mine->h[(at + B) * H + unit], c, c_prev, h_leak, dh, dc, d);
        }
        const size_t out = (size_t)number * T * B + at;
        for (int g = 0; g < G; g++) dz[own / H * G * H + g * H + unit] = d[g];
        if (dz_out) for (int g = 0; g < DZ; g++) dz_out[(out * DZ + g) * H + unit] = d[g];
        if (entered) {
            entered[out * (H + 1 + I) + unit] = h_prev * mask;
            for (int i = unit; i <= I; i += H) entered[out * (H + 1 + I) + H + i] = i ? mine->x[at * I + i - 1] : 1;
        }
    }
    mine->dh0[in_state] = dh;
    if (LSTM) mine->dc0[in_state] = dc;
}
