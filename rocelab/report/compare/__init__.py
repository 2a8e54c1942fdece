"""Reports of comparisons: what `rocelab compare` found, as a page and on a terminal."""
