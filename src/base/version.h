/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TM_BASE_VERSION_H
#define TM_BASE_VERSION_H

#define TM_VERSION "0.1.0"

#endif
