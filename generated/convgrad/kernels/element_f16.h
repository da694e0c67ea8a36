/* SPDX-License-Identifier: Apache-2.0
 * Elements of type f16 (IEEE 754 binary16), held as a bit pattern: 1 sign, 5 exponent and 10 fraction bits. */
#ifndef WGRAD_ELEMENT_H
#define WGRAD_ELEMENT_H

#include <stdint.h>
#include <string.h>

typedef uint16_t element;

static inline float element_to_float(element value)
{
    const uint32_t sign = (uint32_t)(value & 0x8000u) << 16;
    const uint32_t magnitude = value & 0x7fffu;
    uint32_t bits;
    float result;
    if (magnitude >= 0x7c00u) {            /* infinity or NaN: the exponent field is all ones in both types */
        bits = 0x7f800000u | (magnitude & 0x03ffu) << 13;
    } else if (magnitude >= 0x0400u) {     /* normal: exponent bias 15 becomes 127 */
        bits = (magnitude << 13) + ((127u - 15u) << 23);
    } else {                               /* subnormal or zero: fraction * 2^-24, exact in binary32 */
        const float scaled = (float)magnitude * 0x1p-24f;
        memcpy(&bits, &scaled, sizeof bits);
    }
    bits |= sign;
    memcpy(&result, &bits, sizeof result);
    return result;
}

/* Rounds to nearest, ties to even; from 65520 on to infinity; below 2^-14 to a subnormal. A NaN stays a quiet NaN. */
static inline element element_from_float(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    const uint32_t sign = (bits >> 16) & 0x8000u;
    const uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u)
        return (element)(sign | 0x7e00u | ((magnitude >> 13) & 0x03ffu));
    if (magnitude >= 0x477ff000u)          /* 65520: halfway between the largest finite value and the next power */
        return (element)(sign | 0x7c00u);
    if (magnitude >= 0x38800000u) {        /* 2^-14: normal in binary16 */
        const uint32_t rounded = magnitude + 0x0fffu + ((magnitude >> 13) & 1u);
        return (element)(sign | ((rounded - ((127u - 15u) << 23)) >> 13));
    }
    /* Adding 0.5 aligns the fraction so that the unit in the last place is 2^-24: the addition itself rounds. */
    float aligned;
    memcpy(&aligned, &magnitude, sizeof aligned);
    aligned += 0.5f;
    memcpy(&bits, &aligned, sizeof bits);
    return (element)(sign | (bits - 0x3f000000u));
}

#endif
