// The same in C++.
#include "link_header.c"
