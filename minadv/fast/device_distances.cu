__device__ T total(T value, T* shared) {  // the sum over the block, the same for every thread, in a fixed order
    shared[threadIdx.x] = value;
    __syncthreads();
    for (int half = THREADS / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) shared[threadIdx.x] += shared[threadIdx.x + half];
        __syncthreads();
    }
    const T sum = shared[0];
    __syncthreads();
    return sum;
}

__device__ T largest(T value, T* shared) {
    shared[threadIdx.x] = value;
    __syncthreads();
    for (int half = THREADS / 2; half > 0; half /= 2) {
        if (threadIdx.x < half && shared[threadIdx.x + half] > shared[threadIdx.x])
            shared[threadIdx.x] = shared[threadIdx.x + half];
        __syncthreads();
    }
    const T top = shared[0];
    __syncthreads();
    return top;
}

__device__ void normalise(const T* row, int C, T* shared, T& top, T& log_sum) {
    T most = row[0];
    for (int j = threadIdx.x; j < C; j += THREADS) most = row[j] > most ? row[j] : most;
    top = largest(most, shared);
    T sum = 0;
    for (int j = threadIdx.x; j < C; j += THREADS) sum += exp(row[j] - top);
    log_sum = log(total(sum, shared));
}

__device__ T gap_of(T p, T q, T r) {  // q - p without cancellation, with r = log p - log q
    return r > -1 && r < 1 ? p * expm1(-r) : q - p;
}

struct Term { T d, t0, t1; };  // of one class: its share of d, and what the gradients sum up

__device__ Term term_of(int kind, T l0, T l1, T p0, T p1) {
    const T r = l0 - l1, zero = 0;
    Term t = {0, 0, 0};
    if (kind == JS) {
        const T larger = log1p(tanh((r < 0 ? -r : r) / 2));
        t.t0 = p0 * ((r < zero ? r : zero) + larger) / 2;
        t.t1 = p1 * ((-r < zero ? -r : zero) + larger) / 2;
        t.d = t.t0 + t.t1;
    } else if (kind == KL) {
        const T part = r > -1 && r < 1 ? p0 * (r + expm1(-r)) : p0 * r + gap_of(p0, p1, r);
        t.d = part < 0 ? zero : part;
        t.t0 = p0 * r;
    } else if (kind == SKL) {
        const T gap = (p0 + p1) * tanh(r / 2);
        t.d = gap * r / 2;
        t.t0 = p0 * r;
        t.t1 = -p1 * r;
    } else {  // L2
        const T gap = gap_of(p1, p0, -r);  // p0 - p1
        t.d = gap * gap;
        t.t0 = 2 * p0 * gap;
        t.t1 = -2 * p1 * gap;
    }
    return t;
}

// `kind` is JS, KL, SKL, L2 or LOGIT2: the distance's place in DISTANCES of `minadv.fast.device_source`.
extern "C" __global__ void minadv_distance(const T* logits0, const T* logits1, T* d, T* g0, T* g1, int C, int kind) {
    __shared__ T shared[THREADS];
    const long long first = (long long)blockIdx.x * C;
    const T *a = logits0 + first, *b = logits1 + first;
    T *ga = g0 + first, *gb = g1 + first;
    if (kind == LOGIT2) {
        T sum = 0;
        for (int j = threadIdx.x; j < C; j += THREADS) {
            const T gap = a[j] - b[j];
            sum += gap * gap;
            ga[j] = gap * (T(2) / C);
            gb[j] = -ga[j];
        }
        sum = total(sum, shared);
        if (threadIdx.x == 0) d[blockIdx.x] = sum / C;
        return;
    }
    T top0, top1, log0, log1;
    normalise(a, C, shared, top0, log0);
    normalise(b, C, shared, top1, log1);
    T sum = 0, sum0 = 0, sum1 = 0;
    for (int j = threadIdx.x; j < C; j += THREADS) {
        const T l0 = a[j] - top0 - log0, l1 = b[j] - top1 - log1;
        const Term t = term_of(kind, l0, l1, exp(l0), exp(l1));
        sum += t.d;
        sum0 += t.t0;
        sum1 += t.t1;
    }
    sum = total(sum, shared);
    sum0 = total(sum0, shared);
    sum1 = total(sum1, shared);
    if (threadIdx.x == 0) d[blockIdx.x] = sum < 0 ? T(0) : sum;
    for (int j = threadIdx.x; j < C; j += THREADS) {
        const T l0 = a[j] - top0 - log0, l1 = b[j] - top1 - log1, p0 = exp(l0), p1 = exp(l1);
        const Term t = term_of(kind, l0, l1, p0, p1);
        const T dl0 = t.t0 - p0 * sum0, dl1 = t.t1 - p1 * sum1;  // through the softmax
        if (kind == KL) {
            ga[j] = dl0;
            gb[j] = gap_of(p0, p1, l0 - l1);
        } else if (kind == SKL) {
            const T gap = (p0 + p1) * tanh((l0 - l1) / 2);
            ga[j] = (dl0 + gap) / 2;
            gb[j] = (dl1 - gap) / 2;
        } else {
            ga[j] = dl0;
            gb[j] = dl1;
        }
    }
}

// wrong: null where nobody asks whether the targets are classes
extern "C" __global__ void minadv_cross_entropy(const T* logits, const I* targets, T* nll, T* g, int* wrong, int C) {
    __shared__ T shared[THREADS];
    const long long first = (long long)blockIdx.x * C;
    const long long y = targets[blockIdx.x];
    T top, log_sum;
    normalise(logits + first, C, shared, top, log_sum);
    const bool bad = y < 0 || y >= C;
    for (int j = threadIdx.x; j < C; j += THREADS) g[first + j] = exp(logits[first + j] - top - log_sum) - (j == y);
    if (threadIdx.x == 0) {
        if (bad && wrong) wrong[0] = 1;
        nll[blockIdx.x] = bad ? T(0) : -(logits[first + y] - top - log_sum);
    }
}
