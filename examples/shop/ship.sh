#!/bin/sh
# Sends a parcel, every time it is run.
cat >>parcels
echo >>parcels
echo '"on its way"'
