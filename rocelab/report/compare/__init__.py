"""Reports of comparisons: the result of `rocelab compare`, as a page and on a terminal."""
