/* SPDX-License-Identifier: Apache-2.0
 * The sizes of a problem under short names, in functions with a parameter `geometry`. A build for any size reads them
 * from the geometry; a specialised one (WGRAD_SIZES) has each of them but the batch as a definition, OH as WGRAD_OH. */
#ifndef WGRAD_SIZES_H
#define WGRAD_SIZES_H

#include "wgrad_geometry.h"

#ifdef WGRAD_SIZES
#define WGRAD_SIZE(name, field) ((void)geometry, (int64_t)WGRAD_##name)
#else
#define WGRAD_SIZE(name, field) (geometry->field)
#endif

#define GROUPS WGRAD_SIZE(GROUPS, G)
#define PLAIN WGRAD_SIZE(PLAIN, P)
#define WINDOWED WGRAD_SIZE(WINDOWED, W)
#define OD WGRAD_SIZE(OD, O[0])
#define OH WGRAD_SIZE(OH, O[1])
#define OW WGRAD_SIZE(OW, O[2])
#define ID WGRAD_SIZE(ID, I[0])
#define IH WGRAD_SIZE(IH, I[1])
#define IW WGRAD_SIZE(IW, I[2])
#define KD WGRAD_SIZE(KD, K[0])
#define KH WGRAD_SIZE(KH, K[1])
#define KW WGRAD_SIZE(KW, K[2])
#define STRIDE_D WGRAD_SIZE(STRIDE_D, stride[0])
#define STRIDE_H WGRAD_SIZE(STRIDE_H, stride[1])
#define STRIDE_W WGRAD_SIZE(STRIDE_W, stride[2])
#define DILATION_D WGRAD_SIZE(DILATION_D, dilation[0])
#define DILATION_H WGRAD_SIZE(DILATION_H, dilation[1])
#define DILATION_W WGRAD_SIZE(DILATION_W, dilation[2])
#define PAD_D WGRAD_SIZE(PAD_D, pad[0])
#define PAD_H WGRAD_SIZE(PAD_H, pad[1])
#define PAD_W WGRAD_SIZE(PAD_W, pad[2])
#define PATCHES WGRAD_SIZE(PATCHES, patches)

/* Rows of taps, each KW long. */
#define TAP_ROWS (KD * KH)

#endif
