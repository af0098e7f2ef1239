#include "progress.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static size_t steps, done;
static bool shown, drawn;

void progress_start(size_t count, bool wanted)
{
    steps = count > 0 ? count : 1;
    done = 0;
    shown = wanted && isatty(STDERR_FILENO);
}

static void draw(const char *what)
{
    enum { WIDTH = 30 };
    char bar[WIDTH + 1];
    size_t full = done < steps ? done * WIDTH / steps : WIDTH;

    if (!shown)
        return;
    memset(bar, ' ', WIDTH);
    memset(bar, '#', full);
    bar[WIDTH] = '\0';
    fprintf(stderr, "\r\033[K[%s] %3zu %%  %s", bar, full == WIDTH ? 100 : done * 100 / steps,
            what);
    fflush(stderr);
    drawn = true;
}

void progress_step(const char *what)
{
    draw(what);
    done++;
}

void progress_clear(void)
{
    if (drawn)
        fprintf(stderr, "\r\033[K");
    drawn = false;
}
