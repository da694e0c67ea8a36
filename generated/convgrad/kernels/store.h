/* SPDX-License-Identifier: Apache-2.0
 * The store of one element of the gradient: the only rounding after accumulation. Include after an element header. */
#ifndef WGRAD_STORE_H
#define WGRAD_STORE_H

#include "wgrad_geometry.h"

static inline void store_gradient(const wgrad_geometry *geometry, void *out, int64_t index, float total)
{
    if (geometry->out_f32) {
        float *const target = (float *)out + index;
        *target = geometry->accumulate ? *target + total : total;
    } else {
        ((element *)out)[index] = element_from_float(total);
    }
}

#endif
