/* dt_create: every option, every limit, and the growth of the struct. */
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "unit_pair.h"

static uint8_t region[4 * 1024];

/* An options struct of a caller that is newer than the library. */
struct newer {
    dt_options known;
    uint8_t unknown[24];
};

static dt_status create(const dt_options *options)
{
    dt_transport *const untouched = (dt_transport *)region;
    dt_transport *t = untouched;
    dt_status status = dt_create(region, 4, 1024, options, &t);
    CHECK((status == DT_OK) == (t != untouched));
    if (status == DT_OK)
        dt_destroy(t);
    return status;
}

static void check_accessors(const dt_transport *t, const char *name)
{
    CHECK(dt_base_addr(t) == (uintptr_t)region);
    CHECK(dt_num_blocks(t) == 4);
    CHECK(dt_block_len(t) == 1024);
    CHECK(strcmp(dt_config_fingerprint(t), "") == 0);
    CHECK(strcmp(dt_agent_name(t), name) == 0);
    CHECK(dt_backend_kind(t) == test_backend());
}

static void accessors_answer_also_when_closed(void)
{
    dt_options options = test_options();
    dt_transport *t = NULL;
    options.agent_name = "n\xc3\xb6" "de";
    CHECK_OK(dt_create(region, 4, 1024, &options, &t));
    check_accessors(t, options.agent_name);
    CHECK_OK(dt_close(t, BOUND_MS));
    check_accessors(t, options.agent_name);
    dt_destroy(t);
}

static void defaults_need_no_options(void)
{
    dt_transport *a = NULL, *b = NULL;
    CHECK_OK(dt_create(region, 4, 1024, NULL, &a));
    CHECK_OK(dt_create(region, 4, 1024, NULL, &b));
    CHECK(dt_backend_kind(a) == test_backend());
    CHECK(strlen(dt_agent_name(a)) > 0);
    CHECK(strcmp(dt_agent_name(a), dt_agent_name(b)) != 0);
    dt_destroy(a);
    dt_destroy(b);

    dt_options options;
    memset(&options, 0, sizeof options);
    options.struct_size = sizeof options;
    CHECK_OK(create(&options));
}

static void geometry(void)
{
    dt_transport *t = NULL;
    CHECK_STATUS(dt_create(NULL, 4, 1024, NULL, &t), DT_ERR_INVALID_ARG);
    CHECK_STATUS(dt_create(region, 0, 1024, NULL, &t), DT_ERR_INVALID_ARG);
    CHECK_STATUS(dt_create(region, 4, 0, NULL, &t), DT_ERR_INVALID_ARG);
    CHECK_STATUS(dt_create(region, SIZE_MAX, 2, NULL, &t), DT_ERR_INVALID_ARG);
    CHECK_STATUS(dt_create(region, SIZE_MAX, SIZE_MAX, NULL, &t), DT_ERR_INVALID_ARG);
    CHECK_STATUS(dt_create(region, 4, 1024, NULL, NULL), DT_ERR_INVALID_ARG);
    CHECK(t == NULL);
}

static void backends(void)
{
    dt_options options = DT_OPTIONS_INIT;
    static const int unknown[] = {-1, 3, INT32_MAX, INT32_MIN};
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++) {
        memcpy(&options.backend, &unknown[i], sizeof options.backend);
        CHECK_STATUS(create(&options), DT_ERR_INVALID_ARG);
        CHECK(strstr(dt_last_error(), "backend") != NULL);
    }
    /* Not there; or not the one that this process has loaded. */
    options.backend = DT_BACKEND_NIXL;
    options.nixl_lib_dir = "/nonexistent";
    CHECK_STATUS(create(&options), DT_ERR_UNAVAILABLE);
    CHECK(strstr(dt_last_error(), "NIXL") != NULL);
    CHECK(strstr(dt_last_error(), "/nonexistent") != NULL);
    options.backend = DT_BACKEND_LOCAL;
    CHECK_OK(create(&options));
}

static void abi_version(void)
{
    dt_options options = test_options();
    options.abi_version = 0;
    CHECK_OK(create(&options));
    options.abi_version = DT_ABI_VERSION + 1;
    CHECK_OK(create(&options));
    options.abi_version = DT_ABI_VERSION + 0x10000;
    CHECK_STATUS(create(&options), DT_ERR_INCOMPATIBLE);
    options.abi_version = UINT32_MAX;
    CHECK_STATUS(create(&options), DT_ERR_INCOMPATIBLE);
    CHECK(strstr(dt_last_error(), "65535") != NULL);
}

static void struct_size(void)
{
    struct newer newer;
    memset(&newer, 0, sizeof newer);
    newer.known = test_options();

    static const size_t too_small[] = {0, 1, 8, sizeof(dt_options) - 1};
    for (size_t i = 0; i < sizeof too_small / sizeof *too_small; i++) {
        newer.known.struct_size = too_small[i];
        CHECK_STATUS(create(&newer.known), DT_ERR_INVALID_ARG);
        CHECK(strstr(dt_last_error(), "struct_size") != NULL);
    }
    static const size_t garbage[] = {4097, SIZE_MAX, SIZE_MAX / 2};
    for (size_t i = 0; i < sizeof garbage / sizeof *garbage; i++) {
        newer.known.struct_size = garbage[i];
        CHECK_STATUS(create(&newer.known), DT_ERR_INVALID_ARG);
    }

    /* Newer callers are welcome as long as they ask for nothing new; every byte counts. */
    for (size_t size = sizeof newer.known; size <= sizeof newer; size++) {
        newer.known.struct_size = size;
        CHECK_OK(create(&newer.known));
    }
    for (size_t at = 0; at < sizeof newer.unknown; at++) {
        newer.unknown[at] = 1;
        CHECK_STATUS(create(&newer.known), DT_ERR_INCOMPATIBLE);
        newer.known.struct_size = sizeof newer.known + at;
        CHECK_OK(create(&newer.known));
        newer.known.struct_size = sizeof newer;
        newer.unknown[at] = 0;
    }

    /* A struct that was never written, and one at an odd address. */
    memset(&newer, 0xff, sizeof newer);
    CHECK_STATUS(create(&newer.known), DT_ERR_INVALID_ARG);
    CHECK_STATUS(create((const dt_options *)((const char *)&newer + 1)), DT_ERR_INVALID_ARG);
}

static void names(void)
{
    char name[1002];
    dt_options options = test_options();
    options.agent_name = "";
    CHECK_STATUS(create(&options), DT_ERR_INVALID_ARG);
    options.agent_name = name;
    memset(name, 'n', sizeof name);
    name[1001] = 0;
    CHECK_STATUS(create(&options), DT_ERR_INVALID_ARG);
    CHECK(strstr(dt_last_error(), "1001") != NULL);
    name[1000] = 0;
    CHECK_OK(create(&options));
    name[3] = (char)0x80;
    CHECK_STATUS(create(&options), DT_ERR_INVALID_ARG);
    CHECK(strstr(dt_last_error(), "agent_name") != NULL);
    CHECK(strstr(dt_last_error(), "byte 3") != NULL);

    const char *const not_utf8 = "\xc3";
    options = test_options();
    options.config_json = not_utf8;
    CHECK_STATUS(create(&options), DT_ERR_INVALID_ARG);
    options = test_options();
    options.nixl_lib_dir = not_utf8;
    CHECK_STATUS(create(&options), DT_ERR_INVALID_ARG);
    options = test_options();
    options.nixl_plugin = not_utf8;
    CHECK_STATUS(create(&options), DT_ERR_INVALID_ARG);
}

static void poll_budget(void)
{
    dt_options options = test_options();
    options.poll_budget_us = 1;
    CHECK_OK(create(&options));
    options.poll_budget_us = 1000000;
    CHECK_OK(create(&options));
    options.poll_budget_us = 1000001;
    CHECK_STATUS(create(&options), DT_ERR_INVALID_ARG);
    CHECK(strstr(dt_last_error(), "1000001") != NULL);
}

static void file_descriptor(void)
{
    dt_options options = test_options();
    const size_t page = 4096;
    int fd = memfd_create("region", MFD_CLOEXEC);
    CHECK(fd >= 0 && ftruncate(fd, (off_t)(3 * page)) == 0);
    void *base = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)page);
    CHECK(base != MAP_FAILED);
    dt_transport *t = NULL;

    /* Without the flag the descriptor is not looked at, and NIXL never looks at it. */
    options.region_fd = -5;
    options.region_offset = 12345;
    CHECK_OK(dt_create(base, 4, 1024, &options, &t));
    dt_destroy(t);
    options.region_has_fd = true;
    if (on_nixl()) {
        CHECK_OK(dt_create(base, 4, 1024, &options, &t));
        dt_destroy(t);
        CHECK(close(fd) == 0);
        CHECK(munmap(base, page) == 0);
        return;
    }
    CHECK_STATUS(dt_create(base, 4, 1024, &options, &t), DT_ERR_INVALID_ARG);
    CHECK(strstr(dt_last_error(), "region_fd is -5") != NULL);

    options.region_fd = fd;
    options.region_offset = 0;
    CHECK_STATUS(dt_create(base, 4, 1024, &options, &t), DT_ERR_INVALID_ARG);
    options.region_offset = page;
    CHECK_OK(dt_create(base, 4, 1024, &options, &t));
    dt_destroy(t);

    /* Any byte but 0 is true. */
    memset(&options.region_has_fd, 0x42, 1);
    memset(&options.progress_thread, 0x42, 1);
    options.region_offset = 0;
    CHECK_STATUS(dt_create(base, 4, 1024, &options, &t), DT_ERR_INVALID_ARG);
    options.region_offset = page;
    CHECK_OK(dt_create(base, 4, 1024, &options, &t));

    /* It was duplicated. */
    CHECK(close(fd) == 0);
    CHECK_OK(dt_close(t, BOUND_MS));
    dt_destroy(t);
    CHECK(munmap(base, page) == 0);
}

static void environment_chooses_for_auto(void)
{
    dt_options options = DT_OPTIONS_INIT;
    CHECK(setenv("DT_BACKEND", "local", 1) == 0);
    CHECK_OK(create(&options));
    CHECK(setenv("DT_BACKEND", "nixl", 1) == 0);
    CHECK_STATUS(create(&options), on_nixl() ? DT_OK : DT_ERR_UNAVAILABLE);
    CHECK(setenv("DT_BACKEND", "nonsense", 1) == 0);
    CHECK_STATUS(create(&options), DT_ERR_INVALID_ARG);
    options.backend = DT_BACKEND_LOCAL;
    CHECK_OK(create(&options));
    CHECK(unsetenv("DT_BACKEND") == 0);
}

int main(void)
{
    /* Where NIXL shall not be, it is not found. */
    if (!on_nixl())
        CHECK(setenv("DT_NIXL_LIB_DIR", "/nonexistent", 1) == 0);
    CHECK(unsetenv("DT_BACKEND") == 0);
    accessors_answer_also_when_closed();
    defaults_need_no_options();
    geometry();
    backends();
    abi_version();
    struct_size();
    names();
    poll_budget();
    file_descriptor();
    environment_chooses_for_auto();
    return 0;
}
