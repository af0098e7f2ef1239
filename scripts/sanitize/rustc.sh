#!/bin/sh
# RUSTC_WRAPPER: lets a stable compiler build with a sanitizer. Only where it is asked for: build
# scripts look at this variable, and would all be built again.
case " $* " in
    *" -Zsanitizer="*) export RUSTC_BOOTSTRAP=1 ;;
esac
exec "$@"
