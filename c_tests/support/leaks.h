/* Where the LeakSanitizer cannot tell what is lost. */
#ifndef DT_TEST_LEAKS_H
#define DT_TEST_LEAKS_H

/* From now on it does not look in this process. It starts a process of its own to look from outside, which
 * a filter or a namespace may not let it; and in the child of a fork it does not see what the threads
 * hold that do not exist there. Without a sanitizer nothing happens. */
void leaks_cannot_be_found(void);

#endif
