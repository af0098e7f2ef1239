/* Size and offset of everything in public structs. The library asserts the same numbers. */
#include "dt.h"

#define AT(type, field, offset) \
    _Static_assert(offsetof(type, field) == (offset), #type "." #field " has moved")

_Static_assert(sizeof(dt_status) == 4, "dt_status");
_Static_assert(sizeof(dt_xfer_id) == 8, "dt_xfer_id");
_Static_assert(sizeof(dt_backend) == 4, "dt_backend");
_Static_assert(sizeof(dt_xfer_state) == 4 && (dt_xfer_state)-1 < 0, "dt_xfer_state");
_Static_assert(sizeof(dt_cancel_mode) == 4, "dt_cancel_mode");
_Static_assert(sizeof(dt_log_level) == 4, "dt_log_level");

_Static_assert(sizeof(dt_options) == 80, "dt_options");
AT(dt_options, struct_size, 0);
AT(dt_options, abi_version, 8);
AT(dt_options, backend, 12);
AT(dt_options, agent_name, 16);
AT(dt_options, config_json, 24);
AT(dt_options, nixl_lib_dir, 32);
AT(dt_options, nixl_plugin, 40);
AT(dt_options, nixl_num_threads, 48);
AT(dt_options, progress_thread, 52);
AT(dt_options, region_fd, 56);
AT(dt_options, region_offset, 64);
AT(dt_options, region_has_fd, 72);
AT(dt_options, poll_budget_us, 76);

_Static_assert(sizeof(dt_completion) == 32, "dt_completion never grows");
AT(dt_completion, id, 0);
AT(dt_completion, user_data, 8);
AT(dt_completion, bytes, 16);
AT(dt_completion, status, 24);
AT(dt_completion, reserved, 28);

_Static_assert(sizeof(dt_stats) == 112, "dt_stats");
AT(dt_stats, struct_size, 0);
AT(dt_stats, submitted, 8);
AT(dt_stats, done, 16);
AT(dt_stats, failed, 24);
AT(dt_stats, cancelled, 32);
AT(dt_stats, draining, 40);
AT(dt_stats, inflight, 48);
AT(dt_stats, bytes_written, 56);
AT(dt_stats, bytes_read, 64);
AT(dt_stats, notifs_sent, 72);
AT(dt_stats, notifs_received, 80);
AT(dt_stats, polls, 88);
AT(dt_stats, peers, 96);
AT(dt_stats, notifs_refused, 104);

_Static_assert(sizeof(dt_notif) == 24, "dt_notif never grows");
AT(dt_notif, agent_name, 0);
AT(dt_notif, msg, 8);
AT(dt_notif, msg_len, 16);

_Static_assert(DT_BACKEND_AUTO == 0 && DT_BACKEND_LOCAL == 1 && DT_BACKEND_NIXL == 2, "dt_backend");
_Static_assert(DT_CANCEL_IMMEDIATE == 0 && DT_CANCEL_WAIT == 1, "dt_cancel_mode");
_Static_assert(DT_XFER_DONE == 0 && DT_XFER_PROC == 1, "dt_xfer_state");
_Static_assert(DT_LOG_OFF == 0 && DT_LOG_ERROR == 1 && DT_LOG_WARN == 2 && DT_LOG_INFO == 3 &&
                   DT_LOG_DEBUG == 4, "dt_log_level");

int main(void)
{
    return 0;
}
