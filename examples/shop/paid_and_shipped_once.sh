#!/bin/sh
# The invariant: after every run the card was charged once, and at most one parcel left.
# What happened comes as JSON on standard input; the files that the tools wrote are in this directory.
seen=$(cat)
lines() { if [ -f "$1" ]; then grep -c . "$1"; else echo 0; fi; }
fail() { echo "$1" >&2; exit 1; }

[ "$(lines charges)" -eq 1 ] || fail "charged $(lines charges) times"
[ "$(lines parcels)" -le 1 ] || fail "shipped $(lines parcels) times"
case $seen in
*tool.outcome_unknown*) ;; # the process died while the parcel was on its way; a person has to look
*) [ "$(lines parcels)" -eq 1 ] || fail "paid, but no parcel left" ;;
esac
