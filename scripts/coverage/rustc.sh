#!/bin/sh
# RUSTC_WORKSPACE_WRAPPER: has this package measured, and none that it depends on. Branches are counted
# with a switch that a stable compiler does not take otherwise.
case " $* " in
    *" --crate-name build_script_build "* | *" -vV "* | *" --print="*) exec "$@" ;;
esac
RUSTC_BOOTSTRAP=1 exec "$@" -Cinstrument-coverage -Zcoverage-options=branch
