/* SPDX-License-Identifier: Apache-2.0
 * Elements of type f32 (IEEE 754 binary32): already what sums are made of. */
#ifndef WGRAD_ELEMENT_H
#define WGRAD_ELEMENT_H

typedef float element;

static inline float element_to_float(element value)
{
    return value;
}

static inline element element_from_float(float value)
{
    return value;
}

#endif
