// The header in C++17: initialiser, enums, callbacks, and a transfer.
#include <array>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "backend.h"
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

dt_transport *create(std::vector<std::uint8_t> &region, const char *name)
{
    dt_options options = DT_OPTIONS_INIT;
    options.backend = test_backend();
    options.agent_name = name;
    dt_transport *t = nullptr;
    CHECK_OK(dt_create(region.data(), num_blocks, block_len, &options, &t));
    CHECK(dt_backend_kind(t) == test_backend());
    CHECK(std::string(dt_agent_name(t)) == name);
    return t;
}

} // namespace

int main()
{
    int messages = 0;
    dt_set_log_callback(count, &messages, DT_LOG_INFO);

    std::vector<std::uint8_t> region(num_blocks * block_len), remote(num_blocks * block_len);
    std::iota(region.begin(), region.end(), std::uint8_t{0});
    for (std::size_t i = 0; i < num_blocks; ++i)
        region[i * block_len] = static_cast<std::uint8_t>(100 + i);
    dt_transport *t = create(region, "c++");
    dt_transport *peer = create(remote, "peer of c++");

    std::size_t size = 0;
    CHECK_STATUS(dt_get_agent_metadata(peer, nullptr, 0, &size), DT_ERR_BUFFER_TOO_SMALL);
    std::vector<char> metadata(size);
    CHECK_OK(dt_get_agent_metadata(peer, metadata.data(), metadata.size(), &size));
    CHECK_OK(dt_add_remote_peer(t, "peer", metadata.data(), size, dt_base_addr(peer), num_blocks,
                                block_len));

    const std::array<std::uint32_t, 2> from{1, 7}, to{4, 5};
    dt_xfer_id id = 0;
    CHECK_OK(dt_write_blocks(t, "peer", from.data(), to.data(), from.size(), 42, &id));
    std::array<dt_completion, 4> completions{};
    std::size_t n = 0;
    for (int i = 0; i < 60000 && n == 0; ++i) {
        CHECK_OK(dt_poll(peer, nullptr, nullptr, 0, &n));
        CHECK_OK(dt_wait(t, nullptr, completions.data(), completions.size(), 1, &n));
    }
    CHECK(n == 1 && completions[0].id == id && completions[0].user_data == 42);
    CHECK(completions[0].status == DT_OK && completions[0].bytes == 2 * block_len);
    CHECK(remote[4 * block_len] == 101 && remote[5 * block_len] == 107);
    CHECK(remote[5 * block_len + 9] == 9 && remote[6 * block_len] == 0);

    CHECK_OK(dt_cancel(t, &id, 1, DT_CANCEL_WAIT, &id, &n));
    CHECK(n == 0);
    CHECK_OK(dt_close(t, 60000));
    dt_destroy(t);
    dt_destroy(peer);
    CHECK(messages > 0);
    return 0;
}
