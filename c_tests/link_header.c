/* The header needs no other header before it, may come twice, and names only what the library has. */
#include "dt.h"
#include "dt.h"

/* A use of every function, so that the linker has to find it. Volatile: else the compiler knows that
 * no address of a function is NULL, and leaves nothing for the linker. */
#ifdef __cplusplus
#define FUNCTION(name) reinterpret_cast<void (*)(void)>(name),
#else
#define FUNCTION(name) (void (*)(void))name,
#endif
static void (*const volatile functions[])(void) = {
#include "functions.h"
};

static dt_options global_options = DT_OPTIONS_INIT;

int main(void)
{
    dt_options options = DT_OPTIONS_INIT;
    bool all = true;
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        all = all && functions[i] != NULL;
    bool init = options.struct_size == sizeof(dt_options) &&
                global_options.abi_version == DT_ABI_VERSION &&
                options.backend == DT_BACKEND_AUTO && options.agent_name == NULL;
    return all && init ? 0 : 1;
}
