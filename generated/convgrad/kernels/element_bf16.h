/* SPDX-License-Identifier: Apache-2.0
 * Elements of type bf16: the upper 16 bits of a binary32, held as a bit pattern. */
#ifndef WGRAD_ELEMENT_H
#define WGRAD_ELEMENT_H

#include <stdint.h>
#include <string.h>

typedef uint16_t element;

static inline float element_to_float(element value)
{
    const uint32_t bits = (uint32_t)value << 16;
    float result;
    memcpy(&result, &bits, sizeof result);
    return result;
}

/* Rounds to nearest, ties to even. A NaN stays a NaN: its payload is cut and the quiet bit set, because rounding up
 * could carry into the exponent and turn it into an infinity. */
static inline element element_from_float(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return (element)((bits >> 16) | 0x0040u);
    return (element)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

#endif
