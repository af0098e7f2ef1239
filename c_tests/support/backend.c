#include "backend.h"

#include <stdlib.h>
#include <string.h>

#include "child.h"

/* Once, before main: a test may change the environment. */
static dt_backend backend;

__attribute__((constructor)) static void read_environment(void)
{
    const char *name = getenv("DT_BACKEND");
    backend = DT_BACKEND_LOCAL;
    if (name != NULL && strcmp(name, "nixl") == 0)
        backend = DT_BACKEND_NIXL;
    else if (name != NULL && strcmp(name, "local") != 0)
        test_fail("DT_BACKEND is \"%s\", but tests know \"local\" and \"nixl\"", name);
}

dt_backend test_backend(void)
{
    return backend;
}

bool on_nixl(void)
{
    return test_backend() == DT_BACKEND_NIXL;
}

bool over_tcp(void)
{
    const char *transports = getenv("UCX_TLS");
    return on_nixl() && transports != NULL && strcmp(transports, "tcp") == 0;
}

bool over_cma(void)
{
    return on_nixl() && !over_tcp();
}

dt_options test_options(void)
{
    dt_options options = DT_OPTIONS_INIT;
    options.backend = test_backend();
    return options;
}
