/* SPDX-License-Identifier: Apache-2.0
 * The instruction set of this build: one header for each row of convgrad/isa.py, named by a definition on the command
 * line. It says how wide a vector is, how many registers there are, and how to multiply, broadcast, permute and move
 * parts of vectors. Everything else is the compiler's vector extension.
 *
 * Instructions are named, not asked for by intrinsics: to read the header of these takes a compiler longer than most
 * kernels do. */
#ifndef WGRAD_ISA_HEADER
#define WGRAD_ISA_HEADER "isa_base.h"
#endif
#include WGRAD_ISA_HEADER
