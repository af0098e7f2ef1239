/* Which backend the tests run on. CMakeLists.txt says it with environment variables: DT_BACKEND is
 * "local" or "nixl", and UCX_TLS is "tcp" where NIXL shall not copy through the kernel. */
#ifndef DT_TEST_BACKEND_H
#define DT_TEST_BACKEND_H

#include <stdbool.h>

#include "dt.h"

#ifdef __cplusplus
extern "C" {
#endif

/* LOCAL for a program that is started by hand, without $DT_BACKEND. */
dt_backend test_backend(void);

bool on_nixl(void);
/* NIXL over sockets: what is written to a node arrives when that node is polled. */
bool over_tcp(void);
/* NIXL over UCX's own choice, on one host: the kernel copies in the poll that posts. */
bool over_cma(void);

/* The defaults, and this backend. */
dt_options test_options(void);

#ifdef __cplusplus
}
#endif

#endif
