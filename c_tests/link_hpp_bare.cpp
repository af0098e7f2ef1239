// See link_hpp.cpp.
#include "dt.hpp"

#if defined(__cpp_exceptions) || defined(__cpp_rtti)
#error "this is to be compiled with -fno-exceptions and -fno-rtti"
#endif

dt::result<dt::region> bare_alloc(std::size_t size);
int bare_value(dt::result<dt::region> r);

dt::result<dt::region> bare_alloc(std::size_t size) { return dt::region::alloc(size); }

int bare_value(dt::result<dt::region> r) { return r.value().data() != nullptr ? 0 : 1; }
