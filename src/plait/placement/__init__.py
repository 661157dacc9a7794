"""Places jobs on the devices of a cluster by recorded demand: periods, idle windows, slowdown bounds. Pure, without torch."""
