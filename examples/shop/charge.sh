#!/bin/sh
# Charges a card, once per key: a call that was interrupted is run again with the same key.
arguments=$(cat)
if ! grep -qs "^$OUTLAST_IDEMPOTENCY_KEY " charges; then
    echo "$OUTLAST_IDEMPOTENCY_KEY $arguments" >>charges
fi
echo "$arguments"
