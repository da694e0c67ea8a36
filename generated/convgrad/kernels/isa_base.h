/* SPDX-License-Identifier: Apache-2.0
 * Primitives of the base instruction set: what every processor of the architecture has. No fused multiply-add, so a
 * product is rounded before it is added; -ffp-contract=off keeps the compiler from fusing where it could. */
#ifndef WGRAD_ISA_H
#define WGRAD_ISA_H

static inline float multiply_add(float x, float y, float sum)
{
    return sum + x * y;
}

#endif
