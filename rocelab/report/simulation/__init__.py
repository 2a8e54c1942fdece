"""Reports of simulations: what `rocelab simulate` worked out, as a page and on a terminal."""
