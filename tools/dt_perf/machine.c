#include "machine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "util.h"

static void read_cpu(struct machine *machine)
{
    char line[256];
    FILE *file = fopen("/proc/cpuinfo", "r");

    snprintf(machine->cpu, sizeof machine->cpu, "unknown");
    if (file == NULL)
        return;
    while (fgets(line, sizeof line, file) != NULL) {
        const char *value = strstr(line, ": ");
        if (strncmp(line, "model name", 10) == 0 && value != NULL) {
            snprintf(machine->cpu, sizeof machine->cpu, "%.*s", (int)strcspn(value + 2, "\n"),
                     value + 2);
            break;
        }
    }
    fclose(file);
}

/* The one of "always [madvise] never" that is chosen. */
static void read_thp(struct machine *machine)
{
    char line[128];
    read_line("/sys/kernel/mm/transparent_hugepage/enabled", line, sizeof line);
    const char *start = strchr(line, '[');
    snprintf(machine->thp, sizeof machine->thp, "%.*s",
             start != NULL ? (int)strcspn(start + 1, "]") : 7,
             start != NULL ? start + 1 : "unknown");
}

static void read_l3(struct machine *machine)
{
    char line[64], *unit;
    read_line("/sys/devices/system/cpu/cpu0/cache/index3/size", line, sizeof line);
    machine->l3_bytes = strtoull(line, &unit, 10);
    machine->l3_bytes <<= *unit == 'K' ? 10 : *unit == 'M' ? 20 : 0;
    if (machine->l3_bytes == 0) {
        long bytes = sysconf(_SC_LEVEL3_CACHE_SIZE);
        machine->l3_bytes = bytes > 0 ? (uint64_t)bytes : 0;
    }
}

void machine_read(struct machine *machine)
{
    struct utsname name;

    read_cpu(machine);
    read_thp(machine);
    read_l3(machine);
    machine->cores = sysconf(_SC_NPROCESSORS_ONLN);
    machine->memory_bytes =
        (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    uname(&name);
    snprintf(machine->kernel, sizeof machine->kernel, "%s %s", name.sysname, name.release);
}
