#include "nixl_capi.h"

#include <dlfcn.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "util.h"

static const char *folder(void)
{
    const char *dir = getenv("DT_NIXL_LIB_DIR");
    return dir != NULL && dir[0] != '\0' ? dir : NULL;
}

struct symbol {
    const char *name;
    size_t at; /* in struct nixl */
};

#define SYMBOL(name) {"nixl_capi_" #name, offsetof(struct nixl, name)}
static const struct symbol symbols[] = {
    SYMBOL(create_configured_agent),
    SYMBOL(destroy_agent),
    SYMBOL(create_params),
    SYMBOL(destroy_params),
    SYMBOL(create_backend),
    SYMBOL(destroy_backend),
    SYMBOL(create_opt_args),
    SYMBOL(destroy_opt_args),
    SYMBOL(opt_args_add_backend),
    SYMBOL(create_reg_dlist),
    SYMBOL(destroy_reg_dlist),
    SYMBOL(reg_dlist_add_desc),
    SYMBOL(register_mem),
    SYMBOL(deregister_mem),
    SYMBOL(get_local_md),
    SYMBOL(load_remote_md),
    SYMBOL(create_xfer_dlist),
    SYMBOL(destroy_xfer_dlist),
    SYMBOL(xfer_dlist_add_desc),
    SYMBOL(prep_xfer_dlist),
    SYMBOL(release_xfer_dlist_handle),
    SYMBOL(invalidate_remote_md),
    SYMBOL(create_xfer_req),
    SYMBOL(post_xfer_req),
    SYMBOL(get_xfer_status),
    SYMBOL(release_xfer_req),
    SYMBOL(destroy_xfer_req),
    SYMBOL(create_notif_map),
    SYMBOL(destroy_notif_map),
    SYMBOL(get_notifs),
};

const struct nixl *nixl_load(char *why, size_t cap)
{
    static struct nixl nixl;
    static bool loaded;
    char path[4096];
    void *library;

    if (loaded)
        return &nixl;
    if (folder() != NULL)
        snprintf(path, sizeof path, "%s/libnixl_capi.so", folder());
    else
        snprintf(path, sizeof path, "libnixl_capi.so");
    library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        snprintf(why, cap, "%s%s", dlerror(),
                 folder() == NULL ? "; DT_NIXL_LIB_DIR is not set" : "");
        return NULL;
    }
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
        void *found = dlsym(library, symbols[i].name);
        if (found == NULL) {
            snprintf(why, cap, "%s has no %s", path, symbols[i].name);
            return NULL;
        }
        memcpy((char *)&nixl + symbols[i].at, &found, sizeof found);
    }
    loaded = true;
    return &nixl;
}

/* "…/nixl_cu12-1.5.1.dist-info" beside the library's folder. */
void nixl_version(char *version, size_t cap)
{
    char why[8], pattern[4096];
    glob_t found = {0};

    version[0] = '\0';
    if (nixl_load(why, sizeof why) == NULL)
        return;
    snprintf(version, cap, "unknown");
    if (folder() == NULL)
        return;
    snprintf(pattern, sizeof pattern, "%s/../nixl*-*.dist-info", folder());
    if (glob(pattern, 0, NULL, &found) == 0) {
        const char *dash = strrchr(found.gl_pathv[0], '-');
        /* The last dash is that of "dist-info". */
        while (dash > found.gl_pathv[0] && *--dash != '-')
            continue;
        size_t len = strcspn(dash + 1, "-") - strlen(".dist");
        snprintf(version, cap, "%.*s", (int)len, dash + 1);
    }
    globfree(&found);
}

static bool open_with(struct nixl_agent *agent, const void *base, size_t bytes,
                      const struct nixl_config *config, const char **step)
{
    const struct nixl *nixl = agent->nixl;
    void *params = NULL, *args = NULL;
    char name[64];
    static unsigned number;
    bool ok;

    snprintf(name, sizeof name, "dt_perf-%ld-%u-%llx", (long)getpid(), number++,
             (unsigned long long)now_ns());
    *step = "create_agent";
    if (nixl->create_configured_agent(name, config, &agent->agent) != 0)
        return false;
    *step = "create_backend";
    ok = nixl->create_params(&params) == 0 &&
         nixl->create_backend(agent->agent, "UCX", params, &agent->backend) == 0;
    if (params != NULL)
        nixl->destroy_params(params);
    if (!ok)
        return false;
    *step = "register_mem";
    ok = nixl->create_reg_dlist(NIXL_DRAM, &agent->list) == 0 &&
         nixl->reg_dlist_add_desc(agent->list, (uintptr_t)base, bytes, 0, NULL, 0) == 0 &&
         nixl->create_opt_args(&args) == 0 &&
         nixl->opt_args_add_backend(args, agent->backend) == 0 &&
         nixl->register_mem(agent->agent, agent->list, args) == 0 &&
         nixl->create_notif_map(&agent->notifs) == 0;
    if (args != NULL)
        nixl->destroy_opt_args(args);
    return ok;
}

bool nixl_agent_open(struct nixl_agent *agent, const void *base, size_t bytes,
                     bool progress_thread, char *why, size_t cap)
{
    struct nixl_config config = {.progress_thread = progress_thread};
    const char *step;

    *agent = (struct nixl_agent){.nixl = nixl_load(why, cap)};
    if (agent->nixl == NULL)
        return false;
    if (open_with(agent, base, bytes, &config, &step))
        return true;
    snprintf(why, cap, "NIXL's %s has failed (NIXL_LOG_LEVEL=INFO lets it say why)", step);
    nixl_agent_close(agent);
    return false;
}

void nixl_agent_close(struct nixl_agent *agent)
{
    const struct nixl *nixl = agent->nixl;
    if (agent->notifs != NULL)
        nixl->destroy_notif_map(agent->notifs);
    if (agent->list != NULL) {
        nixl->deregister_mem(agent->agent, agent->list, NULL);
        nixl->destroy_reg_dlist(agent->list);
    }
    if (agent->backend != NULL)
        nixl->destroy_backend(agent->backend);
    if (agent->agent != NULL)
        nixl->destroy_agent(agent->agent);
    *agent = (struct nixl_agent){.nixl = nixl};
}

void nixl_agent_progress(struct nixl_agent *agent)
{
    agent->nixl->get_notifs(agent->agent, agent->notifs, NULL);
}
