// The header in C++17: initialiser, enums, callbacks, and a transfer.
#include <array>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "dt_check.h"

namespace {

constexpr std::size_t num_blocks = 8;
constexpr std::size_t block_len = 256;

static_assert(sizeof(dt_completion) == 32 && alignof(dt_completion) == 8);
static_assert(sizeof(dt_backend) == sizeof(std::int32_t));

void count(dt_log_level level, const char *message, void *user)
{
    CHECK(level == DT_LOG_ERROR || level == DT_LOG_WARN || level == DT_LOG_INFO);
    CHECK(!std::string(message).empty());
    ++*static_cast<int *>(user);
}

} // namespace

int main()
{
    int messages = 0;
    dt_set_log_callback(count, &messages, DT_LOG_INFO);

    std::vector<std::uint8_t> region(num_blocks * block_len);
    std::iota(region.begin(), region.end(), std::uint8_t{0});
    for (std::size_t i = 0; i < num_blocks; ++i)
        region[i * block_len] = static_cast<std::uint8_t>(100 + i);

    dt_options options = DT_OPTIONS_INIT;
    options.backend = DT_BACKEND_LOCAL;
    options.agent_name = "c++";
    dt_transport *t = nullptr;
    CHECK_OK(dt_create(region.data(), num_blocks, block_len, &options, &t));
    CHECK(dt_backend_kind(t) == DT_BACKEND_LOCAL);
    CHECK(std::string(dt_agent_name(t)) == "c++");

    std::size_t size = 0;
    CHECK_STATUS(dt_get_agent_metadata(t, nullptr, 0, &size), DT_ERR_BUFFER_TOO_SMALL);
    std::vector<char> metadata(size);
    CHECK_OK(dt_get_agent_metadata(t, metadata.data(), metadata.size(), &size));
    CHECK_OK(dt_add_remote_peer(t, "me", metadata.data(), size, dt_base_addr(t), num_blocks,
                                block_len));

    const std::array<std::uint32_t, 2> from{1, 7}, to{4, 5};
    dt_xfer_id id = 0;
    CHECK_OK(dt_write_blocks(t, "me", from.data(), to.data(), from.size(), 42, &id));
    std::array<dt_completion, 4> completions{};
    std::size_t n = 0;
    CHECK_OK(dt_wait(t, nullptr, completions.data(), completions.size(), 60000, &n));
    CHECK(n == 1 && completions[0].id == id && completions[0].user_data == 42);
    CHECK(completions[0].status == DT_OK && completions[0].bytes == 2 * block_len);
    CHECK(region[4 * block_len] == 101 && region[5 * block_len] == 107);
    CHECK(region[5 * block_len + 9] == 9 && region[6 * block_len] == 106);

    CHECK_OK(dt_cancel(t, &id, 1, DT_CANCEL_WAIT, &id, &n));
    CHECK(n == 0);
    CHECK_OK(dt_close(t, 60000));
    dt_destroy(t);
    CHECK(messages > 0);
    return 0;
}
