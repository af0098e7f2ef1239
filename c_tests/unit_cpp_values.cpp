// dt.hpp without a transport: views, results, errors, names, and memory that has an owner.
#include <array>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include "dt.hpp"
#include "dt_check.h"

namespace {

using indexes = dt::span<const std::uint32_t>;
using completions = dt::span<dt::completion>;

// What a list may be made of, and what not: a temporary that would be written to, or other elements.
static_assert(std::is_convertible_v<std::vector<std::uint32_t> &, indexes>);
static_assert(std::is_convertible_v<const std::vector<std::uint32_t> &, indexes>);
static_assert(std::is_convertible_v<std::vector<std::uint32_t>, indexes>);
static_assert(std::is_convertible_v<const std::array<std::uint32_t, 3> &, indexes>);
static_assert(std::is_convertible_v<std::uint32_t (&)[3], indexes>);
static_assert(std::is_convertible_v<dt::span<std::uint32_t>, indexes>);
static_assert(!std::is_convertible_v<std::vector<std::int64_t> &, indexes>);
static_assert(!std::is_convertible_v<std::vector<std::int32_t> &, indexes>);
static_assert(!std::is_convertible_v<std::uint32_t *, indexes>);
static_assert(std::is_convertible_v<std::vector<dt::completion> &, completions>);
static_assert(!std::is_convertible_v<const std::vector<dt::completion> &, completions>);
static_assert(!std::is_convertible_v<std::vector<dt::completion>, completions>);
static_assert(!std::is_convertible_v<std::array<dt::completion, 4>, completions>);
static_assert(!std::is_convertible_v<std::array<dt::xfer_id, 1>, dt::span<dt::xfer_id>>);
static_assert(std::is_convertible_v<completions, completions>);

static_assert(std::is_convertible_v<std::vector<unsigned char> &, dt::bytes>);
static_assert(std::is_convertible_v<dt::blob, dt::bytes>);
static_assert(std::is_convertible_v<dt::span<std::byte>, dt::bytes>);
static_assert(std::is_convertible_v<unsigned char (&)[3], dt::bytes>);
static_assert(std::is_convertible_v<std::string, dt::bytes>);
static_assert(!std::is_convertible_v<std::vector<std::uint32_t> &, dt::bytes>);
static_assert(!std::is_convertible_v<std::vector<std::string> &, dt::bytes>);

template <class T> constexpr bool has_one_owner =
    !std::is_copy_constructible_v<T> && !std::is_copy_assignable_v<T> &&
    std::is_nothrow_move_constructible_v<T> && std::is_nothrow_move_assignable_v<T> &&
    std::is_nothrow_default_constructible_v<T>;
static_assert(has_one_owner<dt::region> && has_one_owner<dt::transport>);
static_assert(std::is_copy_constructible_v<dt::result<int>>);

static_assert(std::is_same_v<std::underlying_type_t<dt::status>, dt_status>);
static_assert(std::is_same_v<std::underlying_type_t<dt::xfer_state>, dt_xfer_state>);

std::uint64_t sum(indexes list)
{
    std::uint64_t all = 0;
    for (std::uint32_t i : list)
        all += i;
    return all;
}

std::string text(dt::bytes b) { return {static_cast<const char *>(b.data()), b.size()}; }

void views()
{
    const std::vector<std::uint32_t> vector{1, 2, 3};
    const std::array<std::uint32_t, 2> array{4, 5};
    const std::uint32_t plain[] = {6};
    const std::uint32_t one = 7;
    CHECK(sum(vector) == 6 && sum(array) == 9 && sum(plain) == 6);
    CHECK(sum({1, 7}) == 8 && sum({0, 0}) == 0 && sum({&one, 1}) == 7);
    CHECK(sum({}) == 0 && indexes().data() == nullptr && indexes({}).empty());
    CHECK(indexes(vector).data() == vector.data() && indexes(vector).first(2).size() == 2);
    CHECK(indexes(vector)[2] == 3);

    const unsigned char raw[] = {'a', 0, 'b'};
    CHECK(text("image 7") == "image 7" && text(std::string("a\0b", 3)).size() == 3);
    CHECK(text(raw) == std::string("a\0b", 3));
    CHECK(text({&raw[2], 1}) == "b" && text({}).empty());
    CHECK(text(std::string_view("ab")) == "ab");
}

dt::result<int> half(int n)
{
    if (n % 2 != 0)
        return dt::failure{dt::status::invalid_arg, "odd"};
    return n / 2;
}

// A failure is handed on as a result of another type.
dt::result<std::string> half_in_words(int n)
{
    auto h = half(n);
    if (!h)
        return h.why();
    return std::to_string(*h);
}

dt::result<std::vector<int>> list() { return std::vector<int>{1, 2, 3}; }

void results()
{
    CHECK(half(4) && half(4).ok() && *half(4) == 2 && half(4).value() == 2);
    CHECK(half(4).code() == dt::status::ok && half(4).text().empty());
    CHECK(!half(3) && half(3).code() == dt::status::invalid_arg && half(3).text() == "odd");
    CHECK(half(3).value_or(9) == 9 && half(4).value_or(9) == 2);
    const auto text = half_in_words(8);
    CHECK(text.value_or("none") == "4" && *text == "4");
    CHECK(half_in_words(8).value() == "4" && half_in_words(7).text() == "odd");
    CHECK(half_in_words(8)->size() == 1);

    // The list lives as long as the loop.
    int all = 0;
    for (int i : *list())
        all += i;
    for (int i : list().value())
        all += i;
    CHECK(all == 12);

    const dt::result<int> fixed = half(4);
    CHECK(fixed.value() == 2 && *fixed == 2);

    dt::result<void> nothing;
    nothing.value();
    CHECK(nothing && nothing.text().empty());
    nothing = dt::failure{dt::status::busy, "later"};
    CHECK(!nothing && nothing.code() == dt::status::busy && nothing.why().text == "later");

    bool caught = false;
    try {
        (void)half(3).value();
    } catch (const dt::error &e) {
        caught = e.code() == dt::status::invalid_arg &&
                 std::string(e.what()) == "DT_ERR_INVALID_ARG: odd";
    }
    CHECK(caught);
    caught = false;
    try {
        nothing.value();
    } catch (const std::runtime_error &e) {
        caught = std::string(e.what()) == "DT_ERR_BUSY: later";
    }
    CHECK(caught);
}

void names()
{
    for (dt_status s = DT_OK; s >= DT_ERR_INTERNAL; --s)
        CHECK(std::strcmp(dt::to_string(static_cast<dt::status>(s)), dt_status_str(s)) == 0);
    CHECK(std::string(dt::to_string(dt::status::internal)) == "DT_ERR_INTERNAL");
    CHECK(std::string(dt::to_string(dt::xfer_state::in_progress)) == "PROC");
    CHECK(std::string(dt::to_string(static_cast<dt::xfer_state>(DT_ERR_PEER_LOST))) ==
          "DT_ERR_PEER_LOST");
    CHECK(dt::outcome(dt::xfer_state::done) == dt::status::ok);
    CHECK(std::string(dt::to_string(dt::backend::automatic)) == "AUTO");
    CHECK(std::string(dt::to_string(dt::backend::local)) == "LOCAL");
    CHECK(std::string(dt::to_string(dt::backend::nixl)) == "NIXL");
    CHECK(std::string(dt::to_string(static_cast<dt::backend>(9))) == "?");
    CHECK(std::string(dt::to_string(dt::cancel_mode::wait)) == "WAIT");
    CHECK(std::string(dt::to_string(dt::log_level::debug)) == "DEBUG");
    CHECK(dt::version() == dt_version());
}

void fingerprints()
{
    char expected[17];
    CHECK_OK(dt_compute_fingerprint("{\"a\":1}", expected));
    const std::string a = dt::compute_fingerprint("{ \"a\": 1 }").value();
    const std::string b = dt::compute_fingerprint("{\"a\": 2}").value();
    CHECK(a == expected && b.size() == 16 && dt::compute_fingerprint("{}").value().empty());
    CHECK(dt::fingerprints_compatible(a, a) && !dt::fingerprints_compatible(a, b));
    CHECK(dt::fingerprints_compatible(a, ""));
    CHECK(!dt::fingerprints_compatible(a, a + std::string("\0b", 2)));
    CHECK(!dt::fingerprints_compatible({"\0", 1}, a));
    // Of a view, no more is looked at than it shows.
    const std::string both = a + b;
    const std::string_view view = both;
    CHECK(dt::fingerprints_compatible(view.substr(0, 16), a));
    CHECK(dt::fingerprints_compatible(dt::transport().config_fingerprint(), view.substr(16)));
    CHECK(!dt::fingerprints_compatible(view.substr(0, 16), view.substr(16)));
    const auto bad = dt::compute_fingerprint("[1]");
    CHECK(bad.code() == dt::status::invalid_arg && bad.text() == dt_last_error());
    // Behind a NUL there may be more.
    CHECK(!dt::compute_fingerprint({"{}\0{", 4}));
}

void regions()
{
    dt::region a = dt::region::alloc(10000).value();
    CHECK(a.size() == 10000 && a.fd() >= 0 && a.data() != nullptr);
    for (std::byte b : a.memory())
        CHECK(b == std::byte{0});
    a.memory()[9999] = std::byte{7};

    void *const at = a.data();
    dt::region b = std::move(a);
    CHECK(b.data() == at && b.memory()[9999] == std::byte{7});
    CHECK(a.data() == nullptr && a.size() == 0 && a.fd() == -1 && a.memory().empty());

    // What was there before is freed: its descriptor is the lowest that is free again.
    dt::region c = dt::region::alloc(4096).value();
    const int fd = c.fd();
    c = std::move(b);
    CHECK(c.data() == at && c.memory()[9999] == std::byte{7});
    CHECK(dt::region::alloc(1).value().fd() == fd);
    c = dt::region();
    CHECK(c.data() == nullptr);

    const auto none = dt::region::alloc(0);
    CHECK(none.code() == dt::status::invalid_arg && !none.text().empty());
}

} // namespace

int main()
{
    views();
    results();
    names();
    fingerprints();
    regions();
    return 0;
}
