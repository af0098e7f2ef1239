/* The header needs no other header before it, may come twice, and names only what the library has. */
#include "dt.h"
#include "dt.h"

/* A use of every function, so that the linker has to find it. */
#define IS_THERE(function) (function != NULL)

static dt_options global_options = DT_OPTIONS_INIT;

int main(void)
{
    dt_options options = DT_OPTIONS_INIT;
    bool all = IS_THERE(dt_status_str) && IS_THERE(dt_last_error) && IS_THERE(dt_version) &&
               IS_THERE(dt_create) && IS_THERE(dt_close) && IS_THERE(dt_destroy) &&
               IS_THERE(dt_base_addr) && IS_THERE(dt_num_blocks) && IS_THERE(dt_block_len) &&
               IS_THERE(dt_config_fingerprint) && IS_THERE(dt_agent_name) &&
               IS_THERE(dt_backend_kind) && IS_THERE(dt_compute_fingerprint) &&
               IS_THERE(dt_fingerprints_compatible) && IS_THERE(dt_get_agent_metadata) &&
               IS_THERE(dt_add_remote_peer) && IS_THERE(dt_remove_remote_peer) &&
               IS_THERE(dt_peer_status) && IS_THERE(dt_write_blocks) && IS_THERE(dt_read_blocks) &&
               IS_THERE(dt_poll) && IS_THERE(dt_wait) && IS_THERE(dt_cancel) &&
               IS_THERE(dt_get_stats) && IS_THERE(dt_set_log_callback) &&
               IS_THERE(dt_region_alloc) && IS_THERE(dt_region_free);
    bool init = options.struct_size == sizeof(dt_options) &&
                global_options.abi_version == DT_ABI_VERSION &&
                options.backend == DT_BACKEND_AUTO && options.agent_name == NULL;
    return all && init ? 0 : 1;
}
