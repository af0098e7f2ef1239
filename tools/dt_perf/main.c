/* dt_perf: measures libdatatransport beside what it could be compared with. See help.c. */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "args.h"
#include "nixl_capi.h"
#include "output.h"
#include "progress.h"
#include "tests.h"
#include "util.h"

/* For UCX and NIXL, in every process, before they are loaded. What the user has set stays. */
static void prepare_environment(void)
{
    setenv("NIXL_LOG_LEVEL", "FATAL", 0);
    setenv("UCX_LOG_LEVEL", "FATAL", 0);
    /* Of no use without RDMA devices, and on some systems it crashes when the process exits. */
    if (access("/sys/class/infiniband", F_OK) != 0)
        setenv("UCX_MODULES", "^ib", 0);
    signal(SIGPIPE, SIG_IGN);
}

static void start_report(struct report *report, const struct settings *settings)
{
    time_t now = time(NULL);
    const char *tls = getenv("UCX_TLS");

    report->settings = settings;
    strftime(report->started, sizeof report->started, "%Y-%m-%dT%H:%M:%SZ", gmtime(&now));
    snprintf(report->ucx_tls, sizeof report->ucx_tls, "%s", tls != NULL ? tls : "");
    machine_read(&report->machine);
}

int main(int argc, char **argv)
{
    static void (*const tests[TESTS])(struct job *) = {test_transfer, test_add_peer,
                                                       test_in_flight, test_idle};
    struct settings settings;
    struct links links;
    struct results results = {0};
    struct job job = {&settings, &links, &results};
    struct report report = {0};

    args_parse(&settings, argc, argv);
    prepare_environment();
    if (settings.listen != NULL) {
        links_listen(settings.listen);
        return 0;
    }
    if (settings.test == IN_FLIGHT && settings.ucx_tls == NULL && getenv("UCX_TLS") == NULL)
        settings.ucx_tls = "tcp";
    links_start(&links, &settings);
    start_report(&report, &settings);
    tests[settings.test](&job);
    links_end(&links);
    progress_clear();
    results_finish(&results);
    report.results = &results;
    nixl_version(report.nixl, sizeof report.nixl);
    (settings.json ? print_json : print_table)(&report);
    if (fflush(stdout) != 0 || ferror(stdout))
        die("cannot write to stdout");
    results_free(&results);
    return 0;
}
