"""Reports of simulations: the result of `rocelab simulate`, as a page and on a terminal."""
