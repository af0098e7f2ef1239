/* What a machine does not let a test check. */
#ifndef DT_TEST_SKIP_H
#define DT_TEST_SKIP_H

/* Says what is not checked, why, and how to have it checked. A skip is no success where all has to
 * be checked: it ends the test as failed if the environment has CI=true. */
void test_skipped(const char *what_and_why);

#endif
