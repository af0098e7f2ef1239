// Two files of one program have dt.hpp: this one with exceptions, link_hpp_bare.cpp without. What each
// asks of a result that failed is done in its own way, whichever file the linker met first.
#include "dt.hpp"
#include "dt.hpp"

#include <csignal>
#include <string>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#if __cplusplus >= 202002L
#include <span>
static_assert(std::is_convertible_v<std::span<const std::uint32_t>, dt::span<const std::uint32_t>>);
static_assert(std::is_convertible_v<std::span<dt::completion>, dt::span<dt::completion>>);
static_assert(std::is_convertible_v<std::span<std::byte, 4>, dt::span<std::byte>>);
static_assert(std::is_convertible_v<dt::span<const std::uint32_t>, std::span<const std::uint32_t>>);
static_assert(std::is_convertible_v<dt::span<dt::completion>, std::span<dt::completion>>);
static_assert(std::is_convertible_v<std::span<std::byte>, dt::bytes>);
static_assert(!std::is_convertible_v<std::span<const std::byte>, dt::span<std::byte>>);
#endif

dt::result<dt::region> bare_alloc(std::size_t size);
int bare_value(dt::result<dt::region> r);

// True if the other file ends the process, and says why on stderr.
static bool bare_aborts()
{
    int ends[2];
    if (pipe(ends) != 0)
        return false;
    const pid_t child = fork();
    if (child == 0) {
        const rlimit no_core{0, 0};
        setrlimit(RLIMIT_CORE, &no_core);
        dup2(ends[1], 2);
        close(ends[1]);
        _exit(bare_value(bare_alloc(0)));
    }
    close(ends[1]);
    std::string said;
    char buf[512];
    for (ssize_t n; (n = read(ends[0], buf, sizeof buf)) > 0;)
        said.append(buf, static_cast<std::size_t>(n));
    close(ends[0]);
    int status = 0;
    return waitpid(child, &status, 0) == child && WIFSIGNALED(status) &&
           WTERMSIG(status) == SIGABRT && said.rfind("DT_ERR_INVALID_ARG: ", 0) == 0;
}

static bool this_throws()
{
    try {
        (void)bare_alloc(0).value();
    } catch (const dt::error &e) {
        return e.code() == dt::status::invalid_arg;
    }
    return false;
}

int main()
{
    if (bare_value(bare_alloc(4096)) != 0)
        return 1;
    if (!this_throws())
        return 2;
    return bare_aborts() ? 0 : 3;
}
